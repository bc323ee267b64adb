"""Settings of the engine. They change a run's numbers by rounding at most, so they are not part of its identity."""

from typing import ClassVar, Literal

from pydantic import Field

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.frozen import Frozen


class EngineSettings(Frozen):
    """Settings that are `auto` are chosen by measurements when training begins; the run's log shows the choice."""

    in_words: ClassVar[str] = "engine"

    backend: Literal["auto", "loop", "parallel", "cohort", "graph", "branches"] = Field(
        default="auto",
        description="loop: one client after another; parallel: several clients at the same time, each on one core; "
        "cohort: all active clients in one batched call; graph: each local step of a cohort as one CUDA graph; "
        "branches: a graph in which each client is a branch of its own",
    )
    seeds: Literal["auto", "together", "apart"] = Field(
        default="auto",
        description="whether a cohort contains the clients of all seeds of a cell, or of one run at a time",
    )
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        default="auto", description="memory format of images"
    )
    convolution: Literal["auto", "grouped", "im2col"] = Field(
        default="auto",
        description="convolutions in a cohort, whose weights differ between clients: grouped convolutions, or products "
        "of matrices for images of few channels, which need more memory",
    )
    values: Literal["fixed", "by_row"] = Field(
        default="fixed",
        description="by_row: each client of a cohort has hyper-parameters of its own, so that runs of a search, which "
        "differ in them, share a cohort",
    )
    most_rows: Count | None = Field(
        default=None,
        examples=[40],
        description="largest number of clients that a cohort computes at once; null: as many as memory allows",
    )
    checkpoint_seconds: float = Field(
        default=60,
        ge=0,
        description="seconds between checkpoints, from which an interrupted run is resumed; 0: after each round",
    )
    client_memory: float | None = Field(
        examples=[4],
        default=None,
        ge=0,
        description="GiB of memory for the states of clients; further states are in a file; null: a quarter of the "
        "free memory",
    )
