"""`fedflat tune`: from an experiment to a file with tuned values that is trained, and one line for each mistake."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.analysis.conftest import read_rows
from tests.commands import fedflat, refused, run
from tests.tiers import thorough

CELL = "digits/dirichlet-0.1/4-of-20/{}"
FILE = """
name: mine
extends: quick
training: {rounds: 4, local_epochs: 1}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}]
  participation: [{active: 4}]
  seeds: [0, 1]
tuning: {trials: 3, rungs: [0.5]}
search: {lr: {low: 0.02, high: 0.2, log: true}}
methods:
  fedavg:
  fedsam: {hyperparameters: {rho: 0.05}, search: {server_lr: null}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mine" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(FILE, encoding="utf-8")
    return file


def test_the_winners_are_an_experiment_that_trains(file: Path, tmp_path: Path) -> None:
    common = ("--results", "results", "--device", "cpu")
    done = fedflat("tune", file, "--out", "mine/tuned.yaml", *common, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for method in ("fedavg", "fedsam"):
        assert f"{CELL.format(method)}: after round 4 of 4: best validation accuracy" in done.stdout
    trials = pd.read_csv(tmp_path / "results/tuning/mine" / CELL.format("fedsam") / "trials.csv")
    assert trials.groupby("rung")["trial"].nunique().to_dict() == {1: 3, 2: 2}
    best = trials[trials["rung"] == 2].sort_values("score", kind="stable", ascending=False).iloc[0]
    tuned = (tmp_path / "mine" / "tuned.yaml").read_text(encoding="utf-8")
    assert "extends: mine.yaml" in tuned
    assert f"lr: {best['training.lr']}" in tuned
    assert fedflat("run", "mine/tuned.yaml", CELL.format("fedsam"), *common, cwd=tmp_path).returncode == 0
    metrics = read_rows(tmp_path / "results/experiments/mine_tuned" / CELL.format("fedsam") / "runs.csv")
    assert metrics["lr"].iloc[0] == best["training.lr"]
    assert metrics["test_accuracy"].notna().any()
    again = fedflat("tune", file, "--out", "mine/again.yaml", *common, cwd=tmp_path)
    assert "best validation accuracy" not in again.stdout, "nothing is trained again"
    assert (tmp_path / "mine" / "again.yaml").read_text(encoding="utf-8") == tuned


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trials", "0"], "trials = 0"),
        (["--trials", "1001"], "trials = 1001"),
        (["--methods", "fedsma"], "unknown method of experiment mine 'fedsma'; did you mean 'fedsam'?"),
        (["--set", "search.lr={}"], "search.lr: a search range needs low and high, or values"),
        (["--set", "search.lr={low: 0.2, high: 0.1}"], "the search range 0.2 to 0.1 is empty"),
        (["--set", "search.lr={low: -1, high: 1}"], "the search range of training.lr, -1 to 1: "),
        (["--set", "search.lr={values: []}"], "a search range has no values"),
        (["--set", "search.lr={values: [fast]}"], "the search range of training.lr, fast: "),
        (["--set", "search.lr={low: 1, high: 2, values: [1]}"], "has either values, or low and high"),
        (["--set", "search.rate={low: 1, high: 2}"], "unknown search range of experiment mine 'rate'"),
        (["--set", "methods.fedavg.search={rho: {low: 1, high: 2}}"], "unknown search range of fedavg 'rho'"),
        (["--set", "search={lr: null, server_lr: null}"], "fedavg has no value to search"),
        (["--set", "tuning.rungs=[0.5, 0.25]"], "rungs = [0.5, 0.25] (allowed: increasing numbers between 0 and 1"),
        (["--set", "tuning.validation=1"], "validation = 1"),
        (["--set", "tuning.seed=1"], "tuning.seed = 1 is one of the seeds of experiment mine"),
        (["--set", "methods.fedsam.hyperparameters.rho=[0.1, 0.2]"], "belongs to a sweep, whose methods are not tuned"),
        (["--out", "tuned.txt"], "--out 'tuned.txt' (allowed: a file whose name ends in .yaml)"),
        ([CELL.format("fedavgs")], "did you mean"),
        (["--methods", "fedavg", "--set", "chosen=[fedavg]"], "chosen is given twice"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    options: list[str], message: str, file: Path, tmp_path: Path
) -> None:
    line = refused("tune", file, *options, "--results", "results", cwd=tmp_path)
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list(file.parent.iterdir()) == [file]


@thorough
def test_snakemake_tunes_each_cell_in_a_job_of_its_own(file: Path, tmp_path: Path) -> None:
    """The same values as those of the command; nothing is done again, and more trials train only further ones."""
    config = ["--config", f"experiments=[{file}]", "results=results"]
    words = ["snakemake", "--directory", str(tmp_path), "--cores", "1", "mine_tune"]
    done = run([*words, *config])
    assert "3 jobs: 2 tune, 1 tuned" in done.stdout + done.stderr
    tuned = (tmp_path / "results/tuning/mine/tuned.yaml").read_text(encoding="utf-8")
    alone = fedflat("tune", file, "--results", "alone", "--out", "results/tuning/mine/alone.yaml", cwd=tmp_path)
    assert alone.returncode == 0
    assert (tmp_path / "results/tuning/mine/alone.yaml").read_text(encoding="utf-8") == tuned
    assert "Nothing to be done" in (again := run([*words, "-n", *config])).stdout + again.stderr
    planned = run([*words, "-n", *config, "trials=4"])
    assert re.search(r"tune +2\n", planned.stdout + planned.stderr)
    report = run(["snakemake", *words[1:-1], "mine_tuning_report", "-n", *config])
    planned_jobs = report.stdout + report.stderr
    assert re.search(r"train +4\n", planned_jobs), "both cells, untuned and tuned"
    assert re.search(r"tuning_report +1\n", planned_jobs)
