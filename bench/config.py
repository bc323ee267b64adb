"""Configurations: one immutable `RunConfig` per run, and experiments (YAML grids) that expand to them.

A run's identity is the hash of its canonical JSON; a readable path such as
`digits/dirichlet-0.1/4-of-20/fedsam/seed-0` is what people and Snakemake see.
"""

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from bench.data.partitions import AnyPartition
from bench.data.sources import Source, parse_source
from bench.engine.federation import Steps
from bench.errors import UserError, unknown
from bench.frozen import LABEL, NAME, Frozen
from bench.methods.catalog import Recipe, recipe
from bench.models import MODELS
from bench.strict_yaml import load_yaml

PAPER_TABLES = Path(__file__).parents[1] / "paper_tables"
"""Where experiments and the layouts of their tables and figures stand, one folder each."""


class Participation(Frozen):
    """Which clients take part in a round: `fixed`, a set of `active` clients; `bernoulli`, each with `probability`."""

    sampling: Literal["fixed", "bernoulli"] = "fixed"
    active: int | None = Field(default=None, ge=1, description="clients per round, for fixed sampling")
    probability: float | None = Field(default=None, gt=0, le=1, description="for bernoulli sampling; no round is empty")

    @model_validator(mode="after")
    def _one_size(self) -> "Participation":
        given = {"fixed": self.active, "bernoulli": self.probability}
        if given[self.sampling] is None or sum(v is not None for v in given.values()) != 1:
            raise UserError("participation takes active with sampling fixed, or probability with sampling bernoulli")
        return self

    def check(self, clients: int) -> None:
        """A `UserError` if more clients are active than are registered."""
        if self.active is not None and self.active > clients:
            raise UserError(f"{self.active} active clients per round, but only {clients} are registered")

    def label(self, clients: int) -> str:
        """For example 4-of-20, or bernoulli-0.2-of-20."""
        return f"{self.active}-of-{clients}" if self.active else f"bernoulli-{self.probability:g}-of-{clients}"


class MethodConfig(Frozen):
    """A method of the catalog and its hyper-parameters, under their canonical names; defaults are filled in."""

    name: str
    hyperparameters: dict[str, float | int | bool | str] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("name"), str):
            given = data.get("hyperparameters") or {}
            if not isinstance(given, Mapping):
                raise UserError(f"hyperparameters of {data['name']} must be a mapping, not {given!r}")
            return {**data, "hyperparameters": recipe(data["name"]).complete(given)}
        return data

    @property
    def recipe(self) -> Recipe:
        """The catalog's entry."""
        return recipe(self.name)


class Training(Steps):
    """What a run does, whatever its method: rounds, local work, and the settings of its steps."""

    rounds: int = Field(ge=1, description="communication rounds T")
    local_epochs: int = Field(ge=1, description="epochs E over a client's data per round; the last batch may be short")
    batch_size: int = Field(ge=1, description="mini-batch size B")


