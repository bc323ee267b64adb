"""Upper bounds of numbers, names and lists in users' input, each with its reason; lower bounds are at the fields."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

MOST = 1_000_000
"""Rounds, clients, steps and other numbers of repetitions: a run holds lists with an entry for each round and client. A
hundred times the longest training in the papers, and ten times the largest federation that was measured."""

MOST_IMAGES = 2**31 - 1
"""Numbers of images, and so mini-batch sizes: libraries count them in 32 or 64 bits."""

MOST_POINTS = 1001
"""Points per direction of a plane: the loss is computed at the square of this number."""

MOST_ENTRIES = 1000
"""Entries of a list, such as seeds, radii or partitions, each of which costs a run or a computation."""

MOST_COLUMNS = 20
"""Panels side by side in a figure."""

MOST_RUNS = 100_000
"""Runs of an experiment, which are configured before the first one begins: this takes minutes."""

LARGEST_SEED = 2**63 - 1
"""Tables store seeds as 64-bit numbers."""

LONGEST_NAME = 100
"""Letters of names and labels: they become names of files, with endings, and file systems allow 255 bytes."""

LONGEST = 1e12
"""Lengths in the space of models: their squares and products are finite in float32."""

Count = Annotated[int, Field(ge=1, le=MOST)]
Images = Annotated[int, Field(ge=1, le=MOST_IMAGES)]
Points = Annotated[int, Field(ge=2, le=MOST_POINTS)]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Length = Annotated[float, Field(gt=0, le=LONGEST)]
Positive = Annotated[float, Field(gt=0)]
Columns = Annotated[int, Field(ge=1, le=MOST_COLUMNS)]


def _all_is(value: int | None, schema: object) -> BeforeValidator:
    """The word `all` for this value."""
    return BeforeValidator(lambda given: value if given == "all" else given, json_schema_input_type=schema)


ALL_IS_NULL = _all_is(None, int | list[int] | Literal["all"] | None)
"""Marks a field of which null means all: the word `all` is accepted, too."""

ALL_IS_MOST = _all_is(MOST_IMAGES, int | Literal["all"] | None)
"""Marks a number of images of which more than there are mean all of them: the word `all` is accepted, too."""
