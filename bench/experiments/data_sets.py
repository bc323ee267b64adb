"""Data sets before they are decoded: which ones an experiment has, and what in a run does not fit its data set.

Decoding can take hours, so mistakes that lists, folders and published facts show are looked for before.
"""

from pathlib import Path

from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import unknown
from fedflat.bench.models import check_model
from fedflat.bench.models.base import ModelChoice


def data_sets(experiment: Experiment, part: str | None, root: Path) -> list[Source]:
    """The data set of the part with this label, or of all parts: the first of those that share their decoded images.

    A `UserError` lists the labels of the parts if there is no such part.
    """
    parts = experiment.resolved_parts
    if part is not None and part not in parts:
        raise unknown(f"part of experiment {experiment.name}", part, parts)
    found: dict[str, Source] = {}
    for source in (parse_source(parts[label].dataset) for label in parts if part in (None, label)):
        found.setdefault(source.decoded_as(root), source)
    return list(found.values())


def check_before_loading(config: RunConfig, root: Path) -> None:
    """Raises `UserError` if files are missing, lists are wrong, or partition or model do not fit the data set."""
    check_partition(config.partition, config.dataset, root)
    check_model_for(config.model, config.dataset, root)


def check_partition(partition: AnyPartition, source: Source, root: Path) -> None:
    """Raises `UserError` if lists or folders are wrong, or if the listed training images cannot be divided."""
    if (listed := source.listed(root)) is not None:
        partition.check(*listed)


def check_model_for(model: ModelChoice, source: Source, root: Path) -> None:
    """Raises `UserError` if the model refuses the images, or if its weights are missing or of another model."""
    if (form := source.form(root)) is not None:
        check_model(model, *form)
