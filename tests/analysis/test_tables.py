"""Tables: means and marks against numbers worked out by hand, in every format, with every kind of entry."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.analyses import ANALYSES, parse_analysis
from analysis.made import in_words
from analysis.table_formats import FORMATS, escape_html, escape_latex, html, latex, markdown, tidy_csv
from analysis.table_layout import TableLayout
from analysis.tables import Table, fill, inputs
from analysis.tidy import CellKey, Setting, Tidy
from bench.config import RunConfig
from bench.errors import UserError
from bench.experiments import Experiment
from tests.analysis.conftest import ASKED, HARD, IDENTITIES, metrics, tidy_in, write

ACCURACY = {"header": "0.1", "metric": "test_accuracy", "select": {"partition": "dirichlet-0.1"}}


def layout(**changes: Any) -> TableLayout:
    fields = {
        "title": "Accuracy",
        "caption": "Test images.",
        "methods": ["fedavg", "fedsam", "fedlesam_s", "feddyn", "fedgf"],
        "columns": [ACCURACY],
        "blocks": [{"select": {"participation": "4-of-20"}}],
    }
    return TableLayout.model_validate({**fields, **changes})


@pytest.fixture
def tidy(tmp_path: Path, quick: Experiment) -> Tidy:
    """FedAvg and FedSAM with equal means; FedLESAM-S lower; FedDyn higher, but one run diverged; no FedGF."""
    runs = {
        "fedavg": metrics([80, 82, 84]),
        "fedsam": metrics([84, 84, 78]),
        "fedlesam_s": metrics([70, 70]),
        "feddyn": metrics([99, 99, 99], diverged={2: 3}),
    }
    for method, frame in runs.items():
        write(tmp_path, CellKey(HARD, method), "metrics", frame)
    return tidy_in(tmp_path, quick)


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
        write(tmp_path, CellKey(HARD, method), "metrics", metrics([value] * 3))
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
    write(tidy.results, CellKey(place, "fedlesam_s"), "metrics", metrics([50, 50, 50]))
    blocks = [{"header": p, "select": {"participation": p}} for p in ("10-of-20", "4-of-20")]
    table = fill("t", layout(blocks=blocks), tidy)
    assert [[row[0].place for row in block] for block in table.entries] == [[0, 0, 1, 0, 0], [1, 1, 2, 0, 0]]


def test_markdown_has_every_kind_of_entry(table: Table) -> None:
    assert markdown(table).splitlines()[2:] == [
        "| Method | 0.1 ↑ |",
        "| --- | ---: |",
        "| FedAvg | **82.00 ± 2.00** |",
        "| FedSAM | **82.00 ± 3.46** |",
        "| FedLESAM-S | <u>70.00 ± 0.00</u> (2 of 3 seeds) |",
        "| FedDyn | diverged (1 of 3) |",
        "| FedGF | not run |",
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


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("100 % & a_b #1 $x {y}", r"100 \% \& a\_b \#1 \$x \{y\}"),
        ("\\ ~ ^", r"\textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("1 ± 2", r"1 $\pm$ 2"),
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


def test_caption_states_protocol_seeds_and_marks(table: Table) -> None:
    assert table.caption == (
        "Accuracy. Test images. Values: after the last round (round 4). Trained otherwise: FedDyn (lr_decay 0.9995), "
        "FedGF (lr 0.03). Mean ± sample standard deviation "
        "over 2 to 3 seeds. Bold: best mean of a column; underlined: second best."
    )


def test_one_seed_has_no_spread(tmp_path: Path, quick: Experiment) -> None:
    write(tmp_path, CellKey(HARD, "fedavg"), "metrics", metrics([80]))
    table = fill("t", layout(methods=["fedavg"]), tidy_in(tmp_path, quick))
    assert "**80.00** (1 of 3 seeds)" in markdown(table)
    assert "Mean over 1 seed." in table.caption


def test_nothing_run_is_a_table_of_not_run(tmp_path: Path, quick: Experiment) -> None:
    table = fill("t", layout(), tidy_in(tmp_path, quick))
    assert {row[0].note for row in table.entries[0]} == {"not run"}
    assert table.caption.startswith("Accuracy. Test images. Trained otherwise: FedDyn")


@pytest.mark.parametrize(("metric", "file"), [("lpf", "flatness"), ("lambda_max", "hessian"), ("trace", "spectrum")])
def test_flatness_comes_from_its_own_file_and_divergence_from_metrics(tidy: Tidy, metric: str, file: str) -> None:
    for method in ("fedavg", "feddyn"):
        values = pd.DataFrame(
            [(seed, metric, value) for seed, value in enumerate([0.1, 0.2, 0.3])], columns=["seed", "metric", "value"]
        ).reindex(columns=["seed", *ANALYSES[file].columns])
        write(tidy.results, CellKey(HARD, method), file, values)
    chosen = layout(columns=[{**ACCURACY, "metric": metric}], methods=["fedavg", "fedsam", "feddyn", "fedgf"])
    table = fill("t", chosen, tidy)
    assert table.entries[0][0][0].mean == pytest.approx(0.2)
    assert [row[0].note for row in table.entries[0]] == ["", "not analysed", "diverged (1 of 3)", "not run"]
    assert "Measured on the global model after the last round (round 4)." in table.caption
    paths = inputs(chosen, tidy.experiment)
    assert "runs/quick/digits/dirichlet-0.1/4-of-20/fedavg/metrics.csv" in paths
    assert f"analysis/quick/digits/dirichlet-0.1/4-of-20/fedavg/{file}.csv" in paths


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
        ({"column": []}, "unknown key of TableLayout 'column'; did you mean 'columns'"),
        ({"methods": ["fedavg", "fedavg"]}, "method fedavg stands twice"),
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
    path = write(tidy.results, CellKey(HARD, "fedavg"), "metrics", metrics([80]).drop(columns="diverged"))
    with pytest.raises(UserError, match=f"'{path}' lacks the column diverged"):
        fill("t", layout(), tidy)
    path.write_text("")
    with pytest.raises(UserError, match="cannot read"):
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
    cell = experiment.cells()[CellKey(HARD, "fedlesam_s").path]
    path = write(tidy.results, CellKey(HARD, "fedlesam_s"), "metrics", falling)
    identities = {run.seed: run.identity for run in cell.runs}
    pd.read_csv(path).assign(identity=lambda frame: frame["seed"].map(identities)).to_csv(path, index=False)
    filled = fill("accuracy", layout(methods=["fedavg", "fedlesam_s"]), tidy_in(tidy.results, experiment))
    assert filled.rows[1] == "FedLESAM-S (released, Bernoulli participation)"
    assert filled.entries[0][1][0].mean == 75.0
    assert "FedLESAM-S (released, Bernoulli participation): best of all evaluations" in filled.caption


def test_runs_of_other_code_are_told(tidy: Tidy) -> None:
    assert "other code" not in fill("accuracy", layout(), tidy).caption
    path = tidy.path("metrics", CellKey(HARD, "fedsam"))
    frame = pd.read_csv(path)
    frame.loc[frame["seed"] == 1, "code"] = "0123456789abcdef"
    frame.to_csv(path, index=False)
    assert "1 of 11 runs were made by other code than is here." in fill("accuracy", layout(), tidy).caption


LPF = {**ACCURACY, "metric": "lpf"}


def lpf(tidy: Tidy, **changes: object) -> Table:
    """FedAvg's and FedSAM's LPF over three seeds, FedSAM's file changed by hand."""
    rows = pd.DataFrame({"seed": range(3), "metric": "lpf", "value": 0.2, "definition": "5 draws"})
    for method in ("fedavg", "fedsam"):
        path = write(tidy.results, CellKey(HARD, method), "flatness", rows)
    pd.read_csv(path).assign(**changes).to_csv(path, index=False)
    return fill("t", layout(columns=[LPF], methods=["fedavg", "fedsam"]), tidy)


