"""Snakemake's configuration as the user has written it: Snakemake reads numbers such as 010 and 1_0 in its own way."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.strict_yaml import OddNumberError, load_yaml


def check_numbers(arguments: Iterable[str], files: Iterable[Path | str]) -> None:
    """A `UserError` if a number of the `arguments` of --config, or of a configuration file, is an `OddNumberError`.

    Everything else that is wrong is left to those who read the values.
    """
    for argument in arguments:
        key, _, value = argument.partition("=")
        _check(value, f"--config {key}")
    for file in map(Path, files):
        _check(read_own(file, "configuration file").decode(errors="replace"), f"'{file}'")


def _check(text: str, where: str) -> None:
    try:
        load_yaml(text)
    except OddNumberError as error:
        raise UserError(f"{where}: {error}") from None
    except yaml.YAMLError:
        return
