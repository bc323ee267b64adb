"""Colours, dashes and markers of methods."""

import matplotlib.colors
import pytest

from fedflat.analysis.figures.palette import style, styles
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.methods.catalog import CATALOG


def test_every_method_of_the_catalog_looks_different() -> None:
    looks = [style(entry) for entry in CATALOG.values()]
    assert len(set(looks)) == len(looks)
    for look in looks:
        assert matplotlib.colors.is_color_like(look.colour)


def test_hue_shows_the_perturbation_and_line_the_correction() -> None:
    dashes = {name: style(entry).dashes for name, entry in CATALOG.items()}
    assert dashes["fedsam"] == dashes["fedlesam"] == dashes["fedavg"]
    assert dashes["fedgamma"] == dashes["fedlesam_s"] == dashes["scaffold"]
    hues = [
        matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(style(CATALOG[n]).colour))[0]
        for n in ("fedlesam", "fedlesam_s", "fedlesam_d")
    ]
    assert hues == pytest.approx([hues[0]] * 3, abs=0.01)


def test_variants_of_one_method_differ_in_markers_only(quick: Experiment) -> None:
    variant = quick.methods["fedsam"].model_copy(update={"name": "fedsam"})
    looks = styles(quick.model_copy(update={"methods": {**quick.methods, "fedsam_small": variant}}))
    one, other = looks["fedsam"], looks["fedsam_small"]
    assert (one.colour, one.dashes) == (other.colour, other.dashes)
    assert one.marker != other.marker


def test_entries_of_one_method_have_different_colours_without_other_methods() -> None:
    experiment, shown = load_experiment("fedtoga"), ["fedtoga", "fedtoga.kappa2", "fedtoga.kappa4"]
    assert len({look.colour for look in styles(experiment, shown).values()}) == len(shown)
    with_other = styles(experiment, [*shown, "fedavg"])
    assert len({with_other[label].colour for label in shown}) == 1
    assert styles(experiment, ["fedtoga"])["fedtoga"] == with_other["fedtoga"], "a single line looks as everywhere"
