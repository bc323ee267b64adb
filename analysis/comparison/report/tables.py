"""The tables of a comparison: one data frame each, and their text as Markdown, LaTeX and aligned columns."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.words import COUNTED_AS, RULE, lost_word, note_on_means, note_on_tests
from fedflat.analysis.comparison.report_table import ReportTable, number, with_lost
from fedflat.analysis.comparison.statistics.costs import REFERENCE, costs, stored_costs
from fedflat.analysis.comparison.statistics.flatness import correlations, flatness, stored_measures
from fedflat.analysis.comparison.statistics.profiles import gap_profile, share_within
from fedflat.analysis.comparison.statistics.ranking import mean_ranks, ranking
from fedflat.analysis.comparison.statistics.scores import Floats, Scores
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR, WORSE
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.run_columns import column_name, further_metrics, run_quantity
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.experiments.sections.evaluation import TEST

MARKS = {BETTER: "+", WORSE: "−", UNCLEAR: "", NONE: ""}
"""Significance marks of entries of rivals."""

COST_TITLES = {"communicated_mb": "traffic (MB)", "gradients": "gradients"}

DISTANCES = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Distances of the table of profiles, in points."""


def tables(comparison: Comparison) -> Iterator[ReportTable]:
    """All tables for which the stored runs have the columns."""
    yield verdict_table(comparison)
    if comparison.ablation is not None:
        yield ablation_table(comparison.ablation)
    yield setting_table(comparison)
    yield rank_table(comparison)
    yield profile_table(comparison)
    if stored_costs(comparison.rows):
        yield cost_table(comparison)
    if stored_measures(comparison.rows):
        yield flatness_table(comparison)
    if own_metrics(comparison):
        yield metric_table(comparison)


def own_metrics(comparison: Comparison) -> list[str]:
    """The columns of further metrics of which the method's runs have values."""
    own = comparison.rows[comparison.rows["method"] == comparison.method]
    columns = further_metrics(own.columns[own.notna().any()])
    return [name for name in columns if name.startswith(TEST) and name != comparison.metric]


def shown(comparison: Comparison) -> Callable[..., str]:
    """Numbers of the metric as text: 84.12, or +0.31 with a sign; a dash for none."""
    form = ".2f" if comparison.quantity.unit == "%" else ".4g"
    return lambda value, sign="": number(value, f"{sign}{form}")


def _four_digits(value: float) -> str:
    """A number of at least 0 with four significant digits, such as 0.7503 and 18,920."""
    return f"{float(f'{value:.4g}'):,.15g}"


def metric_words(comparison: Comparison) -> str:
    """The metric with its unit: test accuracy (%)."""
    return comparison.quantity.with_unit


def _columns_of(setting: Setting) -> dict[str, str]:
    return dict(zip(IDS[:3], (setting.dataset, setting.partition, setting.participation), strict=True))


def verdict_rows(comparison: Comparison, table: pd.DataFrame) -> list[tuple[str, ...]]:
    """The rows of rivals as text."""
    value = shown(comparison)
    rows: list[tuple[str, ...]] = []
    for row in table.to_dict("records"):
        low, high = (value(row[f"interval_{end}"], "+") for end in ("low", "high"))
        lost = [f"{row[key]} {who}" for key, who in (("missing", "own"), ("missing_rival", "stored")) if row[key]]
        rows.append(
            (
                comparison.titles[row["rival"]],
                value(row["mean_rival"]),
                value(row["difference"], "+"),
                "–" if low == "–" else f"[{low}, {high}]",
                f"{row['wins']}–{row['losses']}",
                number(row["p"], ".4f"),
                number(row["p_corrected"], ".4f"),
                row["verdict"] or "–",
                ", ".join(lost) or "0",
            )
        )
    return rows


def verdict_header(comparison: Comparison) -> tuple[str, ...]:
    """The header of `verdict_rows`."""
    names = ("difference", "95 % interval", "won–lost", "p", "corrected p", comparison.titles[comparison.method])
    return ("rival", metric_words(comparison), *names, "no value")


