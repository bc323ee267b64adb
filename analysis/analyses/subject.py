"""A finished run as analyses see it: its models, its data, and a way to say how far the work has come."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from bench.data.dataset import Batches, DeviceData
from bench.data.partitions.base import Indices
from bench.engine.federation import FederationState
from bench.engine.participation import scheduled_rounds
from bench.host.progress import PROGRESS_SECONDS, Progress, silent
from bench.input.errors import UserError
from bench.numerics.streams import numpy_stream
from bench.training.run_directory import RunDirectory
from bench.training.run_setup import EVALUATION_BATCH, RunSetup

T = TypeVar("T")
Part = Literal["train", "test"]
_IN_WORDS: Mapping[Part, str] = {"train": "training", "test": "test"}


class Sample(NamedTuple):
    """Images that a loss is a mean over, and how captions name that loss."""

    data: Batches
    loss: str


@dataclass(frozen=True, eq=False)
class Subject:
    """A run on a device. All is computed in float32, whatever precision the run was trained in.

    `beside` are runs of other methods or partitions, of the same seed, for analyses that compare. `unfinished`:
    where an analysis that takes long may keep the parts that are done; None: nowhere. `labels`: the method's and the
    partition's, in tidy files.
    """

    run: RunDirectory
    device: torch.device
    beside: Sequence["Subject"] = ()
    unfinished: Path | None = None
    tell: Progress = silent
    labels: tuple[str, str] = ("", "")

    def name_among(self, others: Sequence[str]) -> str:
        """What tells this run from those which go by these labels: its partition, if they are partitions."""
        method, partition = self.labels
        partitions = [other.labels[1] for other in self.beside]
        return partition if list(others) == partitions else method

    @cached_property
    def bench(self) -> RunSetup:
        """The run's working parts, with the split that the run had.

        On a CPU images stand channels-last: LeNet is then two to four times as fast, and no model here was slower.
        """
        bench = RunSetup.build(self.run.config, self.device, self.run.split(), "fp32")
        bench.objective.channels_last = self.device.type == "cpu"
        return bench

    @cached_property
    def w(self) -> Tensor:
        """The final global model `[P]`; SWA's average, if the run has one."""
        return self.run.final(self.device).w

    def state(self, finished_rounds: int) -> FederationState:
        """The kept state after so many rounds; a `UserError` if there is none, or its model is not finite."""
        state = self.run.snapshot(finished_rounds, self.device)
        self.check_finite(state.w, f"the global model after round {finished_rounds}")
        return state

    def check_finite(self, w: Tensor, what: str) -> None:
        """A `UserError` if a model has parameters that are not finite: no number that follows would mean anything."""
        if not bool(w.isfinite().all()):
            raise UserError(f"{what} of '{self.run.path}' has parameters that are not finite")

    def next_clients(self, state: FederationState) -> list[int]:
        """The clients of the round that follows a state; none where a schedule has ended."""
        config = self.run.config
        ended = state.round >= scheduled_rounds(config.participation, config.partition.clients)
        return [] if ended else self.bench.active(state)

    def retrained(self, state: FederationState, client: int) -> Tensor:
        """The client's model `[P]` after one more round of local steps from a state; a `UserError` if not finite."""
        w = self.bench.federation.train_clients(state, [client])[client].w
        self.check_finite(w, f"client {client}'s model, trained from that after round {state.round},")
        return w

    def sample(self, part: Part = "train", images: int | None = None) -> Sample:
        """All images of the training or the test set, or so many, drawn by the run's seed: the same for all methods."""
        data = self.bench.train if part == "train" else self.bench.test
        return self._sample(data, None, images, f"{_IN_WORDS[part]} images")

    def held(self, images: int | None = None) -> Sample:
        """The global objective F = Σ m_i/m F_i: each image as often as clients hold it; or so many, drawn by seed."""
        held = np.sort(np.concatenate(self.bench.split))
        if np.array_equal(held, np.arange(len(self.bench.train))):
            return self.sample("train", images)
        repeats = " (some more than once)" if len(np.unique(held)) < len(held) else ""
        return self._sample(self.bench.train, held, images, f"training images that clients hold{repeats}")

    def _sample(self, data: DeviceData, of: Indices | None, images: int | None, what: str) -> Sample:
        """All of the data, or the indices `of` it; or so many, drawn by the run's seed."""
        count = len(data) if of is None else len(of)
        if images is None or images >= count:
            batches = self.batches(data) if of is None else self._at(data, of)
            return Sample(batches, f"mean cross-entropy of all {count} {what}")
        chosen = np.sort(numpy_stream(self.run.config.seed, "analysis-samples").permutation(count)[:images])
        batches = self._at(data, chosen if of is None else of[chosen])
        return Sample(batches, f"mean cross-entropy of {images} {what}")

    def of_client(self, client: int) -> Batches:
        """All training images of a client."""
        return self._at(self.bench.train, self.bench.split[client])

    def _at(self, data: DeviceData, index: Indices) -> Batches:
        return self.batches(data, torch.from_numpy(index).to(self.device))

    def batches(self, data: DeviceData, index: Tensor | None = None) -> Batches:
        """All of the data, or the samples in `index`, in batches of the size that suits the device."""
        return Batches(data, EVALUATION_BATCH[self.device.type], index)

    def progress(self, parts: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """The parts, one by one; from time to time a line tells how many are done and when the last one may be."""
        count = len(parts) if total is None and isinstance(parts, Sized) else total
        began = told = time.perf_counter()
        for done, part in enumerate(parts):
            now = time.perf_counter()
            if now - told > PROGRESS_SECONDS:
                left = "" if count is None else f" of {count}, about {(now - began) / done * (count - done):.0f} s left"
                self.tell(f"seed {self.run.config.seed}: {what} {done}{left}")
                told = now
            yield part
