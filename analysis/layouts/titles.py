"""Labels in words: partitions, participations and methods as tables, figures and captions name them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.schema import SWA_SUFFIX, ExperimentFile, MethodEntry

_PARTITIONS = {
    "iid": "IID",
    "centralized": "Centralized",
    "dirichlet": "Dirichlet",
    "dirichlet_by_class": "Dirichlet by class",
    "pathological": "Pathological",
    "lda": "LDA",
    "pam": "PAM",
    "by_group": "By group",
}

_TRAINED_AT_SMOKE_SCALE = {
    "digits": "scikit-learn's digits",
    "digits_domains": "scikit-learn's digits in several styles",
    "digit_scenes": "scenes of scikit-learn's digits",
}

_DATA = {
    **_TRAINED_AT_SMOKE_SCALE,
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar100_pam": "CIFAR-100",
    "fashion_mnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "svhn": "SVHN",
    "officehome": "OfficeHome",
    "domainnet": "DomainNet",
    "pacs": "PACS",
    "vlcs": "VLCS",
    "landmarks_user_160k": "Landmarks-User-160k",
    "cityscapes": "Cityscapes",
    "idda": "IDDA",
}
"""Titles by the name of a data set; its label may have more parts, such as a held-out domain: officehome-art."""

_REPLACED = {key: title for key, title in _DATA.items() if key not in _TRAINED_AT_SMOKE_SCALE}
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
    if source.name not in _DATA:
        return source.label
    details = source.label.removeprefix(source.name).removeprefix("-").replace("-", ", ").replace("_", " ")
    return f"{_DATA[source.name]} ({details})" if details else _DATA[source.name]


def partition_title(label: str) -> str:
    """A partition in words, such as Dirichlet 0.1 for dirichlet-0.1; for a file (file-mine), its name (mine)."""
    name, _, parameter = label.partition("-")
    if name == "file":
        return parameter or label
    return f"{_PARTITIONS[name]} {parameter.replace('-', ', ')}".strip() if name in _PARTITIONS else label


def partition_headings(label: str) -> tuple[str, str]:
    """A partition as the headings of a column: its kind, and its parameter, such as Dirichlet and α = 0.1."""
    name, _, parameter = label.partition("-")
    if name in ("dirichlet", "dirichlet_by_class", "lda"):
        return _PARTITIONS[name], f"α = {parameter.replace('-', ', ')}"
    if name == "pathological":
        return _PARTITIONS[name], f"{parameter.replace('-', ', ')} classes per client"
    return "", partition_title(label)


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
