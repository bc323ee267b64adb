"""Each published number belongs to exactly one entry of its table's layout, or is listed as absent."""

from collections import Counter
from pathlib import Path

import pytest

from fedflat.analysis.published.numbers import papers, published
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.layout import load_table
from fedflat.analysis.tables.published_keys import of_entry
from tests.analysis.papers import requested, tables
from tests.analysis.published.published_counts import ROWS

ABSENT = {
    ("fedtoga", "7"): 9,  # printed out of line, seven of them dashes: their columns are unknown
}
"""How many are not."""

DEVIATIONS = {("fedgf", "9"): 36, **{("fedsam_qu", table): 42 for table in ("1", "2", "4", "5")}}
"""How many printed deviations have a column of their own."""


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper, names in ROWS.items() for name in names])
def test_every_published_number_is_met_once_or_listed_as_absent(paper: str, name: str) -> None:
    layout, experiment = load_table(paper, name), requested(paper).experiment
    numbers = published(paper)
    of_table = numbers[numbers["table"] == layout.published]
    met: Counter[int] = Counter()
    deviations: Counter[int] = Counter()
    of_paper = [column for column in layout.columns if column.reading is None] or layout.columns
    for block in layout.blocks:
        for column in (one for one in of_paper if not one.divides_published):
            for method in layout.methods:
                rows = of_entry(of_table, layout, experiment, block, method, column)
                assert len(rows) <= 1, (block.header, column.name, method)
                (deviations if "value" in column.published else met).update(rows.index)
    assert set(met.values()) == {1}
    assert len(met) == ROWS[paper][name] - ABSENT.get((paper, name), 0)
    assert len(of_table) - len(met) == ABSENT.get((paper, name), 0)
    assert set(deviations.values()) <= {1}
    assert len(deviations) == DEVIATIONS.get((paper, name), 0)


def test_every_published_table_has_a_layout() -> None:
    for paper in papers():
        numbers = published(paper)
        assert set(numbers["table"]) == {load_table(paper, name).published for name in ROWS[paper]}
        names = tables(paper).names()
        assert [name for name in names if name not in READINGS[paper]] == list(ROWS[paper])


READINGS = {**dict.fromkeys(papers(), ()), "fedlesam": ("3_windows",), "fedsam_caldarola": ("8_double",)}
"""Tables that show numbers of another table in another reading."""


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper, names in READINGS.items() for name in names])
def test_a_table_of_a_reading_meets_numbers_of_another_table(paper: str, name: str) -> None:
    layout, experiment = load_table(paper, name), requested(paper).experiment
    numbers = published(paper)
    assert all(column.reading is not None for column in layout.columns)
    for block in layout.blocks:
        for column in layout.columns:
            found = [len(of_entry(numbers, layout, experiment, block, m, column)) for m in layout.methods]
            assert max(found) == 1, (block.header, column.name)


@pytest.mark.parametrize("paper", papers())
@pytest.mark.parametrize("scale", ["paper", "smoke"])
def test_every_table_resolves(paper: str, scale: str) -> None:
    resolved = tables(paper) if scale == "paper" else Tables(RequestedExperiment(paper, Path("none"), {"scale": scale}))
    for name in resolved.names():
        assert resolved.inputs(name)


@pytest.mark.parametrize("paper", papers())
def test_no_two_methods_of_a_table_share_a_run(paper: str) -> None:
    experiment = requested(paper).experiment
    identities: dict[str, str] = {}
    shared = []
    for name in tables(paper).names():
        layout = load_table(paper, name)
        for setting in layout.settings(experiment):
            methods_of: dict[str, str] = {}
            for method in layout.methods:
                path = f"{setting.path}/{method}"
                if method not in experiment.resolved_parts[setting.dataset].methods:
                    continue
                if path not in identities:
                    identities[path] = experiment.cell(path).runs[0].identity
                first = methods_of.setdefault(identities[path], method)
                if first != method:
                    shared.append((setting.path, first, method))
    assert not shared
