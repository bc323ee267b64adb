"""The same on a GPU: golden trajectories, the same bits twice, and after an interruption. Skipped without a GPU."""

import pytest
import torch

from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.methods.catalog import CATALOG
from tests.bench.methods.test_golden import FILES, replay
from tests.bench.training.small_runs import check_resume

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_golden_trajectories(file):
    assert replay(file, torch.device("cuda")) < 1e-8


@pytest.mark.parametrize("method", sorted(CATALOG))
def test_same_bits_twice_and_after_an_interruption(method, tmp_path, monkeypatch):
    check_resume(method, prepare_device("cuda", 1), tmp_path, monkeypatch)


@pytest.mark.parametrize("augmentation", [["standard", "mixup"], [{"name": "cutout", "size": 4}, "fl_simulator"]])
def test_dropout_and_augmentations_repeat_themselves(augmentation, tmp_path, monkeypatch):
    changes = {"model": "cnn_emnist", "training.augmentation": augmentation}
    check_resume("fedsam", prepare_device("cuda", 1), tmp_path, monkeypatch, **changes)
