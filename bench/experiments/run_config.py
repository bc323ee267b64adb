"""The configuration of one run: an immutable `RunConfig`, whose identity is the hash of its canonical JSON."""

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from fedflat.bench.code.named_code import CodeFile, NamedCode, parse_reference
from fedflat.bench.data.augmentation import AUGMENTATIONS, Augmentations, Mixup
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.sources import AnySource, parse_source
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.participation import Participation
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.engine.work import AnyWork
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.experiments.sections.stop import Stop
from fedflat.bench.input.bounds import ALL_IS_MOST, Count, Images, Seed
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.field_words import described
from fedflat.bench.input.frozen import Frozen, collected
from fedflat.bench.input.registry import OneOf
from fedflat.bench.methods.compose import losses
from fedflat.bench.metrics import known_metrics, metrics_of
from fedflat.bench.metrics.base import Metric
from fedflat.bench.metrics.user_metric import NOUN, UserMetric
from fedflat.bench.models import MODELS, AnyModel
from fedflat.bench.numerics.precision import Precision

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

TRAINING_IMAGES = 10_000
"""How many training images are evaluated by default, if there are more: all of CIFAR's take longer than a round."""

TEST, VALIDATION, TRAIN = "test", "validation", "train"
"""The beginnings of the names of metrics that are measured on test images, on images that clients hold out, and on
training images."""


OWN = "own"
"""The value of `evaluation.validation` for the samples that the data set has for validation."""


def score_column(columns: Container[str], prefix: str = "") -> str:
    """The column with the score of a model, among those that begin with `prefix`: the mean IoU if there is one, else
    the accuracy."""
    return f"{prefix}miou" if f"{prefix}miou" in columns else f"{prefix}accuracy"


AMOUNTS = ("local_epochs", "local_steps")
"""The fields of `training` that say how long a client trains in a round; a run has exactly one of them."""

ALTERNATIVES = (AMOUNTS, ("lr_decay", "lr_schedule"))
"""Fields of `training` that exclude each other: a value of one replaces those of less specific places of the others."""


def alternatives(field: str) -> tuple[str, ...]:
    """The field of `training`, and those that its value replaces."""
    return next((names for names in ALTERNATIVES if field in names), (field,))


