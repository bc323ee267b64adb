"""The local step that all methods share, and the settings of local steps and server step."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.aggregations import Aggregation
from fedflat.bench.methods.base import norm, plus
from fedflat.bench.methods.marks import Search
from fedflat.bench.methods.schedules import AnySchedule, extreme_rounds, factors


class PolynomialRate(Frozen):
    """A local rate that falls within each round, and begins anew in the next: η_t (1 − k / (h K))^p in step k of K."""

    in_words: ClassVar[str] = "lr_poly"

    power: float = Field(default=0.9, gt=0, description="exponent p")
    horizon: float = Field(default=10_000, ge=1, description="steps h after which the rate would be 0, in units of K")


def _refuse_both(lr_decay: float) -> None:
    """A `UserError` if the rate decays although it has a schedule."""
    if lr_decay != 1:
        raise UserError(
            f"lr_decay = {lr_decay:g} and lr_schedule exclude each other (allowed: one of them; "
            "{name: exponential} is a schedule, too)"
        )


class StepSettings(Frozen):
    """Settings of the local step w ← w − η_t (clip(q) + ω w), with or without momentum, and of the server's step."""

    lr: Annotated[float, Search(low=0.01, high=0.5, log=True)] = Field(
        gt=0, examples=[0.1], description="initial local learning rate η_l"
    )
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="factor γ on the local rate after each round")
    lr_schedule: AnySchedule = Field(
        default=None, description="schedule over rounds of the local rate, in place of lr_decay; null: none"
    )
    lr_poly: PolynomialRate | None = Field(
        default=None, description="power and horizon of a rate that falls within each round; null: it is constant"
    )
    server_lr: Annotated[float, Search(low=0.1, high=1, log=True)] = Field(
        default=1.0, gt=0, description="server learning rate η_g"
    )
    server_lr_schedule: AnySchedule = Field(
        default=None, description="schedule over rounds of the server's rate; null: it is constant"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="ω, added after clipping, at the unperturbed w")
    clip: float | None = Field(
        default=None, gt=0, examples=[10], description="largest norm of the direction q; null: off"
    )
    local_momentum: Annotated[float | None, BeforeValidator(lambda given: None if given == 0 else given)] = Field(
        default=None,
        ge=0,
        lt=1,
        examples=[0.9],
        description="heavy-ball momentum μ of local steps; its buffer starts at zero in each round; null: 0",
    )
    prox_split: bool = Field(default=False, description="a proximal term's λw joins the decay, not the clipped q")
    aggregation: Aggregation | None = Field(
        default=None, description="p_i = 1/M, n_i/Σn_j or √n_i/Σ√n_j; null: the method's own"
    )

    @model_validator(mode="before")
    @classmethod
    def _constant_or_decaying(cls, data: Any) -> Any:
        """A constant schedule is stored as null, which excludes no decay."""
        if isinstance(data, Mapping) and isinstance(schedule := data.get("lr_schedule"), Mapping):
            decay = data.get("lr_decay", 1)
            if schedule.get("name") == "constant" and isinstance(decay, int | float):
                _refuse_both(decay)
        return data

    @model_validator(mode="after")
    def _one_decay(self) -> "StepSettings":
        if self.lr_schedule is not None:
            _refuse_both(self.lr_decay)
        return self

    def check_rates(self, rounds: int) -> None:
        """A `UserError` if a rate is zero in one of the rounds, so that nothing would be trained, or infinite."""
        rates = {
            "lr_schedule": (self.lr_schedule, self.round_rate),
            "server_lr_schedule": (self.server_lr_schedule, self.round_server_rate),
        }
        for key, (schedule, rate) in rates.items():
            if schedule is not None:
                for t in extreme_rounds(factors(schedule, rounds)):
                    if not 0 < (found := rate(t, rounds)) < math.inf:
                        raise UserError(
                            f"{key}: the rate is {found:g} in round {t + 1} of {rounds} (allowed: above 0, and finite)"
                        )

    @property
    def has_schedule(self) -> bool:
        """Whether a rate has a schedule."""
        return self.lr_schedule is not None or self.server_lr_schedule is not None

    def round_rate(self, t: int, rounds: int) -> float:
        """The local rate of round t, counted from 0, without that of a method."""
        if self.lr_schedule is None:
            return self.lr * self.lr_decay**t
        return self.lr * self.lr_schedule.at(t, rounds)

    def round_server_rate(self, t: int, rounds: int) -> float:
        """The server's rate in round t, counted from 0."""
        if self.server_lr_schedule is None:
            return self.server_lr
        return self.server_lr * self.server_lr_schedule.at(t, rounds)

    def local_rate(self, lr: float | Tensor, step: int | Tensor, steps: int | Tensor) -> float | Tensor:
        """The rate of a local step, from 0, of a client with this number of steps; `lr` is that of the round."""
        if self.lr_poly is None:
            return lr
        rate: float | Tensor = lr * (1 - step / (self.lr_poly.horizon * steps)) ** self.lr_poly.power
        return rate

    def step(self, w: Tensor, q: Tensor, lr: float | Tensor, proximal: float = 0.0) -> Tensor:
        """The next local iterate `[P]` without momentum: w − η_t (clip(q) + ω w).

        `proximal` is the coefficient λ of w in q. With `prox_split` as in FL-Simulator's code, λw is not clipped.
        The step takes two passes over the model: one for the norm in the clipping, one for the update.
        """
        q, rate, decay = self._clipped(w, q, proximal)
        if isinstance(lr, Tensor):  # in a cohort, where another pass costs little
            return torch.addcmul(w * (1 - lr * decay), q, -lr * rate)
        shrink = max(1 - lr * decay, torch.finfo(w.dtype).min)  # so that diverging runs raise no error
        return torch.addr(w[:, None], q, -lr * rate, beta=shrink)[:, 0]  # β w + q ⊗ (−η) in one pass

    def momentum_step(
        self, w: Tensor, q: Tensor, b: Tensor | None, lr: float | Tensor, proximal: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The next local iterate and the next buffer, both `[P]`: b ← μ b + clip(q) + ω w,  w ← w − η_t b.

        The heavy ball of `torch.optim.SGD` (dampening 0, not Nesterov's). `b` is None at the first step of a round.
        """
        assert self.local_momentum is not None
        q, rate, decay = self._clipped(w, q, proximal)
        d = torch.addcmul(w * decay, q, rate)
        b = d if b is None else torch.add(d, b, alpha=self.local_momentum)
        return w - lr * b, b

    def _clipped(self, w: Tensor, q: Tensor, proximal: float) -> tuple[Tensor, Tensor, float]:
        """q, the factor `[1]` that clips it, and the coefficient of w that is added to it."""
        decay = self.weight_decay
        if self.prox_split:
            q, decay = plus(q, w, -proximal), decay + proximal
        return q, w.new_ones(1) if self.clip is None else (self.clip / (norm(q) + 1e-6)).clamp(max=1), decay
