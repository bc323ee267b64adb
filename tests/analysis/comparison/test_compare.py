"""A method compared with stored baselines: pairs, numbers against those of the runs, and refusals in one line."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison.adding import add
from fedflat.analysis.comparison.baselines import Baselines, load, save
from fedflat.analysis.comparison.compare import Comparison, compare, paired
from fedflat.analysis.comparison.report.tables import cost_table
from fedflat.analysis.comparison.report.text import as_text
from fedflat.analysis.comparison.run_table import as_json, run_table
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.analysis import conftest
from tests.analysis.comparison.frames import compared as of_frames
from tests.analysis.comparison.frames import runs as table
from tests.analysis.conftest import LITTLE, analyse, train_all
from tests.commands import fedflat, refused
from tests.tables import without_checksum

SETTINGS = [("digits", "dirichlet-0.1", "4-of-20"), ("digits", "iid", "4-of-20")]


def accuracy(folder: Path, setting: tuple[str, ...], method: str, seed: int, experiment: str = "little") -> float:
    return float(RunDirectory(run_of(setting, method, seed, experiment, folder)).metrics()["test_accuracy"].iloc[-1])


def run_of(setting: tuple[str, ...], method: str, seed: int, experiment: str = "little", folder: Path = Path()) -> Path:
    """The directory of a listed run."""
    return conftest.run_of(folder / "results", experiment, "/".join((*setting, method)), seed)


def compared(method: str = "fedsam", experiment: str | None = None, **options: object) -> Comparison:
    """A method of little.yaml, or `sharper` of mine.yaml, compared with the stored grid `tiny`."""
    own = "mine.yaml" if method == "sharper" else "little.yaml"
    return compare(method, "tiny", Path("results"), experiment=experiment or own, **options)


def mine(folder: Path, grid: str = LITTLE) -> Path:
    """An experiment of one method on the grid of another experiment's text, and its runs."""
    file = folder / "mine.yaml"
    head = grid.partition("methods:")[0].replace("name: little", "name: mine")
    file.write_text(f"{head}methods:\n  sharper: {{name: fedsam, hyperparameters: {{rho: 0.5}}}}\n", encoding="utf-8")
    train_all(file, folder / "results")
    return file


def row(found: Comparison, rival: str) -> pd.Series:
    return found.verdicts.set_index("rival").loc[rival]


def printed(found: Comparison, *, by_setting: bool = False) -> str:
    return " ".join(as_text(found, by_setting).split())


