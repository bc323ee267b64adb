"""Margins: the file is complete, wrong files are refused, and widths by hand."""

import math

import pytest

from fedflat.analysis.layouts.quantities import QUANTITIES
from fedflat.analysis.published.numbers import PublishedNumber, papers
from fedflat.analysis.tables.layout import load_table
from fedflat.analysis.verdicts.margins import Margin, Rules, rules
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from tests.analysis.published.published_counts import ROWS


@pytest.mark.parametrize("paper", papers())
def test_every_reproducible_column_has_a_margin_or_a_reason(paper: str) -> None:
    for name in ROWS[paper]:
        for column in load_table(paper, name).columns:
            assert rules().margin(column.metric, column.form).not_judged != "no margin is set", (name, column.name)


def test_the_file_names_known_metrics_and_papers() -> None:
    for margins in (rules().values, rules().multiples, rules().gains, rules().gains_in_percent):
        assert margins.keys() <= QUANTITIES.keys()
    assert list(rules().papers) == papers()


def test_papers_with_printed_deviations_say_what_they_are() -> None:
    for paper, repetitions in rules().papers.items():
        texts = [file.read_text(encoding="utf-8") for file in (PAPER_TABLES / paper / "published").glob("*.csv")]
        stds = [line.split(",")[12] for text in texts for line in text.splitlines()[1:]]
        assert any(stds) == (repetitions.deviation is not None), paper


def test_absolute_times_are_not_judged_but_their_multiples_are() -> None:
    for metric in ("seconds_per_round", "train_seconds_to_target"):
        assert rules().margin(metric, "values").not_judged == "measured on another machine"
        assert rules().margin(metric, "multiples").percent == 10


def test_a_metric_without_margin_is_not_judged() -> None:
    assert rules().margin("trace", "values").not_judged == "no margin is set"


def test_counts_are_exact_in_whichever_form_the_papers_print_them() -> None:
    counts = {"downloads_per_round", "uploads_per_round", "transmissions_per_round"}
    counts |= {"client_storage", "client_models", "gradients_per_step"}
    assert {metric for metric in QUANTITIES if rules().is_exact(metric)} == counts


def test_widths_by_hand() -> None:
    """Half a unit of the last decimal is added; for percent as the larger of both changes of the logarithm."""
    assert Margin(points=1).width(PublishedNumber(80.0)) == pytest.approx(1.005)
    assert Margin(points=1).width(PublishedNumber(80.0, decimals=0), unit=2) == pytest.approx(1.0)
    assert Margin(exact=True).width(PublishedNumber(3.0, decimals=0)) == 0.5
    assert Margin(percent=10).width(PublishedNumber(50.0, decimals=0)) == pytest.approx(math.log(1.1 * 50 / 49.5))


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ({}, "exactly one of points, percent, exact, not_judged, not none"),
        ({"points": 1, "percent": 2}, "exactly one of"),
        ({"points": 0}, "points = 0: Input should be greater than 0"),
        ({"point": 1}, "unknown key of margin 'point'; did you mean 'points'"),
    ],
)
def test_wrong_margins_are_refused(margin: dict[str, float], message: str) -> None:
    nothing = {form: {} for form in ("multiples", "gains", "gains_in_percent", "papers")}
    with pytest.raises(UserError, match=message):
        Rules.parse({"values": {"test_accuracy": margin}, **nothing})