def verdict_table(comparison: Comparison) -> ReportTable:
    """The paired differences with each rival over all settings; its frame also has those in each setting."""
    title = comparison.titles[comparison.method]
    frames = [(dict.fromkeys(IDS[:3], "all"), comparison.verdicts)]
    frames += [(_columns_of(setting), table) for setting, table in comparison.by_setting.items()]
    frame = pd.concat(
        [
            pd.concat([pd.DataFrame({**ids, "method": comparison.method}, index=t.index), t], axis=1)
            for ids, t in frames
        ],
        ignore_index=True,
    )
    scores = comparison.scores
    caption = Caption.of(
        f"{title} and its rivals",
        f"Differences of {metric_words(comparison)}, {title} minus rival, over {_amount(scores.settings, 'setting')} "
        f"with {_amount(scores.seeds, 'seed')}; {'above' if scores.better == 'higher' else 'below'} 0 is better.",
        [
            RULE,
            "Pairs: runs with the same setting, seed, data, partition, initial model and schedule of clients.",
            "The unit of intervals and tests is the seed, with its mean difference over the settings. Intervals: "
            "Student's t. p: sign-flip test, two-sided. Corrected p: by Westfall and Young's step-down correction.",
            COUNTED_AS,
            *note_on_means(comparison),
        ],
    )
    return ReportTable(
        "verdicts", caption, verdict_header(comparison), tuple(verdict_rows(comparison, comparison.verdicts)), frame
    )


def ablation_table(comparison: Comparison) -> ReportTable:
    """The paired differences with the variants of the method that lack one of its parts."""
    title = comparison.titles[comparison.method]
    caption = Caption.of(
        "What each part brings",
        f"Differences of {metric_words(comparison)}, {title} minus its variant without a part; "
        f"{'above' if comparison.better == 'higher' else 'below'} 0, the part helps.",
        [
            "Each variant has as many trials as the method, and the same seeds. A hyper-parameter that is left out has "
            "its value without effect; in place of a component that is left out is FedAvg's.",
            f"Better and worse as in the first table; tests are corrected for the {len(comparison.verdicts)} variants.",
            *comparison.notes,
        ],
    )
    header = ("variant", *verdict_header(comparison)[1:])
    rows = tuple(verdict_rows(comparison, comparison.verdicts))
    return ReportTable("ablation", caption, header, rows, comparison.verdicts.assign(method=comparison.method))


def setting_table(comparison: Comparison) -> ReportTable:
    """The means in each setting, with significance marks, the best method over all settings first."""
    scores = comparison.scores
    parts = {setting: scores.of_setting(setting) for setting in scores.settings}
    marks = {
        setting: dict(zip(table["rival"], table["verdict"], strict=True))
        for setting, table in (*comparison.by_setting.items(), (None, comparison.verdicts))
    }
    records, rows = [], []
    order = _best_first(scores.gains.mean(axis=(1, 2)).tolist())
    for m in order:
        method = scores.methods[m]
        cells = []
        for setting, part in parts.items():
            std, lost = _deviation(part.measured[m]), int(part.missing[m].sum())
            verdict = marks[setting].get(method, NONE)
            cells.append(f"{_mean(comparison, part, m, std)} {MARKS[verdict]}".rstrip())
            numbers = {"mean": part.means[m], "std": std, "missing": lost, "verdict": verdict}
            records.append({**_columns_of(setting), "method": method, **numbers})
        over_all = f"{_mean(comparison, scores, m)} {MARKS[marks[None].get(method, NONE)]}".rstrip()
        rows.append((comparison.titles[method], *cells, over_all))
    title = comparison.titles[comparison.method]
    caption = Caption.of(
        "Results in each setting",
        f"Mean and sample standard deviation of {metric_words(comparison)} over {_amount(scores.seeds, 'seed')}.",
        [
            f"+: {title} is better than this rival, −: it is worse, no mark: the tests cannot tell. {RULE}",
            *note_on_means(comparison),
            *note_on_tests(comparison),
        ],
    )
    header = ("method", *map(setting_title, scores.settings), "mean")
    own = [scores.methods[m] for m in order].index(comparison.method)
    return ReportTable("settings", caption, header, tuple(rows), pd.DataFrame(records), own)


