"""Data sets of image files, from tiny copies in their true formats."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.bench.data.inventory import check, listing, prepare
from fedflat.bench.data.partitions.by_group import ByGroup
from fedflat.bench.data.sources import SOURCES, parse_source
from fedflat.bench.data.sources.image_files.decoding import IMAGENET_MEAN, decode
from fedflat.bench.data.sources.image_files.domainnet import DomainNet
from fedflat.bench.data.sources.image_files.domains import PACS, OfficeHome, PublishedDomains
from fedflat.bench.data.sources.image_files.published_images import PublishedImages, compared
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_directory import RunDirectory
from tests.bench.data.image_copies import ENTRIES, SIZE, entry, load
from tests.bench.data.scene_copies import ENTRIES as SCENES
from tests.commands import fedflat
from tests.problems import train

CPU = torch.device("cpu")
Roots = Callable[[str], Path]
CLIENTS = {"landmarks_user_160k": 3, "domainnet": 5, "domain_folder": 2}


@pytest.mark.parametrize("name", ENTRIES)
def test_two_federated_rounds_an_evaluation_and_an_analysis(name, image_roots: Roots, tmp_path, monkeypatch):
    root = image_roots(name)
    monkeypatch.setenv("FEDFLAT_DATA", str(root))
    config = {
        "dataset": entry(name, root),
        "model": {"name": "mlp", "hidden": [4]},
        "partition": {"name": "by_group", "clients": CLIENTS.get(name, 3)},
        "participation": {"sampling": "full"},
        "method": "fedavg",
        "training": {
            "rounds": 2, "local_epochs": 1, "batch_size": 64, "lr": 0.01, "augmentation": "random_resized_crop"
        },
        "seed": 0,
    }  # fmt: skip
    run = train(RunConfig.parse(config), tmp_path / "run", CPU)
    rows = run.metrics()
    assert rows["round"].tolist() == [1, 2]
    assert np.isfinite(rows["test_loss"]).all()
    sharpness = parse_analysis("sharpness", {"images": 20})
    run_analysis(sharpness, run.path, tmp_path / "sharpness.csv", CPU, silent)
    assert np.isfinite(pd.read_csv(tmp_path / "sharpness.csv", comment="#")["sharpness"]).all()


def run_on_pacs(root: Path, folder: Path, lines: list[str]) -> RunDirectory:
    config = {
        "dataset": entry("pacs", root),
        "model": {"name": "mlp", "hidden": [4]},
        "partition": {"name": "by_group", "clients": 3},
        "participation": {"sampling": "full"},
        "method": "fedavg",
        "training": {"rounds": 1, "local_epochs": 1, "batch_size": 64, "lr": 0.01},
        "engine": {"backend": "loop"},
        "seed": 0,
    }
    return train(RunConfig.parse(config), folder, CPU, progress=lines.append)


def test_runs_on_an_incomplete_data_set_say_so(image_roots: Roots, tmp_path, monkeypatch):
    """On the console, in the log, and in the provenance, from which tables know it."""
    monkeypatch.setenv("FEDFLAT_DATA", str(image_roots("pacs")))
    lines: list[str] = []
    run = run_on_pacs(image_roots("pacs"), tmp_path / "run", lines)
    assert lines == ["data set pacs: 28 of 9,991 published images are there"]
    assert lines[0] in (run.path / "run.log").read_text(encoding="utf-8")
    assert run.missing_images == run.provenance["missing_images"] == 9991 - 28


def test_runs_on_a_complete_data_set_say_nothing(image_roots: Roots, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(image_roots("pacs")))
    folders = {domain: (folder, 7) for domain, (folder, _) in PACS.folders.items()}
    monkeypatch.setattr(PACS, "folders", folders)
    lines: list[str] = []
    run = run_on_pacs(image_roots("pacs"), tmp_path / "run", lines)
    assert (lines, run.missing_images) == ([], 0)
    too_few = {**folders, "photo": ("photo", 8), "sketch": ("sketch", 6)}
    monkeypatch.setattr(PACS, "folders", too_few)
    source = parse_source(entry("pacs", Path()))
    assert source.missing_images(run_data := load("pacs", image_roots("pacs"))) == 1, "more elsewhere are no remedy"
    assert source.warning(run_data) == "data set pacs: 27 of 28 published images are there"


def test_every_data_set_of_image_files_has_a_copy():
    of_files = {name for name, source in SOURCES.items() if issubclass(source, PublishedImages)}
    assert of_files | {"domain_folder"} == {*ENTRIES, *SCENES}


def domain_names(source: type[PublishedDomains]) -> list[str]:
    return list(source.folders)


@pytest.mark.parametrize("domain", domain_names(OfficeHome))
def test_the_held_out_domain_is_the_test_set(domain, image_roots: Roots):
    root = image_roots("officehome")
    data = load("officehome", root, test_domain=domain)
    folder, number = OfficeHome.folders[domain][0], list(OfficeHome.folders).index(domain)
    assert data.name == f"officehome-{domain}"
    assert (len(data.train), len(data.test), data.classes) == (3 * 65, 65, 65)
    assert set(data.test.groups) == {number}
    assert set(data.train.groups) == set(range(4)) - {number}
    assert all(name.startswith(f"{folder}/") for name in data.test.names)
    assert not any(name.startswith(f"{folder}/") for name in data.train.names)
    assert (data.mean, data.image_shape) == (IMAGENET_MEAN, (3, SIZE, SIZE))
    split = ByGroup(clients=3).split(data.train, numpy_stream(0, "partition"))
    assert [set(data.train.groups[indices]) for indices in split] == [{k} for k in range(4) if k != number]
    images, labels = data.on(CPU)[1].batch(torch.tensor([7, 64]))
    base = root / OfficeHome.folder
    for image, label, name in zip(images, labels, data.test.names[[7, 64]], strict=True):
        assert name.split("/")[1] == f"Class_{label:02d}"
        pixels = torch.from_numpy(decode(base / name, SIZE).copy())
        expected = (pixels / 255 - torch.tensor(data.mean).view(3, 1, 1)) / torch.tensor(data.std).view(3, 1, 1)
        assert torch.allclose(image, expected, atol=1e-5)


def test_all_held_out_domains_share_the_decoded_images(image_roots: Roots, tmp_path):
    root = image_roots("officehome")
    one, other = (load("officehome", root, test_domain=domain) for domain in ("art", "Real World"))
    assert np.shares_memory(one.train.images, one.test.images)
    assert one.train.images.filename == other.train.images.filename
    assert one.train.content_hash() != other.train.content_hash()
    train, test = one.on(CPU)
    assert train.images is test.images
    together = torch.cat([x for x, _ in train.batches(50)])
    assert torch.equal(together, train.batch(torch.arange(len(train)))[0])
    alone = one.train[one.train.labels < 3]
    assert np.array_equal(alone.names, one.train.names[one.train.labels < 3])
    assert alone.rows.tolist() == one.train.rows[one.train.labels < 3].tolist()


def test_images_that_are_too_large_for_a_gpu_stay_on_the_host(image_roots: Roots, monkeypatch):
    """The device `meta`, whose tensors have no values, stands in for a GPU without free memory."""
    data = replace(load("officehome", image_roots("officehome")))
    monkeypatch.setattr("fedflat.bench.data.dataset.free_memory", lambda device: data.train.images.nbytes)
    train, test = data.on(torch.device("meta"))
    assert {part.images.device.type for part in (train, test)} == {"cpu"}
    assert {tensor.device.type for part in (train, test) for tensor in (part.labels, part.rows, part.shift)} == {"meta"}
    monkeypatch.setattr("fedflat.bench.data.dataset.free_memory", lambda device: 2 * data.train.images.nbytes)
    assert {part.images.device.type for part in replace(data).on(torch.device("meta"))} == {"meta"}


def test_official_lists_of_domainnet(image_roots: Roots):
    root = image_roots("domainnet")
    every, official = (load("domainnet", root, lists=lists) for lists in ("all", "official"))
    assert len(every.train) + len(every.test) == 3 * 345
    listed = {
        subset: {
            line.rpartition(" ")[0]
            for domain in domains
            for line in (root / f"domainnet/{domain}_{subset}.txt").read_text(encoding="utf-8").splitlines()
        }
        for subset, domains in (
            ("train", [name for name in DomainNet.folders if name != "sketch"]),
            ("test", ["sketch"]),
        )
    }
    assert set(official.train.names) == listed["train"]
    assert set(official.test.names) == listed["test"]
    assert official.name == "domainnet-sketch-official"
    facts = parse_source(entry("domainnet", root, lists="official")).facts
    assert (facts.train, facts.test) == (33_525 + 36_023 + 50_416 + 120_750 + 120_906, 20_916)


def test_every_class_needs_a_training_image(image_roots: Roots, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(image_roots("domainnet"), root)
    for domain in ("clipart", "infograph"):  # class 5 is in these domains, and in sketch, which is held out
        file = root / f"domainnet/{domain}_train.txt"
        lines = file.read_text(encoding="utf-8").splitlines()
        file.write_text("".join(f"{line}\n" for line in lines if not line.endswith(" 5")), encoding="utf-8")
    message = (
        r"class 'class_005' \(label 5 in clipart_train\.txt, .*\) has no training image outside the held-out domain"
    )
    for attempt in (lambda: load("domainnet", root), lambda: list(check("domainnet", root))):
        with pytest.raises(UserError, match=message):
            attempt()


def test_the_official_lists_are_checked_for_training_images_of_every_class(image_roots: Roots, tmp_path):
    """An image of a test list is a training image of all lists, but not of the official ones."""
    root = Path(shutil.copytree(image_roots("domainnet"), tmp_path / "data", ignore=shutil.ignore_patterns("cache")))
    for domain in ("clipart", "infograph"):
        train, test = (root / f"domainnet/{domain}_{subset}.txt" for subset in ("train", "test"))
        lines = train.read_text(encoding="utf-8").splitlines(keepends=True)
        train.write_text("".join(line for line in lines if not line.endswith(" 5\n")), encoding="utf-8")
        moved = "".join(line for line in lines if line.endswith(" 5\n"))
        test.write_text(test.read_text(encoding="utf-8") + moved, encoding="utf-8")
    assert 5 in load("domainnet", root).train.labels
    for attempt in (lambda: load("domainnet", root, lists="official"), lambda: list(check("domainnet", root))):
        with pytest.raises(UserError, match="class 'class_005'"):
            attempt()


def test_the_sizes_of_landmarks(image_roots: Roots):
    """The size of the stored images is that of the data set, also where only its published facts are known."""
    source = parse_source({"name": "landmarks_user_160k", "size": 64})
    assert source.form(Path("nowhere")) == ((3, 64, 64), 2028)
    assert source.facts.texts()[:2] == ("164,172 + 19,526", "3×64×64")


def test_authors_of_landmarks_are_the_clients(image_roots: Roots):
    root = image_roots("landmarks_user_160k")
    data = load("landmarks_user_160k", root)
    assert (len(data.train), len(data.test), data.classes) == (18, 6, 2028)
    rows = pd.read_csv(root / "landmarks-user-160k/federated_train.csv", dtype={"user_id": str})
    assert data.train.labels.tolist() == rows["class"].tolist()
    assert data.train.names.tolist() == rows["image_id"].tolist()
    split = ByGroup(clients=3).split(data.train, numpy_stream(0, "partition"))
    assert [set(rows["user_id"].iloc[indices]) for indices in split] == [{"10"}, {"9"}, {"alice"}]


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_checked(name, image_roots: Roots):
    root = image_roots(name)
    where = str(root / "styles") if name == "domain_folder" else name
    parts = 2 if name == "landmarks_user_160k" else len(getattr(SOURCES[name], "folders", range(3)))
    lines = list(check(where, root))
    if name == "domain_folder":
        assert sum("images, ok" in line for line in lines) == parts
    else:  # nothing of an incomplete data set is ok
        assert sum(re.fullmatch(r"\w+: \d+ of [\d,]+ published images", line) is not None for line in lines) == parts
        assert not any("ok" in line for line in lines[-parts:])


def test_a_number_of_images_is_ok_if_it_is_the_published_one():
    assert compared(2427, 2427) == "2,427 images, ok"
    assert compared(65, 2427) == "65 of 2,427 published images"
    assert compared(2428, 2427) == "2,428 images (published: 2,427)"


@pytest.mark.parametrize("name", ["pacs", "landmarks_user_160k", "domain_folder"])
def test_what_is_prepared(name, image_roots: Roots):
    root = image_roots(name)
    where = str(root / "styles") if name == "domain_folder" else name
    *warnings, line = prepare(where, root, fetch=False)
    there = {"pacs": "28 of 9,991", "landmarks_user_160k": "24 of 183,698"}.get(name)
    assert warnings == ([] if there is None else [f"data set {name}: {there} published images are there"])
    assert " training and " in line
    row = listing(root).splitlines()[1 + list(SOURCES).index(name)]
    assert name == "domain_folder" or re.search(r"  ready: (16×16, )?224×224  ", row), "other tests decode 16×16"
    assert len(list((root / "cache").glob("*/images.u8"))) >= 1


# Wrong input.


def test_a_file_that_may_not_be_read(styles, monkeypatch):
    """The system's reason is said: such a file need not be repaired."""
    [file] = (styles / "Art/Class_01").glob("*1.*")

    def denied(path: Path, *arguments: object, **options: object) -> object:
        if Path(path) == file:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    for owner, name in ((Image, "open"), (Path, "stat")):
        real = getattr(owner, name)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, denied)
            with pytest.raises(UserError, match=rf"^cannot read '{file}': Permission denied$"):
                load_styles(styles)


