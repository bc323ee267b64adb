"""Tables with published numbers, from hand-made results: every verdict, in every format, and when none is given."""

import io
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import pytest

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.published.numbers import PublishedNumber, published
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.page import table_page
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.formats import FORMATS
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.reproduction import with_published
from fedflat.analysis.tables.table import Entry, PublishedEntry, Table
from fedflat.analysis.verdicts.verdict import PLURALS, Verdict
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import metrics, write

FEDGF = load_experiment("fedgf")
PRINTED = published("fedgf")

AT = {"dataset": "cifar100", "partition": "lda-0", "participation": "5-of-100"}


def captioned() -> Caption:
    return Caption("T", "By hand.")


LAYOUT = TableLayout.parse(
    {
        "title": "Flatness",
        "caption": "By hand.",
        "published": "2",
        "methods": ["fedavg", "fedsam", "fedasam", "mofedsam", "fedsmoo", "fedgf"],
        "columns": [
            {"header": "LPF", "metric": "lpf", "decimals": 3, "select": AT},
            {"header": "λ_max", "metric": "lambda_max", "select": AT},
            {"header": "sharpness", "metric": "sharpness", "select": AT},
            {"header": "Δ_F", "metric": "flatness_discrepancy", "select": AT},
        ],
    }
)


def printed(method: str, metric: str) -> float:
    rows = PRINTED.query("table == '2' and method == @method and metric == @metric and partition_param == '0'")
    [value] = rows["value"]
    return float(value)


def of_seeds(mean: float, std: float) -> Entry:
    """Three seeds with this mean and sample standard deviation."""
    return Entry(mean, std, 3, by_seed=((0, mean - std), (1, mean), (2, mean + std)))


def filled() -> Table:
    """Six methods' entries, made so that every verdict occurs."""
    lpf = [
        of_seeds(printed("fedavg", "lpf") * 1.01, 0.01),
        of_seeds(printed("fedsam", "lpf") * 6, 0.1),
        Entry(note="not run"),
        Entry(seeds=3, note="diverged (1 of 3)", missing="diverged"),
        Entry(seeds=3, note="not analysed", missing="not analysed"),
        Entry(seeds=3, note="9+", missing="censored"),
    ]
    columns = [
        lpf,
        [of_seeds(printed(method, "lambda_max"), 1.0) for method in LAYOUT.methods],
        [of_seeds(1.0, 0.1)] * 6,
        [of_seeds(1 / printed(method, "flatness_discrepancy"), 0.001) for method in LAYOUT.methods],
    ]
    return Table("t", LAYOUT, LAYOUT.methods, (tuple(zip(*columns, strict=True)),), captioned)


UNFAIR = ["not judged", "not judged", "not run", "diverged", "not analysed", "censored"]
"""Of the first column, where runs are not as the paper states."""


def kinds(table: Table, column: int) -> list[str]:
    return [row[column].verdict.kind for row in table.published[0]]


@pytest.fixture(scope="module")
def judged() -> Table:
    return with_published(filled(), FEDGF, "fedgf")


def test_every_verdict(judged: Table) -> None:
    assert kinds(judged, 0) == ["agrees", "differs", "not run", "diverged", "not analysed", "censored"]
    assert set(kinds(judged, 1)) == {"not judged", "inconclusive"}, "λ_max of several methods is doubtful in print"
    assert set(kinds(judged, 2)) == {"not published"}
    assert {kind for column in range(4) for kind in kinds(judged, column)} == set(PLURALS)
    assert all(any(kind in paragraph for paragraph in judged.foot) for kind in PLURALS.values())
    assert any(" Censored: our runs or those of the paper did not" in paragraph for paragraph in judged.foot)


def test_columns_are_compared_as_a_whole(judged: Table) -> None:
    """LPF: two methods have values. Their deviations of logarithms are pooled."""
    [summaries] = judged.summaries
    noise = summaries[0].noise
    assert noise is not None
    logs = [[math.log(value) for _, value in judged.entries[0][m][0].by_seed] for m in (0, 1)]
    assert noise.runs.std**2 == pytest.approx(sum(stdev(values) ** 2 for values in logs) / 2)
    assert (noise.runs.methods, noise.runs.seeds, noise.printed, noise.seeds) == (2, 3, None, 1)
    assert summaries[0].order is None, "the two printed numbers are equal"
    reverse = summaries[3].order
    assert reverse is not None
    assert reverse.tau is not None
    assert (reverse.tau.mean, reverse.tau.methods) == (-1.0, 6), "the reverse of the printed order"
    assert reverse.counts == (0, 0, 14), "two of the six are equal in print"
    assert summaries[2].order is None


