"""Stored runs are trained again from what is stored: equal bits on this machine, a difference where one is made."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.baselines import Baselines, load, save
from fedflat.analysis.layouts.run_columns import RATED
from fedflat.analysis.provenance.stored_runs import (
    DEVIATIONS,
    LEVEL,
    TOLERANCE,
    TOLERANCE_OF_MEAN,
    RetrainedRun,
    as_table,
    configuration,
    drawn,
    has_changed,
    limit_of_mean,
    limits,
    verify,
)
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import along
from fedflat.bench.methods.perturbations.sam import SAM
from tests.analysis.conftest import train_all
from tests.commands import fedflat, refused
from tests.tiers import thorough

CPU = torch.device("cpu")

SHARED = """
name: shared
dataset: mnist1d
model: cnn1d
training: {rounds: 12, local_steps: 10, batch_size: 32, lr: 0.1}
engine: {backend: cohort, seeds: together}
grid: {partition: [{name: dirichlet_by_class, alpha: 0.1, clients: 50}], participation: [{active: 5}], seeds: [0, 1, 2]}
methods: {fedsam: {hyperparameters: {rho: 0.1}}}
"""


@pytest.fixture
def stored(stored_little_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """little.yaml and the stored runs of its grid, without the runs themselves, in the current folder."""
    without_runs = shutil.ignore_patterns("store", "experiments")
    folder = Path(shutil.copytree(stored_little_files, tmp_path / "stored", ignore=without_runs))
    monkeypatch.chdir(folder)
    return folder


def rows(**values: object) -> dict[str, dict[str, object]]:
    """The stored runs of the first setting and seed by method, with these values."""
    return rows_of(load("tiny"), **values)


def rows_of(baselines: Baselines, **values: object) -> dict[str, dict[str, object]]:
    runs = baselines.runs.drop_duplicates("method").assign(**values)
    return {row["method"]: row for row in runs.to_dict("records")}


def again(row: dict[str, object]) -> RetrainedRun:
    return of_seed(verify(load("tiny"), row, CPU, silent), row)


def of_seed(verdicts: list[RetrainedRun], row: dict[str, object]) -> RetrainedRun:
    [found] = [one for one in verdicts if f"/seed-{row['seed']} " in one.run]
    return found


def test_a_run_is_trained_again_with_the_same_bits(stored: Path) -> None:
    for row in rows().values():
        verdict = again(row)
        assert (verdict.words, verdict.differs) == ("same bits", False)
        assert verdict.again == row["test_accuracy"] or np.isnan(verdict.again)
    assert not list(stored.glob("results/store/**/*.csv")), "nothing is written there"


@thorough
def test_seeds_that_were_trained_together_are_trained_together_again(stored: Path) -> None:
    """Other seeds in the cohort change last bits within these rounds."""
    Path("shared.yaml").write_text(SHARED, encoding="utf-8")
    train_all(Path("shared.yaml"), Path("results"))
    add([RequestedExperiment("shared.yaml", Path("results"))], "shared")
    baselines = load("shared")
    assert baselines.runs["engine"].str.contains('"together":true').all()
    last = baselines.runs.iloc[-1].to_dict()
    verdicts = verify(baselines, {**last, "test_loss": last["test_loss"] + 1e-12}, CPU, silent)
    assert [one.run[-17:-10] for one in verdicts] == ["/seed-0", "/seed-1", "/seed-2"]
    assert [one.words for one in verdicts[:2]] == ["same bits"] * 2
    words = verdicts[2].words
    assert words.startswith("DIFFERS: test_loss")
    assert words.endswith("though the bits must be the same if one command trained all seeds of the cell")
    assert len(drawn(baselines, 3, 0)) == 1


@pytest.mark.parametrize(
    ("column", "change"),
    [("test_loss", 1e-12), ("train_accuracy", 1e-9), ("gradients", 1), ("last_round", 1), ("test_accuracy", np.nan)],
)
def test_another_number_is_a_difference(stored: Path, column: str, change: float) -> None:
    row = rows()["fedavg"]
    verdict = again({**row, column: row[column] + change})
    assert verdict.differs
    assert f"DIFFERS: {column}" in verdict.words
    assert "though the bits must be the same" in verdict.words


@pytest.mark.parametrize("column", ["data_hash", "partition_hash", "outcome"])
def test_other_data_partitions_and_outcomes_are_differences(stored: Path, column: str) -> None:
    verdict = again({**rows()["fedavg"], column: "another"})
    assert verdict.differs
    assert "another stored" in verdict.words


def test_where_bits_may_differ_the_tolerance_counts(stored: Path) -> None:
    row = rows(code="0.1.0+0123456789abcdef")["fedavg"]
    assert again(row).words == "same bits (other code)"
    allowed = limits(load("tiny"), row)
    for column, limit in allowed.items():
        near, far = (again({**row, column: row[column] + share * limit}) for share in (0.9, 1.2))
        assert near.words.startswith("within the tolerance, ") and not near.differs, column
        assert f"DIFFERS: {column}" in far.words and far.differs
        assert "more than the tolerance" in far.words


def test_the_tolerance_is_wider_where_seeds_differ_more(stored: Path) -> None:
    found, row = load("tiny"), rows()["fedsam"]
    fixed = {name: TOLERANCE["accuracy"] if "accuracy" in name else TOLERANCE["loss"] * row[name] for name in RATED}
    alike = found.runs.assign(**{name: row[name] for name in RATED})
    assert limits(Baselines(alike, found.curves), row) == pytest.approx(fixed)
    cell = (found.runs["method"] == "fedsam") & (found.runs["partition"] == row["partition"])
    apart = alike.assign(test_accuracy=alike["test_accuracy"].where(~cell, [20.0 * s for s in found.runs["seed"]]))
    assert limits(Baselines(apart, found.curves), row) == pytest.approx({**fixed, "test_accuracy": 20 * DEVIATIONS})


TEN = (
    SHARED.replace("shared", "ten")
    .replace("rounds: 12, local_steps: 10", "rounds: 10, local_steps: 5")
    .replace("lr: 0.1", "lr: 0.2")
    .replace("alpha: 0.1, clients: 50", "alpha: 0.6, clients: 10")
    .replace("active: 5", "active: 3")
    .replace("[0, 1, 2]", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
)


@thorough
def test_a_broken_method_is_found_by_the_mean_over_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seeds with SAM steps eight times as long: no single difference is above five deviations of the seeds."""
    monkeypatch.chdir(tmp_path)
    Path("ten.yaml").write_text(TEN, encoding="utf-8")
    train_all(Path("ten.yaml"), Path("results"))
    add([RequestedExperiment("ten.yaml", Path("results"))], "ten")
    found = load("ten")
    older = Baselines(found.runs.assign(code="0.1.0+0123456789abcdef"), found.curves)
    row = rows_of(older)["fedsam"]
    assert [one.words for one in verify(older, row, CPU, silent)] == ["same bits (other code)"] * 10
    loop = older.runs["engine"].str.replace('"backend":"cohort"', '"backend":"loop"')
    rounding = Baselines(older.runs.assign(engine=loop), older.curves)
    *runs, mean = verify(rounding, rows_of(rounding)["fedsam"], CPU, silent)
    assert (mean.differs, mean.of_mean, mean.words[:21]) == (False, True, "within the tolerance,")

    monkeypatch.setattr(SAM, "delta", lambda self, w, gradient, client: along(gradient(w), 8 * self.rho))
    *runs, mean = verify(older, row, CPU, silent)
    assert len(runs) == 10
    assert not any(one.differs or one.of_mean for one in runs)
    assert mean.differs
    assert mean.run.endswith("/fedsam/mean of 10 seeds (untuned)")
    assert mean.words.startswith("DIFFERS: mean test_accuracy by -")
    assert mean.again - mean.stored < -7


