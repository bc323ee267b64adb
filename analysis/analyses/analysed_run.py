"""A finished run as analyses use it: its models, its data, and a way to report progress."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedflat.bench.data.dataset import Batches, DeviceData, Subset
from fedflat.bench.data.partitions.base import Indices
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.engine.participation import scheduled_rounds
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import PROGRESS_SECONDS, Progress, Timer, silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup

T = TypeVar("T")
_SUBSET_NAMES: Mapping[Subset, str] = {"train": "training", "test": "test"}


class Sample(NamedTuple):
    """Images, and the name that captions use for the mean loss over them."""

    data: Batches
    loss: str


@dataclass(frozen=True, eq=False)
class AnalysedRun:
    """A finished run on a device, in float32, whatever precision it was trained in.

    `compared_with`: runs of other methods or partitions with the same seed, for analyses that compare runs.
    `partial_results`: the file in which a long analysis may save finished steps; None: they are not saved.
    `labels`: the labels of its method and its partition in tidy files.
    """

    directory: RunDirectory
    device: torch.device
    compared_with: Sequence["AnalysedRun"] = ()
    partial_results: Path | None = None
    log: Progress = silent
    labels: tuple[str, str] = ("", "")

    @property
    def config(self) -> RunConfig:
        """The configuration that the run was trained with."""
        return self.directory.config

    def name_among(self, others: Sequence[str]) -> str:
        """The label that distinguishes this run from its `compared_with`, whose labels are `others`."""
        return name_among(self.labels, others, [other.labels[1] for other in self.compared_with])

    @cached_property
    def setup(self) -> RunSetup:
        """The run's data, model and method, with the stored split of the data among clients.

        On a CPU images are in the channels-last format: LeNet is then two to four times as fast, and no measured model
        was slower.
        """
        setup = RunSetup.build(self.config, self.device, self.directory.split(), "fp32")
        changed = setup.changed_model(self.directory.provenance.get("model_hash"))
        if changed is not None:
            raise UserError(f"{changed} have changed since '{self.directory.path}' was trained")
        setup.objective.channels_last = self.device.type == "cpu"
        if setup.objective.buffers is not None:
            setup.federation.evaluate_with(self._final)
        return setup

    @cached_property
    def _final(self) -> FederationState:
        return self.directory.final(self.device)

    @property
    def w(self) -> Tensor:
        """The final global model `[P]`; with SWA, the averaged model.

        From now on, the set-up evaluates models with the buffers of this model, if it has buffers.
        """
        if "setup" in self.__dict__:
            self.setup.federation.evaluate_with(self._final)
        return self._final.w

    def state(self, finished_rounds: int) -> FederationState:
        """The state that the run stored after this many rounds; a `UserError` if there is none, or if its model is not
        finite.

        From now on, the set-up evaluates models with the buffers of this state, if the model has buffers.
        """
        state = self.directory.snapshot(finished_rounds, self.device)
        self.setup.federation.evaluate_with(state)
        self.check_finite(state.w, f"the global model after round {finished_rounds}")
        return state

    def check_finite(self, w: Tensor, what: str) -> None:
        """A `UserError` if a model has parameters that are not finite: every number computed from it would be
        meaningless."""
        if not bool(w.isfinite().all()):
            raise UserError(f"{what} of '{self.directory.path}' has parameters that are not finite")

    def next_clients(self, state: FederationState) -> list[int]:
        """The participants of the round that follows a state; empty if the participation schedule ends there."""
        ended = state.round >= scheduled_rounds(self.config.participation, self.config.partition.clients)
        return [] if ended else self.setup.active(state)

    def retrained(self, state: FederationState, client: int) -> Tensor:
        """The client's model `[P]` after the local steps of one more round from a state; a `UserError` if not
        finite."""
        active = len(self.next_clients(state))
        w = self.setup.federation.train_clients(state, [client], participants=active)[client].w
        self.check_finite(w, f"client {client}'s model, trained from that after round {state.round},")
        return w

    def sample(self, subset: Subset = "train", images: int | None = None) -> Sample:
        """The training or test images: all of them, or `images` drawn by the run's seed, the same for all methods."""
        data = self.setup.train if subset == "train" else self.setup.test
        return self._sample(data, None, images, f"{_SUBSET_NAMES[subset]} images")

    def global_objective(self, images: int | None = None) -> Sample:
        """The images of the global objective F = Σ m_i/m F_i, each as often as clients hold it: all of them, or
        `images` drawn by the run's seed."""
        held = np.sort(np.concatenate(self.setup.split))
        if np.array_equal(held, np.arange(len(self.setup.train))):
            return self.sample("train", images)
        repeats = " (some more than once)" if len(np.unique(held)) < len(held) else ""
        return self._sample(self.setup.train, held, images, f"training images that clients hold{repeats}")

    def _sample(self, data: DeviceData, indices: Indices | None, images: int | None, what: str) -> Sample:
        """The images of `data`, or those at `indices`: all of them, or `images` drawn by the run's seed."""
        count = len(data) if indices is None else len(indices)
        if images is None or images >= count:
            batches = self.batches(data) if indices is None else self._at(data, indices)
            return Sample(batches, f"mean cross-entropy of all {count} {what}")
        drawn = np.sort(numpy_stream(self.config.seed, "analysis-samples").permutation(count)[:images])
        batches = self._at(data, drawn if indices is None else indices[drawn])
        return Sample(batches, f"mean cross-entropy of {images} {what}")

    def client_batches(self, client: int) -> Batches:
        """All training images of a client."""
        return self._at(self.setup.train, self.setup.split[client])

    def _at(self, data: DeviceData, indices: Indices) -> Batches:
        return self.batches(data, torch.from_numpy(indices).to(self.device))

    def batches(self, data: DeviceData, indices: Tensor | None = None) -> Batches:
        """All images, or those at `indices`, in batches for forward passes."""
        return self.setup.batches(data, indices)

    def progress(self, steps: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """Yields the steps, and reports every few seconds how many are done and how long the rest may take."""
        count = len(steps) if total is None and isinstance(steps, Sized) else total
        started, reports = time.perf_counter(), Timer(PROGRESS_SECONDS)
        for done, step in enumerate(steps):
            if done and reports.is_due():
                each = (time.perf_counter() - started) / done
                left = "" if count is None else f" of {count}, about {each * (count - done):.0f} s left"
                self.log(f"seed {self.config.seed}: {what} {done}{left}")
            yield step


def name_among(labels: tuple[str, str], others: Sequence[str], partitions: Sequence[str]) -> str:
    """The label that distinguishes a run from those with which it is compared.

    `labels`: those of its method and its partition; `others`: those of the other runs; `partitions`: the labels of the
    others' partitions. If the others are named by these, it is the run's partition, else its method.
    """
    return labels[1] if list(others) == list(partitions) else labels[0]
