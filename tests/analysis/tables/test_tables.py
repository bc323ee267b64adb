"""Tables: means and marks against numbers worked out by hand, in every format, with every kind of entry."""

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedflat.analysis.analyses import ANALYSES
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.tables.formats import FORMATS, escape_html, escape_latex, html, latex, markdown
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.table import Table, fill, inputs
from fedflat.analysis.tables.tidy_csv import tidy_csv
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, read_rows, tidy_in, words, write, write_rows
from tests.analysis.tables.tables_by_hand import ACCURACY, layout


@pytest.fixture
def table(tidy: Tidy) -> Table:
    return fill("accuracy", layout(), tidy)


def test_mean_and_sample_std(table: Table) -> None:
    # 80, 82, 84: mean 82, (4 + 0 + 4) / (n - 1) = 4. 84, 84, 78: mean 82, (4 + 4 + 16) / 2 = 12.
    fedavg, fedsam = table.entries[0][0][0], table.entries[0][1][0]
    assert (fedavg.mean, fedavg.std, fedavg.seeds) == (82, 2, 3)
    assert fedsam.mean == 82
    assert fedsam.std == pytest.approx(12**0.5)


def test_ties_share_the_first_place_and_the_next_mean_is_second(table: Table) -> None:
    assert [row[0].place for row in table.entries[0]] == [1, 1, 2, 0, 0]


def test_ranking_uses_unrounded_means(tmp_path: Path, quick: Experiment) -> None:
    for method, value in {"fedavg": 80.001, "fedsam": 80.002, "fedgf": 79}.items():
        write(tmp_path, CellAddress(HARD, method), "metrics", metrics([value] * 3))
    text = markdown(fill("t", layout(methods=["fedavg", "fedsam", "fedgf"]), tidy_in(tmp_path, quick)))
    assert "| FedAvg | <u>80.00 ± 0.00</u> |" in text
    assert "| FedSAM | **80.00 ± 0.00** |" in text
    assert "| FedGF | 79.00 ± 0.00 |" in text


def test_lower_is_better_and_none_is_not_ranked(tidy: Tidy) -> None:
    low = fill("t", layout(columns=[{**ACCURACY, "better": "lower"}]), tidy)
    assert [row[0].place for row in low.entries[0]] == [2, 2, 1, 0, 0]
    none = fill("t", layout(columns=[{**ACCURACY, "better": "none"}]), tidy)
    assert [row[0].place for row in none.entries[0]] == [0] * 5


def test_blocks_are_ranked_on_their_own(tidy: Tidy) -> None:
    place = Setting("digits", "dirichlet-0.1", "10-of-20")
    write(tidy.results, CellAddress(place, "fedlesam_s"), "metrics", metrics([50, 50, 50]))
    blocks = [{"header": p, "select": {"participation": p}} for p in ("10-of-20", "4-of-20")]
    table = fill("t", layout(blocks=blocks), tidy)
    assert [[row[0].place for row in block] for block in table.entries] == [[0, 0, 1, 0, 0], [1, 1, 2, 0, 0]]


def test_blocks_have_the_rows_that_they_name(tidy: Tidy) -> None:
    """In every format; ranks and needed files are those of the shown rows, in the order of the table."""
    blocks = [
        {"header": "both", "methods": ["fedlesam_s", "fedavg"], "select": {"participation": "4-of-20"}},
        {"header": "one", "methods": ["fedsam"], "select": {"participation": "4-of-20"}},
        {"header": "other", "methods": ["feddyn"], "select": {"participation": "10-of-20"}},
    ]
    own = layout(blocks=blocks)
    table = fill("t", own, tidy)
    assert [line.split(" | ")[0].strip("| ") for line in markdown(table).splitlines()[4:10]] == [
        "*both*", "FedAvg", "FedLESAM-S", "*one*", "FedSAM", "*other*"
    ]  # fmt: skip
    rows = pd.read_csv(io.StringIO(tidy_csv(table)))
    assert list(zip(rows["block"], rows["row"], strict=True)) == [
        ("both", "fedavg"), ("both", "fedlesam_s"), ("one", "fedsam"), ("other", "feddyn")
    ]  # fmt: skip
    assert [row[0].place for row in table.entries[0]] == [1, 0, 2, 0, 0]
    assert html(table).count("<td") == latex(table).count(r"\\") - 4 == 4  # without the header and three blocks
    shown = {(cell.method, cell.setting.participation) for cell in own.cells(tidy.experiment)}
    assert shown == {("fedavg", "4-of-20"), ("fedlesam_s", "4-of-20"), ("fedsam", "4-of-20"), ("feddyn", "10-of-20")}


