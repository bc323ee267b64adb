"""FedFlat as its users have it: from a wheel without a clone, or from a clone, in folders whose names are those of its
own. Every command is a new process of the environment in which FedFlat is installed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fedflat.new_project import write_project
from tests.documents import Page
from tests.end_to_end.pipeline import CELLS
from tests.places import ROOT
from tests.tiers import case, thorough

pytestmark = pytest.mark.long

PARTS = ["LICENSE", "MANIFEST.in", "README.md", "Snakefile", "pyproject.toml"]
FOLDERS = ["analysis", "bench", "config", "fedflat", "paper_tables", "profiles", "results/baselines"]
"""What a wheel is built from."""

OF_A_CLONE = {"paper_tables/README.md", "paper_tables/audit.md"}
"""Pages of the site, which are not installed."""

OWN = ["analysis.py", "bench/__init__.py", "paper_tables/__init__.py", "pandas.py", "results/notes.py"]
"""Modules of a user, none of which may be imported."""

SIMULATE = """
import sys
import fedflat
import torch

x, y = torch.randn(20, 3), torch.arange(20) % 2
result = fedflat.simulate("fedsam", model=torch.nn.Linear(3, 2), clients=[(x, y)], rounds=1, local_steps=1, lr=0.1,
                          hyperparameters={"rho": 0.1}, test=(x, y))
assert len(result.history) == 1
assert not {"bench", "analysis"} & set(sys.modules)
print(fedflat.__file__)
"""

FINGERPRINTS = """
from fedflat.analysis.analyses.provenance import analysis_fingerprint
from fedflat.bench.training.code_version import code_fingerprint

print(code_fingerprint(), analysis_fingerprint("hessian"), analysis_fingerprint("cost"))
"""

EARLIER_IMPORTS = """
from bench.methods.base import Perturbation, unit
from bench.methods.recipe import Components, Recipe


class Ascent(Perturbation):
    name = "ascent"

    def delta(self, w, gradient, client):
        return 0.05 * unit(gradient(w))


METHOD = Recipe("ascent", "Ascent", "here", Components(perturbation=Ascent))
"""

SMALLER = {
    "snakemake --cores 2": "--config seeds=[0]",
    "snakemake --cores 2 mine_table_accuracy": "--config seeds=[0]",
    f"fedflat run experiments.yaml {CELLS}/mine": "--seed 0",
    "fedflat summary experiments.yaml": "--set grid.seeds=[0]",
    "fedflat compare mine --grid quick --experiment experiments.yaml": "--set grid.seeds=[0]",
    "snakemake --cores 2 compare --config method=mine.py grid=quick": "trials=0 seeds=[0]",
    "snakemake --cores 2 fedgf_table_2 --config scale=smoke seeds=[0]": "rounds=1 methods=[fedavg,fedsam]",
}
"""What is appended to commands of a project's README."""


def ended(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=1200)


def output(words: list[str], folder: Path) -> str:
    done = ended(words, folder)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def build(source: Path, kind: str, folder: Path) -> Path:
    """A wheel or sdist of a folder, by the build back end alone: nothing is downloaded."""
    call = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    output([sys.executable, "-c", call], source)
    [file] = folder.iterdir()
    return file


def installed(folder: Path) -> None:
    """A wheel of the clone, one of its sdist, and an environment with the first and the libraries of the tests."""
    source, archive = folder / "clone", folder / "sdist"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PARTS:
        shutil.copyfile(ROOT / name, source / name)
    for place in ("wheel", "sdist", "again"):
        (folder / place).mkdir()
    wheel = build(source, "wheel", folder / "wheel")
    shutil.rmtree(source / "build")
    with tarfile.open(build(source, "sdist", archive)) as files:
        files.extractall(archive / "unpacked", filter="data")
    [unpacked] = (archive / "unpacked").iterdir()
    build(unpacked, "wheel", folder / "again")
    shutil.rmtree(source)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    install = ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    output([sys.executable, "-m", "pip", "--python", str(python), *install], folder)
    [packages] = (folder / "venv/lib").glob("*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")


Python = Callable[[str], Path]


