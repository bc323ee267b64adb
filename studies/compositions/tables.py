"""The tables of a report on compositions: one data frame each, and their text as Markdown and LaTeX."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.report.words import COUNTED_AS, RULE
from fedflat.analysis.comparison.report_table import ReportTable, number, with_interval, with_lost
from fedflat.analysis.comparison.statistics.scores import Scores
from fedflat.analysis.comparison.statistics.verdicts import BETTER, UNCLEAR, WORSE
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.measures.paired import interval
from fedflat.bench.experiments.address import IDS
from studies.compositions.evaluation import CompositionResults, ranked
from studies.compositions.triples import AXES

REPORT = "compositions"

_SEARCH = (
    "Screening, validation: accuracy on images that the clients hold out, of the best trial of the screening, and of "
    "the tuning as a mean over the settings. Neither the test images nor the seeds of the grid were used."
)


def tables(evaluation: CompositionResults) -> Iterator[ReportTable]:
    """All tables for which something is stored."""
    yield _composition_table(evaluation)
    if evaluation.comparisons and evaluation.best_published is not None:
        yield _setting_table(evaluation, evaluation.best_published)
    yield _effect_table(evaluation)


def composition_frame(evaluation: CompositionResults) -> pd.DataFrame:
    """One row per tuned composition, the best by validation first, then one for the best published method.

    As long as no composition is tuned, the best ones of the screening.
    """
    screened = ranked(evaluation.screening).set_index("method")
    rows = [_row(evaluation, label, screened) for label in evaluation.chosen_labels]
    if evaluation.published is not None and evaluation.best_published is not None:
        rows.append(_published_row(evaluation, evaluation.best_published, screened))
    return pd.DataFrame(rows)


def _row(evaluation: CompositionResults, label: str, screened: pd.DataFrame) -> dict[str, Any]:
    search = evaluation.screening if evaluation.composed is None else evaluation.composed
    first = search.rows[search.rows["method"] == label].iloc[0]
    row: dict[str, Any] = {
        "method": label,
        "title": first["title"],
        "published": "",
        **{slot: first[slot] for slot in AXES},
        "screening": screened["score"].get(label, np.nan),
        "validation": np.nan
        if evaluation.composed is None
        else evaluation.composed.scores.loc[label].mean(skipna=False),
    }
    if label not in evaluation.comparisons:
        return row
    comparison = evaluation.comparisons[label]
    found = comparison.verdicts
    verdicts = found["verdict"].value_counts()
    row |= _accuracy(comparison.scores, label)
    row |= {kind: int(verdicts.get(kind, 0)) for kind in (BETTER, UNCLEAR, WORSE)}
    against = found[found["rival"] == evaluation.best_published]
    names = ("difference", "interval_low", "interval_high", "p_corrected", "verdict")
    return row | {name: value for name in names for value in against[name]}


def _published_row(evaluation: CompositionResults, label: str, screened: pd.DataFrame) -> dict[str, Any]:
    assert evaluation.published is not None
    first = evaluation.published.rows[evaluation.published.rows["method"] == label].iloc[0]
    row: dict[str, Any] = {
        "method": label,
        "title": first["title"],
        "published": first["published"],
        **{slot: first[slot] for slot in AXES},
        "screening": screened["score"].get(label, np.nan),
        "validation": evaluation.published.means[label],
    }
    for comparison in list(evaluation.comparisons.values())[:1]:
        if label in comparison.scores.methods:
            row |= _accuracy(comparison.scores, label)
    return row


def _accuracy(scores: Scores, method: str) -> dict[str, float]:
    """Mean and interval of a method's measured runs, and the numbers of its runs and of those without a value.

    The unit of the interval is the seed; there is none if a run has no value.
    """
    place = scores.place(method)
    low, high = interval(scores.measured[place].mean(axis=0))
    missing = scores.missing[place]
    means = {"test_accuracy": float(scores.means[place]), "test_low": low, "test_high": high}
    return {**means, "missing": int(missing.sum()), "runs": missing.size}


def _composition_table(evaluation: CompositionResults) -> ReportTable:
    frame = composition_frame(evaluation)
    complete = frame.reindex(
        columns=[*frame, *(c for c in ("test_accuracy", "test_low", "test_high", "difference", "interval_low",
                                       "interval_high", "p_corrected", BETTER, UNCLEAR, WORSE, "missing", "runs")
                          if c not in frame)]
    )  # fmt: skip
    rows = []
    for row in complete.to_dict("records"):
        counted = [row[kind] for kind in (BETTER, UNCLEAR, WORSE)]
        rows.append(
            (
                f"{row['title']} (published)" if row["published"] else row["title"],
                *(row[slot] for slot in AXES),
                number(row["screening"], ".1f"),
                number(row["validation"], ".2f"),
                _test_accuracy(row),
                with_interval(row["difference"], row["interval_low"], row["interval_high"], "+.2f"),
                number(row["p_corrected"], ".4f"),
                "–" if pd.isna(counted[0]) else " / ".join(str(int(count)) for count in counted),
            )
        )
    header = (
        "method", *AXES, "screening (%)", "validation (%)", "test accuracy (%)", "minus best published", "corrected p",
        "better / cannot tell / worse",
    )  # fmt: skip
    caption = Caption.of(
        f"The best compositions on {evaluation.grid}",
        "Compositions that are not published, the best by validation first; last, the published method with the best "
        "validation accuracy.",
        [
            _SEARCH,
            "Test accuracy: mean over settings and seeds, with a 95 % interval whose unit is the seed.",
            "Minus best published: paired difference with the published method of the last row. Better, cannot tell, "
            f"worse: counts over all tuned baselines. {RULE}",
            "Corrected p: over all baselines, by Westfall and Young's step-down correction; not over the compositions, "
            "of which the first one is the answer.",
            f"Test accuracies are those of the runs that have one. {COUNTED_AS}",
        ],
    )
    return ReportTable("compositions", caption, header, tuple(rows), frame, 0 if rows else None, REPORT)


def _test_accuracy(row: dict[Any, Any]) -> str:
    text = with_interval(row["test_accuracy"], row["test_low"], row["test_high"], ".2f")
    return text if pd.isna(row["missing"]) else with_lost(text, int(row["missing"]), int(row["runs"]))


def _setting_table(evaluation: CompositionResults, published: str) -> ReportTable:
    """Each composition against the best published method in each setting."""
    records, rows = [], []
    settings = next(iter(evaluation.comparisons.values())).scores.settings
    best_first = evaluation.chosen_labels
    for label, comparison in sorted(evaluation.comparisons.items(), key=lambda item: best_first.index(item[0])):
        cells = []
        for setting in settings:
            table = comparison.by_setting[setting]
            found = table[table["rival"] == published].to_dict("records")
            cells += [
                with_interval(row["difference"], row["interval_low"], row["interval_high"], "+.2f") for row in found
            ]
            place = dict(zip(IDS[:3], (setting.dataset, setting.partition, setting.participation), strict=True))
            records += [{**place, "method": label, **row} for row in found]
        rows.append((comparison.titles[label], *cells))
    caption = Caption.of(
        "Differences in each setting",
        f"Test accuracy minus that of {comparison.titles[published]}, in points, with 95 % intervals.",
        ["Pairs: runs with the same setting, seed, data, partition, initial model and schedule of clients."],
    )
    header = ("method", *map(setting_title, settings))
    return ReportTable("settings", caption, header, tuple(rows), pd.DataFrame(records), None, REPORT)


def _effect_table(evaluation: CompositionResults) -> ReportTable:
    """The components in the screening."""
    frame = evaluation.effects
    rows = tuple(
        (
            f"{row['slot']}: {row['component']}",
            str(row["triples"]),
            number(row["median"], ".1f"),
            number(row["best"], ".1f"),
            number(row["difference"], "+.1f"),
            number(100 * row["share"], ".0f"),
        )
        for row in frame.to_dict("records")
    )
    caption = Caption.of(
        "Components in the screening",
        "Validation accuracy (%) of all triples with a component.",
        [
            "Difference: mean difference, in points, from the triple that has FedAvg's component in this slot and is "
            "otherwise the same; better: the share of such pairs (%) in which the component is better.",
            "Each triple has few trials: single scores are noisy, means over many triples are less so.",
        ],
    )
    header = ("component", "triples", "median", "best", "difference", "better")
    return ReportTable("components", caption, header, rows, frame, None, REPORT)
