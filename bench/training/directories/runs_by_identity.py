"""Where finished runs with a given identity may be in a folder of results."""

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedflat.bench.experiments.results import run_in, same_setting
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.training.run_directory import PROVENANCE


def places_of(identity: str, run: Path) -> Iterator[Path]:
    """The folders that may hold a run of this identity, other than `run`, of the same setting and seed.

    Those with the same label come first, and are not read. Those with another label, such as a value of a sweep, have
    this identity in provenance.json.
    """
    here, settings = run.absolute(), same_setting(run)
    label, seed = here.parts[-2:]
    for setting in settings:
        if (place := setting / label / seed) != here:
            yield place
    for setting in settings:
        yield from (place for place in _finished(setting).get((seed, identity), ()) if place.parent.name != label)


@functools.cache
def _finished(setting: Path) -> Mapping[tuple[str, str], Sequence[Path]]:
    """The finished runs in the folder of a setting, by folder name of the seed and by identity.

    Planning asks for thousands of runs, so files are read once per process, or again after `look_again`. Their
    checksums are left to those who take a run.
    """
    found: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for file in sorted(setting.glob(str(run_in(Path("*"), "*") / PROVENANCE))):
        try:
            found[file.parent.name, str(json.loads(file.read_bytes())["identity"])].append(file.parent)
        except FileNotFoundError:  # another process is replacing the run
            continue
        except (OSError, ValueError, TypeError, KeyError) as error:  # damaged, or of another version
            leave_out(file, error)
    return found


def look_again() -> None:
    """From now on, also find the runs that were finished since the first look."""
    _finished.cache_clear()
