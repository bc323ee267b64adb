"""Kills runs at random times over all methods and back ends, and prints how many ended with the same bits."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from random import Random

import torch

from tests.faults.campaign import Outcome, campaign, table
from tests.faults.subjects import cases


def main() -> int:
    """Run the campaign; 1 if bits differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="end after this number of kills (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random times (default: 0)")
    parser.add_argument("--folder", type=Path, help="where runs are stored (default: a temporary folder)")
    given = parser.parse_args()
    os.nice(10)
    torch.set_num_threads(1)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fedflat-faults-"))
    random, outcomes = Random(given.seed), list[Outcome]()
    order = list(cases())
    for outcome in campaign(order, given.kills, folder.absolute(), random):
        outcomes.append(outcome)
        print(f"{outcome.subject}, {outcome.way}: {outcome.kills} kills", *outcome.differs, sep="; ", file=sys.stderr)
    print(table(outcomes))
    failed = sum(bool(outcome.differs) for outcome in outcomes)
    if failed:
        print(f"the files of {failed} trials with different bits are in '{folder}'", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
