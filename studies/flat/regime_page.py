"""The regime of runs in words and as a table: the first part of a benchmark's page."""

from collections.abc import Iterator

import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.report_table import ReportTable, number
from fedflat.analysis.comparison.run_table import TUNED
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.measures.fitting import FITTED
from fedflat.bench.experiments.address import Setting
from studies.flat.ends import NEAR, searched_values
from studies.flat.regime import NEARLY, Regime


def regime_words(regime: Regime) -> Iterator[str]:
    """Whether runs fit their data, what follows from their training accuracy, and how far results and gaps spread."""
    for variant, rows in regime.settings.groupby("variant", sort=False):
        name = str(variant).capitalize()
        test, gap = regime.deviations(str(variant))
        low, high = rows["r2"].min(), rows["r2"].max()
        yield (
            f"{name} values: in each setting, R² of the test accuracy on the training accuracy, over methods, is "
            f"{_range(low, high, '.3f')}. Over the methods, test accuracies have a standard deviation of "
            f"{number(test, '.1f')} points, and gaps between training and test accuracy one of {number(gap, '.2f')}."
        )
        yield (
            f"{name} values: {rows['fitted'].sum()} of {rows['methods'].sum()} cells are fitted, with a mean training "
            f"accuracy of at least {FITTED:g} %; {rows['nearly'].sum()} have at least {NEARLY:g} %."
        )


def search_words(runs: pd.DataFrame, most: int = 4) -> Iterator[str]:
    """How few trials the winners of a search are, and how many are at an end of a range; nothing without tuned runs.

    All methods have the rates of the same draws, so that a local rate stands for a trial.
    """
    values = searched_values(runs[runs["variant"] == TUNED])
    if values.empty:
        return
    cells = values.assign(at_end=values["end"] != "").groupby([*SETTING, "method"])["at_end"].any()
    rates = values.loc[values["name"] == "lr", "value"].value_counts()
    named = ", ".join(f"{rate:g}" for rate in rates.index[:most])
    yield (
        f"The search: {rates.iloc[:most].sum()} of {len(cells)} winners have one of {most} learning rates ({named}), "
        f"and so one of {most} trials, because trial k of each method has the same rates. {int(cells.sum())} winners "
        f"lie within {100 * NEAR:g} % of the end of a range."
    )


def regime_table(regime: Regime) -> ReportTable:
    """One row per setting and variant."""
    frame = regime.settings
    rows = [
        (
            f"{setting_title(Setting(*(row[key] for key in SETTING)))}, {row['variant']}",
            str(row["methods"]),
            number(row["r2"], ".3f"),
            number(row["test_deviation"], ".1f"),
            number(row["gap_deviation"], ".1f"),
            f"{number(row['train_low'], '.1f')} to {number(row['train_high'], '.1f')}",
            str(row["nearly"]),
            str(row["fitted"]),
        )
        for row in frame.to_dict("records")
    ]
    header = (
        "setting, values", "methods", "R²", "deviation of test accuracy", "deviation of gap", "training accuracy (%)",
        f"methods with {NEARLY:g} %", f"fitted ({FITTED:g} %)",
    )  # fmt: skip
    caption = Caption.of(
        "Do results follow the training accuracy?",
        "R² of the test accuracy on the training accuracy over methods, standard deviations over methods in points, "
        "and the training accuracies.",
        ["All values are of the methods' means over their seeds.", "Gap: training accuracy − test accuracy."],
    )
    return ReportTable("regime", caption, header, tuple(rows), frame, report="regime")


def _range(low: float, high: float, form: str) -> str:
    one, other = number(low, form), number(high, form)
    return one if one == other else f"{one} to {other}"