def test_the_foot_has_the_order_first_and_then_the_verdicts_and_the_margins(judged: Table) -> None:
    order, verdicts, rule, margins, noise = judged.foot
    assert order.startswith(
        "Order of the methods: of 14 pairs of methods with different published numbers, 0 have the published order "
        "in all seeds, 0 in some and 14 in none."
    )
    assert verdicts.startswith("Verdicts: 1 agrees, 7 differ, 1 inconclusive, 1 not run, ")
    assert rule.startswith("Agrees: the gap (reproduced − published) is smaller than the margin")
    assert margins.startswith("Margins: 10 % for low-pass-filter loss LPF, largest Hessian eigenvalue λ_max and ")
    assert "counts as one run (the paper does not state its number of seeds)" in noise


def test_exact_counts_need_no_seeds_and_no_words_about_noise() -> None:
    """FedGF's Table 3 by hand: one run per method, and each count is the printed one, but for FedAvg's."""
    requested = RequestedExperiment("fedgf", Path("nowhere"))
    layout = Tables(requested).layout("3")
    empty = (((Entry(note="not run"),) * len(layout.columns),) * len(layout.methods),)
    numbers = with_published(
        Table("3", layout, layout.methods, empty, captioned), requested.experiment, "fedgf"
    ).published[0]
    rows = tuple(
        tuple(Entry(value, None, 1, by_seed=((0, value),)) for value in (one.number.value for one in row))
        for row in numbers
    )
    wrong = tuple(replace(entry, mean=9.0, by_seed=((0, 9.0),)) for entry in rows[0])
    table = with_published(
        Table("3", layout, layout.methods, ((wrong, *rows[1:]),), captioned), requested.experiment, "fedgf"
    )
    assert [row[0].verdict.kind for row in table.published[0]] == ["differs", *["agrees"] * (len(rows) - 1)]
    assert [paragraph.split()[0] for paragraph in table.foot] == ["Order", "Verdicts:", "Exact"]
    assert all(summary.noise is None for summary in table.summaries[0])


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_numbers_side_by_side(judged: Table, name: str) -> None:
    text = FORMATS[name](judged)
    for shown in (f"{printed('fedsam', 'lpf'):g}", "differs", "diverged", "not analysed"):
        assert shown in text
    if name != "csv":
        assert "differs (+500" in text
        assert "Kendall" in text
        assert "0 / 0 / 14" in text
        assert "Verdicts: " in text
        assert "1 diverged" in text


def test_a_table_is_a_page_of_its_own(judged: Table) -> None:
    text = table_page(judged)
    assert text.startswith("<!doctype html>")
    assert "By hand." in text
    assert "differs (+500 %)" in text


def test_tidy_rows_have_both_numbers(judged: Table) -> None:
    rows = pd.read_csv(io.StringIO(FORMATS["csv"](judged))).set_index(["row", "column"])
    row = rows.loc[("fedsam", "LPF")]
    values = dict(judged.entries[0][1][0].by_seed).values()
    assert row["gap"] == pytest.approx(fmean(map(math.log, values)) - math.log(row["published"]))
    assert (row["verdict"], row["scale"]) == ("differs", "log")
    assert 2 < row["df"] < 4, "two methods with three seeds, whose errors are equal but for their size"
    assert row["gap"] - 4.303 * row["se"] > row["margin"] > math.log(1.1), "t(0.975, 2) is 4.303"
    reverse = rows.loc[("fedsam", "Δ_F")]
    assert tuple(reverse[["pairs_in_all_seeds", "pairs_in_some", "pairs_in_none", "tau"]]) == (0, 0, 5, -1)
    assert rows.loc[("fedgf", "λ_max"), "why"] != ""


@pytest.mark.parametrize(
    ("changes", "departure"),
    [
        ({"training.rounds": 5}, "training.rounds 5, printed 20000 (Section 6.1), in 14 entries"),
        ({"training.lr": 0.1}, "training.lr 0.1, printed 0.01 (Appendix C.2), in 14 entries"),
        ({"training.server_lr": 0.5}, "training.server_lr 0.5, printed 1 (Appendix C.2), in 14 entries"),
    ],
    ids=str,
)
def test_runs_that_depart_from_the_paper_are_not_judged(changes: dict[str, Any], departure: str) -> None:
    table = with_published(filled(), load_experiment("fedgf", changes), "fedgf")
    assert kinds(table, 0) == UNFAIR
    assert all(summary.order is summary.noise is None for summary in table.summaries[0]), "nor ranked"
    assert "departs from the paper" in table.foot[0]
    assert departure in table.foot[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": "paper"},
        {"chosen": ["fedavg", "fedgf"]},
        {"grid.seeds": [7, 8]},
        {"report": "best"},
        {"evaluation.every": 100},
        {"evaluation.snapshot_every": 100},
    ],
    ids=str,
)
def test_fewer_methods_other_seeds_values_and_evaluations_are_judged(changes: dict[str, Any]) -> None:
    table = with_published(filled(), load_experiment("fedgf", changes), "fedgf")
    assert kinds(table, 0)[0] == "agrees"
    assert any("requested one (report=best)" in part for part in table.foot) == ("report" in changes)


