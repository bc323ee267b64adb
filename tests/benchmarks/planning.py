"""Planning of grids with many runs: what `snakemake -n` and `fedflat plan` cost before anything is trained."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.files.atomic import write_text
from tests.benchmarks import process
from tests.benchmarks.report import Cell, Section, Table
from tests.benchmarks.setting import Setting
from tests.commands import SNAKEMAKE

EMPTY = """
rule all:
    input: [f"results/{{k}}/metrics.csv" for k in range({jobs})]

rule train:
    output: "results/{{k}}/metrics.csv"
    shell: "touch {{output}}"
"""
"""A workflow with as many jobs, whose rules ask nothing: what Snakemake itself takes."""


def grid(folder: Path, cells: int, seeds: int) -> Path:
    """An experiment with the methods of `quick`, and at least so many cells."""
    quick = load_experiment("quick")
    settings = len(quick.grid.participation) * len(quick.methods)
    partitions = [{"name": "dirichlet", "alpha": (k + 1) / 100, "clients": 20} for k in range(-(-cells // settings))]
    data = {"name": "many", "extends": "quick", "grid": {"partition": partitions, "seeds": list(range(seeds))}}
    write_text(file := folder / "experiments.yaml", yaml.safe_dump(data))
    return file


def measured(*words: object, folder: Path) -> tuple[float, float]:
    """Seconds of processor time, and MiB of memory."""
    command = ["python", "-m", "tests.benchmarks.measured", *map(str, words)]
    done = process.run(command, folder, process.environment(1))
    seconds, memory = json.loads(done.stderr.splitlines()[-1])
    return seconds, memory


def measure(setting: Setting) -> list[Section]:
    """One section with a table of all grids."""
    rows: list[tuple[Cell, ...]] = []
    for cells, seeds in setting.sizes.planning:
        with TemporaryDirectory() as name:
            folder = Path(name)
            file = grid(folder, cells, seeds)
            jobs = len(load_experiment(str(file)).paths())
            write_text(folder / "Snakefile", EMPTY.format(jobs=jobs))
            commands = {
                "snakemake -n": ["snakemake", *SNAKEMAKE, "-n", "many_runs", "--config", f"experiments=[{file}]"],
                "fedflat plan": ["fedflat", "plan", "many_runs", "--experiment", file],
                "snakemake -n, empty workflow": ["snakemake", "-n"],
            }
            for command, words in commands.items():
                setting.progress(f"{command}: {jobs:,} cells, {seeds} seeds")
                rows.append((jobs, jobs * seeds, command, *measured(*words, folder=folder)))
    about = "Processor time and peak memory of a command that trains nothing: grids of many cells, and of many seeds."
    return [Section("Planning", [Table(about, ("cells", "runs", "command", "s", "peak MiB"), rows)])]
