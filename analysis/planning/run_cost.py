"""The cost of a run: seconds of training and evaluation, computed from the time of a gradient, and bytes on disk."""

import functools
from math import ceil, prod

from fedflat.analysis.planning.gradient_times import Gradient, Times
from fedflat.bench.data.augmentation import augmented_shape
from fedflat.bench.data.root import data_root
from fedflat.bench.engine.method_costs import measured_costs
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.models.pretrained import PretrainedModel
from fedflat.bench.training.run_setup import load_dataset

OVERHEAD = 1.2
"""Time of a local step in units of the time of its gradients (studies/pages/performance.md)."""

FORWARD = 1 / 3
"""Time of a forward pass in units of the time of a gradient."""

BYTES_PER_ROUND = 470
"""Size of the metrics and times of one round, in the files of the run and of the cell. Measured on runs that are
evaluated in every round."""

BYTES_PER_ACCURACY = 11
"""Size of the accuracy of a client after an evaluation, compressed."""


def seconds(run: RunConfig, times: Times) -> float:
    """Seconds of training and evaluation."""
    training, evaluation = run.training, run.evaluation
    train, test, _, _ = facts(run)
    per_client = training.local.count(ceil(train / run.partition.clients)) * training.local.mean_share()
    gradients = active_clients(run) * per_client * _costs(run)["gradients"]
    of_clients = {None: 0, "expected": test, "own": train}[evaluation.by_client]
    images = evaluation.count(train) + test + of_clients
    evaluations = len(evaluation.evaluated_rounds(training.rounds))
    passes = images / gradient_of(run).batch * FORWARD * size_of_whole_images(run)
    return times(gradient_of(run)) * (training.rounds * gradients * OVERHEAD + evaluations * passes)


def disk(run: RunConfig) -> float:
    """Bytes of the models and states that a run stores, and of its metrics and times.

    A client's state is stored again if the client has taken part since the last stored state. Vectors that several
    clients share are counted for each of them.
    """
    costs, clients = _costs(run), run.partition.clients
    changed = 1 - (1 - active_clients(run) / clients) ** (run.evaluation.snapshot_every or 1)
    state = 1 + costs["server_state"] + clients * changed * costs["client_state"]
    model = 4 * gradient_of(run).parameters
    models = 1 + len(run.snapshots) * state + len(run.rounds_of_local_models) * (1 + active_clients(run))
    accuracies = clients * len(run.evaluated_rounds) if run.evaluation.by_client else 0
    return model * models + BYTES_PER_ROUND * run.training.rounds + BYTES_PER_ACCURACY * accuracies


def active_clients(run: RunConfig) -> float:
    """The number of clients in a round, or its mean if it varies."""
    return run.participation.mean_active(run.partition.clients)


def gradient_of(run: RunConfig) -> Gradient:
    """The gradient of a local step's mini-batch, of the model with random weights: a file of weights may be missing.

    The images of local steps have the size of their windows if an augmentation cuts them out. A mini-batch is no larger
    than the data set.
    """
    train, _, _, classes = facts(run)
    model, shape = run.model, _trained_shape(run)
    if isinstance(model, PretrainedModel):
        model = model.model_copy(update={"weights": None})
    return Gradient(model.model_dump_json(), shape, classes, min(run.training.batch_size, train))


def size_of_whole_images(run: RunConfig) -> float:
    """Values of an image that is evaluated, for each value of one in a local step: more than 1 for windows."""
    return prod(facts(run)[2]) / prod(_trained_shape(run))


def _trained_shape(run: RunConfig) -> tuple[int, ...]:
    _, _, shape, _ = facts(run)
    if not run.training.augmentation:
        return shape
    crop = getattr(run.dataset, "crop", None)
    return augmented_shape(run.training.augmentation, run.dataset.stored_shape(shape), crop)


def facts(run: RunConfig) -> tuple[int, int, tuple[int, ...], int]:
    """Number of training samples, number of test samples, shape of an input, number of classes."""
    known = getattr(run.dataset, "facts", None)
    if known is not None:
        share = getattr(run.dataset, "share", 1.0)
        return round(share * known.train), round(share * known.test), known.shape, known.classes
    data = load_dataset(run.dataset, data_root())
    return len(data.train), len(data.test), data.image_shape, data.classes


def _costs(run: RunConfig) -> dict[str, float]:
    """Costs of the method: states in units of a model, steps in units of a gradient; counted in a small run."""
    return _costs_of(run.method.model_dump_json())


@functools.cache
def _costs_of(method: str) -> dict[str, float]:
    config = MethodConfig.model_validate_json(method)
    return measured_costs(config.recipe, config.hyperparameters)
