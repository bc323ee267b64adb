"""FedFlat from Python: train on your own tensors, and read the results of experiments as data frames.

    import fedflat

    fedflat.simulate("fedsam", model, clients, ...)                 train a model on tensors or arrays, without files
    fedflat.runs("quick")                                           one row per finished run of an experiment
    fedflat.metrics("quick")                                        one row per round of each run
    fedflat.client_accuracies("mine.yaml")                          one row per round and client (evaluation.by_client)
    fedflat.analysis_values("quick", "hessian")                     an analysis of all runs
    fedflat.load_run("results/store/.../seed-0")                    one run: configuration, metrics, model, data
    fedflat.load_model("results/store/.../seed-0")                  the trained model of a run, as a torch module
    fedflat.hessian(model, (x, y), k=5)                             the largest eigenvalues of a loss's Hessian
    fedflat.sharpness(model, (x, y), rho=0.05)                      how far the loss rises within a radius
    fedflat.surface(model, (x, y))                                  loss and error on a random plane around a model

Invalid input raises `fedflat.UserError` with one line for each mistake. `import fedflat` is fast: torch, pandas and the
names above are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedflat.bench import __version__

if TYPE_CHECKING:
    from fedflat.bench.input.errors import UserError
    from fedflat.bench.training.engine_choice import EngineChoice
    from fedflat.curvature import hessian, sharpness, surface
    from fedflat.results import Run, analysis_values, client_accuracies, load_model, load_run, metrics, runs
    from fedflat.round_logs import tensorboard
    from fedflat.simulation import simulate
    from fedflat.simulation_result import SimulationResult

__all__ = [
    "EngineChoice", "Run", "SimulationResult", "UserError", "__version__",
    "analysis_values", "client_accuracies", "hessian", "load_model", "load_run", "metrics", "runs", "sharpness",
    "simulate", "surface", "tensorboard",
]  # fmt: skip

_MODULES = {
    "EngineChoice": "fedflat.bench.training.engine_choice",
    "SimulationResult": "fedflat.simulation_result",
    "simulate": "fedflat.simulation",
    "tensorboard": "fedflat.round_logs",
    "UserError": "fedflat.bench.input.errors",
    **dict.fromkeys(("hessian", "sharpness", "surface"), "fedflat.curvature"),
    **dict.fromkeys(
        ("Run", "analysis_values", "client_accuracies", "load_model", "load_run", "metrics", "runs"), "fedflat.results"
    ),
}


_PUBLIC = ("analyses", "analysis", "datasets", "evaluation", "methods", "models")
"""Modules with what a user's file imports; `analysis` was the name of a function, see there."""


def __getattr__(name: str) -> Any:
    """Import a name of the Python API when it is first used."""
    if name in _PUBLIC:
        return import_module(f"fedflat.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'fedflat' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
