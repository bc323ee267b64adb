"""Quoted numbers: both papers' files show which ones they are; runs of the quoted paper stand for them."""

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedflat.analysis.planning.plan import plan
from fedflat.analysis.planning.workflow import Workflow
from fedflat.analysis.published.numbers import PublishedNumber, find, kinds, published, quoted_from
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.fairness import DEPARTS
from fedflat.analysis.tables.formats import FORMATS
from fedflat.analysis.tables.layout import TableLayout, load_table
from fedflat.analysis.tables.table import PublishedEntry, Table
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.overrides import CONFIG_KEYS
from fedflat.bench.input.errors import UserError
from tests.analysis import conftest
from tests.analysis.conftest import words


@pytest.mark.parametrize(
    ("note", "source"),
    [
        ("quoted: FedLESAM table 2", "FedLESAM table 2"),
        ("typo_suspected: FedLESAM table 2 prints 1; quoted: FedLESAM table 3", "FedLESAM table 3"),
        ("typo_suspected: FedLESAM table 2 prints 1", None),
        ("typo_suspected: quoted with a changed digit", None),
        ("", None),
    ],
)
def test_a_note_that_only_mentions_a_paper_is_no_quotation(note: str, source: str | None) -> None:
    assert quoted_from(note) == source
    assert PublishedNumber(1.0, note=note).quoted is (source is not None)


# By hand: FedTOGA's runs reach 90, 91 and 92 %, FedLESAM's the numbers that it prints and 2 points more or less.


def write(results: Path, experiment: Experiment, cell: CellAddress, values: list[float]) -> None:
    """The last rounds of a cell's runs with these accuracies."""
    runs = experiment.cell(cell.path).runs
    frame = pd.DataFrame(
        {
            "seed": [run.seed for run in runs],
            "round": [run.training.rounds for run in runs],
            **dict.fromkeys(["local_loss", "client_drift", "train_loss", "train_accuracy", "test_loss"], 0.0),
            "test_accuracy": values,
            "diverged": 0,
        }
    )
    conftest.write(results, cell, "metrics", frame, experiment=experiment)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quoted")
    requested = RequestedExperiment("fedtoga", folder)
    for file in Tables(requested).inputs("2"):
        found = requested.paths.cell_of(file)
        if found is not None:
            name, cell = found
            mean, deviation = (91.0, 1.0) if name == "fedtoga" else (print_of(cell), 2.0)
            write(folder, load_experiment(name), cell, [mean - deviation, mean, mean + deviation])
    return folder


def print_of(cell: CellAddress) -> float:
    """The number of FedLESAM's Table 2 for a cell of its experiment."""
    dataset, partition, participation, method = cell.ids
    name, _, parameter = partition.partition("-")
    active, _, clients = participation.partition("-of-")
    found = find(
        published("fedlesam"), table="2", dataset=dataset, method=method, partition=name, partition_param=parameter,
        n_clients=int(clients), active_clients=int(active),
    )  # fmt: skip
    assert found is not None
    assert found.value is not None
    return found.value


def table(results: Path, **overrides: Any) -> Table:
    return Tables(RequestedExperiment("fedtoga", results, overrides)).filled("2")


@pytest.fixture(scope="module")
def shown(results: Path) -> Table:
    return table(results)


def test_quoted_entries_show_and_judge_the_other_papers_runs(shown: Table) -> None:
    [rows], [published] = shown.entries, shown.published
    for m, method in enumerate(shown.layout.methods):
        for entry, printed in zip(rows[m], published[m], strict=True):
            assert entry.mean is not None
            assert printed.number is not None
            assert printed.fairness.is_fair, method
            if not printed.number.quoted:
                assert entry.mean == 91
            elif printed.number.doubtful:
                assert printed.verdict.why == "doubtful in print"
            else:
                assert entry.mean == pytest.approx(printed.number.value)
                assert printed.verdict.kind in ("agrees", "inconclusive")
    assert sum(printed.number.quoted for row in published for printed in row if printed.number) == 67


