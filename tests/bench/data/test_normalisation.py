"""CIFAR's normalisation constants are those of the released codes, transcribed a second time from their sources."""

import numpy as np
import pytest
import torch

from fedflat.bench.data.sources import parse_source
from tests.bench.data.published_copies import write_copy

PUBLISHED = {
    ("cifar10", "fl_simulator"): ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    ("cifar10", "official_fedgf"): ((0.491, 0.482, 0.446), (0.247, 0.243, 0.261)),
    ("cifar10", "caldarola"): ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ("cifar100", "fl_simulator"): ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    ("cifar100", "official_fedgf"): ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    ("cifar100", "caldarola"): ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
"""(mean, standard deviation) of red, green and blue, in units of 255: FL-Simulator's (which FedLESAM's release shares),
FedGF's official code's, and Caldarola et al.'s."""


@pytest.mark.parametrize(("name", "code"), PUBLISHED, ids="-".join)
def test_inputs_are_normalised_as_the_named_code_does(name, code, tmp_path, monkeypatch):
    write_copy(name, tmp_path, monkeypatch)
    data = parse_source({"name": name, "normalisation": code}).load(tmp_path)
    mean, std = PUBLISHED[name, code]
    assert (data.mean, data.std) == (mean, std)
    x, _ = next(data.on(torch.device("cpu"))[1].batches(len(data.test)))
    expected = (data.test.images / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_without_a_word_it_is_fl_simulators(name, tmp_path, monkeypatch):
    write_copy(name, tmp_path, monkeypatch)
    data = parse_source(name).load(tmp_path)
    assert (data.mean, data.std) == PUBLISHED[name, "fl_simulator"]


def test_measured_is_that_of_the_training_images(tmp_path, monkeypatch):
    write_copy("cifar10", tmp_path, monkeypatch)
    data = parse_source({"name": "cifar10", "normalisation": "measured"}).load(tmp_path)
    pixels = np.asarray(data.train.images) / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)), rel=1e-12)
    assert data.std == pytest.approx(pixels.std((0, 2, 3)), rel=1e-9)
    x, _ = next(data.on(torch.device("cpu"))[0].batches(len(data.train)))
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-4
