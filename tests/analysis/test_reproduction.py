"""Tables beside published numbers, from hand-made results: every verdict, in every format, and when none is given."""

import io
from pathlib import Path

import pandas as pd
import pytest

from analysis.index_page import table_page
from analysis.published import PublishedNumber, published
from analysis.report import Report
from analysis.reproduction import beside_published
from analysis.table_formats import FORMATS
from analysis.table_layout import TableLayout
from analysis.tables import Beside, Entry, Table
from analysis.verdicts import PLURALS, Verdict
from bench.errors import UserError
from bench.experiments import load_experiment

FEDGF = load_experiment("fedgf")
PRINTED = published("fedgf")

AT = {"dataset": "cifar100", "partition": "lda-0", "participation": "5-of-100"}
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
            {"header": "IID", "metric": "lpf", "published": {"partition_param": "10"}, "unsupported": "not known yet"},
        ],
    }
)


def printed(method: str, metric: str) -> float:
    rows = PRINTED.query("table == '2' and method == @method and metric == @metric and partition_param == '0'")
    [value] = rows["value"]
    return float(value)


def filled() -> Table:
    """Six methods' entries, made so that every verdict occurs."""
    lpf = [
        Entry(printed("fedavg", "lpf") + 0.01, 0.1, 3),
        Entry(printed("fedsam", "lpf") + 5, 0.1, 3),
        Entry(note="not run"),
        Entry(seeds=3, note="diverged (1 of 3)", missing="diverged"),
        Entry(seeds=3, note="not analysed", missing="not analysed"),
        Entry(seeds=3, note="9+", missing="censored"),
    ]
    columns = [
        lpf,
        [Entry(printed(method, "lambda_max"), 1.0, 3) for method in LAYOUT.methods],
        [Entry(1.0, 0.1, 3)] * 6,
        [Entry(-printed(method, "flatness_discrepancy"), 0.1, 3) for method in LAYOUT.methods],
        [Entry(note="not known yet", missing="not supported")] * 6,
    ]
    return Table("t", LAYOUT, LAYOUT.methods, (tuple(zip(*columns, strict=True)),), "By hand.")


def kinds(table: Table, column: int) -> list[str]:
    return [row[column].verdict.kind for row in table.beside[0]]


@pytest.fixture(scope="module")
def judged() -> Table:
    return beside_published(filled(), FEDGF, "fedgf")


def test_every_verdict(judged: Table) -> None:
    assert kinds(judged, 0) == ["agrees", "differs", "not run", "diverged", "not analysed", "censored"]
    assert "not judged" in kinds(judged, 1), "λ_max of several methods is doubtful in print"
    assert set(kinds(judged, 2)) == {"not published"}
    assert set(kinds(judged, 4)) == {"not supported"}
    assert {kind for column in range(5) for kind in kinds(judged, column)} == set(PLURALS)
    for kind in PLURALS.values():
        assert kind in judged.foot
    [taus] = judged.taus
    assert taus[3] == (-1.0, 6), "the order of the methods is the reverse of the printed one"
    assert taus[0] is taus[2] is taus[4] is None


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_numbers_side_by_side(judged: Table, name: str) -> None:
    text = FORMATS[name](judged)
    for shown in (f"{printed('fedsam', 'lpf'):g}", "differs", "diverged", "not analysed", "not known yet"):
        assert shown in text
    if name != "csv":
        assert "differs (+5.00" in text
        assert "Kendall" in text
        assert "Verdicts: " in text
        assert "1 diverged" in text


def test_a_table_is_a_page_of_its_own(judged: Table) -> None:
    text = table_page(judged)
    assert text.startswith("<!doctype html>")
    assert "By hand." in text
    assert "differs (+5.00" in text


def test_tidy_rows_have_both_numbers(judged: Table) -> None:
    rows = pd.read_csv(io.StringIO(FORMATS["csv"](judged))).set_index(["row", "column"])
    row = rows.loc[("fedsam", "LPF")]
    assert row["mean"] - row["published"] == pytest.approx(row["gap"]) == pytest.approx(5)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["training.rounds"], "Nothing is judged: training.rounds is not the paper's."),
        (["training.lr", "training.rounds"], "Nothing is judged: training.lr, training.rounds are not the paper's."),
    ],
)
def test_nothing_is_judged_of_other_runs_than_the_papers(changed: list[str], told: str) -> None:
    table = beside_published(filled(), FEDGF, "fedgf", changed)
    assert table.foot == told
    assert set(kinds(table, 0)) == {"not judged"}
    assert not table.taus


