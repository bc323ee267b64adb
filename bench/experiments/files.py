"""Find and read the YAML files of experiments: paper_tables/NAME/experiments.yaml, or any file by its path."""

import copy
import functools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.strict_yaml import load_yaml

PAPER_TABLES = Path(__file__).resolve().parents[2] / "paper_tables"
"""The folder of the named experiments and of the layouts of their tables and figures, one folder for each."""

_OF_TARGETS = "(table_.*|figure_.*|analysis_.*|runs|explore|tune|study|tuning_report|claims)"
"""How the names of Snakemake's targets end, as a pattern."""


def experiment_names() -> list[str]:
    """The named experiments: the folders of paper_tables with an experiments.yaml."""
    return sorted(file.parent.name for file in PAPER_TABLES.glob("*/experiments.yaml"))


def is_named(name: str) -> bool:
    """Whether it is the name of an experiment in paper_tables."""
    # os.path, because Path.exists() fails for a name that is too long for a file.
    return name == Path(name).name and os.path.exists(PAPER_TABLES / name / "experiments.yaml")  # noqa: PTH110


def experiment_file(name: str) -> Path:
    """The YAML file of a named experiment, or `name` itself if it is the path of a YAML file."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if not is_named(name):
        if Path(name).is_dir():
            files = sorted(map(str, (*Path(name).glob("*.yaml"), *Path(name).glob("*.yml"))))
            example = (*files, "mine.yaml")[0]
            raise UserError(f"'{name}' is a folder (allowed: an experiment's YAML file, such as {example})")
        if (own := _own_file(name)) is not None:
            raise UserError(f"experiment '{name}' is not one of FedFlat's, but yours: name it by its file, '{own}'")
        target = re.fullmatch(rf"({'|'.join(experiment_names())})_{_OF_TARGETS}", name)
        mistake = unknown("experiment", name, experiment_names(), None if target is None else target[1])
        raise UserError(f"{mistake}; name an experiment of yours by its YAML file")
    return PAPER_TABLES / name / "experiments.yaml"


def _own_file(name: str) -> Path | None:
    """The YAML file in the current folder, or in one of its folders, of an experiment that has this name."""
    wanted = re.compile(rf"^name:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", re.MULTILINE)
    with suppress(OSError):  # the current folder cannot be read
        for file in sorted(one for pattern in ("*.y*ml", "*/*.y*ml") for one in Path().glob(pattern)):
            if file.is_file() and wanted.search(file.read_text(encoding="utf-8", errors="replace")):
                return file
    return None


def experiment_files(name: str) -> list[Path]:
    """The experiment's file, then the files of the experiments that it extends, nearest first."""
    files = [experiment_file(name)]
    while (base := _mapping(files[-1]).get("extends")) is not None:
        if not isinstance(base, str):
            raise UserError(f"'{files[-1]}': extends = {base!r} (allowed: the name of an experiment, or a YAML file)")
        is_file = base.endswith((".yaml", ".yml"))
        file = experiment_file(str(files[-1].parent / base) if is_file else base)
        if file.resolve() in [known.resolve() for known in files]:
            raise UserError(f"'{files[0]}' extends itself")
        files.append(file)
    return files


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; a `UserError` if the file cannot be read, or holds no mapping."""
    return copy.deepcopy(_mapping(file))


def read_key(file: Path, key: str) -> Any:
    """The value of a key in a YAML file, or None; errors as of `read_yaml`."""
    return copy.deepcopy(_mapping(file).get(key))


def _mapping(file: Path) -> dict[str, Any]:
    """The cached mapping, which must not be modified: it is not a copy, because copying a large grid takes long."""
    try:
        data = _parsed(read_own(file, "file").decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"'{file}' is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise UserError(f"'{file}' holds no mapping (allowed: keys and values, such as `name: mine`)")
    return data


@functools.lru_cache(maxsize=1024)  # more than there are files in paper_tables
def _parsed(text: str) -> Any:
    """The parsed YAML text, cached: parsing is slow, and one command reads the same file many times."""
    return load_yaml(text)
