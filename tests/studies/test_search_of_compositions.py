"""The search among compositions: stored scores, the choice of the best, the answer, its files, and refusals."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from fedflat.analysis.comparison import baselines
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.cell_search import CellSearch
from fedflat.bench.tuning.tune import tune_cell
from studies.compositions.__main__ import app
from studies.compositions.evaluation import CompositionResults, candidates, ranked
from studies.compositions.searches import add, load
from studies.compositions.tables import composition_frame, tables
from studies.compositions.triples import NEUTRAL, compositions, published
from studies.compositions.words import answer
from studies.compositions.write import write
from tests.studies.composition_frames import (
    COMPOSED,
    PUBLISHED,
    store_runs,
    store_screening,
    store_tuned,
)

GRID = """
name: little
extends: quick
training: {rounds: 2, local_epochs: 1}
evaluation: {every: 1}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}]
  participation: [{active: 4}]
  seeds: [0, 1]
tuning: {trials: 2, rungs: []}
methods: {fedavg: , fedsam: }
"""
CHOSEN = {"chosen": ["fedavg", "fedsam", "sam+feddyn+momentum", "none+scaffold+adam"]}
SETTING = "dirichlet-0.1/4-of-20"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Searches and baselines in which sam+feddyn+momentum is better than the published methods."""
    folder = tmp_path_factory.mktemp("stored")
    store_screening(folder / "searches")
    store_tuned(folder / "searches", "composed", COMPOSED)
    store_tuned(folder / "searches", "published", PUBLISHED)
    store_runs(folder / "baselines", {**COMPOSED, **PUBLISHED}, tuple(COMPOSED))
    return folder


@pytest.fixture(scope="module")
def evaluation(stored: Path) -> CompositionResults:
    return evaluated(stored)


@pytest.fixture
def copied(stored: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored, tmp_path / "stored")


def evaluated(folder: Path) -> CompositionResults:
    return CompositionResults.of("grid", folder / "searches", folder / "baselines")


def test_candidates_are_the_best_unpublished_triples(evaluation: CompositionResults) -> None:
    chosen = candidates(evaluation.screening, 5)
    rows = ranked(evaluation.screening)
    new = rows[rows["published"] == ""]
    assert [triple.label for triple in chosen] == list(new["method"].head(5))
    assert rows["score"].head(400).is_monotonic_decreasing
    assert np.isnan(rows["score"].iloc[-1])
    assert not set(chosen) & published().keys()
    assert len(candidates(evaluation.screening, 1000)) == 818 - 1, "a triple whose trials failed is no candidate"


def test_both_sides_are_chosen_by_validation_and_not_by_test_accuracy(copied: Path) -> None:
    """FedSAM has the best validation accuracy of the published methods, whatever its test accuracy is."""
    shutil.rmtree(copied / "baselines")
    accuracies = {**COMPOSED, **PUBLISHED, "fedavg": 99.0, "none+feddc+look_ahead": 98.0}
    store_runs(copied / "baselines", accuracies, tuple(COMPOSED))
    found = evaluated(copied)
    assert (found.best, found.best_published) == ("sam+feddyn+momentum", "fedsam")
    text = " ".join(answer(found))
    assert (
        "is not shown to beat all 3 published methods of the comparison: "
        "it is better than 2 of 3, cannot tell from 0, worse than 1" in text
    )
    assert "Test accuracy minus that of FEDSAM" in text


