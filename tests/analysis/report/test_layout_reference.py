"""The page with the keys of layouts is up to date, and has a picture of every kind of figure."""

from PIL import Image

from analysis.figures.draw import KINDS, load_figure
from analysis.report.layout_reference import PICTURES, fingerprint, reference, shown_layouts
from bench.experiments.experiment import load_experiment
from tests.places import ROOT

DOCS = ROOT / "docs"
AGAIN = (
    "write it again: fedflat layouts --out docs/layouts.md (for the pictures with --pictures "
    "docs/images/layouts/experiments.yaml, after: snakemake --cores 2 layouts --config "
    "experiments=[docs/images/layouts/experiments.yaml])"
)
MOST_BYTES = 500_000


def test_the_page_is_up_to_date() -> None:
    assert reference() == (DOCS / "layouts.md").read_text(encoding="utf-8"), AGAIN


def test_every_key_has_a_meaning() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.split(" | ")[-1].strip(" |") == ""] == []


def test_every_kind_has_a_picture_of_its_present_layout() -> None:
    """The pictures are those of short runs of the experiment analyses, whose layouts they inherit."""
    source = str(DOCS / PICTURES / "experiments.yaml")
    experiment, names = load_experiment(source), shown_layouts(source)
    pictures = {file.stem: file for file in (DOCS / PICTURES).glob("*.png")}
    assert set(pictures) == set(names) == set(KINDS)
    for kind, file in pictures.items():
        with Image.open(file) as image:
            assert image.text["layout"] == fingerprint(load_figure(source, names[kind], experiment)), f"{kind}: {AGAIN}"
            assert len(image.getcolors(256)) > 10, "a picture"
    assert sum(file.stat().st_size for file in pictures.values()) < MOST_BYTES
