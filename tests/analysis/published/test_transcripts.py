"""The papers' own experiments against the transcripts of what the papers state, value by value."""

import itertools
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.published.numbers import papers
from fedflat.analysis.published.transcript import (
    Statement,
    departures,
    is_printed,
    silent_differences,
    statements,
    value_of,
)
from fedflat.analysis.tables.layout import load_table
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig


@cache
def _runs(paper: str) -> dict[CellAddress, RunConfig]:
    """The first run of each cell."""
    experiment = load_experiment(paper)
    return {cell: experiment.cell(cell.path).runs[0] for cell in experiment.addresses}


@cache
def _values(paper: str) -> dict[CellAddress, dict[str, Any]]:
    return {cell: run.model_dump() for cell, run in _runs(paper).items()}


@cache
def _departing_on_purpose(paper: str) -> set[tuple[str, str]]:
    """The parts that columns of another reading show, with the keys in which they depart."""
    experiment = load_experiment(paper)
    return {
        (setting.dataset, key)
        for layout in (load_table(paper, name) for name in layout_names(paper, "tables"))
        for block, column in itertools.product(layout.blocks, layout.columns)
        if column.reading is not None
        for setting, key in itertools.product(layout.settings_of(block, column, experiment), column.reading.departs)
    }


def _missing(statement: Statement, values: list[Any]) -> set[str]:
    """The values of a printed grid that no run has."""
    return {one for one in statement.grid if one != "*" and not any(is_printed(value, one) for value in values)}


@pytest.mark.parametrize("paper", papers())
def test_experiments_agree_with_what_the_papers_state(paper: str) -> None:
    departing = {
        (cell.setting.dataset, departure.text)
        for cell, run in _runs(paper).items()
        for departure in departures(paper, cell, run)
        if (cell.setting.dataset, departure.key) not in _departing_on_purpose(paper)
    }
    assert departing == set()


@pytest.mark.parametrize("paper", papers())
def test_each_statement_concerns_runs_and_each_value_of_a_printed_grid_occurs(paper: str) -> None:
    for one in statements(paper):
        found = [
            value_of(values, one.key)
            for cell, values in _values(paper).items()
            if one.concerns(cell.setting.dataset, cell.method, cell.setting.partition)
        ]
        assert found, f"nothing fits {one}"
        assert (one.part, one.key) in _departing_on_purpose(paper) or not _missing(one, found), one


PLACE = re.compile(r"((^|, )(Section|Appendix|Table|Figure|Algorithm) [A-Z0-9.]+ \(line \d+\))+")


@pytest.mark.parametrize("paper", papers())
def test_each_statement_has_its_place_in_the_paper(paper: str) -> None:
    assert {one.place for one in statements(paper) if not PLACE.fullmatch(one.place)} == set()


@pytest.mark.parametrize("paper", papers())
def test_nothing_is_stated_twice(paper: str) -> None:
    assert len({replace(one, printed="", place="") for one in statements(paper)}) == len(statements(paper))


def statement(printed: str) -> Statement:
    return Statement("*", "*", "*", "training.batch_size", printed, "Table 1 (line 5)")


@pytest.mark.parametrize(
    ("values", "printed", "refused", "missing"),
    [
        ([5, 10], "5|10|20", [], set()),
        ([5, 10], "5&10", [], set()),
        ([5, 10], "5", [10], set()),
        ([5, 10], "5&*", [], set()),
        ([5, 10], "5&10&20", [], {"20"}),
        ([5, 10], "5&20&*", [], {"20"}),
        (["lda"], "lda&iid", [], {"iid"}),
        (["resnet18_gn", "lenet"], "resnet18*", ["lenet"], set()),
        ([5], "lda", [5], {"lda"}),
        ([None], "5", [None], {"5"}),
        ([None, False, 0.5], "null|false|0.50", [], set()),
        ([0], "false", [0], {"false"}),
        ([(512, 1024), [512, 928]], "512×1024", [[512, 928]], set()),
        ([{"power": 0.9, "horizon": 10000.0}, None], "power *", [None], set()),
    ],
)
def test_what_departs_from_a_statement_is_seen(
    values: list[Any], printed: str, refused: list[Any], missing: set[str]
) -> None:
    one = statement(printed)
    assert [value for value in values if not one.allows(value)] == refused
    assert _missing(one, values) == missing


