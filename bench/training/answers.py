"""Requests of `fedflat run` whose runs were all finished: the same request is answered without importing torch.

That import takes longer than everything else. An answer is kept by what the request depends on: the files of the
experiment, the overridden values, the cells, the device, the machine, the folder of results, and the code. It counts
only as long as its runs and lists are those that were seen. Requests with files of the user are not kept: their
contents would have to be compared.
"""

import json
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedflat.bench.experiments.files import experiment_files
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint

FOLDER = ".answers"
"""The folder of answers in the store."""


def key_of(experiment: str, overrides: Mapping[str, Any], cells: Sequence[str], *options: object) -> str:
    """What a request depends on, as one hash; a `UserError` if there is no such experiment."""
    contents = [file.read_bytes() for file in experiment_files(experiment)]
    given = json.dumps([overrides, list(cells), *map(str, options)], sort_keys=True, default=str)
    return short_hash(code_fingerprint(), platform.node(), given, *contents)


def answer(paths: ResultPaths, key: str) -> list[str] | None:
    """The lines of an answer; None if none is kept, or if a file is not what it was."""
    try:
        kept = json.loads(_file(paths, key).read_text(encoding="utf-8"))
        same = all(short_hash((paths.root / name).read_bytes()) == digest for name, digest in kept["files"].items())
        whole = all((paths.root / name).stat().st_size == size for name, size in kept["sizes"].items())
        return [str(line) for line in kept["lines"]] if same and whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(paths: ResultPaths, key: str, lines: Sequence[str], files: Iterable[Path], models: Iterable[Path]) -> None:
    """Keep an answer as long as these files stay as they are, and models, which may be large, have the same sizes.

    Without it, as in a full folder, nothing is lost.
    """
    seen = {file.relative_to(paths.root).as_posix(): short_hash(file.read_bytes()) for file in files}
    sizes = {file.relative_to(paths.root).as_posix(): file.stat().st_size for file in models}
    with suppress(UserError):
        write_text(_file(paths, key), json.dumps({"files": seen, "sizes": sizes, "lines": list(lines)}))


def forget(paths: ResultPaths) -> None:
    """Remove all answers."""
    shutil.rmtree(paths.store / FOLDER, ignore_errors=True)


def _file(paths: ResultPaths, key: str) -> Path:
    return paths.store / FOLDER / f"{key}.json"
