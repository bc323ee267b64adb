"""A method compared with stored baselines: pairs, numbers against those of the runs, and refusals in one line."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.comparison.adding import add
from analysis.comparison.baselines import Baselines, load, save
from analysis.comparison.compare import Comparison, compare, summary
from analysis.comparison.run_table import run_table
from analysis.comparison.text import as_text
from analysis.report.requested import RequestedExperiment
from bench.experiments.address import IDS
from bench.experiments.experiment import load_experiment
from bench.host.progress import silent
from bench.host.torch_device import prepare_device
from bench.input.errors import UserError
from bench.training.train import train_cell
from tests.analysis.conftest import LITTLE, analyse, train_all
from tests.commands import fedflat, refused

SETTINGS = [("digits", "dirichlet-0.1", "4-of-20"), ("digits", "iid", "4-of-20")]
NAN = math.nan


def accuracy(folder: Path, setting: tuple[str, ...], method: str, seed: int, experiment: str = "little") -> float:
    run = folder.joinpath("results", "runs", experiment, *setting, method, f"seed-{seed}")
    return float(pd.read_csv(run / "metrics.csv")["test_accuracy"].iloc[-1])


def compared(method: str = "fedsam", experiment: str | None = None, **options: object) -> Comparison:
    """A method of little.yaml, or `sharper` of mine.yaml, compared with the stored grid `tiny`."""
    own = "mine.yaml" if method == "sharper" else "little.yaml"
    return compare(method, "tiny", Path("results"), experiment=experiment or own, **options)


def row(table: pd.DataFrame, method: str) -> pd.Series:
    return table.set_index("stored_method").loc[method]


def mine(folder: Path, grid: str = LITTLE) -> Path:
    """An experiment of one method on the grid of another experiment's text, and its runs."""
    file = folder / "mine.yaml"
    head = grid.partition("methods:")[0].replace("name: little", "name: mine")
    file.write_text(f"{head}methods:\n  sharper: {{name: fedsam, hyperparameters: {{rho: 0.5}}}}\n", encoding="utf-8")
    train_all(file, folder / "results")
    return file


@pytest.fixture
def stored(little: Path) -> Path:
    add([RequestedExperiment("little.yaml", Path("results"))], "tiny")
    return little


def test_numbers_are_those_of_the_runs(stored: Path) -> None:
    mine(stored)
    found = compared("sharper")
    one = [accuracy(stored, s, "sharper", seed, "mine") for s in SETTINGS for seed in range(3)]
    other = [accuracy(stored, s, "fedavg", seed) for s in SETTINGS for seed in range(3)]
    against = row(found.tables(False)["all", "all", "all"], "fedavg")
    assert against["pairs"] == 6
    assert against["mean"] == pytest.approx(np.mean(one))
    assert against["mean_stored"] == pytest.approx(np.mean(other))
    assert against["difference"] == pytest.approx(np.mean(one) - np.mean(other))
    assert against["wins"] == sum(a > b for a, b in zip(one, other, strict=True))
    assert against["losses"] == sum(a < b for a, b in zip(one, other, strict=True))
    assert against["interval_low"] < against["difference"] < against["interval_high"]
    assert not against["same"]
    assert (found.experiment, found.unpaired) == ("mine", ())


def test_one_table_per_setting(stored: Path) -> None:
    tables = compared().tables(by_setting=True)
    assert list(tables) == [("all", "all", "all"), *SETTINGS]
    against = row(tables[SETTINGS[1]], "fedavg")
    differences = [
        accuracy(stored, SETTINGS[1], "fedsam", s) - accuracy(stored, SETTINGS[1], "fedavg", s) for s in range(3)
    ]
    assert against["pairs"] == 3
    assert against["difference"] == pytest.approx(np.mean(differences))


def test_a_method_that_is_stored_itself_is_shown_and_named(stored: Path) -> None:
    found = compared()
    itself = row(found.tables(False)["all", "all", "all"], "fedsam")
    assert (itself["difference"], itself["interval_low"], itself["interval_high"], itself["p"]) == (0, 0, 0, 1)
    assert itself["same"]
    assert "fedsam is compared with itself" in " ".join(as_text(found, False).split())
    mine(stored)
    assert "with itself" not in as_text(compared("sharper"), False)