def test_the_numbers_are_those_of_the_runs(evaluation: CompositionResults) -> None:
    frame = composition_frame(evaluation).set_index("method")
    assert list(frame.index) == ["sam+feddyn+momentum", "none+feddc+look_ahead", "fedsam"]
    rows = evaluation.comparisons["sam+feddyn+momentum"].rows
    means = rows.groupby("method")["test_accuracy"].mean()
    best = frame.loc["sam+feddyn+momentum"]
    assert best["test_accuracy"] == pytest.approx(means["sam+feddyn+momentum"])
    assert best["difference"] == pytest.approx(means["sam+feddyn+momentum"] - means["fedsam"])
    assert best["interval_low"] < best["difference"] < best["interval_high"]
    assert (best["better"], best["cannot tell"], best["worse"]) == (3, 0, 0)
    assert best["validation"] == pytest.approx(90 + 1.5)
    assert frame.loc["fedsam", "test_accuracy"] == pytest.approx(means["fedsam"])
    assert frame.loc["none+feddc+look_ahead", "verdict"] == "worse"
    assert "beats all 3 published methods of the comparison: it is better than 3 of 3" in " ".join(answer(evaluation))


def test_published_methods_without_all_runs_are_named(copied: Path) -> None:
    stored = baselines.load("grid", copied / "baselines" / "grid")
    kept = ~((stored.runs["method"] == "fedspeed") & (stored.runs["seed"] == 3))
    baselines.save(copied / "baselines" / "grid", baselines.Baselines(stored.runs[kept], stored.curves))
    found = " ".join(answer(evaluated(copied)))
    assert "beats all 2 published methods of the comparison: it is better than 2 of 2" in found
    assert "Left out, because it has no stored run for each of sam+feddyn+momentum: fedspeed (36 of 40)." in found


def test_diverged_runs_are_not_in_test_accuracies(copied: Path) -> None:
    place = copied / "baselines" / "grid_composed"
    stored = baselines.load(place.name, place)
    lost = (stored.runs["method"] == "sam+feddyn+momentum") & (stored.runs["seed"] == 3)
    stored.runs.loc[lost, ["test_accuracy", "outcome"]] = [np.nan, "diverged"]
    baselines.save(place, stored)
    found = evaluated(copied)
    rows = stored.runs[stored.runs["method"] == "sam+feddyn+momentum"]
    frame = composition_frame(found).set_index("method")
    assert frame.loc["sam+feddyn+momentum", "test_accuracy"] == pytest.approx(rows["test_accuracy"].mean())
    shown = next(tables(found)).rows[0]
    assert f"{rows['test_accuracy'].mean():.2f} (4 of 40 diverged)" in shown


def test_effects_compare_triples_that_differ_in_one_component(evaluation: CompositionResults) -> None:
    effects = evaluation.effects.set_index(["slot", "component"])
    scores = dict(zip(compositions(), evaluation.screening.rows["score"], strict=True))
    momentum = [triple for triple in compositions() if triple.server == "momentum"]
    differences = [scores[triple] - scores[triple._replace(server="average")] for triple in momentum]
    assert effects.loc[("server", "momentum"), "difference"] == pytest.approx(np.nanmean(differences))
    assert effects.loc[("server", "momentum"), "share"] == 1
    assert effects.loc[("server", "feddyn"), "pairs"] == 4 * 8
    assert effects.loc[[*NEUTRAL._asdict().items()], "difference"].isna().all()


