"""The base of data sets in a folder of the user, which have the name of the folder."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from fedflat.bench.data.sources.base import Source
from fedflat.bench.input.content import expanded
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import LABEL


class OwnFolder(Source):
    """The common base class of user-defined image files. `layout` says where the images are, for lists."""

    root: Path
    title: str = Field(
        default="", pattern=LABEL, description="the name in paths and tables; by default that of the folder"
    )

    own: ClassVar[bool] = True
    layout: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("root"), str | Path):
            return data
        root = expanded(data["root"], "root")
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", root.resolve().name).strip("-._+")
        return {"title": name or str(cls.model_fields["name"].default), **data, "root": root}

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return ("yours", "yours", "yours", "", "", "yours", cls.layout)


def folders_in(folder: Path, kind: str, expected: str) -> list[str]:
    """The sorted names of the folders in a folder: its classes, or domains (`kind`).

    A `UserError`, which says what is `expected`, if the folder does not exist or has none.
    """
    if not folder.is_dir():
        raise UserError(f"data set folder '{folder}' does not exist (expected: {expected})")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise UserError(f"data set folder '{folder}' has no {kind} folders (expected: {expected})")
    return names


def files_of_class(folder: Path, name: str) -> list[Path]:
    """The sorted files of the class in this folder, without hidden files, which file managers write.

    A `UserError` if there are none, or if there is a folder among them.
    """
    found = os.scandir(folder / name) if (folder / name).is_dir() else ()
    entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    if within := next((entry for entry in entries if entry.is_dir()), None):
        raise UserError(f"'{within.path}' is a folder (allowed in the folder of a class: image files)")
    if not entries:
        raise UserError(f"class '{name}' has no images in '{folder}' (every class needs images there)")
    return [folder / name / entry.name for entry in entries]
