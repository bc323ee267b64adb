"""Protocols: windows of a paper's length at smoke scale and at its own, and other reported values."""

from pathlib import Path

import pytest

from fedflat.analysis.analyses.training.convergence import Convergence
from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.draw import load_figure
from fedflat.analysis.figures.kinds.convergence import ConvergenceLayout
from fedflat.analysis.layouts.captions import smoke_scale
from fedflat.analysis.layouts.protocol import at_scale
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.planning.workflow import Workflow
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.layout import TableLayout, load_table
from fedflat.analysis.tables.table import fill
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, tidy_in, words, write

HARD_LABELS = {"partition": "dirichlet-0.1", "participation": "4-of-20"}
LONG = {"kind": "convergence", "title": "T", "caption": "C.", "methods": ["fedavg"], "window": 100, "every": 800,
        "panels": [HARD_LABELS]}  # fmt: skip


@pytest.mark.parametrize(("rounds", "window", "every"), [(8, 2, 2), (3, 2, 1), (40, 10, 10), (10_000, 100, 800)])
def test_at_smoke_scale_spans_are_a_quarter_of_the_rounds_at_most(rounds: int, window: int, every: int) -> None:
    smoke = load_experiment("quick", {"scale": "smoke", "training.rounds": rounds})
    layout = at_scale(ConvergenceLayout.parse(LONG), smoke)
    assert (layout.window, layout.every) == (window, every)
    assert at_scale(Convergence(window=100), smoke).window == window
    assert at_scale(Convergence(), smoke).window == 1, "what is not smoothed stays so"


def test_at_its_own_scale_nothing_changes(quick: Experiment) -> None:
    layout = ConvergenceLayout.parse(LONG)
    assert at_scale(layout, quick) == layout


def test_a_report_asks_for_spans_that_fit() -> None:
    smoke = RequestedExperiment("fedgf", Path("results"), {"scale": "smoke"})
    convergence = smoke.analyses["convergence"]
    assert isinstance(convergence, Convergence)
    assert convergence.window == 2
    convergence.check_target("fedavg", smoothed=True)


@pytest.fixture
def short(tmp_path: Path, quick: Experiment) -> Tidy:
    """Two seeds of four rounds."""
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([60, 70]))
    return tidy_in(tmp_path, quick)


def test_runs_that_end_before_the_first_point_are_reported_in_one_line(short: Tidy) -> None:
    layout = ConvergenceLayout.parse(LONG)
    with pytest.raises(UserError, match=r"nothing to draw for 'T': every = 800, but the runs have 4 rounds$"):
        figures.draw(layout, short)
    assert words(figures.caption(layout, short)).startswith("T. C.")


def test_the_scale_is_reported_in_caption_and_picture(short: Tidy) -> None:
    layout = ConvergenceLayout.parse({**LONG, "window": 1, "every": 1})
    smoke_note = "few rounds of a small network on scikit-learn's digits replace the data and models named here"
    assert smoke_note not in words(figures.caption(layout, short))
    assert figures.draw(layout, short).get_suptitle() == ""
    smoke = load_experiment("quick", {"scale": "smoke", "training.rounds": 4, "grid.seeds": [0, 1]})
    cell, tidy = CellAddress(HARD, "fedavg"), Tidy(short.results, smoke, short.analyses)
    write(short.results, cell, "metrics", metrics([60, 70]), experiment=smoke)
    assert smoke_note in words(figures.caption(layout, tidy))
    assert figures.draw(layout, tidy).get_suptitle() == "Smoke scale: scikit-learn's digits"


def test_one_protocol_is_requested_in_place_of_all_others(quick: Experiment) -> None:
    fields = {"title": "T", "caption": "C.", "methods": ["fedavg"], "final": {"rule": "mean_last_n", "n": 100}}
    ways = [{}, {"final": {"rule": "last"}}, {"final": {"rule": "std_last_n", "n": 100}}]
    columns = [{"header": f"{i}", "metric": "test_accuracy", **way} for i, way in enumerate(ways)]
    layout = TableLayout.parse({**fields, "columns": columns})
    assert layout.adapted_to(quick) == layout
    best = load_experiment("quick", {"report": "best"})
    under = layout.adapted_to(best)
    assert under.final_values(best) == {"fedavg": FinalValue(rule="best")}
    assert [column.final for column in under.columns] == [None, None, FinalValue(rule="std_last_n", n=100)]
    last10 = load_experiment("quick", {"report": "mean_last_10"})
    assert layout.adapted_to(last10).final == FinalValue(rule="mean_last_n", n=10)