@pytest.fixture
def stored(stored_little_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `stored_little_files`, which the test may change, and which is the current folder."""
    folder = Path(shutil.copytree(stored_little_files, tmp_path / "little"))
    monkeypatch.chdir(folder)
    return folder


def test_runs_are_found_by_their_identity(stored: Path) -> None:
    """Whether the experiment lists them or not, and those with other values next to the usual ones."""
    before = compared()
    shutil.rmtree("results/experiments")
    pd.testing.assert_frame_equal(compared().rows, before.rows)
    sharper = {"methods.fedsam.hyperparameters.rho": 0.5}
    with pytest.raises(UserError, match="no finished run of fedsam of experiment little"):
        compared(overrides=sharper)
    cell = load_experiment("little.yaml", sharper).cell(Path(*SETTINGS[1], "fedsam").as_posix())
    train_cell(None, cell, Path("results"), prepare_device("cpu", 1), silent)
    found = compared(overrides=sharper)
    assert len(found.rows) == 3 * 4  # three seeds of one setting, and three rivals
    assert row(found, "fedsam (stored)")["difference"] != 0


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("rounds: 1", "rounds: 2", "rounds: 2 here, 1 stored"),
        ("batch_size: 45", "batch_size: 44", "batch_size: 44 here, 45 stored"),
        ("lr: 0.1", "lr: 0.1, augmentation: {name: cutout, size: 2}", "options of data set"),
    ],
)
def test_runs_under_another_protocol_are_refused(stored: Path, old: str, new: str, why: str) -> None:
    assert old in LITTLE
    mine(stored, LITTLE.replace(old, new))
    with pytest.raises(UserError, match=rf"cannot be compared in digits/dirichlet-0.1/4-of-20/seed-0 \({why}"):
        compared("sharper")


def test_another_tuning_is_no_other_protocol(stored: Path) -> None:
    mine(stored, LITTLE.replace("lr: 0.1", "lr: 0.2, clip: 10"))
    assert compared("sharper").scores.values.shape == (4, 2, 3)


@pytest.mark.parametrize(("column", "why"), [("data_hash", "content of the data set"), ("partition_hash", "partition")])
def test_other_data_and_partitions_are_refused(stored: Path, column: str, why: str) -> None:
    file = Path("results/baselines/tiny", "about.csv" if column == "data_hash" else "runs.csv")
    without_checksum(file, pd.read_csv(file, dtype=str).assign(**{column: "f" * 16}))
    with pytest.raises(UserError, match=rf"cannot be compared .*{why}.*ffffffffffffffff stored"):
        compared()


@pytest.mark.parametrize("code", ["9.9.0+ffffffffffffffff", "0.2.0+ffffffffffffffff"])
def test_runs_of_another_version_are_refused(stored: Path, code: str) -> None:
    old = load("tiny")
    save(Path("results/baselines/tiny"), Baselines(old.runs.assign(code=code), old.curves))
    before = contents_of("results/baselines/tiny")
    line = refused("compare", "fedsam", "--grid", "tiny", "--experiment", "little.yaml", "--out", "report")
    assert f"cannot be compared (FedFlat 0.1 here, FedFlat {code[:3]} stored; allowed: versions with the same" in line
    assert not Path("report").exists()
    with pytest.raises(UserError, match=rf"runs of FedFlat 0.1 and FedFlat {code[:3]} cannot be stored together"):
        add([RequestedExperiment(str(mine(stored)), Path("results"))], "tiny")
    assert contents_of("results/baselines/tiny") == before
    add([RequestedExperiment("little.yaml", Path("results"))], "tiny", replace=True)
    assert set(load("tiny").runs["code"].str[:3]) == {"0.1"}


def contents_of(folder: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def test_other_code_libraries_and_devices_are_named(stored: Path) -> None:
    old = load("tiny")
    assert "computed by" not in printed(compared())
    for column, value, words in (
        ("code", "0.1.7+ffffffffffffffff", "code 0.1.7+ffffffffffffffff;"),
        ("versions", '{"torch":"9.9"}', "torch 9.9;"),
        ("device", "cuda (H100)", "device cuda (H100)"),
    ):
        save(Path("results/baselines/tiny"), Baselines(old.runs.assign(**{column: value}), old.curves))
        text = printed(compared())
        stated = text.partition("computed by: stored runs: ")[2]
        assert words in stated, column
        assert words not in text.partition("computed by: stored runs: ")[0]
        assert "trains some stored runs again: fedflat baselines verify tiny" in stated
        assert "--baselines" not in stated
    shutil.copytree("results/baselines/tiny", "other place")
    text = printed(compared(baselines=Path("other place")))
    assert "fedflat baselines verify tiny --baselines 'other place'" in text


def test_without_an_experiment_the_runs_are_those_of_the_one_named_like_the_grid(stored: Path) -> None:
    with pytest.raises(
        UserError, match=r"no experiment has the name of the grid, tiny: give the experiment .* --experiment"
    ):
        compare("fedsam", "tiny", Path("results"))
    shutil.copytree("results/baselines/tiny", "results/baselines/quick")
    with pytest.raises(UserError, match="no finished run of fedsam of experiment quick under 'results'"):
        compare("fedsam", "quick", Path("results"))


def test_unfinished_runs_are_not_read(stored: Path) -> None:
    run = run_of(SETTINGS[0], "fedsam", 2)
    run.rename(run.with_name("seed-2.partial-01234567"))
    found = compared()
    assert found.scores.seeds == (0, 1)
    here, there = (f"digits/{partition}/4-of-20/seed-2" for partition in ("dirichlet-0.1", "iid"))
    assert f"fedsam has no finished run there: stored {here}" in printed(found)
    assert f"fedsam lacks their seeds in other settings: {there}" in printed(found)


def test_a_run_in_the_place_of_another_is_refused(stored: Path) -> None:
    mine(stored)
    for setting in SETTINGS:
        there = run_of(setting, "fedsam", 2)
        shutil.rmtree(there)
        shutil.copytree(run_of(setting, "sharper", 2, "mine"), there)
    with pytest.raises(UserError, match=r"seed-2' holds a run of another configuration .*rho: 0.5 there, 0.05 here"):
        compared()


def test_old_runs_of_a_known_experiment_are_not_shown_as_new_ones(stored: Path) -> None:
    quick = load_experiment("quick", {"training.rounds": 1, "grid.seeds": [0]})
    cell = quick.cell("digits/dirichlet-0.1/4-of-20/scaffold")
    train_cell("quick", cell, Path("results"), prepare_device("cpu", 1), silent)
    with pytest.raises(UserError, match=r"no finished run of scaffold of experiment quick"):
        compared("scaffold", experiment="quick")


def test_mistakes_are_reported(stored: Path) -> None:
    with pytest.raises(UserError, match="unknown method of experiment little 'fedsm'; did you mean 'fedsam'"):
        compared("fedsm")
    with pytest.raises(UserError, match=r"'mine.py' is a file, .* compare --config method=mine.py grid=tiny"):
        compared("mine.py")
    with pytest.raises(UserError, match="unknown experiment 'litle'"):
        compared(experiment="litle")
    with pytest.raises(UserError, match="unknown metric of stored baselines 'accuracy'"):
        compared(metric="accuracy")
    with pytest.raises(UserError, match="unknown grid of stored baselines 'tinny'; did you mean 'tiny'"):
        compare("fedsam", "tinny", Path("results"))
    with pytest.raises(UserError, match=r"unknown grid of stored baselines 'fedgf' .*tiny"):
        compare("fedsam", "fedgf", Path("results"))
    with pytest.raises(
        UserError, match=r"no finished run of fedsam of experiment little .* snakemake --cores 2 little_"
    ):
        compare("fedsam", "tiny", Path("nowhere"), experiment="little.yaml")


def test_runs_without_any_partner_are_reported(stored: Path) -> None:
    mine(stored, LITTLE.replace("seeds: [0, 1, 2]", "seeds: [7]"))
    here = r"here: digits/dirichlet-0.1/4-of-20/seed-7"
    with pytest.raises(UserError, match=f"no run of sharper has a setting and seed .*{here}"):
        compared("sharper")


def test_values_of_analyses_are_compared_where_they_are_computed(stored: Path) -> None:
    with pytest.raises(UserError, match="no run of fedsam has a value of lpf: the analysis flatness is not computed"):
        compared(metric="lpf")
    for setting, method in ((SETTINGS[0], "fedsam"), (SETTINGS[0], "fedavg"), (SETTINGS[1], "fedavg")):
        analyse(stored, "little", "/".join((*setting, method)), "flatness", {"images": 20, "draws": 2})
    Path("analyses.yaml").write_text("flatness: {images: 20, draws: 2}\n", encoding="utf-8")
    partly = run_table(RequestedExperiment("little.yaml", Path("results")))
    old = load("tiny")
    save(Path("results/baselines/tiny"), Baselines(partly, old.curves))
    found = compared(metric="lpf")
    values = partly.set_index(["partition", "method", "seed"])["lpf"]
    expected = [values["dirichlet-0.1", "fedsam", s] - values["dirichlet-0.1", "fedavg", s] for s in range(3)]
    assert row(found, "fedavg")["difference"] == pytest.approx(np.mean(expected), abs=1e-4)
    assert found.better == "lower"
    assert "left out, because the analysis flatness is not computed: 3 of fedsam" in printed(found)
    other = partly.assign(analyses=partly["analyses"].str.replace('"draws":2', '"draws":3'))
    save(Path("results/baselines/tiny"), Baselines(other, old.curves))
    with pytest.raises(UserError, match="lpf of fedsam and of grid tiny have other options of the analysis flatness"):
        compared(metric="lpf")


def test_like_is_compared_with_like(stored: Path) -> None:
    """Untuned runs with untuned ones, tuned runs with tuned ones, unless another variant is requested."""
    old = load("tiny")
    tuned = old.runs.assign(variant="tuned", trials=8, test_accuracy=old.runs["test_accuracy"] + 1)
    curves = pd.concat([old.curves, old.curves.assign(variant="tuned")])
    save(Path("results/baselines/tiny"), Baselines(pd.concat([old.runs, tuned]), curves))
    untuned, against_tuned = compared(), compared(variant="tuned")
    assert (untuned.variant, against_tuned.variant) == ("untuned", "tuned")
    one, other = (row(found, "fedavg") for found in (untuned, against_tuned))
    assert other["difference"] == pytest.approx(one["difference"] - 1)
    assert "Budgets of tuning differ: FedSAM no tuning, rivals 8 trials" in printed(against_tuned)
    assert "Budgets" not in printed(untuned)
    assert "tuning of FedSAM: none" in printed(untuned)
    assert "tuning of the rivals: none" in printed(untuned)
    with pytest.raises(UserError, match="unknown variant of the baselines of grid tiny 'best'"):
        compared(variant="best")


def budget(trials: int = 16, **changes: object) -> dict[str, object]:
    """The columns of a run's budget."""
    fields = {"rungs": [0.5], "validation": 0.2, "seed": 1000, "judged": "best", "set": {}, **changes}
    return {"variant": "tuned", "trials": trials, "tuning": as_json(fields)}


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (budget(64), "64 trials, rivals 16 trials."),
        (budget(rungs=[]), "rungs none, rivals 0.5."),
        (budget(validation=0.1, seed=7), "validation 0.1, rivals 0.2; seed 7, rivals 1000."),
        (budget(set={"training.rounds": 3}), "set training.rounds 3, rivals none."),
        (budget(ranges={"lr": {"low": 0.1, "high": 0.2}}), "range of lr 0.1 to 0.2, rivals 0.01 to 0.5 (log)."),
        (budget(ranges={"rho": {"values": [1, 2]}}), "range of lr none, rivals 0.01 to 0.5 (log)."),
    ],
)
def test_the_report_says_what_was_tuned_and_in_what_budgets_differ(own: dict[str, object], why: str) -> None:
    of_rivals = budget(ranges={"lr": {"low": 0.01, "high": 0.5, "log": True}, "server_lr": {"low": 0.1, "high": 1}})
    rows = table(["mine", "rival", "other"], seeds=6)
    frames = [group.assign(**(own if method == "mine" else of_rivals)) for method, group in rows.groupby("method")]
    text = printed(of_frames(pd.concat(frames)))
    assert f"Budgets of tuning differ: MINE {why}" in text
    words = "16 trials in each setting, rungs 0.5, seed 1000, best, on 20 % of the clients' training images"
    assert f"tuning of the rivals: {words} " in text
    same = printed(of_frames(rows.assign(**of_rivals)))
    assert "Budgets" not in same
    assert f"tuning of MINE: {words}; ranges: lr 0.01 to 0.5 (log), server_lr 0.1 to 1 tuning of the" in same


