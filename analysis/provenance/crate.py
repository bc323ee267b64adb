"""The description of an exported archive: README, versions of the libraries, and metadata in RO-Crate 1.1.

Source: https://w3id.org/ro/crate/1.1
"""

import json
import mimetypes
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedflat.bench.experiments.results import CHECKSUMS
from fedflat.bench.files.text_table import without_html
from fedflat.bench.training.code_version import code_in_words
from fedflat.bench.training.run_directory import CONFIG, RunDirectory

METADATA, README, REQUIREMENTS = "ro-crate-metadata.json", "README.md", "requirements.txt"

CONTEXT = "https://w3id.org/ro/crate/1.1"

TYPES = {".gz": "application/gzip", ".md": "text/markdown", ".tex": "application/x-tex", ".yaml": "application/yaml"}
"""Media types that Python does not know on all machines; `.safetensors` has none."""


@dataclass(frozen=True)
class Contents:
    """What an archive contains: its targets, what they are, runs by their place in the archive, and how to render it.

    `models` and `states` are the numbers of final models, and of states after rounds. `ended` is the time at which the
    last run ended (ISO 8601). `commands` are `fedflat` commands without options, `options` those that all of them need.
    """

    target: str
    description: str
    runs: Mapping[str, RunDirectory]
    ended: str
    commands: Sequence[Sequence[str]]
    options: Sequence[str]
    models: int
    states: int
    has_reports: bool
    has_own_experiment: bool


def requirements() -> str:
    """The versions of the libraries here, as a requirements file for pip."""
    lines = [f"# Python {platform.python_version()}, {platform.system()} {platform.machine()}; {code_in_words()}"]
    lines += [f"{name}=={number}" for name, number in libraries().items()]
    return "\n".join(lines) + "\n"


def libraries() -> dict[str, str]:
    """The versions of the libraries that FedFlat requires, as far as they are installed."""
    names = [
        re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in requires("fedflat") or () if "extra" not in line
    ]
    found: dict[str, str] = {}
    for name in sorted(names, key=str.lower):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def readme(contents: Contents) -> str:
    """The README of the archive."""
    commands = [shlex.join(["fedflat", *words, *contents.options]) for words in contents.commands]
    counts = {"run": len(contents.runs), "final model": contents.models, "state": contents.states}
    found = ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items())
    summary = f"{found}. Exported by {code_in_words()}."
    rendering = [
        "No training is needed. Install FedFlat, if possible the version above, and run in this folder:",
        "",
        "```sh",
        *commands,
        "```",
    ]
    if contents.has_own_experiment:
        rendering += ["", "The experiment may name Python files. These commands execute them: read them first."]
    lines = [
        f"# {without_html(contents.target)}",
        "",
        f"{without_html(contents.description)} {summary}".strip(),
        "",
        "| place | content |",
        "| --- | --- |",
        *(["| `results/reports/` | tables and figures |"] if contents.has_reports else []),
        "| `results/store/` | of each run: configuration, metrics, partition, provenance, the log's events, analyses, "
        "and models, if any |",
        "| `results/experiments/`, `results/partitions/` | lists of the runs and analyses of each cell; splits |",
        "| `experiment/` | the files that define the experiment, its analyses, tables and figures |",
        f"| `{REQUIREMENTS}` | the versions of the libraries that rendered tables and figures |",
        f"| `{METADATA}` | description of all files in RO-Crate 1.1 |",
        f"| `{CHECKSUMS}` | SHA-256 of all files, for `sha256sum --check {CHECKSUMS}` |",
        "",
        *(["## Rendering", "", *rendering, ""] if commands else []),
        "## Verification",
        "",
        "`fedflat verify results/store` reads all files, and computes a round of each run again. Data sets are not",
        "part of the archive.",
    ]
    return "\n".join(lines) + "\n"


def metadata(contents: Contents, files: Mapping[str, Path]) -> str:
    """The metadata of the archive with these files, by their names in it."""
    codes = {run.fingerprint: run.provenance["code"] for run in contents.runs.values()}
    actions = [_training(place, run, files) for place, run in sorted(contents.runs.items())]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": contents.target,
        "description": contents.description,
        "datePublished": contents.ended.partition("T")[0],
        "hasPart": _references(sorted(files)),
        "mentions": _references([action["@id"] for action in actions], escaped=False),
    }
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": CONTEXT},
        "about": {"@id": "./"},
    }
    graph = [descriptor, root, *map(_software, codes, codes.values()), *actions]
    graph += [_file(name, file) for name, file in sorted(files.items())]
    return json.dumps({"@context": f"{CONTEXT}/context", "@graph": graph}, indent=1, ensure_ascii=False) + "\n"


def _training(place: str, run: RunDirectory, files: Mapping[str, Path]) -> dict[str, Any]:
    """The training of a run: from its configuration to its other files."""
    results = sorted(name for name in files if name.startswith(f"{place}/") and name != f"{place}/{CONFIG}")
    ended = run.provenance.get("ended")
    return {
        "@id": f"#{quote(place)}",
        "@type": "CreateAction",
        "name": f"training of {place}",
        "instrument": {"@id": _code_id(run.fingerprint)},
        "object": _references([f"{place}/{CONFIG}"]),
        "result": _references(results),
        **({} if ended is None else {"endTime": ended}),
    }


def _software(fingerprint: str, code: Mapping[str, Any]) -> dict[str, Any]:
    """The version of FedFlat that trained runs."""
    about = {"softwareVersion": code.get("version"), "version": code.get("commit"), "identifier": fingerprint}
    known = {key: value for key, value in about.items() if value is not None}
    return {"@id": _code_id(fingerprint), "@type": "SoftwareApplication", "name": "FedFlat", **known}


def _file(name: str, file: Path) -> dict[str, Any]:
    kind = TYPES.get(file.suffix) or mimetypes.types_map.get(file.suffix, "application/octet-stream")
    size = str(file.stat().st_size)
    return {"@id": quote(name), "@type": "File", "name": name, "contentSize": size, "encodingFormat": kind}


def _code_id(fingerprint: str) -> str:
    return f"#fedflat-{fingerprint}"


def _references(names: Iterable[str], *, escaped: bool = True) -> list[dict[str, str]]:
    return [{"@id": quote(name) if escaped else name} for name in names]
