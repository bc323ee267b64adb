"""What layouts of tables and figures share: YAML files beside an experiment, and selections of its cells."""

import re
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from bench.experiments.address import CellAddress, Setting
from bench.experiments.experiment import Experiment
from bench.experiments.files import experiment_file, experiment_files, read_yaml
from bench.experiments.resolving import experiment_data
from bench.input.errors import UserError, unknown
from bench.input.frozen import Frozen

Folder = Literal["tables", "figures"]


class Selection(Frozen):
    """Part of a setting; what is left open must not be in doubt in the experiment."""

    dataset: str | None = None
    partition: str | None = None
    participation: str | None = None

    def given(self) -> dict[str, str]:
        """The fields that are set."""
        fields = {"dataset": self.dataset, "partition": self.partition, "participation": self.participation}
        return {name: value for name, value in fields.items() if value is not None}

    def narrowed(self, other: "Selection") -> "Selection":
        """Both selections at once; the other one wins where both say something."""
        return Selection(**{**self.given(), **other.given()})

    def setting(self, experiment: Experiment) -> Setting:
        """The one setting of the experiment that is meant; a `UserError` if there is none, or several."""
        found = everything = tuple(experiment.settings)
        for field, value in self.given().items():
            known = {getattr(setting, field) for setting in everything}
            if value not in known:
                raise unknown(f"{field} of experiment {experiment.name}", value, known)
            found = tuple(setting for setting in found if getattr(setting, field) == value)
        if len(found) != 1:
            matches = ", ".join(setting.path for setting in found) or "none"
            raise UserError(f"select one setting of experiment {experiment.name}: {self.given()} matches {matches}")
        return found[0]


class Layout(Frozen):
    """What every table and figure states. `caption` says what is measured, and on which data."""

    title: str
    caption: str
    methods: tuple[str, ...] = Field(min_length=1, description="labels of the experiment's methods, in order")

    @model_validator(mode="after")
    def _methods_once(self) -> "Layout":
        twice = [method for method in self.methods if self.methods.count(method) > 1]
        if twice:
            raise UserError(f"method {twice[0]} stands twice in methods")
        return self

    @abstractmethod
    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings that are shown, each once."""

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """All cells that are shown and that the experiment has; a `UserError` if it has no such method or setting."""
        for method in self.methods:
            if method not in experiment.methods:
                raise unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        cells = (CellAddress(setting, method) for setting in self.settings(experiment) for method in self.methods)
        return tuple(cell for cell in cells if experiment.has_cell(cell))


def layout_names(experiment_name: str, folder: Folder) -> list[str]:
    """The names of an experiment's tables or figures, sorted.

    An experiment without such a folder has those of the experiment that it extends, whether they fit or not.
    """
    names = (file.stem for file in _folder(experiment_name, folder).glob("*.yaml"))
    return sorted(names, key=_by_number)


def _by_number(name: str) -> list[tuple[int, str]]:
    """A key that puts table 2 before table 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def subfigures(names: Iterable[str]) -> dict[str, list[str]]:
    """The names that begin with the same number, by that number: 4a and 4b by 4. Not if one is called so itself."""
    parts: dict[str, list[str]] = {}
    for name in names:
        if number := re.match(r"\d+", name):
            parts.setdefault(number.group(), []).append(name)
    return {number: of for number, of in parts.items() if len(of) > 1 and number not in of}


def are_inherited(experiment_name: str, folder: Folder) -> bool:
    """Whether an experiment's tables or figures are those of an experiment that it extends."""
    return _folder(experiment_name, folder).parent != experiment_file(experiment_name).parent


def layout_file(experiment_name: str, folder: Folder, name: str) -> Path:
    """Where one layout lies; a `UserError` suggests the nearest name."""
    names = layout_names(experiment_name, folder)
    if name not in names:
        raise unknown(f"{folder.removesuffix('s')} of experiment {experiment_name}", name, names)
    return _folder(experiment_name, folder) / f"{name}.yaml"


def layout_files(experiment_name: str, folder: Folder, name: str) -> list[Path]:
    """The files that a layout is made of: its own first; a `UserError` if it is like itself."""
    files = [layout_file(experiment_name, folder, name)]
    while (like := read_yaml(files[-1]).get("like")) is not None:
        if str(like) not in (names := layout_names(experiment_name, folder)):
            raise unknown(f"layout in like of '{files[-1]}':", str(like), names)
        files.append(layout_file(experiment_name, folder, str(like)))
        if files[-1] in files[:-1]:
            raise UserError(f"'{files[-2]}': like: {like} makes the layout like itself")
    return files


def read_layout(experiment_name: str, folder: Folder, name: str) -> tuple[Path, dict[str, Any]]:
    """One layout file and its content, not yet validated; a `UserError` suggests the nearest name.

    A layout that is `like: NAME` has the keys of that one which it does not give itself; a key is taken over as a whole
    or not at all. One without methods shows all of the experiment's.
    """
    files = layout_files(experiment_name, folder, name)
    data: dict[str, Any] = {"methods": _methods(experiment_name)}
    for file in reversed(files):
        data |= read_yaml(file)
    data.pop("like", None)
    return files[0], data


def _folder(experiment_name: str, folder: Folder) -> Path:
    places = [file.parent / folder for file in experiment_files(experiment_name)]
    return next((place for place in places if place.is_dir()), places[0])


def _methods(experiment_name: str) -> list[str]:
    methods = experiment_data(experiment_name).get("methods")
    return list(methods) if isinstance(methods, dict) else []
