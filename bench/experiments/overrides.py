"""Values that the command line sets: single keys by `--set`, and the keys of Snakemake's `--config`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, get_args

from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.schema import (
    FIELDS_OF,
    ExperimentFile,
    ExperimentPart,
    MethodEntry,
    PartitionOverrides,
    differing,
)
from fedflat.bench.experiments.sections.scale import Scale
from fedflat.bench.experiments.sections.training import alternatives
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import REPORT, Frozen
from fedflat.bench.input.strict_yaml import DEPTH

CONFIG_KEYS = {
    "rounds": "training.rounds",
    "until": "evaluation.until",
    "seeds": "grid.seeds",
    "scale": "scale",
    "methods": "chosen",
    "report": "report",
    "engine": "engine.backend",
    "trials": "tuning.trials",
}
"""For each key of `--config`, the key of an experiment's file that it overrides."""

SECTIONS = ("dataset", "model", "training", "evaluation", "engine")
"""The keys that an experiment and a run's configuration have in common."""


@dataclass(frozen=True)
class Override:
    """A key of an experiment's file with its value on the command line.

    `part`, `method` and `partition` (or the path of a setting) are the labels in the key, such as fedsam in
    methods.fedsam.hyperparameters.rho; None: the value applies to all of them. `names` are the names after the labels:
    hyperparameters and rho. The label of a participation in `evaluation_where` is one of the names.
    """

    key: str
    value: Any
    part: str | None
    method: str | None
    partition: str | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, key: str, value: Any) -> "Override":
        """The override of a dotted key. Labels and hyper-parameters may contain dots, too."""
        found = _KEY.fullmatch(key)
        assert found is not None  # the pattern of the last group matches every text
        if key.count(".") > DEPTH:
            raise UserError(f"'{key}' has more than {DEPTH} points (allowed: a key of an experiment's file)")
        part, method, partition, rest = found.groups()
        section, _, name = rest.partition(".")
        names = tuple(rest.split("."))
        if name and section == "hyperparameters" and not name.startswith(("swa.", "schedules.")):
            names = (section, name)  # such as correction.alpha
        elif section == "evaluation_where" and (labelled := _PARTICIPATION.match(name)):  # bernoulli-0.2-of-100
            names = (section, labelled[1], *filter(None, name[labelled.end() :].split(".")))
        return cls(key, value, part, method, partition, names)

    @property
    def path(self) -> tuple[str, ...]:
        """The keys from the top of the file to the value."""
        labels = {"parts": self.part, "methods": self.method, "where": self.partition}
        return (
            *(key for section, label in labels.items() if label is not None for key in (section, label)),
            *self.names,
        )

    @property
    def evaluated_participations(self) -> tuple[str, ...]:
        """The labels of `evaluation_where` that the key or the value gives."""
        section, *label = self.names[:2]
        if section != "evaluation_where":
            return ()
        return tuple(label) or differing(self.value)

    @property
    def is_general(self) -> bool:
        """Whether the key contains no label, so that the value applies to all cells."""
        return self.part is None and self.method is None

    @property
    def is_key(self) -> bool:
        """Whether the names are a key of an experiment's file, a field of a section, or a key below labels."""
        first, *below = self.names
        if not self.is_general:
            return True
        if first in FIELDS_OF:
            return not below or below[0] in FIELDS_OF[first].model_fields
        return first in ExperimentFile.model_fields and (first != "methods" or len(below) < 2)

    def applies_to(self, cell: CellAddress) -> bool:
        """Whether the labels in the key are those of the cell."""
        if self.partition not in (None, *cell.setting.where_labels):
            return False
        return self.part in (None, cell.setting.dataset) and self.method in (None, cell.method)

    def in_run(self, participation: str) -> dict[str, Any]:
        """The value in the configuration of a run with this participation; empty if no run has the key."""
        section, *names = self.names
        if section == "evaluation_where":
            if not names:
                return {"evaluation": self.value.get(participation) or {}}
            return _nested(("evaluation", *names[1:]), self.value or {}) if names[0] == participation else {}
        if section not in (*SECTIONS, "hyperparameters"):
            return {}
        return _nested(("method", *self.names) if section == "hyperparameters" else self.names, self.value)


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """The value below the keys of the path."""
    nested: dict[str, Any] = reduce(lambda inner, name: {name: inner}, reversed(path), value)
    return nested


