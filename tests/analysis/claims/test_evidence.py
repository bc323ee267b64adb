"""Runs as evidence: which runs decide a claim, and how the page shows it."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.claims.evidence import Printed, RunEvidence
from fedflat.analysis.claims.page import HEADER, LEGEND, judged, page, stated, summary, text
from fedflat.analysis.claims.schema import Claim, papers_with_claims
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.train import train_cell
from tests.analysis import conftest
from tests.analysis.conftest import metrics
from tests.analysis.papers import printed, requested
from tests.tiers import case

DIGITS = """
name: fedgf_digits
extends: fedgf
description: FedGF's claims on another data set.
evaluation: {local_models: null}
methods: {fedavg: {}, fedsam: {}, fedasam: {}, mofedsam: {}, fedsmoo: {}, fedgf: {}}
parts:
  digits:
    dataset: digits
    model: cnn_gn
    training: {rounds: 4, augmentation: null}
    grid:
      partition: [{name: lda, alpha: 0, clients: 100}, {name: lda, alpha: 10, clients: 100}]
      participation: [{active: 5}]
"""
BEST = "resnet_accuracy_best_alpha10"
"""FedGF is more accurate than five methods with alpha 10."""


@pytest.fixture
def runs(tmp_path: Path) -> RunEvidence:
    file = tmp_path / "digits.yaml"
    file.write_text(DIGITS, encoding="utf-8")
    return RunEvidence(RequestedExperiment(str(file), tmp_path / "results"))


def claim(runs: RunEvidence, name: str) -> Claim:
    return next(one for one in runs.paper.claims if one.id == name)


def write(runs: RunEvidence, method: str, file: str, frame: pd.DataFrame, setting: str = "digits/lda-10") -> None:
    """A tidy file as the experiment's runs would have it."""
    requested = runs.requested
    cell, analysis = CellAddress.of(f"{setting}/5-of-100/{method}"), requested.analyses.get(file)
    conftest.write(requested.results, cell, file, frame, experiment=requested.experiment, analysis=analysis)


def write_accuracies(runs: RunEvidence, best: list[float], **others: list[float]) -> None:
    finals = {rival: [80.0, 81.0, 82.0] for rival in ("fedavg", "fedsam", "fedasam", "mofedsam", "fedsmoo")}
    for method, values in ({**finals, "fedgf": best} | others).items():
        write(runs, method, "metrics", metrics(values[: len(best)], rounds=400, every=1))


def test_another_data_set_stands_for_the_papers(runs):
    write_accuracies(runs, [90.0, 91.2, 91.8])
    found = runs.finding(claim(runs, BEST))
    assert runs.kind == "other data"
    assert (found.outcome, found.seeds) == ("holds", 3)
    mean_of_last_hundred = (350.5 / 400) * 10  # accuracies of the runs rise linearly
    assert found.value == pytest.approx(mean_of_last_hundred)


PART = """
name: fedgf_part
extends: fedgf
training: {batch_size: BATCH}
grid: {partition: [{name: lda, alpha: 0, clients: 100}], participation: [{active: 5}], seeds: [7]}
methods: {fedavg: {}, fedgf: {}}
parts: {cifar10: {dataset: {name: cifar10, normalisation: official_fedgf}, evaluation: EVALUATION}}
"""
PAPERS = "{every: 1, last: null, snapshot_every: 10000}"


@pytest.mark.parametrize(
    ("batch", "evaluation", "scale", "kind"),
    [
        (64, PAPERS, "paper", "true scale"),
        (32, PAPERS, "paper", "other settings"),
        (64, "{every: 10, last: 100}", "paper", "true scale"),
        (64, PAPERS, "smoke", "smoke scale"),
    ],
)
def test_parts_of_the_papers_experiment_count_as_it(batch, evaluation, scale, kind, tmp_path):
    file = tmp_path / "part.yaml"
    file.write_text(PART.replace("BATCH", str(batch)).replace("EVALUATION", evaluation), encoding="utf-8")
    overrides = {} if scale == "paper" else {"scale": scale}
    runs = RunEvidence(RequestedExperiment(str(file), tmp_path / "results", overrides))
    assert runs.kind == kind
    assert runs.cells(claim(runs, "gain_cifar10_alpha0"))
    assert not runs.cells(claim(runs, "gain_cifar100_alpha0")), "only the claims about these parts are decided"
    assert not runs.cells(claim(runs, BEST))


