"""Which table entries can be judged: planted departures are seen in each paper; what a paper leaves open is free."""

import csv
import io
import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.published.numbers import papers
from fedflat.analysis.published.transcript import silent_differences
from fedflat.analysis.tables import reproduction
from fedflat.analysis.tables.fairness import DEPARTS, FAIR, Fairness, fairness
from fedflat.analysis.tables.layout import Column, TableBlock, load_table
from fedflat.analysis.tables.reproduction import with_published
from fedflat.analysis.tables.table import Entry, PublishedEntry, Table, fill
from fedflat.analysis.tables.tidy_csv import tidy_csv
from fedflat.analysis.verdicts.verdict import counts
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, tidy_in, write
from tests.analysis.papers import requested, tables
from tests.analysis.tables.tables_by_hand import ACCURACY
from tests.analysis.tables.tables_by_hand import layout as table_layout
from tests.tiers import case

pytestmark = pytest.mark.long

REPRODUCED = Entry(50.0, 1.0, 3, by_seed=((0, 49.0), (1, 50.0), (2, 51.0)))


def judged(paper: str, name: str, experiment: Experiment) -> Table:
    """A table of a paper, judged as runs of an experiment; all entries have values, where the experiment has cells."""
    layout = tables(paper).layout(name)

    def entry(block: TableBlock, method: str, column: Column) -> Entry:
        can_run = layout.has(block, method, column, experiment)
        return REPRODUCED if can_run else Entry()

    entries = tuple(
        tuple(tuple(entry(block, method, column) for column in layout.columns) for method in layout.methods)
        for block in layout.blocks
    )
    table = Table(
        name, layout, layout.methods, entries, lambda: Caption("T", ""), quotations=tables(paper)._quotations(layout)
    )
    return with_published(table, experiment, paper)


def printed_entries(table: Table) -> list[tuple[str, Entry, PublishedEntry]]:
    """All entries with a published number: method, entry, and its published counterpart."""
    return [
        (method, entry, printed)
        for block, block_printed in zip(table.entries, table.published, strict=True)
        for method, row, row_printed in zip(table.layout.methods, block, block_printed, strict=True)
        for entry, printed in zip(row, row_printed, strict=True)
        if printed.number is not None
    ]


PAPERS = [case(paper, quick=place < 2) for place, paper in enumerate(papers())]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_papers_own_experiments_are_judged(paper: str) -> None:
    """No setting departs from what the paper states, and each column has the evaluations that it needs."""
    experiment = requested(paper).experiment
    names = [name for name in layout_names(paper, "tables") if load_table(paper, name).published]
    found = [(name, *one) for name in names for one in printed_entries(judged(paper, name, experiment))]
    assert any(entry.mean is not None for _, _, entry, _ in found)
    assert {(name, method, printed.fairness) for name, method, _, printed in found if printed.fairness != FAIR} == set()


def test_runs_on_an_incomplete_data_set_are_not_judged() -> None:
    layout = tables("fedgf").layout("2")
    columns = (replace(REPRODUCED, incomplete=True), *[REPRODUCED] * (len(layout.columns) - 1))
    entries = tuple(tuple(columns for _ in layout.methods) for _ in layout.blocks)
    table = with_published(Table("2", layout, layout.methods, entries, lambda: Caption("T", "")), FEDGF, "fedgf")
    verdicts = [[entry.verdict for entry in row if entry.number is not None] for row in table.published[0]]
    for first, *others in filter(None, verdicts):
        assert (first.kind, first.why) == ("not judged", "incomplete data set")
        assert all(other.why != "incomplete data set" for other in others)
    assert table.summaries[0][0].noise is None, "their noise decides nothing"
    assert table.summaries[0][1].noise is not None


