"""The README and the pages of docs, studies and paper_tables: reads their blocks, and runs their commands."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests import commands
from tests.places import ROOT

FILES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "studies").rglob("*.md")),
    *sorted((ROOT / "paper_tables").glob("*/README.md")),
]


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
    """Run a command in a folder and return its output; raises `AssertionError` with the output if it fails.

    Patterns such as * are expanded in the folder, as a shell does.
    """
    words = [path for word in shlex.split(command) for path in (_matches(word, folder) if "*" in word else [word])]
    done = commands.run(words, folder)
    if done.returncode != 0:
        logs = folder.glob("results/**/logs/**/*.log")
        jobs = "\n".join(f"{file}:\n{file.read_text(encoding='utf-8')}" for file in logs)
        raise AssertionError(f"exit code {done.returncode}: {command}\n{done.stdout}{done.stderr}\n{jobs}")
    return done.stdout + done.stderr


def _matches(pattern: str, folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
