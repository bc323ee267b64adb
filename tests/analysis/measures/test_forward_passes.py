"""Forward passes in bf16 state how far they are from fp32, and leave fp32 as it was."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedflat.analysis.measures.forward_passes import (
    CHECKED,
    DIFFERENCES,
    ForwardPasses,
    differences,
    forward_precision,
    spread,
)
from fedflat.analysis.measures.landscape import Score
from fedflat.bench.engine.objective import Objective

Batch = tuple[Tensor, Tensor]
SCORES = st.builds(Score, st.floats(0, 1e6), st.floats(0, 100))


@given(st.integers(0, 10_000))
def test_the_checked_points_are_spread_over_all(count: int) -> None:
    checked = spread(count)
    assert len(checked) == min(count, CHECKED)
    assert checked == sorted(set(checked))
    if count:
        assert (checked[0], checked[-1]) == (0, count - 1)
        gaps = [b - a for a, b in pairwise(checked)]
        assert not gaps or max(gaps) - min(gaps) <= 1


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=6))
def test_differences_are_the_largest_of_all_points(pairs: list[tuple[Score, Score]]) -> None:
    found = differences([bf16 for bf16, _ in pairs], [fp32 for _, fp32 in pairs])
    assert tuple(found) == DIFFERENCES
    assert found["checked"] == len(pairs)
    assert found["loss_difference"] == max(abs(a.loss - b.loss) for a, b in pairs)
    assert found["error_difference"] == max(abs(a.error - b.error) for a, b in pairs)
    for a, b in pairs:
        assert abs(a.loss - b.loss) <= found["relative_loss_difference"] * b.loss * (1 + 1e-12) or b.loss == 0
    exact = all(a.loss == b.loss for a, b in pairs)
    assert (found["relative_loss_difference"] == 0) == exact


@pytest.mark.parametrize(
    ("bf16", "fp32", "expected"),
    [(math.nan, math.nan, 0), (math.inf, math.inf, 0), (math.nan, 1.0, math.inf), (1.0, math.inf, math.inf)],
)
def test_a_loss_that_is_finite_in_one_precision_only_differs_infinitely(
    bf16: float, fp32: float, expected: float
) -> None:
    found = differences([Score(0.5, 1), Score(bf16, 90)], [Score(0.5, 1), Score(fp32, 90)])
    assert (found["loss_difference"], found["relative_loss_difference"]) == (expected, expected)
    assert found["error_difference"] == 0


@pytest.fixture
def single(cnn: Objective, trained: Tensor, digits: Batch) -> tuple[Objective, Tensor, list[Batch]]:
    """A trained model in float32: autocast leaves float64 as it is."""
    return Objective(copy.deepcopy(cnn.module).float()), trained.float(), [(digits[0].float(), digits[1])]


def test_five_of_the_models_are_computed_in_both_precisions(single: tuple[Objective, Tensor, list[Batch]]) -> None:
    objective, w, data = single
    models = [w * (1 + 0.1 * i) for i in range(9)]
    passes = ForwardPasses(objective, "bf16", len(models))
    bf16 = [passes.evaluate(model, data) for model in models]
    fp32 = [objective.evaluate(model, data) for model in models]
    assert all(a != b for (a, _), (b, _) in zip(bf16, fp32, strict=True)), "bf16 rounds"
    checked = [0, 2, 4, 6, 8]
    assert passes.differences["checked"] == 5
    assert passes.differences["loss_difference"] == max(abs(bf16[i][0] - fp32[i][0]) for i in checked)
    relative = max(abs(bf16[i][0] / fp32[i][0] - 1) for i in checked)
    assert passes.differences["relative_loss_difference"] == pytest.approx(relative, rel=1e-6)
    assert 0 < relative < 0.05


def test_fp32_is_the_objective_itself(single: tuple[Objective, Tensor, list[Batch]]) -> None:
    objective, w, data = single
    passes = ForwardPasses(objective, "fp32", 1)
    assert passes.evaluate(w, data) == objective.evaluate(w, data)
    assert passes.loss(w, data) == objective.loss(w, data)
    assert passes.differences == {}


def test_the_precision_returns_after_an_error(cnn: Objective) -> None:
    with pytest.raises(torch.OutOfMemoryError), forward_precision(cnn, "bf16"):
        assert cnn.precision == "bf16"
        raise torch.OutOfMemoryError
    assert cnn.precision == "fp32"