@pytest.mark.parametrize(
    ("evaluation", "enough"), [("{every: 10, last: 100}", True), ("{every: 10, last: null}", False)]
)
def test_claims_need_the_evaluations_of_the_paper(evaluation, enough, tmp_path):
    """Accuracies are means of the last 100 evaluations; the first round with an accuracy depends on all of them."""
    file = tmp_path / "part.yaml"
    file.write_text(PART.replace("BATCH", "64").replace("EVALUATION", evaluation), encoding="utf-8")
    runs = RunEvidence(RequestedExperiment(str(file), tmp_path / "results"))
    assert bool(runs.cells(claim(runs, "gain_cifar10_alpha0"))) is enough
    assert not runs.cells(claim(runs, "transmissions_factor_cifar10_alpha0"))
    assert runs.cells(claim(runs, "c_one_alpha0")), "c is known of each round"


def test_the_kept_experiment_counts_as_the_papers(tmp_path):
    runs = RunEvidence(RequestedExperiment("fedgf_cifar10", tmp_path / "results"))
    assert runs.kind == "true scale"
    assert runs.cells(claim(runs, "gain_cifar10_alpha0"))


def test_a_data_set_with_missing_images_is_other_data(tmp_path):
    file = tmp_path / "part.yaml"
    file.write_text(PART.replace("BATCH", "64").replace("EVALUATION", PAPERS), encoding="utf-8")
    for missing, kind in ((0, "true scale"), (15_328, "other data")):
        runs = RunEvidence(RequestedExperiment(str(file), tmp_path / "results"))
        frame = metrics([90.0], rounds=400, every=1).assign(seed=7, missing_images=missing)
        write(runs, "fedgf", "metrics", frame, "cifar10/lda-0")
        assert runs.kind == kind


def test_other_numbers_of_clients_stand_for_the_papers(tmp_path):
    overrides = {"grid.participation": [{"active": 7}]}
    runs = RunEvidence(RequestedExperiment("fedgf", tmp_path / "results", overrides))
    assert runs.kind == "other settings"
    assert {cell.setting.participation for cell in runs.cells(claim(runs, BEST))} == {"7-of-100"}


def test_one_method_that_is_clearly_better_refutes_the_claim(runs):
    write_accuracies(runs, [80.0, 81.0, 82.0], fedsmoo=[90.0, 91.1, 92.0])
    found = runs.finding(claim(runs, BEST))
    assert found.outcome == "fails"
    assert found.contrast.name == "fedgf − fedsmoo, digits/lda-10/5-of-100"


@pytest.mark.parametrize("best", [[99.0], [90.0, 70.0, 85.0]], ids=["one seed", "differences of both signs"])
def test_too_little_evidence_is_undecided(runs, best):
    write_accuracies(runs, best)
    assert runs.finding(claim(runs, BEST)).outcome == "undecided"


def test_a_diverged_run_leaves_the_claim_undecided(runs):
    write_accuracies(runs, [90.0, 91.0, 92.0])
    write(runs, "fedsam", "metrics", metrics([80, 81, 82], rounds=400, every=1, diverged={1: 7}))
    assert runs.finding(claim(runs, BEST)).outcome == "undecided"


def test_missing_cells_leave_the_claim_undecided(runs):
    for method, value in {"fedgf": 90.0, "fedavg": 80.0}.items():
        write(runs, method, "metrics", metrics([value, value + 1], rounds=400, every=1))
    found = runs.finding(claim(runs, BEST))
    assert (found.outcome, found.contrast.name) == ("undecided", "fedgf − fedavg, digits/lda-10/5-of-100")


