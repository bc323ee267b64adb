"""Directions have the filters' norms, layer by layer; three models span an orthonormal plane that holds them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedflat.analysis.measures.directions import (
    Family,
    filter_normalised_directions,
    gaussian_directions,
    plane_through,
)
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import torch_stream
from tests.conftest import seeded

STREAM = torch_stream(0, "test")


@pytest.mark.parametrize("biases", ["zero", "normalised"])
def test_directions_are_the_definition_s_layer_by_layer(cnn: Objective, trained: Tensor, biases) -> None:
    """Written out: d_ij ‖θ_ij‖ / ‖d_ij‖ for filter j of layer i, the Gaussian numbers drawn in the layers' order."""
    found = filter_normalised_directions(cnn.layout, trained, STREAM, biases=biases)
    for direction, drawn in zip(found, gaussian_directions(trained, 2, STREAM), strict=True):
        parts, noise, weights = (cnn.layout.split(flat) for flat in (direction, drawn, trained))
        for name, theta in weights.items():
            rows = [slice(None)] if theta.dim() <= 1 else range(len(theta))
            for j in rows:
                d, t = noise[name][j], theta[j]
                factor = 0 if theta.dim() <= 1 and biases == "zero" else np.linalg.norm(t) / np.linalg.norm(d)
                np.testing.assert_allclose(parts[name][j], factor * d, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("biases", ["zero", "normalised"])
def test_orthogonal_directions_keep_the_norms_of_the_filters(cnn: Objective, trained: Tensor, biases) -> None:
    plain = filter_normalised_directions(cnn.layout, trained, STREAM, biases=biases)
    first, second = filter_normalised_directions(cnn.layout, trained, STREAM, biases=biases, orthogonal=True)
    assert torch.equal(first, plain[0])
    assert abs(float(torch.dot(*plain))) > 1e-3
    assert abs(float(first @ second)) < 1e-10
    torch.testing.assert_close(second.norm(), plain[1].norm())


def test_a_filter_of_zeros_stays_in_place(cnn: Objective, trained: Tensor) -> None:
    w = trained.clone()
    cnn.layout.split(w)["conv1.weight"][0] = 0
    for direction in filter_normalised_directions(cnn.layout, w, STREAM):
        assert not cnn.layout.split(direction)["conv1.weight"][0].any()


def test_a_filter_of_one_number_has_no_second_direction() -> None:
    narrow = seeded(torch.nn.Linear, 1, 3)
    w = torch.arange(1.0, 7.0, dtype=torch.float64)
    first, second = filter_normalised_directions(narrow.layout, w, STREAM, orthogonal=True)
    torch.testing.assert_close(first.abs(), torch.tensor([1.0, 2, 3, 0, 0, 0], dtype=torch.float64))
    assert not second.any()


def test_models_share_the_draws_and_the_two_directions_differ(cnn: Objective, trained: Tensor) -> None:
    first, second = filter_normalised_directions(cnn.layout, trained, STREAM)
    doubled, _ = filter_normalised_directions(cnn.layout, 2 * trained, STREAM)
    torch.testing.assert_close(doubled, 2 * first)
    assert abs(float(torch.cosine_similarity(first, second, dim=0))) < 0.2


@given(seed=st.integers(0, 2**20), size=st.integers(3, 40), apart=st.floats(1e-3, 1e3))
def test_a_plane_holds_its_three_models(seed: int, size: int, apart: float) -> None:
    draws = torch.randn(3, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    models = draws[0] + apart * draws
    family, places = plane_through(*models)
    u, v = family.directions
    for value, expected in ((u @ u, 1), (v @ v, 1), (u @ v, 0)):
        assert float(value) == pytest.approx(expected, abs=1e-9)
    for model, place in zip(models, places, strict=True):
        torch.testing.assert_close(family.at(place), model, rtol=1e-9, atol=1e-9 * apart)
    distances = [float((a - b).norm()) for a, b in ((models[0], models[1]), (models[1], models[2]))]
    assert distances == pytest.approx([np.hypot(*np.subtract(*places[i : i + 2])) for i in (0, 1)])


def test_three_models_on_a_line_span_no_plane() -> None:
    w = torch.arange(5.0)
    for models in ((w, w + 1, w + 3), (w, w, w + 1), (w, w + w, w)):
        with pytest.raises(UserError, match="they do not define a plane"):
            plane_through(*models)


def test_a_family_is_at_its_model_where_coordinates_are_zero() -> None:
    w, d = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    family = Family(w, (d, -d))
    assert torch.equal(family.at((0.0, 0.0)), w)
    torch.testing.assert_close(family.at((2.0, 0.5)), w + 1.5 * d)
