"""How often the comparison is wrong, and what it finds: tables of studies/pages/comparison.md.

`python -m studies.wrong_verdicts.of_comparisons GRID` rewrites the tables. Comparisons of identical methods,
and of a method that is better by a known gap, are simulated with the spread of the stored baselines of a grid, or drawn
from their runs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.statistics.ranking import mean_ranks
from fedflat.analysis.comparison.statistics.scores import LEAST_SEEDS, Floats, Scores
from fedflat.analysis.comparison.statistics.verdicts import (
    ALPHA,
    BETTER,
    UNCLEAR,
    detectable_difference,
    verdicts,
    verdicts_by_setting,
)
from fedflat.analysis.measures.paired import CONFIDENCE, interval, sign_flip
from fedflat.bench.experiments.address import Setting
from fedflat.bench.files.text_table import markdown
from studies.command import argument, run
from studies.marked_text import rewrite_part
from studies.places import DETAILS

DOCUMENT = DETAILS / "comparison.md"
PART = "simulation"

DRAWS, SEED = 2_000, 21
RIVALS = 26
SEEDS = (3, 5, 6, 10, 20)
METHOD = "method"
RESAMPLES = 2_000
"""Resamples of a bootstrap."""


@dataclass(frozen=True)
class PairSpread:
    """What is simulated: the deviation of paired differences of runs in one setting (in points), and the correlation of
    the differences in two settings with the same seed."""

    deviation: float
    correlation: float


def measured(scores: Scores) -> PairSpread:
    """The spread of stored baselines: medians over the pairs of methods of their deviation and correlation.

    The correlation c follows from the variance of sums over S settings, which is (1 + (S − 1) c) times that of
    independent settings.
    """
    n, count = len(scores.seeds), len(scores.settings)
    sums, parts, deviations = 0.0, 0.0, []
    for a, b in combinations(range(len(scores.methods)), 2):
        d = scores.gains[a] - scores.gains[b]
        d = d - d.mean(axis=1, keepdims=True)
        sums, parts = sums + float((d.sum(axis=0) ** 2).sum()), parts + float((d**2).sum())
        deviations.append(math.sqrt((d**2).sum() / ((n - 1) * count)))
    correlation = (sums / parts - 1) / (count - 1) if count > 1 else 0.0
    return PairSpread(float(np.median(deviations)), max(0.0, correlation))


def simulated(spread: PairSpread, methods: int, settings: int, seeds: int, rng: np.random.Generator) -> Scores:
    """Scores of identical methods; what the runs of a pair share is left out, because it changes no difference."""
    shared = math.sqrt(spread.correlation) * rng.normal(size=(methods, 1, seeds))
    own = math.sqrt(1 - spread.correlation) * rng.normal(size=(methods, settings, seeds))
    return _scores(spread.deviation / math.sqrt(2) * (shared + own))


def drawn(stored: Scores, methods: int, seeds: int, rng: np.random.Generator) -> Scores:
    """Scores of copies of one stored method: each copy has runs of it with seeds that are drawn at random."""
    runs = stored.values[rng.integers(len(stored.methods))]
    chosen = rng.integers(len(stored.seeds), size=(methods, seeds))
    return _scores(np.moveaxis(runs[:, chosen], 1, 0))


def worse_by(scores: Scores, gap: float, rivals: slice) -> Scores:
    """The same scores, with some rivals of the first method worse by a gap."""
    values = scores.values.copy()
    values[1:][rivals] -= gap
    return replace(scores, values=values)


def _scores(values: Floats) -> Scores:
    methods, settings, seeds = values.shape
    names = (METHOD, *(f"rival {k}" for k in range(1, methods)))
    places = tuple(Setting("simulated", f"partition-{k}", "all") for k in range(settings))
    return Scores(names, places, tuple(range(seeds)), values, np.zeros(values.shape, dtype=bool))


def _by_seed(scores: Scores) -> Floats:
    """Differences `[seeds, rivals]` of the first method, means over settings."""
    return np.asarray((scores.gains[0] - scores.gains[1:]).mean(axis=1).T)


def _by_run(scores: Scores) -> Floats:
    """The same for each run `[settings × seeds, rivals]`."""
    d = scores.gains[0] - scores.gains[1:]
    return np.asarray(d.reshape(len(d), -1).T)


Wrong = Callable[[Scores], NDArray[np.bool_]]
"""Which rivals of the first method, or rivals in single settings, get a verdict, by some rule."""


def _by_our_rule(scores: Scores) -> NDArray[np.bool_]:
    return (verdicts(scores, METHOD)["verdict"] != UNCLEAR).to_numpy()


def _uncorrected(scores: Scores) -> NDArray[np.bool_]:
    return np.array([sign_flip(d) < ALPHA for d in _by_seed(scores).T])


def _holm(p_values: ArrayLike) -> NDArray[np.bool_]:
    """Which tests are significant after Holm's correction."""
    return np.asarray(multipletests(p_values, method="holm")[1] < ALPHA)


