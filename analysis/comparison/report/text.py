"""The text that `fedflat compare` prints: the verdict, the main table, and notes."""

import textwrap

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.report.tables import (
    ablation_table,
    metric_table,
    own_metrics,
    verdict_header,
    verdict_rows,
    verdict_table,
)
from fedflat.analysis.comparison.report.words import about, of_setting, verdict
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.files.text_table import aligned

WIDTH = 110
"""Characters per line of sentences and notes."""


def as_text(comparison: Comparison, by_setting: bool) -> str:
    """The verdict, the table over all settings and, if requested, one per setting; then notes."""
    table = verdict_table(comparison)
    parts = ["\n".join(map(_filled, verdict(comparison))), f"{_filled(table.caption.text)}\n{table.text()}"]
    several, judged = len(comparison.scores.settings) > 1, comparison.scores.is_judged
    if several and not by_setting and judged:
        lines = [f"{setting_title(setting)}: {of_setting(comparison, setting)}" for setting in comparison.by_setting]
        parts.append("\n".join(lines))
    if several and by_setting:
        for setting, of_one in comparison.by_setting.items():
            rows = [verdict_header(comparison), *verdict_rows(comparison, of_one)]
            words = f": {of_setting(comparison, setting)}" if judged else ""
            columns = aligned(rows, right=range(1, len(rows[0])))
            parts.append("\n".join([f"{setting.path}{words}", *columns]))
    if comparison.ablation is not None:
        ablation = ablation_table(comparison.ablation)
        sentences = [f"{ablation.caption.title}. {ablation.caption.text}", *ablation.caption.notes]
        parts.append("\n".join([*map(_filled, sentences), ablation.text()]))
    if own_metrics(comparison):
        metrics = metric_table(comparison)
        sentences = [f"{metrics.caption.title}. {metrics.caption.text}", *metrics.caption.notes]
        parts.append("\n".join([*map(_filled, sentences), metrics.text()]))
    parts.append("\n".join(_filled(note) for note in (*table.caption.notes, *about(comparison))))
    return "\n\n".join(parts)


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")