def test_captions_say_what_was_computed_and_by_which_code(tidy: Tidy) -> None:
    assert "Low-pass-filter loss LPF: 5 draws." in lpf(tidy).caption
    assert "LPF: 5 draws or: 7 draws." in lpf(tidy, definition="7 draws").caption
    several = lpf(tidy, definition=["6 draws", "7 draws", "8 draws"]).caption
    assert "LPF: see the column definition of the files flatness.csv." in several
    assert "other code" not in several
    assert "3 of 6 answers of flatness were made by other code than is here." in lpf(tidy, code="0123").caption


def test_captions_say_which_eigenvalues_are_not_exact(tidy: Tidy) -> None:
    for method, flags in (("fedavg", (1, 1, 1)), ("fedsam", (0, 1, 0))):
        rows = [(seed, "lambda_max", 5.0) for seed in range(3)]
        rows += [(seed, "lambda_converged", flag) for seed, flag in enumerate(flags)]
        write(tidy.results, CellKey(HARD, method), "hessian", pd.DataFrame(rows, columns=["seed", "metric", "value"]))
    shown = layout(columns=[{**ACCURACY, "metric": "lambda_max"}], methods=["fedavg", "fedsam"])
    assert "2 of 6 answers of hessian have residuals above their tolerance." in fill("t", shown, tidy).caption
    only = layout(columns=[{**ACCURACY, "metric": "lambda_max"}], methods=["fedavg"])
    assert "tolerance" not in fill("t", only, tidy).caption