@pytest.fixture
def styles(image_roots: Roots, tmp_path) -> Path:
    """A copy of a user's folder that a test may change."""
    return Path(shutil.copytree(image_roots("domain_folder") / "styles", tmp_path / "data/styles"))


def load_styles(folder: Path, domain: str = "art") -> None:
    parse_source({"name": "domain_folder", "root": folder, "test_domain": domain, "size": SIZE}).load(folder.parent)


def test_wrong_folders(styles):
    with pytest.raises(
        UserError, match=r"unknown domain in '.*styles' 'arts'; did you mean 'art'\? \(allowed: art, old_"
    ):
        load_styles(styles, "arts")
    (styles / "Art/Class_01").rename(styles / "Art/Class_9")
    with pytest.raises(UserError, match=r"class 'Class_01' is in '.*Real World' but not in '.*Art'"):
        load_styles(styles)
    shutil.rmtree(styles / "Art/Class_9")
    (styles / "Art/Class_01").mkdir()
    with pytest.raises(UserError, match=r"class 'Class_01' has no images in '.*Art'"):
        load_styles(styles)
    shutil.rmtree(styles / "Art")
    (styles / "real-world").mkdir()
    with pytest.raises(UserError, match=r"'.*real-world' is too similar to 'Real World'; rename it"):
        load_styles(styles)
    (styles / "real-world").rename(styles / "äö")
    with pytest.raises(UserError, match=r"'.*äö' has no letter from a to z and no digit; rename it"):
        load_styles(styles)
    shutil.rmtree(styles / "äö")
    shutil.rmtree(styles / "old-photos")
    with pytest.raises(UserError, match=r"has one domain, real_world \(allowed: at least two, <domain>/<class>/"):
        load_styles(styles)
    with pytest.raises(
        UserError, match=r"folder '.*nowhere' does not exist \(expected: <domain>/<class>/<image files>\)"
    ):
        load_styles(styles.with_name("nowhere"))


