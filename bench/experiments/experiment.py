"""Experiments: YAML grids of methods × settings × seeds that expand to run configurations.

Their readable paths, such as digits/dirichlet-0.1/4-of-20/fedsam, are what people and Snakemake see. An experiment may
have parts, such as a paper's data sets: grids that share what the experiment says above them.
"""

import copy
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator, model_validator

from bench.data.partitions import AnyPartition
from bench.data.sources import parse_source
from bench.engine.participation import Participation
from bench.engine.settings import EngineSettings
from bench.experiments.address import CellAddress, Setting
from bench.experiments.method_choice import MethodChoice
from bench.experiments.run_config import Evaluation, RunConfig, Training
from bench.experiments.scale import ROUNDS, Scale, at_smoke_scale, with_rounds, with_seeds
from bench.input.content import expanded, short_hash
from bench.input.errors import UserError, unknown
from bench.input.frozen import LABEL, NAME, REPORT, Frozen
from bench.input.strict_yaml import load_yaml
from bench.methods.released import Release, release
from bench.models.user_model import parse_reference

SWA_SUFFIX = "+swa"
PUBLISHED = "published"

PAPER_TABLES = Path(__file__).parents[2] / "paper_tables"
"""Where experiments and the layouts of their tables and figures stand, one folder each."""


class Departure(Frozen):
    """What differs for a method with one of the partitions."""

    hyperparameters: dict[str, Any] = Field(default={}, description="those that differ")
    training: dict[str, Any] = Field(default={}, description="fields of training that differ")


class MethodEntry(MethodChoice):
    """One method of an experiment: hyper-parameters as that experiment's paper states them, and exceptions.

    Without name, parts and file, the entry's own key is the name; one that ends in +swa also needs `swa`.
    """

    title: str | None = Field(default=None, description="its name in tables and figures; null: the method's")
    variant: str = Field(default=PUBLISHED, description="published; or released, as the authors' code does it")
    training: dict[str, Any] = Field(default={}, description="fields of training that differ")
    where: dict[str, Departure] = Field(default={}, description="by a partition's label, what differs there")
    parts: tuple[str, ...] | None = Field(default=None, description="the experiment's parts that have it; null: all")

    def at(self, partition: str) -> "MethodEntry":
        """The entry as it is with a partition, by its label."""
        if partition not in self.where:
            return self
        other = self.where[partition]
        hyperparameters = {**self.hyperparameters, **other.hyperparameters}
        return self.model_copy(
            update={"hyperparameters": hyperparameters, "training": {**self.training, **other.training}}
        )

    def release(self, label: str) -> Release | None:
        """What the variant changes; None for the published one. Only methods of the catalog have others."""
        if self.variant == PUBLISHED:
            return None
        name = self.choice(label).name
        if name is None:
            raise UserError(f"{label}: only methods of the catalog have a variant '{self.variant}'")
        return release(name, self.variant)

    def choice(self, label: str) -> MethodChoice:
        """The method under this label."""
        fields = self.model_dump(exclude={"title", "training", "variant", "where", "parts"})
        if self.name is None and not self.slots and self.file is None:
            fields["name"] = label.removesuffix(SWA_SUFFIX)
        if label.endswith(SWA_SUFFIX) and "swa" not in self.hyperparameters:
            raise UserError(f"{label}: its hyperparameters need swa, for example {{cycle: 5}}")
        return MethodChoice.parse(fields)


class Grid(Frozen):
    """The axes that are multiplied."""

    partition: tuple[AnyPartition, ...] = Field(min_length=1)
    participation: tuple[Participation, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)

    @field_validator("seeds")
    @classmethod
    def _seeds_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        twice = [seed for seed in seeds if seeds.count(seed) > 1]
        if twice:
            raise UserError(f"seed {twice[0]} stands twice in seeds")
        return seeds


class Part(Frozen):
    """A part of an experiment: what differs from the experiment's own values, which hold for all else."""

    dataset: str | dict[str, Any] | None = None
    model: str | dict[str, Any] | None = None
    training: dict[str, Any] = Field(default={}, description="fields that differ")
    evaluation: dict[str, Any] = Field(default={}, description="fields that differ")
    engine: dict[str, Any] = Field(default={}, description="fields that differ")
    grid: dict[str, Any] = Field(default={}, description="axes that differ; of seeds, the first few")
    methods: dict[str, dict[str, Any]] = Field(default={}, description="by label, what differs for a method")
    only: tuple[str, ...] | None = Field(default=None, description="labels of the methods that the part has; null: all")