def test_a_block_without_one_of_the_chosen_methods_is_left_out(quick: Experiment) -> None:
    blocks = [{"methods": ["fedavg"]}, {"methods": ["fedsam"]}, {}]
    chosen = quick.model_copy(update={"chosen": ("fedsam",)})
    adapted = layout(blocks=blocks).fitted(quick).adapted_to(chosen)
    assert [block.methods for block in adapted.blocks] == [("fedsam",), None]


@pytest.mark.parametrize(
    ("blocks", "columns", "message"),
    [
        ([{"methods": ["fedsma"]}], [ACCURACY], "unknown method of the table 'fedsma'; did you mean 'fedsam'?"),
        ([{"methods": []}], [ACCURACY], "methods"),
        (
            [{"header": "A", "methods": ["fedsam"]}],
            [{**ACCURACY, "relative_to": "fedavg"}],
            r"block 'A': column 0\.1 is compared with fedavg, which is not in the block's methods \(fedsam\)",
        ),
        (
            [{"header": "A", "methods": ["fedsam"]}],
            [{**ACCURACY, "gain_over": {"fedsam": "fedavg"}}],
            r"block 'A': column 0\.1 is compared with fedavg",
        ),
    ],
)
def test_wrong_methods_of_blocks(blocks, columns, message) -> None:
    with pytest.raises(UserError, match=message):
        TableLayout.parse(layout().model_dump() | {"blocks": blocks, "columns": columns})


def test_markdown_has_every_kind_of_entry(table: Table) -> None:
    assert markdown(table).splitlines()[2:] == [
        "| Method | 0.1 ↑ |",
        "| --- | ---: |",
        "| FedAvg | **82.00 ± 2.00** |",
        "| FedSAM | **82.00 ± 3.46** |",
        "| FedLESAM-S | <u>70.00 ± 0.00</u> (2 of 3 seeds) |",
        "| FedDyn | diverged (1 of 3) |",
        "| FedGF | not run |",
        "",
        "- Values: after the last round (round 4).",
        *(f"- {note}" for note in table.caption.notes[1:]),
    ]


def test_latex_has_booktabs_marks_and_blocks(tidy: Tidy) -> None:
    blocks = [{"header": "5 % & more", "select": {"participation": "4-of-20"}}]
    text = latex(fill("t", layout(blocks=blocks, columns=[{**ACCURACY, "group": "Dirichlet"}]), tidy))
    for line in (
        r"\toprule",
        r" & \multicolumn{1}{c}{Dirichlet} \\",
        r"\cmidrule(lr){2-2}",
        r"Method & 0.1 $\uparrow$ \\",
        r"\multicolumn{2}{l}{\textit{5 \% \& more}} \\",
        r"FedAvg & \textbf{82.00 $\pm$ 2.00} \\",
        r"FedLESAM-S & \underline{70.00 $\pm$ 0.00} (2 of 3 seeds) \\",
        r"FedDyn & diverged (1 of 3) \\",
        r"\bottomrule",
    ):
        assert line in text.splitlines()
    assert text.count("{") == text.count("}")
    assert r"\caption[{Accuracy}]{Accuracy. Test images.}" in text.splitlines()
    notes = text[text.index(r"\end{tabular}") :]
    assert r"\begin{minipage}{\linewidth}\footnotesize" in notes
    assert r"\textit{Notes.} Values: after the last round (round 4). Methods with" in notes


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("100 % & a_b #1 $x {y}", r"100 \% \& a\_b \#1 \$x \{y\}"),
        ("\\ ~ ^", r"\textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("1 ± 2", r"1 $\pm$ 2"),
        ("τ − 1 – 2", r"$\tau$ $-$ 1 -- 2"),
        ("λ_max and λ_1/λ_5", r"$\lambda_{\mathrm{max}}$ and $\lambda_{\mathrm{1}}$/$\lambda_{\mathrm{5}}$"),
        ("α = 0.6", r"$\alpha$ = 0.6"),
    ],
)
def test_latex_escaping(plain: str, escaped: str) -> None:
    assert escape_latex(plain) == escaped


