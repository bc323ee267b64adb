"""The report of a comparison: what it says and shows, and what it leaves out where runs lack columns."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report import differences, points, profiles, ranks
from fedflat.analysis.comparison.report.tables import tables
from fedflat.analysis.comparison.report.text import as_text
from fedflat.analysis.comparison.report.words import about, counts, of_setting, relative_costs, verdict
from fedflat.analysis.comparison.report.write import figures, markdown, write
from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.analysis.comparison.statistics.verdicts import BETTER, UNCLEAR, WORSE
from fedflat.analysis.figures.draw import save
from tests.analysis.comparison.frames import compared, complete_runs, runs
from tests.tiers import thorough

LEVELS = {"fedavg": 80.0, "mine": 85.0, "good": 90.0, "like": 85.0, "b&d_*": 70.0}


@pytest.fixture(scope="module")
def full() -> Comparison:
    return compared(complete_runs(LEVELS))


@pytest.fixture(scope="module")
def folder(full: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert write(full, folder) == folder / "report.md"
    return folder


def table(comparison: Comparison, name: str) -> ReportTable:
    return next(found for found in tables(comparison) if found.name == name)


def test_the_verdict_comes_first_in_words(full: Comparison, folder: Path) -> None:
    first, second = verdict(full)
    assert first == (
        "MINE: better than 2 of 4 (untuned), cannot tell from 1, worse than 1; "
        "at 2.0 × the gradients and 2.0 × the traffic of FEDAVG."
    )
    assert re.fullmatch(
        r"Best rivals: MINE is 5\.\d points below GOOD, 0\.\d+ points (above|below) LIKE, \d\.\d points above FEDAVG; "
        r"with 10 seeds, a difference of \d\.\d points is found with a probability of 80 % for a rival "
        r"with the median spread\.",
        second,
    )
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert page.index(first) < page.index(second) < page.index("|")
    assert as_text(full, False).startswith("MINE: better than 2 of 4")


def test_counts_are_those_of_the_verdicts(full: Comparison) -> None:
    assert counts([BETTER, BETTER, UNCLEAR, WORSE], " (tuned)") == (
        "better than 2 of 4 (tuned), cannot tell from 1, worse than 1"
    )
    for setting, found in full.by_setting.items():
        assert dict(zip(found["rival"], found["verdict"], strict=True)) == {
            "good": WORSE, "like": UNCLEAR, "fedavg": BETTER, "b&d_*": BETTER,
        }  # fmt: skip
        assert of_setting(full, setting) == "better than 2 of 4, cannot tell from 1, worse than 1"
        assert of_setting(full, setting) in as_text(full, False)


def test_too_few_seeds_give_no_verdict() -> None:
    few = compared(complete_runs(LEVELS, seeds=5))
    assert verdict(few)[0] == "No verdict: 5 seeds; a verdict needs at least 6."
    text = as_text(few, True)
    assert not re.search(r"better than|worse than|\bbetter  |\bworse  ", text.partition("Better or worse")[0])
    for found in tables(few):
        assert not any(re.search(r"\d [+−]$", cell) for row in found.rows for cell in row), found.name
    assert set(few.verdicts["verdict"]) == {""}
    assert compared(complete_runs(LEVELS, seeds=6)).verdicts["verdict"].tolist()[-1] == BETTER


def test_with_few_seeds_a_sentence_says_that_more_give_more_verdicts(full: Comparison) -> None:
    sentence = "A verdict needs at least 6 seeds; more seeds give more verdicts."
    assert sentence not in verdict(full)
    for seeds in (6, 9):
        assert verdict(compared(complete_runs(LEVELS, seeds=seeds)))[2] == sentence


def test_seconds_are_not_related_to_those_of_other_machines(full: Comparison) -> None:
    costs = table(full, "costs")
    mine = next(row for row in costs.rows if row[0] == "MINE")
    assert [re.sub(r" \*$", "", cell) for cell in mine[2:]] == ["20 (2.00 ×)", "200,000 (2.00 ×)"]
    assert [column for column in costs.frame if column.endswith("_relative")] == [
        "communicated_mb_relative", "gradients_relative",
    ]  # fmt: skip


def test_a_rival_that_is_far_off_does_not_hide_the_others() -> None:
    levels = {f"m{k}": 80 + 0.4 * k for k in range(12)} | {"mine": 82.0, "bad": 35.0}
    drawn = differences.draw(compared(complete_runs(levels)), 6.75)
    axes = drawn.figure.axes[0]
    assert axes.get_xlim()[1] < 10
    [far] = [text.get_text() for text in axes.texts]
    assert 46 < float(far) < 48
    assert "Triangles" in " ".join(drawn.caption.notes)
    near = differences.draw(compared(complete_runs({k: v for k, v in levels.items() if k != "bad"})), 6.75)
    assert not near.figure.axes[0].texts
    assert "Triangles" not in " ".join(near.caption.notes)


def overlapping(axes: Axes) -> list[tuple[str, str]]:
    """Neighbouring tick labels of the x axis that touch each other."""
    low, high = axes.get_xlim()
    labels = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    boxes = [label.get_window_extent() for label in labels]
    pairs = zip(itertools.pairwise(labels), itertools.pairwise(boxes), strict=True)
    return [(a.get_text(), b.get_text()) for (a, b), (left, right) in pairs if right.x0 <= left.x1]


@pytest.mark.parametrize("width", [6.75, pytest.param(3.3, marks=thorough)])
def test_numbers_of_logarithmic_axes_can_be_read(width: float) -> None:
    """Also in panels side by side, and in each part of a decade."""
    rows = complete_runs(LEVELS)
    for k in range(6):
        spread = 10 ** (0.2 * k + np.linspace(0, 0.3 * (k + 1), len(LEVELS)))
        levels = rows["method"].map(dict(zip(LEVELS, spread, strict=True)))
        found = compared(rows.assign(lambda_max=levels / 1000, lpf=levels, trace=10 * levels))
        for figure in figures(found, width):
            figure.figure.draw_without_rendering()
            for axes in figure.figure.get_axes():
                if axes.get_xscale() == "log":
                    assert overlapping(axes) == [], figure.name
    costs = points.draw_costs(found, width).figure
    costs.draw_without_rendering()
    for axes in costs.get_axes():
        assert {"1", "2"} <= {label.get_text() for label in axes.get_xticklabels()}


def test_what_is_not_stored_is_left_out_with_one_line() -> None:
    plain = compared(runs(LEVELS))
    texts = about(plain)
    assert [text for text in texts if text.startswith("no ")] == [
        "no costs: they are not stored for all methods",
        "no flatness: fewer than two methods have a stored measure such as lambda_max",
    ]
    assert relative_costs(plain) == ""
    assert verdict(plain)[0].endswith("worse than 1.")
    assert {found.name for found in tables(plain)} == {"verdicts", "settings", "ranking", "profile"}
    without = compared(complete_runs({"mine": 80, "other": 70}))
    assert "no costs relative to fedavg: it is not among the methods" in about(without)
    assert table(without, "costs").frame.columns.str.endswith("_relative").sum() == 0


def test_diverged_rivals_and_methods_are_judged_and_named() -> None:
    rows = complete_runs(LEVELS)
    gone = (rows["method"] == "like") & (rows["seed"] < 9)
    rows.loc[gone, ["test_accuracy", "outcome"]] = [math.nan, "diverged"]
    found = compared(rows)
    like = found.verdicts.set_index("rival").loc["like"]
    assert (like["verdict"], like["missing_rival"]) == (BETTER, 36)
    assert "36 stored" in as_text(found, False)
    mine = compared(rows, "like").verdicts.set_index("rival")
    assert BETTER not in set(mine["verdict"])
    assert mine.loc["good", "verdict"] == WORSE
    assert (mine["missing"] == 36).all()


def lose(rows: pd.DataFrame, which: pd.Series) -> None:
    rows.loc[which, ["test_accuracy", "lambda_max", "lpf"]] = math.nan
    rows.loc[which, "outcome"] = "diverged"


def test_no_accuracy_is_invented_for_diverged_runs() -> None:
    rows = complete_runs(LEVELS)
    hard = (rows["partition"] == "iid") & (rows["participation"] == "4-of-20")
    lose(rows, (rows["method"] == "like") & hard)
    lose(rows, (rows["method"] == "good") & (rows["seed"] < 2))
    found = compared(rows)
    settings = table(found, "settings")
    cells = {row[0]: row[1:] for row in settings.rows}
    assert cells["LIKE"][2] == "diverged (10 of 10) +"
    assert cells["LIKE"][-1].startswith("diverged (10 of 40)")
    of_good = rows[(rows["method"] == "good") & hard]["test_accuracy"].dropna()
    assert cells["GOOD"][2].startswith(f"{of_good.mean():.2f} ± {of_good.std():.2f} (2 of 10 diverged)")
    assert "diverged" not in "".join(cells["MINE"])
    assert "'2 of 10 diverged': so many have none" in settings.markdown()
    assert "diverged (10 of 10)" in settings.latex()
    for name in ("costs", "flatness"):
        shown = {row[0]: row[1] for row in table(found, name).rows}
        assert shown["LIKE"] == "diverged (10 of 40)"
        assert shown["GOOD"].endswith(" (8 of 40 diverged)")
        assert "so many have none" in table(found, name).markdown()
    for figure in (points.draw_costs(found, 6.75), points.draw_flatness(found, 6.75)):
        assert figure.frame.set_index("method")["mean"].isna().to_dict() == {
            "mine": False, "fedavg": False, "good": False, "like": True, "b&d_*": False,
        }  # fmt: skip
        for axes in figure.figure.get_axes():
            assert sum(line.get_marker() in ("o", "D") for line in axes.lines) == 4
        assert figure.caption.notes[-2:] == (
            "Not shown, because all their runs in a setting diverged: LIKE.",
            "Means without the runs that diverged: GOOD (8).",
        )
    for figure in (differences.draw(found, 6.75), ranks.draw_ranking(found, 6.75), ranks.draw_critical(found, 6.75)):
        assert any("count a run without a value" in note for note in figure.caption.notes)
    like = next(row for row in table(found, "verdicts").rows if row[0] == "LIKE")
    assert (like[1], like[-1]) == ("–", "10 stored")
    assert not any("diverged" in sentence for sentence in verdict(found))
    _, rivals, lost = verdict(compared(rows, "like"))
    assert rivals.startswith("Best rivals: GOOD, MINE, FEDAVG; with 10 seeds"), "no distance to a mean that is invented"
    assert lost == "10 of 40 runs of LIKE diverged; each counts as the worst other run of its setting."


def test_without_any_mean_the_figures_are_empty() -> None:
    rows = complete_runs(LEVELS)
    lose(rows, (rows["partition"] == "iid") == (rows["method"] == "mine"))
    drawn = {figure.name: figure for figure in figures(compared(rows))}
    for figure in drawn.values():
        figure.figure.draw_without_rendering()
    for name in ("costs", "flatness"):
        shown = [line for axes in drawn[name].figure.get_axes() for line in axes.lines if len(line.get_xdata())]
        assert shown == [], name
        reason = "Not shown, because all their runs in a setting diverged: MINE, FEDAVG, GOOD, LIKE, B&D_*."
        assert reason in drawn[name].caption.notes


def test_marks_are_those_of_the_verdicts(full: Comparison) -> None:
    found = table(full, "settings")
    rows = {row[0]: row for row in found.rows}
    assert found.rows[0][0] == "GOOD"
    assert rows["GOOD"][-1].endswith(" −")
    assert rows["FEDAVG"][-1].endswith(" +")
    assert not rows["MINE"][-1].endswith(("+", "−"))
    for k, (setting, verdicts) in enumerate(full.by_setting.items(), start=1):
        marks = {
            row["rival"].upper(): {BETTER: "+", WORSE: "−"}.get(row["verdict"]) for row in verdicts.to_dict("records")
        }
        for title, mark in marks.items():
            shown = rows[title][k][-1]
            assert (shown if shown in "+−" else None) == mark, (setting, title)
    assert found.rows[found.own][0] == "MINE"


def test_all_files_are_written_and_say_the_same(full: Comparison, folder: Path) -> None:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = ["differences", "ranking", "critical", "profiles", "costs", "flatness"]
    assert files == {
        "report.md", "report.tex", "explore.html",
        *(f"figures/{name}.{kind}" for name in names for kind in ("pdf", "png", "csv")),
        *(f"tables/{found.name}.csv" for found in tables(full)),
    }  # fmt: skip
    page, tex = ((folder / name).read_text(encoding="utf-8") for name in ("report.md", "report.tex"))
    for found in tables(full):
        frame = pd.read_csv(folder / "tables" / f"{found.name}.csv")
        assert len(frame) == len(found.frame)
        assert found.caption.title in page
        assert all(cell in page for row in found.rows for cell in row[1:])
    assert all(f"](figures/{name}.png)" in page and f"{{figures/{name}.pdf}}" in tex for name in names)
    assert tex.count(r"\caption[") == len(names) + len(list(tables(full)))
    assert r"B\&D\_" in tex
    assert "B&D_" not in tex
    verdicts = pd.read_csv(folder / "tables" / "verdicts.csv")
    assert verdicts.groupby(["dataset", "partition", "participation"]).size().tolist() == [4] * 5


def test_the_same_comparison_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = compared(complete_runs(LEVELS))
    drawn = {found.name: found for found in figures(again)}
    assert markdown(again, list(tables(again)), drawn) == (folder / "report.md").read_text(encoding="utf-8")
    save(drawn["costs"].figure, tmp_path / "costs")
    assert (tmp_path / "costs.pdf").read_bytes() == (folder / "figures" / "costs.pdf").read_bytes()


@pytest.mark.parametrize("width", [6.75, 3.3])
def test_figures_have_their_width_and_nothing_is_cut(full: Comparison, width: float) -> None:
    for found in figures(full, width):
        figure = found.figure
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] == width
        box = figure.bbox
        for text in (text for axes in figure.get_axes() for text in axes.texts):
            extent = text.get_window_extent()
            assert extent.x0 >= box.x0 - 1, (found.name, text.get_text())
            assert extent.x1 <= box.x1 + 1, (found.name, text.get_text())


def test_pictures_are_not_empty(folder: Path) -> None:
    for file in (folder / "figures").glob("*.png"):
        assert imread(file)[..., :3].std() > 0.05, file.name


def test_points_and_intervals_are_those_of_the_table(full: Comparison) -> None:
    axes = differences.draw(full, 3.3).figure.get_axes()[0]
    drawn = sorted(float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert drawn == pytest.approx(sorted(full.verdicts["difference"]))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [full.titles[rival] for rival in full.verdicts["rival"]]


def test_the_front_and_the_compared_method_are_named(full: Comparison) -> None:
    found = points.draw_costs(full, 6.75)
    frame = found.frame.set_index("method")
    for axes, cost in zip(found.figure.get_axes(), ("communicated_mb", "gradients"), strict=True):
        front = set(frame.index[frame[f"front_{cost}"]])
        assert {text.get_text() for text in axes.texts} == {full.titles[method] for method in front | {"mine"}}
    assert frame.loc["good", "front_communicated_mb"]
    assert not frame.loc["mine", "front_communicated_mb"]


def test_methods_are_joined_that_the_critical_difference_does_not_tell_apart(full: Comparison) -> None:
    found = ranks.draw_critical(full, 6.75)
    critical = found.frame["critical_difference"].iloc[0]
    means = found.frame.set_index("method")["mean_rank"].sort_values()
    bars = [np.ptp(line.get_xdata()) for line in found.figure.get_axes()[0].lines if line.get_color() == "#0072B2"]
    assert bars
    assert all(bar <= critical for bar in bars)
    assert means["like"] - means["good"] > critical
    few = ranks.draw_critical(compared(complete_runs(LEVELS, seeds=3)), 6.75)
    [bar] = [line for line in few.figure.get_axes()[0].lines if line.get_color() == "#0072B2"]
    assert np.ptp(bar.get_xdata()) == pytest.approx(few.frame["mean_rank"].max() - few.frame["mean_rank"].min())


def test_a_profile_needs_a_target_that_runs_reach(full: Comparison) -> None:
    rows = full.rows
    assert profiles.shown_target(rows) == "rounds_to_70"
    assert len(profiles.draw(full, 6.75).figure.get_axes()) == 3
    assert profiles.shown_target(rows.drop(columns="rounds_to_70")) is None
    assert len(profiles.draw(compared(runs(LEVELS)), 6.75).figure.get_axes()) == 1


def test_a_single_setting_and_a_single_rival_are_shown() -> None:
    rows = complete_runs({"mine": 80, "fedavg": 70})
    one = compared(rows[(rows["partition"] == "iid") & (rows["participation"] == "4-of-20")])
    assert verdict(one)[0].startswith("MINE: better than 1 of 1 (untuned), cannot tell from 0, worse than 0; at")
    assert "Best rival: MINE is" in verdict(one)[1]
    assert len(list(figures(one))) == 6
