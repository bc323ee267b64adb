"""The notebook of docs runs, and the outputs that the site shows are those of its cells."""

import base64
import re
from io import BytesIO

import torch
from PIL import Image

from tests.notebook import execute, load
from tests.tiers import thorough


def shown(notebook) -> list[list[object]]:
    """The outputs of each cell, as far as they do not depend on the machine: words, and the sizes of pictures."""
    return [[_part(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _part(output) -> object:
    if output.output_type == "stream":
        return re.sub(r"[\d.]+", "#", output.text)
    if "image/png" not in output.data:
        return re.sub(r"[\s\d.]+", " ", output.data["text/plain"])
    return Image.open(BytesIO(base64.b64decode(output.data["image/png"]))).size


@thorough
def test_the_notebook_runs_and_shows_what_is_stored():
    notebook = load()
    stored = shown(notebook)
    with torch.random.fork_rng():
        execute(notebook)
    assert shown(notebook) == stored, "store the new outputs with: python -m tests.notebook"
    assert sum(isinstance(part, tuple) for parts in stored for part in parts) == 4, "pictures"
