"""What `fedflat runs` prints: a line for each configuration, with the values in which they differ."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from fedflat.analysis.store.stored import ABOUT, StoredRun, short_names
from fedflat.bench.experiments.address import IDS
from fedflat.bench.files.text_table import aligned


def as_table(runs: Sequence[StoredRun]) -> list[str]:
    """The header and one line for each configuration."""
    groups = [[*group] for _, group in groupby(runs, key=lambda run: run.place.parent)]
    names = differing(runs)
    header = (*IDS, *names.values(), "seeds", *ABOUT)
    lines = [_line(group, list(names)) for group in groups]
    return aligned([header, *lines], right={*range(len(header) - 4, len(header) - 1)})


def differing(runs: Sequence[StoredRun]) -> dict[str, str]:
    """Short names, by dotted ones, of the values in which runs of one method and setting differ."""
    found = dict[str, None]()
    for _, group in groupby(runs, key=lambda run: [run.ids[name] for name in IDS]):
        same = [*group]
        values = {name: {repr(run.values.get(name)) for run in same} for run in same for name in run.values}
        found |= dict.fromkeys(name for name, different in values.items() if len(different) > 1)
    names = short_names(runs)
    return {name: names[name] for name in found}


def _line(group: Sequence[StoredRun], names: Sequence[str]) -> tuple[str, ...]:
    first = group[0]
    return (
        *(str(first.ids[name]) for name in IDS),
        *(_word(first.values.get(name)) for name in names),
        _span([run.ids["seed"] for run in group]),
        _score(group),
        f"{sum(run.about['MiB'] for run in group):.1f}",
        f"{min(run.about['days'] for run in group):.1f}",
        first.about["hash"],
    )


def _word(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _score(group: Sequence[StoredRun]) -> str:
    """The mean of the last scores in percent; empty if a run has none, as one that diverged."""
    found = [run.about["score"] for run in group]
    return "" if None in found else f"{sum(found) / len(found):.2f}"


def _span(seeds: Sequence[int]) -> str:
    """Such as 0-2, or 0, 7."""
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
    return f"{seeds[0]}-{seeds[-1]}" if whole else ", ".join(map(str, seeds))
