"""The common part of layouts of tables and figures: YAML files of an experiment, and selections of its cells."""

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
    """Fields of a setting; together they must fit exactly one setting of the experiment."""

    dataset: str | None = None
    partition: str | None = None
    participation: str | None = None

    def given(self) -> dict[str, str]:
        """The fields that are set."""
        fields = {"dataset": self.dataset, "partition": self.partition, "participation": self.participation}
        return {name: value for name, value in fields.items() if value is not None}

    def narrowed(self, other: "Selection") -> "Selection":
        """Both selections combined; `other` takes precedence in fields that both set."""
        return Selection(**{**self.given(), **other.given()})

    def setting(self, experiment: Experiment) -> Setting:
        """The one setting of the experiment that fits; a `UserError` if none or several fit."""
        found = everything = tuple(experiment.settings)
        for field, value in self.given().items():
            known = {getattr(setting, field) for setting in everything}
            if value not in known:
                raise unknown(f"{field} of experiment {experiment.name}", value, known)
            found = tuple(setting for setting in found if getattr(setting, field) == value)
        if len(found) != 1:
            matches = ", ".join(setting.path for setting in found) or "none"
            raise UserError(
                f"select must match one setting of experiment {experiment.name}, but {self.given()} matches {matches}"
            )
        return found[0]


class Layout(Frozen):
    """The fields of every table and figure. `caption` says what is measured, and on which data."""

    title: str
    caption: str
    methods: tuple[str, ...] = Field(min_length=1, description="labels of the experiment's methods, in order")

    @model_validator(mode="after")
    def _methods_once(self) -> "Layout":
        twice = [method for method in self.methods if self.methods.count(method) > 1]
        if twice:
            raise UserError(f"method {twice[0]} is listed twice in methods")
        return self

    @abstractmethod
    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings that are shown, each once."""

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The shown cells that the experiment has; a `UserError` names a method or setting that it does not have."""
        for method in self.methods:
            if method not in experiment.methods:
                raise unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        cells = (CellAddress(setting, method) for setting in self.settings(experiment) for method in self.methods)
        return tuple(cell for cell in cells if experiment.has_cell(cell))


def existing_cell(setting: Setting, label: str, experiment: Experiment) -> CellAddress:
    """A cell that the experiment has; a `UserError` if it does not."""
    known = experiment.resolved_parts[setting.dataset].methods
    if label not in known:
        raise unknown(f"method of experiment {experiment.name} in {setting.path}", label, known)
    return CellAddress(setting, label)


def layout_names(experiment_name: str, folder: Folder) -> list[str]:
    """The names of an experiment's tables or figures, sorted.

    An experiment without such a folder inherits the layouts of the experiment that it extends; they need not fit it.
    """
    names = [file.stem for file in _folder(experiment_name, folder).glob("*.yaml")]
    for name in names:
        if not name.isprintable():
            where = f"{folder} of experiment {experiment_name}"
            raise UserError(f"{where}: the name '{name}' has characters that cannot be printed")
    return sorted(names, key=_by_number)


def _by_number(name: str) -> list[tuple[int, str]]:
    """A sort key that puts table 2 before table 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def subfigures(names: Iterable[str]) -> dict[str, list[str]]:
    """Names that share a number, such as 4a and 4b, by that number; a number that is itself a name is omitted."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if number := re.match(r"\d+", name):
            groups.setdefault(number.group(), []).append(name)
    return {number: group for number, group in groups.items() if len(group) > 1 and number not in group}


def are_inherited(experiment_name: str, folder: Folder) -> bool:
    """Whether an experiment inherits its tables or figures from an experiment that it extends."""
    return _folder(experiment_name, folder).parent != experiment_file(experiment_name).parent


def layout_file(experiment_name: str, folder: Folder, name: str) -> Path:
    """The file of one layout; for an unknown name, a `UserError` suggests the nearest one."""
    names = layout_names(experiment_name, folder)
    if name not in names:
        kind = folder.removesuffix("s")
        if (own := name.removeprefix(f"{kind}_")) in names:  # as in Snakemake's targets
            raise UserError(f"unknown {kind} of experiment {experiment_name} '{name}'; did you mean '{own}'?")
        raise unknown(f"{kind} of experiment {experiment_name}", name, names)
    return _folder(experiment_name, folder) / f"{name}.yaml"


def layout_files(experiment_name: str, folder: Folder, name: str) -> list[Path]:
    """A layout's file, then the files of the layouts that it is `like`; a `UserError` if these form a cycle."""
    files = [layout_file(experiment_name, folder, name)]
    while (like := read_yaml(files[-1]).get("like")) is not None:
        if str(like) not in (names := layout_names(experiment_name, folder)):
            raise unknown(f"layout in like of '{files[-1]}':", str(like), names)
        files.append(layout_file(experiment_name, folder, str(like)))
        if files[-1] in files[:-1]:
            raise UserError(f"'{files[-2]}': like: {like}: a layout cannot be based on itself")
    return files


def read_layout(experiment_name: str, folder: Folder, name: str) -> tuple[Path, dict[str, Any]]:
    """One layout's file and its content, not yet validated; a `UserError` suggests the nearest name for an unknown one.

    With `like: NAME`, keys that a layout does not give are those of the layout NAME; a given key replaces the other
    layout's value entirely. A layout without `methods` shows all methods of the experiment.
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
