"""Tiny copies of data sets of street scenes in their true formats, with FedDrive's lists."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

CITIES = {"train": ("aachen", "bremen"), "val": ("lindau",)}
DOMAINS = ("T01_CN_A", "T02_HRN_B", "T07_CN_A")
"""The last one is unseen."""

SIZE = (32, 64)


def write_scene(file: Path, label_file: Path, number: int, known: int) -> None:
    """An image of noise, 40 × 72 pixels, and labels in blocks."""
    stream = np.random.default_rng(number)
    for place in (file, label_file):
        place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(stream.integers(0, 256, (40, 72, 3), dtype=np.uint8)).save(file)
    blocks = stream.integers(0, known, (5, 9)).astype(np.uint8)
    Image.fromarray(blocks.repeat(8, 0).repeat(8, 1)).save(label_file)


def write_list(file: Path, users: dict[str, list[str]]) -> None:
    content = {
        "users": list(users),
        "num_samples": [len(own) for own in users.values()],
        "user_data": {user: {"x": own, "y": own} for user, own in users.items()},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def write_cityscapes(root: Path, each: int = 4) -> None:
    """`each` images of each city."""
    base = root / "cityscapes" / "data"
    named: dict[str, list[str]] = {"train": [], "val": []}
    number = 0
    for part, cities in CITIES.items():
        for city in cities:
            for k in range(each):
                name = f"{part}/{city}/{city}_{k:06d}_000019"
                image = base / "leftImg8bit" / f"{name}_leftImg8bit.png"
                write_scene(image, base / "gtFine" / f"{name}_gtFine_labelIds.png", number, 34)
                named[part].append(f"{name}_leftImg8bit.png")
                number += 1
    for split, step in (("heterogeneous", 1), ("uniform", -1)):
        own = named["train"][::step]
        for file, users in enumerate(({"user0": own[:3], "user1": own[3:4]}, {"user2": own[4:]})):
            write_list(base / split / "train" / f"all_data_{file}.json", users)
        write_list(base / split / "test" / "all_data_0.json", {"test_user": named["val"]})


def write_idda(root: Path, each: int = 4) -> None:
    base = root / "idda" / "data"
    names: dict[str, list[str]] = {}
    for d, domain in enumerate(DOMAINS):
        for k in range(each):
            image = base / "IDDAsmall" / domain / "RGB" / f"{k}_{domain}.jpg"
            label_file = base / "IDDAsmall" / domain / "Semantic" / f"{k}_{domain}.png"
            write_scene(image, label_file, 100 * d + k, 24)
            names.setdefault(domain, []).append(f"{domain}/RGB/{k}_{domain}.jpg")
    first, second, unseen = names.values()
    for split in ("heterogeneous", "uniform"):
        for setting in ("country", "rainy"):
            clients = {"user0": first[:3], "user1": second[:3]}
            if split == "uniform":
                clients = {"user0": [first[0], second[0], first[1]], "user1": [second[1], first[2], second[2]]}
            place = base / split / setting
            write_list(place / "train" / "clients.json", clients)
            tests = {"test_user_diff_domain": unseen, "test_user_same_domain": [first[3], second[3]]}
            write_list(place / "test" / "clients.json", tests)


WRITERS = {"cityscapes": write_cityscapes, "idda": write_idda}
ENTRIES: dict[str, dict[str, object]] = {
    "cityscapes": {"split": "heterogeneous"},
    "idda": {"setting": "country"},
}


def entry(name: str, **options: object) -> dict[str, object]:
    """The `dataset` of a configuration."""
    return {"name": name, "size": list(SIZE), **ENTRIES[name], **options}