def test_ranges_of_values_that_depend_on_the_component_are_no_difference() -> None:
    """A method's own beta is another value than the momentum of a rival's server."""
    lr, rows = {"low": 0.01, "high": 0.5, "log": True}, table(["mine", "rival"], seeds=6)
    ranges = {
        "mine": {"lr": lr, "server_lr": {"low": 1, "high": 2}, "beta": {"values": [3]}},
        "rival": {"lr": lr, "server_lr": {"low": 0.1, "high": 1}, "beta": {"low": 0.1, "high": 0.9}},
    }
    frames = [group.assign(**budget(ranges=ranges[str(method)])) for method, group in rows.groupby("method")]
    assert "Budgets" not in printed(of_frames(pd.concat(frames)))


def test_numbers_are_those_of_the_runs(stored: Path) -> None:
    mine(stored)
    found = compared("sharper")
    one = np.array([[accuracy(stored, s, "sharper", seed, "mine") for s in SETTINGS] for seed in range(3)])
    other = np.array([[accuracy(stored, s, "fedavg", seed) for s in SETTINGS] for seed in range(3)])
    against = row(found, "fedavg")
    assert (against["mean"], against["mean_rival"]) == pytest.approx((one.mean(), other.mean()))
    assert against["difference"] == pytest.approx((one - other).mean())
    by_seed = (one - other).mean(axis=1)
    half = 4.302653 * by_seed.std(ddof=1) / 3**0.5
    assert (against["interval_low"], against["interval_high"]) == pytest.approx(
        (by_seed.mean() - half, by_seed.mean() + half), abs=1e-5
    )
    assert (against["wins"], against["losses"]) == ((one > other).sum(), (one < other).sum())
    in_one = found.by_setting[found.scores.settings[1]].set_index("rival").loc["fedavg"]
    assert in_one["difference"] == pytest.approx((one - other)[:, 1].mean())
    assert (found.experiment, found.notes) == ("mine", ())
    wild = row(found, "wild")
    assert (wild["missing"], wild["missing_rival"]) == (0, 6)
    lower = compared("sharper", metric="test_loss")
    assert lower.verdicts["rival"].tolist()[-1] == "wild", "the worst, because it diverged"
    assert lower.verdicts["mean_rival"].dropna().is_monotonic_increasing
    assert "below 0 is better" in printed(lower)


