"""Sentences that captions of tables and figures share: what was computed, how, and by which code."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.analyses.base import Analysis
from analysis.analyses.provenance import analysis_fingerprint
from analysis.layouts.titles import method_titles
from bench.experiments.address import RUN_IDS
from bench.experiments.experiment import Experiment
from bench.experiments.results import RUN_FILES
from bench.experiments.scale import trained_at_smoke_scale
from bench.training.code_version import code_fingerprint

_LISTED = 2
"""If rows have more definitions than this, the caption only names the column with the definitions."""


def definition(rows: pd.DataFrame, file: str) -> str:
    """The definitions of the values in rows of a tidy file, from its column `definition`; empty if it has none."""
    found = [str(text) for text in rows["definition"].dropna().unique()] if "definition" in rows else []
    return " or: ".join(found) if len(found) <= _LISTED else f"see the column definition of the files {file}.csv"


def other_training_settings(experiment: Experiment, methods: Sequence[str], runs: str = "") -> Iterator[str]:
    """A sentence if methods override fields of `training`, such as the learning rate. `runs`: which runs, in words."""
    names, differing = method_titles(experiment, methods), []
    for method in methods:
        own = experiment.methods[method].training
        if experiment.scale == "smoke":
            own = trained_at_smoke_scale(own)
        if own:
            differing.append(f"{names[method]} ({', '.join(f'{key} {_shown(value)}' for key, value in own.items())})")
    if differing:
        yield f"Other training settings{f' of {runs}' if runs else ''}: {', '.join(differing)}."


def _shown(value: Any) -> str:
    """A value in words: items of a list are joined by +, and options follow a name."""
    if isinstance(value, list | tuple):
        return " + ".join(map(_shown, value))
    if isinstance(value, Mapping):
        return " ".join(str(part) if key == "name" else f"{key} {_shown(part)}" for key, part in value.items())
    return str(value)


def less_exact(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A sentence for each kind of tidy file that has eigenvalues less exact than the requested tolerance."""
    for file, frame in frames.items():
        flags = frame["converged"] if "converged" in frame else pd.Series(dtype=float)
        if "metric" in frame:
            flags = frame.loc[frame["metric"] == "lambda_converged", "value"]
        if failed := int((flags == 0).sum()):
            yield f"{failed} of {len(flags)} results of {file} have residuals above their tolerance."


def computed_by_other_code(frames: Mapping[str, pd.DataFrame], analyses: Mapping[str, Analysis]) -> Iterator[str]:
    """A sentence for each kind of tidy file that was partly computed by another version of the code."""
    for file, frame in frames.items():
        if "code" in frame:
            here = code_fingerprint() if file in RUN_FILES else analysis_fingerprint(analyses[file].name)
            runs = frame.drop_duplicates(RUN_IDS)
            if old := int((runs["code"] != here).sum()):
                what = "runs" if file in RUN_FILES else f"results of {file}"
                yield f"{old} of {len(runs)} {what} were computed by another version of the code."
