"""Data sets with label maps: in memory, in the cache, on a device, selected; scenes of digits; moved with images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from fedflat.bench.data.augmentation import Context, Flip, ScaledCrop
from fedflat.bench.data.cache import cached, in_chunks
from fedflat.bench.data.dataset import Dataset, Samples
from fedflat.bench.data.label_maps import IGNORED, UNLABELLED, main_classes
from fedflat.bench.data.sources import parse_source
from fedflat.bench.input.errors import UserError

CPU, CLASSES = torch.device("cpu"), 5


def samples(n: int = 12) -> Samples:
    stream = np.random.default_rng(3)
    images = stream.integers(0, 256, (n, 3, 4, 6), dtype=np.uint8)
    maps = stream.integers(0, CLASSES + 1, (n, 4, 6)).astype(np.uint8)
    maps[maps == CLASSES] = UNLABELLED
    return Samples(images, main_classes(maps, CLASSES), np.arange(n) % 3, maps=maps)


def dataset(train: Samples, test: Samples) -> Dataset:
    return Dataset("scenes", train, test, CLASSES, 255.0, (0.5,) * 3, (0.25,) * 3)


def test_the_label_of_an_image_is_its_most_frequent_class():
    given = samples()
    for labels, label in zip(given.maps, given.labels, strict=True):
        assert label == np.bincount(labels[labels != UNLABELLED], minlength=CLASSES).argmax()
    without = main_classes(given.maps, CLASSES, background=0)
    assert (without > 0).all()
    assert main_classes(np.full((1, 2, 2), UNLABELLED, np.uint8), CLASSES).tolist() == [0]


def test_the_cache_stores_them(tmp_path):
    given = samples()
    for size in (5, 12):
        found = cached(tmp_path / f"entry-{size}", {}, CLASSES, lambda size=size: in_chunks(given, size)).samples
        assert isinstance(found.maps, np.memmap)
        assert np.array_equal(found.maps, given.maps)
        assert found.content_hash() == given.content_hash()
        assert found.is_intact()
    assert given.content_hash() != replace(given, maps=None).content_hash()
    changed = given.maps.copy()
    changed[0, 0, 0] ^= 1
    assert given.content_hash() != replace(given, maps=changed).content_hash()


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (np.full((12, 4, 6), CLASSES, np.uint8), r"has pixels with the label 5 \(allowed: 0 to 4, and 255\)"),
        (np.zeros((12, 4, 5), np.uint8), r"label maps of the shape \(12, 4, 5\) for images of the shape"),
    ],
)
def test_wrong_label_maps_are_refused(tmp_path, maps, message):
    with pytest.raises(UserError, match=message):
        cached(tmp_path / "entry", {}, CLASSES, lambda: [replace(samples(), maps=maps)])
    assert not (tmp_path / "entry").exists()


def test_batches_are_the_same_however_samples_are_selected():
    whole, chosen = samples(), np.arange(12) % 3 != 1
    copied = dataset(whole[chosen], whole[~chosen])
    mapped = dataset(whole.selected(chosen), whole.selected(~chosen))
    expected = torch.from_numpy(whole.maps[chosen]).long()
    expected[expected == UNLABELLED] = IGNORED
    for data in (copied, mapped):
        assert data.has_label_maps
        train, test = data.on(CPU)
        assert torch.equal(torch.cat([y for _, y in train.batches(3)]), expected)
        x, y = train.batch(torch.tensor([2, 0]))
        assert torch.equal(y, expected[[2, 0]])
        assert torch.equal(x, train.inputs(torch.from_numpy(whole.images[chosen][[2, 0]])))
        assert len(test) == (~chosen).sum()
    assert mapped.on(CPU)[0].maps is mapped.on(CPU)[1].maps, "one copy of the whole"


def test_named_parts_of_the_test_images_are_part_of_the_content():
    whole = dataset(samples(), samples(6))
    halves = {"seen": np.arange(3), "unseen": np.arange(3, 6)}
    hashes = {replace(whole, test_parts=parts).content_hash() for parts in ({}, halves, {"seen": np.arange(6)})}
    assert len(hashes) == 3


# --- Scenes of digits


def test_scenes_of_digits():
    data = parse_source("digit_scenes").load()
    train, test = data.train, data.test
    assert (len(train), len(test), data.classes, data.image_shape) == (600, 298, 11, (3, 32, 32))
    assert set(np.unique(train.maps)) == {*range(11), UNLABELLED}
    for k in (0, 123, 599):
        assert train.labels[k] in train.maps[k]
        assert train.labels[k] > 0
        assert 1 <= len(set(np.unique(train.maps[k])) - {0, UNLABELLED}) <= 2
    seen, unseen = (set(test.groups[places]) for places in data.test_parts.values())
    assert seen == set(train.groups)
    assert unseen == {3}
    assert np.array_equal(np.sort(np.concatenate(list(data.test_parts.values()))), np.arange(len(test)))
    assert data.content_hash() == parse_source("digit_scenes").load().content_hash()
    other = parse_source({"name": "digit_scenes", "unseen": "red"}).load()
    assert set(other.test.groups[other.test_parts["unseen"]]) == {1}
    assert np.array_equal(other.train.maps, train.maps)


def test_digits_are_where_their_labels_are():
    """In scenes on dark ground, labelled pixels of digits are brighter than those of the background."""
    train = parse_source({"name": "digit_scenes", "unseen": "inverted"}).load().train
    for image, labels in zip(train.images[:100].astype(int).sum(1), train.maps[:100], strict=True):
        assert image[(labels > 0) & (labels < UNLABELLED)].min() > image[labels == 0].max()


# --- Augmentations


def drawn_images(n: int = 4, height: int = 9, width: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (n, height, width), generator=stream)
    return torch.randn(n, 3, height, width, generator=stream, dtype=torch.float64), y


def context(x: torch.Tensor) -> Context:
    return Context(CLASSES, tuple(x.shape[1:]), torch.zeros(3, 1, 1))


def test_images_and_labels_are_flipped_together():
    x, y = drawn_images()
    chosen = torch.tensor([True, False, True, False])
    moved, labels = Flip().apply(x, y, context(x), {"chosen": chosen})
    for k in range(4):
        assert torch.equal(moved[k], x[k].flip(2) if chosen[k] else x[k])
        assert torch.equal(labels[k], y[k].flip(1) if chosen[k] else y[k])


@pytest.mark.parametrize("size", [None, (6, 16)])
def test_scaled_crops_are_scipys(size):
    x, y = drawn_images()
    crop = ScaledCrop(size=size)
    drawn = crop.draw(np.random.default_rng(1), [4], x.shape[1:])
    moved, labels = crop.apply(x, y, context(x), {name: torch.from_numpy(values) for name, values in drawn.items()})
    height, width = crop.output_shape(tuple(x.shape[1:]))[1:]
    assert moved.shape == (4, 3, height, width)
    assert labels.shape == (4, height, width)
    for k in range(4):
        scale, place = 1 + drawn["growth"][k], drawn["place"][k]
        assert 0.5 <= scale <= 1.5
        axes = [
            (np.arange(length) + 0.5 + share * (full * scale - length)) / scale - 0.5
            for length, full, share in zip((height, width), (9, 12), place, strict=True)
        ]
        grid = np.meshgrid(*axes, indexing="ij")
        inside = np.all([(at > -0.5) & (at < full - 0.5) for at, full in zip(grid, (9, 12), strict=True)], axis=0)
        for c in range(3):
            expected = np.where(inside, ndimage.map_coordinates(x[k, c].numpy(), grid, order=1, mode="nearest"), 0)
            assert moved[k, c].numpy() == pytest.approx(expected, abs=1e-12)
        nearest = [np.floor(at + 0.5).clip(0, full - 1).astype(int) for at, full in zip(grid, (9, 12), strict=True)]
        assert np.array_equal(labels[k].numpy(), np.where(inside, y[k].numpy()[tuple(nearest)], IGNORED))


def test_draws_of_zero_keep_the_image():
    x, y = drawn_images()
    zero = {"growth": torch.zeros(4), "place": torch.zeros(4, 2)}
    moved, labels = ScaledCrop().apply(x, y, context(x), zero)
    assert torch.equal(moved, x)
    assert torch.equal(labels, y)


def test_scales_in_the_wrong_order_are_refused():
    with pytest.raises(UserError, match=r"scaled_crop: least = 2 \(allowed: at most `most`, 1\.5\)"):
        ScaledCrop.parse({"least": 2})
