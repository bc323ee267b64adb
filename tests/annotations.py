"""The types within annotations, for tests that go through all fields of configurations."""

from collections.abc import Iterator
from typing import Any


def classes(*annotations: Any) -> Iterator[type]:
    """All classes that annotations mention, at any depth."""
    for annotation in annotations:
        if isinstance(annotation, type):
            yield annotation
        yield from classes(*getattr(annotation, "__args__", ()), *getattr(annotation, "models", ()))


def classes_below(*models: type) -> list[type]:
    """These configurations, and all classes that their fields mention, at any depth: each once."""
    found = list(dict.fromkeys(models))
    for model in found:  # which grows meanwhile
        for field in getattr(model, "model_fields", {}).values():
            found += (cls for cls in dict.fromkeys(classes(field.annotation, *field.metadata)) if cls not in found)
    return found
