"""Captions of tables and figures, and the sentences that they share: what was computed, how, and by which code."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedflat.analysis.analyses.base import Analysis, OfEigenvalues
from fedflat.analysis.analyses.provenance import analysis_fingerprint
from fedflat.analysis.layouts.searched import is_searched
from fedflat.analysis.layouts.titles import entry_titles, method_titles
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.measures.curvature.hessian import Estimator
from fedflat.analysis.measures.forward_passes import DIFFERENCES
from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.digit_scenes import STAND_IN_CLIENTS
from fedflat.bench.experiments.address import RUN_IDS, CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import RUN_FILES
from fedflat.bench.experiments.sections.scale import (
    CLIENTS,
    RATE,
    buffer_mode,
    has_domains,
    starts_trained,
    trained_at_smoke_scale,
)
from fedflat.bench.experiments.sections.tuning import judged_images
from fedflat.bench.training.code_version import code_fingerprint

_MOST_WORDS = 4
"""Definitions that differ in more words than this are not merged."""


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-ZΑ-Ω])")


@dataclass(frozen=True)
class Caption:
    """A title, one or two sentences on what is shown, and notes for below the table or figure."""

    title: str
    text: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, described: str, notes: Iterable[str], *, smoke: str = "") -> "Caption":
        """The first sentence of what a layout describes, after that of `smoke` scale; all other sentences are notes.

        No sentence occurs twice.
        """
        shown = [sentences[0] for text in (smoke, described) if (sentences := _sentences(text))]
        others = [sentence for text in (described, smoke) for sentence in _sentences(text)[1:]]
        parts = dict.fromkeys(sentence for note in (*others, *notes) for sentence in _sentences(note))
        return cls(title, " ".join(shown), tuple(part for part in parts if part not in shown))

    @property
    def whole(self) -> str:
        """The title and the sentences, for places that show no heading."""
        return f"{self.title}. {self.text}".strip()


def _sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def definition(rows: pd.DataFrame, file: str) -> str:
    """The definitions of the values in rows of a tidy file, from its column `definition`; empty if it has none.

    Definitions that differ in one place are merged: 5 or 7 draws. Parts between semicolons that two definitions share
    are named once.
    """
    found = [str(text) for text in rows["definition"].dropna().unique()] if "definition" in rows else []
    if len(found) <= 1:
        return "".join(found)
    texts = [text.split() for text in found]
    shortest = min(map(len, texts))
    start = _equal(texts)
    end = min(_equal([text[::-1] for text in texts]), shortest - start)
    differing = [" ".join(text[start : len(text) - end]) for text in texts]
    if all(differing) and max(len(text) for text in texts) - start - end <= _MOST_WORDS:
        either = f"{', '.join(differing[:-1])} or {differing[-1]}"
        return " ".join([*texts[0][:start], either, *texts[0][len(texts[0]) - end :]])
    if len(found) == 2:
        first, second = (text.split("; ") for text in found)
        shared = [part for part in first if part in second]
        own = ["; ".join(part for part in parts if part not in shared) for parts in (first, second)]
        return "; ".join([" or: ".join(own), *shared]) if all(own) else " or: ".join(found)
    return f"{len(found)} definitions, see the column definition of the files {file}.csv"


def _equal(texts: Sequence[Sequence[str]]) -> int:
    """The number of first words that all texts share."""
    return sum(1 for _ in itertools.takewhile(lambda words: len(set(words)) == 1, zip(*texts, strict=False)))


def smoke_scale(experiment: Experiment, cells: Iterable[CellAddress], *, shortens: bool) -> str:
    """What smoke scale replaces in these cells; empty at the paper's scale.

    `shortens`: whether means over several evaluations, or distances between points, are shown.
    """
    if experiment.scale == "paper":
        return ""
    shown = tuple(cells)
    settings = {cell.setting for cell in shown}
    parts = [experiment.resolved_parts[setting.dataset] for setting in settings]
    splits = {setting.partition.partition("-")[0] for setting in settings}
    clients = (re.search(r"-of-(\d+)$", setting.participation) for setting in settings)
    domains = any(has_domains(parse_source(part.dataset)) for part in parts)
    scenes = any(parse_source(part.dataset).label_maps for part in parts)
    most = STAND_IN_CLIENTS if scenes else CLIENTS
    digits = "few rounds of a small network on scikit-learn's digits replace the data and models named here"
    sentences = {
        f"Smoke scale: {digits}.": True,
        f"There are at most {most} clients.": any(found and int(found[1]) > most for found in clients),
        "Crops and flips are left out.": any(part.training.augmentation for part in parts) and not scenes,
        "Scenes of two digits with labels of pixels replace the images; flips are left out.": scenes,
        f"Weights are random at the start, instead of trained ones, and the local rate is at least {RATE:g}.": any(
            starts_trained(part.model) for part in parts
        ),
        "The small network has BatchNorm, whose statistics are averaged, or stay with the clients, like the paper's.": (
            scenes and any(buffer_mode(part.model) is not None for part in parts)
        ),
        "Digits in several styles, such as rotated and blurred ones, replace the domains.": domains,
        "Heterogeneous clients have scenes of one domain each, uniform ones scenes of all domains.": scenes
        and "by_group" in splits,
        **{
            kind.at_smoke_scale: True
            for name, kind in PARTITIONS.items()
            if name in splits and not (name == "by_group" and (domains or scenes))
        },
        "SWA begins after half of the rounds.": any(
            "swa" in experiment.methods[c.method].hyperparameters for c in shown
        ),
        "Means over evaluations, and distances between points, span fewer rounds than in the paper.": shortens,
        "More in docs/papers.md.": True,
    }
    return " ".join(sentence for sentence, is_so in sentences.items() if is_so)


def other_training_settings(experiment: Experiment, methods: Sequence[str], runs: str = "") -> Iterator[str]:
    """A sentence if methods override fields of `training`, such as the learning rate. `runs`: of which runs, in words.

    Methods are separated by semicolons, because a method may override several fields. Swept fields are those of a title
    or of an axis, and are left out; methods of a sweep are named once.
    """
    names, differing = entry_titles(experiment, methods), dict[str, None]()
    for method in methods:
        own, swept = experiment.methods[method].training, experiment.swept.get(method)
        if experiment.scale == "smoke":
            own = trained_at_smoke_scale(own)
        if swept is not None:
            own = {key: value for key, value in own.items() if key not in swept.values["training"]}
        if own:
            name = names[method if swept is None else swept.base]
            differing[f"{name} ({', '.join(f'{key} {_shown(value)}' for key, value in own.items())})"] = None
    if differing:
        of_runs = f", in {runs}" if runs else ""
        yield f"Methods with training settings of their own{of_runs}: {'; '.join(differing)}."


def tuned_values(experiment: Experiment, methods: Sequence[str]) -> Iterator[str]:
    """Sentences that say what `fedflat tune` has searched, and which of the methods it has not; none if it has not run.

    The ranges themselves are in the experiment's file.
    """
    if (tuned := experiment.tuned) is None:
        return
    searched = [method for method in methods if method in tuned.ranges]
    if searched:
        names = dict.fromkeys(name for method in searched for name in tuned.ranges[method])
        yield (
            f"Tuned with {tuned.trials} trials for each method and setting: {', '.join(names)}; score: {tuned.score}, "
            f"on {judged_images(tuned.validation)}."
        )
    titles = method_titles(experiment, methods)
    if others := [titles[method] for method in methods if method not in tuned.ranges]:
        yield f"Not tuned: {', '.join(others)}."
    partly = {cell.method for cell in experiment.addresses if not is_searched(experiment, cell)}
    if some := [titles[method] for method in searched if method in partly]:
        yield f"Not tuned in some settings: {', '.join(some)}."
    if kept := [titles[method] for method in methods if method in tuned.untuned]:
        yield f"In some settings all trials failed, and the values are not tuned: {', '.join(kept)}."


def _shown(value: Any) -> str:
    """A value in words: items of a list are joined by +, and options follow a name."""
    if isinstance(value, list | tuple):
        return " + ".join(map(_shown, value))
    if isinstance(value, Mapping):
        return " ".join(str(part) if key == "name" else f"{key} {_shown(part)}" for key, part in value.items())
    return str(value)


def reported_as(finals: Mapping[str, FinalValue], rounds: str = "") -> str:
    """The reported value of most methods, and those of the others by name. `rounds`: the last round, in words."""
    usual = Counter(finals.values()).most_common(1)[0][0]
    others = [f"{method}: {final.description}" for method, final in finals.items() if final != usual]
    return "; ".join([f"{usual.description}{rounds}", *others])


def less_exact(frames: Mapping[str, pd.DataFrame], analyses: Mapping[str, Analysis]) -> Iterator[str]:
    """A sentence for each kind of tidy file that has eigenvalues less exact than the requested tolerance."""
    for file, frame in frames.items():
        analysis = analyses.get(file)
        flags = frame["converged"] if "converged" in frame else pd.Series(dtype=float)
        if "metric" in frame:
            flags = frame.loc[frame["metric"] == "lambda_converged", "value"]
        failed = int((flags == 0).sum())
        if failed and isinstance(analysis, OfEigenvalues):
            inexact = f"its eigenvalues may be off by more than {100 * analysis.tolerance:g} %"
            yield f"{failed} of {len(flags)} results: {_STOPS[analysis.estimator]}, so {inexact}."


_STOPS: Mapping[Estimator, str] = {
    "lanczos": "Lanczos stopped at its limit of steps",
    "power": "power iteration stopped at its limit of steps",
    "pyhessian": "PyHessian stopped by its own rule",
}


def computed_in_bf16(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A sentence for each kind of tidy file that was computed in bf16: how far it differs from fp32."""
    for file, frame in frames.items():
        checked = frame.reindex(columns=DIFFERENCES).dropna()
        if not checked.empty:
            points, loss, relative, error = checked.max()
            yield (
                f"{file} was computed in bf16: at {points:g} points of each run it differs from fp32 by at most "
                f"{loss:.2g} in the loss (relatively {100 * relative:.2g} %) and {error:.2g} percentage points in the "
                "error."
            )


def computed_by_other_code(
    frames: Mapping[str, pd.DataFrame], analyses: Mapping[str, Analysis], experiment: Experiment
) -> Iterator[str]:
    """A sentence that says which tidy files were partly computed by another version of the code, of which methods."""
    titles, found = method_titles(experiment), defaultdict[str, list[str]](list)
    for file, frame in frames.items():
        if "code" in frame:
            of_runs = file in RUN_FILES
            here = code_fingerprint() if of_runs else analysis_fingerprint(analyses[file].name)
            runs = frame.drop_duplicates(RUN_IDS)
            old = runs[runs["code"] != here]
            if not old.empty:
                methods = {*old["method"]}
                some = ", ".join(title for method, title in titles.items() if method in methods)
                named = f" ({some})" if methods < {*runs["method"]} else ""
                count = f"{len(old)} of {len(runs)} {'runs' if of_runs else 'results'}{named}"
                found[count] += [] if of_runs else [file]
    if found:
        parts = (f"{count} of {', '.join(files)}" if files else count for count, files in found.items())
        yield f"{'; '.join(parts)} were computed by another version of the code."