def test_entries_know_from_the_metrics_which_runs_lacked_images(tmp_path: Path, quick: Experiment) -> None:
    """One run of a cell is enough; a cell of a version that did not record it counts as complete."""
    frames = {
        "fedavg": metrics([80, 82, 84]),
        "fedsam": metrics([80, 82, 84]).assign(missing_images=[9963] * 4 + [None] * 8),
        "feddyn": metrics([80, 82, 84]).assign(missing_images=0),
    }
    for method, frame in frames.items():
        write(tmp_path, CellAddress(HARD, method), "metrics", frame)
    table = fill("t", table_layout(methods=list(frames), columns=[ACCURACY]), tidy_in(tmp_path, quick))
    assert [row[0].incomplete for row in table.entries[0]] == [False, True, False]


def test_cyclic_rates_without_averaging_are_compared_with_their_printed_numbers() -> None:
    table = judged("fedsam_caldarola", "14", requested("fedsam_caldarola").experiment)
    cyclic = [entry for method, entry, _ in printed_entries(table) if method.endswith(".cyclic")]
    assert len(cyclic) == 52
    assert all(entry.mean is not None for entry in cyclic)


PLANTED = [
    ("fedgf", "1", r"batch_size: 64", "batch_size: 100", "training.batch_size 100, printed 64 (Appendix C.2)"),
    ("fedlesam", "2", r"weight_decay: 0.001", "weight_decay: 0.01", "training.weight_decay 0.01, printed 0.001"),
    ("fedsam_qu", "4", r"share: 0.2", "share: 0.1", "dataset.share 0.1, printed 0.2 (Appendix E.1)"),
    ("fedtoga", "1", r"server_lr: 0.01", "server_lr: 0.1", "training.server_lr 0.1, printed 0.01 (Appendix B.2)"),
    (
        "fedsam_caldarola",
        "3",
        r"batch_size: 20, local_momentum: 0.9}",
        "batch_size: 20}",
        "training.local_momentum 0, printed 0.9 (Table 10)",
    ),
]
"""Paper, table, what stands in its experiment, what is planted there, and what the table's foot says."""