def test_unknown_domains_are_refused_before_data_are_read():
    with pytest.raises(
        UserError, match=r"unknown domain of officehome 'realworld'; did you mean 'real_world'\? \(allowed: art"
    ):
        parse_source({"name": "officehome", "test_domain": "realworld"})
    with pytest.raises(UserError, match="test_domain is missing"):
        parse_source("pacs")
    assert parse_source({"name": "officehome", "test_domain": "Real World"}).label == "officehome-real_world"


def test_an_unreadable_image_is_named_and_nothing_partial_remains(styles):
    files = sorted(path for path in styles.rglob("*.*g") if path.is_file())
    files[-1].write_bytes(files[-1].read_bytes()[:60])
    with pytest.raises(UserError, match=f"{files[-1].name}' is not a readable image; repair it"):
        load_styles(styles)
    left = [path.name for path in (styles.parent / "cache").iterdir()]
    assert all(name.endswith(".lock") for name in left)
    done = fedflat("data", "check", styles)
    assert done.returncode == 2
    assert done.stderr == f"fedflat: '{files[-1]}' is not a readable image; repair it or remove it from the folder\n"


def test_missing_parts_of_a_published_data_set(image_roots: Roots, tmp_path):
    root = Path(shutil.copytree(image_roots("vlcs"), tmp_path / "data"))
    shutil.rmtree(root / "VLCS/SUN09")
    with pytest.raises(
        UserError,
        match=r"data set vlcs: '.*/VLCS/SUN09' is missing; it must be a folder of 5 class folders, from https://github.com/face",
    ):
        load("vlcs", root)
    root = Path(shutil.copytree(image_roots("pacs"), tmp_path / "other"))
    for folder in (root / "PACS").iterdir():
        shutil.rmtree(folder / "Class_06")
    with pytest.raises(UserError, match=r"PACS' has 6 classes in each domain \(published: 7\)"):
        load("pacs", root)


