"""How one value of an experiment overrides another: ordered layers, of which a later one takes precedence.

First the file, a mapping with the keys of `ExperimentFile` (`FILE_LAYERS`):

1. the files that the experiment extends, the farthest first, and its own file: `training`, `evaluation`, `engine` and
   methods are merged key by key; every other key replaces the inherited one, and methods without an entry are left out
2. `scale` among the overrides: the number of rounds at smoke scale, and a name of the experiment at that scale
3. the overrides of `--set` and `--config`: single keys. `training.rounds` and `grid.seeds` also apply to parts and
   methods, whose own values of these two are dropped; every other override is a value of layer 1 that a part, variant
   or method may override

Then each part (`part_fields`):

4. the experiment's values, and over them the part's: `dataset` and `model` replace, all else is merged key by key,
   including the entries of methods

Then the configuration of one cell (`CELL_LAYERS`):

5. the sections of the part, with one partition and participation of its grid
6. `variant: released`: switches, training and sampling of the released code
7. the method's entry: `hyperparameters` and `training`
8. the entry's `where` for this partition
9. faults of the released code, which the method's entry cannot switch off, and its defaults of SWA
10. `scale: smoke`: data set, model and what they require
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from bench.data.partitions import AnyPartition
from bench.engine.participation import Participation
from bench.experiments.files import experiment_files, read_yaml
from bench.experiments.scale import ROUNDS, at_smoke_scale
from bench.experiments.schema import ExperimentFile, ExperimentPart, MethodEntry
from bench.input.content import expanded
from bench.input.errors import UserError
from bench.methods.released import Release
from bench.models.user_model import parse_reference

Data = dict[str, Any]
"""Keys and values of an experiment's file, or of a run's configuration."""

Overrides = Mapping[str, Any]
"""Values by dotted keys of the file, such as training.rounds."""

_MERGED_SECTIONS = ("training", "evaluation", "engine")


def resolved_file(name: str, overrides: Overrides) -> Data:
    """The keys of an experiment's file after the file layers."""
    data = experiment_data(name)
    return reduce(lambda data, layer: layer(data, overrides), FILE_LAYERS, data)


def experiment_data(name: str) -> Data:
    """The keys of an experiment's file, over those of the experiments that it extends.

    Paths under `file`, `root` and in a model's reference are relative to the file that contains them.
    """
    merged_files: Data = {}
    for file in reversed(experiment_files(name)):
        data = read_yaml(file)
        if isinstance(model := data.get("model"), str) and ":" in model:
            data["model"] = parse_reference(model)
        data = _with_absolute_paths(data, file.parent)
        methods, inherited = data.get("methods"), merged_files.get("methods")
        if isinstance(methods, dict):
            known = inherited if isinstance(inherited, dict) else {}
            data["methods"] = {
                label: _updated(known.get(label, {}), {} if entry is None else entry)
                for label, entry in methods.items()
            }
        merged_files |= {
            key: _updated(merged_files.get(key), value) if key in _MERGED_SECTIONS else value
            for key, value in data.items()
        }
    return merged_files


def scaled_name(name: str, scale: str | None) -> str:
    """The name of an experiment at a scale; its results are stored apart from those at the paper's scale."""
    return name if scale in (None, "paper") else f"{name}_{scale}"


def _scale(data: Data, overrides: Overrides) -> Data:
    scale = overrides.get("scale")
    if scale in (None, "paper"):
        return data
    return {**with_rounds(data, ROUNDS), "name": scaled_name(str(data.get("name")), scale)}


def _overrides(data: Data, overrides: Overrides) -> Data:
    for key, set_everywhere in _EVERYWHERE.items():
        if key in overrides:
            data = set_everywhere(data, overrides[key])
    for key, value in overrides.items():
        if key not in _EVERYWHERE:
            _set(data, key, value)
    return data


FILE_LAYERS: tuple[Callable[[Data, Overrides], Data], ...] = (_scale, _overrides)
"""Layers 2 and 3, applied to the result of layer 1 (`experiment_data`)."""


