"""Scores are those of the models at the stated points: one by one, in one batched call, whatever the batches."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from fedflat.analysis.measures import landscape
from fedflat.analysis.measures.directions import Family
from fedflat.analysis.measures.landscape import (
    CachedBatches,
    axis_around,
    chunks,
    points_together,
    score,
    symmetric_axis,
)
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from tests.conftest import in_batches

Samples = tuple[Tensor, Tensor]
GRID = list(product(symmetric_axis(0.3, 5), repeat=2))


def test_scores_are_what_the_coordinates_say(cnn: Objective, trained: Tensor, plane: Family, digits: Samples) -> None:
    """All of a 5×5 grid by direct evaluation; the middle is F(w) to the last bit."""
    d1, d2 = plane.directions
    x, y = digits
    for a, b in GRID:
        found = score(cnn, plane, [(a, b)], [digits])[0]
        w = trained + a * d1 + b * d2
        assert found.loss == pytest.approx(cnn.loss(w, [digits]), rel=1e-12)
        wrong = int((cnn.logits(w, x).argmax(1) != y).sum())
        assert found.error == pytest.approx(100 * wrong / len(y))
    assert score(cnn, plane, [(0.0, 0.0)], [digits])[0].loss == cnn.loss(trained, [digits])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_batched_call_equals_one_by_one(
    cnn: Objective, plane: Family, digits: Samples, dtype: torch.dtype, tolerance: float
) -> None:
    objective = Objective(copy.deepcopy(cnn.module).to(dtype))
    family = Family(plane.w.to(dtype), (plane.directions[0].to(dtype), plane.directions[1].to(dtype)))
    data = in_batches(digits[0].to(dtype), digits[1], 25)
    single = [score(objective, family, [point], data)[0] for point in GRID]
    together = score(objective, family, GRID, data)
    np.testing.assert_allclose([s.loss for s in together], [s.loss for s in single], rtol=tolerance)
    np.testing.assert_allclose([s.error for s in together], [s.error for s in single], atol=100 / len(digits[1]) + 1e-9)


@pytest.mark.parametrize("size", [1, 7, 25, 60])
def test_batch_size_does_not_matter(cnn: Objective, plane: Family, digits: Samples, size: int) -> None:
    whole = score(cnn, plane, GRID[:1], [digits])[0]
    parts = score(cnn, plane, GRID[:1], in_batches(*digits, size))[0]
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    assert parts.error == whole.error


class Passes(list):
    """Batches that count how often they are passed over."""

    count = 0

    def __iter__(self):
        self.count += 1
        return super().__iter__()


@pytest.mark.parametrize(("cached_bytes", "passes"), [(2**20, 2), (0, 4)])
def test_prepared_batches_are_the_same_images(
    monkeypatch: pytest.MonkeyPatch, cnn: Objective, digits: Samples, cached_bytes: int, passes: int
) -> None:
    """Small ones are prepared once (and looked at once before), large ones in each of three passes."""
    monkeypatch.setattr(landscape, "CACHED_BYTES", cached_bytes)
    x, y = digits[0].expand(-1, 3, -1, -1), digits[1]
    data = Passes(in_batches(x, y, 25))
    monkeypatch.setattr(cnn, "channels_last", True)
    prepared = CachedBatches(cnn, data)
    for _ in range(3):
        found = list(prepared)
        assert torch.equal(torch.cat([part for part, _ in found]), x)
        assert torch.equal(torch.cat([part for _, part in found]), y)
        assert all(part.is_contiguous(memory_format=torch.channels_last) for part, _ in found)
    assert data.count == passes
    assert len(prepared) == 3


def test_axes() -> None:
    np.testing.assert_allclose(symmetric_axis(0.3, 5), [-0.3, -0.15, 0, 0.15, 0.3], atol=1e-15)
    assert symmetric_axis(0.7, 41)[20] == 0
    np.testing.assert_allclose(axis_around([1.0, 3.0, 0.0], 0.5, 4), [-1.5, 0.5, 2.5, 4.5])
    assert chunks(7, 3) == [range(3), range(3, 6), range(6, 7)]
    assert chunks(2, 5) == [range(2)]
    for points in (1, 20):
        with pytest.raises(UserError, match=f"{points} grid points"):
            symmetric_axis(1, points)


def test_a_cpu_computes_points_one_by_one(cnn: Objective, plane: Family, digits: Samples) -> None:
    assert points_together(cnn, plane, [digits]) == 1


@pytest.mark.gpu
def test_a_gpu_computes_as_many_points_as_fit(cnn: Objective, plane: Family, digits: Samples) -> None:
    objective = Objective(copy.deepcopy(cnn.module).cuda())
    family = Family(plane.w.cuda(), (plane.directions[0].cuda(), plane.directions[1].cuda()))
    data = [(digits[0].cuda(), digits[1].cuda())]
    assert points_together(objective, family, data) == landscape.MOST_TOGETHER
    on_cpu = [score(cnn, plane, [point], [digits])[0].loss for point in GRID]
    np.testing.assert_allclose([s.loss for s in score(objective, family, GRID, data)], on_cpu, rtol=1e-9)