@pytest.mark.parametrize(("paper", "name", "stands", "planted", "text"), PLANTED, ids=[case[0] for case in PLANTED])
def test_a_departure_in_the_papers_own_experiment_is_seen(
    paper: str, name: str, stands: str, planted: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiment is not its own judge: the departure stands in what is judged and in what it was compared with."""
    original = (PAPER_TABLES / paper / "experiments.yaml").read_text(encoding="utf-8")
    changed, count = re.subn(stands, planted, original)
    assert count
    named = re.sub(rf"^name: {paper}$", "name: planted", changed, flags=re.MULTILINE)
    (file := tmp_path / "experiments.yaml").write_text(named, encoding="utf-8")
    experiment = load_experiment(str(file))
    monkeypatch.setattr(reproduction, "own_experiment", lambda _: experiment)
    table = judged(paper, name, experiment)
    departing = [entry for block in table.published for row in block for entry in row if entry.fairness.departures]
    assert departing
    assert all(entry.verdict.kind == "not judged" for entry in departing if entry.number is not None)
    assert all(entry.verdict.why == DEPARTS for entry in departing if entry.number is not None)
    [paragraph] = [part for part in table.foot if part.startswith("Departs from the paper: ")]
    assert text in paragraph


def test_the_foot_of_counts_does_not_say_that_the_paper_is_silent_where_it_is_not() -> None:
    """FedGF states the batch size, and says nothing about clipping."""
    planted = load_experiment("fedgf", {"training.batch_size": 100, "training.clip": 5})
    table = judged("fedgf", "3", planted)
    assert all(printed.fairness.is_fair for _, _, printed in printed_entries(table))
    [silent] = [part for part in table.foot if part.startswith("Other choices where the paper says nothing")]
    [stated] = [part for part in table.foot if part.startswith("Other values than the paper's, on which counts")]
    assert "training.batch_size 100 instead of 64" in stated
    assert "training.clip 5 instead of" in silent
    assert ("clip" in stated, "batch_size" in silent) == (False, False)


def test_counts_of_another_number_of_rounds_are_not_judged() -> None:
    table = judged("fedgf", "3", load_experiment("fedgf", {"training.rounds": 12}))
    assert {printed.fairness.why for _, _, printed in printed_entries(table)} == {DEPARTS}


CELL = CellAddress.of("cifar100/lda-0/5-of-100/fedgf")
FEDGF = requested("fedgf").experiment
LAST, LAST_100 = FinalValue(), FinalValue(rule="mean_last_n", n=100)
TARGET = {"metric": "rounds_to_target", "target": 30}
AT = {"dataset": "cifar100", "partition": "lda-0", "participation": "5-of-100"}

READ = [(name, CellAddress.of(path)) for name, path in (
    ("1", "cifar100_alpha0.5/lda-0.5/20-of-100/fedavg"), ("9", "cifar100_resnet18_alpha0.5/lda-0.5/5-of-100/fedgf")
)]  # fmt: skip


@pytest.mark.parametrize(("name", "cell"), READ, ids=[name for name, _ in READ])
def test_a_reading_is_free_only_in_the_keys_that_it_names(name: str, cell: CellAddress) -> None:
    layout = tables("fedgf").layout(name)
    column = next(one for one in layout.columns if one.reading is not None)
    planted = load_experiment("fedgf", {"training.batch_size": 100})

    def departing(experiment: Experiment, shown: Column) -> set[str]:
        found = fairness("fedgf", [cell], experiment, FEDGF, shown, LAST_100)
        assert found.why == (DEPARTS if found.departures else "")
        return {one.key for one in found.departures}

    assert departing(FEDGF, column) == set()
    assert departing(FEDGF, column.model_copy(update={"reading": None})) == {"partition.alpha"}
    assert departing(planted, column) == {"training.batch_size"}
    assert departing(planted, column.model_copy(update={"reading": None})) == {"partition.alpha", "training.batch_size"}


def test_a_key_of_a_reading_has_the_value_of_the_papers_experiment() -> None:
    layout = tables("fedgf").layout("1")
    column, reading = next((one, one.reading) for one in layout.columns if one.reading is not None)
    departs = reading.model_copy(update={"departs": ("partition.alpha", "training.batch_size")})
    cell, shown = READ[0][1], column.model_copy(update={"reading": departs})
    planted = load_experiment("fedgf", {"training.batch_size": 100})
    found = fairness("fedgf", [cell], planted, FEDGF, shown, LAST_100)
    assert [one.key for one in found.departures] == ["training.batch_size"]
    assert fairness("fedgf", [cell], planted, planted, shown, LAST_100).is_fair


@pytest.mark.parametrize(
    ("paper", "name", "group", "of_runs"),
    [
        ("fedgf", "1", "α = 0.05 or 0.5 instead", "Their runs depart from the paper on purpose (partition.alpha)."),
        (
            "fedsam_qu",
            "5",
            "Dirichlet 0.6, 3×3 stem",
            "Their runs have another value where the paper says nothing (model.stem).",
        ),
    ],
)
def test_readings_are_counted_apart_from_the_papers_own_setting(
    paper: str, name: str, group: str, of_runs: str
) -> None:
    """The same table without these columns has the same counts, and the foot of the whole table has one line more."""
    experiment = requested(paper).experiment
    table = judged(paper, name, experiment)
    own = [c for c, column in enumerate(table.layout.columns) if column.reading is None]
    layout = table.layout.model_copy(update={"columns": tuple(table.layout.columns[c] for c in own)})
    entries = tuple(tuple(tuple(row[c] for c in own) for row in block) for block in table.entries)
    alone = with_published(replace(table, layout=layout, entries=entries), experiment, paper)
    [apart] = [part for part in table.foot if part not in alone.foot]
    assert set(alone.foot) < set(table.foot)
    [title] = {column.reading.title for column in table.layout.columns if column.reading is not None}
    assert apart.startswith(f"Columns of another reading, not counted above: {title}. {of_runs} Their verdicts: ")
    of_reading = [row[c] for block in table.published for row in block for c in range(len(row)) if c not in own]
    assert f"{counts([entry.verdict for entry in of_reading])}. Order of the methods: of " in apart
    lines = csv.DictReader(io.StringIO(tidy_csv(table)))
    assert {(line["column"].startswith(group), line["reading"]) for line in lines} == {(True, title), (False, "")}


def test_a_table_with_weights_of_the_user_does_not_say_that_they_are_random(tmp_path: Path) -> None:
    """Each of Table 7's columns shows its reading, without pre-training, only while its runs have random weights."""
    (tmp_path / "mine.pt").write_bytes(b"weights, which are not read here")
    given = [f"parts.{part}.model.weights" for part in ("landmarks", "landmarks_centralized")]
    for keys in ((), (0,), (0, 1)):
        overrides = {given[k]: str(tmp_path / "mine.pt") for k in keys}
        table = judged("fedsam_caldarola", "7", load_experiment("fedsam_caldarola", overrides))
        random = [column.reading is not None for column in table.layout.columns]
        assert random == [k not in keys for k in range(2)]
        whole = " ".join([table.layout.caption, *table.foot])
        assert ("random" in whole) == any(random)
    assert "Departs from the paper: model.weights file mine.pt, hash " in whole
    assert "1 not judged (departs from the paper)" in whole


def test_a_reading_with_an_unknown_key_is_one_line() -> None:
    with pytest.raises(UserError, match=r"'partition.alfa'; did you mean 'partition.alpha'\?") as error:
        Column.parse({"header": "A", "metric": "lpf", "reading": {"title": "A", "departs": ["partition.alfa"]}})
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="'modl'; did you mean 'model'") as error:
        Column.parse({"header": "A", "metric": "lpf", "reading": {"title": "A", "unstated": ["modl.stem"]}})
    assert "\n" not in str(error.value)


