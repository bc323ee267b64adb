"""The plain reference computes the same algorithms as the engine, and sees the images that it should."""

import numpy as np
import pytest
import torch

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.simulation import simulate
from tests.benchmarks.plain import PADDING, PLAIN, ClientImages, Plain
from tests.benchmarks.workload import HYPERPARAMETERS, Workload

ROUNDS = [[0, 1, 2], [0, 2], [1, 2]]
SAMPLES = 12


@pytest.mark.parametrize("changes", [{}, {"clip": 0.5}, {"clip": 0.5, "local_momentum": 0.9}], ids=str)
@pytest.mark.parametrize("method", PLAIN)
def test_it_follows_the_engine(method, changes, digits):
    """Full batches and no augmentation, in float64: three rounds, partial participation, clip off and at work, and
    momentum."""
    images, labels = digits
    settings = StepSettings(lr=0.1, lr_decay=0.9, weight_decay=1e-2, **changes)
    parts = [slice(i * SAMPLES, (i + 1) * SAMPLES) for i in range(4)]
    run = PLAIN[method](
        Workload("cnn_gn", 4, SAMPLES, SAMPLES).module(0).double(),
        [ClientImages(images[part].numpy(), labels[part].numpy()) for part in parts],
        settings,
        HYPERPARAMETERS[method],
        3,
        SAMPLES,
    )
    engine = simulate(
        method,
        Workload("cnn_gn", 4, SAMPLES, SAMPLES).module(0).double(),
        [(images[part], labels[part]) for part in parts],
        ROUNDS,
        local_steps=3,
        hyperparameters=HYPERPARAMETERS[method],
        keep_every_round=True,
        **settings.model_dump(include={"lr", "lr_decay", "weight_decay", "clip", "local_momentum"}),
    )
    losses = []
    for active, w in zip(ROUNDS, engine.global_params, strict=True):
        before = run.w
        losses.append(run.round(active))
        assert torch.norm(w - before) > 1e-2, "the model moves"
        assert torch.norm(run.w - w) < 1e-9 * torch.norm(w)
    assert losses == pytest.approx(engine.history["local_loss"].tolist(), rel=1e-9)


def test_images_are_flipped_and_shifted_one_by_one():
    """Of a ramp, half come flipped, and half within a border of zeros."""
    image = np.arange(1.0, 26.0, dtype=np.float32).reshape(1, 1, 5, 5)
    plain, augmented = (ClientImages(image, np.array([3]), stream) for stream in (None, np.random.default_rng(0)))
    assert torch.equal(plain[0][0], torch.from_numpy(image[0]))
    drawn = [augmented[0][0] for _ in range(400)]
    inside = [x for x in drawn if (x > 0).all()]
    flipped = [x for x in inside if x[0, 0, 0] > x[0, 0, -1]]
    not_shifted = 0.5 + 0.5 / (2 * PADDING + 1) ** 2
    assert len(inside) / len(drawn) == pytest.approx(not_shifted, abs=0.08)
    assert len(flipped) / len(inside) == pytest.approx(0.5, abs=0.1)
    assert {x.shape for x in drawn} == {(1, 5, 5)}


def test_a_round_uses_the_first_of_each_client_s_images():
    run = Plain(Workload("mlp", 3, images=20, batch=8, augmented=False), "fedavg", torch.device("cpu"))
    run.round([0, 2], images=8)
    assert [len(client) for client in run._run.clients] == [8, 8, 8]
    assert run._run.steps == 1
