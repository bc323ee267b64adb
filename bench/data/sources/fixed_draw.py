"""Small training sets: a fixed draw of as many samples of each class, and others on which searches are judged."""

import numpy as np

from fedflat.bench.data.dataset import Labels
from fedflat.bench.numerics.streams import numpy_stream


def divided(labels: Labels, trained: int, stream: str, judging: int | None = None) -> tuple[Labels, Labels, Labels]:
    """The sorted positions of `trained` labels that are trained, of those for validation, and of the others.

    Equally many of each class are trained. `judging`: for validation, class by class as far as possible; None: half of
    those that are not trained. `stream` names the random numbers.
    """
    parts: tuple[list[Labels], ...] = ([], [], [])
    classes = np.unique(labels)
    others, judged = 0, 0
    for k, label in enumerate(classes):
        drawn = numpy_stream(0, stream, int(label)).permutation(np.flatnonzero(labels == label))
        own, rest = np.split(drawn, [trained // len(classes)])
        others += len(rest)
        of_all_so_far = others // 2 if judging is None else judging * (k + 1) // len(classes)
        for part, positions in zip(parts, (own, *np.split(rest, [of_all_so_far - judged])), strict=True):
            part.append(positions)
        judged = of_all_so_far
    first, second, third = (np.sort(np.concatenate(part)) for part in parts)
    return first, second, third
