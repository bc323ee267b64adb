"""The columns of metrics.csv in words: those of metrics on each subset, and what rounds measure without evaluation."""

import re

from fedflat.bench.metrics import known_metrics
from fedflat.bench.metrics.quantity import Quantity

SUBSETS = {
    "test": "test",
    "train": "training",
    "validation": "validation",
    "train_true": "training, on true labels,",
}
"""By the beginning of a column's name, the words that say on which samples a model is evaluated."""

_PARTS = {"seen": " of seen domains", "unseen": " of unseen domains"}
"""Parts of the test samples in words; others are named."""

_NAME = (
    rf"(?P<subset>{'|'.join(sorted(SUBSETS, key=len, reverse=True))})_"
    r"(?P<metric>{metrics})(?:_(?P<part>[a-z0-9_]+))?"
)


def score_words(column: str) -> str:
    """A column of a metric in words, without its unit: test accuracy, or test mIoU."""
    found = metric_column(column)
    return column if found is None else found.title


def metric_column(name: str) -> Quantity | None:
    """The column of a metric, such as test_accuracy, or test_miou_seen of a part of the samples; else None."""
    metrics = known_metrics()
    if not (found := re.fullmatch(_NAME.format(metrics="|".join(sorted(metrics, key=len, reverse=True))), name)):
        return None
    metric, subset, part = metrics[found["metric"]], SUBSETS[found["subset"]], found["part"]
    title = f"{subset} {metric.title}" + (_PARTS.get(part, f", {part}") if part else "")
    return Quantity(title, metric.better, metric.unit)
