"""Small training sets: equally many samples of each class, others for validation, and the same draw always."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedflat.bench.data.sources import cifar, parse_source
from fedflat.bench.data.sources.fixed_draw import divided
from fedflat.bench.input.errors import UserError
from tests.bench.data import published_copies
from tests.bench.data.published_copies import load, write_copy


@given(
    st.lists(st.integers(30, 60), min_size=2, max_size=5),
    st.integers(1, 10),
    st.one_of(st.none(), st.integers(1, 20)),
    st.randoms(use_true_random=False),
)
def test_every_sample_is_in_one_part(sizes, each, of_each, random):
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(labels)
    classes = len(sizes)
    judging = None if of_each is None else of_each * classes
    parts = divided(np.array(labels), each * classes, "draw", judging)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    counts = [np.bincount(np.array(labels)[part], minlength=classes).tolist() for part in parts]
    assert counts[0] == [each] * classes
    if of_each is None:
        assert abs(len(parts[1]) - len(parts[2])) <= 1
        assert all(abs(a - b) <= 2 for a, b in zip(counts[1], counts[2], strict=True))
    else:
        assert counts[1] == [of_each] * classes


def test_some_images_of_cifar10_are_trained_and_others_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_copies, "TRAIN", 600)
    monkeypatch.setattr(cifar, "JUDGING", 200)
    write_copy("cifar10", tmp_path, monkeypatch)
    whole, source = load("cifar10", tmp_path), parse_source({"name": "cifar10", "images": 100})
    data = source.load(tmp_path)
    assert (source.label, source.has_validation, data.name) == ("cifar10-100", True, "cifar10-100")
    assert (len(data.train), len(data.validation), len(data.test)) == (100, 200, 20)
    assert np.bincount(data.train.labels).tolist() == [10] * 10
    assert np.bincount(data.validation.labels).tolist() == [20] * 10
    images = {image.tobytes() for image in data.train.images}
    assert len(images) == 100
    assert images < {image.tobytes() for image in whole.train.images}
    assert not images & {image.tobytes() for image in data.validation.images}
    assert data.test.content_hash() == whole.test.content_hash()
    assert (data.mean, data.std) == (whole.mean, whole.std)
    assert source.load(tmp_path).content_hash() == data.content_hash() != whole.content_hash()


def test_a_draw_of_other_sizes_is_refused() -> None:
    with pytest.raises(UserError, match=r"images = 150"):
        parse_source({"name": "cifar10", "images": 150})
    with pytest.raises(UserError, match=r"images = 45100"):
        parse_source({"name": "cifar100", "images": 45_100})
