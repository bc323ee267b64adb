"""How far a share of random draws may be from its expectation."""

import math


def deviations(share: float, draws: int) -> float:
    """Three standard deviations of the share of independent draws: beyond it are 3 of 1000 such shares."""
    return 3 * math.sqrt(share * (1 - share) / draws)


def at_most(share: float, draws: int) -> float:
    """The largest share that is seen if the expected one is at most `share`."""
    return share + deviations(share, draws)