def test_runs_are_found_by_their_identity(stored: Path) -> None:
    """Those of another experiment, and those trained with other values, where the usual ones are in the usual place."""
    before = compared()
    runs = Path("results/runs")
    place = Path(*SETTINGS[0], "fedsam")
    (runs / "other" / place.parent).mkdir(parents=True)
    shutil.move(runs / "little" / place, runs / "other" / place)
    pd.testing.assert_frame_equal(compared().pairs, before.pairs)
    shutil.copytree(runs / "other", runs / "custom" / "copy")
    pd.testing.assert_frame_equal(compared().pairs, before.pairs)

    sharper = {"methods.fedsam.hyperparameters.rho": 0.5}
    with pytest.raises(UserError, match="holds a run of another configuration"):
        compared(overrides=sharper)
    cell = load_experiment("little.yaml", sharper).cell(Path(*SETTINGS[1], "fedsam").as_posix())
    train_cell("little", cell, runs / "custom" / "little" / cell.path, prepare_device("cpu", 1), silent)
    found = compared(overrides=sharper)
    assert row(found.tables(False)["all", "all", "all"], "fedsam")["pairs"] == 3
    assert not found.pairs["same"].any()


def test_runs_that_diverged_are_counted_and_lose(stored: Path) -> None:
    against = row(compared().tables(False)["all", "all", "all"], "wild")
    assert (against["pairs"], against["wins"], against["losses"]) == (6, 6, 0)
    assert (against["diverged"], against["diverged_stored"]) == (0, 6)
    assert math.isnan(against["difference"])
    found = compared("wild")
    against = row(found.tables(False)["all", "all", "all"], "fedavg")
    assert (against["wins"], against["losses"], against["diverged"]) == (0, 6, 6)
    assert "6 | 0" in as_text(found, False)
    assert "that diverged; where one run of a pair did, the other one wins" in " ".join(as_text(found, False).split())


def test_the_output_says_how_many_seeds_there_are_and_what_is_missing(stored: Path) -> None:
    shutil.rmtree(Path("results/runs/little", *SETTINGS[0], "fedsam", "seed-2"))
    text = " ".join(as_text(compared(), False).split())
    assert "from the spread within each setting (2 to 3 seeds per setting)" in text
    assert "fedsam has no finished run there: stored digits/dirichlet-0.1/4-of-20/seed-2" in text
    assert row(compared().tables(False)["all", "all", "all"], "fedavg")["pairs"] == 5


def test_columns_are_aligned(stored: Path) -> None:
    mine(stored)
    _, block, _ = as_text(compared("sharper", metric="test_loss"), False).split("\n\n")
    header, *lines = block.splitlines()[1:]
    assert len(lines) == 3
    for title in ("pairs", "sharper", " stored", "difference", "wins", "Holm"):
        end = header.rindex(title) + len(title)
        assert all(line[end - 1] != " " and line[end : end + 1] in {"", " "} for line in lines), title


def test_lower_is_better_for_losses(stored: Path) -> None:
    found = compared("fedsam", metric="test_loss")
    table = found.tables(False)["all", "all", "all"]
    finite = table["mean_stored"].dropna()
    assert finite.is_monotonic_increasing
    losses = found.pairs[found.pairs["method"] == "fedavg"]
    assert row(table, "fedavg")["wins"] == (losses["mine"] < losses["stored"]).sum()
    assert "below 0 is better" in as_text(found, False)


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
    assert row(compared("sharper").tables(False)["all", "all", "all"], "fedavg")["pairs"] == 6


