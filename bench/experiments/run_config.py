"""The configuration of one run: an immutable `RunConfig`, whose identity is the hash of its canonical JSON."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import model_validator
from pydantic.fields import FieldInfo

from fedflat.bench.code.named_code import CodeFile, NamedCode
from fedflat.bench.data.augmentation import AUGMENTATIONS, Mixup
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.sources import AnySource, parse_source
from fedflat.bench.engine.participation import Participation
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.sections.evaluation import OWN, Evaluation
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.input.bounds import Seed
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.input.registry import OneOf
from fedflat.bench.methods.compose import losses
from fedflat.bench.metrics import known_metrics
from fedflat.bench.metrics.user_metric import UserMetric
from fedflat.bench.models import MODELS, AnyModel

USER_FILES: Mapping[str, Any] = {
    "dataset": {
        "root": True,
        "clients": {"file": True},
        "file": True,
        "files": {"__all__": {"file": True}},
        "test": {"file": True},
        "path_hash": True,
        "module": True,
    },
    "method": {"file": True},
    "model": {"file": True, "module": True, "weights": {"file": True}},
    "partition": {"file": True, "order": {"file": True}},
    "participation": {"file": True, "availability": {"file": True}},
    "evaluation": {"metrics": {"__all__": {"file": True, "module": True}}},
}
"""Fields of a `RunConfig` with the paths of user-defined files. The hash of a file's content is a separate field; a
folder of images is read when a run starts."""


def not_in_keys(participation: Participation) -> Mapping[str, Any]:
    """Fields that keys with null values leave out: paths, and an availability that is null, which was added later."""
    unused = {"availability": True} if participation.availability is None else {}
    return {**USER_FILES["participation"], **unused}


NOT_IDENTITY: Mapping[str, Any] = {**USER_FILES, "engine": True}
"""Fields of a `RunConfig` that are not part of its identity."""


HASH_DIGITS, LONGEST_NAME = 8, 60
"""Of the folder of a configuration in the store: digits of its hash, and characters of the method's name before it."""


