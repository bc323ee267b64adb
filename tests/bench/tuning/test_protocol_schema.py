"""The protocol of flat1d is consistent, and a protocol that is not is refused in one line."""

from collections.abc import Mapping
from typing import Any

import pytest

from fedflat.bench.experiments.files import read_yaml
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.protocol.reading import SearchedGrid, protocol_file
from fedflat.bench.tuning.protocol.schema import Protocol

DATA = read_yaml(protocol_file("flat1d"))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The file's content with another value at a path such as trials.own."""
    *above, last = path.split("/")
    data = read_yaml(protocol_file("flat1d"))
    section: Any = data
    for key in above:
        section = section[key]
    section[last] = value
    return data


@pytest.fixture(scope="module")
def grid() -> SearchedGrid:
    return SearchedGrid.read("flat1d")


def test_every_method_has_as_many_trials_and_every_pair_is_a_method_and_its_base(grid: SearchedGrid) -> None:
    protocol = grid.protocol
    assert protocol.trials.all == 56
    assert len(protocol.all_pairs) == 17
    assert {variant for variant, _ in protocol.all_pairs} == set(protocol.methods)
    trained = [seed for tuning in protocol.tuning_seeds for seed in protocol.training_seeds(tuning)]
    assert trained == list(range(12))
    assert [protocol.after(seed) for seed in protocol.tuning_seeds] == [1001, 1002, 1003, 1004, 1005, 1000]


def test_the_protocol_on_images_compares_the_same_pairs(grid: SearchedGrid) -> None:
    images = SearchedGrid.read("flat_cifar").protocol
    assert images.trials.all == 22
    assert set(images.all_pairs) < set(grid.protocol.pairs["ten"])
    assert len(images.all_pairs) == len(images.methods) == 9
    for label, swept in images.methods.items():
        assert (swept.value, swept.base, swept.values[0]) == (grid.protocol.methods[label].value, swept.base, 0)


def test_what_is_in_the_hash_changes_trials_and_what_is_not_changes_none(grid: SearchedGrid) -> None:
    for path, value in (("trials/base", 17), ("ranges/lr/high", 1.5), ("fitted/least", 98.0), ("refine/share", 0.2)):
        assert Protocol.parse(changed(path, value)).identity != grid.protocol.identity, path
    for path, value in (("budget/core_hours", 50), ("rounds/chosen/main", 1000), ("committed", "2026-12-01")):
        assert Protocol.parse(changed(path, value)).identity == grid.protocol.identity, path


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("ranges/lr/bound", [0.05, 2.0], r"bound = \[0.05, 2\] of the range 0.03 to 1"),
        ("ranges/lr", {"values": [0.1, 1.0], "bound": [0.1, 1.0]}, "a range of a search has low, high and bound"),
        ("tuning_seeds", [1000, 1000], "1000 is listed twice"),
        ("tuning_seeds", [3, 14], "seed [0-3] is a tuning seed and a training seed"),
        ("rounds/tried/seed", 1003, "rounds.tried.seed = 1003 is a tuning seed"),
        ("rounds/candidates", [2000, 1000], "increasing numbers"),
        ("rounds/chosen", {"main": None}, "rounds.chosen has main"),
        ("widen/times", 3, "trials.widen = 4, but widen.times = 3"),
        ("methods/fedsam/base", "fedprox", "unknown base of fedsam 'fedprox'"),
        ("methods/fedsam/points", {"rho": [0, 0.1]}, "fedsam has 2 points, which give 4 own trials"),
        ("methods/fedsam/points", {}, "points of nothing"),
        ("methods/fedgf/further", [{"T_D": {"times": 2}}] * 4, "T_D = {'times': 2}"),
        ("methods/fedscam/further", [{"alignment": 1}], "fedscam has 1 further values"),
        ("methods/fedavg", {"base": "scaffold", "points": {"rho": [0, 1]}}, "fedavg is a base and a method"),
        ("pairs/ten", [["fedsam", "scaffold"]], r"pair \[fedsam, scaffold\]"),
        ("budget/order", ["main.tne"], "did you mean 'main.ten'"),
    ],
)
def test_a_wrong_protocol_is_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Protocol.parse(changed(path, value), "search.yaml")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("methods/fedsam/fixed", {"rhoo": 1}, "unknown value of fedsam 'rhoo'"),
        ("methods/fedgamma/base", "fedavg", "fedgamma has another correction than its base fedavg"),
        ("methods/fedsam/points", {"rho": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, "the first point of fedsam is rho = 0.1"),
        ("bases/fedavg", {"lamb": DATA["bases"]["feddyn"]["lam"]}, "unknown value of fedavg 'lamb'"),
        ("rounds/chosen/main", 4000, "rounds.chosen.main = 4000, but experiment flat1d has"),
    ],
)
def test_a_protocol_that_does_not_fit_its_experiments_is_refused(path: str, value: Any, message: str) -> None:
    data: Mapping[str, Any] = changed(path, value)
    if path == "methods/fedgamma/base":
        data["pairs"]["ten"].remove(["fedgamma", "scaffold"])
    with pytest.raises(UserError, match=message):
        SearchedGrid(Protocol.parse(data)).check()