def test_fewer_methods_other_seeds_and_other_values_are_judged() -> None:
    table = beside_published(filled(), FEDGF, "fedgf", ["chosen", "grid.seeds", "report"])
    assert kinds(table, 0)[:2] == ["agrees", "differs"]


def test_at_smoke_scale_nothing_is_judged() -> None:
    assert beside_published(filled(), load_experiment("fedgf", {"scale": "smoke"}), "fedgf").foot == (
        "Nothing is judged at this scale."
    )


def accuracy(rounds: int) -> list[str]:
    """The verdicts on FedAvg's printed accuracy in Table 1, as if that was reproduced after so many rounds."""
    column = {"header": "5", "metric": "test_accuracy", "select": {**AT, "dataset": "cifar10"}}
    layout = TableLayout.parse({**LAYOUT.model_dump(), "published": "1", "methods": ["fedavg"], "columns": [column]})
    rows = PRINTED.query("table == '1' and method == 'fedavg' and dataset == 'cifar10' and partition_param == '0'")
    [value] = rows.query("active_clients == 5")["value"]
    table = Table("t", layout, ("FedAvg",), (((Entry(value, 0.1, 3),),),), "By hand.")
    experiment = load_experiment("fedgf", {"training.rounds": rounds})
    return kinds(beside_published(table, experiment, "fedgf"), 0)


def test_numbers_of_other_rounds_are_not_judged() -> None:
    assert accuracy(10_000) == ["agrees"]
    assert accuracy(120) == ["not judged"]


def test_printed_deviations_stand_once() -> None:
    """Qu et al.'s are over clients, FedGF's of Table 9 over rounds: they have columns of their own."""
    for paper, name in (("fedsam_qu", "1"), ("fedgf", "9")):
        report = Report(paper, Path("nowhere"))
        layout = report.table_layout(name)
        row = (Entry(note="not run"),) * len(layout.columns)
        entries = ((row,) * len(layout.methods),) * len(layout.blocks)
        table = beside_published(Table(name, layout, layout.methods, entries, "By hand."), report.experiment, paper)
        shown = [one.number for block in table.beside for of_method in block for one in of_method]
        assert all(number is None or number.std is None for number in shown)


def test_tables_of_unknown_data_sets_show_the_published_side_alone(tmp_path: Path) -> None:
    text = Report("fedlesam", tmp_path).render_table("3")[0].read_text()
    assert "data set not supported yet" in text
    assert "not supported" in text.rpartition("Verdicts")[2]
    published = [line for line in text.splitlines() if line.startswith("| *published*")]
    assert published
    assert not any("not supported" in line for line in published), "the cell above says why"
    assert text.endswith(" In published rows: ? doubtful in print.\n")


def test_a_wide_table_in_latex_fits_the_page_and_names_its_paper(tmp_path: Path) -> None:
    text = Report("fedlesam", tmp_path).render_table("3")[1].read_text()
    assert text.startswith("% needs \\usepackage{booktabs,graphicx}\n\\begin{table*}")
    assert "\\label{tab:fedlesam-3}\n\\resizebox{\\ifdim\\width>\\textwidth" in text
    assert "\\end{tabular}}\n" in text


def test_the_foot_tells_the_marks_that_occur_at_smoke_scale_too() -> None:
    numbers = {
        "": PublishedNumber(1.0),
        "? doubtful in print": PublishedNumber(1.0, note="typo_suspected"),
        "+ at least": PublishedNumber(1.0, note="censored"),
        "– a failure, or a dash there": PublishedNumber(None, note="failed"),
    }
    entry = (((Entry(1.0),),),)
    column = {"header": "5", "metric": "test_accuracy", "select": {**AT, "dataset": "cifar10"}}
    layout = TableLayout.parse({**LAYOUT.model_dump(), "methods": ["fedavg"], "columns": [column]})
    for mark, number in numbers.items():
        beside = (((Beside(number, Verdict("not judged")),),),)
        text = FORMATS["md"](Table("t", layout, ("FedAvg",), entry, "By hand.", beside, foot="Nothing."))
        assert text.endswith(f"\n\nNothing. In published rows: {mark}.\n" if mark else "\n\nNothing.\n")


def test_methods_that_nothing_has_are_told(tmp_path: Path) -> None:
    none = Report("fedgf", tmp_path, {"chosen": ["fedtoga"]})
    assert "Verdicts: 198 not published" in none.render_table("1")[0].read_text()
    with pytest.raises(UserError, match="figure 5 of fedgf shows none of the methods fedtoga"):
        none.render_figure("5")
    with pytest.raises(UserError, match="experiment fedgf has none of the methods fedtoga"):
        none.render_page()