@pytest.mark.parametrize(("column", "why"), [("data_hash", "content of the data set"), ("partition_hash", "partition")])
def test_other_data_and_partitions_are_refused(stored: Path, column: str, why: str) -> None:
    file = Path("results/baselines/tiny", "about.csv" if column == "data_hash" else "runs.csv")
    pd.read_csv(file, dtype=str).drop(columns="checksum").assign(**{column: "f" * 16}).to_csv(file, index=False)
    with pytest.raises(UserError, match=rf"cannot be compared .*{why}.*ffffffffffffffff stored"):
        compared()


def test_without_an_experiment_the_runs_are_those_of_the_one_named_like_the_grid(stored: Path) -> None:
    with pytest.raises(
        UserError, match=r"no experiment has the name of the grid, tiny: give the experiment .* --experiment"
    ):
        compare("fedsam", "tiny", Path("results"))
    shutil.copytree("results/baselines/tiny", "results/baselines/quick")
    with pytest.raises(UserError, match="no finished run of fedsam of experiment quick under 'results'"):
        compare("fedsam", "quick", Path("results"))


def test_unfinished_runs_are_not_read(stored: Path) -> None:
    run = Path("results/runs/little", *SETTINGS[0], "fedsam", "seed-2")
    run.rename(run.with_name("seed-2.partial-01234567"))
    assert row(compared().tables(False)["all", "all", "all"], "fedavg")["pairs"] == 5


def test_runs_of_two_tunings_are_not_mixed(stored: Path) -> None:
    mine(stored)
    for setting in SETTINGS:
        there = Path("results/runs/little", *setting, "fedsam", "seed-2")
        shutil.rmtree(there)
        shutil.copytree(Path("results/runs/mine", *setting, "sharper", "seed-2"), there)
    with pytest.raises(UserError, match=r"seed-2' holds a run of another configuration"):
        compared()


def test_old_runs_of_a_known_experiment_are_not_shown_as_new_ones(stored: Path) -> None:
    quick = load_experiment("quick", {"training.rounds": 1, "grid.seeds": [0]})
    cell = quick.cell("digits/dirichlet-0.1/4-of-20/scaffold")
    train_cell("quick", cell, Path("results/runs/quick", cell.path), prepare_device("cpu", 1), silent)
    with pytest.raises(UserError, match=r"another configuration \(training.rounds: 1 there, 30 here\): give the --set"):
        compared("scaffold", experiment="quick")


def test_mistakes_are_reported(stored: Path) -> None:
    with pytest.raises(UserError, match="unknown method of experiment little 'fedsm'; did you mean 'fedsam'"):
        compared("fedsm")
    with pytest.raises(UserError, match="unknown experiment 'litle'"):
        compared(experiment="litle")
    with pytest.raises(UserError, match="unknown metric of stored baselines 'accuracy'"):
        compared(metric="accuracy")
    with pytest.raises(UserError, match="unknown grid of stored baselines 'tinny'; did you mean 'tiny'"):
        compare("fedsam", "tinny", Path("results"))
    with pytest.raises(UserError, match=r"unknown grid of stored baselines 'quick' .*tiny"):
        compare("fedsam", "quick", Path("results"))
    with pytest.raises(
        UserError, match=r"no finished run of fedsam of experiment little .* snakemake --cores 2 little_"
    ):
        compare("fedsam", "tiny", Path("nowhere"), experiment="little.yaml")


def test_runs_without_any_partner_are_reported(stored: Path) -> None:
    mine(stored, LITTLE.replace("seeds: [0, 1, 2]", "seeds: [7]"))
    here = r"here: digits/dirichlet-0.1/4-of-20/seed-7"
    with pytest.raises(UserError, match=f"no run of sharper has a setting and seed .*{here}"):
        compared("sharper")