class Evaluation(Frozen):
    """When the global model is evaluated, and which states are kept for analysis."""

    every: int = Field(default=1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    snapshot_every: int | None = Field(
        default=None, ge=1, description="rounds between kept states, the last one's included; null: none is kept"
    )

    def is_due(self, finished_rounds: int, rounds: int) -> bool:
        """Whether the model is evaluated after so many of `rounds` rounds."""
        return finished_rounds % self.every == 0 or finished_rounds == rounds

    def snapshots(self, rounds: int) -> list[int]:
        """The numbers of finished rounds after which the state is kept."""
        if self.snapshot_every is None:
            return []
        return sorted({*range(self.snapshot_every, rounds + 1, self.snapshot_every), rounds})


class RunConfig(Frozen):
    """All that decides a run's numbers."""

    version: Literal[1] = 1
    dataset: Source
    model: str
    partition: AnyPartition
    participation: Participation
    method: MethodConfig
    training: Training
    evaluation: Evaluation = Evaluation()
    seed: int = Field(ge=0)

    @model_validator(mode="before")
    @classmethod
    def _shorthands(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            if "dataset" in data:
                data = {**data, "dataset": parse_source(data["dataset"])}
            if isinstance(data.get("method"), str):
                data = {**data, "method": {"name": data["method"]}}
            method, training = data.get("method"), data.get("training")
            if isinstance(method, Mapping) and isinstance(training, Mapping) and training.get("aggregation") is None:
                data = {**data, "training": {**training, "aggregation": recipe(str(method.get("name"))).aggregation}}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        self.participation.check(self.partition.clients)
        method = self.method.recipe.build(self.method.hyperparameters)
        method.check_server_lr(self.training.server_lr)
        return self

    @cached_property
    def snapshots(self) -> list[int]:
        """The numbers of finished rounds after which the state is kept."""
        return self.evaluation.snapshots(self.training.rounds)

    def canonical_json(self) -> str:
        """Every field, sorted, without spaces: equal runs give equal text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the canonical JSON, first 16 hex digits."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]

    def setting(self) -> str:
        """Data set, partition and participation as a path, for example digits/dirichlet-0.1/4-of-20."""
        return _setting(self.dataset, self.partition, self.participation)


def _setting(dataset: Source, partition: AnyPartition, participation: Participation) -> str:
    return str(PurePosixPath(dataset.label, partition.label, participation.label(partition.clients)))


class MethodEntry(Frozen):
    """One method of an experiment: hyper-parameters as that experiment's paper states them, and exceptions."""

    name: str | None = Field(default=None, description="catalog name; default: the entry's own key")
    hyperparameters: dict[str, float | int | bool | str] = Field(default={})
    # Bool, so that it arrives as it is where the training is validated, which refuses it.
    training: dict[str, float | int | bool | str | None] = Field(
        default={}, description="fields of training that differ"
    )


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


class Experiment(Frozen):
    """A grid of runs: settings × methods × seeds."""

    name: str = Field(pattern=NAME)
    description: str = ""
    dataset: str | dict[str, Any]
    model: str
    training: Training
    evaluation: Evaluation = Evaluation()
    grid: Grid
    methods: dict[Annotated[str, Field(pattern=LABEL)], MethodEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_methods(self) -> "Experiment":
        for label, entry in self.methods.items():
            recipe(entry.name or label)
        return self

    def settings(self) -> dict[str, tuple[AnyPartition, Participation]]:
        """The settings of the grid by path, such as digits/dirichlet-0.1/4-of-20."""
        dataset = parse_source(self.dataset)
        settings: dict[str, tuple[AnyPartition, Participation]] = {}
        for partition, participation in itertools.product(self.grid.partition, self.grid.participation):
            participation.check(partition.clients)
            path = _setting(dataset, partition, participation)
            if path in settings:
                raise UserError(f"experiment {self.name} has the setting {path} twice")
            settings[path] = (partition, participation)
        return settings

    def cells(self) -> dict[str, "Cell"]:
        """All cells of the grid by path, such as digits/dirichlet-0.1/4-of-20/fedsam."""
        return {path: self._expanded(*place) for path, place in self._grid().items()}

    def cell(self, path: str) -> "Cell":
        """One cell by its path; a `UserError` suggests the nearest. What the other cells hold is not looked at."""
        grid = self._grid()
        if path not in grid:
            raise unknown(f"cell of experiment {self.name}", path, grid)
        return self._expanded(*grid[path])

    def _grid(self) -> dict[str, tuple[AnyPartition, Participation, str]]:
        return {f"{path}/{label}": (*pair, label) for path, pair in self.settings().items() for label in self.methods}

    def _expanded(self, partition: AnyPartition, participation: Participation, label: str) -> "Cell":
        entry = self.methods[label]
        common = {
            "dataset": self.dataset,
            "model": self.model,
            "partition": partition.model_dump(),
            "participation": participation.model_dump(),
            "method": {"name": entry.name or label, "hyperparameters": entry.hyperparameters},
            "training": {**self.training.model_dump(), **entry.training},
            "evaluation": self.evaluation.model_dump(),
        }
        return Cell(label, tuple(RunConfig.parse({**common, "seed": seed}) for seed in self.grid.seeds))


@dataclass(frozen=True)
class Cell:
    """One method in one setting, all seeds. `label` is the method's name in this experiment."""

    label: str
    runs: tuple[RunConfig, ...]

    @property
    def setting(self) -> str:
        """Data set, partition and participation as a path."""
        return self.runs[0].setting()

    @property
    def path(self) -> str:
        """Readable path: setting and method."""
        return f"{self.setting}/{self.label}"

    def ids(self) -> dict[str, str]:
        """The cell's columns in tidy files."""
        dataset, partition, participation = self.setting.split("/")
        return {"dataset": dataset, "partition": partition, "participation": participation, "method": self.label}

    @property
    def identity(self) -> str:
        """Hash over the runs' identities: what Snakemake compares to know whether a cell changed."""
        return hashlib.sha256(":".join(run.identity for run in self.runs).encode()).hexdigest()[:16]


def experiment_schema() -> dict[str, Any]:
    """The JSON schema of experiment files, with which Snakemake and editors can validate them."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Experiment.model_json_schema()}


def experiment_file(name: str) -> Path:
    """The YAML file of a named experiment (`paper_tables/NAME/experiments.yaml`), or the given YAML file itself."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    known = {file.parent.name: file for file in PAPER_TABLES.glob("*/experiments.yaml")}
    if name not in known:
        if Path(name).is_dir():
            raise UserError(f"'{name}' is a folder; give its YAML file, for example {name}/experiments.yaml")
        raise unknown("experiment", name, known)
    return known[name]


def load_experiment(name: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """Read and validate an experiment by name or file.

    `changes` maps dotted keys of the file, such as training.rounds, to other values.
    """
    file = experiment_file(name)
    data = read_yaml(file)
    for dotted, value in (changes or {}).items():
        *parents, last = dotted.split(".")
        place = data
        for key in parents:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise UserError(f"{dotted}: {key} is a value, not a section")
        place[last] = value
    return Experiment.parse(data, where=str(file))


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML mapping; a `UserError` says what is wrong with the file."""
    try:
        data = load_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read '{file}': {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"'{file}' is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise UserError(f"'{file}' must hold a mapping, not {type(data).__name__}")
    return data
