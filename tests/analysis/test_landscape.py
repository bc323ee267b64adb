"""Directions have the filters' norms; the grid's losses are those at its stated coordinates."""

import copy

import loss_landscapes
import numpy as np
import pytest
import torch
from loss_landscapes.metrics import Loss
from torch import Tensor, nn

from analysis.landscape import filter_normalised_directions, plane
from bench.engine.objective import Objective
from bench.engine.streams import torch_stream
from bench.errors import UserError

Samples = tuple[Tensor, Tensor]


def test_directions_have_the_norm_of_every_filter_and_spare_biases(cnn: Objective, trained: Tensor) -> None:
    weights = cnn.layout.split(trained)
    for direction in filter_normalised_directions(cnn.layout, trained, torch_stream(0, "test")):
        for name, part in cnn.layout.split(direction).items():
            if part.dim() > 1:
                norms = part.flatten(1).norm(dim=1)
                torch.testing.assert_close(norms, weights[name].flatten(1).norm(dim=1))
            else:
                assert not part.any(), name


def test_a_filter_of_zeros_stays_in_place(cnn: Objective, trained: Tensor) -> None:
    w = trained.clone()
    cnn.layout.split(w)["conv1.weight"][0] = 0
    for direction in filter_normalised_directions(cnn.layout, w, torch_stream(0, "test")):
        assert not cnn.layout.split(direction)["conv1.weight"][0].any()


def test_models_share_the_draws_and_the_two_directions_differ(cnn: Objective, trained: Tensor) -> None:
    stream = torch_stream(0, "test")
    first, second = filter_normalised_directions(cnn.layout, trained, stream)
    doubled, _ = filter_normalised_directions(cnn.layout, 2 * trained, stream)
    torch.testing.assert_close(doubled, 2 * first)
    assert abs(float(torch.cosine_similarity(first, second, dim=0))) < 0.2


def test_grid_is_what_its_coordinates_say(cnn: Objective, trained: Tensor, digits: Samples) -> None:
    """All of a 5×5 grid by direct evaluation, rows in order; the middle is F(w) to the last bit."""
    d1, d2 = filter_normalised_directions(cnn.layout, trained, torch_stream(0, "test"))
    grid = plane(cnn, trained, [digits], d1=d1, d2=d2, extent=0.3, points=5)
    axis = [-0.3, -0.15, 0.0, 0.15, 0.3]
    np.testing.assert_allclose(grid.a.to_numpy().reshape(5, 5), np.repeat([axis], 5, 0).T, atol=1e-15)
    np.testing.assert_allclose(grid.b.to_numpy().reshape(5, 5), np.repeat([axis], 5, 0), atol=1e-15)
    for row in grid.itertuples():
        assert row.loss == cnn.loss(trained + row.a * d1 + row.b * d2, [digits])
    middle = grid[(grid.a == 0) & (grid.b == 0)]
    assert middle.loss.item() == cnn.loss(trained, [digits])


def test_line_between_two_models_agrees_with_loss_landscapes(cnn: Objective, digits: Samples) -> None:
    """One-dimensional interpolation is right there: at 1/n, 2/n, ..., 1 of the way, without the start."""
    w = cnn.initial()
    other = w - 0.5 * cnn.full_gradient(w, [digits])
    steps = 5
    models = [copy.deepcopy(cnn.load(v)).eval() for v in (w, other)]
    metric = Loss(nn.CrossEntropyLoss(), *digits)
    theirs = loss_landscapes.linear_interpolation(*models, metric, steps, deepcopy_model=True)
    nowhere = torch.zeros_like(w)
    grid = plane(cnn, w, [digits], d1=other - w, d2=nowhere, extent=1, points=2 * steps + 1)
    ours = grid[(grid.b == 0) & (grid.a > 0)].loss
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("points", [1, 20])
def test_a_grid_without_the_model_in_its_middle_is_refused(cnn: Objective, digits: Samples, points: int) -> None:
    w = cnn.initial()
    with pytest.raises(UserError, match=f"{points} grid points"):
        plane(cnn, w, [digits], d1=w, d2=w, extent=1, points=points)
