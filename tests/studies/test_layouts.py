"""The page with the keys of layouts is up to date, and has a picture of every kind of figure."""

import re

from PIL import Image

from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.figures.draw import KINDS, load_figure
from fedflat.analysis.layouts.quantities import QUANTITIES
from fedflat.bench.experiments.experiment import load_experiment
from studies.layouts import PICTURES, fingerprint, reference, shown_layouts
from studies.pictures import shown_by
from tests.places import ROOT

DOCS = ROOT / "docs"
AGAIN = (
    "write it again: python -m studies.layouts (for the pictures with the argument "
    "docs/images/layouts/experiments.yaml, after: snakemake --cores 2 layouts --config "
    "experiments=[docs/images/layouts/experiments.yaml]; for the kind predictions likewise with the target "
    "layouts_segmentation and the file docs/images/layouts/segmentation/experiments.yaml)"
)
MOST_BYTES = 500_000


def test_the_page_is_up_to_date() -> None:
    assert reference() == (DOCS / "layouts.md").read_text(encoding="utf-8"), AGAIN


def test_every_key_of_a_figure_and_every_metric_is_listed() -> None:
    """Keys of several kinds are named with each kind; metrics with an ending by the metric and the ending."""
    head, *kinds = re.split(r"^### ", reference().partition("\n## Figures\n")[2], flags=re.MULTILINE)
    texts = {text.partition("\n")[0]: text for text in kinds}
    for kind, layout in KINDS.items():
        for key in set(layout.model_fields) - set(FigureLayout.model_fields):
            assert f"`{key}`" in texts[kind]
            assert f"\n| `{key}` |" in texts[kind] + head
    listed = set(re.findall(r"^\| `(\w+)` [↑↓]? ?\|", reference(), re.MULTILINE))
    assert set(QUANTITIES) <= {f"{name}{ending}" for name in listed for ending in ("", "_half", "_std_last100")}


def test_every_key_has_a_meaning() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.split(" | ")[-1].strip(" |") == ""] == []


def test_every_kind_has_a_picture_of_its_present_layout() -> None:
    """The pictures are those of short runs: of the experiment analyses, whose layouts they inherit, and of pixels."""
    sources = [str(DOCS / PICTURES / file) for file in ("experiments.yaml", "segmentation/experiments.yaml")]
    drawn = {kind: (source, name) for source in sources for kind, name in shown_layouts(source).items()}
    experiments = {source: load_experiment(source) for source in sources}
    pictures = {file.stem: file for file in (DOCS / PICTURES).glob("*.png")}
    assert set(pictures) == set(drawn) == set(KINDS)
    for kind, file in pictures.items():
        source, name = drawn[kind]
        assert shown_by(file) == fingerprint(load_figure(source, name, experiments[source])), f"{kind}: {AGAIN}"
        with Image.open(file) as image:
            assert len(image.getcolors(256)) > 10, "a picture"
    assert sum(file.stat().st_size for file in pictures.values()) < MOST_BYTES