def test_qus_two_stems_differ_in_nothing_else() -> None:
    experiment = requested("fedsam_qu").experiment
    for data, method in itertools.product(("cifar10", "cifar100"), ("fedavg", "fedsam")):
        place = f"dirichlet-0.6/bernoulli-0.2-of-100/{method}"
        own, other = (experiment.cell(f"{part}/{place}").runs[0] for part in (data, f"{data}_cifar_stem"))
        found = silent_differences("fedsam_qu", CellAddress.of(f"{data}/{place}"), other, own)
        assert [one.text for one in found] == ["model.stem cifar instead of imagenet"]


def of(changes: Mapping[str, Any], of_table: FinalValue = LAST, cell: CellAddress = CELL, **column: Any) -> Fairness:
    """The fairness of one entry of FedGF with changed settings."""
    shown = Column.parse({"header": "A", "metric": "test_accuracy", "select": AT, **column})
    return fairness("fedgf", [cell], load_experiment("fedgf", changes), FEDGF, shown, of_table)


@pytest.mark.parametrize(
    "changes",
    [{}, {"grid.seeds": [7]}, {"engine.backend": "loop"}, {"evaluation.snapshot_every": 500}],
    ids=str,
)
def test_seeds_engine_and_saved_states_are_free(changes: dict[str, Any]) -> None:
    assert of(changes) == Fairness()


def test_a_time_with_more_evaluations_than_the_papers_own_is_not_judged() -> None:
    """FedGF evaluates runs with 10 clients every 100 rounds."""
    cell = CellAddress.of("cifar100/lda-0/10-of-100/fedgf")
    for metric, why in {"seconds_per_round": "evaluated otherwise", "train_seconds_per_round": ""}.items():
        assert of({"evaluation.every": 1}, cell=cell, metric=metric).why == why
        assert of({}, cell=cell, metric=metric).is_fair


@pytest.mark.parametrize(
    ("column", "is_judged"),
    [
        ({}, False),
        ({"final": {"rule": "std_last_n", "n": 100}}, True),
        ({"metric": "test_accuracy_std_last100"}, True),
        ({"metric": "lpf"}, True),
        (TARGET, True),
    ],
    ids=str,
)
def test_values_that_report_replaces_are_not_judged(column: dict[str, Any], is_judged: bool) -> None:
    """Not even where the run has all evaluations that the best one needs."""
    requested = of({"report": "best"}, FinalValue(rule="best"), **column)
    assert requested.why == ("" if is_judged else "report is set to best")
    assert of({}, LAST_100, **column).is_fair


def test_what_the_paper_does_not_state_is_judged_and_named() -> None:
    found = of({"training.clip": 10.0})
    assert found.is_fair
    assert [one.text for one in found.silent] == ["training.clip 10 instead of null"]


