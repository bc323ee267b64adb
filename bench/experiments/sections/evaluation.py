"""The section `evaluation` of a run: when and on which images the global model is evaluated, and which states are
saved."""

from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from fedflat.bench.code.named_code import parse_reference
from fedflat.bench.experiments.sections.stop import Stop
from fedflat.bench.input.bounds import ALL_IS_MOST, Count, Images
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import described
from fedflat.bench.input.frozen import Frozen, collected
from fedflat.bench.metrics import metrics_of
from fedflat.bench.metrics.base import Metric
from fedflat.bench.metrics.user_metric import NOUN, UserMetric

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
    by_client: Literal["expected", "own"] | None = Field(
        default=None,
        examples=["expected"],
        description="the accuracy of each client is stored at each evaluation: expected, on the test images, the "
        "classes weighted by their shares of the client's training images, as in worst_client; own, on the images that "
        "the client holds out (validation: 0.1), or on its training images if it holds out none; null: it is not",
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
