"""What is checked before the first job: files of data sets, and whether models, partitions and augmentations fit."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple

from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.root import data_root
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.data_sets import check_model_for, check_partition
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import check_model
from fedflat.bench.training.run_setup import check_augmentation, split_of, trained_and_held_out


def missing(source: Source) -> UserError | None:
    """The error if files of a data set are missing."""
    try:
        source.require(data_root())
    except UserError as error:
        return error
    return None


def identified(source: Source) -> str:
    """A data set with all its options: those of two files may have the same label."""
    return source.model_dump_json()


PARTS = {
    "split": ("partition",),
    "train": ("model", "partition", "augmentation"),
    "tune": ("model", "partition", "augmentation"),
    "analyse": ("model",),
}
"""By the rule of a job: the parts of its runs that must fit the data set."""


class Part(NamedTuple):
    """One part of runs, and that on which its check depends: parts that are equal are checked once."""

    name: str
    depends_on: Hashable


def parts(rule: str, run: RunConfig) -> Mapping[Part, RunConfig]:
    """The parts of a run that must fit its data set before a job of this rule begins."""
    source, drawn = identified(run.dataset), (run.evaluation.validation, run.seed)
    depends_on: Mapping[str, Hashable] = {
        "model": (source, run.model.model_dump_json()),
        "partition": (source, run.partition.model_dump_json(), drawn),
        "augmentation": (source, repr(run.training.augmentation)),
    }
    return {Part(name, depends_on[name]): run for name in PARTS[rule]}


def unfit(wanted: Mapping[Part, RunConfig]) -> Iterator[UserError]:
    """The errors of parts that do not fit their data sets.

    A data set that takes long to decode is not loaded: models and partitions are compared with what its lists and
    folders show. Of the others, all partitions are drawn, because some are impossible with certain labels only. Code of
    users is executed for their models and data sets, as the first job would.
    """
    of_sources: dict[str, dict[Part, RunConfig]] = {}
    for part, run in wanted.items():
        of_sources.setdefault(identified(run.dataset), {})[part] = run
    for own in of_sources.values():
        yield from _mistakes(own)


def _mistakes(wanted: Mapping[Part, RunConfig]) -> Iterator[UserError]:
    """Of runs with one data set. A partition that is impossible with one seed is not drawn with another one."""
    source, root = next(iter(wanted.values())).dataset, data_root()
    try:
        data = source.load(root) if source.form(root) is None else None
    except UserError as error:
        yield error
        return
    impossible = set[str]()
    for part, run in wanted.items():
        if part.name == "partition" and run.partition.model_dump_json() in impossible:
            continue
        try:
            _CHECKS[part.name](run, data)
        except UserError as error:
            if part.name == "partition":
                impossible.add(run.partition.model_dump_json())
            yield error


def _check_model(run: RunConfig, data: Dataset | None) -> None:
    if data is None:
        check_model_for(run.model, run.dataset, data_root())
    else:
        check_model(run.model, data.image_shape, data.classes)


def _check_partition(run: RunConfig, data: Dataset | None) -> None:
    if data is None:
        check_partition(run.partition, run.dataset, data_root())
    else:
        trained_and_held_out(run, split_of(run.partition, data, run.seed))


def _check_augmentation(run: RunConfig, data: Dataset | None) -> None:
    form = run.dataset.form(data_root()) if data is None else None
    shape = data.image_shape if data is not None else form.shape if form is not None else None
    if shape is not None:
        check_augmentation(run, run.dataset.label, shape)


_CHECKS: Mapping[str, Callable[[RunConfig, Dataset | None], None]] = {
    "model": _check_model,
    "partition": _check_partition,
    "augmentation": _check_augmentation,
}