def test_counts_are_decided_by_one_seed(runs):
    for method, count in {"fedavg": 2.0, "fedsam": 2.0}.items():
        for setting in ("digits/lda-0", "digits/lda-10"):
            frame = pd.DataFrame(
                {"seed": [0], "metric": ["transmissions_per_round"], "value": [count], "definition": ""}
            )
            write(runs, method, "cost", frame, setting)
    assert runs.finding(claim(runs, "transmissions_fedavg_fedsam")).outcome == "holds"


REFUTED = {
    "fedlesam": {"variants_memory_as_fedsmoo", "variants_communication_as_fedsmoo"},
    "fedtoga": {"no_additional_storage"},
}
"""Claims that counts refute: FedLESAM-D receives a model less than FedSMOO, FedTOGA stores one more than FedSAM."""


@pytest.mark.parametrize("paper", REFUTED)
def test_the_part_counts_decides_its_claims_by_one_seed(paper: str, tmp_path: Path) -> None:
    runs = RunEvidence(RequestedExperiment(paper, tmp_path))
    requested, device = runs.requested, prepare_device("cpu", 1)
    for path, cell in requested.experiment.cells().items():
        if cell.address.setting.dataset == "counts":
            train_cell(paper, cell, tmp_path, device, silent)
            conftest.analysed(requested.paths, paper, path, "cost", requested.analyses["cost"])
    found = {one.id: runs.finding(one) for one in runs.paper.claims if one.select.dataset == ("counts",)}
    assert {one.outcome for one in found.values()} == {"holds", "fails"}
    assert {name for name, one in found.items() if one.outcome == "fails"} == REFUTED[paper]


def test_the_coefficient_c_is_read_from_the_metrics(runs):
    for setting, c in {"digits/lda-10": [0.1, 0.12, 0.09], "digits/lda-0": [0.8, 0.81, 0.83]}.items():
        frame = metrics([90, 91, 92], rounds=400, every=1)
        write(runs, "fedgf", "metrics", frame.assign(c=[c[seed] for seed in frame["seed"]]), setting)
    found = runs.finding(claim(runs, "c_grows_with_heterogeneity_cifar10"))
    assert (found.outcome, found.value) == ("holds", pytest.approx(0.71))


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        ({}, "true scale"),
        ({"grid.seeds": [0]}, "true scale"),
        ({"chosen": ["fedgf"]}, "true scale"),
        ({"scale": "smoke"}, "smoke scale"),
        ({"scale": "smoke", "training.rounds": 3}, "smoke scale"),
        ({"training.rounds": 3}, "other settings"),
        ({"training.precision": "bf16"}, "true scale"),
        ({"report": "best"}, "other settings"),
    ],
)
def test_kinds_of_runs(overrides, kind):
    assert RunEvidence(RequestedExperiment("fedgf", Path("results"), overrides)).kind == kind


def test_runs_and_print_are_never_mixed(runs):
    """Without runs nothing is measured, whatever is printed."""
    rows = judged(Printed("fedgf"), runs)
    assert all(row.measured is None for row in rows)
    assert any(row.printed is not None for row in rows)


def test_columns_of_another_reading_are_no_print():
    """Table 1 of FedGF compares runs with alpha 0.05 with the numbers printed for 0.005, as another reading."""
    fields = {"id": "best", "place": "Table 1", "about": "FedGF is best", "metric": "test_accuracy"}
    among = {"highest": {"method": "fedgf", "among": ["fedavg", "fedgf"]}}
    own, read = (
        Claim.parse({**fields, **among, "select": {"dataset": [part], "partition": [partition]}})
        for part, partition in (("cifar10", "lda-0.005"), ("cifar10_alpha0.05", "lda-0.05"))
    )
    assert Printed("fedgf").finding(own) is not None
    assert read.statement(list(load_experiment("fedgf").settings)) is not None
    assert Printed("fedgf").finding(read) is None


