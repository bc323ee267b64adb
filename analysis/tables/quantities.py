"""The quantities that a table can show: tidy file, name, unit, and whether higher or lower values are better."""

from dataclasses import dataclass

from fedflat.analysis.measures.convergence import Better
from fedflat.bench.input.errors import unknown


@dataclass(frozen=True)
class Quantity:
    """One quantity. In the file `metrics` it is a column with one value per round, in analyses one row per run.

    A quantity may be derived from another `column` of `metrics`: from the evaluations of the first `share` of the
    rounds, or as standard deviation over the last `deviation_over` evaluations. `in_each_round`: it is known in each
    round, without an evaluation.
    """

    file: str
    title: str
    better: Better
    column: str = ""
    share: float = 1.0
    deviation_over: int | None = None
    in_each_round: bool = False


CLIENTS: dict[str, tuple[str, Better]] = {
    "mean": ("mean", "higher"),
    "deviation": ("deviation of", "lower"),
    "worst": ("lowest", "higher"),
    "best": ("highest", "higher"),
}
"""Statistics over the accuracies of all clients: words for titles, and whether higher or lower is better."""

QUANTITIES = {
    "test_accuracy": Quantity("metrics", "test accuracy (%)", "higher"),
    "test_accuracy_half": Quantity(
        "metrics", "test accuracy after half of the rounds (%)", "higher", column="test_accuracy", share=0.5
    ),
    "test_accuracy_std_last100": Quantity(
        "metrics",
        "deviation of the last 100 test accuracies (points)",
        "lower",
        column="test_accuracy",
        deviation_over=100,
    ),
    "test_miou": Quantity("metrics", "test mIoU (%)", "higher"),
    "test_miou_half": Quantity(
        "metrics", "test mIoU after half of the rounds (%)", "higher", column="test_miou", share=0.5
    ),
    "test_miou_seen": Quantity("metrics", "test mIoU of seen domains (%)", "higher"),
    "test_miou_unseen": Quantity("metrics", "test mIoU of unseen domains (%)", "higher"),
    "train_miou": Quantity("metrics", "training mIoU (%)", "higher"),
    "test_loss": Quantity("metrics", "test loss", "lower"),
    "train_accuracy": Quantity("metrics", "training accuracy (%)", "higher"),
    "train_loss": Quantity("metrics", "training loss", "lower"),
    "local_loss": Quantity("metrics", "mean local loss", "lower", in_each_round=True),
    "client_drift": Quantity("metrics", "client drift", "none", in_each_round=True),
    "c": Quantity("metrics", "coefficient c of FedGF", "none", in_each_round=True),
    "lambda_max": Quantity("hessian", "largest Hessian eigenvalue λ_max", "lower"),
    "lambda_ratio_1_5": Quantity("hessian", "eigenvalue ratio λ_1/λ_5", "lower"),
    "lambda_residual": Quantity("hessian", "residual of the λ_max eigenpair", "none"),
    "lambda_converged": Quantity("hessian", "whether Lanczos converged", "none"),
    "trace": Quantity("spectrum", "trace of the Hessian", "lower"),
    "lpf": Quantity("flatness", "low-pass-filter loss LPF", "lower"),
    "flatness_discrepancy": Quantity("discrepancy", "flatness discrepancy Δ_F", "lower"),
    "sharpness": Quantity("flatness", "sharpness", "lower"),
    "rounds_to_target": Quantity("convergence", "rounds", "lower"),
    "transmissions_to_target": Quantity("convergence", "models sent and received per client", "lower"),
    "gigabytes_to_target": Quantity("convergence", "traffic of all clients (GB)", "lower"),
    "received_gigabytes_to_target": Quantity("convergence", "traffic to all clients (GB)", "lower"),
    "image_gradients_to_target": Quantity("convergence", "gradients of single images", "lower"),
    "train_seconds_to_target": Quantity("convergence", "training time (s)", "lower"),
    **{
        f"client_{part}_accuracy_{name}": Quantity("clients", f"{title} {words} accuracy over clients (%)", better)
        for part, words in {"train": "training", "test": "test"}.items()
        for name, (title, better) in CLIENTS.items()
    },
    "corrupted_accuracy": Quantity("corruptions", "accuracy on corrupted test images (%)", "higher"),
    "downloads_per_round": Quantity("cost", "models received per round", "lower"),
    "uploads_per_round": Quantity("cost", "models sent per round", "lower"),
    "transmissions_per_round": Quantity("cost", "models sent and received per round", "lower"),
    "gigabytes_per_round": Quantity("cost", "traffic per round (GB)", "lower"),
    "gigabytes": Quantity("cost", "traffic (GB)", "lower"),
    "gradients_per_step": Quantity("cost", "gradients per local step", "lower"),
    "client_state": Quantity("cost", "models stored by a client", "lower"),
    "client_storage": Quantity("cost", "models stored by a client, and the model itself", "lower"),
    "client_models": Quantity("cost", "models stored and received by a client", "lower"),
    "server_state": Quantity("cost", "models stored by the server", "lower"),
    "train_seconds_per_round": Quantity("cost", "training per round (s)", "lower"),
    "evaluation_seconds": Quantity("cost", "evaluation (s)", "lower"),
    "seconds_per_round": Quantity("cost", "training and evaluation per round (s)", "lower"),
    "peak_memory_mib": Quantity("cost", "largest memory (MiB)", "lower"),
    "peak_gpu_memory_mib": Quantity("cost", "largest GPU memory (MiB)", "lower"),
}


def quantity(name: str) -> Quantity:
    """A quantity by its name; a `UserError` suggests the nearest."""
    if name not in QUANTITIES:
        raise unknown("metric", name, QUANTITIES)
    return QUANTITIES[name]