@pytest.mark.parametrize("name", ["domainnet", "landmarks_user_160k"])
def test_lists_that_name_absent_files(name, image_roots: Roots, tmp_path):
    root = Path(shutil.copytree(image_roots(name), tmp_path / "data", ignore=shutil.ignore_patterns("cache")))
    for file in sorted(root.rglob("*.jpg"))[:3]:
        file.unlink()
    message = r"\.jpg' is missing, and so are 2 others; listed in .*(csv|txt)"
    for attempt in (lambda: load(name, root), lambda: list(check(name, root))):
        with pytest.raises(UserError, match=message):
            attempt()
    assert not (root / "cache").exists()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("federated_train.csv", "user_id,image_id\n1,abcd\n", "lacks the column class"),
        (
            "federated_train.csv",
            "user_id,image_id,class\n1,../../x,0\n",
            r"image_id = '\.\./\.\./x' \(allowed: at least",
        ),
        ("test.csv", "image_id,class\nabcd,x\n", "class = 'x': allowed are whole numbers"),
        ("test.csv", "image_id,class\nabcd,0\nabce,2028\n", r"test.csv', row 2: class = 2028 \(allowed: 0 to 2027\)"),
        ("test.csv", "image_id,class\nabcd,-3\n", r"row 1: class = -3 \(allowed: 0 to 2027\)"),
        (
            "federated_train.csv",
            "user_id,image_id,class\n1,abcd,0\n2,abcd,0\n",
            r"row 2: image_id = 'abcd' is listed already, in 'federated_train.csv', row 1",
        ),
        (
            "test.csv",
            "image_id,class\nabcd,0\n0000000000000000,0\n",
            r"test.csv', row 2: image_id = '0000000000000000' is listed already, in 'federated_train.csv', row 1",
        ),
    ],
)
def test_wrong_lists_of_landmarks(file, text, message, image_roots: Roots, tmp_path):
    root = Path(shutil.copytree(image_roots("landmarks_user_160k"), tmp_path / "data"))
    (root / "landmarks-user-160k" / file).write_text(text, encoding="utf-8")
    for attempt in (lambda: load("landmarks_user_160k", root), lambda: list(check("landmarks_user_160k", root))):
        with pytest.raises(UserError, match=message):
            attempt()