def test_a_method_that_is_stored_itself_is_left_out_and_named(stored: Path) -> None:
    found = compared()
    assert set(found.verdicts["rival"]) == {"fedavg", "wild"}
    assert "the same configuration: fedsam is fedsam itself" in printed(found)
    mine(stored)
    assert "itself" not in printed(compared("sharper"))


def test_a_method_that_diverged_is_the_worst(stored: Path) -> None:
    found = compared("wild")
    assert row(found, "fedavg")["missing"] == 6
    assert (found.verdicts["difference"] <= 0).all()


def test_the_command_answers_in_words_and_writes_the_report(stored: Path) -> None:
    options = ["--grid", "tiny", "--experiment", "little.yaml", "--by-setting", "--out", "report"]
    done = fedflat("compare", "fedsam", *options)
    assert (done.returncode, done.stderr) == (0, "")
    text = as_text(compared(), by_setting=True)
    assert done.stdout == f"{text}\n\nreport/report.md\n"
    assert text.startswith("No verdict: 3 seeds; a verdict needs at least 6.\nBest rivals: ")
    assert "no flatness: fewer than two methods have a stored measure such as lambda_max" in text
    table = pd.read_csv("report/tables/verdicts.csv")
    assert table[IDS[:3]].drop_duplicates().to_numpy().tolist() == [["all"] * 3, *map(list, SETTINGS)]
    assert table["verdict"].isna().all()
    assert {file.name for file in Path("report/figures").glob("*.pdf")} == {
        "costs.pdf", "critical.pdf", "differences.pdf", "profiles.pdf", "ranking.pdf",
    }  # fmt: skip
    assert "unknown grid of stored baselines 'fedgf'" in refused("compare", "fedsam", "--grid", "fedgf")


