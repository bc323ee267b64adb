"""How the engine computes. None of it changes a run's numbers beyond rounding, so it is no part of a run's identity."""

from typing import Literal

from pydantic import Field

from bench.input.frozen import Frozen


class EngineSettings(Frozen):
    """What is `auto` is measured when training begins; the choice is in the run's log."""

    backend: Literal["auto", "loop", "cohort", "graph"] = Field(
        default="auto",
        description="loop: one client after another; cohort: all active clients in one batched call; "
        "graph: a cohort's round as one CUDA graph",
    )
    seeds: Literal["auto", "together", "apart"] = Field(
        default="auto", description="whether a cohort has the clients of all of a cell's seeds, or one run at a time"
    )
    layout: Literal["auto", "contiguous", "channels_last"] = Field(
        default="auto", description="memory format of images"
    )
    client_memory: float | None = Field(
        default=None,
        ge=0,
        description="GiB of memory for the states of clients, before they move on to a file; null: a quarter of what "
        "is free",
    )
