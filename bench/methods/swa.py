"""SWA on the server: the mean of global models under a cyclic learning rate (Caldarola et al. 2022, Alg. 1).

    from round t0 on:  η_t = (1−x) η_l + x γ₂,   x = ((t − t0) mod c + 1)/c           (c = 1: η_l throughout)
    after the last round of each cycle:  w_swa ← (n w_swa + w^{t+1})/(n + 1),  n ← n + 1

With c = 1 the rate is constant and γ₂ has no effect. The averaged model is evaluated instead of w^t and never sent to
clients. `collect` selects the averaged models: the last model of each cycle (`end`); as in the authors' code, a copy of
w^{t0} and then the first model of each cycle (`release`); Algorithm 1 as printed, which begins with the same copy and
uses n = t/c (`alg1`). With `none`, only the rate is cyclic, as with `end`: nothing is averaged, and w^t is evaluated.

Buffers b of a model, such as the statistics of BatchNorm, are averaged by the same rule.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.input.bounds import MOST, Count
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.marks import Neutral, Search

BUFFERS_MEAN = "buffers_swa"
"""Name of the mean of the buffers `[B]` in the state of the server."""


class SWA(Frozen):
    """The selection of averaged models, and the learning rate of each round. Rounds are counted from 0."""

    start: Annotated[int, Neutral("T")] = Field(
        examples=[15],
        ge=0,
        le=MOST,
        description="first round t0 of SWA; the default in experiments is ⌊0.75 T⌋ of T rounds",
    )
    cycle: Annotated[Count, Search(values=(5, 10, 20))] = Field(
        examples=[5], description="rounds c from one averaged model to the next"
    )
    lr_end: Annotated[float, Neutral("the local rate"), Search(low=1e-5, high=1e-3, log=True)] = Field(
        default=1e-4, ge=0, description="local rate γ₂ at the end of a cycle"
    )
    collect: Literal["end", "release", "alg1", "none"] = Field(
        default="end", description="which model of a cycle is averaged"
    )

    def learning_rate(self, t: int, lr: float) -> float:
        """η_t, given the learning rate of round t without SWA."""
        if t < self.start or self.cycle == 1:
            return lr
        since = {"release": t, "alg1": t - 1}.get(self.collect, t - self.start)
        x = (since % self.cycle + 1) / self.cycle
        return (1 - x) * lr + x * self.lr_end

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """The mean, and the number n of models in it; n = −1 as long as there is no mean to evaluate."""
        return {} if self.collect == "none" else {"w_swa": w0.clone(), "n_swa": w0.new_full((), -1.0)}

    def after_round(self, t: int, w: Tensor, w_next: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean and n after round t, in which w^t became w^{t+1}."""
        if self.collect == "none":
            return {}
        w_swa, n = state["w_swa"], state["n_swa"]
        if self.collect != "end" and t == self.start:
            w_swa, n = w, n.new_zeros(())  # these rules evaluate a copy of w^{t0} until the first model is averaged
        if self._collects(t):
            weight = n.new_full((), t / self.cycle) if self.collect == "alg1" else n.clamp(min=0)
            w_swa, n = (weight * w_swa + w_next) / (weight + 1), n.clamp(min=0) + 1
        return {"w_swa": w_swa, "n_swa": n}

    def buffers_after_round(self, t: int, b: Tensor, b_next: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean of the buffers after round t, in which b^t became b^{t+1}; `state` is that before the round.

        Numbers that never change keep their bits.
        """
        if self.collect == "none":
            return {}
        old = state.get(BUFFERS_MEAN, b)
        mean = self.after_round(t, b, b_next, {"w_swa": old, "n_swa": state["n_swa"]})["w_swa"]
        return {BUFFERS_MEAN: torch.where((b == old) & (b_next == old), old, mean)}

    def _collects(self, t: int) -> bool:
        if self.collect == "end":
            return t >= self.start and (t - self.start + 1) % self.cycle == 0
        if self.collect == "release":
            return t > self.start and (t - self.start) % self.cycle == 0
        return t >= self.start and t % self.cycle == 0

    def evaluated(self, w: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The mean if it has a model, else w."""
        return state["w_swa"] if self._has_mean(state) else w

    def evaluated_buffers(self, b: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The mean of the buffers if the state has one of at least one model, else b."""
        return state[BUFFERS_MEAN] if BUFFERS_MEAN in state and self._has_mean(state) else b

    def _has_mean(self, state: Mapping[str, Tensor]) -> bool:
        return self.collect != "none" and bool(state["n_swa"] >= 0)
