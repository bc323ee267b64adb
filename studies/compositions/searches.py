"""Stored searches: the best trial of each cell of a tuned experiment, as files that are committed with the code.

results/compositions/GRID/screening.csv   of GRID_screening: all legal triples in one setting
results/compositions/GRID/composed.csv    of GRID_composed: the best triples in all settings
results/compositions/GRID/published.csv   of GRID itself: its methods in all settings
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.tuning import search_budgets
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.tuning.cell_search import CellSearch, seed_of
from fedflat.bench.tuning.given import check_names
from fedflat.bench.tuning.score import LAST, in_words
from studies.compositions.files import COMPOSED, SCREENING
from studies.compositions.triples import AXES, Triple, published

SCREENED, TUNED_BEST, TUNED_PUBLISHED = "screening", "composed", "published"
"""The names of stored searches."""

NAMES = {SCREENING: SCREENED, COMPOSED: TUNED_BEST, "": TUNED_PUBLISHED}
"""The names of stored searches by the end of the experiment's name, after that of the grid."""

BUDGET = ["rounds", *search_budgets.BUDGET]
"""Columns that must be equal for two scores to be comparable; `rungs` in rounds."""

_TEXTS = [*IDS, "title", *AXES, "published", "rungs", "judged", "values", "reason", "identity", "code", "search"]
_WHOLE = ["trials", "rounds", "seed"]
_COLUMNS = [
    *IDS,
    "title",
    *AXES,
    "published",
    "score",
    "values",
    "reason",
    "identity",
    "seconds",
    *BUDGET,
    "code",
    "search",
]


@dataclass(frozen=True)
class StoredSearch:
    """A stored search. `rows`: one per cell: title and triple of the method, the score of its best trial in percent
    (NaN if all have failed, for the stated `reason`), its `values` as JSON, and the seconds of all trials. `published`
    names a method of a paper with the same triple, as known today; empty: there is none."""

    grid: str
    name: str
    rows: pd.DataFrame

    @property
    def titles(self) -> dict[str, str]:
        """The title of each method by its label."""
        return dict(zip(self.rows["method"], self.rows["title"], strict=True))

    @property
    def scores(self) -> pd.DataFrame:
        """The scores `[methods, settings]`."""
        return self.rows.pivot(index="method", columns=IDS[:3], values="score")

    @property
    def means(self) -> pd.Series:
        """The mean score of each method over the settings, the best first; without methods that failed in one."""
        return self.scores.mean(axis=1, skipna=False).dropna().sort_values(ascending=False, kind="stable")

    @property
    def budget(self) -> dict[str, Any]:
        """What all cells have in common."""
        return dict(self.rows[BUDGET].iloc[0])


def add(requested: RequestedExperiment, grid: str, folder: Path | None = None) -> Path:
    """Store the best trials of an experiment whose search has ended; return the file.

    A `UserError`, and nothing is written, if the experiment is not one of the grid's, or if its search has not ended.
    """
    experiment = requested.experiment
    end = experiment.name.removeprefix(grid)
    if not experiment.name.startswith(grid) or end not in NAMES:
        allowed = ", ".join(f"{grid}{end}" for end in NAMES)
        raise UserError(f"experiment {experiment.name} is no search of grid {grid} (allowed: {allowed})")
    place = file_of(grid, NAMES[end], folder)
    rows = winners(experiment, requested.results)
    write_checked_csv(place, rows)
    return place


