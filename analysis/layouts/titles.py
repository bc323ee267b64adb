"""Labels in words: partitions, participations and methods as tables, figures and captions name them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.data.sources import SOURCES, parse_source
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.schema import SWA_SUFFIX, ExperimentFile, MethodEntry

_REPLACED = {name: kind.shown_as for name, kind in SOURCES.items() if kind.shown_as and not kind.trained_at_smoke_scale}
_NAMES = re.compile(rf"(?<![\w-])(?={'|'.join(sorted({*_REPLACED, *_REPLACED.values()}))})")


def with_trained_data(heading: str) -> str:
    """A heading at smoke scale, where digits are trained in place of each data set: digits for CIFAR-10."""
    return _NAMES.sub(lambda found: "digits for " if found.start() else "Digits for ", heading)


def trained_data(part: ExperimentFile) -> Source:
    """The data set on which a part of an experiment is trained; at smoke scale the one that replaces the part's own."""
    source = parse_source(part.dataset)
    return parse_source(source.stand_in) if part.scale == "smoke" else source


def data_title(part: ExperimentFile) -> str:
    """The data set on which a part of an experiment is trained, in words, such as OfficeHome (real world)."""
    source = trained_data(part)
    if not source.shown_as:
        return source.label
    details = source.label.removeprefix(source.name).removeprefix("-").replace("-", ", ").replace("_", " ")
    return f"{source.shown_as} ({details})" if details else source.shown_as


def partition_title(label: str) -> str:
    """A partition in words, such as Dirichlet 0.1 for dirichlet-0.1; for a file (file-mine), its name (mine)."""
    kind, parameters = _partition(label)
    if kind is None:
        name, _, title = label.partition("-")
        return title if name == "file" and title else label
    return kind.titled(parameters)


def partition_headings(label: str) -> tuple[str, str]:
    """A partition as the headings of a column: its kind, and its parameter, such as Dirichlet and α = 0.1."""
    kind, parameters = _partition(label)
    if kind is None or not kind.heading:
        return "", partition_title(label)
    return kind.shown_as, kind.heading.format(parameters)


def _partition(label: str) -> tuple[type[Partition] | None, str]:
    """The kind of a partition with a label, None if it has no words, and the parameters in the label."""
    name, _, parameters = label.partition("-")
    kind = PARTITIONS.get(name)
    return (kind if kind is not None and kind.shown_as else None), parameters.replace("-", ", ")


def participation_title(label: str) -> str:
    """A participation in words, such as 4 of 20 clients for 4-of-20."""
    available, plus, sampled = label.rpartition("+")
    if plus and not label.startswith("schedule-"):
        return f"{participation_title(sampled)}, availability {available.replace('-', ' ')}"
    bernoulli = re.fullmatch(r"bernoulli-(.+)-of-(\d+)", label)
    if bernoulli:
        return f"{bernoulli[2]} clients, each with probability {bernoulli[1]}"
    schedule = re.fullmatch(r"schedule-(.+)-of-(\d+)", label)
    if schedule:
        return f"{schedule[2]} clients, schedule {schedule[1]}"
    return f"{label.replace('-', ' ')} clients"


def participation_phrase(label: str) -> str:
    """A participation in words, for captions and headings of blocks, such as 4 of 20 clients per round."""
    title = participation_title(label)
    return title if "," in title else f"{title} per round"


def setting_title(setting: Setting) -> str:
    """A setting's partition and participation, for headings."""
    return f"{partition_title(setting.partition)}, {participation_title(setting.participation)}"


def method_titles(experiment: Experiment, shown: Iterable[str] | None = None) -> dict[str, str]:
    """The name of each method by its label, as the paper prints it or the experiment's file gives it.

    Where several methods share a name, the label is added in parentheses, except for the method whose label is its name
    in the catalog. `shown`: the labels of the methods that are shown together; None: all of the experiment.
    """
    names = {label: _title(label, experiment.methods[label]) for label in (shown or experiment.methods)}
    names |= {label: f"{names[label]} ({one.title})" for label, one in experiment.swept.items() if label in names}
    return _distinct(names, {label: (label, label) for label in names}, experiment)


def entry_titles(experiment: Experiment, methods: Iterable[str]) -> dict[str, str]:
    """The names of the file's entries with these methods, by label: all methods of a sweep are of one entry."""
    entries = {experiment.swept[m].base if m in experiment.swept else m: m for m in methods}
    titles = {label: _title(method, experiment.methods[method]) for label, method in entries.items()}
    return _distinct(titles, {label: (label, method) for label, method in entries.items()}, experiment)


def _distinct(
    titles: Mapping[str, str], methods: Mapping[str, tuple[str, str]], experiment: Experiment
) -> dict[str, str]:
    """Titles, with the label of the method in parentheses where several are equal, unless it is the method's name.

    `methods`: by the key of a title, the label in the file, and that of one of its methods in the experiment.
    """
    uses = Counter(titles.values())
    names = {key: experiment.methods[label].choice(label).name for key, (_, label) in methods.items()}
    return {
        key: title if uses[title] == 1 or shown.removesuffix(SWA_SUFFIX) == names[key] else f"{title} ({shown})"
        for key, title in titles.items()
        for shown in (methods[key][0],)
    }


def _title(label: str, entry: MethodEntry) -> str:
    if entry.title is not None:
        return entry.title
    recipe, released = entry.choice(label).recipe, entry.release(label)
    swa = entry.hyperparameters.get("swa")
    cyclic_only = isinstance(swa, Mapping) and swa.get("collect") == "none"
    wrapped = "" if swa is None else ", cyclic rate" if cyclic_only else " + SWA"
    sampling = ", Bernoulli participation" if released is not None and released.sampling == "bernoulli" else ""
    return f"{recipe.title}{wrapped}" + (f" ({entry.variant}{sampling})" if released is not None else "")