def test_orders_compare_numbers_of_the_same_papers_runs(shown: Table) -> None:
    [published], [summaries] = shown.published, shown.summaries
    for c, summary in enumerate(summaries):
        assert summary.order is not None
        numbers = {method: published[m][c].number for m, method in enumerate(shown.layout.methods)}
        certain = {method: one for method, one in numbers.items() if one is not None and not one.doubtful}
        wanted = {
            frozenset(pair)
            for pair in itertools.combinations(certain, 2)
            if certain[pair[0]].quoted == certain[pair[1]].quoted and certain[pair[0]].value != certain[pair[1]].value
        }
        assert {frozenset(pair[:2]) for pair in summary.order.pairs} == wanted


def test_both_papers_runs_have_their_own_noise(shown: Table) -> None:
    [published], [summaries] = shown.published, shown.summaries
    for c, summary in enumerate(summaries):
        assert summary.noise is not None
        assert summary.quoted_noise is not None
        assert summary.noise.runs.std == pytest.approx(1)
        assert summary.quoted_noise.runs.std == pytest.approx(2)
        stds = {q: [one.std for one in column_of(published, c) if one.quoted is q and one.std] for q in (True, False)}
        for noise, quoted in ((summary.noise, False), (summary.quoted_noise, True)):
            assert noise.printed is not None
            assert min(stds[quoted]) <= noise.printed.std <= max(stds[quoted])
    assert any("pooled over the methods of a column, separately for quoted numbers." in part for part in shown.foot)
    assert "s of the runs for quoted numbers" in FORMATS["md"](shown)


def column_of(published: tuple[tuple[PublishedEntry, ...], ...], c: int) -> list[PublishedNumber]:
    """The certain printed numbers of a column."""
    numbers = (row[c].number for row in published)
    return [number for number in numbers if number is not None and not number.doubtful]


def test_nothing_is_said_about_quoted_numbers_if_none_is_shown(results: Path) -> None:
    own = table(results, **{CONFIG_KEYS["methods"]: ["fedtoga", "fedspeed"]})
    assert own.quotations is not None
    assert not own.quotations.cells
    text = FORMATS["md"](own)
    assert "q quoted" not in text
    assert "Quoted numbers" not in text
    assert "Bold and underlined compare" not in text
    assert all(summary.quoted_noise is None for summary in own.summaries[0])


def test_marks_say_what_is_quoted(shown: Table) -> None:
    text = FORMATS["md"](shown)
    assert "79.52 ± 0.13q" in text
    assert "86.99 ± 0.13q" not in text
    assert "q quoted from FedLESAM table 2, and compared with runs of that paper's settings" in text
    assert "Quoted numbers are compared with quoted ones only, because the papers' settings differ." in text
    assert "Bold and underlined compare runs of both papers' settings." in words(shown.caption)
    assert "Numbers marked q are quoted from FedLESAM's Table 2" in words(shown.caption)
    assert "in runs for quoted numbers (experiment fedlesam): FedAdam (server_lr 0.1); FedDyn" in words(shown.caption)
    assert "server_lr 0.01" not in words(shown.caption), "all of FedAdam's numbers are quoted"
    rows = pd.read_csv(pd.io.common.StringIO(FORMATS["csv"](shown)))
    is_quoted = rows["published_note"].map(lambda note: isinstance(note, str) and "quoted" in kinds(note))
    assert (rows["source"] == is_quoted.map({True: "run of fedlesam", False: "run"})).all()


