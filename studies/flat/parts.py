"""The generated parts of the page of a benchmark of flatness, from what is stored so far."""

from collections.abc import Callable, Mapping
from functools import cache

from fedflat.analysis.comparison.baselines import load, stored_grids
from fedflat.analysis.comparison.flat.pairs import pairs
from fedflat.analysis.comparison.report_table import number
from fedflat.analysis.comparison.run_table import TUNED
from fedflat.analysis.figures.base import TEXT_WIDTH
from studies.flat import figures, tables, words
from studies.flat.effort import effort
from studies.flat.ends import ends_reached, points_chosen
from studies.flat.itself import differences, itself
from studies.flat.ranking import methods
from studies.flat.regime import Regime
from studies.flat.regime_page import regime_table, regime_words
from studies.flat.speed import speed
from studies.flat.stored import StoredSearchOfPage
from studies.part import PagePart

OTHER = "bench1d"
"""The grid of models that are not fitted, with which the regime is compared."""


@cache
def _stored(grid: str) -> StoredSearchOfPage:
    return StoredSearchOfPage(grid)


def primary(grid: str) -> PagePart:
    """What a perturbation adds to its base."""
    stored = _stored(grid)
    table = pairs(stored.units, stored.protocol, stored.equal_compute) if len(stored.units) else stored.units
    sentences = [*words.pair_words(table, stored.protocol), *words.left_out_words(stored.protocol)]
    if table.empty:
        return PagePart(sentences)
    drawn = list(figures.of_pairs(table, stored.protocol, TEXT_WIDTH))
    return PagePart(sentences, drawn, list(tables.of_pairs(table, stored.protocol)))


def fitted_ranking(grid: str) -> PagePart:
    """Fitted methods by their test accuracy, and the others below."""
    stored = _stored(grid)
    if stored.units.empty:
        return PagePart([words.NOTHING])
    least = stored.protocol.fitted.least
    found = list(tables.of_methods(methods(stored.units, least), least))
    sentences = []
    if len(stored.references):
        found.append(tables.of_references(stored.references))
    for name, units in stored.contrasts.items():
        found += [*tables.of_contrast(name, units)]
        sentences.append(f"The contrast {name} has no gate: its labels are not all true.")
    return PagePart(sentences, (), found)


def speed_ranking(grid: str) -> PagePart:
    """Rounds and traffic until the training data are fitted."""
    stored = _stored(grid)
    if stored.units.empty:
        return PagePart([words.NOTHING])
    return PagePart([], (), list(tables.of_speed(speed(stored.units))))


def search(grid: str) -> PagePart:
    """What was searched, and where the winners lie."""
    stored = _stored(grid)
    if stored.trials is None:
        return PagePart([*words.search_words(None, stored.won, stored.protocol)])
    ends, points = ends_reached(stored.won, stored.protocol), points_chosen(stored.won, stored.protocol)
    spent = tables.of_effort(effort(stored.trials, stored.protocol), stored.protocol)
    found = [spent, tables.of_ends(ends, points), tables.of_winners(stored.won)]
    return PagePart([*words.search_words(stored.trials, ends, stored.protocol)], (), found)


def against_itself(grid: str) -> PagePart:
    """Each method with the values of another search."""
    stored = _stored(grid)
    both = len(stored.runs) and len(stored.crossed)
    found = itself(differences(stored.runs, stored.crossed) if both else stored.crossed.head(0), stored.protocol)
    return PagePart([*words.itself_words(found)], (), list(tables.of_itself(found)) if len(found.table) else [])


def regime_of_search(grid: str) -> PagePart:
    """Whether runs fit their training data, and whether results follow the training accuracy."""
    stored = _stored(grid)
    if stored.units.empty:
        return PagePart([words.NOTHING])
    found = Regime.of(stored.units)
    sentences = [*regime_words(found)]
    if OTHER in stored_grids():
        other = Regime.of(load(OTHER).of_variant(TUNED).runs).settings
        low, high = (number(value, ".3f") for value in (other["r2"].min(), other["r2"].max()))
        sentences.append(
            f"For comparison: in {OTHER}, where {other['fitted'].sum()} of {other['methods'].sum()} cells are fitted, "
            f"R² is {low} to {high}."
        )
    return PagePart(sentences, (), [regime_table(found)])


PARTS: Mapping[str, Callable[[str], PagePart]] = {
    made.__name__: made for made in (primary, fitted_ranking, speed_ranking, search, against_itself, regime_of_search)
}
"""The parts by their names in the page."""