def winners(experiment: Experiment, results: Path) -> pd.DataFrame:
    """The best trial of each cell; a `UserError` that counts the cells whose search has not ended."""
    check_names(experiment)
    paths, titles, known = ResultPaths(results), method_titles(experiment), published()
    rows, missing = [], []
    for path in experiment.paths():
        folder = paths.tuning(experiment.name, path)
        if not paths.trials(experiment.name, path).is_file():
            missing.append(path)
            continue
        search = CellSearch.of(experiment, path, folder)
        search.read()
        if search.next_step is not None:
            missing.append(path)
            continue
        rows.append(_row(experiment, search, titles, known))
    if missing:
        raise UserError(
            f"the search has not ended in {len(missing)} of {len(experiment.paths())} cells of {experiment.name} under "
            f"'{results}' ({first_few(missing, 2)}); continue it with: fedflat tune"
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _row(
    experiment: Experiment, search: CellSearch, titles: dict[str, str], known: dict[Triple, str]
) -> dict[str, Any]:
    address, best, tuning = search.cell.address, search.winner, experiment.tuning
    method = search.cell.runs[0].method
    triple = Triple.of(method.recipe)
    steps = [step for step in search.results if best is not None and step.trial == best.number]
    of_trials = {step.trial: search.results[step].seconds for step in sorted(search.results)}
    is_plain = triple is not None and "swa" not in method.hyperparameters
    return {
        **address.columns,
        "title": titles[address.method],
        **(triple._asdict() if triple is not None else dict.fromkeys(AXES, "")),
        "published": known.get(triple, "") if triple is not None and is_plain else titles[address.method],
        "score": None if best is None else search.results[max(steps)].score,
        "values": json.dumps({} if best is None else best.values, sort_keys=True),
        "reason": "" if best is not None else next(iter(search.results.values())).reason,
        "identity": "" if best is None else best.run.identity,
        "seconds": round(sum(of_trials.values()), 1),
        "trials": search.count,
        "rounds": search.rungs[-1],
        "rungs": "/".join(map(str, search.rungs)),
        "validation": tuning.validation,
        "seed": seed_of(experiment),
        "judged": in_words(experiment.report or LAST),
        "code": search.results[max(search.results)].code,
        "search": search.identity,
    }


def folder_of(grid: str) -> Path:
    """The folder of the stored searches of a grid."""
    return ResultPaths().root / "compositions" / grid


def is_stored(grid: str, name: str, folder: Path | None = None) -> bool:
    """Whether there is a stored search of this name."""
    return file_of(grid, name, folder).is_file()


def load(grid: str, name: str, folder: Path | None = None) -> StoredSearch:
    """A stored search; a `UserError` if there is none, or if its file has been changed."""
    file = file_of(grid, name, folder)
    [end] = (end for end, stored in NAMES.items() if stored == name)
    if not file.is_file():
        command = f"python -m studies.compositions add EXPERIMENT --grid {grid}"
        raise UserError(f"no stored search of {grid}{end} at '{file}'; store it with: {command}")
    remedy = f"restore '{file}', or delete it and store it again with: python -m studies.compositions add"
    rows = read_checked_csv(
        file, _COLUMNS, remedy, texts=_TEXTS, whole=_WHOLE, keys=IDS, keep_default_na=False, na_values=[""]
    )
    rows = rows.fillna(dict.fromkeys(_TEXTS, ""))
    _check(rows, file, remedy)
    return StoredSearch(grid, name, rows.assign(published=_published_today(rows)))


def _published_today(rows: pd.DataFrame) -> list[str]:
    """The column `published`: a triple may have been published since the search was stored."""
    known = published()
    found = rows[["published", *AXES]].itertuples(index=False, name=None)
    return [stored or known.get(Triple(*parts), "") for stored, *parts in found]


def _check(rows: pd.DataFrame, file: Path, remedy: str) -> None:
    """A `UserError` if scores or triples are not possible, or cells have different budgets."""
    problems = {
        "a score is no percentage": not rows["score"].dropna().between(0, 100).all(),
        "its cells have different budgets": len(rows[BUDGET].drop_duplicates()) > 1,
        "a method has two triples": rows.groupby("method")[AXES[0]].nunique().max() > 1,
        "its methods have different settings": rows.groupby("method").size().nunique() > 1,
        "it has no rows": rows.empty,
    }
    for problem, is_so in problems.items():
        if is_so:
            raise UserError(f"'{file}': {problem}; {remedy}")


def comparable(one: StoredSearch, other: StoredSearch) -> None:
    """A `UserError` if two searches had different budgets or settings."""
    if found := search_budgets.differing(one.budget, other.budget, BUDGET):
        raise UserError(
            f"the searches {one.name} and {other.name} of {one.grid} have different budgets "
            f"({search_budgets.as_text(found)})"
        )
    if set(one.scores.columns) != set(other.scores.columns):
        raise UserError(f"the searches {one.name} and {other.name} of {one.grid} have different settings")


def triples_of(search: StoredSearch) -> dict[str, Triple]:
    """The triple of each method, by its label; without methods that are no triple."""
    named = search.rows.drop_duplicates("method")[["method", *AXES]].itertuples(index=False, name=None)
    return {label: Triple(*parts) for label, *parts in named if all(parts)}


def file_of(grid: str, name: str, folder: Path | None = None) -> Path:
    """The file of a stored search."""
    return (folder or folder_of(grid)) / f"{name}.csv"


def baseline_folders(grid: str, stored: Path | None) -> list[Path]:
    """The folders of the baselines of a grid, and of its compositions."""
    return [(stored or ResultPaths().baselines(grid).parent) / name for name in (grid, f"{grid}{COMPOSED}")]
