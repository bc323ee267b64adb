"""Names in order of preference: of a list, the first one that an experiment has is taken."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def with_first_known(data: Mapping[str, Any], keys: Iterable[str], known: Collection[str]) -> dict[str, Any]:
    """The data, in which a list under one of these keys is replaced by its first known name; if none is, the first."""
    lists = {key: given for key in keys if isinstance(given := data.get(key), list) and given}
    return {**data, **{key: next((name for name in given if name in known), given[0]) for key, given in lists.items()}}
