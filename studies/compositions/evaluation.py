"""Does a composition beat the published methods? The stored searches of a grid, and comparisons of its tuned runs."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from fedflat.analysis.comparison import baselines
from fedflat.analysis.comparison.compare import Comparison, paired
from fedflat.analysis.comparison.run_table import CURVE_IDS, TUNED
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.installed import RUNS
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.ranges import value_at
from studies.compositions.files import COMPOSED
from studies.compositions.searches import (
    SCREENED,
    TUNED_BEST,
    TUNED_PUBLISHED,
    StoredSearch,
    baseline_folders,
    comparable,
    is_stored,
    load,
    triples_of,
)
from studies.compositions.triples import AXES, NEUTRAL, Triple, compositions

METRIC = "test_accuracy"

MOST = 8
"""Compositions of the screening that a report shows as long as none is tuned."""


@dataclass(frozen=True)
class CompositionResults:
    """The searches of a grid, and the comparison of each tuned composition with the tuned baselines, by its label.

    `composed`, `published` and `comparisons` are missing or empty as long as they are not stored.
    """

    grid: str
    screening: StoredSearch
    composed: StoredSearch | None
    published: StoredSearch | None
    comparisons: dict[str, Comparison]

    @classmethod
    def of(cls, grid: str, folder: Path | None = None, stored: Path | None = None) -> "CompositionResults":
        """What is stored of a grid. A `UserError` if the screening is missing, or if parts do not belong together.

        `folder`: of the searches; `stored`: of the baselines of all grids. None: those of the results.
        """
        screening = load(grid, SCREENED, folder)
        composed, published = (
            load(grid, n, folder) if is_stored(grid, n, folder) else None for n in (TUNED_BEST, TUNED_PUBLISHED)
        )
        if composed is None or published is None:
            return cls(grid, screening, composed, published, {})
        comparable(composed, published)
        places = baseline_folders(grid, stored)
        if not all((place / RUNS).is_file() for place in places):
            return cls(grid, screening, composed, published, {})
        rivals, runs = (baselines.load(place.name, place).of_variant(TUNED).runs for place in places)
        for rows, search in ((rivals, published), (runs, composed)):
            _check_values(rows, search)
        found = {label: _comparison(grid, runs[runs["method"] == label], rivals) for label in composed.scores.index}
        return cls(grid, screening, composed, published, found)

    @property
    def missing(self) -> list[Triple]:
        """Compositions that have not been screened, such as those of a component that was added later."""
        known = set(self.screening.rows[list(AXES)].itertuples(index=False, name=None))
        return [triple for triple in compositions() if tuple(triple) not in known]

    @property
    def chosen_labels(self) -> list[str]:
        """The tuned compositions, the best by validation first; before they are tuned, the best of the screening."""
        if self.composed is None:
            return [triple.label for triple in candidates(self.screening, MOST)]
        return list(self.composed.scores.mean(axis=1).sort_values(ascending=False, kind="stable").index)

    @property
    def chosen(self) -> list[Triple]:
        """Their triples."""
        triples = triples_of(self.screening if self.composed is None else self.composed)
        return [triples[label] for label in self.chosen_labels]

    @property
    def best(self) -> str | None:
        """The label of the composition with the best validation score, chosen without any test accuracy."""
        return None if self.composed is None or self.composed.means.empty else str(self.composed.means.index[0])

    @property
    def best_published(self) -> str | None:
        """The label of the published method with the best validation score in its own tuning."""
        return None if self.published is None or self.published.means.empty else str(self.published.means.index[0])

    @property
    def agreement(self) -> tuple[float, int]:
        """Kendall's τ_b of the screening with tuned scores in its setting (NaN for few), and the number of methods."""
        if self.composed is None or self.published is None:
            return (float("nan"), 0)
        tuned = pd.concat([self.composed.scores, self.published.scores])
        rows = self.screening.rows.set_index("method")
        setting = tuple(rows[IDS[:3]].iloc[0])
        both = pd.concat([rows["score"], tuned[setting].rename("tuned")], axis=1, join="inner").dropna()
        if len(both) < 3:
            return (float("nan"), len(both))
        return (float(kendalltau(both["score"], both["tuned"]).statistic), len(both))

    @cached_property
    def effects(self) -> pd.DataFrame:
        """For each component: the scores of its triples, and how much they differ from the same triple with FedAvg's.

        Columns: slot, component, triples, median, best; and over the pairs that differ in this component only,
        `pairs`, `difference` (mean, in points) and `share` (of pairs in which the component is better).
        """
        scores = {Triple(*parts): score for *parts, score in self.screening.rows[[*AXES, "score"]].to_numpy()}
        rows = []
        for slot, neutral in NEUTRAL._asdict().items():
            for name in dict.fromkeys(getattr(triple, slot) for triple in scores):
                own = {triple: score for triple, score in scores.items() if getattr(triple, slot) == name}
                base = {triple: scores.get(triple._replace(**{slot: neutral}), np.nan) for triple in own}
                d = np.array([own[triple] - base[triple] for triple in own], dtype=float)
                d = d[np.isfinite(d)] if name != neutral else d[:0]
                values = np.array(list(own.values()), dtype=float)
                rows.append(
                    {
                        "slot": slot,
                        "component": name,
                        "triples": len(own),
                        "median": float(np.nanmedian(values)),
                        "best": float(np.nanmax(values)),
                        "pairs": len(d),
                        "difference": float(d.mean()) if len(d) else np.nan,
                        "share": float((d > 0).mean()) if len(d) else np.nan,
                    }
                )
        return pd.DataFrame(rows)


def ranked(screening: StoredSearch) -> pd.DataFrame:
    """The rows of a screening, the best first; failed ones last."""
    return screening.rows.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def candidates(screening: StoredSearch, count: int) -> list[Triple]:
    """The best unpublished triples of a screening."""
    rows = ranked(screening)
    new = rows[(rows["published"] == "") & rows["score"].notna()].head(count)
    return [Triple(*parts) for parts in new[list(AXES)].itertuples(index=False, name=None)]


def _comparison(grid: str, own: pd.DataFrame, rivals: pd.DataFrame) -> Comparison:
    """The comparison of a composition's runs with those of all tuned baselines."""
    rows, notes = paired(own, rivals, grid)
    none = pd.DataFrame(columns=CURVE_IDS)
    return Comparison(str(own["method"].iloc[0]), f"{grid}{COMPOSED}", grid, TUNED, METRIC, rows, none, notes)


def _check_values(runs: pd.DataFrame, search: StoredSearch) -> None:
    """A `UserError` if a tuned method has no stored runs, or runs with other values than its search has found."""
    cells = runs.drop_duplicates(IDS).set_index(IDS)
    for row in search.rows.to_dict("records"):
        cell = tuple(row[name] for name in IDS)
        if cell not in cells.index:
            raise UserError(f"{'/'.join(cell)} of the stored search {search.name} has no stored tuned runs")
        trained = {section: json.loads(cells.loc[cell, section]) for section in ("training", "hyperparameters")}
        for place, value in json.loads(row["values"]).items():
            found = value_at(place, trained)
            if found != value:
                raise UserError(
                    f"the stored runs of {'/'.join(cell)} have {place} = {found}, and the stored search {search.name} "
                    f"has found {value}: store both again"
                )
