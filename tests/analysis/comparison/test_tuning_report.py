"""The report on tuning, from a real search to stored trials and pages; and one line for each mistake."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.overview import overview
from fedflat.analysis.comparison.tuning.report import TuningReport
from fedflat.analysis.comparison.tuning.source import TuningSource
from fedflat.analysis.comparison.tuning.trials import add_trials, collect, load_trials
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_csv
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.cell_search import CellSearch
from fedflat.bench.tuning.tune import tune_cell
from fedflat.bench.tuning.winners import write_winners
from tests.analysis.conftest import read_rows, train_all
from tests.commands import fedflat, refused
from tests.places import ROOT
from tests.tables import without_checksum

FILE = """
name: mine
extends: quick
training: {rounds: 2, local_epochs: 1}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}, {name: iid, clients: 20}]
  participation: [{active: 4}]
  seeds: [0, 1]
tuning: {trials: 3, rungs: []}
search: {lr: {low: 0.02, high: 0.2, log: true}, server_lr: null}
methods:
  fedavg:
  fedsam: {hyperparameters: {rho: 0.05}}
  wild: {name: fedavg, training: {lr: 1.0e+38, weight_decay: 1.0e+4}}
"""
"""The untuned values of `wild` diverge, and so do those of all its trials, because of the weight decay."""

STORED = Path("results/baselines/tiny/trials.csv")
SEARCH = Path("results/tuning/mine/digits/iid/4-of-20/fedavg")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment, its search, and its untuned and tuned runs."""
    folder = tmp_path_factory.mktemp("searched")
    file, results = folder / "mine.yaml", folder / "results"
    file.write_text(FILE, encoding="utf-8")
    experiment, paths, device = load_experiment(str(file)), ResultPaths(results), prepare_device("cpu", 1)
    searches = [CellSearch.of(experiment, path, paths.tuning("mine", path)) for path in experiment.paths()]
    for search in searches:
        tune_cell(search, device, silent)
    write_winners(experiment, str(file), {}, searches, paths.tuned("mine"))
    train_all(file, results)
    train_all(paths.tuned("mine"), results)
    return folder


