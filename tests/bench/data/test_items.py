"""Data sets that give samples one by one: torch's, and others like those of Hugging Face."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

import fedflat
from fedflat.bench.data.items import arrays_of
from fedflat.bench.input.errors import UserError

X = np.random.default_rng(0).random((30, 6)).astype(np.float32)
Y = np.arange(30) % 3


class Pairs(Dataset):
    """A torch `Dataset`."""

    def __init__(self, sample=lambda k: (torch.from_numpy(X[k]), Y[k]), length: int = len(X)) -> None:
        self.sample, self.length, self.reads = sample, length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, k: int):
        self.reads += 1
        return self.sample(k)


def mapping(k: int) -> dict[str, object]:
    """A sample as a data set of Hugging Face gives it."""
    return {"features": X[k].tolist(), "label": int(Y[k])}


def linear() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(6, 3)


@pytest.mark.parametrize("sample", [Pairs().sample, mapping])
def test_a_simulation_is_that_of_the_arrays(sample):
    model = linear()
    data = Pairs(sample)
    how = {"partition": {"name": "iid", "clients": 3}, "rounds": 2, "local_epochs": 1, "batch_size": 4, "lr": 0.1}
    one, two = (fedflat.simulate("fedavg", model, own, test=own, **how) for own in ((X, Y), data))
    assert torch.equal(one.global_params[-1], two.global_params[-1])
    assert one.history["test_accuracy"].tolist() == two.history["test_accuracy"].tolist()
    assert data.reads == 2 * 30  # once as clients, once as test


def test_each_client_may_be_a_data_set():
    model = linear()
    both = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    clients = [Subset(both, range(10)), Subset(both, range(10, 30))]
    how = {"rounds": 1, "local_steps": 2, "lr": 0.1}
    one = fedflat.simulate("fedavg", model, clients, **how)
    two = fedflat.simulate("fedavg", model, [(X[:10], Y[:10]), (X[10:], Y[10:])], **how)
    assert torch.equal(one.global_params[-1], two.global_params[-1])


def test_images_are_bytes_with_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    x, y = arrays_of(Pairs(lambda k: {"img": Image.fromarray(pixels[k]), "label": k}, 2))
    assert x.dtype == np.uint8
    assert np.array_equal(x, pixels.transpose(0, 3, 1, 2))
    assert y.tolist() == [0, 1]
    assert arrays_of(Pairs(lambda k: (Image.fromarray(pixels[k, ..., 0]), k), 2))[0].shape == (2, 1, 4, 5)


def test_a_tensor_data_set_is_not_copied():
    x = torch.from_numpy(X)
    assert arrays_of(TensorDataset(x, torch.from_numpy(Y)))[0] is x


def fails(k: int) -> None:
    raise KeyError(k)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Pairs(lambda k: (X[k][: 5 + k % 2], 0)), "sample 1 has the shape [6], but that of sample 0 [5]"),
        (Pairs(lambda k: {"text": "abc", "label": 1}), "sample 0 has no input of numbers and label"),
        (Pairs(lambda k: {"a": 1, "b": 2, "label": 1}), "with the entries a, b, label (allowed: a pair of input and"),
        (Pairs(lambda k: (X[k], 0.5)), "sample 0 has no input of numbers and label, a whole number"),
        (Pairs(lambda k: X[k]), "(allowed: a pair of input and label, or a mapping"),
        (Pairs(fails), "sample 0 cannot be read: KeyError: 0"),
        (Pairs(length=0), "(allowed: an object with a length and samples, at least one)"),
    ],
)
def test_other_samples_are_one_line(data, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        fedflat.simulate("fedavg", linear(), [data], rounds=1, local_steps=1, lr=0.1)
    assert "\n" not in str(error.value)
