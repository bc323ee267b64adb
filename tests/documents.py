"""The README, the pages of docs and the READMEs in paper_tables: reads their blocks and runs their commands.

Each command runs in its own process, which is a fork of one that has imported torch and Snakemake: importing them
takes longer than most commands.
"""

import multiprocessing
import os
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "paper_tables").glob("*/README.md")),
]
PRELOADED = ["torch", "snakemake.cli", "analysis.planning.workflow", "analysis.report.report", "fedflat.cli.app"]
SNAKEMAKE = ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", str(ROOT / "profiles" / "default")]


@dataclass(frozen=True)
class Block:
    """A fenced block; `file` is the name in the line above it, if there is one."""

    language: str
    code: str
    file: str | None


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self, language: str | None = None) -> list[Block]:
        pattern = r"^(?:`([^`\n]+)`\n\n)?```(\w*)\n(.*?)^```$"
        found = re.findall(pattern, self.text, re.MULTILINE | re.DOTALL)
        return [Block(kind, code, file or None) for file, kind, code in found if language in (None, kind)]

    @property
    def commands(self) -> list[str]:
        """The lines of the page's shell blocks, without comments."""
        lines = [line for block in self.blocks("sh") for line in block.code.splitlines()]
        return [re.sub(r"\s+#.*", "", line) for line in lines if line]

    def write_files(self, folder: Path) -> None:
        """Write all blocks with a file name into a folder."""
        for block in self.blocks():
            if block.file:
                (folder / block.file).parent.mkdir(exist_ok=True)
                (folder / block.file).write_text(block.code, encoding="utf-8")


PAGES = {str(page): page for page in map(Page, FILES)}


def run(command: str, folder: Path) -> str:
    """Run a command in a folder and return its output; raises `AssertionError` with the output if it fails."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    log = folder / "command.log"
    process = context.Process(target=_command, args=(shlex.split(command), folder, log))
    process.start()
    process.join()
    printed = log.read_text(encoding="utf-8")
    if process.exitcode != 0:
        jobs = "\n".join(
            f"{file}:\n{file.read_text(encoding='utf-8')}" for file in folder.glob("results/**/logs/**/*.log")
        )
        raise AssertionError(f"exit code {process.exitcode}: {command}\n{printed}\n{jobs}")
    return printed


def _command(words: list[str], folder: Path, log: Path) -> None:
    """The process of one command: `words` as in the shell, with patterns such as * expanded in `folder`."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(ROOT)
    program, *arguments = words
    arguments = [
        path for word in arguments for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    sys.argv = [program, *arguments]
    if program == "fedflat":
        from fedflat.__main__ import main

        main()
    elif program == "snakemake":
        from snakemake.cli import main as snakemake

        snakemake([*arguments, *SNAKEMAKE])
    elif program == "python":
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.exit(f"the tests cannot run {program}")