@pytest.fixture
def mine(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, which the test may change, and which is the current folder."""
    folder = Path(shutil.copytree(searched, tmp_path / "mine"))
    tuned = folder / "results/tuning/mine/tuned.yaml"
    tuned.write_text(tuned.read_text("utf-8").replace(str(searched), str(folder)), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def requested(name: str = "mine.yaml") -> RequestedExperiment:
    return RequestedExperiment(name, Path("results"))


def report(grid: str = "tiny", **options: object) -> TuningReport:
    return TuningReport.of(TuningSource(grid, Path("results"), {}, **options))  # type: ignore[arg-type]


def test_the_report_of_an_experiment(mine: Path) -> None:
    """The gain is that of the runs, the curves are those of the trials, and the pages show both."""
    done = fedflat("tuning-report", "mine.yaml", "--runs", "--width", "3.3", cwd=mine)
    assert done.returncode == 0, done.stderr
    folder = mine / "results/reports/mine/tuning"
    assert done.stdout.splitlines()[-1] == "results/reports/mine/tuning/tuning.md"
    assert "Tuning with 3 trials changes the test accuracy by" in done.stdout
    assert "No verdict on single methods: 2 seeds; a verdict needs at least 6." in done.stdout
    page, latex = ((folder / f"tuning.{end}").read_text(encoding="utf-8") for end in ("md", "tex"))
    names = {"gain", "gain_settings", "budget", "budget_ranks", "budget_stability"}
    assert {file.stem for file in (folder / "tables").glob("*.csv")} == names
    assert {file.stem for file in (folder / "figures").glob("*.png")} == names - {"budget_stability"}
    for name in names - {"budget_stability"}:
        assert f"figures/{name}.png" in page
        assert rf"\label{{fig:tuning-{name}}}" in latex
        assert imread(folder / "figures" / f"{name}.png").std() > 0.02
    gains = pd.read_csv(folder / "tables/gain.csv").set_index("method")["gain"]
    runs = [
        pd.concat(map(read_rows, mine.glob(f"results/experiments/{name}/digits/*/*/fedavg/runs.csv")))
        for name in ("mine", "mine_tuned")
    ]
    untuned, tuned = (rows.loc[rows["round"] == 2, "test_accuracy"].mean() for rows in runs)
    assert gains["fedavg"] == pytest.approx(tuned - untuned)
    assert gains["wild"] == 0
    trials = pd.concat(map(pd.read_csv, mine.glob("results/tuning/mine/digits/*/*/fedavg/trials.csv")))
    curve = pd.read_csv(folder / "tables/budget.csv").query("method == 'fedavg' and dataset == 'all'")["score"]
    assert curve.iloc[0] == pytest.approx(trials.loc[trials["trial"] == 0, "score"].mean())
    assert curve.iloc[-1] == pytest.approx(trials.groupby("partition")["score"].max().mean())
    assert f"{curve.iloc[-1]:.1f}" in page
    assert "6 trials failed" in page


def test_stored_runs_and_trials_give_the_same_report(mine: Path) -> None:
    assert add_trials([requested()], "tiny") == STORED
    pd.testing.assert_frame_equal(load_trials("tiny"), collect(requested()))
    assert "Gain of tuning: not shown, because no runs in the stored baselines of tiny." in list(report().words())
    add([requested(), requested("results/tuning/mine/tuned.yaml")], "tiny", analyses=False)
    stored, direct = report(), report("mine.yaml", from_runs=True)
    *words, stopping = stored.words()
    assert words == list(direct.words())
    assert stopping.startswith("Early stopping: not shown, because no tuned runs are of a search with early stopping")
    assert "trials       mine (18 trials)" in overview("tiny")
    assert len(load("tiny").runs) == 24


def test_trials_are_replaced_only_on_request(mine: Path) -> None:
    done = fedflat("baselines", "add-trials", "mine.yaml", "--grid", "tiny", cwd=mine)
    assert (done.returncode, done.stdout) == (0, f"{STORED}\n"), done.stderr
    before = STORED.read_bytes()
    line = refused("baselines", "add-trials", "mine.yaml", "--grid", "tiny", cwd=mine)
    assert f"'{STORED}' has trials of digits/dirichlet-0.1/4-of-20/fedavg already; --replace" in line
    assert STORED.read_bytes() == before
    add_trials([requested()], "tiny", replace=True)
    assert STORED.read_bytes() == before


def test_only_whole_searches_without_early_stopping_are_stored(mine: Path) -> None:
    progress = pd.read_csv(SEARCH / "progress.csv")
    for name in ("trials.csv", "progress.csv"):
        (SEARCH / name).unlink()
    with pytest.raises(UserError, match=r"of 1 of 6 cells .* not ended under 'results', such as digits/iid/4-of-20/fe"):
        collect(requested())
    assert "Number of trials: not shown, because the searches of 1 of 6 cells" in " ".join(
        report("mine.yaml", from_runs=True).words()
    )
    without_checksum(SEARCH / "progress.csv", progress.assign(search="another"))
    with pytest.raises(UserError, match="holds trials of another search"):
        collect(requested())
    Path("mine.yaml").write_text(FILE.replace("rungs: []", "rungs: [0.5]"), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"mine stops trials early \(rungs 0.5\), .* \(allowed: tuning: {rungs: \[\]}\)"
    ):
        add_trials([requested()], "tiny")
    with pytest.raises(UserError, match="lower-case letters"):
        add_trials([requested()], "../tiny")
    assert not STORED.parent.exists()


def test_damaged_trials_are_reported(mine: Path) -> None:
    add_trials([requested()], "tiny")
    whole = pd.read_csv(STORED, dtype=str)
    for write, damage, message in [
        (write_csv, whole.iloc[:-3], r"trials.csv' is damaged \(its content does not match its checksum\): restore it"),
        (without_checksum, whole.drop(columns="search"), "it lacks the column search"),
        (without_checksum, pd.concat([whole, whole]), "two rows have the same dataset"),
        (without_checksum, whole[whole["trial"] != "1"], "lacks trials of digits/dirichlet-0.1/4-of-20/fedavg"),
    ]:
        write(STORED, damage)
        with pytest.raises(UserError, match=message):
            load_trials("tiny")


@pytest.mark.parametrize("grid", sorted(file.parent.name for file in (ROOT / "results/baselines").glob("*/trials.csv")))
def test_stored_trials_are_those_of_this_version(grid: str, tmp_path: Path) -> None:
    stored = load_trials(grid, ROOT / "results/baselines" / grid)
    assert stored is not None
    for (name, *ids), rows in stored.groupby(["experiment", *IDS]):
        search = CellSearch.of(load_experiment(name), "/".join(ids), tmp_path)
        there = rows.sort_values("trial")
        assert list(there["identity"]) == [trial.run.identity for trial in search.trials]
        assert set(there["search"]) == {search.identity}


def test_wrong_requests_are_one_line(mine: Path) -> None:
    for words, message in [
        (("tiny",), "unknown grid of stored baselines 'tiny'"),
        (("mine.yaml", "--runs", "--baselines", "x"), "--baselines and --runs exclude each other"),
        (("mine.yaml",), "is a file, not a grid of stored baselines; for its runs, add --runs"),
        (("mine.yaml", "--tuned", "x.yaml"), "--tuned names an experiment, not stored baselines"),
        (("mine.yaml", "--runs", "--results", "none"), "no tuned values at 'none/tuning/mine/tuned.yaml'"),
        (("mine.yaml", "--set", "training.rounds=2"), "--set changes an experiment, not stored baselines"),
    ]:
        line = refused("tuning-report", *words, "--out", "out", cwd=mine)
        assert message in line
        assert not Path("out").exists()
    add([requested()], "tiny", analyses=False)
    line = refused("tuning-report", "tiny", cwd=mine)
    assert "no tuned runs in the stored baselines of tiny; store them with: fedflat baselines add TUNED.yaml" in line