class Experiment(Frozen):
    """A grid of runs: settings × methods × seeds; or several grids, its parts."""

    name: str = Field(pattern=NAME)
    scale: Scale = Field(default="paper", description="smoke: the same grid on scikit-learn's digits, with few rounds")
    chosen: tuple[str, ...] | None = Field(
        default=None, description="the only methods to run, by label or by name (all variants); null: all"
    )
    report: str | None = Field(
        default=None,
        pattern=REPORT,
        description="the value of a run that tables show: last, best, or mean_last_N; null: what each table says",
    )
    extends: str | None = Field(default=None, description="an experiment whose other keys and layouts are taken over")
    description: str = ""
    dataset: str | dict[str, Any] | None = Field(default=None, description="of all parts that name none")
    model: str | dict[str, Any] | None = Field(default=None, description="of all parts that name none")
    training: Training
    evaluation: Evaluation = Evaluation()
    engine: EngineSettings = EngineSettings()
    grid: Grid
    methods: dict[Annotated[str, Field(pattern=LABEL)], MethodEntry] = Field(min_length=1)
    parts: dict[Annotated[str, Field(pattern=LABEL)], Part] = Field(
        default={}, description="by labels, which stand in the place of the data set's in the cells' paths"
    )

    @model_validator(mode="before")
    @classmethod
    def _methods_of_parts(cls, data: Any) -> Any:
        """What only parts name is a method of the experiment too, which only they have."""
        parts, common = (data.get(key) for key in ("parts", "methods")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(parts, dict) or not isinstance(common, dict):
            return data
        methods = dict(common)
        for label, part in parts.items():
            named = part.get("methods") if isinstance(part, dict) else None
            for method, entry in named.items() if isinstance(named, dict) else ():
                if method not in common and isinstance(entry, dict):
                    known = methods.get(method, {**entry, "parts": []})
                    methods[method] = {**known, "parts": [*known["parts"], label]}
        return {**data, "methods": methods}

    @model_validator(mode="after")
    def _known_methods(self) -> "Experiment":
        for label, entry in self.methods.items():
            entry.choice(label).recipe  # noqa: B018 - a method that does not exist is told here
            entry.release(label)
            for part in entry.parts or ():
                if part not in self.parts:
                    raise unknown(f"part of experiment {self.name}", part, self.parts)
        return self

    @model_validator(mode="after")
    def _complete(self) -> "Experiment":
        for part in self.whole_parts.values():  # one that lacks something is told here
            for name in ("dataset", "model"):
                if getattr(part, name) is None:
                    raise UserError(f"experiment {self.name}: {name} is missing")
        return self

    @cached_property
    def whole_parts(self) -> dict[str, "Experiment"]:
        """Each part by its label as an experiment without parts; one without parts by its data set's label."""
        if not self.parts:
            return {"" if self.dataset is None else parse_source(self.dataset).label: self}
        return {label: self._resolved(label, part) for label, part in self.parts.items()}

    def _resolved(self, label: str, part: Part) -> "Experiment":
        own = part.model_dump(exclude_none=True, exclude={"methods", "only"})
        data = merged(self.model_dump(exclude={"parts", "methods", "extends", "chosen"}), own)
        data |= {name: own[name] for name in ("dataset", "model") if name in own}  # replaced, not merged
        for method in (*part.methods, *(part.only or ())):
            if method not in self.methods:
                raise unknown(f"method of experiment {self.name}", method, self.methods)
        has = [
            method
            for method, entry in self.methods.items()
            if label in (entry.parts or (label,)) and method in (part.only or (method,))
        ]
        common = self.model_dump(include={"methods"})["methods"]
        entries = {method: merged({**common[method], "parts": None}, part.methods.get(method, {})) for method in has}
        resolved = Experiment.parse({**data, "methods": entries}, f"part {label}")
        if resolved.grid.seeds != (seeds := self.grid.seeds)[: len(resolved.grid.seeds)]:
            raise UserError(f"part {label}: its seeds are not the first of the experiment's, which are {seeds}")
        return resolved

    def settings(self) -> Mapping[str, tuple[AnyPartition, Participation]]:
        """The settings of all parts by path, such as digits/dirichlet-0.1/4-of-20."""
        return self._settings

    @cached_property
    def _settings(self) -> dict[str, tuple[AnyPartition, Participation]]:
        settings: dict[str, tuple[AnyPartition, Participation]] = {}
        for label, part in self.whole_parts.items():
            for partition, participation in itertools.product(part.grid.partition, part.grid.participation):
                participation.check(partition.clients)
                path = str(PurePosixPath(label, partition.label, participation.label(partition.clients)))
                if path in settings:
                    raise UserError(f"experiment {self.name} has the setting {path} twice")
                settings[path] = (partition, participation)
        return settings

    def cells(self) -> dict[str, "Cell"]:
        """All cells of the grid by path, such as digits/dirichlet-0.1/4-of-20/fedsam."""
        return {path: self._expanded(*place) for path, place in self._grid.items()}

    def cell(self, path: str) -> "Cell":
        """One cell by its path, chosen or not: analyses may compare with it. A `UserError` suggests the nearest.

        What the other cells hold is not looked at.
        """
        if path not in self._whole_grid:
            raise unknown(f"cell of experiment {self.name}", path, self._whole_grid)
        return self._expanded(*self._whole_grid[path])

    def is_chosen(self, label: str) -> bool:
        """Whether a method is to run: it is chosen by its label, or by the name that it has in the catalog."""
        return label in self._chosen_labels

    @cached_property
    def _chosen_labels(self) -> frozenset[str]:
        chosen = self.chosen
        if chosen is None:
            return frozenset(self.methods)
        names = ((label, entry.choice(label).name) for label, entry in self.methods.items())
        return frozenset(label for label, name in names if label in chosen or name in chosen)

    def has(self, path: str) -> bool:
        """Whether there is a cell of this path."""
        return path in self._grid

    def paths(self) -> list[str]:
        """The paths of all cells, which are not expanded for that."""
        return list(self._grid)

    @cached_property
    def _whole_grid(self) -> dict[str, tuple[str, AnyPartition, Participation, str]]:
        return {
            f"{path}/{method}": (path, *pair, method)
            for path, pair in self.settings().items()
            for method in self.whole_parts[path.split("/")[0]].methods
        }

    @cached_property
    def _grid(self) -> dict[str, tuple[str, AnyPartition, Participation, str]]:
        return {path: place for path, place in self._whole_grid.items() if self.is_chosen(place[-1])}

    def _expanded(self, setting: str, partition: AnyPartition, participation: Participation, label: str) -> "Cell":
        part = self.whole_parts[setting.split("/", maxsplit=1)[0]]
        entry = part.methods[label].at(partition.label)
        choice, released = entry.choice(label), entry.release(label)
        hyperparameters, training = choice.hyperparameters, part.training.model_dump()
        if released is not None:
            hyperparameters = {**released.hyperparameters, **hyperparameters, **released.faults}
            if isinstance(swa := hyperparameters.get("swa"), dict):
                hyperparameters["swa"] = {**released.swa, **swa}
            training |= released.training
            participation = participation.sampled(released.sampling, partition.clients)
        where = "" if choice.name == label else label
        common = {
            "dataset": part.dataset,
            "model": part.model,
            "partition": partition.model_dump(),
            "participation": participation.model_dump(),
            "method": {**choice.model_dump(), "hyperparameters": hyperparameters},
            "training": {**training, **entry.training},
            "evaluation": part.evaluation.model_dump(),
            "engine": part.engine.model_dump(),
        }
        if self.scale == "smoke":
            common = at_smoke_scale(common)
        address = CellAddress(Setting.of(setting), label)
        return Cell(address, tuple(RunConfig.parse({**common, "seed": seed}, where) for seed in part.grid.seeds))


@dataclass(frozen=True)
class Cell:
    """One method in one setting with all seeds: the address, and a configuration for each run."""

    address: CellAddress
    runs: tuple[RunConfig, ...]

    @property
    def path(self) -> str:
        """For example digits/dirichlet-0.1/4-of-20/fedsam."""
        return self.address.path

    @property
    def identity(self) -> str:
        """Hash over the runs' identities: what Snakemake compares to know whether a cell changed."""
        return short_hash(":".join(run.identity for run in self.runs))


def experiment_schema() -> dict[str, Any]:
    """The JSON schema of experiment files, with which Snakemake and editors can validate them."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Experiment.model_json_schema()}


def experiment_file(name: str) -> Path:
    """The YAML file of a named experiment (`paper_tables/NAME/experiments.yaml`), or the given YAML file itself."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in experiment_names():
        if Path(name).is_dir():
            raise UserError(f"'{name}' is a folder; give its YAML file, for example {name}/experiments.yaml")
        raise unknown("experiment", name, experiment_names())
    return PAPER_TABLES / name / "experiments.yaml"


def experiment_names() -> list[str]:
    """The experiments that go by a name: the folders of paper_tables that have one."""
    return sorted(file.parent.name for file in PAPER_TABLES.glob("*/experiments.yaml"))


def scaled(name: str, scale: str | None) -> str:
    """What an experiment is called at a scale: its runs lie apart from those at its own."""
    return name if scale in (None, "paper") else f"{name}_{scale}"


def load_experiment(name: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """Read and validate an experiment by name or file.

    `changes` maps dotted keys of the file, such as training.rounds, to other values.
    """
    file = experiment_file(name)
    data = experiment_data(name)
    given, changes = tuple(changes or ()), dict(changes or {})
    if changes.get("scale", "paper") != "paper":  # a scale that does not exist is told by the model
        data["name"] = scaled(str(data.get("name")), changes["scale"])
        changes.setdefault("training.rounds", ROUNDS)
    for dotted, everywhere in (("training.rounds", with_rounds), ("grid.seeds", with_seeds)):
        if dotted in changes:
            data = everywhere(data, changes.pop(dotted))
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        place = data
        for key in parents:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise UserError(f"{dotted}: {key} is a value, not a section")
        place[last] = value
    changed = f" with {', '.join(f'--set {key}' for key in given)}" if given else ""
    return Experiment.parse(data, where=f"{file}{changed}")


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Parsing takes long, and an experiment's file is asked for again and again."""
    return load_yaml(text)


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML mapping; a `UserError` says what is wrong with the file."""
    return copy.deepcopy(_mapping(file))


def _mapping(file: Path) -> dict[str, Any]:
    """The same, shared by all who ask: not to be changed. Copies of large grids take long, too."""
    try:
        data = _parsed(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read '{file}': {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"'{file}' is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise UserError(f"'{file}' must hold a mapping, not {type(data).__name__}")
    return data


def experiment_data(name: str) -> dict[str, Any]:
    """An experiment's file with the keys that it takes over from the experiment that it extends.

    `training`, `evaluation`, `engine` and a method of the same label keep what is not said anew; other keys are
    replaced, and methods that are not named are left out. A `file` is relative to the file that names it, as is a
    model's.
    """
    merged: dict[str, Any] = {}
    for file in reversed(experiment_files(name)):
        data = read_yaml(file)
        if isinstance(model := data.get("model"), str) and ":" in model:
            data["model"] = parse_reference(model)
        data = _with_files(data, file.parent)
        methods, base = data.get("methods"), merged.get("methods")
        if isinstance(methods, dict):
            known = base if isinstance(base, dict) else {}
            data["methods"] = {
                label: _over(known.get(label, {}), {} if entry is None else entry) for label, entry in methods.items()
            }
        merged |= {key: _over(merged.get(key), value) if key in _SECTIONS else value for key, value in data.items()}
    return merged


_SECTIONS = ("training", "evaluation", "engine")
"""Sections of an extended experiment in which single values can be changed."""


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings within mappings: what `own` does not say stays. A list or another value is replaced."""
    both = {
        key: merged(base[key], value) if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in own.items()
    }
    return {**base, **both}


def _over(base: Any, own: Any) -> Any:
    return {**base, **own} if isinstance(base, dict) and isinstance(own, dict) else own


def _with_files(data: Any, folder: Path) -> Any:
    """The same, every `file` and `root` in it absolute."""
    if isinstance(data, list):
        return [_with_files(part, folder) for part in data]
    if not isinstance(data, dict):
        return data
    return {
        key: str((folder / expanded(value, key)).resolve())
        if key in {"file", "root"} and isinstance(value, str) and value.strip()
        else _with_files(value, folder)
        for key, value in data.items()
    }


def experiment_files(name: str) -> list[Path]:
    """The experiment's own file, then those of the experiments that it extends."""
    files = [experiment_file(name)]
    while (base := _mapping(files[-1]).get("extends")) is not None:
        if not isinstance(base, str):
            raise UserError(f"'{files[-1]}': extends = {base!r}: the name of an experiment, or a YAML file")
        is_file = base.endswith((".yaml", ".yml"))
        file = experiment_file(str(files[-1].parent / base) if is_file else base)
        if file.resolve() in [known.resolve() for known in files]:
            raise UserError(f"'{files[0]}' extends itself")
        files.append(file)
    return files