def _holm_flips(scores: Scores) -> NDArray[np.bool_]:
    return _holm([sign_flip(d) for d in _by_seed(scores).T])


def _holm_t(scores: Scores) -> NDArray[np.bool_]:
    return _holm(stats.ttest_1samp(_by_seed(scores), 0).pvalue)


def _holm_t_of_runs(scores: Scores) -> NDArray[np.bool_]:
    return _holm(stats.ttest_1samp(_by_run(scores), 0).pvalue)


def _by_setting(scores: Scores) -> NDArray[np.bool_]:
    """The lines of all settings, by our rule."""
    return np.concatenate([table["verdict"] != UNCLEAR for table in verdicts_by_setting(scores, METHOD).values()])


def _each_setting(scores: Scores) -> NDArray[np.bool_]:
    return np.concatenate([_by_our_rule(scores.of_setting(setting)) for setting in scores.settings])


RULES: dict[str, Wrong] = {
    "one rival at a time, not corrected": _uncorrected,
    "the rule of the comparison": _by_our_rule,
    "instead: sign-flip tests with Holm's correction": _holm_flips,
    "instead: t-tests with Holm's correction": _holm_t,
    "instead: t-tests of runs, not of seeds, with Holm's correction": _holm_t_of_runs,
    "the rule of the comparison, in single settings": _by_setting,
    "instead: each single setting corrected by itself": _each_setting,
}


def rates(rules: dict[str, Wrong], draw: Callable[[], Scores], draws: int) -> dict[str, tuple[float, float]]:
    """By rule: the share of its tests with a verdict, and the share of comparisons with any."""
    found: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in rules}
    for _ in range(draws):
        scores = draw()
        for name, rule in rules.items():
            found[name].append(rule(scores))
    return {name: (float(np.mean(one)), float(np.mean(np.any(one, axis=1)))) for name, one in found.items()}


def false_verdicts(spread: PairSpread, stored: Scores, draws: int) -> Iterator[Sequence[str]]:
    """Rows by source of the runs and rule: shares of wrong verdicts on identical methods, with ten seeds."""
    settings = len(stored.settings)
    for source in ("simulated", "stored runs"):
        rng = np.random.default_rng(SEED)
        if source == "simulated":
            draw = lambda rng=rng: simulated(spread, RIVALS + 1, settings, 10, rng)  # noqa: E731
        elif len(stored.seeds) >= LEAST_SEEDS:
            draw = lambda rng=rng: drawn(stored, RIVALS + 1, 10, rng)  # noqa: E731
        else:
            continue
        for name, (of_rivals, of_comparisons) in rates(RULES, draw, draws).items():
            yield [source, name, f"{100 * of_rivals:.2f}", f"{100 * of_comparisons:.1f}"]


ONE, ALL = slice(0, 1), slice(None)
"""Which rivals are worse: the first, or all."""


def power(spread: PairSpread, settings: int, gap: float, draws: int) -> Iterator[Sequence[str]]:
    """Rows by settings and seeds: how often a gap is found, and the detectable difference and how often it is."""
    for count in dict.fromkeys((1, settings)):
        for seeds in SEEDS:
            if seeds < LEAST_SEEDS:
                yield [str(count), str(seeds), *["no verdict"] * 3, "–", "–"]
                continue
            rng = np.random.default_rng(SEED)
            identical = [simulated(spread, RIVALS + 1, count, seeds, rng) for _ in range(draws)]
            wrong = np.mean([_by_our_rule(scores).any() for scores in identical])
            size = float(np.median([detectable_difference(scores, METHOD) for scores in identical[:100]]))
            found = [_found(identical, *case) for case in ((gap, ONE), (gap, ALL), (size, ONE))]
            percent = [f"{100 * share:.0f}" for share in found]
            yield [str(count), str(seeds), f"{100 * wrong:.1f}", *percent[:2], f"{size:.2f}", percent[2]]


def _found(identical: Sequence[Scores], gap: float, rivals: slice) -> float:
    """The share of the rivals that are worse by a gap, than which the first method is found to be better."""
    shares = []
    for scores in identical:
        table = verdicts(worse_by(scores, gap, rivals), METHOD).set_index("rival")
        shares.append((table.loc[list(scores.methods[1:][rivals]), "verdict"] == BETTER).mean())
    return float(np.mean(shares))


