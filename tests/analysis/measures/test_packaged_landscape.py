"""The package loss-landscapes computes the losses at the requested points, and leaves the model where it is."""

import copy
from collections.abc import Sequence

import loss_landscapes
import numpy as np
import pytest
import torch
from loss_landscapes.metrics import Loss
from torch import Tensor, nn

from fedflat.analysis.measures.directions import Family
from fedflat.analysis.measures.landscape import LandscapeGrid, score
from fedflat.analysis.measures.packaged_landscape import packaged_scores
from fedflat.bench.engine.objective import Objective
from tests.analysis.measures.progress import Progress
from tests.conftest import in_batches

Samples = tuple[Tensor, Tensor]


def axis(first: float, last: float, n: int) -> Sequence[float]:
    return [first + (last - first) * k / (n - 1) for k in range(n)]


@pytest.mark.parametrize("n", [2, 4, 5], ids=lambda n: f"{n}x{n}")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_a_plane_agrees_with_one_by_one(
    cnn: Objective, plane: Family, digits: Samples, n: int, dtype: torch.dtype, tolerance: float
) -> None:
    """With even and odd numbers of points, and axes that are not alike: the package's own grid would be sheared."""
    objective = Objective(copy.deepcopy(cnn.module).to(dtype))
    family = Family(plane.w.to(dtype), tuple(direction.to(dtype) for direction in plane.directions))
    data = in_batches(digits[0].to(dtype), digits[1], 25)
    grid = LandscapeGrid((axis(-0.4, 0.2, n), axis(-0.1, 0.5, n)))
    ours = [score(objective, family, [point], data)[0] for point in grid.points]
    theirs = packaged_scores(objective, family, grid.axes, data)
    np.testing.assert_allclose([s.loss for s in theirs], [s.loss for s in ours], rtol=tolerance)
    np.testing.assert_allclose([s.error for s in theirs], [s.error for s in ours], atol=100 / len(digits[1]) + 1e-9)


@pytest.mark.parametrize("n", [2, 7])
def test_a_line_agrees_with_one_by_one(cnn: Objective, plane: Family, digits: Samples, n: int) -> None:
    line, grid = Family(plane.w, plane.directions[:1]), LandscapeGrid((axis(-0.3, 0.6, n),))
    ours = [score(cnn, line, [point], [digits])[0] for point in grid.points]
    theirs = packaged_scores(cnn, line, grid.axes, [digits])
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)


def test_the_package_alone_shears_its_planes(cnn: Objective, plane: Family, digits: Samples) -> None:
    """Rows 0 and 1 of its 2x2 values: columns at 1/2 and 1, then at 0 and 1/2, of the way to the second end."""
    models = [copy.deepcopy(cnn.load(plane.at(point))).eval() for point in ((0, 0), (1, 0), (0, 1))]
    values = loss_landscapes.planar_interpolation(*models, Loss(nn.CrossEntropyLoss(), *digits), 2)
    at = [[(0, 0.5), (0, 1)], [(0.5, 0), (0.5, 0.5)]]
    expected = [[cnn.loss(plane.at(point), [digits]) for point in row] for row in at]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_the_model_stays_where_it_is(cnn: Objective, plane: Family, digits: Samples) -> None:
    w, state = plane.w.clone(), torch.get_rng_state()
    before = cnn.loss(plane.w, [digits])
    packaged_scores(cnn, plane, (axis(-1, 1, 2), axis(-1, 1, 2)), [digits])
    assert torch.equal(plane.w, w)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in cnn.parameters)
    assert cnn.loss(plane.w, [digits]) == before


def test_progress_counts_the_models_that_the_package_evaluates(cnn: Objective, plane: Family, digits: Samples) -> None:
    """A plane of 3x3 points takes one row and one column more."""
    progress = Progress()
    packaged_scores(cnn, plane, (axis(0, 1, 3), axis(0, 1, 3)), [digits], progress.track)
    assert len(progress) == 16
