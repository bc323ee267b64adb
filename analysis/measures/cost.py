"""The costs of a run: traffic, gradients and time, from its stored metrics.

Only times depend on the machine on which it was trained.
"""

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from fedflat.bench.engine.participation import active_clients
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import trained_and_held_out

BYTES = 4
"""Bytes per transmitted parameter: models are sent in float32."""

SPENT = {
    "rounds": "communication rounds",
    "transmissions": "models that a participating client receives and sends, summed over rounds",
    "gigabytes": "data that all participating clients receive and send, 4 bytes per parameter, in 10^9 bytes",
    "received_gigabytes": "data that all participating clients receive, 4 bytes per parameter, in 10^9 bytes",
    "image_gradients": "gradients of single images that all clients compute",
    "train_seconds": "wall-clock time of training, without evaluation",
}
"""Quantities that training spends, with their definitions."""


def spending(metrics: pd.DataFrame, times: pd.DataFrame, parameters: int, images: Mapping[int, int]) -> pd.DataFrame:
    """Cumulative spending at the end of each round: one row per `round`, with the columns of `SPENT`.

    In round r, each of M_r participating clients downloads d_r and uploads u_r vectors, in units of the model, which
    has P parameters. Round r spends d_r + u_r transmissions (the unit of FedGF's Tables 3 and 4), M_r (d_r + u_r) 4P /
    10^9 gigabytes, of which M_r d_r 4P / 10^9 are received (FedLESAM's Tables 5 and 9 print their ratios), and as many
    image gradients as the gradients per local step (2 for SAM) times the `images` of the round's local steps.
    """
    train_seconds = metrics[["round"]].merge(times, on="round", how="left")["train_seconds"]
    both = metrics["download"] + metrics["upload"]
    in_round = pd.DataFrame(
        {
            "rounds": 1,
            "transmissions": both,
            "gigabytes": metrics["active"] * both * BYTES * parameters / 1e9,
            "received_gigabytes": metrics["active"] * metrics["download"] * BYTES * parameters / 1e9,
            "image_gradients": metrics["gradients"] * metrics["round"].map(images),
            "train_seconds": train_seconds,
        }
    )
    return pd.concat([metrics["round"], in_round.cumsum()], axis=1)


def images_of_steps(run: RunDirectory, rounds: Iterable[int]) -> dict[int, int]:
    """The number of images in all participants' local steps by finished round; with E local epochs, it is E Σ n_i."""
    config = run.config
    trained, _ = trained_and_held_out(config, run.split())
    sizes, local, seed = [len(indices) for indices in trained], config.training.local, config.seed

    def of_round(t: int) -> int:
        active = active_clients(config.participation, len(sizes), seed, t)
        return sum(local.in_round(seed, t, i).images(sizes[i]) for i in active)

    return {finished: of_round(finished - 1) for finished in map(int, rounds)}


def per_round(metrics: pd.DataFrame, times: pd.DataFrame, parameters: int) -> dict[str, float]:
    """The costs of a round and of the whole run, by name.

    Medians over the finished rounds, because some methods have nothing to send in the first one:
    - `downloads_per_round`, `uploads_per_round`, `transmissions_per_round`: models that a participating client
      downloads, uploads, and their sum (FedGF, Table 3);
    - `gradients_per_step`: 1 for SGD, 2 for SAM;
    - `client_state`, `server_state`: vectors stored between rounds, in units of the model;
    - `client_storage`: a client's state and the model itself (FedTOGA, Table 4);
    - `client_models`: a client's state and its downloads (FedLESAM, Table 7, which counts MoFedSAM's momentum, unlike
      FedTOGA).

    Means over all rounds: `gigabytes_per_round` of all clients (the sum is `gigabytes`), `train_seconds_per_round`, and
    `seconds_per_round` of training and evaluation (FedLESAM, Table 8). `evaluation_seconds` is the mean over the
    evaluations, NaN without any.
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
