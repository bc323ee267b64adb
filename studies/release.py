"""Whether a tag fits what is released under it: `python -m studies.release v1.0.0`."""

import re
from collections.abc import Iterator

import yaml

from fedflat.bench import __version__
from fedflat.bench.input.errors import UserError
from studies.command import argument, run
from studies.places import CLONE

CHANGELOG, CITATION = CLONE / "CHANGELOG.md", CLONE / "CITATION.cff"


def mistakes(tag: str, version: str = __version__) -> Iterator[str]:
    """What differs from the version of the package: the tag, the changelog's newest section, the citation."""
    if tag != f"v{version}":
        yield f"the tag is '{tag}' (allowed: v{version})"
    newest = re.search(r"^## (\S+)", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    if newest is None or newest[1] != version:
        yield f"the newest section of {CHANGELOG.name} is '{newest[1] if newest else ''}' (allowed: {version})"
    cited = yaml.safe_load(CITATION.read_text(encoding="utf-8"))["version"]
    if cited != version:
        yield f"{CITATION.name} has version {cited} (allowed: {version})"


def main(tag: str) -> None:
    """A `UserError` with all mistakes, if there are any."""
    if found := list(mistakes(tag)):
        raise UserError("; ".join(found))


if __name__ == "__main__":
    run(lambda: main(argument("TAG", "studies.release")))