def test_values_for_one_experiment_do_not_change_the_quoted_runs(results: Path) -> None:
    """A rate of the table's own experiment: its runs depart, those of the other paper do not."""
    requested = RequestedExperiment("fedtoga", results, {"training.lr": 0.2})
    assert requested.of_paper("fedlesam").experiment.cells()["cifar10/dirichlet-0.1/10-of-100/fedavg"].runs == (
        load_experiment("fedlesam").cell("cifar10/dirichlet-0.1/10-of-100/fedavg").runs
    )
    with pytest.raises(UserError, match=r"/fedtoga/.* lists seed 0 of another configuration"):
        Tables(requested).filled("2")


def test_both_transcripts_judge_their_own_runs(tmp_path: Path) -> None:
    """With other rounds, both depart, each from its own paper."""
    requested = RequestedExperiment("fedtoga", tmp_path, {"training.rounds": 100})
    cells = {
        "fedtoga": "cifar10_resnet18/dirichlet-0.6/10-of-100/fedtoga",
        "fedlesam": "cifar10/dirichlet-0.6/10-of-100/fedavg",
    }
    for name, path in cells.items():
        write(tmp_path, requested.of_paper(name).experiment, CellAddress.of(path), [80.0, 80.1, 80.2])
    [published] = Tables(requested).filled("2").published
    own, quoted = published[-1][0], published[0][0]
    assert own.verdict.why == quoted.verdict.why == DEPARTS
    assert [one.place for one in own.fairness.departures] == ["Appendix B.2 (line 449)"]
    assert [one.place for one in quoted.fairness.departures] == ["Section 6.1 (line 295)"]


def test_plans_and_jobs_need_the_other_papers_runs() -> None:
    planned = plan(["fedtoga_table_2"], Path("none"), {}, lambda _: 1.0)
    assert {part: cost.runs for part, cost in planned.items()} == {
        "fedtoga: cifar10_resnet18": 3 * (14 * 4 - 31),
        "fedtoga: cifar10_resnet18_200": 3 * (14 * 4 - 36),
        "fedlesam: cifar10": 3 * 67,
    }
    both = plan(["fedtoga_table_2", "fedlesam_table_2"], Path("none"), {}, lambda _: 1.0)
    assert both["fedlesam: cifar10"].runs == 3 * 12 * 8, "shared runs are counted once"
    flow = Workflow.of({"scale": "smoke", "seeds": [0], "experiments": ["fedtoga"]})
    files = [str(file) for file in flow.targets["fedtoga_table_2"](None)]
    assert files == [str(file) for file in flow.report("fedtoga_smoke").table("2")]
    wildcards = type("Wildcards", (), {"experiment": "fedtoga_smoke", "name": "2"})
    inputs = [str(file) for file in flow.table_inputs(wildcards)]
    assert sum("experiments/fedlesam_smoke/" in file for file in inputs) == 67
    identities = flow.identities_shown(wildcards, inputs).split()
    assert len(identities) == 112


def test_wrong_parts_are_reported() -> None:
    layout = load_table("fedtoga", "2")
    requested = RequestedExperiment("fedtoga", Path("none"))

    def refused(parts: dict[str, str], message: str, of_table: str = "2") -> None:
        changed = TableLayout.parse(
            {**layout.model_dump(), "quoted": {"paper": "fedlesam", "table": of_table, "parts": parts}}
        )
        with pytest.raises(UserError, match=message):
            Tables(requested)._quotations(changed)

    refused({"cifar10_resnet18": "cifar01"}, "unknown part of experiment fedlesam in quoted 'cifar01'; did you mean")
    refused({"cifar10_resnet18": "cifar10"}, "unknown part in quoted 'cifar10_resnet18_200'")
    refused(
        {"cifar10_resnet18": "cifar10", "cifar10_resnet18_200": "cifar10"},
        "a number has the note 'quoted: FedLESAM table 2', but the layout names FedLESAM table 3",
        of_table="3",
    )
    with pytest.raises(UserError, match="quoted needs columns of metrics"):
        TableLayout.parse({**load_table("fedtoga", "8").model_dump(), "quoted": layout.model_dump()["quoted"]})
