"""The ranges that are searched in a cell: those that stand with its values, and over them those of the experiment."""

from collections.abc import Iterable

from fedflat.bench.experiments.experiment import Cell, Experiment
from fedflat.bench.experiments.sections.tuning import SearchRanges
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.methods.marks import Search
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING, Ranges, places_of, ranges_of

SERVER_LR = "training.server_lr"


def check_names(experiment: Experiment) -> None:
    """A `UserError` if the experiment gives a range that none of its methods has, or that a method does not have."""
    known: set[str] = set()
    for label, entry in experiment.methods.items():
        places = places_of(entry.choice(label).recipe, has_swa="swa" in entry.hyperparameters)
        _check(f"search range of {label}", entry.search, places)
        known |= places.keys()
    _check(f"search range of experiment {experiment.name}", experiment.search, known)


def searched(experiment: Experiment, cell: Cell) -> Ranges:
    """The ranges of a cell. A range of the experiment has no effect on methods that lack the value."""
    label, method = cell.address.method, cell.runs[0].method
    if label in experiment.swept:
        raise UserError(
            f"{label} belongs to a sweep, whose methods are not tuned (allowed: one value, and its other values as a "
            f"search range, such as methods.{experiment.swept[label].base}.search.rho: {{values: [0.01, 0.1]}})"
        )
    part = experiment.resolved_parts[cell.address.setting.dataset]
    places = places_of(method.recipe, has_swa="swa" in method.hyperparameters)
    own = _by_place(part.methods[label].search, places)
    common = _by_place({name: one for name, one in part.search.items() if name in places}, places)
    if method.built.server.needs_unit_server_lr():
        common.pop(SERVER_LR, None)
    found = {**ranges_of(method), **common}
    found = {place: search for place, search in found.items() if not _is_fixed(place, experiment, label)}
    return {place: search for place, search in (found | own).items() if search is not None}


def _is_fixed(place: str, experiment: Experiment, label: str) -> bool:
    """Whether no method's entry can set the value: a fault of a release, or SWA at smoke scale."""
    release, name = experiment.methods[label].release(label), place.removeprefix(HYPERPARAMETERS)
    is_fault = release is not None and name in release.faults
    return is_fault or (experiment.scale == "smoke" and name.startswith("swa."))


def _by_place(given: SearchRanges, places: dict[str, str]) -> dict[str, Search | None]:
    return {places[name]: None if one is None else one.search for name, one in given.items()}


def _check(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = set(known)
    for name in given:
        if name not in known:
            raise unknown(kind, name, {one for one in known if not one.startswith((TRAINING, HYPERPARAMETERS))})
