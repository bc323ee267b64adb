"""Options and arguments that several subcommands share."""

import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from fedflat.bench.input.errors import UserError
from fedflat.bench.input.strict_yaml import load_yaml


def folder_path(text: str) -> Path:
    """The path of a folder. An empty text is refused: it may come from an unset shell variable."""
    return _path(text, "folder")


def file_path(text: str) -> Path:
    """The path of a file. An empty text is refused."""
    return _path(text, "file")


def _path(text: str, kind: str) -> Path:
    if not str(text).strip():
        raise typer.BadParameter(f"the path is empty (allowed: the path of a {kind})")
    return Path(text)


def _count(text: str) -> int | None:
    """A number of threads, or None for auto."""
    if text == "auto":
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise typer.BadParameter(f"'{text}' (allowed: auto, 1, 2, ..., 9999)")
    return int(text)


class Assignment(NamedTuple):
    """A value of `--set`."""

    key: str
    value: Any


def assignment(text: str) -> Assignment:
    """The key and the YAML value of a text such as training.rounds=20."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise typer.BadParameter(f"'{text}' (allowed: key=value, for example training.rounds=20)")
    try:
        return Assignment(key, load_yaml(value))
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or error
        raise typer.BadParameter(f"{key}: '{value}' is not a YAML value ({reason})") from None


def overrides_of(assignments: list[Assignment] | None) -> dict[str, Any]:
    """The values that --set gives, by key; a `UserError` if a key is given twice."""
    overrides: dict[str, Any] = {}
    for key, value in assignments or ():
        if key in overrides:
            raise UserError(f"--set {key} is given twice")
        overrides[key] = value
    return overrides


def folder_option(text: str, *names: str) -> Any:
    """An option whose value is the path of a folder. `text`: its help; `names`: if not the parameter's name."""
    return typer.Option(*names, help=text, parser=folder_path, metavar="FOLDER")


def file_option(text: str, *names: str) -> Any:
    """An option whose value is the path of a file; arguments as for `folder_option`."""
    return typer.Option(*names, help=text, parser=file_path, metavar="FILE")


def experiment_argument(metavar: str = "EXPERIMENT") -> Any:
    """The argument that names one experiment."""
    text = "The name of an experiment (a folder of paper_tables/), or the path of a YAML file."
    return typer.Argument(help=text, metavar=metavar)


Results = Annotated[Path, folder_option("The folder of all results.")]
ExperimentName = Annotated[str, experiment_argument()]
ExperimentNames = Annotated[
    list[str],
    typer.Argument(
        help="The names of experiments (folders of paper_tables/), or the paths of YAML files.", metavar="EXPERIMENT..."
    ),
]
OwnExperiments = Annotated[
    list[str] | None,
    typer.Option(
        "--experiment",
        help="A user-defined experiment (a YAML file) whose targets can be given, too. Can be repeated.",
        metavar="FILE",
    ),
]
StoredOrRuns = Annotated[
    str, typer.Argument(help="The name of stored baselines, or with --runs that of an experiment.", metavar="GRID")
]
StoredBaselines = Annotated[
    Path | None,
    folder_option(
        "The folder of the baselines. Default: results/baselines/GRID, or else the installed ones.", "--baselines"
    ),
]


def set_option(what: str) -> Any:
    """The option --set; `what`: what it overrides, with an example."""
    return typer.Option("--set", help=f"Override {what}. Can be repeated.", parser=assignment, metavar="KEY=VALUE")


Set = Annotated[list[Assignment] | None, set_option("a value of the experiment, for example training.rounds=20")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="CPU threads of this process. auto: one thread for small models, all cores for large models.",
        parser=_count,
        metavar="N",
        show_default="auto",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="auto, cpu, cuda, or cuda:0, cuda:1, ... auto and cuda choose a GPU that none of your processes uses.",
        metavar="DEVICE",
    ),
]
Where = Annotated[
    str,
    typer.Option(
        "--where",
        help="Conditions on labels and values of the configuration, such as 'method=fedsam, alpha=0.1, rho>0.05'; "
        "'method=fedsam|fedavg' allows both.",
        metavar="CONDITIONS",
    ),
]