def rank_table(comparison: Comparison) -> ReportTable:
    """The rank of each method in each setting, with intervals, and its mean rank."""
    scores, frame = comparison.scores, ranking(comparison.scores)
    means = mean_ranks(scores).ranks
    cells = {
        (row["method"], _setting_of(row)): f"{row['rank']:g} [{row['rank_low']}–{row['rank_high']}]"
        for row in frame.to_dict("records")
    }
    rows = [
        (comparison.titles[str(method)], *(cells[method, s] for s in scores.settings), f"{mean:.1f}")
        for method, mean in means.items()
    ]
    caption = Caption.of(
        "Ranking",
        "Rank of the mean in each setting (1: best) with its 95 % interval, and the mean rank over settings and seeds.",
        [
            "The interval of a rank begins after the methods that are better by the corrected tests, and ends before "
            "those that are worse; it contains the rank of the true mean in at least 95 % of cases.",
            *note_on_tests(comparison),
        ],
    )
    header = ("method", *map(setting_title, scores.settings), "mean rank")
    own = list(means.index).index(comparison.method)
    return ReportTable("ranking", caption, header, tuple(rows), frame.assign(mean_rank=frame["method"].map(means)), own)


def profile_table(comparison: Comparison) -> ReportTable:
    """In which share of settings and seeds a method is within some distances of the best one."""
    scores = comparison.scores
    profile = gap_profile(scores)
    shares = pd.DataFrame({distance: share_within(profile, scores.methods, distance) for distance in DISTANCES})
    shares = shares.iloc[np.lexsort(shares.to_numpy()[:, ::-1].T)[::-1]]
    rows = tuple(
        (comparison.titles[str(method)], *(f"{100 * share:.0f}" for share in row))
        for method, row in zip(shares.index, shares.to_numpy(), strict=True)
    )
    unit = "points" if comparison.quantity.unit == "%" else comparison.quantity.unit or "units"
    caption = Caption.of(
        "Distance to the best",
        f"Percentage of the {len(scores.settings) * len(scores.seeds)} problems (setting and seed) in which a method "
        f"is at most so many {unit} of {metric_words(comparison)} worse than the best method.",
        ["A run without a value is within no distance."],
    )
    header = ("method", "the best", *(f"within {distance:g}" for distance in DISTANCES[1:]))
    return ReportTable("profile", caption, header, rows, profile, list(shares.index).index(comparison.method))


def cost_table(comparison: Comparison) -> ReportTable:
    """What runs cost, and which methods no other one dominates."""
    scores = comparison.scores
    frame = costs(comparison.rows, scores)
    columns = stored_costs(comparison.rows)
    order = frame.sort_values("mean", ascending=scores.better == "lower", kind="stable")
    rows = []
    for row in order.to_dict("records"):
        cells = []
        for cost in columns:
            front = " *" if row[f"front_{cost}"] else ""
            times = f" ({ratio:.2f} ×)" if math.isfinite(ratio := row.get(f"{cost}_relative", math.nan)) else ""
            cells.append(f"{_four_digits(row[cost])}{times}{front}" if math.isfinite(row[cost]) else "–")
        rows.append((comparison.titles[row["method"]], _mean(comparison, scores, scores.place(row["method"])), *cells))
    notes = [
        "*: no other method is at least as good and costs at most as much (Pareto front).",
        *note_on_means(comparison),
    ]
    if any(f"{cost}_relative" in frame for cost in columns):
        reference = comparison.titles[REFERENCE]
        notes.append(f"In parentheses: relative to {reference}, over the settings in which both have a finished run.")
    if "gradients" in columns:
        notes.append("Gradients: of single images, over all clients.")
    if "communicated_mb" in columns:
        notes.append("Traffic: up and down, all clients, in 10^6 bytes.")
    caption = Caption.of(
        "Costs", "What a whole run costs, as mean over settings and seeds, with the mean of its results.", notes
    )
    header = ("method", metric_words(comparison), *(COST_TITLES[cost] for cost in columns))
    own = list(order["method"]).index(comparison.method)
    return ReportTable("costs", caption, header, tuple(rows), frame, own)