def _set(data: Data, dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    section = data
    for key in parents:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise UserError(f"{dotted}: {key} is a value, not a section")
    section[last] = value


def with_rounds(data: Data, rounds: Any) -> Data:
    """An experiment's file with this number of rounds everywhere, also in parts and methods.

    SWA then begins at its default round, because a configured one may come after the last round.
    """
    return {
        **_without(data, {"training": "rounds", "swa": "start"}),
        "training": {**data.get("training", {}), "rounds": rounds},
    }


def with_seeds(data: Data, seeds: Any) -> Data:
    """An experiment's file with these seeds everywhere, also in parts."""
    return {**_without(data, {"grid": "seeds"}), "grid": {**data.get("grid", {}), "seeds": seeds}}


_EVERYWHERE: Mapping[str, Callable[[Data, Any], Data]] = {"training.rounds": with_rounds, "grid.seeds": with_seeds}
"""Overrides that apply to parts and methods, too."""


def part_fields(experiment: ExperimentFile, label: str, part: ExperimentPart) -> Data:
    """The keys of a part as an experiment without parts (layer 4), with the methods of this part only."""
    overrides = part.model_dump(exclude_none=True, exclude={"methods", "only"})
    data = merged(experiment.model_dump(exclude={"parts", "methods", "extends", "chosen"}), overrides)
    data |= {key: overrides[key] for key in ("dataset", "model") if key in overrides}
    entries = experiment.model_dump(include={"methods"})["methods"]
    data["methods"] = {
        method: merged({**entries[method], "parts": None}, part.methods.get(method, {}))
        for method, entry in experiment.methods.items()
        if label in (entry.parts or (label,)) and method in (part.only or (method,))
    }
    return data


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Data:
    """Nested mappings merged key by key; a list or another value of `overrides` replaces that of `base`."""
    updates = {
        key: merged(base[key], value) if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in overrides.items()
    }
    return {**base, **updates}


@dataclass(frozen=True)
class CellPlace:
    """One cell before it is resolved: an experiment without parts, a method's label, and one setting of the grid."""

    part: ExperimentFile
    label: str
    partition: AnyPartition
    participation: Participation

    @property
    def entry(self) -> MethodEntry:
        """The method's entry; its overrides in `where` are not applied yet."""
        return self.part.methods[self.label]

    @property
    def release(self) -> Release | None:
        """The changes by the method's variant; None for the published variant."""
        return self.entry.release(self.label)


def cell_config(place: CellPlace) -> Data:
    """The configuration of a cell's runs, without the seed."""
    config: Data = {}
    return reduce(lambda config, layer: layer(config, place), CELL_LAYERS, config)


def _sections(_: Data, place: CellPlace) -> Data:
    part = place.part
    return {
        "dataset": part.dataset,
        "model": part.model,
        "partition": place.partition.model_dump(),
        "participation": place.participation.model_dump(),
        "method": {**place.entry.choice(place.label).model_dump(), "hyperparameters": {}},
        "training": part.training.model_dump(),
        "evaluation": part.evaluation.model_dump(),
        "engine": part.engine.model_dump(),
    }


def _released_code(config: Data, place: CellPlace) -> Data:
    if (release := place.release) is None:
        return config
    participation = place.participation.sampled(release.sampling, place.partition.clients)
    config = {**config, "participation": participation.model_dump()}
    return _with_method(config, release.hyperparameters, release.training)


def _method_entry(config: Data, place: CellPlace) -> Data:
    return _with_method(config, place.entry.hyperparameters, place.entry.training)


def _where(config: Data, place: CellPlace) -> Data:
    overrides = place.entry.where.get(place.partition.label)
    return config if overrides is None else _with_method(config, overrides.hyperparameters, overrides.training)


def _released_faults(config: Data, place: CellPlace) -> Data:
    if (release := place.release) is None:
        return config
    config = _with_method(config, release.faults, {})
    swa = config["method"]["hyperparameters"].get("swa")
    return _with_method(config, {"swa": {**release.swa, **swa}}, {}) if isinstance(swa, dict) else config


def _smoke_scale(config: Data, place: CellPlace) -> Data:
    return at_smoke_scale(config) if place.part.scale == "smoke" else config


CELL_LAYERS: tuple[Callable[[Data, CellPlace], Data], ...] = (
    _sections,
    _released_code,
    _method_entry,
    _where,
    _released_faults,
    _smoke_scale,
)
"""Layers 5 to 10."""


def _with_method(config: Data, hyperparameters: Mapping[str, Any], training: Mapping[str, Any]) -> Data:
    """The configuration with these hyper-parameters and fields of training in addition."""
    method = config["method"]
    return {
        **config,
        "method": {**method, "hyperparameters": {**method["hyperparameters"], **hyperparameters}},
        "training": {**config["training"], **training},
    }


def _updated(base: Any, overrides: Any) -> Any:
    """One level of merging: `overrides` replaces a base that is no mapping."""
    return {**base, **overrides} if isinstance(base, dict) and isinstance(overrides, dict) else overrides


def _with_absolute_paths(data: Any, folder: Path) -> Any:
    """The same data with every `file` and `root` as an absolute path."""
    if isinstance(data, list):
        return [_with_absolute_paths(item, folder) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: str((folder / expanded(value, key)).resolve())
        if key in {"file", "root"} and isinstance(value, str) and value.strip()
        else _with_absolute_paths(value, folder)
        for key, value in data.items()
    }


def _without(tree: Data, dropped: Mapping[str, str]) -> Data:
    """The tree without the key `dropped[name]` of each section with a name in `dropped`, at any depth."""
    return {
        name: _without({key: v for key, v in value.items() if key != dropped.get(name)}, dropped)
        if isinstance(value, dict)
        else value
        for name, value in tree.items()
    }
