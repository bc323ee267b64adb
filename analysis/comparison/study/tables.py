"""The tables of a study: one data frame each, and their text as Markdown and LaTeX."""

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from fedflat.analysis.comparison.comparable import Row
from fedflat.analysis.comparison.report_table import ReportTable, number, with_interval
from fedflat.analysis.comparison.study.configurations import AXES
from fedflat.analysis.comparison.study.granulated import OVERALL
from fedflat.analysis.comparison.study.information import MOST_AXES, K
from fedflat.analysis.comparison.study.levels import BETWEEN, LEAST_CLUSTERS, LEVELS, RESAMPLES
from fedflat.analysis.comparison.study.measures import NAMES, RESULTS, TRAIN_LOSS
from fedflat.analysis.comparison.study.study import EVERY, FITTED, POOLED, Study
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import Setting

REPORT = "study"
INTERVALS = f"Intervals: 95 %, percentiles of {RESAMPLES:,} bootstrap samples"
CLUSTERS = (
    "Methods with the same components, such as a method with and without SWA, or with untuned and with tuned values, "
    f"are drawn together. The means leave out settings with fewer than {LEAST_CLUSTERS} such groups; if all have "
    "fewer, there is no interval."
)
SIGNS = {
    "test_accuracy": "Lower measures are flatter: τ below 0 means that flatter models have higher accuracies.",
    "generalisation_gap": "Lower measures are flatter: τ above 0 means that flatter models have smaller gaps.",
}
SCALE = (
    "The largest eigenvalue, the trace and the other measures change if layers are scaled against each other, which "
    "leaves the model's function unchanged: a difference in a measure may be one of scale."
)
ORACLE = "The oracles are the result itself, without noise or with normal noise of 1 or 5 points in each run."


def tables(study: Study) -> Iterator[ReportTable]:
    """All tables."""
    yield _count_table(study)
    for result in RESULTS:
        yield _correlation_table(study, result)
    for result in RESULTS:
        yield _setting_table(study, result)
    for result in RESULTS:
        yield _axis_table(study, result)
    for result in RESULTS:
        yield _information_table(study, result)


def heading(setting: str) -> str:
    """A setting in words, or the name of all settings."""
    return setting if setting == POOLED else setting_title(Setting.of(setting))


def which_runs(study: Study) -> str:
    """Which runs are shown, and which ones count as fitted."""
    return (
        "All runs that have the result and the measure; a run that diverged has none. "
        f"Fitted: methods whose mean training accuracy in the setting is at least {study.least:g} %, without a run "
        "that diverged."
    )


def _correlation_table(study: Study, result: str) -> ReportTable:
    """τ at the three levels, over all settings."""
    frame = study.rows(study.correlations, result=result)
    columns: dict[str, dict[str, str]] = {name: {"level": level} for level, name in LEVELS.items()}
    columns["between methods, given the training loss"] = {"level": BETWEEN, "given": TRAIN_LOSS}
    if study.has_fitted:
        columns |= {f"{name}, fitted": {"level": level, "runs": FITTED} for level, name in LEVELS.items()}
    chosen = {
        name: study.rows(frame, **({"runs": EVERY, "given": "", "setting": POOLED} | values))
        for name, values in columns.items()
    }
    caption = Caption.of(
        f"Flatness and {RESULTS[result]}",
        f"Kendall's τ_b of each measure with the {RESULTS[result]}, as the mean over the settings. "
        "Each τ compares runs of one setting only.",
        [
            SIGNS[result],
            "Between methods: means over seeds. Within methods: τ over the seeds of one method, averaged over methods. "
            "All runs: methods and seeds together.",
            "Given the training loss: partial τ, by the partial correlation of a Gaussian copula with these τ.",
            f"{INTERVALS} that draw whole methods and, but for 'between methods', whole seeds. {CLUSTERS}",
            ORACLE,
            which_runs(study),
            SCALE,
        ],
    )
    return _table(f"correlation_{result}", caption, chosen, frame, _with_interval)


def _setting_table(study: Study, result: str) -> ReportTable:
    """τ between methods in each setting."""
    frame = study.rows(study.correlations, result=result, given="", level=BETWEEN)
    settings = [setting for setting in frame["setting"].unique() if setting != POOLED]
    chosen = {heading(setting): study.rows(frame, runs=EVERY, setting=setting) for setting in settings}
    caption = Caption.of(
        f"Flatness and {RESULTS[result]} in each setting",
        f"Kendall's τ_b of each measure with the {RESULTS[result]} between methods, with means over seeds.",
        [SIGNS[result], f"{INTERVALS} that draw whole methods.", ORACLE],
    )
    return _table(f"settings_{result}", caption, chosen, frame, _with_interval)


