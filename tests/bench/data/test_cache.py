"""The cache of decoded images: built once, whole or not at all, mapped rather than read."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedflat.bench.data.cache import cached, in_chunks, is_cached, signature
from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.inventory import prepare
from fedflat.bench.data.sources.image_files.image_folder import ImageFolder
from fedflat.bench.input.errors import UserError
from tests.bench.data.published_copies import cifar_batch, images, packed, write_copy
from tests.commands import fedflat, refused, run
from tests.places import ROOT
from tests.tiers import thorough

CIFAR_BYTES = 60_000 * 3072


def samples(n: int = 30, **columns) -> Samples:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 3, 4, 5), dtype=np.uint8)
    return Samples(pixels, np.arange(n) % 10, **columns)


def never() -> Iterator[Samples]:
    raise AssertionError("decoded again")
    yield


def test_what_comes_out_is_what_went_in(tmp_path):
    given = samples(groups=np.arange(30) // 3, names=np.array([f"é{k}" for k in range(30)]))
    for size in (1, 7, 30):
        place = tmp_path / f"entry-{size}"
        found = cached(place, {"size": size}, 10, lambda size=size: in_chunks(given, size))
        for column in ("images", "labels", "groups", "names"):
            assert np.array_equal(getattr(found.samples, column), getattr(given, column))
        assert found.samples.content_hash() == given.content_hash(), "the same in chunks as in one piece"
        assert found.mean == pytest.approx(given.images.mean((0, 2, 3)) / 255, rel=1e-12)
        assert found.std == pytest.approx(given.images.std((0, 2, 3)) / 255, rel=1e-9)
        assert isinstance(found.samples.images, np.memmap)
        assert not found.samples.images.flags.writeable
        assert is_cached(place, {"size": size})


def test_a_new_folder_of_data_is_said(tmp_path, monkeypatch, caplog):
    """In another current folder, data sets are prepared again."""
    caplog.set_level("INFO", "fedflat.data")
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    for entry in ("one", "two"):
        cached(tmp_path / "data" / "cache" / entry, {}, 10, lambda: [samples()])
    said = [line for line in caplog.messages if "new folder" in line]
    assert said == [f"a new folder of data sets: '{tmp_path / 'data'}' (FEDFLAT_DATA names another one)"]


def test_it_is_built_once_and_anew_for_another_key(tmp_path):
    place = tmp_path / "entry"
    first = cached(place, {"files": [("a", 1, 2)]}, 10, lambda: [samples(30)]).samples
    assert cached(place, {"files": [["a", 1, 2]]}, 10, never).samples.content_hash() == first.content_hash()
    other = cached(place, {"files": [("a", 1, 3)]}, 10, lambda: [samples(20)])
    assert len(other.samples) == 20
    assert first.images.sum() == samples(30).images.sum(), "who has the old one mapped keeps it"
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["entry"]


@pytest.mark.parametrize("damage", ["images.u8", "labels.npy", "meta.json"])
def test_a_damaged_entry_is_built_anew(damage, tmp_path):
    place = tmp_path / "entry"
    whole = cached(place, {}, 10, lambda: [samples()]).samples.content_hash()
    file = place / damage
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert cached(place, {}, 10, lambda: [samples()]).samples.content_hash() == whole
    file.unlink()
    assert cached(place, {}, 10, lambda: [samples()]).samples.content_hash() == whole


def test_an_entry_that_something_has_written_to_is_built_anew(tmp_path):
    place = tmp_path / "entry"
    whole = cached(place, {}, 10, lambda: [samples()]).samples.content_hash()
    file = place / "images.u8"
    file.write_bytes(bytes(file.stat().st_size))
    found = cached(place, {}, 10, lambda: [samples()]).samples
    assert found.images.any()
    assert replace(found, stored_hash=None).content_hash() == whole


def flip(file: Path) -> None:
    """Change one bit in the middle of a file, as failing memory or a failing disk does: size and time stay."""
    times, content = file.stat().st_mtime_ns, bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times, times))


@pytest.mark.parametrize("name", ["images.u8", "labels.npy", "meta.json"])
def test_a_flipped_bit_is_found_and_the_images_are_decoded_again(name, tmp_path):
    words = ["data", "prepare", folder(tmp_path / "noise", count=20), "--root", tmp_path / "data"]
    first = fedflat(*words)
    [file] = tmp_path.glob(f"data/cache/noise-train-*/{name}")
    whole = file.read_bytes()
    flip(file)
    again = fedflat(*words)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert again.stderr.splitlines()[-1] == f"decoding {file.parent.name}"
    if name != "meta.json":
        assert file.read_bytes() == whole
        assert f"the cache '{file.parent}' is damaged" in again.stderr
    assert fedflat(*words).stderr == ""


def test_prepare_reads_what_is_too_large_to_be_read_by_every_command(tmp_path, monkeypatch):
    source = ImageFolder.parse({"name": "image_folder", "root": folder(tmp_path / "noise", count=20)})
    source.load(tmp_path)
    flip(next(tmp_path.glob("cache/noise-train-*/images.u8")))
    monkeypatch.setattr("fedflat.bench.data.cache.READ_BYTES", 0)
    source.load(tmp_path)
    with pytest.raises(UserError, match="the cache of noise is damaged; delete the folder"):
        list(prepare(str(tmp_path / "noise"), tmp_path, fetch=False))


def test_a_failed_build_leaves_the_old_entry_and_nothing_else(tmp_path):
    def breaks() -> Iterator[Samples]:
        yield samples()
        raise KeyboardInterrupt

    place = tmp_path / "entry"
    cached(place, {"version": 1}, 10, lambda: [samples()])
    with pytest.raises(KeyboardInterrupt):
        cached(place, {"version": 2}, 10, breaks)
    with pytest.raises(UserError, match=r"entry has the label 9 \(allowed: 0 to 8\)"):
        cached(place, {"version": 2}, 9, lambda: [samples()])
    with pytest.raises(UserError, match="entry holds no images"):
        cached(place, {"version": 2}, 10, lambda: [])
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["entry"]
    cached(place, {"version": 1}, 10, never)


def test_signatures_tell_size_and_time(tmp_path):
    file = tmp_path / "a"
    file.write_text("one", encoding="utf-8")
    before = signature([file], tmp_path)
    os.utime(file, ns=(0, 0))
    touched = signature([file], tmp_path)
    file.write_text("three", encoding="utf-8")
    os.utime(file, ns=(0, 0))
    assert len({str(s) for s in (before, touched, signature([file], tmp_path))}) == 3


def folder(root: Path, count: int = 60, side: int = 8) -> Path:
    """An image folder of noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    for part in ("train", "test"):
        for k, image in enumerate(pixels):
            place = root / part / ("ant", "bee")[k % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{k}.png")
    return root


def script(body: str, *arguments: object, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(body), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


BUILD = """
    import logging, sys, time
    from pathlib import Path
    import numpy as np
    from fedflat.bench.data.cache import cached
    from fedflat.bench.data.dataset import Samples

    def chunks():
        for k in range(20):
            yield Samples(np.full((100, 1, 8, 8), k, np.uint8), np.zeros(100, np.int64))
            print("chunk", k, flush=True)
            began = time.monotonic()
            while not Path(sys.argv[2]).exists():
                time.sleep(0.01)
                assert time.monotonic() < began + 60, "nobody said go on"

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print("hash", cached(Path(sys.argv[1]), {}, 10, chunks).samples.content_hash())
"""


def test_a_terminated_build_leaves_nothing(tmp_path):
    """Slurm ends jobs by SIGTERM; the images that are decoded by then can be many gigabytes."""
    place = tmp_path / "entry"
    terminated = script(BUILD, place, tmp_path / "never")
    assert terminated.stdout.readline() == "chunk 0\n"
    assert list(tmp_path.glob(".entry.*.tmp"))
    terminated.terminate()
    _, errors = terminated.communicate(timeout=60)
    assert terminated.returncode == -signal.SIGTERM
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_a_program_that_handles_sigterm_itself_keeps_its_handler(tmp_path):
    seen: list[object] = []
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGTERM)
        cached(tmp_path / "one", {}, 10, lambda: [seen.append(signal.getsignal(signal.SIGTERM)) or samples()])
        assert seen == [own]
    finally:
        signal.signal(signal.SIGTERM, before)
    cached(tmp_path / "other", {}, 10, lambda: [samples()])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_killed_build_is_cleared_away_by_the_next(tmp_path):
    place = tmp_path / "entry"
    killed = script(BUILD, place, tmp_path / "never")
    assert killed.stdout.readline() == "chunk 0\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not place.exists()
    assert len(list(tmp_path.glob("*.tmp"))) == 1
    out, _ = script(BUILD, place, tmp_path).communicate()
    assert out.splitlines()[-1].startswith("hash ")
    assert not list(tmp_path.glob("*.tmp"))


def test_a_second_process_waits_for_the_first(tmp_path):
    """The first goes on only when the second has said that it waits."""
    place, go_on = tmp_path / "entry", tmp_path / "go-on"
    first = script(BUILD, place, go_on)
    assert first.stdout.readline() == "chunk 0\n"
    second = script(BUILD, place, go_on)
    assert second.stderr.readline() == "waiting for another process that prepares entry\n"
    go_on.touch()
    out, _ = first.communicate()
    assert out.splitlines()[0] == "chunk 1"
    waited, errors = second.communicate()
    assert errors == ""
    assert [waited.strip()] == out.splitlines()[-1:], "the second decoded nothing, and has the same images"


UNPACK = """
    import logging, sys
    from pathlib import Path
    from fedflat.bench.data.origin import File, Origin
    from fedflat.bench.data.sources.cifar import Cifar10

    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    root = Path(sys.argv[1])
    Cifar10.origin = eval(sys.argv[2])
    print(sys.stdin.readline().strip(), flush=True)
    print("hash", Cifar10().load(root).content_hash())
"""


def test_two_processes_unpack_and_decode_once(tmp_path, monkeypatch):
    source = write_copy("cifar10", tmp_path, monkeypatch)
    packed(source, tmp_path, monkeypatch)
    both = [script(UNPACK, tmp_path, repr(source.origin), stdin=subprocess.PIPE) for _ in range(2)]
    for process in both:
        process.stdin.write("ready\n")
        process.stdin.flush()
    for process in both:
        process.stdin.close()
    outputs = [process.stdout.read() for process in both]
    lines = [line for text in outputs for line in text.splitlines()]
    assert [process.wait() for process in both] == [0, 0]
    assert sum("unpacking" in line for line in lines) == 1
    assert sum("decoding cifar10-train" in line for line in lines) == 1
    assert len({line for line in lines if line.startswith("hash")}) == 1


LIMITED = """
    import resource, sys
    from fedflat.__main__ import main

    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    main()
"""


@pytest.mark.parametrize("domains", [False, True], ids=["classes", "domains"])
def test_no_space_left(domains, tmp_path):
    """A limit on the size of files stands in for a full disk: both are an error of a write in the middle."""
    root = folder(tmp_path / "noise")
    if domains:
        for part in ("train", "test"):
            (root / part).rename(root / f"{part}ing")

    limited = tmp_path / "limited.py"
    limited.write_text(textwrap.dedent(LIMITED), encoding="utf-8")
    done = run(["python", str(limited), "data", "prepare", str(root), "--root", str(tmp_path / "data")])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("fedflat: cannot write the cache")
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "data/cache").iterdir() if not path.name.endswith(".lock")] == []
    done = fedflat("data", "prepare", root, "--root", tmp_path / "data")
    name = "noise-testing" if domains else "noise"
    assert done.stdout.startswith(f"{name}: 60 training and 60 test samples in 2 classes, hash ")


