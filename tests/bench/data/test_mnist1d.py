"""MNIST-1D: the signals of the authors' package, and the networks for signals."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat.bench.data.sources import mnist1d, parse_source
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.training.run_setup import RunSetup


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


def test_the_package_generates_the_known_signals(root):
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - the state that must stay
    source = parse_source("mnist1d")
    assert [*source.check(root)] == ["mnist1d: the package generates the expected signals, nothing to do"]
    data = source.load(root)
    assert (len(data.train), len(data.test), data.classes, data.image_shape) == (4000, 1000, 10, (1, 40))
    assert data.train.images.dtype == np.float32
    every = np.concatenate([data.train.images, data.test.images])
    assert abs(every.mean()) < 1e-5
    assert abs(every.std() - 1) < 1e-5
    assert states == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    assert not list(root.rglob("*.pkl"))


def test_signals_of_another_package_are_not_stored(tmp_path, monkeypatch):
    made = {**mnist1d._made()}
    made["x_test"] = made["x_test"] * 2
    monkeypatch.setattr(mnist1d, "_made", lambda: made)
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"the installed package generates other signals \(.*, not adfb238492514926"
        ):
            parse_source("mnist1d").load(tmp_path)
    assert not [*tmp_path.rglob("meta.json")]


def test_networks_for_signals():
    for choice, parameters in (("cnn1d", 5218), ({"name": "mlp", "hidden": []}, 410)):
        model = build_model(parse_model(choice), (40,), 10, 0)
        assert sum(p.numel() for p in model.parameters()) == parameters
        assert model(torch.zeros(2, 40)).shape == (2, 10)
    assert build_model(parse_model("mlp"), (3, 4, 4), 5, 0)(torch.zeros(2, 3, 4, 4)).shape == (2, 5)
    of_images = build_model(parse_model("cnn2d"), (3, 32, 32), 10, 0)
    assert sum(p.numel() for p in of_images.parameters()) == 49_050
    assert of_images(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    with pytest.raises(UserError, match=r"model cnn1d needs signals of at least 3 values.* shape \(1, 8, 8\)"):
        build_model(parse_model("cnn1d"), (1, 8, 8), 10, 0)
    for name in ("lenet", "cnn_gn", "cnn_emnist", "resnet18_gn", "cnn2d"):
        with pytest.raises(UserError, match=rf"model {name} needs images, .* not inputs of the shape \(1, 40\)"):
            build_model(parse_model(name), (1, 40), 10, 0)


def test_augmentations_of_images_are_refused(root, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(root))
    training = {"rounds": 1, "local_epochs": 1, "batch_size": 32, "lr": 0.1, "augmentation": "flip"}
    config = RunConfig.parse(
        {
            "dataset": "mnist1d",
            "model": "cnn1d",
            "partition": {"name": "dirichlet", "alpha": 0.1, "clients": 10},
            "participation": {"active": 2},
            "method": "fedavg",
            "training": training,
            "seed": 0,
        }
    )
    with pytest.raises(UserError, match=r"augmentation flip needs images, .*mnist1d has the shape \(1, 40\)"):
        RunSetup.build(config, torch.device("cpu"))


def test_signals_are_a_fixed_draw_by_class_and_no_signal_is_in_two_subsets(root):
    data, whole = (parse_source({"name": "mnist1d", **options}).load(root) for options in ({"signals": 1000}, {}))
    assert (len(data.train), len(data.validation), len(data.test)) == (1000, 1500, 2500)
    assert np.bincount(data.train.labels).tolist() == [100] * 10
    halves = [np.bincount(part.labels, minlength=10) for part in (data.validation, data.test[:1500])]
    assert np.abs(halves[0] - halves[1]).max() <= 1
    parts = [part.images.reshape(-1, 40) for part in (data.train, data.validation, data.test)]
    every = np.concatenate([whole.train.images, whole.test.images]).reshape(-1, 40)
    assert np.array_equal(np.unique(np.concatenate(parts), axis=0), np.unique(every, axis=0))
    assert data.content_hash() == "d15043606274b7ac"
    assert (data.mean, data.std, data.scale) == (whole.mean, whole.std, whole.scale)


def test_noise_changes_the_stated_share_of_training_labels_only(root):
    clean, noisy, other = (
        parse_source({"name": "mnist1d", "signals": 1000, **options}).load(root)
        for options in ({}, {"noise": 0.2}, {"noise": 0.2, "noise_seed": 1})
    )
    assert np.array_equal(noisy.true_labels, clean.train.labels)
    wrong = noisy.train.labels != noisy.true_labels
    assert 0.17 < wrong.mean() < 0.23
    assert set((noisy.train.labels - noisy.true_labels)[wrong] % 10) == set(range(1, 10)), "each other class"
    assert not np.array_equal(other.train.labels, noisy.train.labels)
    for subset in ("validation", "test"):
        assert getattr(noisy, subset).content_hash() == getattr(clean, subset).content_hash()
    assert len({data.content_hash() for data in (clean, noisy, other)}) == 3
    assert len({data.name for data in (clean, noisy, other)}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signals": 995}, "signals = 995"),
        ({"signals": 4000}, "signals = 4000"),
        ({"noise": 1}, "noise = 1"),
        ({"noise_seed": 1}, "noise_seed = 1 without noise"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        parse_source({"name": "mnist1d", **options})


def test_the_identity_of_all_signals_has_no_new_keys():
    assert parse_source("mnist1d").model_dump(exclude_none=True) == {"name": "mnist1d"}
