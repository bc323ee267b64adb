"""How one value of an experiment overrides another: ordered layers, of which a later one takes precedence.

First the file, a mapping with the keys of `ExperimentFile`:

1. `experiment_data`: the files that the experiment extends, the farthest first, and its own file: `training`,
   `evaluation`, `evaluation_where`, `engine`, `search`, `tuning`, `grid` and methods are merged key by key; every other
   key replaces the inherited one, and methods without an entry are left out

Then `FILE_LAYERS`:

2. `_methods_of_parts`: methods that only parts list belong to the experiment, too
3. `_scale`: the number of rounds at smoke scale, and the experiment's name at that scale on
   the command line
4. `_overrides`: the values of the command line (`--set`, `--config`), in the experiment and in its parts

Then `sweeps.expanded`: a list of values becomes one method for each.

Then each part as an experiment without parts (`part_fields`):

5. the experiment's values, and over them the part's: `dataset` and `model` replace, all else is merged key by key,
   including the entries of methods

Then the configuration of one cell (`CELL_LAYERS`):

6. `_sections`: the sections of the part, with one partition and participation of its grid, and what the part's
   `evaluation_where` has for this participation
7. `_recipe`: `training` of the recipe of a method in a file
8. `_released_code`: switches, training and sampling of the released code, for `variant: released`
9. `_method_entry`: the method's entry: `hyperparameters` and `training`
10. `_where`: the entry's `where` for this partition, then for this setting
11. `_released_faults`: faults of the released code, which the method's entry cannot switch off, and its defaults of SWA
12. `_smoke_scale`: data set, model and what they require, and SWA's start and cycle, for `scale: smoke`
13. `_command_line`: the values of the command line, which layers 5 to 12 may have replaced
14. `_sweep`: the value of this cell, where a list gives several; a more specific value than the list is an error

At last `RunConfig` fills in what no layer gives, from the values of all layers:

15. hyper-parameters by the components' defaults, `swa.start` by three quarters of the rounds, `aggregation` by the
    method's own weights, hashes of user-defined files, and every other field by its default
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from fedflat.bench.code.named_code import parse_reference
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.sources import referenced
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.files import experiment_files, read_yaml
from fedflat.bench.experiments.overrides import Override, full_key
from fedflat.bench.experiments.schema import ExperimentFile, ExperimentPart, MethodEntry
from fedflat.bench.experiments.sections.evaluation import referenced_metric
from fedflat.bench.experiments.sections.own_analysis import referenced_analysis
from fedflat.bench.experiments.sections.scale import ROUNDS, at_smoke_scale
from fedflat.bench.experiments.sections.training import alternatives, with_training
from fedflat.bench.experiments.sweeps import SECTIONS as SWEPT_SECTIONS
from fedflat.bench.experiments.sweeps import SweptMethod
from fedflat.bench.input.content import expanded
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.released import Release
from fedflat.bench.models.user_model import NOUN

Data = dict[str, Any]
"""Keys and values of an experiment's file, or of a run's configuration."""

Overrides = Sequence[Override]
"""The values of the command line, in the order of their precedence."""

_MERGED_SECTIONS = ("training", "evaluation", "evaluation_where", "engine", "search", "tuning", "grid")


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
        data = _with_absolute_paths(_with_references(data), file.parent)
        methods, inherited = data.get("methods"), merged_files.get("methods")
        if isinstance(methods, dict):
            known = inherited if isinstance(inherited, dict) else {}
            data["methods"] = {
                label: _updated(known.get(label, {}), {} if entry is None else entry)
                for label, entry in methods.items()
            }
        merged_files |= {
            key: _updated(merged_files.get(key), value, key) if key in _MERGED_SECTIONS else value
            for key, value in data.items()
        }
    return merged_files


def scaled_name(name: str, scale: str | None) -> str:
    """The name of an experiment at a scale: at others than the paper's, it has its own, such as fedlesam_smoke."""
    return name if scale in (None, "paper") else f"{name}_{scale}"


