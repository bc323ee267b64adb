"""How the best score and the ranking depend on the number of trials, over random orders of the trials.

All methods and settings have the same order: trial k has the same learning rates everywhere, as far as the search
ranges are equal.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from fedflat.analysis.comparison.tuning.gain import columns_of
from fedflat.analysis.measures.best_so_far import Floats, best_so_far, random_orders
from fedflat.analysis.measures.paired import CONFIDENCE
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.input.errors import UserError

ORDERS = 2000
LEAST_METHODS = LEAST_TRIALS = 2
_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class RanksByBudget:
    """`curves`: one row per setting (first: all settings together, if there are several), method and number of trials.

    Its columns: mean over the orders, with the range of 95 % of them, of the best score so far, of its gain over trial
    0, and of the method's rank; `wins`: the share of orders in which no method is better. `stability`: one row per
    setting and number of trials: Kendall's τ_b of the ranking with that after all trials, and the share of orders in
    which the winner is another one.
    """

    curves: pd.DataFrame
    stability: pd.DataFrame
    settings: tuple[Setting, ...]
    titles: dict[str, str]
    about: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, trials: pd.DataFrame) -> "RanksByBudget":
        """The statistics of trials as `collect` gives them; a `UserError` if there are too few."""
        settings = tuple(Setting(*map(str, key)) for key in trials[IDS[:3]].drop_duplicates().to_numpy())
        cells = trials.drop_duplicates(IDS).groupby("method", sort=False).size()
        methods = [str(method) for method in cells.index[cells == len(settings)]]
        if len(methods) < LEAST_METHODS:
            raise UserError(f"{len(methods)} methods have trials in all settings (allowed: at least {LEAST_METHODS})")
        rows = trials[trials["method"].isin(methods)]
        most = int(rows.groupby(IDS).size().max())
        if most < LEAST_TRIALS:
            raise UserError(f"{most} trial of each method (allowed: at least {LEAST_TRIALS})")
        orders = random_orders(most, ORDERS)
        best = np.stack([_best(rows, setting, methods, orders) for setting in settings])
        parts: list[tuple[Setting | None, Floats]] = [(None, best.mean(axis=0))] if len(settings) > 1 else []
        parts += zip(settings, best, strict=True)
        titles = dict(zip(rows["method"], rows["title"], strict=True))
        return cls(
            pd.concat([_curves(setting, part, methods) for setting, part in parts], ignore_index=True),
            pd.concat([_stability(setting, part) for setting, part in parts], ignore_index=True),
            settings,
            titles,
            tuple(_about(rows)),
            tuple(_notes(rows, trials)),
        )

    @property
    def shown(self) -> Setting | None:
        """What tables and figures show: all settings together, or the only one."""
        return None if len(self.settings) > 1 else self.settings[0]

    def curves_of(self, setting: Setting | None) -> pd.DataFrame:
        """The rows of a setting; None: those of all settings together."""
        return _rows_of(self.curves, setting)

    def stability_of(self, setting: Setting | None) -> pd.DataFrame:
        """The rows of a setting; None: those of all settings together."""
        return _rows_of(self.stability, setting)

    @property
    def trials(self) -> int:
        """The largest number of trials of a method."""
        return int(self.curves["trials"].max())

    @property
    def best_first(self) -> list[str]:
        """The methods, the best one after all trials first."""
        rows = self.curves_of(self.shown)
        last = rows[rows["trials"] == self.trials].sort_values("score", ascending=False, kind="stable")
        return [str(method) for method in last["method"]]

    @property
    def numbers(self) -> list[int]:
        """The numbers of trials in tables: powers of two, and the largest number."""
        return sorted({*(2**k for k in range(self.trials.bit_length())), self.trials})


def _rows_of(table: pd.DataFrame, setting: Setting | None) -> pd.DataFrame:
    return table[(table[IDS[:3]] == list(columns_of(setting).values())).all(axis=1)]


def _best(rows: pd.DataFrame, setting: Setting, methods: Iterable[str], orders: np.ndarray) -> Floats:
    """The best scores so far `[methods, orders, trials]`. A failed trial counts as the lowest score of the setting."""
    own = _rows_of(rows, setting).sort_values("trial")
    scores = own["score"].fillna(own["score"].min()).fillna(0.0)
    return np.stack([best_so_far(scores[own["method"] == method], orders) for method in methods])


def _curves(setting: Setting | None, best: Floats, methods: list[str]) -> pd.DataFrame:
    ranks = _ranks(best)
    measured = {"score": best, "gain": best - best[:, :, :1], "rank": ranks}
    columns: dict[str, Floats] = {}
    for name, values in measured.items():
        low, high = np.quantile(values, _ENDS, axis=1, method="inverted_cdf")
        columns |= {name: values.mean(axis=1), f"{name}_low": low, f"{name}_high": high}
    columns["wins"] = _is_best(best).mean(axis=1)
    count, numbers = best.shape[0], np.arange(1, best.shape[2] + 1)
    return pd.DataFrame(
        {
            **columns_of(setting),
            "method": np.repeat(methods, len(numbers)),
            "trials": np.tile(numbers, count),
            **{name: values.ravel() for name, values in columns.items()},
        }
    )


def _stability(setting: Setting | None, best: Floats) -> pd.DataFrame:
    order, is_best = _signs(best[:, 0, -1]), _is_best(best)
    final = is_best[:, :, -1:]
    rows = []
    for n in range(best.shape[2]):
        tau = _tau(_signs(best[:, :, n].T), order)
        low, high = np.quantile(tau, _ENDS, method="inverted_cdf")
        changed = 1 - (is_best[:, :, n : n + 1] & final).any(axis=0).mean()
        found = {"tau": tau.mean(), "tau_low": low, "tau_high": high, "other_winner": changed}
        rows.append({**columns_of(setting), "trials": n + 1, **found})
    return pd.DataFrame(rows)


def _ranks(best: Floats) -> Floats:
    """Ranks of the methods, 1 is best; ties share the mean of their ranks."""
    return np.asarray(rankdata(-best.round(9), axis=0), dtype=float)


def _is_best(best: Floats) -> np.ndarray:
    """Whether no other method is better."""
    rounded = best.round(9)
    return np.asarray(rounded == rounded.max(axis=0))


def _signs(values: Floats) -> Floats:
    """The sign of the difference of each pair of methods `[..., pairs]`; `values` `[..., methods]`."""
    first, second = np.triu_indices(values.shape[-1], k=1)
    return np.sign((values[..., first] - values[..., second]).round(9))


def _tau(signs: Floats, order: Floats) -> Floats:
    """Kendall's τ_b of rankings `[orders, pairs]` with one `[pairs]`; 0 where all methods are tied."""
    untied = np.sqrt((signs**2).sum(axis=-1) * (order**2).sum())
    return np.asarray(np.divide(signs @ order, untied, out=np.zeros(len(signs)), where=untied > 0))


def _about(rows: pd.DataFrame) -> Iterable[str]:
    """What the trials are, in sentences."""
    for key, own in rows.groupby(["experiment", "rounds", "seed", "validation", "scored"], sort=False):
        experiment, rounds, seed, validation, scored = key
        cells, share = len(own.drop_duplicates(IDS)), 100 * float(str(validation))
        yield (
            f"{len(own):,} trials in {cells} cells of experiment {experiment}, each of all {rounds} rounds, seed "
            f"{seed}; score: {scored}, on {share:g} % of the clients' training images."
        )


def _notes(rows: pd.DataFrame, trials: pd.DataFrame) -> Iterable[str]:
    if failed := int(rows["score"].isna().sum()):
        yield f"{failed} trials failed; they count as the lowest score of a trial in their setting."
    counts = rows.groupby(IDS).size()
    if counts.nunique() > 1:
        fewer = list(dict.fromkeys(map(str, counts.index.get_level_values("method")[counts < counts.max()])))
        yield f"Fewer than {counts.max()} trials, because the ranges have fewer values: {', '.join(fewer)}."
    if left_out := sorted({*trials["method"]} - {*rows["method"]}):
        yield f"Left out, because they have no trials in some settings: {', '.join(left_out)}."
