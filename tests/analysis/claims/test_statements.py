"""Each form of a statement on a small table of numbers, by hand."""

import pytest

from fedflat.analysis.claims.decide import decide
from fedflat.analysis.claims.schema import Claim, PaperClaims
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.input.errors import UserError

SETTINGS = [
    Setting.of(f"{data}/{split}/{clients}")
    for data in ("x", "y")
    for split in ("iid", "lda-0")
    for clients in ("5", "10")
]
ACCURACY = {  # by data set, partition and clients, then by method
    "x/iid/5": (80, 82, 85.3), "x/iid/10": (81, 83, 86), "x/lda-0/5": (60, 61, 70), "x/lda-0/10": (65, 66, 72),
    "y/iid/5": (50, 48, 55), "y/iid/10": (51, 52, 55.5), "y/lda-0/5": (20, 25, 40), "y/lda-0/10": (30, 31, 41),
}  # fmt: skip
VALUES = {
    CellAddress(Setting.of(path), method): {0: float(value)}
    for path, row in ACCURACY.items()
    for method, value in zip(("avg", "sam", "new"), row, strict=True)
}


def claim(**given):
    return Claim.parse({"id": "one", "place": "1", "about": "a claim", "metric": "test_accuracy", **given})


def only(dataset, partition, participation):
    return {"select": {"dataset": [dataset], "partition": [partition], "participation": [participation]}}


def outcome(**given):
    statement = claim(**given).statement(SETTINGS)
    return decide(statement, VALUES, exact=True).outcome


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"higher": {"method": "new", "than": ["avg", "sam"]}}, "holds"),
        ({"lower": {"method": "avg", "than": "sam"}}, "fails"),  # y/iid/5: 50 > 48
        ({"lower": {"method": "avg", "than": "sam"}, "over": "most"}, "holds"),
        ({"lower": {"method": "avg", "than": "sam"}, "over": "mean"}, "holds"),
        ({"higher": {"method": "avg", "than": "sam"}, "over": "any"}, "holds"),
        ({"higher": {"method": "avg", "than": "sam"}, "over": "most"}, "fails"),
        ({"higher": {"method": "new", "than": ["avg", "sam"], "by": {"at_least": 3}}}, "holds"),
        # The best of the others is meant: from 3 (x/iid/10) to 15 (y/lda-0/5).
        ({"higher": {"method": "new", "than": ["avg", "sam"], "by": {"at_least": 3, "at_most": 15}}}, "holds"),
        ({"higher": {"method": "new", "than": ["avg", "sam"], "by": {"at_least": 3, "at_most": 14}}}, "fails"),
        ({"higher": {"method": "new", "than": "avg", "by": {"equals": "5.3"}}, **only("x", "iid", "5")}, "holds"),
        ({"higher": {"method": "new", "than": "avg", "by": {"equals": "5.30"}}, **only("x", "iid", "10")}, "fails"),
        ({"higher": {"method": "new", "than": "avg", "factor": {"equals": "2"}}, **only("y", "lda-0", "5")}, "holds"),
        ({"highest": {"method": "new", "among": ["avg", "sam", "new"]}}, "holds"),
        ({"highest": {"method": "sam", "rank": 2, "among": ["avg", "sam", "new"]}}, "fails"),
        ({"highest": {"method": "sam", "rank": 2, "among": ["avg", "sam", "new"]}, "over": "most"}, "holds"),
        ({"lowest": {"method": ["avg", "sam"], "rank": 2, "among": ["avg", "sam", "new"]}}, "holds"),
        ({"falls": {"of": ["avg", "sam", "new"], "along": "partition", "through": ["iid", "lda-0"]}}, "holds"),
        ({"rises": {"of": "new", "along": "participation", "through": ["5", "10"]}}, "holds"),
        ({"rises": {"of": "new", "than": ["avg", "sam"], "along": "partition", "through": ["iid", "lda-0"]}}, "holds"),
        ({"falls": {"of": "new", "than": "avg", "along": "partition", "through": ["iid", "lda-0"]}}, "fails"),
        ({"falls": {"of": "avg", "along": "partition", "through": ["iid", "lda-0"], "by": {"at_most": 30}}}, "holds"),
        ({"falls": {"of": "avg", "along": "partition", "through": ["iid", "lda-0"], "by": {"at_most": 29}}}, "fails"),
        ({"level": {"of": "new", "at_least": 40}}, "holds"),
        ({"level": {"of": ["avg", "new"], "at_least": 40}}, "fails"),
    ],
)  # fmt: skip
def test_statements_by_hand(given, expected):
    assert outcome(**given) == expected


