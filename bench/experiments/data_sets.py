"""The data sets of an experiment, with the options that it gives."""

from pathlib import Path

from bench.data.sources import parse_source
from bench.data.sources.base import Source
from bench.experiments.experiment import Experiment
from bench.input.errors import unknown


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
