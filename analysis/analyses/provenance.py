"""How an analysis was computed, as every row of its tidy file states it: options, compared runs, code."""

import functools
from collections.abc import Iterable
from pathlib import Path

from fedflat.bench.experiments.address import IDS
from fedflat.bench.input.content import named_contents, short_hash
from fedflat.bench.training.code_version import code_fingerprint

PROVENANCE_COLUMNS = ("options", "compared_with", "code")
"""All options, the identities of the runs that the run was compared with, and the code's fingerprint."""

TRAININGS = "compared_trainings"
"""A column of stored analyses that compare runs: the trainings of these runs, which are other ones after a run was
trained again."""

TEXT_COLUMNS = (
    *IDS, "identity", "definition", *PROVENANCE_COLUMNS, TRAININGS,
    "class_name", "corruption", "data", "direction", "group", "labels", "metric", "model", "part", "picture",
    "predicted", "suite", "target_of",
)  # fmt: skip
"""The columns of tidy files that contain text: even a hash or a label may look like a number. All others contain
numbers."""

_PACKAGE = Path(__file__).parents[1]


@functools.cache
def analysis_fingerprint(name: str) -> str:
    """A fingerprint of the code that computes an analysis, 16 hex digits.

    It covers bench/, the measures, and the analysis with the other modules of its folder: not the analyses of other
    folders, tables or figures.
    """
    own = [file.parent for file in _PACKAGE.glob(f"analyses/*/{name}.py")]
    folders = (_PACKAGE / "measures", _PACKAGE / "analyses", *own)
    sources = (part for folder in folders for part in named_contents(folder.glob("*.py"), _PACKAGE))
    return short_hash(code_fingerprint(), *sources)


def name_value_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Options, or identities of runs by method, as one text: for example 'data="train"; images=500'."""
    return "; ".join(f"{name}={value}" for name, value in pairs)


def first_differing_option(there: str, here: str) -> str | None:
    """The first pair in which two texts of `name_value_pairs` differ; None if they agree.

    For example 'images=500 there, images=null here'.
    """
    a, b = there.split("; "), here.split("; ")
    if sorted(a) == sorted(b):
        return None
    only = [next((pair for pair in one if pair not in other), "nothing") for one, other in ((a, b), (b, a))]
    return f"{only[0]} there, {only[1]} here"
