"""Pictures of figures in the documents: small files of few colours, which also say what they show."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fedflat.analysis.figures.base import figure_style
from fedflat.bench.files.atomic import replacing

COLOURS = 224


def save_picture(figure: Figure, file: Path, width: int, shows: str) -> None:
    """Write a PNG file with a width in pixels; `shows`: a hash of what is drawn, which the file holds as text."""
    image = io.BytesIO()
    with figure_style():
        figure.savefig(image, format="png", dpi=2 * width / figure.get_figwidth())
    whole = Image.open(image).convert("RGB")
    size = (width, round(whole.height * width / whole.width))
    small = whole.resize(size, Image.Resampling.LANCZOS).quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    facts = PngInfo()
    facts.add_text("shows", shows)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        small.save(temporary, format="png", optimize=True, pnginfo=facts)


def shown_by(file: Path) -> str:
    """The hash of what a picture shows."""
    with Image.open(file) as image:
        return str(image.info["shows"])
