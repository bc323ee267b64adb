"""Rows of an analysis are taken from another experiment that has the same run, and computed where anything differs."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.provenance import TEXT_COLUMNS
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv, read_checked_json, write_checked_csv, write_checked_json
from fedflat.bench.training.train import train_cell

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
FEDSAM, FEDAVG = f"{SETTING}/fedsam", f"{SETTING}/fedavg"
CHANGES = {"training.rounds": 2, "grid.seeds": [0, 1], "evaluation.snapshot_every": 1, "engine.backend": "loop"}
OPTIONS = {
    "flatness": {"images": 60, "draws": 3},
    "sharpness": {"images": 60, "radii": [0.1]},
    "drift": {"images": 60, "rho": 0.1},
    "cost": {},
    "convergence": {"targets": [20]},
    "surface": {"images": 60, "points": 3, "reference": "fedavg"},
}


def analysed(results: Path, experiment: str, name: str, options: dict | None = None, out: Path | None = None):
    """Run an analysis of FedSAM's cell; the lines of progress about taken rows."""
    paths, said = ResultPaths(results), list[str]()
    compared = [paths.cell(experiment, FEDAVG)] if name == "surface" else []
    file = out or paths.analysis(experiment, FEDSAM, name)
    parsed = parse_analysis(name, OPTIONS[name] if options is None else options)
    run_analysis(parsed, paths.cell(experiment, FEDSAM), file, CPU, said.append, compared)
    return [line for line in said if "taken" in line]


def rows(results: Path, experiment: str, name: str) -> pd.DataFrame:
    """The tidy file as text."""
    table = pd.read_csv(ResultPaths(results).analysis(experiment, FEDSAM, name), dtype=str, keep_default_na=False)
    return table.drop(columns=["experiment", "checksum"])


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A folder of results in which `mine` has taken the runs of `quick`, and only those of `quick` are analysed."""
    results = tmp_path_factory.mktemp("shared") / "results"
    for experiment in ("quick", "mine"):
        for path in (FEDAVG, FEDSAM):
            cell = load_experiment("quick", CHANGES).cell(path)
            train_cell(experiment, cell, ResultPaths(results).cell(experiment, path), CPU, str)
    for name in OPTIONS:
        analysed(results, "quick", name)
    return results


@pytest.fixture
def results(first, tmp_path) -> Path:
    """A copy of it, with the same times of files."""
    return shutil.copytree(first, tmp_path / "results")


@pytest.mark.parametrize("name", OPTIONS)
def test_all_rows_are_taken(name, results):
    """Digit by digit, and the column that says from where is the only further one."""
    place = f"analysis/quick/{FEDSAM}/{name}.csv"
    seeds = [0] if name == "surface" else [0, 1]
    assert analysed(results, "mine", name) == [
        f"seed {seed}: taken from '{place}', which has the same run and options" for seed in seeds
    ]
    taken = rows(results, "mine", name)
    assert set(taken.pop("taken_from")) == {place}
    assert taken.equals(rows(results, "quick", name))
    assert analysed(results, "mine", name, out=results.parent / f"{name}.csv") == [], "outside of the results"
    shutil.rmtree(ResultPaths(results).analysis("quick", FEDSAM, name).parent)
    assert len(analysed(results, "quick", name)) == len(seeds), "and taken back"
    assert rows(results, "quick", name).drop(columns="taken_from").equals(taken)


def trained_again(results: Path, path: str) -> None:
    """Let quick's run of seed 0 be of another training."""
    file = ResultPaths(results).run("quick", path, 0) / "provenance.json"
    before = file.stat()
    write_checked_json(file, {**read_checked_json(file, ""), "started": "later"})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def of_other_code(file: Path) -> None:
    write_checked_csv(file, read_checked_csv(file, (), "", texts=TEXT_COLUMNS).assign(code="0" * 16))


CHANGED = {
    "the run": lambda results, file: trained_again(results, FEDSAM),
    "the compared run": lambda results, file: trained_again(results, FEDAVG),
    "the run, after the analysis": lambda results, file: os.utime(file, (0, 0)),
    "the code": lambda results, file: of_other_code(file),
    "damaged": lambda results, file: file.write_bytes(file.read_bytes()[:-9]),
    "empty": lambda results, file: file.write_bytes(b""),
    "no compared run": lambda results, file: shutil.rmtree(ResultPaths(results).cell("quick", FEDAVG)),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_where_something_differs_rows_are_computed(change, results):
    file = ResultPaths(results).analysis("quick", FEDSAM, "surface")
    expected = rows(results, "quick", "surface")
    change(results, file)
    assert analysed(results, "mine", "surface") == []
    assert rows(results, "mine", "surface").equals(expected)


def test_other_options_are_computed(results):
    assert analysed(results, "mine", "flatness", {**OPTIONS["flatness"], "rho": 0.2}) == []


def test_some_seeds_are_taken_and_the_others_computed(results):
    """The file is as if all had been computed, but for the column of taken rows."""
    expected = rows(results, "quick", "drift")
    trained_again(results, FEDSAM)
    [line] = analysed(results, "mine", "drift")
    assert line.startswith("seed 1: taken from")
    mixed = rows(results, "mine", "drift")
    assert [*mixed.groupby("seed")["taken_from"].first()] == ["", f"analysis/quick/{FEDSAM}/drift.csv"]
    assert mixed.drop(columns="taken_from").equals(expected)
