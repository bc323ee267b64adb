"""The file hashes.txt: the SHA-256 of all files that PyPI has of the pinned packages, for `pip --require-hashes`."""

import re
import subprocess
from pathlib import Path

from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError
from studies.audit.pins import normalised, pins
from studies.places import CLONE

FILE = CLONE / "hashes.txt"

OWN_BUILDS = ("torch", "torchvision")
"""Packages that users replace by the builds for their GPU, which PyPI does not have."""

HEAD = """# The SHA-256 of all files that PyPI has of the packages in constraints.txt; make env accepts no others.
# torch and torchvision are missing, because users need other builds of them. make audit writes this file again.
"""


def wanted() -> dict[str, str]:
    """The versions that the file must have, by normalised name."""
    return {normalised(name): version for name, version in pins().items() if name not in OWN_BUILDS}


def hashed() -> dict[str, str]:
    """The versions that the file has."""
    text = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    return {normalised(name): version for name, version in re.findall(r"^(\S+)==(\S+) \\$", text, re.MULTILINE)}


def write(tools: Path) -> bool:
    """Write the file again by uv in the folder `tools`, if the pins have changed; whether they have."""
    if hashed() == wanted():
        return False
    lines = "".join(f"{name}=={version}\n" for name, version in wanted().items())
    command: list[str | Path] = [
        tools / "uv",
        "pip",
        "compile",
        "--no-deps",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--quiet",
        "-",
    ]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"uv cannot list the files of the packages: {' '.join(done.stderr.split())}")
    write_text(FILE, HEAD + done.stdout)
    return True