def test_at_smoke_scale_means_are_over_few_evaluations() -> None:
    smoke = RequestedExperiment("fedgf", Path("results"), {"scale": "smoke"})
    layout = load_table("fedgf", "1").adapted_to(smoke.experiment)
    assert layout.final == FinalValue(rule="mean_last_n", n=2)
    assert smoke.analyses["convergence"].model_dump()["final"] == {"rule": "mean_last_n", "n": 2}


def test_headings_name_the_data_that_are_trained() -> None:
    smoke, paper = (RequestedExperiment("fedgf", Path("r"), changes) for changes in ({"scale": "smoke"}, {}))
    written, trained = ([block.header for block in Tables(one).layout("1").blocks] for one in (paper, smoke))
    assert written == ["CIFAR-10", "CIFAR-100"]
    assert trained == ["Digits for CIFAR-10", "Digits for CIFAR-100"]
    assert Figures(smoke).layout("4a").title == "Convergence, non-IID, digits for CIFAR-10"
    assert Figures(paper).layout("4a").title == "Convergence, non-IID, CIFAR-10"


def test_reports_under_another_protocol_are_stored_apart() -> None:
    changes = {"scale": "smoke", "report": "best"}
    assert RequestedExperiment("fedgf", Path("r"), changes).report_paths.folder == Path("r/reports/fedgf_smoke_best")
    assert Workflow.of(changes | {"results": "r"}).report("{experiment}").folder == Path("r/reports/{experiment}_best")
    runs = [
        RequestedExperiment("fedgf", Path("r"), {"scale": "smoke", **more}).experiment
        for more in ({}, {"report": "best"})
    ]
    assert runs[0].cells() == runs[1].cells(), "what is trained stays the same"


@pytest.mark.parametrize("report", ["mean", "mean_last_0", "std_last_10", "Best", ""])
def test_an_unknown_protocol_is_one_line(report: str) -> None:
    with pytest.raises(UserError, match=f"report = '{report}': allowed are last, best, and mean_last_N, such as"):
        load_experiment("quick", {"report": report})


def test_deviations_are_over_few_evaluations_too() -> None:
    smoke, paper = (load_experiment("fedgf", changes) for changes in ({"scale": "smoke"}, {}))
    layout = load_table("fedgf", "7")
    assert {column.final for column in layout.adapted_to(smoke).columns} == {FinalValue(rule="std_last_n", n=2)}
    assert layout.adapted_to(paper) == layout, "the quantity's own hundred"


def test_runs_shorter_than_a_mean_are_reported(short: Tidy) -> None:
    column = {"header": "a", "metric": "test_accuracy", "select": HARD_LABELS}
    fields = {"title": "T", "caption": "C.", "methods": ["fedavg"], "columns": [column]}
    for n, noted in ((100, True), (2, False)):
        layout = TableLayout.parse({**fields, "final": {"rule": "mean_last_n", "n": n}})
        assert ("Runs have as few as 2 evaluations." in words(fill("t", layout, short).caption)) == noted


@pytest.mark.parametrize(("rule", "noted"), [("best", True), ("last", False)])
def test_the_best_of_different_numbers_of_evaluations_is_noted(short: Tidy, rule: str, noted: bool) -> None:
    """Two runs with 2 evaluations each, and one run with 4."""
    write(short.results, CellAddress(HARD, "fedsam"), "metrics", metrics([60], every=1))
    fields = {"title": "T", "caption": "C.", "methods": ["fedavg", "fedsam"], "final": {"rule": rule}}
    column = {"header": "a", "metric": "test_accuracy", "select": HARD_LABELS}
    caption = words(fill("t", TableLayout.parse({**fields, "columns": [column]}), short).caption)
    assert ("Runs have 2 to 4 evaluations." in caption) == noted


def test_captions_at_smoke_scale_state_only_what_they_replace() -> None:
    smoke = load_experiment("fedtoga", {"scale": "smoke"})
    plain = smoke_scale(smoke, load_figure("fedtoga", "2d").cells(smoke), shortens=False)
    assert "Crops and flips are left out." in plain
    assert "share of the classes" not in plain
    assert "fewer rounds" not in plain
    table = load_table("fedtoga", "7")
    assert "A client holds the same share of the classes" in smoke_scale(smoke, table.cells(smoke), shortens=False)
    assert "span fewer rounds" in smoke_scale(smoke, table.cells(smoke), shortens=True)
    paper = load_experiment("fedtoga")
    assert smoke_scale(paper, table.cells(paper), shortens=True) == ""
