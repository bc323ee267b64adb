"""Finds the tensors that are stored already, so that the files of a folder store equal ones once."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.tensor_file import checksum_of, open_tensors, same_bits

Place = tuple[str, str]
"""The name of a file in the folder, and the name of a tensor in it."""

Read = Callable[[], Tensor]

SMALLEST = 1024
"""Bytes of the smallest tensor that is looked for: the place of a smaller one may take as much room as the tensor."""

CPU = torch.device("cpu")


def repeated(file: Path, tensors: Iterable[tuple[str, Read]], earlier: Sequence[Path]) -> dict[str, Place]:
    """The tensors that need not be written to `file`, by name, each with the place of an equal one.

    This is an earlier one of `tensors`, or one in a file of `earlier`, in the same folder. Damaged files are ignored.
    """
    known: dict[str, list[tuple[Place, Read]]] = defaultdict(list)
    places: dict[str, Place] = {}
    with ExitStack() as files:
        for other in earlier:
            with suppress(DamagedFileError):
                stored = files.enter_context(open_tensors(other, "it is ignored"))
                for name, checksum in sorted(stored.checksums.items()):
                    known[checksum].append(((other.name, name), partial(stored.read, name, CPU)))
        for name, read in tensors:
            if (v := read()).nbytes < SMALLEST:
                continue
            candidates = known[checksum_of(v)]
            place = next((place for place, read_other in candidates if _is_equal(read_other, v)), None)
            if place is None:
                candidates.append(((file.name, name), read))
            else:
                places[name] = place
    return places


def _is_equal(read: Read, v: Tensor) -> bool:
    """Whether the tensors are equal: their checksums may be equal by chance. One that is damaged equals none."""
    try:
        return same_bits(read(), v)
    except ValueError:
        return False