def test_html_is_escaped(tidy: Tidy) -> None:
    text = html(fill("t", layout(columns=[{**ACCURACY, "header": "<0.1>"}]), tidy))
    assert "<th>&lt;0.1&gt; ↑</th>" in text
    assert "<td><strong>82.00 ± 2.00</strong></td>" in text
    assert "<td class=note>not run</td>" in text
    assert escape_html("λ_max < a_b") == "λ<sub>max</sub> &lt; a_b"


def test_csv_is_unrounded_and_every_number_has_a_source(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(tidy_csv(table))))
    assert list(rows[0]) == [
        "table",
        "row",
        "block",
        "column",
        "metric",
        "mean",
        "std",
        "n_seeds",
        "source",
        "note",
    ]
    assert [row["row"] for row in rows] == list(table.layout.methods)
    assert float(rows[1]["std"]) == pytest.approx(12**0.5, abs=1e-15)
    assert [row["source"] for row in rows] == ["run", "run", "run", "", ""]
    assert [row["mean"] != "" for row in rows] == [True, True, True, False, False]
    assert [row["note"] for row in rows] == ["", "", "2 of 3 seeds", "diverged (1 of 3)", "not run"]


def test_one_seed_has_no_spread(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80]))
    table = fill("t", layout(methods=["fedavg"]), tidy_in(tmp_path, quick))
    assert "**80.00** (1 of 3 seeds)" in markdown(table)
    assert "One seed." in words(table.caption)


def test_nothing_run_is_a_table_of_not_run(tmp_path: Path, quick: Experiment) -> None:
    table = fill("t", layout(), tidy_in(tmp_path, quick))
    assert {row[0].note for row in table.entries[0]} == {"not run"}
    assert words(table.caption).startswith("Accuracy. Test images. Methods with training settings")


@pytest.mark.parametrize(("metric", "file"), [("lpf", "flatness"), ("lambda_max", "hessian"), ("trace", "spectrum")])
def test_flatness_comes_from_its_own_file_and_divergence_from_metrics(tidy: Tidy, metric: str, file: str) -> None:
    for method in ("fedavg", "feddyn"):
        values = pd.DataFrame(
            [(seed, metric, value) for seed, value in enumerate([0.1, 0.2, 0.3])], columns=["seed", "metric", "value"]
        ).reindex(columns=["seed", *ANALYSES[file].columns])
        write(tidy.results, CellAddress(HARD, method), file, values)
    chosen = layout(columns=[{**ACCURACY, "metric": metric}], methods=["fedavg", "fedsam", "feddyn", "fedgf"])
    table = fill("t", chosen, tidy)
    assert table.entries[0][0][0].mean == pytest.approx(0.2)
    assert [row[0].note for row in table.entries[0]] == ["", "not analysed", "diverged (1 of 3)", "not run"]
    assert "Measured on the global model after the last round (round 4)." in words(table.caption)
    paths = inputs(chosen, tidy.experiment, tidy.paths)
    assert tidy.results / "experiments/quick/digits/dirichlet-0.1/4-of-20/fedavg/runs.csv" in paths
    assert tidy.results / f"experiments/quick/digits/dirichlet-0.1/4-of-20/fedavg/{file}.csv" in paths


def test_equal_data_gives_equal_bytes(tidy: Tidy) -> None:
    for render in FORMATS.values():
        assert render(fill("t", layout(), tidy)) == render(fill("t", layout(), tidy))