def test_the_command_prints_the_tables_and_writes_a_tidy_csv(stored: Path) -> None:
    options = ["--grid", "tiny", "--experiment", "little.yaml", "--by-setting", "--csv", "out.csv"]
    done = fedflat("compare", "fedsam", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == as_text(compared(), by_setting=True) + "\n"
    table = pd.read_csv("out.csv")
    assert len(table) == 3 * 3
    assert table[IDS[:3]].drop_duplicates().to_numpy().tolist() == [["all"] * 3, *map(list, SETTINGS)]
    expected = compared().csv(by_setting=True)
    assert table["difference"].tolist() == pytest.approx(expected["difference"].tolist(), rel=0, abs=0, nan_ok=True)

    assert "unknown grid of stored baselines 'quick'" in refused("compare", "fedsam", "--grid", "quick")


def frame(**methods: list[tuple[str, float, float]]) -> pd.DataFrame:
    """Pairs (partition, mine, stored) per stored method; seeds count up."""
    rows = [
        ("digits", partition, "4-of-20", seed, method, method.upper(), a, b, False)
        for method, pairs in methods.items()
        for seed, (partition, a, b) in enumerate(pairs)
    ]
    return pd.DataFrame(rows, columns=[*IDS[:3], "seed", "method", "title", "mine", "stored", "same"])


def test_a_missed_target_loses_without_a_value(stored: Path) -> None:
    """After one round, no run reaches 90 %, and all have spent the same traffic."""
    missed = compared(metric="rounds_to_90")
    against = row(missed.tables(False)["all", "all", "all"], "fedavg")
    assert (against["wins"], against["losses"], against["diverged"], against["diverged_stored"]) == (0, 0, 6, 6)
    assert "of stored runs that missed the target" in " ".join(as_text(missed, False).split())
    gradients = row(compared(metric="gradients").tables(False)["all", "all", "all"], "fedavg")
    assert gradients["mean"] == 2 * gradients["mean_stored"]


def test_values_of_analyses_are_compared_where_they_are_computed(stored: Path) -> None:
    with pytest.raises(UserError, match="no run of fedsam has a value of lpf: the analysis flatness is not computed"):
        compared(metric="lpf")
    for setting, method in ((SETTINGS[0], "fedsam"), (SETTINGS[0], "fedavg"), (SETTINGS[1], "fedsam")):
        analyse(stored, "little", "/".join((*setting, method)), "flatness", {"images": 20, "draws": 2})
    Path("analyses.yaml").write_text("flatness: {images: 20, draws: 2}\n", encoding="utf-8")
    partly = run_table(RequestedExperiment("little.yaml", Path("results")))
    old = load("tiny")
    save(Path("results/baselines/tiny"), Baselines(partly, old.curves))
    found = compared(metric="lpf")
    against = row(found.tables(False)["all", "all", "all"], "fedavg")
    values = partly.set_index(["partition", "method", "seed"])["lpf"]
    expected = [values["dirichlet-0.1", "fedsam", s] - values["dirichlet-0.1", "fedavg", s] for s in range(3)]
    assert against["pairs"] == 3
    assert against["difference"] == pytest.approx(np.mean(expected), abs=1e-4)
    assert "left out, because the analysis flatness is not computed: 3 in the baselines" in as_text(found, False)
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
    one, other = (row(found.tables(False)["all", "all", "all"], "fedavg") for found in (untuned, against_tuned))
    assert other["difference"] == pytest.approx(one["difference"] - 1)
    assert "grid tiny (tuned)" in as_text(against_tuned, False)
    with pytest.raises(UserError, match="unknown variant of the baselines of grid tiny 'best'"):
        compared(variant="best")


def test_summary_by_hand() -> None:
    table = summary(
        frame(
            weak=[("a", 5, 4), ("a", 7, 5), ("b", 9, 6), ("b", 9, 9)],
            strong=[("a", 5, 8), ("a", 7, NAN), ("b", NAN, 9), ("b", 9, 10)],
        ),
        "higher",
    )
    assert table["stored_method"].tolist() == ["strong", "weak"]
    # strong: differences -3 and -1 remain, one in each setting; one run of either side diverged.
    strong = row(table, "strong")
    assert (strong["pairs"], strong["mean"], strong["mean_stored"], strong["difference"]) == (4, 7, 9, -2)
    assert (strong["wins"], strong["losses"], strong["diverged"], strong["diverged_stored"]) == (1, 3, 1, 1)
    assert math.isnan(strong["interval_low"])
    # weak: differences 1, 2, 3, 0, a tie wins nothing; 4 of 16 flips (those of all but the 0) reach 6.
    weak = row(table, "weak")
    assert (weak["difference"], weak["wins"], weak["losses"], weak["p"]) == (1.5, 3, 0, 4 / 16)
    # strong has p = 2/4: Holm doubles the smaller p.
    assert (strong["p"], weak["p_holm"], strong["p_holm"]) == (0.5, 0.5, 0.5)


def test_marks_need_pairs_and_no_divergence_of_the_winner() -> None:
    better = [("a", 5 + s, 4.0) for s in range(3)] + [("b", 6 + s, 4.0) for s in range(3)]
    gone, lost = ("b", NAN, 4.0), ("b", 5.0, NAN)
    marks = summary(
        frame(enough=better, few=better[:5], winner_lost=[*better, gone], loser_lost=[*better, lost]), "higher"
    ).set_index("stored_method")["marked"]
    assert marks.to_dict() == {"enough": True, "few": False, "winner_lost": False, "loser_lost": True}


def test_holm_leaves_out_the_method_itself() -> None:
    pairs = frame(
        itself=[("a", 1, 1), ("a", 2, 2), ("a", 3, 3)],
        one=[("a", 1, 0), ("a", 2, 0), ("a", 3, 0)],
        other=[("a", 1, 0), ("a", 2, 0), ("a", 3, 0)],
    )
    pairs["same"] = pairs["method"] == "itself"
    assert summary(pairs, "higher").set_index("stored_method")["p_holm"].to_dict() == {
        "itself": 1.0, "one": 0.5, "other": 0.5,
    }  # fmt: skip


def test_a_pair_of_a_run_with_itself_is_no_comparison() -> None:
    pairs = frame(partly=[("a", 1, 1), ("b", 5, 2)])
    pairs["same"] = pairs["mine"] == pairs["stored"]
    partly = row(summary(pairs, "higher"), "partly")
    assert (partly["pairs"], partly["difference"], partly["wins"], partly["same"]) == (1, 3, 1, False)


number = st.floats(-50, 50).map(lambda v: round(v, 3))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), number | st.just(NAN), number | st.just(NAN)), min_size=1, max_size=8))
def test_swapping_the_sides_negates(pairs: list[tuple[str, float, float]]) -> None:
    one = summary(frame(m=pairs), "higher").iloc[0]
    other = summary(frame(m=[(s, b, a) for s, a, b in pairs]), "higher").iloc[0]

    def numbers(row: pd.Series, *names: str) -> list[float]:
        return [row[name] for name in names]

    assert numbers(one, "difference", "interval_low", "interval_high") == pytest.approx(
        [-other["difference"], -other["interval_high"], -other["interval_low"]], abs=1e-9, nan_ok=True
    )
    assert numbers(one, "wins", "losses", "diverged", "p", "marked") == pytest.approx(
        numbers(other, "losses", "wins", "diverged_stored", "p", "marked"), nan_ok=True
    )
    reverse = summary(frame(m=pairs), "lower").iloc[0]
    assert numbers(reverse, "wins", "losses", "difference") == pytest.approx(
        numbers(one, "losses", "wins", "difference"), nan_ok=True
    ) or (one["diverged"] + one["diverged_stored"] > 0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(number, number), min_size=3, max_size=6), number)
def test_what_both_sides_share_changes_no_difference(pairs: list[tuple[float, float]], shift: float) -> None:
    one = summary(frame(m=[("a", *pair) for pair in pairs]), "higher").iloc[0]
    other = summary(frame(m=[("a", a + shift, b + shift) for a, b in pairs]), "higher").iloc[0]
    for name in ("difference", "interval_low", "interval_high", "p"):
        assert other[name] == pytest.approx(one[name], abs=1e-9)
    assert other["mean"] == pytest.approx(one["mean"] + shift)


def test_hyperparameters_are_reported(stored: Path) -> None:
    about = compared().about
    assert json.loads(about.splitlines()[0].removeprefix("hyperparameters ")) == {"rho": 0.05}
    assert '"lr":0.1' in about
