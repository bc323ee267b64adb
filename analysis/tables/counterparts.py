"""What a layout says about the published counterparts of its entries: their keys, readings, and quotations."""

from pydantic import Field, field_validator

from fedflat.analysis.published.numbers import KEYS, papers
from fedflat.analysis.published.transcript import statements
from fedflat.bench.input.errors import unknown
from fedflat.bench.input.frozen import Frozen

Keys = dict[str, str | int | tuple[str, ...] | None]
"""Keys of published numbers; where a key has several values, any of them fits; null fits every value."""

Place = tuple[int, str, int]
"""An entry: the index of its block, the label of its method, and the index of its column."""

_KEYS = {*KEYS} - {"paper", "table"}

_SECTIONS = ("dataset", "model", "partition", "participation", "hyperparameters", "training")
"""What decides which experiment a run is."""


def checked_keys(keys: Keys, *others: str) -> Keys:
    """The same keys; a `UserError` suggests the nearest for an unknown one. `others` are allowed, too."""
    for key in keys:
        if key not in _KEYS.union(others):
            raise unknown("key of published numbers", key, _KEYS.union(others))
    return keys


class Reading(Frozen):
    """Columns that are compared with numbers of other columns a second time: with runs in another setting than the
    printed one, with another choice where the paper says nothing, or with another measurement of the same runs.

    They are judged, but never counted with the paper's own setting.
    """

    title: str = Field(description="the reading in words")
    departs: tuple[str, ...] = Field(
        default=(), description="keys in which the runs depart from the paper on purpose, such as partition.alpha"
    )
    unstated: tuple[str, ...] = Field(
        default=(), description="keys about which the paper says nothing, and for which the runs have another value"
    )

    @field_validator("departs")
    @classmethod
    def _stated(cls, departs: tuple[str, ...]) -> tuple[str, ...]:
        known = {one.key for paper in papers() for one in statements(paper)}
        for key in departs:
            if key not in known:
                raise unknown("key of the papers' transcripts", key, known)
        return departs

    @field_validator("unstated")
    @classmethod
    def _of_runs(cls, unstated: tuple[str, ...]) -> tuple[str, ...]:
        for key in unstated:
            if (section := key.partition(".")[0]) not in _SECTIONS:
                raise unknown("section of a run", section, _SECTIONS)
        return unstated


class Quoted(Frozen):
    """Another paper whose numbers the table quotes. Runs of that paper's experiment stand for the numbers that have the
    note `quoted`."""

    paper: str = Field(description="the quoted paper, such as fedgf")
    table: str = Field(description="number of its table")
    parts: dict[str, str] = Field(
        min_length=1,
        description="by label of a part of the table's experiment, that of the other experiment; partition, "
        "participation and method have the same labels in both",
    )
