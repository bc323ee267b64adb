"""What a job requests on a cluster: time and memory, estimated generously from the size of its work.

A job that has run out of either is submitted again with more, and resumes its runs.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.measures.curvature.lanczos import MEMORY as BASIS_BYTES
from fedflat.analysis.planning.gradient_times import Times, labels_of, objective
from fedflat.analysis.planning.run_cost import active_clients, facts, gradient_of, seconds, size_of_whole_images
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.memory import graph_bytes
from fedflat.bench.training.calibration import SMALL, VECTORS
from fedflat.bench.training.run_setup import images_per_batch

JOB_THREADS = 8
"""CPU threads of a job with a large model on a CPU, unless --max-threads or --config threads say otherwise."""

MARGIN = 3
"""Requested time in units of the estimate: other processors are slower than the one of paper_tables/costs.csv."""
START_MINUTES = 1
"""Time for imports, and for measuring the back ends."""
LONGEST_MINUTES = 24 * 60
"""A longer job is stopped after this time, and resumed by the next attempt."""
TINY_SECONDS, SHORT_SECONDS = 60, 600
"""Cells that are trained in these times share a job with many, or some, other cells."""

GAIN_PER_THREAD = 0.5
"""Speed with n threads, divided by n and by the speed with one thread; a cautious value."""
GPU_GAIN = 10
"""Speed of a GPU with large models, in units of a thread's; a cautious value."""
ANALYSIS_PASSES = 200
"""An analysis takes at most about as long as this many gradients of each of its images: 5 eigenvalues take 60 products
with the Hessian, a surface of 21×21 points 441 forward passes."""

PROCESS_BYTES = 2 * 2**30
"""Memory of Snakemake and of a process that has imported torch."""
GPU_PROCESS_BYTES = 4 * 2**30
"""Host memory of CUDA's libraries."""
MAPPED_BYTES = 8 * 2**30
"""At most for images: large data sets are memory-mapped files, whose pages are read again if they had to give way."""
BASIS_VECTORS = 300
"""Vectors of the model's length that an analysis needs, up to the limit for Lanczos's basis."""


@dataclass(frozen=True)
class Demand:
    """Estimated seconds and bytes of a job."""

    seconds: float
    bytes: float

    def minutes(self, attempt: int) -> int:
        """The time to request; more in each attempt."""
        return min(math.ceil(attempt * (START_MINUTES + MARGIN * self.seconds / 60)), LONGEST_MINUTES)

    def mebibytes(self, attempt: int) -> int:
        """The memory to request; more in each attempt."""
        return math.ceil(attempt * self.bytes / 2**20)


def of_training(runs: Sequence[RunConfig], times: Times, threads: int, *, gpu: bool) -> Demand:
    """The demand of training all runs of a cell, which differ in their seeds only."""
    run = runs[0]
    work = len(runs) * seconds(run, times) / _gain(run, threads, gpu=gpu)
    if gpu:
        return Demand(work, _process_bytes(run, gpu=True))
    at_once = active_clients(run) * len(runs) if _is_small(run) else threads
    client = 2 * run.training.batch_size * _bytes_per_image(run) + 4 * VECTORS * gradient_of(run).parameters
    return Demand(work, _process_bytes(run, gpu=False) + at_once * client)


def of_analysis(runs: Sequence[RunConfig], analysis: Analysis, times: Times, threads: int, *, gpu: bool) -> Demand:
    """The demand of an analysis of all runs of a cell that it selects."""
    run = runs[0]
    train, *_ = facts(run)
    images, size = min(getattr(analysis, "images", None) or train, train), size_of_whole_images(run)
    passes = len(analysis.selected_seeds([run.seed for run in runs])) * ANALYSIS_PASSES * size
    work = passes * images / run.training.batch_size * times(gradient_of(run)) / _gain(run, threads, gpu=gpu)
    basis = min(4 * BASIS_VECTORS * gradient_of(run).parameters, BASIS_BYTES)  # in host memory, even with a GPU
    batch = images_per_batch("cpu", facts(run)[2], segmented=run.dataset.label_maps)
    graph = 0 if gpu else 4 * batch * size * _bytes_per_image(run)  # of a product with the Hessian
    return Demand(work, _process_bytes(run, gpu=gpu) + basis + graph)


def _process_bytes(run: RunConfig, *, gpu: bool) -> float:
    """Host memory of the process with the images of the data set."""
    train, test, shape, _ = facts(run)
    images = min(2 * (train + test) * math.prod(shape), MAPPED_BYTES)
    return (GPU_PROCESS_BYTES if gpu else PROCESS_BYTES) + images


def _is_small(run: RunConfig) -> bool:
    """Whether a CPU trains all active clients in one batched call."""
    gradient = gradient_of(run)
    return gradient.parameters * math.prod(gradient.shape[1:]) <= SMALL


def _gain(run: RunConfig, threads: int, *, gpu: bool) -> float:
    """The speed in units of one thread's."""
    return max((GPU_GAIN if gpu and not _is_small(run) else 1), GAIN_PER_THREAD * threads)


def _bytes_per_image(run: RunConfig) -> float:
    """Bytes that a backward pass needs for each image of a batch."""
    gradient = gradient_of(run)
    return _measured_bytes(gradient.model, gradient.shape, gradient.classes)


@functools.cache
def _measured_bytes(model: str, shape: tuple[int, int, int], classes: int) -> float:
    loss = objective(model, shape, classes, "cpu")
    w = loss.initial()

    def stored(images: int) -> int:
        x = torch.zeros(images, *shape)
        y = torch.zeros(labels_of(loss, x), dtype=torch.long)
        return graph_bytes(lambda: loss.gradient(w, x, y))

    return (stored(4) - stored(2)) / 2  # the difference does not contain the parameters