def test_a_folder_that_cannot_be_written_to(tmp_path):
    root = folder(tmp_path / "noise", count=4)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/cache").write_text("a file", encoding="utf-8")
    assert "cannot write the cache" in refused("data", "prepare", root, "--root", tmp_path / "data")


# Memory, of processes of their own.

LOADING = """
    import sys
    from pathlib import Path
    import torch
    from fedflat.bench.data.sources.cifar import Cifar10
    from tests.bench.data.published_copies import checksums

    def memory(name):
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        return int(status[name].split()[0]) * 1024

    root = Path(sys.argv[1])
    Cifar10.origin = checksums(Cifar10.origin, root)
    before = memory("VmRSS")
    parts = Cifar10().load(root).on(torch.device("cpu"))
    total = sum(int(part.images.numpy().sum(dtype="int64")) for part in parts)
    print(total, memory("VmRSS") - before, memory("VmHWM") - before)
"""


@thorough
@pytest.mark.long
def test_loading_cifar_costs_little_more_than_its_pixels(tmp_path):
    """With every pixel looked at, and even when it has to be decoded: at most 1.3 times the bytes of its pixels.

    The peak is VmHWM, which begins anew with the process's program; ru_maxrss would begin at this process's own peak.
    Freed batches go back to the system at once: whether glibc keeps some of their 30 MB each is a matter of chance.
    """
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    for k in range(1, 6):
        cifar_batch(tmp_path / f"cifar-10-batches-py/data_batch_{k}", 10_000, 10, k)
    cifar_batch(tmp_path / "cifar-10-batches-py/test_batch", 10_000, 10, 6)
    totals = set()
    for _ in ("decoding", "mapping"):
        out, errors = script(LOADING, tmp_path, env=environment).communicate()
        assert "Error" not in errors, errors
        total, stays, peak = map(int, out.split())
        assert stays < 1.3 * CIFAR_BYTES
        assert peak < 1.3 * CIFAR_BYTES
        totals.add(total)
    assert totals == {sum(int(images(10_000, 3072, seed=k).sum()) for k in range(1, 7))}


