"""Tiny copies of the data sets of image files, in their true formats: images of several sizes and colour modes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.image_files.domainnet import DomainNet
from fedflat.bench.data.sources.image_files.domains import PACS, VLCS, OfficeHome, PublishedDomains

SIZE = 16
MODES = (("RGB", "jpg"), ("L", "jpg"), ("P", "png"), ("RGBA", "png"), ("CMYK", "jpg"), ("LA", "png"), ("1", "png"))
OWN = {"name": "domain_folder", "test_domain": "Real World"}
ENTRIES: dict[str, dict[str, object]] = {
    "officehome": {"test_domain": "art"},
    "domainnet": {"test_domain": "sketch"},
    "pacs": {"test_domain": "photo"},
    "vlcs": {"test_domain": "sun09"},
    "landmarks_user_160k": {},
    "domain_folder": {"test_domain": "Real World"},
}
USERS = ("10", "9", "alice")


def write_image(file: Path, number: int, mode: str | None = None) -> None:
    """An image of noise, whose size and mode depend on its number. JPEG has no transparency and no palette."""
    of_jpeg = [one for one, kind in MODES if kind == "jpg"]
    mode = mode or (of_jpeg[number % 3] if file.suffix == ".jpg" else MODES[number % len(MODES)][0])
    height, width = 12 + 5 * (number % 5), 14 + 7 * (number % 4)
    noise = np.random.default_rng(number).integers(0, 256, (height, width, 4), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(noise, "RGBA").convert("RGB") if mode != "RGBA" else Image.fromarray(noise, "RGBA")
    options = {"transparency": bytes(range(256))} if mode == "P" else {}
    image.convert(mode).save(file, **options)


def write_domains(base: Path, folders: list[str], classes: int, each: int = 1) -> None:
    """Each domain has `each` images of every class."""
    for d, folder in enumerate(folders):
        for c in range(classes):
            for k in range(each):
                number = (d * classes + c) * each + k
                write_image(base / folder / f"Class_{c:02d}" / f"{k:05d}.{MODES[number % len(MODES)][1]}", number)


def _domains(source: type[PublishedDomains]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        write_domains(root / source.folder, [name for name, _ in source.folders.values()], source.classes)

    return write


def write_domainnet(root: Path) -> None:
    """Each class has images in three domains: in a list of test images, and in two of training images."""
    base, count = root / DomainNet.folder, len(DomainNet.folders)
    for d, domain in enumerate(DomainNet.folders):
        lists: dict[str, list[str]] = {"train": [], "test": []}
        for c in range(DomainNet.classes):
            place = (d - c) % count
            if place < 3:
                name = f"{domain}/class_{c:03d}/{domain}_{c:03d}_000001.jpg"
                write_image(base / name, c + d)
                lists["train" if place else "test"].append(f"{name} {c}")
        for subset, lines in lists.items():
            (base / f"{domain}_{subset}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_landmarks(root: Path) -> None:
    """Three authors, whose names are texts and numbers."""
    lists = {"federated_train.csv": ["user_id,image_id,class"], "test.csv": ["image_id,class"]}
    for k in range(24):
        name = f"{k * 2654435761 % 16**8:08x}{k:08x}"
        write_image(root / "google-landmarks-v2/train" / name[0] / name[1] / name[2] / f"{name}.jpg", k)
        line = f"{name},{k * 80}"
        lists["test.csv" if k % 4 == 3 else "federated_train.csv"] += [line if k % 4 == 3 else f"{USERS[k % 3]},{line}"]
    for file, lines in lists.items():
        (root / "landmarks-user-160k").mkdir(parents=True, exist_ok=True)
        (root / "landmarks-user-160k" / file).write_text("\n".join([*lines, ""]), encoding="utf-8")


WRITERS: dict[str, Callable[[Path], None]] = {
    "officehome": _domains(OfficeHome),
    "pacs": _domains(PACS),
    "vlcs": _domains(VLCS),
    "domainnet": write_domainnet,
    "landmarks_user_160k": write_landmarks,
    "domain_folder": lambda root: write_domains(root / "styles", ["Art", "Real World", "old-photos"], 3, each=2),
}


def entry(name: str, root: Path, **options: object) -> dict[str, object]:
    """The `dataset` of a configuration."""
    own = {"root": str(root / "styles")} if name == "domain_folder" else {}
    return {"name": name, "size": SIZE, **ENTRIES[name], **own, **options}


def load(name: str, root: Path, **options: object) -> Dataset:
    return parse_source(entry(name, root, **options)).load(root)