def test_entries_that_share_a_catalog_name_keep_their_own(tmp_path: Path, quick: Experiment) -> None:
    twice = {**quick.methods, "fedsam_small": quick.methods["fedsam"].model_copy(update={"name": "fedsam"})}
    tidy = tidy_in(tmp_path, quick.model_copy(update={"methods": twice}))
    table = fill("t", layout(methods=["fedavg", "fedsam", "fedsam_small"]), tidy)
    assert table.rows == ("FedAvg", "FedSAM", "FedSAM (fedsam_small)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns": [{**ACCURACY, "metric": "test_acuracy"}]},
            "unknown metric 'test_acuracy'; did you mean",
        ),
        ({"column": []}, "unknown key of table layout 'column'; did you mean 'columns'"),
        ({"methods": ["fedavg", "fedavg"]}, "method fedavg is listed twice"),
        ({"methods": ["fedsma"]}, "unknown method of experiment quick 'fedsma'; did you mean 'fedsam'"),
        ({"blocks": [{}]}, "matches .*10-of-20"),
        (
            {"blocks": [{"select": {"participation": "5-of-20"}}]},
            "unknown participation of experiment quick '5-of-20'",
        ),
    ],
)
def test_mistakes_are_one_line(quick: Experiment, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        layout(**changes).cells(quick)
    assert "\n" not in str(error.value)


def test_a_file_that_lacks_a_column_is_named(tidy: Tidy) -> None:
    path = write(tidy.results, CellAddress(HARD, "fedavg"), "metrics", metrics([80]).drop(columns="diverged"))
    with pytest.raises(UserError, match=r"/seed-0/metrics.csv' is damaged \(it lacks the column diverged.*: repeat"):
        fill("t", layout(), tidy)
    path.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=rf"'{path}' is damaged \(it is empty\): write .* again"):
        fill("t", layout(), tidy)


def test_released_variants_report_what_their_code_reports(tidy: Tidy, quick: Experiment) -> None:
    """FedLESAM's code reports the best round; a layout that states a rule overrules it."""
    methods = {**quick.methods, "fedlesam_s": quick.methods["fedlesam_s"].model_copy(update={"variant": "released"})}
    experiment = quick.model_copy(update={"methods": methods})
    assert layout().final_values(experiment)["fedlesam_s"].rule == "best"
    assert layout().final_values(experiment)["fedsam"].rule == "last"
    assert layout(final={"rule": "last"}).final_values(experiment)["fedlesam_s"].rule == "last"
    falling = metrics([70, 70])
    early = (falling["round"] == 2) & falling["test_accuracy"].notna()
    falling.loc[early, "test_accuracy"] = 75.0
    cell = experiment.cells()[CellAddress(HARD, "fedlesam_s").path]
    path = write(tidy.results, CellAddress(HARD, "fedlesam_s"), "metrics", falling)
    identities = {run.seed: run.identity for run in cell.runs}
    write_rows(path, read_rows(path).assign(identity=lambda frame: frame["seed"].map(identities)))
    filled = fill("accuracy", layout(methods=["fedavg", "fedlesam_s"]), tidy_in(tidy.results, experiment))
    assert filled.rows[1] == "FedLESAM-S (released, Bernoulli participation)"
    assert filled.entries[0][1][0].mean == 75.0
    assert "FedLESAM-S (released, Bernoulli participation): best of all evaluations" in words(filled.caption)


def test_titles_of_entries_are_their_own(tmp_path: Path, quick: Experiment) -> None:
    plain = quick.methods["fedsam"].model_copy(update={"name": "fedsam"})
    methods = {**quick.methods, "fedsam_wide": plain.model_copy(update={"title": "FedSAM, ρ = 1"})}
    tidy = tidy_in(tmp_path, quick.model_copy(update={"methods": methods}))
    assert fill("t", layout(methods=["fedsam", "fedsam_wide"]), tidy).rows == ("FedSAM", "FedSAM, ρ = 1")
