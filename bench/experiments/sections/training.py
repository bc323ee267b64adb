"""The section `training` of a run: rounds, local work, and the settings of local and server steps."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from fedflat.bench.data.augmentation import Augmentations
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.engine.work import AnyWork
from fedflat.bench.input.bounds import ALL_IS_MOST, Count, Images
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.precision import Precision

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