@pytest.fixture
def python(once) -> Python:
    """The interpreter of an environment in which FedFlat is installed from a `clone`, or from a `wheel`."""
    return lambda kind: Path(sys.executable) if kind == "clone" else once(installed) / "venv/bin/python"


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@thorough
def test_a_wheel_has_every_file_once_and_one_name(once):
    folder = once(installed)
    [wheel], [again] = ((folder / place).glob("*.whl") for place in ("wheel", "again"))
    found = names(wheel)
    assert len(set(found)) == len(found)
    assert sorted(found) == sorted(names(again)), "the wheel of the sdist"
    assert {name.partition("/")[0].partition("-")[0] for name in found} == {"fedflat"}
    assert wheel.stat().st_size < 4.5e6
    files = {
        str(Path(place, name).relative_to(ROOT / "fedflat"))
        for place, folders, files in os.walk(ROOT / "fedflat", followlinks=True)
        for name in files
        if "__pycache__" not in place
    }
    assert files - {name.removeprefix("fedflat/") for name in found} == OF_A_CLONE


@thorough
def test_the_code_of_a_wheel_has_the_fingerprints_of_the_clone(python: Python, tmp_path: Path):
    """Runs and analyses record them."""
    printed = [output([str(python(kind)), "-c", FINGERPRINTS], tmp_path).split() for kind in ("clone", "wheel")]
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == 3


@pytest.mark.parametrize("kind", [case("clone", quick=True), case("wheel", quick=False)])
def test_a_folder_with_modules_that_are_named_as_folders_of_fedflat(kind: str, python: Python, tmp_path: Path):
    for name in OWN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise ImportError('this is another module')\n", encoding="utf-8")
    interpreter = str(python(kind))
    (tmp_path / "pandas.py").rename(tmp_path / "not yet")  # `python -c` would import it
    place = Path(output([interpreter, "-c", SIMULATE], tmp_path).strip())
    (tmp_path / "not yet").rename(tmp_path / "pandas.py")
    assert place.is_relative_to(ROOT) == (kind == "clone")
    tool = [interpreter, "-P", "-m"]
    options = ["--seed", "0", "--set", "training.rounds=1", "--device", "cpu"]
    assert "stored in" in output([*tool, "fedflat", "run", "quick", f"{CELLS}/fedavg", *options], tmp_path)
    write_project(tmp_path)
    runs = f"results/experiments/mine/{CELLS}/mine/runs.csv"
    output([*tool, "snakemake", "--cores", "1", runs, "--config", "rounds=1", "seeds=[0]"], tmp_path)
    assert (tmp_path / runs).is_file()


def test_the_root_of_a_clone_is_the_current_folder():
    """As in a notebook there, it is the first place of modules."""
    assert output([sys.executable, "-c", SIMULATE], ROOT) == f"{ROOT / 'fedflat/__init__.py'}\n"


@thorough
def test_the_commands_of_a_project_without_a_clone(python: Python, tmp_path: Path):
    interpreter = python("wheel")
    output([str(interpreter.with_name("fedflat")), "init", "project"], tmp_path)
    project = tmp_path / "project"
    programs = {
        "fedflat": [str(interpreter.with_name("fedflat"))],
        "snakemake": [str(interpreter), "-P", "-m", "snakemake"],
    }
    printed = {}
    for command in Page(project / "README.md").commands:
        program, *words = shlex.split(f"{command} {SMALLER.pop(command, '')}")
        if "--profile" not in words:  # needs a cluster
            printed[command] = output([*programs[program], *words], project)
    assert not SMALLER
    assert (project / "results/reports/mine/index.html").is_file()
    assert "No verdict: 1 seed" in printed["fedflat compare mine --grid quick --experiment experiments.yaml"]
    compared = printed["snakemake --cores 2 compare --config method=mine.py grid=quick"]
    assert re.search(r"^Best rivals: Mine is ", compared, re.MULTILINE)
    assert "2,720" in output([*programs["fedflat"], "baselines", "show"], project)
    rows = pd.read_csv(project / "results/reports/fedgf_smoke/tables/2.csv")
    assert (rows["source"] == "run").any()
    assert rows["published"].notna().any()


@thorough
def test_a_method_with_earlier_imports_without_a_clone(python: Python, tmp_path: Path):
    (tmp_path / "ascent.py").write_text(EARLIER_IMPORTS, encoding="utf-8")
    printed = output([str(python("wheel")), "-P", "-m", "fedflat", "methods", "ascent.py"], tmp_path)
    assert "imports bench.methods.base, bench.methods.recipe by the earlier name" in printed
    assert "gradients per local step: 2" in printed
