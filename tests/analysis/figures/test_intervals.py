"""Every interval that a figure draws: centre, divisor and quantile, from the drawn lines, bands, bars and boxes.

A module that draws intervals is found by the calls in its code; it needs a case here.
"""

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from fedflat.analysis.comparison.report import differences, ranks
from fedflat.analysis.comparison.study import figures as study_figures
from fedflat.analysis.comparison.study.levels import Clusters
from fedflat.analysis.comparison.study.study import EVERY, POOLED, Study
from fedflat.analysis.comparison.tuning import figures as tuning_figures
from fedflat.analysis.comparison.tuning.budget import RanksByBudget
from fedflat.analysis.comparison.tuning.gain import Gain
from fedflat.analysis.figures.base import TEXT_WIDTH
from tests.analysis.comparison.frames import compared, runs
from tests.analysis.comparison.study_frames import study_runs
from tests.analysis.conftest import HARD, metrics
from tests.analysis.figures.drawings import EASY
from tests.analysis.figures.intervals import (
    SEEDS,
    Case,
    Code,
    Figures,
    Interval,
    agree,
    by_seed,
    deviation,
    drawn,
    drawn_in,
    t_interval,
    times,
)


def of_rounds(kind: str) -> Case:
    def case(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
        for rounds, at in ((4, (2, 4)), (2, (2,))):  # a band, and the bars of single points
            found = on.draw(
                kind, "metrics", lambda f, r=rounds: metrics(times(5 * f), rounds=r), metric="test_accuracy"
            )
            yield found, on.all(lambda f, r=rounds, a=at: [deviation(times(5 * f * k / r)) for k in a])

    return case


def of_sweep(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    points = [{"x": k, "select": {"partition": place.partition}} for k, place in enumerate((EASY, HARD))]
    panel = {"x": "k", "select": {"participation": "4-of-20"}, "points": points}
    yield (
        on.draw("sweep", "metrics", lambda f: metrics(times(5 * f)), panels=[panel]),
        on.all(lambda f: [deviation(times(5 * f))]),
    )


def of_differences(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """FedSAM's values are those of FedAvg and a half of it more: by setting, and in the mean over both."""
    found = on.draw("differences", "metrics", lambda f: metrics(times(5 * f)))
    yield found, [t_interval(times(factor)) for factor in (2.5, 5, 3.75)]


def of_costs(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    scales = {"transmissions_per_round": 1, "gradients_per_step": 2, "seconds_per_round": 3}
    frame = by_seed("metric value", lambda _, value: [(name, k * value) for name, k in scales.items()])
    found = on.draw("cost", "cost", frame, quantities=[*scales])
    yield found, on.all(lambda f: [deviation(times(k * f)) for k in scales.values()], settings=1)


def of_perturbation(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Over all directions of all seeds; and that of the gradient over seeds."""
    losses = by_seed(
        "direction radius draw loss",
        lambda _, value: [
            (direction, radius, draw, 9 + radius * value + draw)
            for direction, draws in (("random", 3), ("gradient", 1))
            for radius in (1, 2)
            for draw in range(draws)
        ],
    )
    for direction, draws in (("random", 3), ("gradient", 1)):
        found = on.draw("perturbation", "perturbation", losses, direction=direction)
        yield (
            found,
            on.all(
                lambda f, n=draws: [
                    deviation([9 + radius * value + draw for value in times(f) for draw in range(n)])
                    for radius in (1, 2)
                ]
            ),
        )


def of_sharpness(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    frame = by_seed("radius sharpness first_order", lambda _, value: [(r, r * value, value) for r in (1, 2)])
    found = on.draw("sharpness", "sharpness", frame)
    yield found, on.all(lambda f: [deviation(times(r * f)) for r in (1, 2)])


def of_drift(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    frame = by_seed(
        "round perturbation_drift cosine local_norm gradient_norm sharpness",
        lambda _, value: [(r, 0.02 * r * value, 0.0, 0.1, 1.0, r * value) for r in (1, 2, 3)],
    )
    found = on.draw("drift", "drift", frame)
    yield found, on.all(lambda f: [deviation(times(k * r * f)) for k in (0.02, 1) for r in (1, 2, 3)], settings=1)


def of_interpolation(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    frame = by_seed(
        "t data loss error",
        lambda _, value: [(t, part, 2 + t * value, 3 + t * value) for t in (1, 2) for part in ("train", "test")],
    )
    found = on.draw("interpolation", "interpolation", frame)
    expected = on.all(
        lambda f: [deviation([k + t * value for value in times(f)]) for k in (2, 3) for t in (1, 2)], settings=1
    )
    yield found, [(max(0.0, low), high) for low, high in expected]


def of_eigenvalues(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    frame = by_seed("metric index value residual", lambda _, value: [("eigenvalue", i, value / i, 0.0) for i in (1, 2)])
    found = on.draw("eigenvalues", "hessian", frame)
    yield found, on.all(lambda f: [deviation(times(f / i)) for i in (1, 2)])


def of_client_eigenvalues(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Of 9 values from 1 to 9, the quartiles are the third and the seventh."""
    frame = by_seed(
        "round client lambda_max residual",
        lambda seed, value: [
            (r, c, r * (value / SEEDS[seed]) * (1 + 3 * seed + c), 0.0) for r in (1, 2) for c in range(3)
        ],
    )
    found = on.draw("client_eigenvalues", "client_hessian", frame)
    yield found, on.all(lambda f: [(3 * r * f, 7 * r * f) for r in (1, 2)])


def of_clients(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Of 21 values from 0 to 20, quartiles are 5 and 15; the whiskers reach from there to the percentiles, 1 and 19."""
    frame = by_seed(
        "metric client value",
        lambda seed, value: [("client_test_accuracy", c, (value / SEEDS[seed]) * (7 * seed + c)) for c in range(7)],
    )
    found = on.draw("clients", "clients", frame)
    yield found, on.all(lambda f: [(5 * f, 15 * f), (1 * f, 5 * f), (15 * f, 19 * f)])


def of_corruptions(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Lines: the deviation over seeds of the mean over corruptions; bars: that of each corruption."""
    frame = by_seed(
        "metric suite corruption severity value",
        lambda _, value: [("accuracy", "s", name, level, 9 + level * k * value)
                          for k, name in ((1, "blots"), (3, "haze")) for level in (1, 5)],
    )  # fmt: skip
    found = on.draw("corruptions", "corruptions", frame)
    yield found, on.all(lambda f: [deviation([9 + 2 * s * v for v in times(f)]) for s in (1, 5)], settings=1)
    found = on.draw("corruptions", "corruptions", frame, form="bars")
    yield found, on.all(lambda f: [deviation([9 + 5 * k * v for v in times(f)]) for k in (1, 3)], settings=1)


def of_density(on: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """The area below the density of the first seed, down to half the height of a single eigenvalue."""
    frame = by_seed(
        "metric eigenvalue value stderr",
        lambda _, value: [("density", 1, value, 0.0), ("density", 2, 2 * value, 0.0),
                          ("density_single", None, 0.1, None)],
    )  # fmt: skip
    yield on.draw("density", "spectrum", frame), on.all(lambda f: [(0.05, f), (0.05, 2 * f)])


def of_paired_differences(_: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    rows = runs({"mine": 80.0, "one": 79.0, "two": 81.0}, seeds=8)
    wide = rows.pivot(index=["partition", "participation", "seed"], columns="method", values="test_accuracy")
    expected = []
    for rival in ("one", "two"):
        of_rival = wide["mine"] - wide[rival]
        expected.append(t_interval(of_rival.groupby("seed").mean().tolist()))
        expected += [t_interval(values.tolist()) for _, values in of_rival.groupby(["partition", "participation"])]
    yield (drawn(differences.draw(compared(rows), TEXT_WIDTH).figure)), expected


def of_ranks(_: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """One method is clearly the best one; the two others cannot be distinguished."""
    rows = runs({"mine": 95.0, "one": 80.0, "two": 80.0})
    yield (drawn(ranks.draw_ranking(compared(rows), TEXT_WIDTH).figure)), [(1, 1), (2, 3), (2, 3)] * 4


def of_tuning(_: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Means of both variants, and gains, over all settings; means in each setting; and lines that join two means."""
    untuned = runs({"one": 70.0, "two": 75.0}, seeds=8)
    gains = 3 + 0.1 * untuned["seed"] ** 2 + (untuned["method"] == "one")
    tuned = untuned.assign(variant="tuned", trials=16, test_accuracy=untuned["test_accuracy"] + gains)
    tuned["identity"] += " tuned"
    gain = Gain.of(pd.concat([untuned, tuned], ignore_index=True), "the runs")
    over_all, in_settings = [], []
    for (_, before), (_, after) in zip(untuned.groupby("method"), tuned.groupby("method"), strict=True):
        of_both = [rows.groupby("seed")["test_accuracy"].mean() for rows in (before, after)]
        over_all += [t_interval(values.tolist()) for values in (*of_both, of_both[1] - of_both[0])]
        over_all.append((of_both[0].mean(), of_both[1].mean()))
        for (_, here), (_, there) in zip(
            before.groupby(["partition", "participation"]), after.groupby(["partition", "participation"]), strict=True
        ):
            means = [here["test_accuracy"].tolist(), there["test_accuracy"].tolist()]
            in_settings += [*map(t_interval, means), (statistics.fmean(means[0]), statistics.fmean(means[1]))]
    leaderboard, of_settings = (one.figure for one in tuning_figures.of_gain(gain, TEXT_WIDTH))
    yield (drawn(leaderboard)), over_all
    yield (drawn(of_settings)), in_settings


def of_budgets(_: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """After two of 401 trials, `a` has any of the scores 1 to 400; `b` always has the same.

    The range of 95 % is then from 10 to 390, with a standard error of 1.4 for 2,000 orders. τ is -1 or 1: the rarer
    one occurs in 3.75 % of the orders, which is within 95 % of them, and would not be within 90 %.
    """
    for of_b, tau in ((15.5, (-1, 1)), (385.5, (-1, 1))):
        scores = {"a": [0.0, *np.arange(1.0, 401)], "b": [of_b] * 401}
        rows = [(method, number, score) for method, found in scores.items() for number, score in enumerate(found)]
        trials = pd.DataFrame(rows, columns=["method", "trial", "score"]).assign(
            experiment="mine", dataset="digits", partition="iid", participation="4-of-20", rounds=4, seed=1000,
            validation=0.2, scored="validation accuracy", title="A",
        )  # fmt: skip
        curves, stability = (one.figure for one in tuning_figures.of_budget(RanksByBudget.of(trials), TEXT_WIDTH))
        first, second = curves.get_axes()[:2]
        bands = [list(drawn_in(axes)) for axes in (first, second)]
        [of_a] = [band for band in bands if band[-1] == (400, 400)]
        low, high = of_a[1]
        yield [(round((low - 10) / 5), round((high - 390) / 5))], [(0, 0)]
        yield [one for band in bands if band is not of_a for one in set(band)], [(of_b, of_b)]
        yield (drawn(stability))[1:2], [tau]


def of_study(_: Figures) -> Iterator[tuple[list[Interval], list[Interval]]]:
    """Those of the frames; and these are percentiles of τ as SciPy computes it, of methods drawn with replacement."""
    table = study_runs()
    study = Study.of(table, "the runs", least=80.0)
    for figure in study_figures.figures(study, TEXT_WIDTH):
        has_intervals = figure.name.startswith("correlation")
        yield drawn(figure.figure), figure.frame[["low", "high"]].dropna().to_numpy() if has_intervals else []

    means = table.groupby(["partition", "participation", "method"], sort=False)[["lambda_max", "test_accuracy"]].mean()
    settings = [values.to_numpy() for _, values in means.groupby(["partition", "participation"], sort=False)]
    copies = Clusters.drawn(len(settings[0]), 1).methods.astype(int)
    taus = [
        statistics.fmean(kendalltau(*np.repeat(values, count, axis=0).T).statistic for values in settings)
        for count in copies
    ]
    [row] = study.rows(
        study.correlations,
        runs=EVERY, result="test_accuracy", measure="lambda_max", level="between", setting=POOLED, given="",
    ).to_dict("records")  # fmt: skip
    first, *rest = taus
    assert row["tau"] == pytest.approx(first)
    yield [(row["low"], row["high"])], [np.sort(rest)[[25, 974]]]


CASES: dict[str, Case] = {
    "kinds.clients": of_clients,
    "kinds.corruptions": of_corruptions,
    "kinds.client_eigenvalues": of_client_eigenvalues,
    "kinds.density": of_density,
    "kinds.eigenvalues": of_eigenvalues,
    "kinds.drift": of_drift,
    "kinds.perturbation": of_perturbation,
    "kinds.sharpness": of_sharpness,
    "kinds.interpolation": of_interpolation,
    "kinds.convergence": of_rounds("convergence"),
    "kinds.cost": of_costs,
    "kinds.curves": of_rounds("curves"),
    "kinds.differences": of_differences,
    "kinds.sweep": of_sweep,
    "report.differences": of_paired_differences,
    "report.ranks": of_ranks,
    "study.figures": of_study,
    "tuning.figures": lambda on: itertools.chain(of_tuning(on), of_budgets(on)),
}
"""By module, without the package of figures or comparisons."""


def _short(module: str) -> str:
    return module.removeprefix("fedflat.analysis.").removeprefix("figures.").removeprefix("comparison.")


@pytest.mark.parametrize("module", CASES)
def test_a_figure_draws_the_intervals_of_its_values(module: str, tmp_path: Path) -> None:
    for found, expected in CASES[module](Figures(tmp_path)):
        agree(found, expected)


def test_all_code_that_draws_intervals_belongs_to_a_figure_with_a_case() -> None:
    code = Code(analysis="fedflat.analysis")
    assert {_short(module) for module in code.figures} == set(CASES)
    assert {module for module, _ in code.direct} <= {*code.figures, *code.used}
