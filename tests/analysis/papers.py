"""The papers' experiments, tables and printed numbers, read once per process: tests only read them."""

from functools import cache
from pathlib import Path

from fedflat.analysis.claims.evidence import Printed
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables


@cache
def requested(paper: str) -> RequestedExperiment:
    """The experiment of a paper, in a folder without results."""
    return RequestedExperiment(paper, Path("none"))


@cache
def tables(paper: str) -> Tables:
    return Tables(requested(paper))


@cache
def printed(paper: str) -> Printed:
    return Printed(paper)
