"""Numbers that FedTOGA quotes are those of FedLESAM, or are listed as changed."""

import pytest

from studies.papers.anomalies import listed
from studies.papers.audit_repeats import quoted_otherwise
from studies.papers.printed_numbers import PrintedNumber, printed_numbers

NUMBERS = printed_numbers()
THEIRS = {(*one.setting, one.method): one for one in NUMBERS if (one.paper, one.table) == ("fedlesam", "2")}
CHANGED = [found for found in quoted_otherwise(NUMBERS) if any(found.is_reported_by(one) for one in listed("fedtoga"))]
"""Numbers of FedLESAM that FedTOGA prints differently, as computed, if anomalies.csv lists them."""


def of_table(table: str) -> list[PrintedNumber]:
    return [one for one in NUMBERS if (one.paper, one.table) == ("fedtoga", table)]


def is_equal(one: PrintedNumber) -> bool:
    other = THEIRS.get((*one.setting, one.method))
    return other is not None and other.number == one.number


@pytest.mark.parametrize(("table", "count", "other"), [("2", 67, 4), ("7", 192, 5)])
def test_quoted_numbers_are_those_of_the_other_paper_or_are_listed_as_changed(
    table: str, count: int, other: int
) -> None:
    quoted = [one for one in of_table(table) if "quoted" in one.kinds]
    changed = [one for one in quoted if not is_equal(one)]
    assert (len(quoted), len(changed)) == (count, other)
    for one in changed:
        assert "typo_suspected" in one.kinds
        assert [found for found in CHANGED if (found.place_a, found.says_a) == (one.place, one.value)], one.place
    assert not [one.place for one in of_table(table) if is_equal(one) and one not in quoted]


def test_all_old_numbers_are_quoted_and_no_new_one_is() -> None:
    for one in of_table("7"):
        assert ("quoted" in one.kinds) is (one.variant == "old"), one.place