def with_training(training: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `training` with these values; a value of `local_steps` replaces `local_epochs`, and vice versa.

    A mapping without a name, such as {share: 0.9} of `work`, changes these keys of a mapping that has one.
    """
    values = {
        key: {**training[key], **value} if _lacks_name(training.get(key), value) else value
        for key, value in values.items()
    }
    replaced = {name for key, value in values.items() if value is not None for name in alternatives(key)}
    return {**{name: value for name, value in training.items() if name not in replaced}, **values}


def _lacks_name(known: Any, value: Any) -> bool:
    return isinstance(known, Mapping) and "name" in known and isinstance(value, Mapping) and "name" not in value


class Training(StepSettings):
    """Training settings of every method: rounds, local epochs or steps, and the settings of local and server steps."""

    rounds: Count = Field(examples=[30], description="communication rounds T")
    local_epochs: Count | None = Field(
        default=None,
        examples=[5],
        description="epochs E over a client's data per round; the last batch may be short. For a part of an epoch: "
        "local_steps",
    )
    local_steps: Count | None = Field(
        examples=[50],
        default=None,
        description="mini-batches K of each client per round, in place of local_epochs: the first ones of as many "
        "epochs as they need, the last batch of each epoch may be short",
    )
    work: AnyWork = Field(default=None, description="how much of it clients do in a round; null: all")
    batch_size: Annotated[Images, ALL_IS_MOST] = Field(
        examples=[50], description="mini-batch size B; all: all images of a client"
    )
    drop_last: Annotated[bool | None, BeforeValidator(lambda given: None if given is False else given)] = Field(
        default=None,
        description="whether a last batch of an epoch with fewer than B images is left out, unless it is the only one",
    )
    augmentation: Augmentations = Field(
        default=None,
        examples=["flip"],
        description="names or mappings with options, in order of application; null: none",
    )
    precision: Annotated[Precision | None, BeforeValidator(lambda given: None if given == "fp32" else given)] = Field(
        default=None, description="fp32, tf32 (NVIDIA) or bf16, with parameters and norms in float32; null: fp32"
    )

    @model_validator(mode="after")
    def _one_amount(self) -> "Training":
        if self.local_epochs is None and self.local_steps is None:
            raise UserError("training.local_epochs or training.local_steps is missing")
        if self.local_epochs is not None and self.local_steps is not None:
            raise UserError(
                f"training.local_epochs = {self.local_epochs} and training.local_steps = {self.local_steps} "
                "exclude each other (allowed: one of them)"
            )
        if self.work is not None:
            self.work.check(self.local_epochs or self.local_steps or 0)
        self.check_rates(self.rounds)
        return self

    @property
    def local(self) -> LocalSteps:
        """The local steps of a client in a round."""
        return LocalSteps(self.local_steps, self.local_epochs, self.batch_size, bool(self.drop_last), self.work)


class Windows(Frozen):
    """Windows of consecutive evaluated rounds, centred at the multiples of `every`."""

    every: Count = Field(examples=[1000], description="rounds between the centres of the windows")
    rounds: Count = Field(
        examples=[100], description="evaluated rounds n of a window: centre - ⌊n/2⌋ to centre + ⌈n/2⌉ - 1"
    )

    def within(self, rounds: int) -> set[int]:
        """All rounds of the windows with centres in the first `rounds` rounds, which are counted from 1."""
        before, end = self.rounds // 2, 1  # windows may overlap: each round is visited once
        found: set[int] = set()
        for centre in range(self.every, rounds + 1, self.every):
            start = centre - before
            found.update(range(max(end, start), end := min(start + self.rounds, rounds + 1)))
        return found


class Evaluation(Frozen):
    """When and on which images the global model is evaluated, and which states are saved for analyses."""

    every: Count = Field(default=1, description="rounds between evaluations; the last round is always evaluated")
    last: Count | None = Field(
        default=None, examples=[100], description="each of this many last rounds is evaluated, too; null: 1"
    )
    around: Windows | None = Field(
        default=None, description="windows of rounds, each of which is evaluated, too; null: none"
    )
    also: tuple[Count, ...] | None = Field(
        default=None, examples=[[10, 30]], description="further rounds that are evaluated; null: none"
    )
    until: float | Stop | None = Field(
        default=None,
        examples=[80],
        description="test accuracy, or mean IoU for segmentation, in percent at which a run stops, at the first "
        "evaluation that reaches it; or a rule with another metric or patience, such as {metric: loss, patience: 10}; "
        "null: none, all rounds are trained",
    )
    validation: Annotated[float, Field(gt=0, lt=1)] | Literal["own"] | None = Field(
        default=None,
        examples=[0.1],
        description="share of its training images that each client holds out: the run is evaluated on them instead of "
        "the test images; or own, those that the data set has for validation; null: none",
    )
    metrics: tuple[str | UserMetric, ...] | None = Field(
        default=None,
        examples=[["macro_f1", "worst_client"]],
        description="metrics that are evaluated in addition to accuracy and loss (and mean IoU for segmentation): "
        "names, or your own, such as mine.py:tenth; null: none",
    )
    training_images: Annotated[Images | None, ALL_IS_MOST] = Field(
        default=None,
        examples=[1000],
        description="training images for evaluation, evenly spaced in stored order; or all; null: all, but at most "
        f"{TRAINING_IMAGES:,}",
    )
    snapshot_every: Count | None = Field(
        default=None,
        examples=[10],
        description="rounds between saved states, the last round included; null: no state is saved",
    )
    local_models: tuple[Count, ...] | Literal["last"] | None = Field(
        examples=[[10, 30]],
        default=None,
        description="rounds after which the participants' local models are saved: such as [10, 30], last, or null",
    )

    @field_validator("validation", mode="before")
    @classmethod
    def _share_or_own(cls, given: Any, info: ValidationInfo) -> Any:
        is_share = isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < 1
        if given is None or given == OWN or is_share:
            return given
        allowed = f"a share between 0 and 1, such as 0.2; {OWN}; or null"
        raise collected(UserError(f"{info.field_name} = {given!r} (allowed: {allowed})"), info)

    @field_validator("until", mode="before")
    @classmethod
    def _rule(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, int | float) and not isinstance(given, bool) and not 0 < given <= 100:
            raise collected(UserError(f"{info.field_name} = {given} (allowed: above 0, at most 100)"), info)
        if isinstance(given, str):
            what = described(cls.model_fields["until"], given)
            raise collected(UserError(f"{info.field_name} = {given!r}: Input should be a number{what}"), info)
        try:
            return Stop.parse(given) if isinstance(given, Mapping) else given
        except UserError as error:
            raise collected(error, info) from None

    @field_validator("metrics", mode="before")
    @classmethod
    def _referenced(cls, given: Any, info: ValidationInfo) -> Any:
        """Each with the fields of a user's metric instead of its short form."""
        if given is None:
            return None
        is_list = isinstance(given, list | tuple)
        if not is_list or not all(isinstance(one, str | Mapping | UserMetric) for one in given):
            allowed = "a list of names and of your own, such as [macro_f1, mine.py:tenth]; null: none"
            raise collected(UserError(f"{info.field_name} = {given!r} (allowed: {allowed})"), info)
        try:
            metrics = [_user_metric(one) for one in given]
        except UserError as error:
            raise collected(error, info) from None
        functions = [one.function for one in metrics if isinstance(one, UserMetric)]
        if twice := sorted({name for name in functions if functions.count(name) > 1}):
            text = f"{info.field_name} has several '{twice[0]}' (allowed: each name once)"
            raise collected(UserError(text), info)
        return metrics

    @field_validator("also", "local_models", mode="before")
    @classmethod
    def _rounds(cls, given: Any, info: ValidationInfo) -> Any:
        """Sorted and without duplicates, so that equal selections give the same identity."""
        has_last = info.field_name == "local_models"
        if given is None or (has_last and given == "last"):
            return given
        if not isinstance(given, list | tuple) or not given or any(type(r) is not int or r < 1 for r in given):
            allowed = f"a list of rounds from 1, such as [10, 30]{', or last' if has_last else ''}; null: none"
            raise collected(UserError(f"{info.field_name} = {given!r} (allowed: {allowed})"), info)
        return tuple(sorted(set(given)))

    @property
    def user_metrics(self) -> list[UserMetric]:
        """Those metrics that a user's file defines."""
        return [one for one in self.metrics or () if isinstance(one, UserMetric)]

    def judged_by(self, *, label_maps: bool) -> Sequence[Metric]:
        """The metrics of each evaluation on labels of pixels (`label_maps`) or images; errors as of `metrics_of`."""
        given = (one.kind if isinstance(one, UserMetric) else one for one in self.metrics or ())
        return metrics_of(given, label_maps=label_maps)

    def count(self, training_images: int) -> int:
        """How many of this number of training images are evaluated."""
        return min(training_images, self.training_images or TRAINING_IMAGES)

    def evaluated_rounds(self, rounds: int) -> set[int]:
        """The rounds of `rounds` after which the global model is evaluated."""
        due = {*range(self.every, rounds + 1, self.every), *range(max(1, rounds + 1 - (self.last or 1)), rounds + 1)}
        due |= {number for number in self.also or () if number <= rounds}
        return due if self.around is None else due | self.around.within(rounds)

    @property
    def schedule(self) -> str:
        """When the global model is evaluated, in words."""
        parts = [f"every {self.every} rounds"]
        if self.last is not None:
            parts.append(f"in each of the last {self.last} rounds")
        if self.around is not None:
            parts.append(f"in {self.around.rounds} rounds around each multiple of {self.around.every}")
        if self.also is not None:
            parts.append(f"after {len(self.also)} further rounds")
        return " and ".join(parts)

    @property
    def subset(self) -> str:
        """The images on which the global model is evaluated besides training images: test, or validation."""
        return TEST if self.validation is None else VALIDATION

    def require_test(self, what: str) -> None:
        """A `UserError` if runs are not evaluated on the test images, which `what` needs."""
        if self.validation is not None:
            judged = "images for validation" if self.validation == OWN else "training images that clients hold out"
            raise UserError(
                f"{what} needs evaluations on test images, but evaluation.validation = {self.validation}: the runs "
                f"are evaluated on {judged} (allowed here: null)"
            )

    @property
    def stop(self) -> Stop | None:
        """When a run ends before its last round; None: never."""
        return Stop(value=self.until) if isinstance(self.until, float) else self.until

    def snapshots(self, rounds: int) -> list[int]:
        """The rounds after which the state is saved."""
        if self.snapshot_every is None:
            return []
        return sorted({*range(self.snapshot_every, rounds + 1, self.snapshot_every), rounds})

    def rounds_of_local_models(self, rounds: int) -> list[int]:
        """The rounds after which local models are saved."""
        if self.local_models is None:
            return []
        return [rounds] if self.local_models == "last" else list(self.local_models)


def referenced_metric(given: Any) -> Any:
    """A metric with the fields of a user's one instead of its short form."""
    return parse_reference(given, NOUN) if isinstance(given, str) and ":" in given else given


def _user_metric(given: Any) -> Any:
    """A name, or a user's metric; executing its file makes its words known."""
    given = referenced_metric(given)
    metric = UserMetric.parse(given) if isinstance(given, Mapping) else given
    if isinstance(metric, UserMetric):
        metric.kind  # noqa: B018 - raises if it is no metric
    return metric


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