@pytest.mark.parametrize(
    "line", ["real/axe/1.jpg 3", "clipart/axe/1.jpg", "clipart/axe/1.jpg 345", "clipart/../x/1.jpg 3"]
)
def test_wrong_lists_of_domainnet(line, image_roots: Roots, tmp_path):
    root = Path(shutil.copytree(image_roots("domainnet"), tmp_path / "data"))
    (root / "domainnet/clipart_train.txt").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"clipart_train\.txt', line 1: '.*' \(allowed: clipart/<class>/<file>, a space"
    ):
        load("domainnet", root)


def test_an_image_of_domainnet_is_listed_once(image_roots: Roots, tmp_path):
    root = Path(shutil.copytree(image_roots("domainnet"), tmp_path / "data"))
    train, test = (root / f"domainnet/clipart_{subset}.txt" for subset in ("train", "test"))
    text = train.read_text(encoding="utf-8")
    test.write_text(text.splitlines()[4] + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"clipart_test\.txt', line 1: '.*' is listed already, in 'clipart_train\.txt'"):
        load("domainnet", root)


def test_a_folder_in_the_folder_of_a_class(styles):
    inner = styles / "Art/Class_01/more"
    inner.mkdir()
    for attempt in (lambda: load_styles(styles), lambda: list(check(str(styles), styles.parent))):
        with pytest.raises(UserError, match=r"Art/Class_01/more' is a folder \(allowed in the folder of a class: "):
            attempt()


