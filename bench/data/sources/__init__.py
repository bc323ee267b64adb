"""Where data sets come from. Each source is one entry of a configuration's `dataset`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from bench.data.sources.base import Source
from bench.data.sources.cifar import Cifar10, Cifar100, Cifar100Pam
from bench.data.sources.cifar_c import Cifar10C, Cifar100C
from bench.data.sources.digits import Digits
from bench.data.sources.idx import Emnist, FashionMnist
from bench.data.sources.image_folder import ImageFolder
from bench.data.sources.svhn import Svhn
from bench.input.errors import UserError, unknown

AnySource = Annotated[
    Digits | ImageFolder | Cifar10 | Cifar100 | Cifar100Pam | Cifar10C | Cifar100C | Emnist | FashionMnist | Svhn,
    Field(discriminator="name"),
]

SOURCES: dict[str, type[Source]] = {
    source.model_fields["name"].default: source
    for source in (
        Cifar10, Cifar100, Cifar100Pam, Cifar10C, Cifar100C, Emnist, FashionMnist, Svhn, Digits, ImageFolder,
    )
}  # fmt: skip


def parse_source(dataset: Any) -> Source:
    """The source that a configuration's `dataset` means: a source's name, or a mapping of its name and fields."""
    if isinstance(dataset, Source):
        return dataset
    fields = dataset if isinstance(dataset, Mapping) else {"name": dataset}
    if "name" not in fields:
        raise UserError(f"dataset has no name (allowed: {', '.join(SOURCES)})")
    name = fields["name"]
    if not isinstance(name, str) or name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return SOURCES[name].parse(fields, where=f"dataset {name}")