def _label_before(name: str, model: type[Frozen]) -> str:
    """The pattern of a label: the shortest text before the first key of `model`."""
    return rf"(?P<{name}>.+?)\.(?=(?:{'|'.join(model.model_fields)})(?:\.|$))"


_KEY = re.compile(
    rf"(?:parts\.{_label_before('part', ExperimentPart)})?"
    rf"(?:methods\.{_label_before('method', MethodEntry)}"
    rf"(?:where\.{_label_before('partition', PartitionOverrides)})?)?"
    r"(.*)",
    re.DOTALL,
)

_PARTICIPATION = re.compile(r"(.+?-of-\d+)(?:\.|$)")
"""The label of a participation, as `Participation.label` writes it, at the start of a key."""


def full_key(override: Override, methods: Mapping[str, Any]) -> str | None:
    """The key that ends with the same name: a field of a section, or the first method's hyper-parameter; or None.

    `methods` are the entries of the experiment's methods. A method that the key names takes precedence.
    """
    *above, name = override.names
    if above[:1] != ["methods"]:
        for given in (name, *above[:1]):
            if (meant := ExperimentFile.meant(given)) is not None:
                return meant
    for label in sorted(methods, key=lambda label: label not in above):
        entry = methods[label]
        if isinstance(entry, dict) and name in (entry.get("hyperparameters") or {}):
            return f"methods.{label}.hyperparameters.{name}"
    return None


def parse_overrides(values: Mapping[str, Any]) -> tuple[Override, ...]:
    """The overrides in the order of their precedence, which is that of the same keys in a file.

    The most specific key comes last: values of a method follow those of a part and of the experiment, and values with
    one partition follow all others.
    """
    overrides = [Override.of(key, value) for key, value in values.items()]
    _refuse_alternatives(overrides)
    return tuple(sorted(overrides, key=_specificity))


def _refuse_alternatives(overrides: Iterable[Override]) -> None:
    """A `UserError` if one section of `training` is given two fields that exclude each other."""
    given: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
    for one in overrides:
        if one.names[:1] == ("training",) and len(one.names) == 2 and one.value is not None:
            other = given.setdefault((one.path[:-1], alternatives(one.names[1])), one.key)
            if other != one.key:
                raise UserError(f"{other} and {one.key} exclude each other (allowed: one of them)")


def _specificity(override: Override) -> tuple[bool, bool, bool, int]:
    partition, method, part = (label is not None for label in (override.partition, override.method, override.part))
    return partition, method, part, len(override.path)


def config_overrides(config: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides by the keys of an experiment's file; a `UserError` names a wrong value and what is allowed."""
    for key, (is_valid, allowed) in _ALLOWED.items():
        if key in config and not is_valid(config[key]):
            raise UserError(f"{key}={config[key]} (allowed: {allowed})")
    return {dotted: config[key] for key, dotted in CONFIG_KEYS.items() if key in config}


_BACKENDS = get_args(EngineSettings.model_fields["backend"].annotation)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_accuracy(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 100


def _are_seeds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(str(seed).isdecimal() for seed in value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rounds": (_is_count, "a whole number of at least 1"),
    "until": (_is_accuracy, "a test accuracy in percent, such as 74"),
    "seeds": (_are_seeds, "a list such as [0,1,2]"),
    "scale": (lambda value: value in get_args(Scale), " or ".join(get_args(Scale))),
    "methods": (_are_names, "a list such as [fedavg,fedsam]"),
    "report": (
        lambda value: bool(re.fullmatch(REPORT, str(value))),
        "last, best, or mean_last_N, such as mean_last_100",
    ),
    "trials": (_is_count, "a whole number of at least 1"),
    "engine": (lambda value: value in _BACKENDS, ", ".join(_BACKENDS)),
}
"""For each key, whether a value is allowed, and the allowed values in words."""