def test_broken_links_and_listed_folders_are_named_as_such(styles, image_roots: Roots, tmp_path):
    link = styles / "Art/Class_01/link.jpg"
    link.symlink_to("nowhere.jpg")
    for attempt in (lambda: load_styles(styles), lambda: list(check(str(styles), styles.parent))):
        with pytest.raises(UserError, match=r"link\.jpg' is a link to a file that does not exist$"):
            attempt()
    root = Path(shutil.copytree(image_roots("landmarks_user_160k"), tmp_path / "other"))
    for file in sorted((root / "google-landmarks-v2").rglob("*.jpg"))[:2]:
        file.unlink()
        file.mkdir()
    with pytest.raises(UserError, match=r"is a folder, not an image file, and so is 1 other; listed in .*\.csv$"):
        list(check("landmarks_user_160k", root))


@pytest.mark.parametrize("name", ["pacs", "landmarks_user_160k", "domain_folder"])
def test_another_version_of_the_decoding_replaces_the_cache(name, image_roots: Roots, tmp_path, monkeypatch):
    root = Path(shutil.copytree(image_roots(name), tmp_path / "data"))
    before = load(name, root)
    monkeypatch.setattr(
        "fedflat.bench.data.sources.image_files.decoding.decode", lambda *_: np.zeros((3, 16, 16), "u1")
    )
    assert load(name, root).train.content_hash() == before.train.content_hash()
    monkeypatch.setattr("fedflat.bench.data.sources.image_files.decoding.VERSION", 2)
    assert not load(name, root).train.images.any()


def test_check_of_an_empty_root_says_what_to_put_where(tmp_path):
    done = fedflat("data", "check", "domainnet", "--root", tmp_path)
    assert done.returncode == 2
    for piece in DomainNet.pieces():
        assert f"  {piece.path}  missing  {piece.holds}  {piece.url}" in done.stdout
    [line] = done.stderr.splitlines()
    assert line == (
        f"fedflat: data set domainnet: '{tmp_path}/domainnet/clipart' is missing, and so are 17 others; it must be a "
        "folder of 345 class folders, from http://csr.bu.edu/ftp/visda/2019/multi-source/groundtruth/clipart.zip"
    )
    with pytest.raises(UserError, match=rf"clipart.zip; 'fedflat data check domainnet --root {tmp_path}' lists all"):
        load("domainnet", tmp_path)
    assert not list(tmp_path.iterdir())
