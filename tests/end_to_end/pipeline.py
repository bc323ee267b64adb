"""Snakemake on the small experiment `mini`: its commands, its finished results, and what is compared of results."""

import shutil
from pathlib import Path

import pandas as pd

from tests.commands import run
from tests.places import MINI

CELLS = "digits/dirichlet-0.1/4-of-20"
OWN = "[own/experiments.yaml]"
"""The experiment of a folder that `with_mini` or `finished_mini` has filled, for `--config experiments=`."""


def command(folder: Path, *arguments: str, **config: object) -> list[str]:
    values = {"experiments": f"[{MINI}]", **config}
    config_values = [f"{key}={value}" for key, value in values.items() if value is not None]
    return ["snakemake", "--directory", str(folder), "--cores", "2", *arguments, "--config", *config_values]


def snakemake(folder: Path, *arguments: str, **config: object) -> str:
    """What Snakemake prints, which must succeed."""
    done = run(command(folder, *arguments, **config))
    logs = "\n".join(
        f"{log}:\n{log.read_text(encoding='utf-8')}" for log in (folder / "results" / "logs").rglob("*.log")
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return done.stdout + done.stderr


def with_mini(folder: Path) -> Path:
    """A copy of the experiment, as the folder `own`."""
    return Path(shutil.copytree(Path(MINI).parent, folder / "own"))


def finished_mini(folder: Path) -> None:
    """The folder `own`, its results, and the file `printed` with the output of Snakemake; for the fixture `once`."""
    with_mini(folder)
    (folder / "printed").write_text(snakemake(folder, experiments=OWN), encoding="utf-8")


def edited(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def run_files(folder: Path) -> dict[str, bytes]:
    """The files of runs without logs, provenance and times, and the lists without what depends on these."""
    files = [f for f in (folder / "results" / "store").rglob("seed-*/**/*") if f.is_file()]
    compared = (f for f in files if f.name not in ("run.log", "provenance.json", "times.csv", "runs.csv.sha256"))
    found = {str(f.relative_to(folder)): f.read_bytes() for f in compared}
    for table in (folder / "results" / "experiments").rglob("runs.csv"):
        rows = pd.read_csv(table, dtype=str).drop(columns="training")
        found[str(table.relative_to(folder))] = rows.to_csv().encode()
    return found
