"""The packages of constraints.txt, and the installed ones."""

import re
from importlib.metadata import PackageNotFoundError, version

from fedflat.bench.input.errors import UserError
from studies.places import CLONE

CONSTRAINTS = CLONE / "constraints.txt"


def normalised(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """The pinned version of each package, by its name in constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def check_installed() -> None:
    """A `UserError` if another version of a package is installed. Builds of one version, such as +cpu, are the same."""
    for name, pinned in pins().items():
        try:
            found = version(name).partition("+")[0]
        except PackageNotFoundError:
            found = "not installed"
        if found != pinned:
            raise UserError(f"{name}: constraints.txt has {pinned}, but here it is {found}; run make env")