def _methods_of_parts(data: Data, _: Overrides) -> Data:
    """Add methods that only parts list to the experiment's methods, restricted to these parts."""
    parts, common = data.get("parts"), data.get("methods")
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


def _scale(data: Data, overrides: Overrides) -> Data:
    scale = {"scale": data.get("scale"), **{override.key: override.value for override in overrides}}["scale"]
    if scale == "smoke":
        data = _with_training(data, "rounds", ROUNDS)
    return {**data, "name": scaled_name(data["name"], scale)} if isinstance(data.get("name"), str) else data


def _overrides(data: Data, overrides: Overrides) -> Data:
    return reduce(_with_override, overrides, data)


FILE_LAYERS: tuple[Callable[[Data, Overrides], Data], ...] = (_methods_of_parts, _scale, _overrides)
"""Layers 2 to 4, applied to the result of layer 1 (`experiment_data`)."""


def _with_override(data: Data, override: Override) -> Data:
    """An experiment's file with one value of the command line, also in those parts that have the key's section."""
    if override.key == "extends":
        raise UserError("extends: only the experiment's file can extend another experiment")
    parts, methods = (known if isinstance(known := data.get(key), dict) else {} for key in ("parts", "methods"))
    for kind, label, labels in (("part", override.part, parts), ("method", override.method, methods)):
        if label is not None and label not in labels:
            raise unknown(f"{kind} of experiment {data.get('name')}", label, labels)
    if not override.is_key and (key := full_key(override, methods)):
        raise UserError(f"unknown key '{override.key}'; did you mean '{key}'?")
    if override.is_general and override.names[0] == "training" and len(override.names) == 2:
        return _with_training(data, override.names[1], override.value)
    if override.part is None and parts:
        data = {**data, "parts": {label: _in_part(part, override) for label, part in parts.items()}}
    return _with_value(data, override.path, override)


def _in_part(part: Any, override: Override) -> Any:
    """A part with the value, if it has the key's section and, for a key of a method, an entry of that method."""
    if not isinstance(part, dict) or override.path[0] not in part:
        return part
    if override.method is not None and override.method not in (part["methods"] or {}):
        return part
    return _with_value(part, override.path, override)


def _with_value(section: Data, path: Sequence[str], override: Override) -> Data:
    """A copy of the section with the value at `path`."""
    key, *below = path
    if not below:
        values = {key: override.value}
        return with_training(section, values) if override.names[0] == "training" else {**section, **values}
    inner = section.get(key, {})
    if not isinstance(inner, dict):
        whole = ".".join(override.path[: len(override.path) - len(below)])
        value = yaml.safe_dump(inner, default_flow_style=True, sort_keys=False, width=1000).splitlines()[0]
        raise UserError(f"{override.key}: {key} is a value, not a section; replace it as a whole: '{whole}={value}'")
    return {**section, key: _with_value(inner, below, override)}


def _with_training(data: Data, key: str, value: Any) -> Data:
    """An experiment's file with this field of `training` everywhere: parts and methods have no other value of it.

    With another number of rounds, SWA begins at its default round, because a configured one may come after the last
    round.
    """
    together = (key,) if value is None else alternatives(key)
    dropped = {"training": together} | ({"swa": ("start",)} if key == "rounds" else {})
    training = data.get("training", {})
    if not isinstance(training, dict):
        raise UserError(f"training.{key}: training is a value, not a section")
    return {**_without(data, dropped), "training": with_training(training, {key: value})}


