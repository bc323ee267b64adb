"""Rules of aggregation weights, by hand."""

import pytest

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.aggregations import AGGREGATIONS


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("uniform", [1 / 3, 1 / 3, 1 / 3]), ("samples", [0.1, 0.4, 0.5]), ("sqrt_samples", [0.2, 0.4, 0.4])],
)
def test_weights_by_hand(rule, expected):
    sizes = {"sqrt_samples": [1, 4, 4]}.get(rule, [1, 4, 5])
    assert AGGREGATIONS[rule].weights(sizes).tolist() == pytest.approx(expected)


def test_an_unknown_rule_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"samples.*sqrt_samples.*uniform"):
        StepSettings.parse({"lr": 0.1, "aggregation": "median"})
