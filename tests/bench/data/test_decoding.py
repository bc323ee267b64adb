"""Image files of every colour mode and size become RGB images of one size; memory is bounded."""

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from fedflat.bench.data.sources.image_files import decoding
from fedflat.bench.data.sources.image_files.decoding import AHEAD, ImageFiles, decode, in_background
from fedflat.bench.data.sources.image_files.image_folder import ImageFolder
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError
from tests.bench.data.image_copies import MODES, write_image

COLOUR = (200, 100, 40)


def plain(file: Path, mode: str, size: tuple[int, int]) -> Path:
    image = Image.new("RGB", size, COLOUR)
    exact = image.convert(mode, palette=Image.Palette.ADAPTIVE) if mode == "P" else image.convert(mode)
    exact.save(file, **({"quality": 100} if file.suffix == ".jpg" else {}))
    return file


@pytest.mark.parametrize(("mode", "ending"), MODES)
@pytest.mark.parametrize("size", [(40, 20), (9, 30), (16, 16)])
def test_every_mode_and_shape_becomes_rgb(mode, ending, size, tmp_path):
    image = decode(plain(tmp_path / f"image.{ending}", mode, size), 16)
    assert (image.shape, image.dtype) == ((3, 16, 16), np.uint8)
    grey = round(0.299 * COLOUR[0] + 0.587 * COLOUR[1] + 0.114 * COLOUR[2])
    expected = COLOUR if mode in ("RGB", "RGBA", "P", "CMYK") else (grey, grey, grey)
    if mode != "1":  # dithered
        assert np.abs(image.astype(int) - np.array(expected)[:, None, None]).max() <= 3


def test_the_centred_square_is_scaled(tmp_path):
    """Three vertical stripes: the middle one is the centred square."""
    pixels = np.zeros((30, 90, 3), np.uint8)
    pixels[:, 30:60] = COLOUR
    pixels[:, 60:] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    inner = decode(tmp_path / "wide.png", 15)[:, :, 1:-1]  # antialiasing mixes the columns at the border
    assert (inner == np.array(COLOUR)[:, None, None]).all()
    whole = decode(tmp_path / "wide.png")
    assert np.array_equal(whole, pixels.transpose(2, 0, 1))


def test_a_large_jpeg_is_nearly_the_same_as_if_it_were_decoded_whole(tmp_path):
    """It is decoded at a fraction of its size, but never at less than twice the size that is stored."""
    y, x = np.mgrid[:400, :600]
    pixels = np.stack([x / 600 * 255, y / 400 * 255, (x + y) / 1000 * 255], axis=2).astype(np.uint8)
    for ending in ("png", "jpg"):
        Image.fromarray(pixels).save(tmp_path / f"large.{ending}", **({"quality": 95} if ending == "jpg" else {}))
    png, jpeg = (decode(tmp_path / f"large.{ending}", 32).astype(int) for ending in ("png", "jpg"))
    assert np.abs(png - jpeg).max() <= 6


@pytest.mark.parametrize(("side", "decoded"), [(63, 63), (64, 32), (127, 64), (128, 32), (255, 64), (256, 32)])
def test_the_fraction_at_which_a_jpeg_is_decoded(side, decoded, tmp_path, monkeypatch):
    """From 4, 8 and 16 times the stored size on: the sides that remain are at least twice that size."""
    seen = []
    fit = ImageOps.fit
    monkeypatch.setattr(ImageOps, "fit", lambda image, *rest: seen.append(min(image.size)) or fit(image, *rest))
    assert decode(plain(tmp_path / "image.jpg", "RGB", (side, 2 * side)), 16).shape == (3, 16, 16)
    assert seen == [decoded]


@pytest.mark.parametrize(
    "content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40), b"\xff\xd8\xff\xe0" + bytes(40)]
)
def test_what_is_no_image_is_named(content, tmp_path):
    file = tmp_path / "broken.jpg"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.jpg' is not a readable image"):
        decode(file, 16)


def test_a_picture_bomb_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"bomb\.png' has too many pixels: "):
        decode(plain(tmp_path / "bomb.png", "RGB", (30, 30)), 16)


def test_results_come_in_order_and_few_are_computed_ahead():
    """The consumer takes one result; the others wait until it takes more."""
    begun, gate = list[int](), threading.Event()

    def work(k: int) -> int:
        begun.append(k)
        if k == 0:
            gate.wait(60)
        return k * k

    results = in_background(work, range(1000))
    threading.Timer(0, gate.set).start()
    assert next(results) == 0
    most = (AHEAD + 1) * available_cores() + 1
    assert len(begun) <= most
    assert [next(results) for _ in range(20)] == [k * k for k in range(1, 21)]
    assert len(begun) <= most + 20
    results.close()
    before = len(begun)
    assert before < 1000
    assert list(in_background(lambda k: -k, range(100))) == [-k for k in range(100)]


def test_an_error_ends_the_threads():
    def breaks(k: int) -> int:
        if k == 5:
            raise UserError("number 5")
        return k

    with pytest.raises(UserError, match="number 5"):
        list(in_background(breaks, range(1000)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decoding")]


def files(root: Path, count: int) -> ImageFiles:
    paths = [root / f"{k}.{MODES[k % len(MODES)][1]}" for k in range(count)]
    for k, path in enumerate(paths):
        write_image(path, k)
    return ImageFiles(paths, np.arange(count), [path.name for path in paths], np.arange(count) // 2)


def test_chunks_do_not_change_the_images(tmp_path, monkeypatch):
    listed = files(tmp_path, 11)
    [whole] = listed.decoded(16)
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 3 * 3 * 16 * 16)
    chunks = list(listed.decoded(16))
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 2]
    for column in ("images", "labels", "groups", "names"):
        assert np.array_equal(np.concatenate([getattr(chunk, column) for chunk in chunks]), getattr(whole, column))


def test_progress_is_shown(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(decoding, "REPORT_SECONDS", 0.0)
    with caplog.at_level("INFO", logger="fedflat.data"):
        list(files(tmp_path, 3).decoded(16))
    assert caplog.messages[0].startswith("decoded 1 of 3 images, about 0 min left")
    assert len(caplog.messages) == 3


def test_an_image_folder_of_several_sizes_has_a_stored_size(tmp_path):
    for part in ("train", "test"):
        for k, name in enumerate(("ant", "bee")):
            write_image(tmp_path / f"mine/{part}/{name}/0.png", k)
    source = ImageFolder.parse({"root": tmp_path / "mine"})
    with pytest.raises(UserError, match=r"all must have one size, unless the data set has the key size, such as"):
        source.load(tmp_path)
    data = ImageFolder.parse({"root": tmp_path / "mine", "size": 16}).load(tmp_path)
    assert data.image_shape == (3, 16, 16)
    with pytest.raises(UserError, match="size = 2"):
        ImageFolder.parse({"root": tmp_path / "mine", "size": 2})
