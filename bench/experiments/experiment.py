"""Experiments: grids of settings × methods × seeds, and the cells to which they expand.

A cell's path, such as digits/dirichlet-0.1/4-of-20/fedsam, names it in commands, in results and in Snakemake's targets.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, model_validator

from fedflat.bench.code.named_code import require_trusted_names, trust_named
from fedflat.bench.code.trusted_code import UntrustedCodeError
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.base import Source
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.files import experiment_file, experiment_names, read_yaml
from fedflat.bench.experiments.overrides import Override, parse_overrides
from fedflat.bench.experiments.resolving import CellInputs, cell_config, part_fields, resolved_file, scaled_name
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.schema import ExperimentFile, ExperimentPart, MethodEntry, differing
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.training import Training, with_training
from fedflat.bench.experiments.shared_sections import SharedSections
from fedflat.bench.experiments.sweeps import WITH_LISTS, SweptMethod, expanded
from fedflat.bench.input.bounds import MOST_RUNS
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import MOST_NAMES, SeveralMistakesError, UserError, all_mistakes, raise_all, unknown


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
        """Hash of the runs' identities; Snakemake compares it to detect that a cell has changed."""
        return short_hash(":".join(run.identity for run in self.runs))


class Experiment(ExperimentFile):
    """A grid of runs: settings × methods × seeds; or several grids, its parts."""

    _overrides: tuple[Override, ...] = PrivateAttr(default=())
    _swept: Mapping[str, SweptMethod] = PrivateAttr(default={})

    @property
    def swept(self) -> Mapping[str, SweptMethod]:
        """The methods of sweeps by label."""
        return self._swept

    def labels_of(self, method: str) -> list[str]:
        """The labels for which a method's name in layouts stands: itself, or all methods of its sweep."""
        return (
            [method] if method in self.methods else [label for label, one in self.swept.items() if one.base == method]
        )

    @cached_property
    def own_methods(self) -> tuple[str, ...]:
        """The labels of the user's own methods: those with a file, or with components, unless a paper has them."""
        of_papers = {scaled_name(name, self.scale) for name in experiment_names()}
        by_components = self.name not in of_papers
        return tuple(
            label for label, entry in self.methods.items() if entry.file is not None or (by_components and entry.slots)
        )

    def _in_file(self, address: CellAddress) -> CellAddress:
        """The address with the label that the method has in the file, which overrides name."""
        swept = self._swept.get(address.method)
        return address if swept is None else replace(address, method=swept.base)

    @model_validator(mode="after")
    def _valid_methods(self) -> "Experiment":
        errors = []
        for label, entry in self.methods.items():
            try:
                entry.choice(label).recipe  # noqa: B018 - raises if the method does not exist
                entry.release(label)
                for part in entry.parts or ():
                    if part not in self.parts:
                        raise unknown(f"part of experiment {self.name}", part, self.parts)
            except UserError as error:
                errors.append(error)
        raise_all(f"methods of experiment {self.name}", errors)
        return self

    @model_validator(mode="after")
    def _complete(self) -> "Experiment":
        for part in self.resolved_parts.values():
            for key in ("dataset", "model"):
                if getattr(part, key) is None:
                    raise UserError(f"experiment {self.name}: {key} is missing")
        return self

    @cached_property
    def resolved_parts(self) -> dict[str, ExperimentFile]:
        """Each part as an experiment without parts, by the part's label.

        An experiment without parts is its only part, by the label of its data set.
        """
        if not self.parts:
            return {"" if self.dataset is None else parse_source(self.dataset).label: self}
        return {label: self._resolved_part(label, part) for label, part in self.parts.items()}

    def _resolved_part(self, label: str, part: ExperimentPart) -> ExperimentFile:
        for method in (*part.methods, *(part.only or ())):
            if method not in self.methods:
                raise unknown(f"method of experiment {self.name}", method, self.methods)
        resolved = Experiment.parse(part_fields(self, label, part), f"part {label}")
        if resolved.grid.seeds != (seeds := self.grid.seeds)[: len(resolved.grid.seeds)]:
            raise UserError(
                f"part {label}: its seeds must be the first ones of the experiment's seeds, which are {seeds}"
            )
        return resolved

    @cached_property
    def settings(self) -> Mapping[Setting, tuple[AnyPartition, Participation]]:
        """The settings of all parts."""
        grids = [(part.grid, len(part.methods)) for part in self.resolved_parts.values()]
        axes = [(methods, *map(len, (grid.partition, grid.participation, grid.seeds))) for grid, methods in grids]
        if (runs := sum(map(math.prod, axes))) > MOST_RUNS:
            raise UserError(f"experiment {self.name} has {runs:,} runs (allowed: {MOST_RUNS:,})")
        settings: dict[Setting, tuple[AnyPartition, Participation]] = {}
        for label, part in self.resolved_parts.items():
            for partition, participation in itertools.product(part.grid.partition, part.grid.participation):
                participation.check(partition.clients)
                setting = Setting(label, partition.label, participation.label(partition.clients))
                if setting in settings:
                    raise UserError(f"experiment {self.name} has the setting {setting.path} twice")
                settings[setting] = (partition, participation)
        return settings

    def is_chosen(self, label: str) -> bool:
        """Whether the method with this label is chosen: by its label, or by its name in the catalog."""
        return label in self._chosen_labels

    @cached_property
    def _chosen_labels(self) -> frozenset[str]:
        chosen = self.chosen
        if chosen is None:
            return frozenset(self.methods)
        return frozenset(label for label, names in self.names_of_methods.items() if not names.isdisjoint(chosen))

    @property
    def names_of_methods(self) -> dict[str, set[str]]:
        """By label, the names that choose a method: its label, its name in the catalog, and the label of its sweep."""
        names = {label: {label, str(entry.choice(label).name)} for label, entry in self.methods.items()}
        bases = {label: {one.base} for label, one in self._swept.items()}
        return {label: known | bases.get(label, set()) for label, known in names.items()}

    @cached_property
    def _grid(self) -> dict[CellAddress, CellInputs]:
        """Every cell, whether its method is chosen or not."""
        return {
            address: CellInputs(
                address, part, partition, participation, self._overrides, self._in_file(address), self._swept.get(label)
            )
            for setting, (partition, participation) in self.settings.items()
            for part in (self.resolved_parts[setting.dataset],)
            for label in part.methods
            for address in (CellAddress(setting, label),)
        }

    @cached_property
    def addresses(self) -> tuple[CellAddress, ...]:
        """The addresses of all cells of the chosen methods, in the grid's order; no configuration is built."""
        return tuple(address for address in self._grid if self.is_chosen(address.method))

    @cached_property
    def _paths(self) -> dict[str, CellAddress]:
        return {address.path: address for address in self._grid}

    def paths(self) -> list[str]:
        """The paths of all cells of the chosen methods."""
        return [address.path for address in self.addresses]

    def paths_at(self, path: str) -> list[str]:
        """The cells for which a path stands: that cell, or those of all values of a sweep, by the method's name."""
        setting, _, method = path.rpartition("/")
        return [f"{setting}/{label}" for label in self.labels_of(method)] or [path]

    def has_cell(self, address: CellAddress) -> bool:
        """Whether the experiment has this cell, and the cell's method is chosen."""
        return address in self._grid and self.is_chosen(address.method)

    def cells(self) -> dict[str, Cell]:
        """All cells of the chosen methods by path, such as digits/dirichlet-0.1/4-of-20/fedsam.

        An error names the mistakes of all cells.
        """
        errors: dict[str, UserError] = {}
        for address in self.addresses:
            try:
                self._cell(address)
            except UserError as error:  # mostly one of a method, in all of its settings
                errors.setdefault(str(error), error)
                if len(errors) > MOST_NAMES:
                    break
        raise_all(f"experiment {self.name}", list(errors.values()))
        return {address.path: self._built[address] for address in self.addresses}

    def cell(self, path: str) -> Cell:
        """One cell by its path; its method need not be chosen, because analyses may compare with it.

        Other cells are not validated. A `UserError` suggests the nearest path.
        """
        if path.count("/") != 3:
            example = next(iter(self._paths))
            raise UserError(f"cell '{path}': expected DATASET/PARTITION/PARTICIPATION/METHOD, for example {example}")
        if path not in self._paths:
            raise unknown(f"cell of experiment {self.name}", path, self._paths)
        return self._cell(self._paths[path])

    def evaluation_in(self, setting: Setting) -> Evaluation:
        """How the runs in a setting are evaluated."""
        method = next(iter(self.resolved_parts[setting.dataset].methods))
        return self.cell(CellAddress(setting, method).path).runs[0].evaluation

    def data_in(self, setting: Setting) -> Source:
        """The data set of the runs in a setting."""
        return parse_source(self.resolved_parts[setting.dataset].dataset)

    def compared_cell(self, cell: CellAddress, label: str) -> CellAddress:
        """The cell of the method `label` in the same setting, or of the same method with the partition `label`.

        A `UserError` if the label is neither, or the experiment has no such setting.
        """
        methods = self.resolved_parts[cell.setting.dataset].methods
        if label in methods:
            return CellAddress(cell.setting, label)
        compared = replace(cell.setting, partition=label)
        if compared not in self.settings:
            labels = [*methods, *dict.fromkeys(setting.partition for setting in self.settings)]
            if label not in labels:
                raise unknown(f"method or partition to compare {cell.path} with", label, labels)
            paths = [setting.path for setting in self.settings]
            raise unknown(f"setting to compare {cell.path} with", compared.path, paths)
        return CellAddress(compared, cell.method)

    def check_overrides(self, cells: Collection[CellAddress], which: str) -> None:
        """A `UserError` if an override applies to none of the cells, which the message calls `which`."""
        for override in self._overrides:
            if not any(override.applies_to(self._in_file(cell)) for cell in cells):
                raise UserError(f"{override.key} applies to none of {which}")

    def _cell(self, address: CellAddress) -> Cell:
        if address not in self._built:
            inputs = self._grid[address]
            config, (seed, *others) = cell_config(inputs), inputs.part.grid.seeds
            where = "" if config["method"]["name"] == inputs.label else inputs.label
            run = self._sections.parse(config, seed, where)
            self._built[address] = Cell(address, (run, *map(run.with_seed, others)))
        return self._built[address]

    @cached_property
    def _sections(self) -> SharedSections:
        return SharedSections()

    @cached_property
    def _built(self) -> dict[CellAddress, Cell]:
        """The cells that have been requested."""
        return {}


