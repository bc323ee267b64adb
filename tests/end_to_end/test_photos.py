"""Real 32×32 photographs and released splits of them. They are not in the repository: skipped where absent.

They are in the folder that FEDFLAT_TEST_PHOTOS names; its default is ../shared/datasets, next to the repository.
"""

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedflat.bench.data.partitions.from_file import FromFile
from fedflat.bench.data.sources.image_files.image_folder import ImageFolder
from fedflat.bench.numerics.streams import numpy_stream
from tests.places import ROOT

SHARED = Path(os.environ.get("FEDFLAT_TEST_PHOTOS") or ROOT / "../shared/datasets")
PHOTOS, SPLITS = SHARED / "cifar10_jpeg.tar.xz", SHARED / "lda_splits"

pytestmark = [pytest.mark.skipif(not PHOTOS.exists(), reason=f"needs {PHOTOS}"), pytest.mark.long]


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("photos") / "cifar10_jpeg"
    with tarfile.open(PHOTOS) as archive:
        archive.extractall(root, filter="data")
    yield root
    shutil.rmtree(root)  # 60,000 files, which pytest would keep for three sessions


def partition(alpha: str) -> dict[str, object]:
    return {
        "name": "from_file",
        "file": str(SPLITS / f"cifar10_alpha_{alpha}.npz"),
        "order": {"file": str(SPLITS / "cifar10_train_labels.npz")},
    }


def test_released_splits_of_real_photographs(photos, tmp_path):
    data = ImageFolder(root=photos).load(tmp_path)
    assert (len(data.train), len(data.test), data.classes) == (50_000, 10_000, 10)
    assert data.mean == pytest.approx((0.4913, 0.4821, 0.4465), abs=1e-4)
    assert data.std == pytest.approx((0.2452, 0.2428, 0.2606), abs=1e-4)
    for alpha, classes in (("0", 1.0), ("0.05", 1.32), ("0.5", 3.57), ("100", 9.9)):
        split = FromFile.parse(partition(alpha)).split(data.train, numpy_stream(0, "partition"))
        assert len(split) == 100
        assert sum(map(len, split)) == 49_999
        assert np.mean([len(set(data.train.labels[i])) for i in split]) == pytest.approx(classes, abs=0.005)