def _axis_table(study: Study, result: str) -> ReportTable:
    """ψ of each axis."""
    frame = study.rows(study.granulated, result=result)
    axes = [axis for axis in (OVERALL, *AXES) if axis in set(frame["axis"])]
    chosen = {AXES.get(axis, axis): study.rows(frame, runs=EVERY, axis=axis) for axis in axes}
    caption = Caption.of(
        f"Flatness and {RESULTS[result]} along each axis",
        "Granulated Kendall coefficient (Jiang et al., 2020): ψ of each axis, and Ψ, their mean.",
        [
            "ψ: the share of pairs that the measure orders as the result minus the share that it orders the other way, "
            "over all pairs of methods in settings (means over seeds) that differ in this axis only.",
            "The axes perturbation, correction, server, loss and SWA compare methods in one setting; partition and "
            "participation compare one method in two settings; tuning compares its untuned and its tuned values.",
            SIGNS[result].replace("τ", "ψ"),
            f"{INTERVALS} that draw whole methods.",
            ORACLE,
        ],
    )
    return _table(f"granulated_{result}", caption, chosen, frame, _with_interval)


def _information_table(study: Study, result: str) -> ReportTable:
    """The information of each measure, without a known axis, with one known, and its minimum."""
    frame = study.rows(study.information, result=result)
    axes = [axis for axis in (K, "", *AXES) if axis in set(frame["axis"])]
    chosen = {information_heading(axis): study.rows(frame, runs=EVERY, axis=axis) for axis in axes}
    if study.has_fitted:
        chosen["K, fitted"] = study.rows(frame, runs=FITTED, axis=K)
    caption = Caption.of(
        f"What flatness says about the {RESULTS[result]}",
        "Normalised conditional mutual information (Jiang et al., 2020), from 0 (nothing) to 1 (the whole order).",
        [
            "For two methods in settings (means over seeds): how much the sign of the difference in the measure says "
            f"about the sign of the difference in {RESULTS[result]}, if the values of both on the axis are known.",
            f"K: the minimum over all sets of at most {MOST_AXES} axes.",
            "With few pairs per value, even random numbers seem to say something: compare with the row random, a mean "
            "over 20 draws.",
            ORACLE,
        ],
    )
    return _table(f"information_{result}", caption, chosen, frame, lambda row: number(row["value"], ".3f"))


def information_heading(axis: str) -> str:
    """The heading of a column of the information: what is known."""
    return {K: K, "": "nothing known"}.get(axis, AXES.get(axis, axis))


def _count_table(study: Study) -> ReportTable:
    header = ("setting", "methods", "runs", "diverged", "fitted", "training accuracy (%)", "test accuracy (%)")
    rows = tuple(
        (
            heading(row["setting"]),
            *(str(row[name]) for name in ("methods", "runs", "diverged", "fitted")),
            *(f"{row[f'{name}_min']:.1f} to {row[f'{name}_max']:.1f}" for name in ("train_accuracy", "test_accuracy")),
        )
        for row in study.counts.to_dict("records")
    )
    caption = Caption.of(
        "Runs of the study",
        "Methods, runs, and the range of the methods' mean accuracies in each setting.",
        [which_runs(study), "Methods with untuned and with tuned values count as two."],
    )
    return ReportTable("runs", caption, header, rows, study.counts, report=REPORT)


def _with_interval(row: Row) -> str:
    return with_interval(row["tau"], row["low"], row["high"], "+.2f")


def _table(
    name: str,
    caption: Caption,
    columns: dict[str, pd.DataFrame],
    frame: pd.DataFrame,
    text: Callable[[Row], str],
) -> ReportTable:
    """A table with one row per measure; `columns`: by heading, the rows of the frame that it shows."""
    cells = {
        heading: {str(row["measure"]): text(row) for row in rows.to_dict("records")}
        for heading, rows in columns.items()
    }
    measures: Sequence[str] = [m for m in NAMES if any(m in column for column in cells.values())]
    rows = tuple((NAMES[m], *(column.get(m, "–") for column in cells.values())) for m in measures)
    return ReportTable(name, caption, ("measure", *cells), rows, frame, report=REPORT)
