"""Labels in words: partitions, participations and methods as tables, figures and captions name them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from bench.experiments.address import Setting
from bench.experiments.experiment import Experiment
from bench.experiments.schema import SWA_SUFFIX, MethodEntry

_PARTITIONS = {
    "iid": "IID",
    "centralized": "Centralized",
    "dirichlet": "Dirichlet",
    "pathological": "Pathological",
    "lda": "LDA",
    "pam": "PAM",
    "by_group": "By group",
}


def partition_title(label: str) -> str:
    """A partition in words, such as Dirichlet 0.1 for dirichlet-0.1; for a file (file-mine), its name (mine)."""
    name, _, parameter = label.partition("-")
    if name == "file":
        return parameter or label
    return f"{_PARTITIONS[name]} {parameter.replace('-', ', ')}".strip() if name in _PARTITIONS else label


def participation_title(label: str) -> str:
    """A participation in words, such as 4 of 20 clients for 4-of-20."""
    bernoulli = re.fullmatch(r"bernoulli-(.+)-of-(\d+)", label)
    if bernoulli:
        return f"{bernoulli[2]} clients, each with probability {bernoulli[1]}"
    schedule = re.fullmatch(r"schedule-(.+)-of-(\d+)", label)
    if schedule:
        return f"{schedule[2]} clients, schedule {schedule[1]}"
    return f"{label.replace('-', ' ')} clients"


def setting_title(setting: Setting) -> str:
    """A setting's partition and participation, for headings."""
    return f"{partition_title(setting.partition)}, {participation_title(setting.participation)}"


def method_titles(experiment: Experiment, shown: Iterable[str] | None = None) -> dict[str, str]:
    """The name of each method by its label, as the paper prints it or the experiment's file gives it.

    Where several methods share a name, the label is added in parentheses, except for the method whose label is its name
    in the catalog. `shown`: the labels of the methods that are shown together; None: all of the experiment.
    """
    names = {label: _title(label, experiment.methods[label]) for label in (shown or experiment.methods)}
    uses = Counter(names.values())
    plain = {
        label
        for label in names
        if uses[names[label]] == 1 or label.removesuffix(SWA_SUFFIX) == experiment.methods[label].choice(label).name
    }
    return {label: name if label in plain else f"{name} ({label})" for label, name in names.items()}


def _title(label: str, entry: MethodEntry) -> str:
    if entry.title is not None:
        return entry.title
    recipe, released = entry.choice(label).recipe, entry.release(label)
    swa = entry.hyperparameters.get("swa")
    cyclic_only = isinstance(swa, Mapping) and swa.get("collect") == "none"
    wrapped = "" if swa is None else ", cyclic rate" if cyclic_only else " + SWA"
    sampling = ", Bernoulli participation" if released is not None and released.sampling == "bernoulli" else ""
    return f"{recipe.title}{wrapped}" + (f" ({entry.variant}{sampling})" if released is not None else "")
