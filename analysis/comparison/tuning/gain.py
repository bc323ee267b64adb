"""What tuning gains: the untuned and the tuned runs of each method, paired by setting and seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from scipy.stats import kendalltau

from fedflat.analysis.comparison.comparable import PAIR
from fedflat.analysis.comparison.run_table import TUNED, UNTUNED
from fedflat.analysis.comparison.statistics.ranking import ranked
from fedflat.analysis.comparison.statistics.scores import Floats, Scores
from fedflat.analysis.comparison.statistics.verdicts import corrected_by_setting, corrected_p, verdict
from fedflat.analysis.measures.paired import interval
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.input.errors import UserError, first_few

METRIC = "test_accuracy"
ALL = "all"
"""The settings, in the columns of a frame, of a row over all of them."""


@dataclass(frozen=True)
class Gain:
    """`table`: one row per setting and method, first those over all settings; best tuned methods first.

    Its columns: mean, interval, rank and interval of the rank, all of them `_untuned` and `_tuned`; `gain` with its
    interval, p-value (corrected for the number of methods; in single settings, for methods and settings together) and
    verdict; runs without a value. `kept`: in how many of the `cells` the search has found nothing better than the
    untuned values.
    """

    table: pd.DataFrame
    settings: tuple[Setting, ...]
    seeds: int
    trials: tuple[int, ...]
    titles: dict[str, str]
    report: str
    cells: int
    kept: int
    notes: tuple[str, ...]

    @classmethod
    def of(cls, runs: pd.DataFrame, where: str) -> "Gain":
        """The gain of tuning in comparable runs, as `run_table` has them.

        A `UserError` that names the place of the runs if no method has untuned and tuned runs.
        """
        rows, notes = _paired(runs, where)
        scores = dict(_scores(rows))
        settings = scores[TUNED].settings
        gains = scores[TUNED].values - scores[UNTUNED].values
        in_settings = corrected_by_setting(gains, scores[TUNED])
        parts: dict[Setting | None, tuple[dict[str, Scores], Floats]] = {
            None: (scores, corrected_p(gains.mean(axis=1).T, scores[TUNED]))
        }
        for k, setting in enumerate(settings):
            of_setting = {name: one.of_setting(setting) for name, one in scores.items()}
            parts[setting] = (of_setting, in_settings[:, k])
        named = rows.drop_duplicates("method")
        return cls(
            pd.concat([_table(setting, *part) for setting, part in parts.items()], ignore_index=True),
            settings,
            len(scores[TUNED].seeds),
            tuple(sorted(set(rows.loc[rows["variant"] == TUNED, "trials"]))),
            dict(zip(named["method"], named["title"], strict=True)),
            str(rows["report"].iloc[0]),
            *_kept(rows),
            tuple(notes),
        )

    def of_setting(self, setting: Setting | None = None) -> pd.DataFrame:
        """The rows of a setting; None: those over all settings."""
        names = columns_of(setting)
        return self.table[(self.table[IDS[:3]] == list(names.values())).all(axis=1)]

    def tau(self, setting: Setting | None = None) -> float:
        """Kendall's τ_b of the untuned and the tuned ranking; NaN for fewer than two methods."""
        rows = self.of_setting(setting)
        if len(rows) < 2:
            return math.nan
        return float(kendalltau(rows["rank_untuned"], rows["rank_tuned"]).statistic)


def columns_of(setting: Setting | None) -> dict[str, str]:
    """The columns that name a setting, or all settings."""
    values = (ALL,) * 3 if setting is None else (setting.dataset, setting.partition, setting.participation)
    return dict(zip(IDS[:3], values, strict=True))


def _paired(runs: pd.DataFrame, where: str) -> tuple[pd.DataFrame, list[str]]:
    """The runs of methods that have all settings and seeds in both variants, and texts that name the others."""
    key = [*PAIR, "method"]
    of_both = [runs.loc[runs["variant"] == variant, key] for variant in (UNTUNED, TUNED)]
    for variant, found in zip((UNTUNED, TUNED), of_both, strict=True):
        if found.empty:
            raise UserError(f"no {variant} runs in {where}")
    both = of_both[0].merge(of_both[1], on=key)
    if both.empty:
        raise UserError(f"no method has untuned and tuned runs of the same setting and seed in {where}")
    settings = len(both.drop_duplicates(IDS[:3]))
    per_seed = both.drop_duplicates(PAIR).groupby("seed").size()
    places = both[both["seed"].isin(per_seed.index[per_seed == settings])]
    most = len(places.drop_duplicates(PAIR))
    counts = both.merge(places[PAIR].drop_duplicates(), on=PAIR).groupby("method").size()
    kept = counts.index[counts == most]
    if kept.empty:
        raise UserError(f"no method has untuned and tuned runs of the same seeds in all settings in {where}")
    names = list(dict.fromkeys(runs["method"]))
    notes = []
    if left_out := [name for name in names if name not in kept]:
        text = f"left out, because they lack untuned or tuned runs of {most} settings and seeds: {first_few(left_out)}"
        notes.append(text)
    chosen = runs[runs["method"].isin(kept)].merge(places[PAIR].drop_duplicates(), on=PAIR)
    return chosen, notes


def _kept(rows: pd.DataFrame) -> tuple[int, int]:
    """The number of cells, and of those whose untuned and tuned runs are the same."""
    same = rows.groupby([*IDS, "seed"])["identity"].nunique().eq(1).groupby(IDS).all()
    return len(same), int(same.sum())


def _scores(rows: pd.DataFrame) -> Iterable[tuple[str, Scores]]:
    """The accuracies of each variant; a run without one counts as the worst of its setting in both variants."""
    together = Scores.of(rows.assign(method=rows["variant"] + " " + rows["method"]), METRIC, "higher")
    methods = tuple(dict.fromkeys(rows["method"]))
    for variant in (UNTUNED, TUNED):
        of_variant = together.of_methods([f"{variant} {method}" for method in methods])
        yield (
            variant,
            Scores(methods, of_variant.settings, of_variant.seeds, of_variant.values, of_variant.missing),
        )


def _table(setting: Setting | None, scores: dict[str, Scores], corrected: Floats) -> pd.DataFrame:
    """The rows of one setting, or over all settings; the unit is the seed, with its mean over the settings.

    `corrected`: the p-values of the gains.
    """
    untuned, tuned = (
        ranked(scores[variant]).set_index("method").add_suffix(f"_{variant}") for variant in (UNTUNED, TUNED)
    )
    gains = (scores[TUNED].values - scores[UNTUNED].values).mean(axis=1)
    rows = []
    for method, gain, p in zip(scores[TUNED].methods, gains, corrected, strict=True):
        low, high = interval(gain)
        found = {"gain": gain.mean(), "gain_low": low, "gain_high": high, "p_corrected": p}
        rows.append({**columns_of(setting), "method": method, **found, "verdict": verdict(low, high, p)})
    table = pd.DataFrame(rows).join(untuned, on="method").join(tuned, on="method")
    return table.sort_values(["rank_tuned", "method"], kind="stable", ignore_index=True)