def test_the_report_has_all_tables_and_the_figure(evaluation: CompositionResults, tmp_path: Path) -> None:
    page = write(evaluation, tmp_path, 3.4).read_text(encoding="utf-8")
    latex = (tmp_path / "compositions.tex").read_text(encoding="utf-8")
    names = [table.name for table in tables(evaluation)]
    assert names == ["compositions", "settings", "components"]
    for table in tables(evaluation):
        assert table.caption.title in page
        assert rf"\label{{tab:compositions-{table.name}}}" in latex
        assert len(pd.read_csv(tmp_path / "tables" / f"{table.name}.csv")) == len(table.frame) > 0
    for sentence in answer(evaluation):
        assert sentence in page
    assert imread(tmp_path / "figures" / "screening.png").std() > 0.02
    assert "Not stored yet" not in page


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("searches/composed.csv", "the search of the best compositions"),
        ("searches/published.csv", "the search of the published methods"),
        ("baselines/grid/runs.csv", "runs with the tuned values"),
    ],
)
def test_what_is_not_stored_yet_is_named(copied: Path, missing: str, text: str) -> None:
    (copied / missing).unlink()
    found = evaluated(copied)
    assert f"Not stored yet: {text}." in answer(found)
    assert [table.name for table in tables(found)] == ["compositions", "components"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 16}, r"different budgets \(trials: 2 and 16\)"),
        ({"seed": 5}, r"different budgets \(seed: 1000 and 5\)"),
        ({"values": '{"training.lr": 0.3}'}, "have training.lr = 0.2, and the stored search published has found 0.3"),
        ({"dataset": "other"}, "different settings"),
        ({"score": 101.0}, "a score is no percentage"),
    ],
)
def test_searches_that_do_not_belong_together_are_refused(
    copied: Path, change: dict[str, object], message: str
) -> None:
    store_tuned(copied / "searches", "published", PUBLISHED, **change)
    with pytest.raises(UserError, match=message):
        evaluated(copied)


def test_an_edited_file_is_refused(copied: Path) -> None:
    file = copied / "searches" / "screening.csv"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("sam+feddyn+momentum", "sam+feddyn+average", 1), encoding="utf-8")
    with pytest.raises(UserError, match="restore"):
        load("grid", "screening", copied / "searches")


def done(*words: object) -> str:
    """What a command prints, which runs in this process."""
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.exception
    return result.stdout


def tune(file: str, overrides: dict[str, object]) -> None:
    """Tune all cells of an experiment, as `fedflat tune` does."""
    experiment = load_experiment(file, {**overrides, "engine.backend": "loop"})
    for path in experiment.paths():
        folder = ResultPaths(Path("results")).tuning(experiment.name, path)
        tune_cell(CellSearch.of(experiment, path, folder), prepare_device("cpu", 1), silent)


def test_from_a_grid_to_the_best_of_its_screening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands on a little grid, with the trials of four triples."""
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID, encoding="utf-8")
    screening = ("screening", "grid.yaml", "--setting", SETTING, "--trials", 1, "--rounds", 1, "--out", "s.yaml")
    assert done(*screening) == "855 triples in s.yaml\n"
    requested = RequestedExperiment("s.yaml", Path("results"), CHOSEN)
    with pytest.raises(UserError, match="in 4 of 4 cells"):
        add(requested, "little")
    tune("s.yaml", CHOSEN)
    assert not Path("results/compositions").exists()
    assert add(requested, "little") == Path("results/compositions/little/screening.csv")

    search = load("little", "screening")
    assert search.budget["trials"] == search.budget["rounds"] == 1
    trials = pd.read_csv(f"results/tuning/little_screening/digits/{SETTING}/fedsam/trials.csv")
    own = search.rows.set_index("method").loc["fedsam"]
    assert own["score"] == pytest.approx(trials["score"].iloc[-1])
    assert own["identity"] == trials["identity"].iloc[-1]
    assert (own["published"], own["perturbation"]) == ("FedSAM", "sam")

    [first] = candidates(search, 1)
    assert done("best", "grid.yaml", "--count", 1, "--out", "b.yaml").split()[0] == first.label
    assert list(load_experiment("b.yaml", {}).methods) == [first.label]
    shown = done("report", "little")
    assert "Not screened: 851 triples" in shown
    assert "Not stored yet: the search of the best compositions." in shown


def test_wrong_requests_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    screening = ("screening", "quick", "--setting")
    for words, message in {
        ("report", "quik"): "no stored search of quik_screening",
        ("best", "quick", "--out", "b.yaml"): "no stored search of quick_screening",
        ("add", "bench1d", "--grid", "quick"): "is no search of grid quick",
        (*screening, "iid/4-of-20", "--out", "s.yaml"): "unknown setting of experiment quick",
    }.items():
        result = CliRunner().invoke(app, list(words))
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)
    assert not list(tmp_path.iterdir())
