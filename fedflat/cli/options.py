"""Options and arguments that several `fedflat` commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from bench.input.errors import UserError
from bench.input.strict_yaml import load_yaml


def folder_path(text: str) -> Path:
    """A folder's path. The empty one, as of an unset shell variable, would be the current folder."""
    if not str(text).strip():
        raise typer.BadParameter("the path is empty (allowed: the path of a folder)")
    return Path(text)


def file_path(text: str) -> Path:
    """A file's path, which must not be empty either."""
    if not str(text).strip():
        raise typer.BadParameter("the path is empty (allowed: the path of a file)")
    return Path(text)


Results = Annotated[Path, typer.Option(help="Folder of all results.", parser=folder_path, metavar="FOLDER")]
ExperimentName = Annotated[
    str, typer.Argument(help="An experiment's name (a folder of paper_tables/), or the path of a YAML file.")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change a value, as training.rounds=20; repeatable.")]


def changes_of(settings: list[str] | None) -> dict[str, Any]:
    """The values that --set changes; a `UserError` tells what is no key=value."""
    changes: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, for example training.rounds=20, not '{setting}'")
        try:
            changes[key] = load_yaml(value)
        except yaml.YAMLError as error:
            reason = getattr(error, "problem", None) or error
            raise UserError(f"--set {key}: '{value}' is not a YAML value ({reason})") from None
    return changes