def part_fields(experiment: ExperimentFile, label: str, part: ExperimentPart) -> Data:
    """The keys of a part as an experiment without parts (layer 5), with the methods of this part only."""
    overrides = part.model_dump(exclude_none=True, exclude={"methods", "only", "stands_for"})
    data = merged(experiment.model_dump(exclude={"parts", "methods", "extends", "chosen", "analyses"}), overrides)
    data |= {key: overrides[key] for key in ("dataset", "model") if key in overrides}
    entries = experiment.model_dump(include={"methods"})["methods"]
    data["methods"] = {
        method: {**merged(entries[method], part.methods.get(method, {})), "parts": None}
        for method, entry in experiment.methods.items()
        if label in (entry.parts or (label,)) and method in (part.only or (method,))
    }
    return data


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Data:
    """Nested mappings merged key by key; a list or another value of `overrides` replaces that of `base`.

    So does a nested mapping with another `name`, such as that of a schedule: its keys are not those of the other one.
    """
    return {**base, **_over(base, overrides)}


def _over(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Data:
    """The values of `overrides`, merged with those of `base`."""
    found: Data = {}
    for key, value in overrides.items():
        below = base.get(key)
        if not (isinstance(below, dict) and isinstance(value, dict)) or _differ_in_name(below, value):
            found[key] = value
        else:
            found[key] = with_training(below, _over(below, value)) if key == "training" else merged(below, value)
    return found


def _differ_in_name(one: Data, other: Data) -> bool:
    return "name" in one and "name" in other and one["name"] != other["name"]


@dataclass(frozen=True)
class CellInputs:
    """The values that decide a cell's configuration: those of its part, its setting and the command line.

    `part` is an experiment without parts. `overrides` are the values of the command line for all cells. `in_file`: the
    address with the label of the method in the file; `swept`: the method's own values, if it belongs to a sweep.
    """

    address: CellAddress
    part: ExperimentFile
    partition: AnyPartition
    participation: Participation
    overrides: Overrides
    in_file: CellAddress
    swept: SweptMethod | None = None

    @property
    def label(self) -> str:
        """The label of the method."""
        return self.address.method

    @property
    def applied(self) -> Overrides:
        """The values of the command line that apply to this cell."""
        return [override for override in self.overrides if override.applies_to(self.in_file)]

    @property
    def entry(self) -> MethodEntry:
        """The method's entry; its overrides in `where` are not applied yet."""
        return self.part.methods[self.label]

    @property
    def release(self) -> Release | None:
        """The changes by the method's variant; None for the published variant."""
        return self.entry.release(self.label)


def cell_config(inputs: CellInputs) -> Data:
    """The configuration of a cell's runs, without the seed."""
    config: Data = {}
    return reduce(lambda config, layer: layer(config, inputs), CELL_LAYERS, config)


def _sections(_: Data, inputs: CellInputs) -> Data:
    part, participation = inputs.part, inputs.address.setting.participation
    return {
        "dataset": part.dataset,
        "model": part.model,
        "partition": inputs.partition.model_dump(),
        "participation": inputs.participation.model_dump(),
        "method": {**inputs.entry.choice(inputs.label).model_dump(), "hyperparameters": {}},
        "training": part.training.model_dump(),
        "evaluation": part.evaluation.model_dump() | (part.evaluation_where.get(participation) or {}),
        "engine": part.engine.model_dump(),
    }


def _recipe(config: Data, inputs: CellInputs) -> Data:
    return _with_method(config, {}, inputs.entry.choice(inputs.label).recipe.training)


def _released_code(config: Data, inputs: CellInputs) -> Data:
    if (release := inputs.release) is None:
        return config
    participation = inputs.participation.sampled(release.sampling, inputs.partition.clients)
    config = {**config, "participation": participation.model_dump()}
    return _with_method(config, release.hyperparameters, release.training)


def _method_entry(config: Data, inputs: CellInputs) -> Data:
    return _with_method(config, inputs.entry.hyperparameters, inputs.entry.training)


def _where(config: Data, inputs: CellInputs) -> Data:
    for label in inputs.address.setting.where_labels:
        if (overrides := inputs.entry.where.get(label)) is not None:
            config = _with_method(config, overrides.hyperparameters, overrides.training)
    return config


def _released_faults(config: Data, inputs: CellInputs) -> Data:
    if (release := inputs.release) is None:
        return config
    config = _with_method(config, release.faults, {})
    swa = config["method"]["hyperparameters"].get("swa")
    return _with_method(config, {"swa": {**release.swa, **swa}}, {}) if isinstance(swa, dict) else config


def _smoke_scale(config: Data, inputs: CellInputs) -> Data:
    if inputs.part.scale != "smoke":
        return config
    for override in inputs.applied:
        if override.names[0] in ("dataset", "model"):
            raise UserError(f"{override.key}: smoke scale has its own data set and model (allowed: scale=paper)")
    return at_smoke_scale(config)


def _command_line(config: Data, inputs: CellInputs) -> Data:
    participation = inputs.address.setting.participation
    return reduce(merged, (override.in_run(participation) for override in inputs.applied), config)


def _sweep(config: Data, inputs: CellInputs) -> Data:
    if inputs.swept is None:
        return config
    present = {**config["method"]["hyperparameters"], **config["training"]}
    for name, value in inputs.swept.axes.items():
        found = present.get(name)
        if found != value and not isinstance(found, list):  # the list, if the command line gives it
            setting = inputs.address.setting
            raise UserError(
                f"{inputs.swept.base}: {name} has a list of values, and the value {found} in a more specific place for "
                f"{setting.dataset}/{setting.partition} (allowed: one of both)"
            )
    return _with_method(config, *(inputs.swept.values[section] for section in SWEPT_SECTIONS))


CELL_LAYERS: tuple[Callable[[Data, CellInputs], Data], ...] = (
    _sections,
    _recipe,
    _released_code,
    _method_entry,
    _where,
    _released_faults,
    _smoke_scale,
    _command_line,
    _sweep,
)
"""Layers 6 to 13."""


def _with_method(config: Data, hyperparameters: Mapping[str, Any], training: Mapping[str, Any]) -> Data:
    """The configuration with these hyper-parameters and fields of training in addition."""
    method = config["method"]
    return {
        **config,
        "method": {**method, "hyperparameters": {**method["hyperparameters"], **hyperparameters}},
        "training": with_training(config["training"], training),
    }


def _updated(base: Any, overrides: Any, section: str = "") -> Any:
    """One level of merging: `overrides` replaces a base that is no mapping."""
    if not (isinstance(base, dict) and isinstance(overrides, dict)):
        return overrides
    return with_training(base, overrides) if section == "training" else {**base, **overrides}


def _with_references(data: Data) -> Data:
    """The data, and its parts, with the fields of user-defined models, data sets, metrics and analyses instead of their
    short forms."""
    found = dict(data)
    if isinstance(model := data.get("model"), str) and ":" in model:
        found["model"] = parse_reference(model, NOUN)
    if "dataset" in data:
        found["dataset"] = referenced(data["dataset"])
    if isinstance(evaluation := data.get("evaluation"), dict):
        found["evaluation"] = _with_metrics(evaluation)
    if isinstance(analyses := data.get("analyses"), list):
        found["analyses"] = list(map(referenced_analysis, analyses))
    if isinstance(where := data.get("evaluation_where"), dict):
        found["evaluation_where"] = {label: _with_metrics(fields) for label, fields in where.items()}
    if isinstance(parts := data.get("parts"), dict):
        found["parts"] = {
            label: _with_references(part) if isinstance(part, dict) else part for label, part in parts.items()
        }
    return found


def _with_metrics(evaluation: Any) -> Any:
    listed = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    return {**evaluation, "metrics": list(map(referenced_metric, listed))} if isinstance(listed, list) else evaluation


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


def _without(tree: Data, dropped: Mapping[str, Collection[str]]) -> Data:
    """The tree without the keys `dropped[name]` of each section with a name in `dropped`, at any depth."""
    return {
        name: _without({key: v for key, v in value.items() if key not in dropped.get(name, ())}, dropped)
        if isinstance(value, dict)
        else value
        for name, value in tree.items()
    }