def test_the_mean_of_chaotic_runs_is_rarely_called_different() -> None:
    """Where stored and new runs are as independent as seeds, at most LEVEL of cells are wrong, for both numbers."""
    rng = np.random.default_rng(0)
    cells = rng.normal(60, 8, (4000, 2, 10, 2))
    wrong = [
        any(
            abs((both[:, 1] - both[:, 0]).mean()) > limit_of_mean(name, both)
            for name, both in zip(("test_accuracy", "test_loss"), cell, strict=True)
        )
        for cell in cells
    ]
    assert np.mean(wrong) == pytest.approx(LEVEL, abs=4 * (LEVEL / 4000) ** 0.5)
    alike = np.tile([[60.0, 60.0]], (10, 1))
    assert limit_of_mean("test_accuracy", alike) == TOLERANCE_OF_MEAN["accuracy"]
    assert limit_of_mean("test_loss", alike) == pytest.approx(60 * TOLERANCE_OF_MEAN["loss"])


@pytest.mark.parametrize(("seeds", "stated"), [(10, 0.08), (6, 0.14), (3, 0.37)])
def test_single_chaotic_runs_are_called_different_as_often_as_stated(seeds: int, stated: float) -> None:
    """With four independent numbers, which differ as seeds do, a cell is wrong if any number of any run is."""
    before, after = np.random.default_rng(0).normal(size=(2, 20_000, seeds, len(RATED)))
    wrong = np.abs(after - before) > DEVIATIONS * before.std(axis=1, ddof=1, keepdims=True)
    assert wrong.any(axis=(1, 2)).mean() == pytest.approx(stated, abs=0.01)


