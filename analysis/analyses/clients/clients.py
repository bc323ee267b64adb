"""Accuracy of the final global model for each client, on its training images and on test images."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.measures.clients import (
    Floats,
    mean_of_classes,
    over_how_many,
    responses,
    summary,
    untested_classes,
)
from fedflat.bench.data.dataset import Subset
from fedflat.bench.data.partitions import AnyPartition, parse_partition
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.of_clients import expected_of_clients, label_shares, mean_of_clients
from fedflat.bench.metrics.quantity import Better, Quantity
from fedflat.bench.numerics.streams import numpy_stream

Word = Literal["expected", "partition"]
_WORDS: tuple[str, ...] = get_args(Word)
_SUBSETS: tuple[Subset, ...] = ("train", "test")


def _parsed(given: Any) -> Any:
    """A word, or the partition that a mapping of its options defines; a `UserError` for other values."""
    if isinstance(given, Mapping):
        _refuse_file(given.get("name"))
        return parse_partition(given, "test")
    if not isinstance(given, Partition) and given not in _WORDS:
        raise UserError(
            f"test = {given!r} (allowed: {', '.join(_WORDS)}, or a partition like {{name: iid, clients: 100}})"
        )
    return given


def _refuse_file(name: object) -> None:
    if name == "from_file":
        raise UserError(
            "a partition from_file lists training images: test = expected, or the name of another partition"
        )


STATISTICS: Mapping[str, tuple[str, Better]] = {
    "mean": ("mean", "higher"),
    "deviation": ("deviation of", "lower"),
    "worst": ("lowest", "higher"),
    "best": ("highest", "higher"),
}
"""Those of `summary`: words for titles, and whether higher or lower is better."""


TestAccuracies = Callable[[NDArray[np.bool_], Sequence[int]], Floats]
"""The test accuracy in [0, 1] of each of some clients, given which test images `[n]` a model classifies correctly."""


class OnTestImagesOfClients(Analysis):
    """An analysis of accuracies of clients on test images."""

    of_label_maps: ClassVar[bool | None] = False

    test: Annotated[Word | AnyPartition, BeforeValidator(_parsed)] = Field(
        default="expected",
        description="test accuracy of a client: expected, for test images with the labels of its training images; "
        "partition, on its share of the test images, which the run's partition splits in a draw of its own; or a "
        "partition of the test images, such as {name: iid, clients: 100}",
    )

    def test_accuracies(self, run: AnalysedRun) -> tuple[TestAccuracies, int, str]:
        """The test accuracies of clients, the number of clients, and the images on which they are computed in words."""
        data = run.setup.dataset
        if self.test == "expected":
            shares = label_shares(data.train.labels, run.setup.split, data.classes)

            def expected(correct: NDArray[np.bool_], clients: Sequence[int]) -> Floats:
                of_classes = mean_of_classes(correct, data.test.labels, data.classes)
                return expected_of_clients(of_classes, shares[list(clients)])

            nothing = np.zeros(len(data.test), dtype=bool)
            left_out = untested_classes(mean_of_classes(nothing, data.test.labels, data.classes), shares)
            words = "test images, the classes weighted by their shares of the client's training images"
            return expected, len(shares), words + (f", {left_out}" if left_out else "")
        partition = run.config.partition if self.test == "partition" else self.test
        _refuse_file(partition.name)
        # The stream has no method in its key, so that all methods of a seed are tested on the same split.
        split = partition.split(data.test, numpy_stream(run.config.seed, "validation-partition"))
        return (
            lambda correct, clients: mean_of_clients(correct, [split[i] for i in clients]),
            len(split),
            f"the client's share of the test images, split by {partition.label} over {partition.clients} clients in a "
            "draw of its own",
        )


class ClientAccuracy(OnTestImagesOfClients):
    """The accuracy of each client; mean, deviation, lowest and highest over clients (Qu et al., 2022: train and
    validation columns)."""

    name: ClassVar[str] = "clients"
    columns: ClassVar[tuple[str, ...]] = ("metric", "client", "value")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        f"client_{subset}_accuracy_{name}": Quantity(f"{title} {words} accuracy over clients", better, "%")
        for subset, words in (("train", "training"), ("test", "test"))
        for name, (title, better) in STATISTICS.items()
    }

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per client, and rows without a client with the statistics over clients."""
        correct = {
            subset: responses(
                run.setup.objective, run.w, run.progress(run.sample(subset).data, f"{subset} batch")
            ).correct
            for subset in _SUBSETS
        }
        accuracies_of, clients, test_images = self.test_accuracies(run)
        of_clients = {
            "train": (mean_of_clients(correct["train"], run.setup.split), "the client's own training images"),
            "test": (accuracies_of(correct["test"], range(clients)), test_images),
        }
        return of_clients_and_all(
            {
                f"client_{subset}_accuracy": (100 * shares, f"accuracy in percent of the global model on {images}")
                for subset, (shares, images) in of_clients.items()
            }
        )


def of_clients_and_all(found: Mapping[str, tuple[Floats, str]]) -> pd.DataFrame:
    """The accuracies of clients by metric, each with a definition: a row per client, and rows with their statistics."""
    rows: list[tuple[str, int | None, float, str]] = []
    for metric, (accuracies, what) in found.items():
        clients = over_how_many(accuracies, "clients")
        rows += [(metric, i, value, what) for i, value in enumerate(accuracies)]
        rows += [
            (f"{metric}_{name}", None, value, f"{name} over {clients} of {what}")
            for name, value in summary(accuracies).items()
        ]
    table = pd.DataFrame(rows, columns=["metric", "client", "value", "definition"])
    return table.astype({"client": "Int64"})
