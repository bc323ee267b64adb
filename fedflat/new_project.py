"""The files with which a folder of one's own begins: an experiment, a method, and the pipeline."""

import os
from contextlib import suppress
from pathlib import Path

from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError, first_few
from fedflat.conformance.template import template

FILES = Path(__file__).parent / "project"
"""The files; in a clone, the Snakefile, config and profiles are links to its own."""

README = "README.md"

METHOD = "mine"
"""The method of the project, and its experiment."""


def write_project(folder: Path) -> list[Path]:
    """Write the files of a project to `folder`, which may have others; return the paths of what is written.

    A README.md that is there stays. A `UserError`, and nothing is written, if another one of the files is there
    already, or if one cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"'{folder}' is a file (allowed: a folder)")
    texts = {folder / name: text for name, text in project_files().items()}
    there = [file for file in texts if os.path.lexists(file)]
    if needed := [str(file) for file in there if file != folder / README]:
        raise UserError(
            f"there already: {first_few(needed)}; nothing is overwritten (allowed: a new folder, such as "
            f"'{folder / 'my_project'}', or one without these files)"
        )
    for file in there:
        del texts[file]
    new_folders = {parent for file in texts for parent in file.parents if not parent.exists()}
    written: list[Path] = []
    try:
        for file, text in texts.items():
            write_text(file, text)
            written.append(file)
    except BaseException:
        for file in written:
            file.unlink()
        for parent in sorted(new_folders, key=lambda parent: len(parent.parts), reverse=True):
            with suppress(OSError):  # it was not made
                parent.rmdir()
        raise
    return written


def project_files() -> dict[str, str]:
    """The texts of the files, by their paths in a project."""
    names = ["experiments.yaml", README, "config/config.yaml", *_profiles(), "Snakefile"]
    texts = {name: (FILES / name).read_text(encoding="utf-8") for name in names}
    config = texts["config/config.yaml"].replace("experiments: [quick]", "experiments: [experiments.yaml]")
    return {f"{METHOD}.py": template(METHOD), **texts, "config/config.yaml": config}


def _profiles() -> list[str]:
    return sorted(file.relative_to(FILES).as_posix() for file in (FILES / "profiles").glob("*/config.yaml"))