@pytest.mark.parametrize("paper", papers_with_claims())
def test_a_printed_number_is_no_multiple_of_another(paper):
    """Not even where a table's column of multiples is computed from printed seconds."""
    plain, multiples = printed(paper)._numbers
    assert plain
    for key, of_tables in multiples.items():
        for table, number in of_tables.items():
            assert number != plain.get(key, {}).get(table), (key, table)


def test_the_table_and_the_page_show_every_claim(runs):
    write_accuracies(runs, [90.0, 91.2, 91.8])
    rows = judged(Printed("fedgf"), runs)
    shown, written = text(rows, runs), page(rows, runs)
    lines = shown.splitlines()
    assert lines[0].split("  ")[0] == HEADER[0]
    below = shown.split("\n\n")[1:]
    assert [" ".join(part.splitlines()) for part in below] == [LEGEND, summary(rows, runs)]
    assert LEGEND in written
    outcomes = [row.measured.outcome for row in rows if row.measured]
    held, failed = outcomes.count("holds"), outcomes.count("fails")
    assert f"Runs (other data): {held} hold, {failed} fail" in summary(rows, runs)
    for row in rows:
        assert row.claim.id in shown
        assert row.claim.about in written
    best = next(number for number, line in enumerate(lines) if line.startswith(BEST))
    assert "  8.762  " in lines[best]
    assert lines[best].endswith("holds")
    assert lines[best + 2].startswith("  fedgf − fed")
    assert "8.762 (fedgf − fed" in written
    for one in runs.paper.not_decided:
        assert one.about in written


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gain_cifar10_alpha0", "test_accuracy: fedgf > 10 methods by ≥ 4.2, ≤ 5.3"),
        ("transmissions_factor_cifar10_alpha0", "transmissions_to_target of fedavg: fedgf < fedsmoo by a factor 2.40"),
        ("mofedsam_drop_cifar100_alpha0", "test_accuracy: mofedsam falls 20-of-100 → 5-of-100 by 12.24"),
        ("fedgf_second_discrepancy_cifar100_alpha0", "flatness_discrepancy: fedgf among the 2 lowest of 6"),
        ("resnet_lead_shrinks_with_alpha", "test_accuracy: fedgf − 5 methods falls lda-0 → lda-10"),
        ("transmissions_fedgf", "transmissions_per_round: fedgf 3"),
    ],
)
def test_statements_in_signs(runs, name, said):
    assert stated(claim(runs, name)) == said


@pytest.mark.parametrize("paper", [case(paper, quick=not place) for place, paper in enumerate(papers_with_claims())])
def test_the_table_fits_a_terminal(paper):
    """As if runs had given the printed numbers, with intervals."""
    runs = RunEvidence(requested(paper))
    rows = judged(printed(paper), runs)
    rows = [
        replace(one, measured=one.printed and replace(one.printed, interval=(-12345.6, 0.00123456))) for one in rows
    ]
    assert max(map(len, text(rows, runs).splitlines())) <= 120


@pytest.mark.parametrize("paper", papers_with_claims())
def test_the_claims_of_a_paper_can_be_computed(paper):
    """Each quantity is one that the experiment's analyses compute in all cells of the claim, with the same target."""
    runs = RunEvidence(requested(paper))
    settings = list(runs.requested.experiment.settings)
    for one in runs.paper.claims:
        assert set(runs.cells(one)) == set(one.statement(settings).cells), one.id
        if one.target is not None:
            runs.requested.analyses[one.column.file].check_target(one.target, smoothed=one.smoothed)


def test_an_experiment_without_a_paper_has_no_claims():
    with pytest.raises(UserError, match="unknown paper with claims 'quick'"):
        RunEvidence(RequestedExperiment("quick", Path("results"))).paper  # noqa: B018