def experiment_schema() -> dict[str, Any]:
    """The JSON schema of experiments' files, for editors."""
    schema = Experiment.model_json_schema()
    training = schema["properties"]["training"]["properties"]
    for name in set(training) - set(WITH_LISTS):  # a sweep
        training[name] = {"anyOf": [training[name], {"type": "array", "items": training[name]}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def load_experiment(name: str, overrides: Mapping[str, Any] | None = None, *, stored: bool = False) -> Experiment:
    """Read and validate an experiment by name or file.

    `overrides` maps dotted keys of the file, such as training.rounds, to values that take precedence over all others.
    A `UserError` if one of them applies to no cell, or if the file has the name of an experiment in paper_tables.

    The code that the experiment names is trusted from now on, because the user names the experiment. `stored`: it is a
    file in a folder of results, which may be somebody else's: an `UntrustedCodeError` if it names code that is not
    trusted.
    """
    parsed = parse_overrides(overrides or {})
    given = f" with {', '.join(overrides)}" if overrides else ""
    where = f"{experiment_file(name)}{given}"
    try:
        data, swept = expanded(resolved_file(name, parsed))
        if stored:
            require_trusted_names(data, f"a command that is given this experiment, such as: fedflat summary {name}")
        else:
            trust_named(data)
    except UntrustedCodeError:
        raise
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    try:
        experiment = Experiment.parse(data, where)
    except UserError as error:
        mistakes = all_mistakes([error, *_of_methods(data)], where)
        raise (SeveralMistakesError(where, mistakes) if len(mistakes) > 1 else error) from None
    experiment._swept = swept
    _check_owner(experiment.name, experiment_file(name))
    experiment._overrides = parsed
    own = read_yaml(experiment_file(name))
    if errors := [*_unknown_participations(experiment, own), *_unknown_partitions(experiment, own)]:
        raise_all(where, [*errors, *_of_methods(data)])
    if not all(override.is_general for override in parsed):
        experiment.check_overrides(list(experiment._grid), f"the cells of experiment {experiment.name}")
    return experiment


def _of_methods(data: Mapping[str, Any]) -> Iterator[UserError]:
    """The mistakes of methods in an experiment's file with other mistakes, as far as they show without the settings."""
    methods = data.get("methods")
    for label, given in methods.items() if isinstance(methods, dict) and not data.get("parts") else ():
        if not isinstance(given, dict | None):
            continue
        try:
            entry = MethodEntry.parse(given or {})
        except UserError:  # reported with the file
            continue
        where = {f"methods.{label}.where.{place}": values.training for place, values in entry.where.items()}
        for place, training in {f"methods.{label}": entry.training, **where}.items():
            try:
                Training.parse(with_training(_NEEDED, training), f"{place}.training")
            except UserError as error:
                yield error
        try:
            recipe = entry.choice(str(label)).recipe
            if entry.release(str(label)) is None:
                for values in [one.hyperparameters for one in entry.where.values()] or [{}]:
                    recipe.build({**entry.hyperparameters, **values})
        except UserError as error:
            yield error


_NEEDED = {"rounds": 1, "local_epochs": 1, "batch_size": 1, "lr": 1.0}
"""Values of `training` that are right, for those that an entry does not give."""


@cache
def own_experiment(paper: str) -> Experiment:
    """The experiment of a folder in paper_tables, or in a stored file, without overrides; read once per process."""
    return load_experiment(paper, stored=paper not in experiment_names())


def _unknown_participations(experiment: Experiment, own: Mapping[str, Any]) -> Iterator[UserError]:
    """An error for each label of `evaluation_where` in the file `own` or on the command line without participation.

    An experiment's label must occur in one of its parts, a part's label in that part. Inherited labels are not checked,
    because a file may extend an experiment with another grid; nor is the file, if the command line has another grid.
    """
    given = [(one.part, labels) for one in experiment._overrides if (labels := one.evaluated_participations)]
    given += [(part, differing(place.get("evaluation_where", {}))) for part, place in _own_places(experiment, own)]
    for part, labels in given:
        settings = (setting for setting in experiment.settings if part in (None, setting.dataset)) if labels else ()
        known = {setting.participation for setting in settings}
        for label in labels:
            if label not in known:
                of = f"experiment {experiment.name}" if part is None else part
                yield unknown(f"participation in evaluation_where of {of}", label, known)


def _unknown_partitions(experiment: Experiment, own: Mapping[str, Any]) -> Iterator[UserError]:
    """The same for labels in `where` of methods: each must be that of a partition or setting, of any part."""
    for _, place in _own_places(experiment, own):
        for method, entry in (place.get("methods") or {}).items():
            for label in (entry or {}).get("where", {}):
                if label not in (known := _where_labels(experiment)):
                    yield unknown(f"partition or setting in where of {method}", label, known)


def unused_where(experiment: Experiment) -> list[str]:
    """A line for each label in `where` of methods that the grid lacks, as inherited ones may be."""
    found: dict[str, dict[str, None]] = {}
    for method, entry in experiment.methods.items():
        for label in entry.where:
            if label not in _where_labels(experiment):
                base = experiment.swept[method].base if method in experiment.swept else method
                found.setdefault(label, {})[base] = None
    return [
        f"{experiment.name}: values for {label}, which its grid lacks, are left out ({', '.join(methods)})"
        for label, methods in found.items()
    ]


def _where_labels(experiment: Experiment) -> set[str]:
    return {label for setting in experiment.settings for label in setting.where_labels}


def _own_places(experiment: Experiment, own: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """The file `own` and its parts by label, unless the command line has another grid."""
    if not any(one.names[0] in ("grid", "parts") for one in experiment._overrides):
        yield None, own
        yield from own.get("parts", {}).items()


def _check_owner(name: str, file: Path) -> None:
    """A `UserError` if another file in paper_tables has this name: their results would be in the same folder."""
    if name in experiment_names() and not file.samefile(experiment_file(name)):
        raise UserError(f"'{file}': the name {name} belongs to paper_tables/{name}; choose another name")