def test_at_smoke_scale_nothing_is_judged() -> None:
    table = with_published(filled(), load_experiment("fedgf", {"scale": "smoke"}), "fedgf")
    assert table.foot == ("Nothing is judged at this scale.",)
    assert kinds(table, 0) == UNFAIR


def test_what_extends_a_paper_is_judged_where_its_settings_are_the_papers(tmp_path: Path) -> None:
    for name, training, kind in (("same", "{}", "agrees"), ("faster", "{lr: 0.1}", "not judged")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"name: {name}\nextends: fedgf\ntraining: {training}\n", encoding="utf-8")
        assert kinds(with_published(filled(), load_experiment(str(file)), "fedgf"), 0)[0] == kind


def test_printed_deviations_stand_once() -> None:
    """Qu et al.'s are over clients, FedGF's of Table 9 over rounds: they have columns of their own."""
    for paper, name in (("fedsam_qu", "1"), ("fedgf", "9")):
        requested = RequestedExperiment(paper, Path("nowhere"))
        layout = Tables(requested).layout(name)
        row = (Entry(note="not run"),) * len(layout.columns)
        entries = ((row,) * len(layout.methods),) * len(layout.blocks)
        table = with_published(Table(name, layout, layout.methods, entries, captioned), requested.experiment, paper)
        shown = [one.number for block in table.published for of_method in block for one in of_method]
        assert all(number is None or number.std is None for number in shown)


def test_a_wide_table_in_latex_fits_the_page_and_names_its_paper(tmp_path: Path) -> None:
    cell = CellAddress.of("officehome_art_1/by_group/all-of-3/fedavg")
    write(tmp_path, cell, "metrics", metrics([70]), experiment="fedlesam")
    text = Tables(RequestedExperiment("fedlesam", tmp_path)).render("3")[1].read_text(encoding="utf-8")
    assert text.startswith("% needs \\usepackage{booktabs,adjustbox}\n\\begin{table*}")
    assert "\\label{tab:fedlesam-3}\n\\begin{adjustbox}{max width=\\linewidth, max totalheight=" in text


def test_the_foot_explains_the_marks_that_occur_at_smoke_scale_too() -> None:
    numbers = {
        "": PublishedNumber(1.0),
        "? the printed number is doubtful": PublishedNumber(1.0, note="typo_suspected"),
        "+ at least": PublishedNumber(1.0, note="censored"),
        "– the paper reports a failed run, or prints a dash": PublishedNumber(None, note="failed"),
    }
    entry = (((Entry(1.0),),),)
    column = {"header": "5", "metric": "test_accuracy", "select": {**AT, "dataset": "cifar10"}}
    layout = TableLayout.parse({**LAYOUT.model_dump(), "methods": ["fedavg"], "columns": [column]})
    for mark, number in numbers.items():
        published = (((PublishedEntry(number, Verdict("not judged")),),),)
        text = FORMATS["md"](Table("t", layout, ("FedAvg",), entry, captioned, published, foot=("Nothing.",)))
        assert text.endswith(f"\n\nNothing.\n\nIn published rows: {mark}.\n" if mark else "\n\nNothing.\n")


def test_methods_that_nothing_has_are_reported(tmp_path: Path) -> None:
    none = RequestedExperiment("fedgf", tmp_path, {"chosen": ["fedtoga"]})
    for name, render in (("table 1", Tables(none).render), ("figure 5", Figures(none).render)):
        with pytest.raises(UserError, match=f"{name} of fedgf shows nothing of the methods fedtoga"):
            render(name.split()[1])
    with pytest.raises(UserError, match="experiment fedgf has none of the methods fedtoga"):
        render_page(none)
    with pytest.raises(UserError, match="unknown method 'fedtogaa'; did you mean 'fedtoga'"):
        Tables(RequestedExperiment("fedgf", tmp_path, {"chosen": ["fedtogaa"]})).render("1")
    assert (Tables(none).shown(), Figures(none).shown()) == ([], [])


def test_a_methods_variants_are_chosen_with_it(tmp_path: Path) -> None:
    own = RequestedExperiment("fedgf", tmp_path, {"chosen": ["fedgf"]})
    assert Tables(own).layout("5").methods == ("fedgf_c0", "fedgf_c0.5", "fedgf_c1", "fedgf")
    assert "11" in Figures(own).shown()
    assert Tables(RequestedExperiment("fedgf", tmp_path, {"chosen": ["fedgf_c1"]})).layout("5").methods == ("fedgf_c1",)