def test_answers_to_other_questions_are_refused(tidy: Tidy) -> None:
    old = in_words(ASKED["flatness"].model_copy(update={"draws": 7}).options().items())
    with pytest.raises(UserError, match=r"made with other options \(draws=7 there, draws=50 here\) than .* anew"):
        lpf(tidy, options=old)
    same = in_words(reversed(ASKED["flatness"].options().items()))
    assert lpf(tidy, options=same).entries[0][1][0].mean == pytest.approx(0.2), "in whatever order"


@pytest.mark.parametrize("identity", ["", "fedavg=0123456789abcdef"])
def test_answers_that_compare_with_other_runs_are_refused(tidy: Tidy, identity: str) -> None:
    asked = parse_analysis("convergence", {"reference": "fedavg"})
    tidy = replace(tidy, analyses={**ASKED, "convergence": asked})
    path = write(tidy.results, CellKey(HARD, "fedsam"), "convergence", reaching((200, 1), (400, 1), (300, 1)))
    own = [f"fedavg={IDENTITIES[CellKey(HARD, 'fedavg').path, seed]}" for seed in range(3) for _ in range(2)]
    made = pd.read_csv(path).assign(options=in_words(asked.options().items()), beside=own)
    made.to_csv(path, index=False)
    shown = layout(columns=[TARGET], methods=["fedsam"])
    assert fill("t", shown, tidy).entries[0][0][0].mean == 300
    made.assign(beside=identity).to_csv(path, index=False)
    with pytest.raises(UserError, match="compares with other runs of fedavg than experiment quick has now"):
        fill("t", shown, tidy)


def reaching(*values: tuple[float, int], metric: str = "rounds_to_target") -> pd.DataFrame:
    """What an analysis says of each seed: spent on 70 %, and whether that was reached; twice that on FedAvg's final."""
    rows = [
        (seed, metric, target, of, 0, factor * value, reached)
        for seed, (value, reached) in enumerate(values)
        for target, of, factor in ((70.0, None, 1), (81.25, "fedavg", 2))
    ]
    return pd.DataFrame(rows, columns=["seed", "metric", "target", "target_of", "smoothed", "value", "reached"])


TARGET = {
    "header": "rounds",
    "metric": "rounds_to_target",
    "target": 70,
    "decimals": 0,
    "select": {"partition": "dirichlet-0.1"},
}


def to_target(tidy: Tidy, **column: Any) -> list[str]:
    """The entries as Markdown prints them."""
    write(tidy.results, CellKey(HARD, "fedavg"), "convergence", reaching((200, 1), (400, 1), (300, 1)))
    write(tidy.results, CellKey(HARD, "fedsam"), "convergence", reaching((100, 1), (800, 0), (800, 0)))
    write(tidy.results, CellKey(HARD, "fedlesam_s"), "convergence", reaching((800, 0), (800, 0)))
    filled = fill("t", layout(columns=[{**TARGET, **column}], methods=["fedavg", "fedsam", "fedlesam_s"]), tidy)
    return [line.split(" | ")[1].removesuffix(" |") for line in markdown(filled).splitlines()[4:]]


def test_a_target_that_is_not_reached_is_censored(tidy: Tidy) -> None:
    """A mean over the seeds that reach it would favour those methods whose slow seeds never do."""
    assert to_target(tidy) == ["**300 ± 100**", "800+ (1 of 3 seeds)", "800+"]
    assert to_target(tidy, target="fedavg") == ["**600 ± 200**", "1600+ (1 of 3 seeds)", "1600+"]


def test_multiples_are_taken_seed_by_seed(tidy: Tidy) -> None:
    """800 / 400 and 800 / 300; 800 / 200 and 800 / 400."""
    shown = to_target(tidy, relative_to="fedavg", decimals=2)
    assert shown == ["**1.00 ± 0.00**", "2.33+ (1 of 3 seeds)", "3.00+"]