def flatness_table(comparison: Comparison) -> ReportTable:
    """The stored flatness measures of each method, and their rank correlations with the results."""
    scores = comparison.scores
    frame = flatness(comparison.rows, scores)
    order = frame.sort_values("mean", ascending=scores.better == "lower", kind="stable")
    measures = stored_measures(comparison.rows)
    rows = [
        (
            comparison.titles[row["method"]],
            _mean(comparison, scores, scores.place(row["method"])),
            *(number(row[name], ".4g") for name in measures),
        )
        for row in order.to_dict("records")
    ]
    found = correlations(frame).set_index("measure")
    rows.append(("Kendall's τ", "", *(number(float(found["tau"][name]), "+.2f") for name in measures)))
    caption = Caption.of(
        "Flatness",
        f"Flatness measures and {metric_words(comparison)}, as means over settings and seeds; lower is flatter.",
        [
            "Kendall's τ: rank correlation of a measure with the results over methods. It says nothing about causes. "
            "`fedflat study` has intervals, and correlations in single settings.",
            *note_on_means(comparison),
        ],
    )
    header = ("method", metric_words(comparison), *(column_name(name) for name in measures))
    own = list(order["method"]).index(comparison.method)
    return ReportTable("flatness", caption, header, tuple(rows), frame, own)


def metric_table(comparison: Comparison) -> ReportTable:
    """The further metrics of the method's runs, and of the stored runs that have them."""
    columns = own_metrics(comparison)
    groups = comparison.rows.groupby("method", sort=False)[columns]
    means, deviations = groups.mean(), groups.std()
    frame = means[means.notna().any(axis=1)]
    found, spread = (
        {str(row.pop("method")): row for row in one.reset_index().to_dict("records")} for one in (means, deviations)
    )
    rows = [
        (
            comparison.titles[method],
            *(_with_deviation(found[method][name], spread[method][name]) for name in columns),
        )
        for method in map(str, frame.index)
    ]
    lacking = [column_name(name) for name in columns if frame[name].notna().sum() == 1]
    title = comparison.titles[comparison.method]
    note = f"The stored runs have no {', '.join(lacking)}: only {title} is shown with it." if lacking else ""
    caption = Caption.of(
        "Further metrics", "Mean and sample standard deviation over settings and seeds.", [note] if note else []
    )
    header = ("method", *(quantity.with_unit for name in columns if (quantity := run_quantity(name)) is not None))
    own = list(frame.index).index(comparison.method)
    return ReportTable("metrics", caption, header, tuple(rows), frame.reset_index(), own)


def _with_deviation(mean: float, deviation: float) -> str:
    return number(mean, ".4g") + ("" if math.isnan(deviation) else f" ± {number(deviation, '.2g')}")


def _mean(comparison: Comparison, scores: Scores, m: int, deviation: float = math.nan) -> str:
    """The mean of a method as text, with its deviation if it has one, and the number of runs without a value."""
    value, missing = shown(comparison), scores.missing[m]
    text = value(scores.means[m]) + ("" if math.isnan(deviation) else f" ± {value(deviation)}")
    return with_lost(text, int(missing.sum()), missing.size, lost_word(comparison))


def _deviation(values: Floats) -> float:
    """The sample deviation of the values that are not NaN; NaN of fewer than two."""
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else math.nan


def _setting_of(row: dict[object, object]) -> Setting:
    return Setting(*(str(row[name]) for name in IDS[:3]))


def _amount(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _best_first(gains: Sequence[float]) -> list[int]:
    return sorted(range(len(gains)), key=lambda k: -gains[k])