def test_a_tolerance_excuses_no_run_that_has_no_value(stored: Path) -> None:
    row = rows(code="0.1.0+0123456789abcdef")["fedavg"]
    assert again({**row, "test_loss": np.nan}).differs


def test_every_reason_for_other_bits_is_named(stored: Path) -> None:
    row = rows()["fedavg"]
    other = {"device": "cpu (arm64)", "processor": "Mine", "versions": row["versions"].replace("torch", "sorch")}
    words = again({**row, **other}).words
    for reason in ("another device", "another processor", "torch None instead of"):
        assert reason in words
    backend = again({**row, "engine": "{}"}).words
    assert "another choice of the engine" in backend


def test_configurations_that_cannot_be_trained_are_named(stored: Path) -> None:
    row = rows()["fedsam"]
    identity = load_experiment("little.yaml").cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0].identity
    assert configuration(row).identity == identity
    own = row["configuration"].replace('"name":"fedsam"', '"code":"0123456789abcdef","name":"fedsam"')
    for text, why in (
        (own, "the method is a Python file"),
        (row["configuration"].replace("fedsam", "fedsum"), "cannot be read by this version"),
        (row["configuration"].replace("0.05", "0.06"), "reads the stored configuration as another one"),
    ):
        with pytest.raises(UserError, match=why):
            configuration({**row, "configuration": text})
        assert again({**row, "configuration": text}).words.startswith("not verified: ")


def test_a_changed_experiment_is_named(stored: Path) -> None:
    folder = Path("results/baselines/tiny")
    row = {**rows()["fedsam"], "experiment": "quick"}
    of_quick = "experiment quick has other values for digits/dirichlet-0.1/4-of-20/fedsam now"
    assert has_changed(row, folder) == of_quick
    gone = "experiment quick has no cell digits/dirichlet-0.1/4-of-20/mine any more"
    assert has_changed({**row, "method": "mine"}, folder) == gone
    run = load_experiment("quick").cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    assert has_changed({**row, "identity": run.identity}, folder) is None
    row = rows()["fedsam"]
    assert has_changed(row, folder) == "experiment little is neither in paper_tables nor in 'results/baselines/tiny'"
    shutil.copy("little.yaml", folder / "little.yaml")
    assert has_changed(row, folder) is None


def test_runs_are_drawn_once_each_and_by_the_seed(stored: Path) -> None:
    found = load("tiny")
    names = [[row["identity"] for row in drawn(found, 5, seed)] for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    assert len(set(names[0])) == 5
    assert len(drawn(found, 100, 0)) == len(found.runs)


def test_the_command_prints_a_table_and_says_by_its_code_whether_runs_differ(stored: Path) -> None:
    done = fedflat("baselines", "verify", "tiny", "--sample", 2)
    assert done.returncode == 0, done
    assert done.stdout.count("same bits") == 2
    assert "0 of 2 runs differ; " in done.stdout
    printed = int(done.stdout.partition("drawn with --seed ")[2].split()[0])
    named = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("digits/")]
    assert named == [
        f"digits/{r['partition']}/4-of-20/{r['method']}/seed-{r['seed']}" for r in drawn(load("tiny"), 2, printed)
    ]
    old = load("tiny")
    wrong = Baselines(old.runs.assign(test_accuracy=old.runs["test_accuracy"] + 1), old.curves)
    save(Path("results/baselines/tiny"), wrong)
    both = {"finished", "diverged"}  # runs that diverged have no accuracy
    seed = next(seed for seed in range(99) if {row["outcome"] for row in drawn(old, 2, seed)} == both)
    done = fedflat("baselines", "verify", "tiny", "--sample", 2, "--seed", seed)
    assert done.returncode == 1
    assert "1 of 2 runs differ" in done.stdout
    assert f"drawn with --seed {seed}" in done.stdout
    assert done.stdout.count("same bits\n") == 1
    assert "unknown grid" in refused("baselines", "verify", "tny")
    assert "sample" in refused("baselines", "verify", "tiny", "--sample", 0)


def test_lines_of_the_table_are_aligned() -> None:
    lines = as_table(
        [RetrainedRun("a", 12.0, 1.5, "same bits"), RetrainedRun("longer", np.nan, np.nan, "not verified: why")]
    )
    assert lines[1].index("same") == lines[2].index("not verified")
    assert "-10.50" in lines[1]
