"""The whole study: what it finds in runs whose order is known, what it leaves out, and the files that it writes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from fedflat.analysis.comparison.study.measures import fitted
from fedflat.analysis.comparison.study.source import StudySource
from fedflat.analysis.comparison.study.study import EVERY, FITTED, POOLED, Study
from fedflat.analysis.comparison.study.tables import tables
from fedflat.analysis.comparison.study.words import words
from fedflat.analysis.comparison.study.write import write
from fedflat.bench.input.errors import UserError
from tests.analysis.comparison.study_frames import study_runs
from tests.places import ROOT


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.of(study_runs(), "the runs", least=80.0)


@pytest.fixture(scope="module")
def folder(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    assert write(study, folder, 3.25) == folder / "study.md"
    return folder


def tau(study: Study, measure: str, level: str, **values: str) -> pd.Series:
    chosen = {"runs": EVERY, "result": "test_accuracy", "setting": POOLED, "given": ""} | values
    [(_, row)] = study.rows(study.correlations, measure=measure, level=level, **chosen).iterrows()
    return row


def test_it_finds_the_order_of_methods_and_no_order_of_seeds(study: Study) -> None:
    flat = tau(study, "lambda_max", "between")
    assert flat["high"] < -0.9 <= flat["high"] + 0.1
    within = tau(study, "lambda_max", "within")
    assert within["low"] < 0 < within["high"]
    random = tau(study, "trace", "between")
    assert random["low"] < 0 < random["high"]
    assert tau(study, "oracle", "all")["tau"] == pytest.approx(1)
    noisy = [tau(study, name, "within")["tau"] for name in ("oracle", "oracle_1", "oracle_5")]
    assert noisy == sorted(noisy, reverse=True)


def test_random_numbers_say_less_than_a_measure_of_the_order(study: Study) -> None:
    rows = study.rows(study.information, runs=EVERY, result="test_accuracy", axis="K").set_index("measure")["value"]
    assert rows["oracle"] == pytest.approx(1)
    assert rows["lambda_max"] > 3 * rows["random"]
    assert rows["gradients"] < rows["lambda_max"]


def test_the_answer_in_words_names_what_intervals_show(study: Study) -> None:
    """The sign of τ has opposite meanings for accuracies and for gaps."""
    sentences = list(words(study))
    assert sentences[0] == (
        "Test accuracy, between methods: the training loss alone has τ −0.02; stronger: λ_max (−1.00), trace of the "
        "Hessian (−0.12)."
    )
    assert sentences[1] == (
        "Test accuracy, between methods: flatter models have higher test accuracies by λ_max (−1.00); no relation is "
        "shown by trace of the Hessian (−0.12)."
    )
    negative = study_runs().assign(test_accuracy=lambda runs: -runs["test_accuracy"])
    turned = list(words(Study.of(negative, "the runs", least=80.0)))
    assert "sharper models have higher test accuracies by λ_max (+1.00)" in turned[1]
    gaps = study_runs().assign(generalisation_gap=lambda runs: -runs["test_accuracy"])
    found = words(Study.of(gaps, "the runs", least=80.0))
    of_gap, direction, *_ = (line for line in found if line.startswith("Generalisation gap"))
    assert "stronger: λ_max (+1.00)" in of_gap
    assert "flatter models have smaller generalisation gaps by λ_max (+1.00)" in direction
    blind = study_runs().assign(train_loss=lambda runs: -runs["test_accuracy"])
    [of_loss, *_] = words(Study.of(blind, "the runs", least=80.0))
    assert of_loss.endswith("the training loss alone has τ −1.00; no flatness measure orders the methods as well.")
    few = list(words(Study.of(study_runs(seeds=4), "the runs", least=80.0)))
    assert "Test accuracy, within methods: too few methods or seeds for intervals; τ: " in few[3]


def test_methods_that_do_not_fit_are_also_left_out(study: Study) -> None:
    """All seeds of a method are kept, or none; a diverged run counts as not fitted."""
    runs = study_runs()
    kept = fitted(runs, 80.0)
    assert 0 < len(kept) < len(runs)
    assert set(kept.groupby(["partition", "participation", "method"]).size()) == {8}
    assert (
        kept["train_accuracy"].groupby([kept["partition"], kept["participation"], kept["method"]]).mean() >= 80
    ).all()
    runs.loc[0, ["train_accuracy", "test_accuracy"]] = np.nan
    key = ["partition", "participation", "method"]
    assert not fitted(runs, 0.0)[key].eq(runs.loc[0, key]).all(axis=1).any()
    assert study.has_fitted
    assert set(study.correlations["runs"]) == {EVERY, FITTED}
    assert (study.counts["fitted"] < study.counts["methods"]).any()


def test_a_diverged_run_has_no_value_and_is_counted() -> None:
    runs = study_runs(seeds=4)
    lost = runs["method"].eq("mine") & runs["seed"].eq(0)
    runs.loc[lost, ["test_accuracy", "train_accuracy", "generalisation_gap", "train_loss", "lambda_max", "trace"]] = (
        np.nan
    )
    runs.loc[lost, "outcome"] = "diverged"
    found = Study.of(runs, "the runs", least=0.0)
    assert list(found.counts["diverged"]) == [1] * 4
    assert list(found.counts["fitted"]) == [7] * 4
    assert np.isfinite(tau(found, "lambda_max", "all")["tau"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"lambda_max": np.nan, "trace": np.nan},
            "no flatness measure of two or more methods in the runs; compute an analysis",
        ),
        ({"method": ["fedavg", "fedsam"] * 8}, r"flatness measures of 2 methods in the runs \(allowed: at least 3\)"),
    ],
)
def test_too_little_is_one_line(change: dict[str, object], message: str) -> None:
    runs = study_runs(seeds=1).head(16).assign(**change)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        Study.of(runs, "the runs", 90.0)
    with pytest.raises(UserError, match=r"--fitted 101 \(allowed: .* from 0 to 100 %\)"):
        Study.of(study_runs(seeds=1), "the runs", 101.0)


def test_the_report_has_all_tables_and_figures(study: Study, folder: Path) -> None:
    page = (folder / "study.md").read_text(encoding="utf-8")
    latex = (folder / "study.tex").read_text(encoding="utf-8")
    for table in tables(study):
        assert table.caption.title in page
        assert rf"\label{{tab:study-{table.name}}}" in latex
        written = pd.read_csv(folder / "tables" / f"{table.name}.csv")
        assert len(written) == len(table.frame) > 0
    images = sorted(file.stem for file in (folder / "figures").glob("*.png"))
    assert images == [
        "correlation", "correlation_fitted", "granulated", "information",
        "scatter_generalisation_gap", "scatter_test_accuracy",
    ]  # fmt: skip
    for name in images:
        assert f"figures/{name}.png" in page
        assert imread(folder / "figures" / f"{name}.png").std() > 0.02


def test_a_table_shows_the_numbers_of_its_frame(study: Study) -> None:
    table = next(found for found in tables(study) if found.name == "correlation_test_accuracy")
    row = tau(study, "lambda_max", "between")
    cell = dict(zip(table.header, table.rows[0], strict=True))["between methods"]
    assert table.rows[0][0] == "λ_max"
    assert cell == f"{row['tau']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]".replace("-", "−")


def test_wrong_requests_are_one_line(tmp_path: Path) -> None:
    from fedflat.cli.app import app

    for command, message in {
        ("study", "quik"): "quik",
        ("study", "quick", "--set", "training.rounds=3"): "--set",
        ("study", "mine/experiments.yaml"): "for its runs, add --runs",
        ("study", "quick", "--runs", "--baselines", str(tmp_path)): "exclude each other",
        ("study", "quick", "--runs", "--results", str(tmp_path)): "no finished runs of quick",
    }.items():
        result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
        assert result.exit_code != 0
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)
        assert not (tmp_path / "out").exists()


def test_configurations_of_stored_runs_name_their_components(tmp_path: Path) -> None:
    """The real table of runs has the column that the axes are read from."""
    [first, *_] = StudySource("quick", tmp_path, {}, baselines=ROOT / "results" / "baselines" / "quick").runs()[
        "configuration"
    ]
    assert json.loads(first)["method"]["name"] == "fedavg"