def test_targets_that_nobody_reaches_are_no_metric(stored: Path) -> None:
    with pytest.raises(UserError, match="no run of the comparison has a value of rounds_to_90"):
        compared(metric="rounds_to_90")
    assert (row(compared(metric="gradients"), "fedavg")[["mean", "mean_rival"]] / [2, 1]).nunique() == 1


def test_seconds_are_not_tested(stored: Path) -> None:
    """The seeds of a cell are trained together: their seconds are one timing, and not a sample."""
    line = refused("compare", "fedsam", "--grid", "tiny", "--experiment", "little.yaml", "--metric", "seconds")
    assert "seeds that are trained together have one timing" in line
    assert "gradients" in line.partition("(allowed: ")[2]
    assert "seconds" not in " ".join(cost_table(compared()).header)


def test_rivals_without_all_runs_are_left_out_and_named() -> None:
    rows = table(["mine", "whole", "partial"], seeds=7)
    rows = rows[(rows["method"] != "partial") | (rows["seed"] < 5)]
    is_mine = rows["method"] == "mine"
    chosen, notes = paired(rows[is_mine], rows[~is_mine], "grid")
    assert chosen["method"].unique().tolist() == ["mine", "whole"]
    assert notes == ("left out, because it has no stored run for each of mine: partial (20 of 28)",)
    with pytest.raises(
        UserError, match=r"mine has no rival in the baselines of grid grid \(left out, because .*partial"
    ):
        paired(rows[is_mine], rows[~is_mine & ((rows["method"] == "partial") | (rows["seed"] > 3))], "grid")


def test_a_partly_equal_configuration_is_a_rival() -> None:
    rows = table(["mine", "rival"], seeds=6)
    is_mine, first = rows["method"] == "mine", rows["partition"] == "iid"
    rows.loc[~is_mine & first, "identity"] = rows.loc[is_mine & first, "identity"].to_numpy()
    chosen, notes = paired(rows[is_mine], rows[~is_mine], "grid")
    assert (chosen["method"].nunique(), len(chosen), notes) == (2, 48, ())


def test_no_seed_in_all_settings_is_reported() -> None:
    rows = table(["mine", "rival"], seeds=2)
    is_mine = rows["method"] == "mine"
    uneven = rows[is_mine & ((rows["partition"] == "iid") == (rows["seed"] == 0))]
    with pytest.raises(UserError, match="mine has no seed that is finished in all of its 4 settings"):
        paired(uneven, rows[~is_mine], "grid")