def test_a_change_pairs_settings_that_agree_in_the_other_fields():
    change = {"of": "avg", "along": "partition", "through": ["iid", "lda-0"]}
    (first, *others) = claim(falls=change).statement(SETTINGS).parts
    assert [cell.path for cell in first.cells] == ["x/lda-0/5/avg", "x/iid/5/avg"]
    assert len(others) == 3


def test_a_field_with_one_value_per_label_goes_with_it():
    """A part with more clients has another participation."""
    settings = [Setting.of("few/iid/10-of-100"), Setting.of("many/iid/10-of-200")]
    change = {"of": "avg", "along": "dataset", "through": ["few", "many"]}
    found = claim(falls=change).statement(settings)
    assert {cell.path for cell in found.cells} == {"few/iid/10-of-100/avg", "many/iid/10-of-200/avg"}


def test_another_data_set_stands_for_the_papers():
    select = {"dataset": ["elsewhere"], "partition": ["lda-0"], "participation": ["5"]}
    found = claim(higher={"method": "new", "than": "avg"}, select=select).statement(SETTINGS)
    assert {cell.setting.path for cell in found.cells} == {"x/lda-0/5", "y/lda-0/5"}


@pytest.mark.parametrize(("stands_for", "expected"), [("paper", {"x/lda-0/5"}), ("another", None)])
def test_a_part_stands_for_one_of_the_papers(stands_for, expected):
    """Then it decides no claim about the others."""
    select = {"dataset": ["paper"], "partition": ["lda-0"], "participation": ["5"]}
    found = claim(higher={"method": "new", "than": "avg"}, select=select).statement(SETTINGS, {"x": stands_for})
    assert (None if found is None else {cell.setting.path for cell in found.cells}) == expected


def test_other_numbers_of_clients_stand_for_the_papers():
    select = {"dataset": ["y"], "partition": ["lda-0"], "participation": ["5-of-100", "10-of-100"]}
    found = claim(higher={"method": "new", "than": "avg"}, select=select).statement(SETTINGS)
    assert {cell.setting.path for cell in found.cells} == {"y/lda-0/5", "y/lda-0/10"}


def test_a_claim_about_other_settings_has_no_statement():
    select = {"partition": ["lda-7"]}
    assert claim(higher={"method": "new", "than": "avg"}, select=select).statement(SETTINGS) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no statement"),
        ({"level": {"of": "a", "at_most": 1}, "higher": {"method": "a", "than": "b"}}, "higher, level"),
        ({"level": {"of": "a"}}, "bounds are either equals"),
        ({"level": {"of": "a", "equals": "1", "at_most": 1}}, "bounds are either equals"),
        ({"higher": {"method": "a", "than": "b"}, "metric": "accuracy"}, "unknown metric 'accuracy'"),
        ({"higher": {"method": "a", "then": "b"}}, "did you mean 'than'"),
        ({"higher": {"method": "a", "than": "b"}, "metric": "rounds_to_target"}, "needs a target"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises(UserError, match=message):
        claim(**given)


def test_the_name_of_a_group_stands_for_its_methods():
    one = {
        "id": "one",
        "place": "1",
        "about": "",
        "metric": "test_accuracy",
        "higher": {"method": "a", "than": "others"},
    }
    file = PaperClaims.parse({"groups": {"others": ["b", "c"]}, "claims": [one]})
    assert file.claims[0].higher.than == ("b", "c")


def test_ids_are_unique_and_known():
    one = {"id": "one", "place": "1", "about": "", "metric": "test_accuracy", "level": {"of": "a", "at_most": 1}}
    with pytest.raises(UserError, match="two claims have the id one"):
        PaperClaims.parse({"claims": [one, one]})
    with pytest.raises(UserError, match="unknown claim in contradicted 'other'"):
        PaperClaims.parse({"claims": [one], "contradicted": {"other": "why"}})
