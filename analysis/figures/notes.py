"""Notes about missing data for a figure's foot and caption: cells without data, and cells without some seeds."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.layouts.tidy import FILES, Tidy
from fedflat.analysis.layouts.titles import method_titles, setting_title
from fedflat.analysis.measures.convergence import diverged_seeds, stopped_runs
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.input.errors import counted

Seeds = dict[tuple[str, ...], set[int]]


def missing_note(frame: pd.DataFrame, layout: FigureLayout, tidy: Tidy) -> str:
    """A note about cells without all data; empty if nothing is missing.

    For example 'not run: FedSAM; 2 of 3 seeds: FedGF (Dirichlet 0.1, 4 of 20 clients)'.
    """
    cells, one = layout.cells(tidy.experiment), _shows_one_seed(layout)
    metrics = tidy.gather("metrics", cells)
    drawn, ran, diverged = (_seeds(rows) for rows in (frame, metrics, metrics[metrics["diverged"] == 1]))
    where: dict[str, dict[str, list[Setting]]] = {}
    order = list(dict.fromkeys([*layout.methods, *(cell.method for cell in cells)]))
    for cell in sorted(cells, key=lambda cell: order.index(cell.method)):
        seeds_of_part = tidy.experiment.resolved_parts[cell.setting.dataset].grid.seeds
        wanted = {layout.shown_seed(tidy.experiment)} if one else set(seeds_of_part)
        with_data, trained, failed = (seeds.get(cell.ids, set()) & wanted for seeds in (drawn, ran, diverged))
        if with_data != wanted:
            has_file = tidy.path(layout.file, cell, min(wanted)).is_file()
            state = _reason(trained, failed, has_file=has_file)
            reason = f"{len(with_data)} of {len(wanted)} seeds" if with_data else state
            where.setdefault(reason, {}).setdefault(cell.method, []).append(cell.setting)
    names, everywhere = method_titles(tidy.experiment), {cell.setting for cell in cells}
    return "; ".join(
        f"{reason}: {'; '.join(_place(names[method], places, everywhere) for method, places in methods.items())}"
        for reason, methods in sorted(where.items(), key=lambda item: _ORDER.index(item[0]) if item[0] in _ORDER else 9)
    )


def diverged_note(metrics: pd.DataFrame, names: dict[str, str], where: str) -> str:
    """A note about diverged runs; empty if no run diverged.

    For example 'diverged (the curve ends at a cross): FedSAM (1 of 3 runs)'. `where`: how the figure shows such a run.
    """
    runs = diverged_seeds(metrics)
    count = runs.groupby("method", sort=False)[["diverged", "seeds"]].sum()
    parts = [
        f"{names[str(method)]} ({row.diverged} of {row.seeds} runs)" for method, row in count.iterrows() if row.diverged
    ]
    return f"diverged ({where}): {', '.join(parts)}" if parts else ""


def stopped_note(metrics: pd.DataFrame, names: dict[str, str]) -> str:
    """A note about runs that stopped early; empty if none did.

    For example 'stopped early: FedSAM (2 runs)'.
    """
    stopped = Counter[str]()
    for cell, seeds in stopped_runs(metrics).items():
        stopped[names[cell[-1]]] += len(seeds)
    parts = [f"{name} ({counted(count, 'run')})" for name, count in stopped.items()]
    return f"stopped early: {', '.join(parts)}" if parts else ""


_ORDER = ("not run", "diverged", "not analysed", "no value")


def _reason(ran: set[int], diverged: set[int], *, has_file: bool) -> str:
    """Why a cell has no data."""
    if ran and ran <= diverged:
        return "diverged"
    if not has_file:
        return "not analysed" if ran else "not run"
    return "no value"


def _place(name: str, places: Sequence[Setting], everywhere: set[Setting]) -> str:
    return name if set(places) == everywhere else f"{name} ({' and '.join(setting_title(place) for place in places)})"


def _shows_one_seed(layout: FigureLayout) -> bool:
    return layout.shows_one_seed or (layout.file in FILES and FILES[layout.file].per_seed)


def _seeds(rows: pd.DataFrame) -> Seeds:
    """The seeds of each cell."""
    pairs = rows[[*IDS, "seed"]].drop_duplicates().itertuples(index=False, name=None)
    seeds: Seeds = {}
    for *ids, seed in pairs:
        seeds.setdefault(tuple(ids), set()).add(int(seed))
    return seeds