def test_multiples_of_what_was_not_reached_are_not_shown(tidy: Tidy) -> None:
    """A mean over the seeds in which the reference got there would be over its lucky ones."""
    of_fedsam = ["reference: 1 of 3 seeds", "reference: 1 of 3 seeds", "reference: 1 of 2 seeds"]
    assert to_target(tidy, relative_to="fedsam", decimals=2) == of_fedsam
    of_fedlesam = ["reference: 0 of 3 seeds", "reference: 0 of 3 seeds", "reference: 0 of 2 seeds"]
    assert to_target(tidy, relative_to="fedlesam_s") == of_fedlesam


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({**TARGET, "target": None}, "rounds_to_target takes a target"),
        ({**ACCURACY, "target": 70}, "test_accuracy takes no target"),
        ({**ACCURACY, "smoothed": True}, "nothing smoothed"),
        ({**TARGET, "relative_to": "fedswa"}, "unknown method of the table 'fedswa'"),
    ],
)
def test_targets_stand_where_they_belong(column: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        layout(columns=[column])


def test_each_quantity_comes_from_its_own_file(tidy: Tidy) -> None:
    sharp = pd.DataFrame({"seed": [0, 1, 2], "metric": "lambda_max", "value": [10.0, 20.0, 30.0], "stderr": None})
    write(tidy.results, CellKey(HARD, "fedavg"), "hessian", sharp)
    table = fill("t", layout(columns=[{**ACCURACY, "metric": "lambda_max"}, ACCURACY], methods=["fedavg"]), tidy)
    assert [entry.mean for entry in table.entries[0][0]] == [20, 82]


def cells_of(tidy: Tidy, **changes: Any) -> list[str]:
    """The entries of a table's last column as Markdown prints them, without marks."""
    text = markdown(fill("t", layout(**{"columns": [ACCURACY], **changes}), tidy))
    lines = [line for line in text.splitlines()[4:] if line.startswith("| Fed")]
    return [re.sub(r"\*\*|</?u>| \|$", "", line.split(" | ")[-1]) for line in lines]


MOSTLY = ["fedavg", "fedsam", "fedlesam_s"]


def test_gains_are_taken_seed_by_seed(tidy: Tidy) -> None:
    """84 - 80, 84 - 82, 78 - 84: mean 0, (16 + 4 + 36) / 2 = 28; in percent 5, 2.44, -7.14."""
    gain = {**ACCURACY, "gain_over": {"fedsam": "fedavg", "fedlesam_s": "feddyn"}}
    assert cells_of(tidy, columns=[gain])[:3] == ["–", "0.00 ± 5.29", "-29.00 ± 0.00 (2 of 3 seeds)"]
    of_diverged = {**ACCURACY, "gain_over": {"fedsam": "feddyn"}}
    assert cells_of(tidy, columns=[of_diverged])[1] == "reference: 2 of 3 seeds"
    assert cells_of(tidy, columns=[{**gain, "in_percent": True}])[1] == "0.10 ± 6.40"
    caption = fill("t", layout(columns=[gain]), tidy).caption
    assert "Gains, seed by seed: FedSAM over FedAvg, FedLESAM-S over FedDyn." in caption


def test_means_over_settings_need_all_of_them(tidy: Tidy) -> None:
    """FedAvg: (80 + 70) / 2, (82 + 70) / 2, and no third seed in the other setting."""
    place = Setting("digits", "dirichlet-0.1", "10-of-20")
    write(tidy.results, CellKey(place, "fedavg"), "metrics", metrics([70, 70]))
    both = {**ACCURACY, "mean_of": [{"participation": "4-of-20"}, {"participation": "10-of-20"}]}
    assert cells_of(tidy, columns=[both], methods=MOSTLY) == [
        "75.50 ± 0.71 (2 of 3 seeds)", "1 of 2 settings", "1 of 2 settings",
    ]  # fmt: skip


def test_a_block_may_have_other_labels_than_its_columns(tidy: Tidy) -> None:
    column = {**ACCURACY, "select": {"partition": "dirichlet-0.1", "participation": "10-of-20"}}
    assert cells_of(tidy, columns=[column], methods=MOSTLY, blocks=[{}]) == ["not run"] * 3
    swapped = cells_of(tidy, columns=[column], methods=MOSTLY, blocks=[{"instead": {"10-of-20": "4-of-20"}}])
    assert swapped[0] == "82.00 ± 2.00"


def test_values_are_divided_by_the_unit(tidy: Tidy) -> None:
    assert cells_of(tidy, columns=[{**ACCURACY, "unit": 10}], methods=MOSTLY)[0] == "8.20 ± 0.20"


def test_rows_that_cannot_be_run_say_why(tidy: Tidy) -> None:
    shown = layout(
        methods=["fedavg", "silobn"], unsupported_rows={"silobn": {"title": "SiloBN", "why": "not supported"}}
    )
    assert "| SiloBN | not supported |" in markdown(fill("t", shown, tidy))
    assert not any("silobn" in path for path in inputs(shown, tidy.experiment))


def curve(tidy: Tidy, values: list[float]) -> None:
    """One seed of FedAvg that is evaluated every round."""
    run = pd.concat([metrics([values[0]])] * len(values)).drop_duplicates("round")
    frame = run.iloc[[0] * len(values)].assign(round=range(1, len(values) + 1), test_accuracy=values)
    write(tidy.results, CellKey(HARD, "fedavg"), "metrics", frame)


def test_deviation_over_a_runs_last_hundred_evaluations(tidy: Tidy) -> None:
    """0 and 2 by turns have the variance 100 / 99; what comes before does not count."""
    deviation = {**ACCURACY, "metric": "test_accuracy_std_last100", "decimals": 6}
    curve(tidy, [50.0] * 20 + [0.0, 2.0] * 50)
    assert cells_of(tidy, columns=[deviation], methods=["fedavg"]) == [f"{(100 / 99) ** 0.5:.6f} (1 of 3 seeds)"]
    curve(tidy, [50.0])
    assert cells_of(tidy, columns=[deviation], methods=["fedavg"]) == ["no value"]


def test_accuracy_after_half_of_the_rounds_follows_the_rule(tidy: Tidy) -> None:
    half = {**ACCURACY, "metric": "test_accuracy_half"}
    curve(tidy, [10.0, 20.0, 30.0, 40.0, 50.0])
    assert cells_of(tidy, columns=[half], methods=["fedavg"]) == ["20.00 (1 of 3 seeds)"]
    mean = {"rule": "mean_last_n", "n": 2}
    assert cells_of(tidy, columns=[half], methods=["fedavg"], final=mean) == ["15.00 (1 of 3 seeds)"]
    last = {**half, "final": {"rule": "last"}}
    assert cells_of(tidy, columns=[last], methods=["fedavg"], final=mean) == ["20.00 (1 of 3 seeds)"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"gain_over": {"fedsam": "fedswa"}}, "unknown method of the table 'fedswa'"),
        ({"gain_over": {"fedsam": "fedavg"}, "relative_to": "fedavg"}, "exclude each other"),
        ({"in_percent": True}, "in_percent goes with gain_over"),
        ({"published": {"valeu": "std"}}, "unknown key of published numbers 'valeu'; did you mean 'value'"),
        ({"published": {"value": "mean"}}, "unknown part of published numbers 'mean'"),
        ({"metric": "lpf", "final": {"rule": "last"}}, "lpf takes no final value"),
        ({"metric": "miou"}, "unknown metric 'miou'"),
        ({"unit": 0}, "unit"),
    ],
)
def test_mistakes_in_columns_are_told(column: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        layout(columns=[{**ACCURACY, **column}])


def test_titles_of_entries_are_their_own(tmp_path: Path, quick: Experiment) -> None:
    plain = quick.methods["fedsam"].model_copy(update={"name": "fedsam"})
    methods = {**quick.methods, "fedsam_wide": plain.model_copy(update={"title": "FedSAM, ρ = 1"})}
    tidy = tidy_in(tmp_path, quick.model_copy(update={"methods": methods}))
    assert fill("t", layout(methods=["fedsam", "fedsam_wide"]), tidy).rows == ("FedSAM", "FedSAM, ρ = 1")


@pytest.mark.parametrize("identity", ["3774932184096623", "00000000000000e5"])
def test_a_hash_that_looks_like_a_number_is_text(identity: str, tidy: Tidy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunConfig, "identity", identity)
    path = tidy.path("metrics", CellKey(HARD, "fedavg"))
    pd.read_csv(path).assign(identity=identity, code=identity).to_csv(path, index=False)
    table = fill("t", layout(methods=["fedavg"]), tidy_in(tidy.results, tidy.experiment))
    assert table.entries[0][0][0].mean == 82
    assert "3 of 3 runs were made by other code than is here." in table.caption
