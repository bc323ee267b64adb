"""How an analysis was made, as every row of its tidy file tells: options, runs beside it, code."""

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from bench.records import code_fingerprint

MADE = ("options", "beside", "code")
"""Those columns: all options, the identities of the runs beside, and the code's fingerprint."""


@functools.cache
def analysis_fingerprint() -> str:
    """A fingerprint of the code that numbers come from: bench/ and analysis/ without its figures; 16 hex digits."""
    own = code_fingerprint(Path(__file__).parent, without="figures")
    return hashlib.sha256(f"{code_fingerprint()} {own}".encode()).hexdigest()[:16]


def in_words(pairs: Iterable[tuple[str, str]]) -> str:
    """Options, or identities of runs by method: for example 'data="train"; images=500'."""
    return "; ".join(f"{name}={value}" for name, value in pairs)


def first_difference(there: str, here: str) -> str:
    """The first part in which two of these texts differ, as 'images=500 there, images=null here'."""
    a, b = there.split("; "), here.split("; ")
    only = [next((part for part in one if part not in other), "nothing") for one, other in ((a, b), (b, a))]
    return f"{only[0]} there, {only[1]} here"