def test_counted_messages_are_concerned_only_by_statements_that_name_their_part() -> None:
    assert statement("5").concerns("cifar10", "fedavg", "iid")
    assert not statement("5").concerns("counts", "fedavg", "iid")
    assert Statement("counts", "*", "*", "training.rounds", "10", "").concerns("counts", "fedavg", "iid")


CELL = CellAddress.of("cifar100/lda-0/5-of-100/fedgf")


def fedgf(**changes: Any) -> RunConfig:
    """FedGF in one cell with changed settings, such as training__batch_size=100."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment("fedgf", keys).cell(CELL.path).runs[0]


def test_a_departure_names_the_key_and_both_values() -> None:
    [departure] = departures("fedgf", CELL, fedgf(training__batch_size=100))
    assert departure.text == "training.batch_size 100, printed 64 (Appendix C.2)"
    both = departure._replace(printed="64|128", place="Section 6.1 (line 3), Table 2 (line 40)")
    assert both.text == "training.batch_size 100, printed 64 or 128 (Section 6.1, Table 2)"
    [departure] = departures("fedgf", CELL, fedgf(methods__fedgf__hyperparameters__W=20))
    assert departure.text == "hyperparameters.W 20, printed 10 or 30 or 50 (Appendix C.2)"


def test_what_appendix_c_states_of_segmentation_is_judged() -> None:
    cell = CellAddress.of("cityscapes_uniform/by_group/5-of-146/fedavg")
    part = "parts.cityscapes_uniform"
    window = [{"name": "scaled_crop", "least": 0.5, "most": 1.5, "size": [256, 512]}]
    keys = {f"{part}.training.augmentation": window, f"{part}.training.lr_poly": None}
    keys[f"{part}.methods.fedavg"] = {"loss": "hard_pixels", "hyperparameters": {"share": 0.5}}
    run = load_experiment("fedsam_caldarola", keys).cell(cell.path).runs[0]
    assert [one.text for one in departures("fedsam_caldarola", cell, run)] == [
        "training.augmentation.scaled_crop.size 256×512, printed 512×1024 (Appendix C.1)",
        "training.lr_poly null, printed power * (Appendix C.2)",
        "hyperparameters.share 0.5, printed 0.25 (Appendix C.2)",
    ]


def test_no_momentum_is_a_momentum_of_zero() -> None:
    assert value_of(fedgf().model_dump(), "training.local_momentum") == 0
    assert value_of(fedgf(training__local_momentum=0.9).model_dump(), "training.local_momentum") == 0.9


def test_no_precision_is_the_precision_fp32() -> None:
    assert silent_differences("fedgf", CELL, fedgf(training__precision="fp32"), fedgf()) == ()
    in_bf16 = silent_differences("fedgf", CELL, fedgf(training__precision="bf16"), fedgf())
    assert [one.text for one in in_bf16] == ["training.precision bf16 instead of fp32"]


def test_what_the_paper_does_not_state_may_differ_and_is_named() -> None:
    flip_first = [{"name": "flip", "probability": 0.5}, {"name": "crop", "padding": 4, "pad": "mean"}]
    changed = fedgf(training__clip=10, training__augmentation=flip_first, evaluation__every=7, grid__seeds=[5])
    assert departures("fedgf", CELL, changed) == ()
    assert [one.text for one in silent_differences("fedgf", CELL, changed, fedgf())] == [
        "training.clip 10 instead of null",
        "training.augmentation flip, crop instead of crop, flip",
        "training.augmentation.crop.pad mean instead of black",
    ]
    assert silent_differences("fedgf", CELL, fedgf(), fedgf()) == ()
    assert silent_differences("fedgf", CELL, fedgf(training__batch_size=100), fedgf()) == (), "a departure"
