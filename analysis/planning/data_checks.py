"""What is checked of data sets and models before the first job: files, and whether models fit the images."""

from collections.abc import Iterable, Iterator

from bench.data.root import data_root
from bench.data.sources.base import Form, Source
from bench.experiments.data_sets import check_model_for
from bench.input.errors import UserError
from bench.models.base import ModelChoice, NamedModel


def missing(source: Source) -> UserError | None:
    """The error if files of a data set are missing."""
    try:
        source.require(data_root())
    except UserError as error:
        return error
    return None


def unfit(pairs: Iterable[tuple[ModelChoice, Source]]) -> Iterator[UserError]:
    """The errors of models that do not fit their data sets; each model is checked once for each form of a sample."""
    seen = set[tuple[str, Form | None]]()
    for model, source in pairs:
        if not isinstance(model, NamedModel):
            continue
        try:
            form = source.form(data_root())
            if (model.label, form) not in seen:
                seen.add((model.label, form))
                check_model_for(model, source, data_root())
        except UserError as error:
            yield error