class RunConfig(Frozen):
    """Everything that determines a run's numbers."""

    version: Literal[2] = 2
    dataset: AnySource
    model: AnyModel
    partition: AnyPartition
    participation: Participation
    method: MethodConfig
    training: Training
    evaluation: Evaluation = Evaluation()
    engine: EngineSettings = EngineSettings()
    seed: Seed

    @model_validator(mode="before")
    @classmethod
    def _shorthands(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            if "dataset" in data:
                data = {**data, "dataset": parse_source(data["dataset"])}
            method, training = data.get("method"), data.get("training")
            if isinstance(method, str):
                method = {"name": method}
            if isinstance(method, Mapping) and isinstance(training, Mapping):
                method = MethodConfig.parse(_with_swa_start(method, training.get("rounds")))
                if training.get("aggregation") is None:
                    training = {**training, "aggregation": method.recipe.aggregation}
                data = {**data, "method": method, "training": training}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        self.participation.check(self.partition.clients, self.training.rounds)
        if (beyond := max(self.rounds_of_local_models, default=0)) > self.training.rounds:
            raise UserError(f"evaluation.local_models: round {beyond}, but training has {self.training.rounds} rounds")
        validation = self.evaluation.validation
        if validation == OWN and not self.dataset.has_validation:
            raise UserError(
                f"evaluation.validation = {OWN}, but the data set {self.dataset.label} has no images for validation "
                "(allowed: a share such as 0.2, null, or a data set with such images, such as {name: mnist1d, "
                "signals: 1000})"
            )
        if validation not in (None, OWN) and self.partition.repeats_images:
            raise UserError(
                f"evaluation.validation = {validation}, but clients of the partition "
                f"{self.partition.label} may share images, so that others would train on those that one holds out "
                "(allowed: null, or a partition without shared images)"
            )
        self._check_label_maps()
        judged = {one.name: one.better for one in self.evaluation.judged_by(label_maps=self.dataset.label_maps)}
        if self.evaluation.stop is not None:
            metric = self.evaluation.stop.metric or self.dataset.score
            if metric not in judged:
                raise unknown("metric of evaluation.until (further ones: evaluation.metrics)", metric, judged)
            if judged[metric] == "none":
                raise UserError(f"evaluation.until: neither higher nor lower values of {metric} are better")
        method = self.method.built
        has_schedule = self.training.server_lr_schedule is not None
        method.check_server_lr(self.training.server_lr, has_schedule=has_schedule)
        method.check_changes(self.training.rounds)
        if method.swa is not None and method.swa.start > self.training.rounds:
            raise UserError(
                f"swa.start = {method.swa.start} (allowed: at most the number of rounds, {self.training.rounds})"
            )
        if method.loss.needs_labels and any(isinstance(part, Mixup) for part in self.training.augmentation or ()):
            raise UserError(
                f"{method.name} needs one label per image, but mixup mixes labels (allowed: others, or null)"
            )
        return self

    def _check_label_maps(self) -> None:
        """A `UserError` if the model, the loss or an augmentation does not suit labels of pixels, or of images."""
        of_pixels, data = self.dataset.label_maps, self.dataset.label
        if self.model.label_maps not in (None, of_pixels):
            suitable = [name for name, choice in MODELS.items() if choice.label_maps == of_pixels]
            scores, labels = ("images", "pixels") if of_pixels else ("pixels", "images")
            raise UserError(
                f"model {self.model.label} gives scores of {scores}, but the data set {data} has labels of {labels} "
                f"(allowed: {', '.join(suitable)})"
            )
        if (needs := self.method.built.loss.label_maps) not in (None, of_pixels):
            suitable = [name for name, kind in losses().items() if kind.label_maps in (None, of_pixels)]
            raise UserError(
                f"the loss {self.method.built.loss.name} needs labels of {'pixels' if needs else 'images'}, but the "
                f"data set {data} has labels of {'pixels' if of_pixels else 'images'} (allowed: {', '.join(suitable)})"
            )
        if of_pixels and self.evaluation.by_client is not None:
            raise UserError(
                f"evaluation.by_client needs labels of images, but the data set {data} has labels of pixels "
                "(allowed: null)"
            )
        for augmentation in self.training.augmentation or ():
            if augmentation.label_maps not in (None, of_pixels):
                suitable = [name for name, kind in AUGMENTATIONS.items() if kind.label_maps in (None, of_pixels)]
                raise UserError(
                    f"augmentation {augmentation.name} does not suit labels of {'pixels' if of_pixels else 'images'}, "
                    f"which the data set {data} has (allowed: {', '.join(suitable)}, or null)"
                )

    @property
    def score(self) -> str:
        """The column of metrics.csv by which models are judged, such as test_accuracy, or test_miou for label maps."""
        return f"{self.evaluation.subset}_{self.dataset.score}"

    def ends_after(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether `evaluation.until` ends the run after the last of these rows of metrics.csv."""
        if (stop := self.evaluation.stop) is None:
            return False
        metric = stop.metric or self.dataset.score
        column, better = f"{self.evaluation.subset}_{metric}", known_metrics()[metric].better
        is_evaluated = bool(rows) and column in rows[-1]
        return is_evaluated and stop.is_reached([row[column] for row in rows if column in row], better)

    @cached_property
    def evaluated_rounds(self) -> set[int]:
        """The rounds after which the global model is evaluated."""
        return self.evaluation.evaluated_rounds(self.training.rounds)

    @cached_property
    def snapshots(self) -> list[int]:
        """The rounds after which the state is saved."""
        return self.evaluation.snapshots(self.training.rounds)

    @cached_property
    def rounds_of_local_models(self) -> list[int]:
        """The rounds after which the participants' local models are saved."""
        return self.evaluation.rounds_of_local_models(self.training.rounds)

    @property
    def code_files(self) -> dict[str, CodeFile]:
        """The user-defined Python files by the names of a run's copies, without ending, in the order of `CODE`."""
        sections = {section: getattr(self, section) for section in CODE if section != METRICS}
        named = {**{one.copied_as: one for one in self.evaluation.user_metrics}, **sections}
        files = {copy: value.code_file for copy, value in named.items() if isinstance(value, NamedCode)}
        return {copy: file for copy, file in files.items() if file is not None}

    @property
    def has_own_files(self) -> bool:
        """Whether files of the user determine its numbers, whose content may change."""
        content = self.model_dump(mode="json", exclude_none=True)
        return content != self.model_dump(mode="json", exclude=USER_FILES, exclude_none=True)

    def canonical_json(self) -> str:
        """Every field except null ones, sorted and without spaces: equal runs give equal text.

        User-defined files are included by the hash of their content, not by their path; engine settings are excluded.
        """
        return _canonical(self.model_dump(mode="json", exclude=NOT_IDENTITY, exclude_none=True))

    def with_seed(self, seed: int) -> "RunConfig":
        """The same configuration with another seed, which must be valid: nothing is validated again."""
        other = self.model_copy(update={"seed": seed})
        for name in ("identity", "place"):  # a copy has the cached properties, too
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the canonical JSON, first 16 hex digits."""
        return short_hash(self.canonical_json())

    @cached_property
    def place(self) -> Path:
        """Where a store has the run, for example digits/dirichlet-0.1/4-of-20/fedsam-3f2a9c1d/seed-20.

        The labels, and the recipe's name, are for readers; the hash of the configuration without its seed makes the
        place that of this configuration alone. It depends on what the identity depends on, not on names of files.
        """
        hashed = short_hash(_canonical({**json.loads(self.canonical_json()), "seed": None}), digits=HASH_DIGITS)
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.method.recipe.name.replace(" + ", "+"))[:LONGEST_NAME]
        return Path(
            _by_content(self.dataset).label,
            _by_content(self.partition).label,
            _by_content(self.participation).label(self.partition.clients),
            f"{name}-{hashed}",
            f"seed-{self.seed}",
        )


Section = TypeVar("Section", bound=Frozen)


def _by_content(section: Section) -> Section:
    """The section with hashes in place of the names of files, on which its label may depend."""
    availability, digest = getattr(section, "availability", None), getattr(section, "hash", None)
    if availability is not None:
        section = section.model_copy(update={"availability": _by_content(availability)})
    return section if digest is None else section.model_copy(update={"file": Path(digest[:HASH_DIGITS])})


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _classes(field: FieldInfo) -> Iterator[type[Any]]:
    """The classes of the values that a field allows."""
    if isinstance(field.annotation, type):
        yield field.annotation
    for mark in field.metadata:
        if isinstance(mark, OneOf):
            yield from mark.models


METRICS = "evaluation.metrics"
"""The only list whose entries may name Python code."""

CODE: Mapping[str, type[NamedCode]] = {METRICS: UserMetric} | {
    section: cls
    for section, field in RunConfig.model_fields.items()
    for cls in _classes(field)
    if issubclass(cls, NamedCode)
}
"""The sections of a `RunConfig` that may name Python code, each with the configuration that does. The method's comes
last, because its code calls the model's."""


def _with_swa_start(method: Mapping[str, Any], rounds: Any) -> Mapping[str, Any]:
    """SWA starts after three quarters of the rounds unless the configuration gives `start`."""
    hyperparameters = method.get("hyperparameters")
    swa = hyperparameters.get("swa") if isinstance(hyperparameters, Mapping) else None
    if not isinstance(swa, Mapping) or not isinstance(rounds, int) or not isinstance(hyperparameters, Mapping):
        return method
    return {**method, "hyperparameters": {**hyperparameters, "swa": {"start": 3 * rounds // 4, **swa}}}
