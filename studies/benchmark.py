"""The pages of a benchmark: what the stored runs of a grid show, docs/GRID.md in short, studies/pages/GRID.md in full.

`python -m studies.benchmark GRID` rewrites the generated parts of the pages, and draws their figures again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fedflat.analysis.comparison.baselines import load, stored_grids
from fedflat.analysis.comparison.overview import facts
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.analysis.comparison.study.figures import figures as study_figures
from fedflat.analysis.comparison.study.measures import RESULTS
from fedflat.analysis.comparison.study.study import Study
from fedflat.analysis.comparison.study.tables import tables as study_tables
from fedflat.analysis.comparison.study.words import words
from fedflat.analysis.comparison.tuning.figures import of_budget, of_gain
from fedflat.analysis.comparison.tuning.report import budget_words, gain_words, stopping_words
from fedflat.analysis.comparison.tuning.source import TuningSource
from fedflat.analysis.comparison.tuning.tables import of_budget as tables_of_budget
from fedflat.analysis.comparison.tuning.tables import of_early_stopping
from fedflat.analysis.comparison.tuning.tables import of_gain as tables_of_gain
from fedflat.analysis.figures.base import TEXT_WIDTH
from studies.command import argument, run
from studies.compositions import searches
from studies.compositions.evaluation import CompositionResults
from studies.compositions.figure import draw
from studies.compositions.tables import tables as composition_tables
from studies.compositions.words import answer
from studies.flat.parts import PARTS as FLAT_PARTS
from studies.flat.regime import Regime
from studies.flat.regime_page import regime_table, regime_words, search_words
from studies.part import GeneratedPages, PagePart
from studies.places import DETAILS, DOCS

FITTED = 90.0
"""Mean training accuracy in percent from which a method counts as fitted, as in `fedflat study`."""

_SEARCHES = {
    searches.TUNED_PUBLISHED: "tuned values",
    searches.SCREENED: "screening of compositions",
    searches.TUNED_BEST: "best compositions",
}
"""What the stored searches have searched."""


def stored(grid: str) -> PagePart:
    """What is stored, and where it was computed."""
    if grid not in stored_grids():
        return PagePart(["Nothing is stored yet."])
    sentences = [f"{name}: {value}" for name, value in facts(grid)]
    sentences += [
        f"hours of search, {what}: {searches.load(grid, name).rows['seconds'].sum() / 3600:.1f}"
        for name, what in _SEARCHES.items()
        if searches.is_stored(grid, name)
    ]
    return PagePart(sentences, (), ())


def regime(grid: str) -> PagePart:
    """Whether runs fit their training data, and whether results follow the training accuracy."""
    runs = load(grid).runs
    found = Regime.of(runs)
    return PagePart([*regime_words(found), *search_words(runs)], (), [regime_table(found)])


def tuning(grid: str) -> PagePart:
    """The untuned and the tuned leaderboard."""
    gain = _tuning_source(grid).gain()
    return PagePart(list(gain_words(gain)), *_named(["gain"], of_gain(gain, TEXT_WIDTH), tables_of_gain(gain)))


def trials(grid: str) -> PagePart:
    """How the ranking depends on the number of trials."""
    source = _tuning_source(grid)
    budget, stopping = source.budget(), source.early_stopping()
    names = ["budget_ranks", "budget_stability"]
    figures, tables = _named(names, of_budget(budget, TEXT_WIDTH), tables_of_budget(budget))
    sentences = list(budget_words(budget))
    if stopping is not None:
        sentences += stopping_words(stopping)
        tables.append(of_early_stopping(stopping))
    return PagePart(sentences, figures, tables)


def study(grid: str) -> PagePart:
    """Whether flatness predicts results."""
    made = Study.of(load(grid).runs, f"the stored baselines of {grid}", FITTED)
    names = ["correlation", "runs", *(f"correlation_{result}" for result in RESULTS)]
    return PagePart(list(words(made)), *_named(names, study_figures(made, TEXT_WIDTH), study_tables(made)))


def compositions(grid: str) -> PagePart:
    """Whether an unpublished composition beats the published methods."""
    evaluation = CompositionResults.of(grid)
    names = ["screening", "compositions"]
    return PagePart(answer(evaluation), *_named(names, [draw(evaluation, TEXT_WIDTH)], composition_tables(evaluation)))


PARTS: Mapping[str, Callable[[str], PagePart]] = {
    **{made.__name__: made for made in (stored, regime, tuning, trials, study, compositions)},
    **FLAT_PARTS,
}


def pages(grid: str) -> GeneratedPages:
    """The pages of a grid, if it has any."""
    files = [folder / f"{grid}.md" for folder in (DOCS, DETAILS)]
    return GeneratedPages([file for file in files if file.is_file()], DOCS / "images" / grid)


def parts(grid: str) -> list[str]:
    """The names of the generated parts that the pages have."""
    return [name for name in PARTS if any(pages(grid).with_part(name))]


def main(grid: str) -> None:
    """Rewrite the generated parts of the pages, and draw their figures."""
    pages(grid).rewrite({name: PARTS[name](grid) for name in parts(grid)})


def _tuning_source(grid: str) -> TuningSource:
    return TuningSource(grid, Path("results"), {})


def _named(
    names: Sequence[str], figures: Iterable[ReportFigure], tables: Iterable[ReportTable]
) -> tuple[list[ReportFigure], list[ReportTable]]:
    """The figures and the tables with these names."""
    return [one for one in figures if one.name in names], [one for one in tables if one.name in names]


if __name__ == "__main__":
    run(lambda: main(argument("GRID", "studies.benchmark")))
