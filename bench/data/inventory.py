"""The commands `fedflat data list`, `check` and `prepare`, for data sets by name."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedflat.bench.code.named_code import trust_named
from fedflat.bench.data.sources import SOURCES, SUFFIX, TABLE, parse_source
from fedflat.bench.data.sources.base import Published, Source
from fedflat.bench.data.sources.image_files.domains import DomainFolder
from fedflat.bench.data.sources.image_files.image_folder import SUBSETS, ImageFolder
from fedflat.bench.data.sources.table import ENDINGS
from fedflat.bench.files.text_table import aligned
from fedflat.bench.input.content import expanded
from fedflat.bench.input.errors import UserError, unknown

OWN = {
    "image_folder": "pictures/flowers",
    "domain_folder": "pictures/styles",
    "arrays": "signals.npz",
    "function": "mine.py:build",
}
"""An example of the path of each user-defined data set."""


def listing(root: Path) -> str:
    """One line per data set: size, status below `root`, licence and source."""
    head = ("name", "training + test", "sample", "classes", "MB", "status", "licence", "source")
    rows = [(name, *source.overview(root)) for name, source in SOURCES.items()]
    note = (
        f"data root: '{root}'; status: missing, archive (to be unpacked), files (to be decoded), ready (with the "
        "sizes of decoded image files); 'fedflat data check NAME' verifies"
    )
    return "\n".join([*aligned([head, *rows]), note])


def check(name: str, root: Path) -> Iterator[str]:
    """Reads all files of a data set and reports on each. Raises `UserError` at the end if a file is wrong."""
    return _sources(name)[0].check(root)


def prepare(name: str, root: Path, *, fetch: bool) -> Iterator[str]:
    """As `prepare_all`, for a data set by name: all its variants with their default options."""
    return prepare_all(_sources(name), root, fetch=fetch)


def prepare_all(sources: Sequence[Source], root: Path, *, fetch: bool) -> Iterator[str]:
    """Unpacks and decodes data sets, so that runs only have to map them into memory. Reports each step."""
    if not fetch:
        for source in sources:  # before one is decoded, which can take hours
            source.require(root)
    needed = dict.fromkeys(one for source in sources if isinstance(source, Published) for one in source.needs)
    for variant in (variant for one in needed for variant in one.variants()):
        variant.prepare(root, fetch=fetch)
    for source in sources:
        data = source.prepare(root, fetch=fetch)
        if (warning := source.warning(data)) is not None:
            yield warning
        counts = f"{len(data.train):,} training and {len(data.test):,} test samples"
        shape = "×".join(map(str, data.image_shape))
        yield f"{data.name}: {counts} in {data.classes} classes, hash {data.content_hash()}, sample {shape}"


def _sources(name: str) -> list[Source]:
    """All variants of the data set of this name, or the user-defined one: a folder, an npz file, `file.py:function`."""
    if name.lstrip().startswith("{"):
        raise UserError(
            f"'{name}' is a mapping (allowed: the name of a data set, or the path of your own data; 'fedflat data "
            "prepare EXPERIMENT PART' prepares a data set with the options of an experiment)"
        )
    if name == TABLE or name.endswith(ENDINGS):
        raise UserError(
            "a table is named by an experiment, which says what its label is: 'fedflat data prepare EXPERIMENT' reads "
            f"it (dataset: {{name: {name if name != TABLE else 'cancer.csv'}, label: diagnosis}})"
        )
    if ":" in name or name.endswith(SUFFIX):
        trust_named(name)
        return [parse_source(name)]
    if name not in SOURCES and expanded(name, "the folder").is_dir():
        return [_of_folder(expanded(name, "the folder"))]
    if "/" in name:
        raise UserError(f"the folder '{name}' does not exist")
    if name in OWN:
        raise UserError(f"{name} is given by its path, for example {OWN[name]}")
    if name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return list(SOURCES[name].variants())


def _of_folder(folder: Path) -> Source:
    """The user-defined images in a folder: domains, if it has folders of folders, but not the subsets train or test."""
    has_subsets = any((folder / subset).is_dir() for subset in SUBSETS)
    has_domains = any(path.is_dir() for path in folder.glob("*/*"))
    return DomainFolder.first_of(folder) if has_domains and not has_subsets else ImageFolder(root=folder)
