"""What a run costs: traffic, gradients and time of each round, from what its metrics counted.

All in float64, exact up to the rounding of sums. Times are those of the machine that trained, everything else is not.
"""

import math
from collections.abc import Mapping

import pandas as pd

from bench.engine.participation import active_clients
from bench.training.run_directory import RunDirectory

BYTES = 4
"""Of a parameter in float32, as models are sent."""

SPENT = {
    "rounds": "communication rounds",
    "transmissions": "models received and sent by a client that takes part, summed over rounds",
    "gigabytes": "received and sent by all clients that take part, 4 bytes per parameter, in 10^9 bytes",
    "received_gigabytes": "received by all clients that take part, 4 bytes per parameter, in 10^9 bytes",
    "image_gradients": "gradients of single images that all clients compute",
    "train_seconds": "wall-clock time of training, without evaluation",
}
"""What is spent on training, and how it is counted."""


def spending(metrics: pd.DataFrame, times: pd.DataFrame, parameters: int, images: Mapping[int, int]) -> pd.DataFrame:
    """What has been spent when a round ends: one row per `round`, the columns of `SPENT`, which never fall.

    Per round r, with d_r and u_r the model sizes that a client downloads and uploads, M_r clients, and P parameters:
    transmissions d_r + u_r (the unit of FedGF's Tables 3 and 4), gigabytes M_r (d_r + u_r) 4P / 10^9, received ones
    M_r d_r 4P / 10^9 (multiples in FedLESAM's Tables 5 and 9), image gradients: gradients per local step times the
    `images` of the round's steps, 2 for SAM.
    """
    own = metrics[["round"]].merge(times, on="round", how="left")["train_seconds"]
    both = metrics["download"] + metrics["upload"]
    in_round = pd.DataFrame(
        {
            "rounds": 1,
            "transmissions": both,
            "gigabytes": metrics["active"] * both * BYTES * parameters / 1e9,
            "received_gigabytes": metrics["active"] * metrics["download"] * BYTES * parameters / 1e9,
            "image_gradients": metrics["gradients"] * metrics["round"].map(images),
            "train_seconds": own,
        }
    )
    return pd.concat([metrics["round"], in_round.cumsum()], axis=1)


def images_of_steps(run: RunDirectory) -> dict[int, int]:
    """How many images the local steps of all active clients take in each finished round: E Σ n_i, repeats counted."""
    config, sizes = run.config, [len(indices) for indices in run.split()]
    return {
        finished: config.training.local_epochs
        * sum(sizes[i] for i in active_clients(config.participation, len(sizes), config.seed, finished - 1))
        for finished in run.metrics()["round"].tolist()
    }


def per_round(metrics: pd.DataFrame, times: pd.DataFrame, parameters: int) -> dict[str, float]:
    """What a round costs, and the run in all, by name.

    Medians over the finished rounds, since some methods have nothing to send yet in the first one: models that a client
    which takes part downloads, uploads, and both (FedGF, Table 3); `gradients_per_step`, 1 for SGD and 2 for SAM;
    `client_state` and `server_state`, vectors kept between rounds, in models; `client_storage`, those of a client and
    the model itself (FedTOGA, Table 4); `client_models`, those of a client and what it downloads (FedLESAM, Table 7,
    which counts MoFedSAM's momentum, as FedTOGA does not). Means over rounds: `gigabytes_per_round`, of all clients,
    whose sum is `gigabytes`; seconds of training, and of training and evaluation, evaluated or not (FedLESAM, Table 8).
    `evaluation_seconds` is the mean of the evaluations, NaN without one.
    """
    both = metrics["download"] + metrics["upload"]
    gigabytes = metrics["active"] * both * BYTES * parameters / 1e9
    training, evaluation = times["train_seconds"], times["evaluation_seconds"].dropna()
    rounds = len(metrics)
    return {
        "downloads_per_round": float(metrics["download"].median()),
        "uploads_per_round": float(metrics["upload"].median()),
        "transmissions_per_round": float(both.median()),
        "gradients_per_step": float(metrics["gradients"].median()),
        "client_state": float(metrics["client_state"].median()),
        "client_storage": float(metrics["client_state"].median()) + 1,
        "client_models": float((metrics["client_state"] + metrics["download"]).median()),
        "server_state": float(metrics["server_state"].median()),
        "gigabytes_per_round": math.fsum(gigabytes) / rounds,
        "gigabytes": math.fsum(gigabytes),
        "train_seconds_per_round": math.fsum(training) / rounds,
        "evaluation_seconds": math.fsum(evaluation) / len(evaluation) if len(evaluation) else math.nan,
        "seconds_per_round": math.fsum([*training, *evaluation]) / rounds,
    }
