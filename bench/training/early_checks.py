"""Mistakes in a run that are known before its images are decoded, which can take hours."""

from pathlib import Path

from bench.data.partitions import AnyPartition
from bench.data.sources.base import Source
from bench.experiments.run_config import RunConfig
from bench.models import check_model
from bench.models.base import ModelChoice


def check_before_loading(config: RunConfig, root: Path) -> None:
    """Raises `UserError` if files are missing, lists are wrong, or partition or model do not fit the data."""
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