STREAMING = """
    import resource, sys
    from pathlib import Path
    import numpy as np, torch
    from fedflat.bench.data.cache import cached
    from fedflat.bench.data.dataset import Dataset, Samples

    N, CHUNK = 65_536, 2048
    noise = np.random.default_rng(0).integers(0, 256, (CHUNK, 3, 32, 32), dtype=np.uint8)

    def chunks():
        for k in range(N // CHUNK):
            yield Samples(noise, np.full(CHUNK, k % 10))

    entry = cached(Path(sys.argv[1]), {}, 10, chunks)
    test = entry.samples[:10]
    data, _ = Dataset("large", entry.samples, test, 10, 255.0, entry.mean, entry.std).on(torch.device("cpu"))
    torch.set_num_threads(1)
    data.batch(torch.arange(500))

    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    used = int(status["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + 50 * 2**20,) * 2)
    assert N * 3072 > 3.8 * 50 * 2**20
    total = sum(float(x.double().mean()) * len(y) for x, y in data.batches(500)) / N
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    again = sum(float(data.batch(index)[0].double().mean()) * len(index) for index in order.split(500)) / N
    try:
        np.array(entry.samples.images)
    except MemoryError:
        print("too large for memory", abs(total) < 1e-6, abs(again) < 1e-6)
"""


def test_a_data_set_larger_than_memory_is_streamed(tmp_path):
    """A limit on the process's own memory stands in for a small machine: 200 MB of pixels, 50 MiB to spare."""
    out, errors = script(STREAMING, tmp_path / "large").communicate()
    assert out == "too large for memory True True\n", errors