def test_essential_settings_are_those_of_the_papers_own_experiment_where_the_paper_is_silent() -> None:
    changed, own = load_experiment("fedsam_qu", {"training.rounds": 5}), requested("fedsam_qu").experiment
    cell = CellAddress.of("cifar10/iid/bernoulli-0.2-of-100/fedavg")
    column = Column.parse({"header": "A", "metric": "test_accuracy"})
    found = fairness("fedsam_qu", [cell], changed, own, column, LAST)
    assert [one.text for one in found.departures] == [
        "training.rounds 5, not printed, but 1000 in the experiment of the paper"
    ]
    assert not found.is_fair


def test_cells_that_the_paper_lacks_are_not_judged() -> None:
    assert of({}, cell=CellAddress.of("cifar100/lda-3/5-of-100/fedgf")).why == "not a setting of the paper"
    assert of({"scale": "smoke"}).why == "another scale"


@pytest.mark.parametrize(
    ("changes", "final", "column", "why"),
    [
        ({"evaluation.every": 20000}, LAST, {}, ""),
        ({"evaluation.every": 10}, LAST_100, {}, "evaluated too rarely"),
        ({"evaluation.every": 10, "evaluation.last": 100}, LAST_100, {}, ""),
        ({"evaluation.every": 10, "evaluation.last": 99}, LAST_100, {}, "evaluated too rarely"),
        ({"evaluation.every": 10, "evaluation.last": 100}, FinalValue(rule="best"), {}, "evaluated too rarely"),
        ({"evaluation.every": 10, "evaluation.last": 100}, LAST, {"metric": "test_accuracy_std_last100"}, ""),
        ({"evaluation.every": 20000}, LAST, {"metric": "lpf"}, ""),
        ({}, LAST, {"metric": "seconds_per_round"}, ""),
        ({"evaluation.every": 10}, LAST, {"metric": "seconds_per_round"}, "evaluated otherwise"),
        ({"evaluation.training_images": 500}, LAST, {"metric": "seconds_per_round"}, "evaluated otherwise"),
        ({"evaluation.training_images": 500}, LAST, {"metric": "train_seconds_per_round"}, ""),
        ({"evaluation.training_images": 500}, LAST, TARGET, ""),
        ({"evaluation.every": 10}, LAST, {"metric": "train_seconds_per_round"}, ""),
        ({"evaluation.every": 10}, LAST, TARGET, "evaluated too rarely"),
        ({"evaluation.until": 30}, LAST, TARGET, ""),
        ({"evaluation.until": 29}, LAST, TARGET, "stops at 29 %"),
        ({"evaluation.until": 30}, LAST, {}, "stops at 30 %"),
        ({"evaluation.until": 30}, LAST, {"metric": "lpf"}, "stops at 30 %"),
        ({"evaluation.until": 30}, LAST, {**TARGET, "target": "fedavg"}, "stops at 30 %"),
    ],
    ids=str,
)
def test_the_evaluation_is_free_where_the_column_needs_no_more(
    changes: dict[str, Any], final: FinalValue, column: dict[str, Any], why: str
) -> None:
    assert of(changes, final, **column).why == why


@pytest.mark.parametrize("paper", papers())
def test_a_reported_mean_covers_at_most_half_of_a_run(paper: str) -> None:
    """A mean over all evaluations would contain the first epoch of a centralised run."""
    experiment = requested(paper).experiment
    for name in layout_names(paper, "tables"):
        layout = load_table(paper, name)
        finals = layout.final_values(experiment)
        for block, column, method in itertools.product(layout.blocks, layout.columns, layout.methods):
            rule = column.final or finals[method]
            if not column.metric.startswith("test_") or rule.rule != "mean_last_n":
                continue
            for setting in layout.settings_of(block, column, experiment):
                if experiment.has_cell(cell := CellAddress(setting, method)):
                    rounds = experiment.cell(cell.path).runs[0].training.rounds
                    assert (rule.n or 1) <= rounds / 2, (name, column.name, method)