def coverage(stored: Scores, draws: int) -> Iterator[Sequence[str]]:
    """Rows by distribution and interval: how often 95 % intervals of a mean of ten differences contain the true one."""
    rng = np.random.default_rng(SEED)
    skewed = stats.gamma(1)
    samples = {
        "normal": (rng.normal(size=(draws, 10)), 0.0),
        "skewed (exponential)": (skewed.rvs(size=(draws, 10), random_state=rng), float(skewed.mean())),
    }
    if len(stored.seeds) >= LEAST_SEEDS:
        pairs = list(combinations(range(len(stored.methods)), 2))
        of_pairs = np.array(
            [_by_seed(stored.of_methods([stored.methods[a], stored.methods[b]]))[:, 0] for a, b in pairs]
        )
        centred = of_pairs - of_pairs.mean(axis=1, keepdims=True)
        chosen = centred[rng.integers(len(pairs), size=draws)]
        again = rng.integers(chosen.shape[1], size=(draws, 10))
        samples["stored differences, drawn again"] = (np.take_along_axis(chosen, again, axis=1), 0.0)
    for name, (sample, true) in samples.items():
        t = np.array([interval(row) for row in sample]).T
        intervals = {"Student's t": (t[0], t[1]), "bootstrap-t": _studentised(sample, rng)}
        for title, method in (("percentile bootstrap", "percentile"), ("BCa bootstrap", "BCa")):
            found = stats.bootstrap(
                (sample,), np.mean, axis=1, n_resamples=RESAMPLES, method=method, rng=rng, vectorized=True
            )  # type: ignore[call-overload]
            intervals[title] = (found.confidence_interval.low, found.confidence_interval.high)
        widths = np.mean(t[1] - t[0])
        for title, (low, high) in intervals.items():
            inside = np.mean((low <= true) & (true <= high))
            yield [name, title, f"{100 * inside:.1f}", f"{np.mean(high - low) / widths:.2f}"]


def _studentised(sample: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Bootstrap-t intervals of the means of the rows."""
    n = sample.shape[1]
    ends = []
    for row in sample:
        again = row[rng.integers(n, size=(RESAMPLES, n))]
        errors = again.std(axis=1, ddof=1)
        t = (again.mean(axis=1) - row.mean())[errors > 0] / errors[errors > 0]
        high, low = np.quantile(t, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        ends.append((row.mean() - low * row.std(ddof=1), row.mean() - high * row.std(ddof=1)))
    lows, highs = np.array(ends).T
    return lows, highs


def false_pairs(spread: PairSpread, settings: int, draws: int) -> Iterator[Sequence[str]]:
    """Rows by rule: how often the mean ranks of any two of identical methods are found to differ, with ten seeds."""
    rng = np.random.default_rng(SEED)
    ours, nemenyi = 0, 0
    k, n = RIVALS + 1, 10 * settings
    critical = float(stats.studentized_range.ppf(1 - ALPHA, k, np.inf)) * math.sqrt(k * (k + 1) / (12 * n))
    for _ in range(draws):
        found = mean_ranks(simulated(spread, k, settings, 10, rng))
        widest = found.ranks.max() - found.ranks.min()
        ours += widest > found.critical
        nemenyi += widest > critical
    yield ["Tukey's test of the seeds' ranks", f"{100 * ours / draws:.1f}"]
    yield ["instead: Nemenyi's critical difference, blocks: settings × seeds", f"{100 * nemenyi / draws:.1f}"]


def tables(grid: str, stored: Scores, draws: int) -> str:
    """All tables as Markdown."""
    spread, settings = measured(stored), len(stored.settings)
    words = (
        f"Measured on the stored baselines of `{grid}` ({len(stored.methods)} methods, {settings} settings, "
        f"{len(stored.seeds)} seeds): two methods' paired differences deviate by {spread.deviation:.2f} points in a "
        f"setting (median), and correlate by {spread.correlation:.2f} in two settings with the same seed. "
        f"{draws:,} comparisons with {RIVALS} rivals were simulated for each number."
    )
    parts = [
        ("Wrong verdicts (%) on identical methods, ten seeds; over all settings, unless single ones are named",
         ["runs", "rule", "of tests", "of comparisons (any test)"], false_verdicts(spread, stored, draws), {2, 3}),
        ("Power: verdicts (%) on a method that is one point better",
         ["settings", "seeds", "wrong verdict on any of identical rivals", "found, if one rival is a point worse",
          "found, if all are", "detectable difference (points)", "found, if one rival is that much worse"],
         power(spread, settings, 1.0, draws // 2), range(7)),
        ("Coverage (%) of 95 % intervals of ten differences",
         ["differences", "interval", "coverage", "width / that of t"], coverage(stored, draws), {2, 3}),
        ("Any wrong pair (%) in the diagram of mean ranks, identical methods, ten seeds",
         ["rule", "of diagrams"], false_pairs(spread, settings, draws // 2), {1}),
    ]  # fmt: skip
    lines = [words]
    for title, header, rows, right in parts:
        lines += ["", f"**{title}**", "", *markdown(header, rows, right=right)]
    return "\n".join(lines)


def main(grid: str, document: Path = DOCUMENT, draws: int = DRAWS) -> None:
    """Rewrite the tables of studies/pages/comparison.md from the stored baselines of a grid."""
    rows = load(grid).runs
    stored = Scores.of(rows[rows["variant"] == rows["variant"].iloc[-1]], "test_accuracy", "higher")
    rewrite_part(document, PART, tables(grid, stored, draws))


if __name__ == "__main__":
    run(lambda: main(argument("GRID", "studies.wrong_verdicts.of_comparisons")))
