"""The types within annotations, for tests that go through all fields of configurations."""

from collections.abc import Iterator
from typing import Any


def classes(*annotations: Any) -> Iterator[type]:
    """All classes that annotations mention, at any depth."""
    for annotation in annotations:
        if isinstance(annotation, type):
            yield annotation
        yield from classes(*getattr(annotation, "__args__", ()), *getattr(annotation, "models", ()))
