"""The interactive page without a browser: its data are those of the frames, and nothing in it comes from elsewhere."""

import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.explorer.compact import RUN_KEY, compact_columns, compact_curves
from fedflat.analysis.explorer.looks import DARK_PAPER, contrast, web_look
from fedflat.analysis.explorer.page import ASSETS, PLOTLY, SCRIPTS
from fedflat.analysis.figures.palette import style
from fedflat.analysis.layouts.run_columns import CURVE
from fedflat.bench.methods.catalog import CATALOG
from tests.analysis.explorer.frames_by_hand import (
    HOSTILE,
    OWN,
    SETTINGS,
    explorer,
    frames,
    looks,
    surfaces,
    with_segmentation,
)
from tests.analysis.parsed_page import Parsed

PLOTLY_SHA256 = "aab04dcd9c103a92b18723f8c837712fe820f325d0bcd2421e415e8124a75b9f"
"""Of plotly-gl3d.min.js in the npm package plotly.js-gl3d-dist-min 4.1.1."""


@pytest.fixture(scope="module")
def page() -> Parsed:
    return Parsed(explorer().page())


def decoded(columns: dict[str, dict]) -> pd.DataFrame:
    """The frame behind compact columns, as the page decodes them."""
    return pd.DataFrame(
        {
            name: column["values"] if "values" in column else [column["levels"][code] for code in column["codes"]]
            for name, column in columns.items()
        }
    )


def test_the_page_contains_all_runs(page: Parsed) -> None:
    runs, _ = frames()
    data = json.loads(page.scripts[0])
    found = decoded(data["runs"]["columns"])
    assert list(found) == list(runs)
    for name in runs:
        if pd.api.types.is_numeric_dtype(runs[name]):
            np.testing.assert_allclose(found[name].astype(float), runs[name].astype(float), rtol=5e-6)
        else:
            assert found[name].tolist() == runs[name].tolist()
    assert data["methods"][OWN]["title"] == HOSTILE
    assert data["settings"]["digits/dirichlet-0.1/4-of-20"] == "Dirichlet 0.1, 4 of 20 clients"
    assert data["flatness"] == ["lambda_max"], "a measure without values is left out"


def test_a_setting_has_the_score_of_its_data_set() -> None:
    first, second = ("/".join(setting) for setting in SETTINGS)
    assert explorer().data()["scores"] == {first: "test_accuracy", second: "test_accuracy"}
    mixed = with_segmentation().data()
    assert mixed["scores"] == {first: "test_accuracy", second: "test_miou"}
    assert mixed["curves"]["pool"].keys() == {"round", *CURVE, "test_miou"}
    assert explorer().data()["curves"]["pool"].keys() == {"round", *CURVE}


def test_the_page_contains_all_curves_and_surfaces(page: Parsed) -> None:
    runs, curves = frames()
    data = json.loads(page.scripts[0])["curves"]
    assert data["step"] == 1
    by_run = dict(iter(curves.groupby(RUN_KEY)))
    for index, key in enumerate(runs[RUN_KEY].itertuples(index=False, name=None)):
        for name in ("round", *CURVE):
            found = data["pool"][name][data["runs"][name][index]]
            np.testing.assert_allclose(found, by_run[key][name], rtol=5e-4 if "test" in name else 5e-6)
    assert len(data["pool"]["round"]) == 2, "equal sequences are stored once: all runs', and that of the diverged one"
    [bowl] = [one for one in json.loads(page.scripts[0])["surfaces"] if one["method"] == "fedsam"]
    expected = surfaces(runs).query("method == 'fedsam'").pivot(index="a", columns="b", values="loss")
    np.testing.assert_allclose(bowl["loss"], expected, rtol=5e-4, atol=1e-9)
    np.testing.assert_allclose(bowl["a"], expected.index, rtol=5e-6)


def test_many_long_curves_are_thinned_to_their_last_evaluations() -> None:
    runs = pd.DataFrame([{"dataset": "d", "partition": "p", "participation": "q", "method": "m", "variant": "v"}])
    runs = runs.loc[[0] * 3000].assign(seed=range(3000))
    long = runs.head(2).merge(pd.DataFrame({"round": range(1, 401)}), how="cross")
    long = long[(long["seed"] == 0) | (long["round"] <= 333)]
    long = long.assign(test_accuracy=1.0, test_loss=1.0, communicated_mb=1.0, gradients=1.0)
    found = compact_curves(runs, long)
    assert found["step"] == 10
    whole, short = found["pool"]["round"]
    assert whole == list(range(10, 401, 10))
    assert short == [*range(10, 331, 10), 333], "the last evaluation of a run is kept"
    assert found["runs"]["round"] == [0, 1, *[None] * 2998]


def test_numbers_are_as_short_as_they_can_be() -> None:
    values = [1 / 3, 100.0, np.nan, np.inf, 1e-9, -1234567.8]
    column = compact_columns(pd.DataFrame({"x": values, "same": ["a"] * 6}))
    assert json.dumps(column["x"]) == '{"values": [0.333333, 100, null, null, 1e-09, -1234570]}'
    assert column["same"] == {"levels": ["a"], "codes": [0] * 6}


def test_texts_of_others_are_text(page: Parsed) -> None:
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert len(page.scripts) == 3, "data, Plotly, and the page's own script"
    assert page.text.count(HOSTILE) == 4, "the title, the heading, the description, and the verdict"
    assert ("strong", {}) in page.elements, "the verdict is Markdown"
    assert ("td", {}) in page.elements


def test_the_page_needs_nothing_else(page: Parsed) -> None:
    links = [attributes[name] for _, attributes in page.elements for name in ("src", "href") if name in attributes]
    assert [link for link in links if not link.startswith("#")] == ["index.html"]
    [policy] = [about["content"] for tag, about in page.elements if tag == "meta" and "http-equiv" in about]
    assert policy.startswith("default-src 'none'; script-src 'unsafe-inline'")
    assert "connect-src" not in policy, "so that the default forbids connections"
    own = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", own)
    assert {file.name for file in ASSETS.glob("*.js")} == set(SCRIPTS)


def test_every_control_has_a_name(page: Parsed) -> None:
    ids = {attributes.get("id") for _, attributes in page.elements}
    for tag, attributes in page.elements:
        if tag == "section":
            assert attributes.get("aria-label") or attributes["aria-labelledby"] in ids
        if attributes.get("role") in ("img", "region"):
            assert "aria-label" in attributes or attributes["id"].startswith("surface-")


def test_plotly_is_the_published_file() -> None:
    text = PLOTLY.read_bytes()
    assert hashlib.sha256(text).hexdigest() == PLOTLY_SHA256
    assert b"plotly.js (gl3d - minified) v4.1.1" in text[:200]
    assert b"</script" not in text
    assert "MIT License" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


def test_lines_are_distinct_and_can_be_seen_on_both_backgrounds() -> None:
    found = [web_look(style(recipe)) for recipe in CATALOG.values()]
    assert all(contrast(look["dark"], DARK_PAPER) >= 4 for look in found)
    assert len({(look["colour"], tuple(look["dashes"]), look["symbol"]) for look in found}) == len(found)
    assert len({(look["dark"], tuple(look["dashes"]), look["symbol"]) for look in found}) == len(found)
    tones = [web_look(style(CATALOG[name]))["dark"] for name in ("scaffold", "fedavg", "feddyn")]
    assert [contrast(tone, DARK_PAPER) for tone in tones] == sorted(contrast(tone, DARK_PAPER) for tone in tones)
    assert len(set(tones)) == 3, "methods of one hue keep their tones"
    own = web_look(looks()[OWN])
    assert [own["colour"], own["dark"], own["own"]] == ["#000000", "#ffffff", True]


def test_many_runs_make_a_page_below_four_megabytes() -> None:
    runs, curves = frames()
    rng = np.random.default_rng(0)
    copies = [[frame.assign(seed=frame["seed"] + 3 * copy) for frame in (runs, curves)] for copy in range(57)]
    many, long = (pd.concat(parts, ignore_index=True) for parts in zip(*copies, strict=True))
    for frame in (many, long):
        for name in ("test_accuracy", "test_loss", "gradients", "seconds", "lambda_max"):
            if name in frame:
                frame[name] *= rng.uniform(0.9, 1.1, len(frame))
    assert len(many) == 2736
    assert len(replace(explorer(), runs=many, curves=long).page().encode()) < 4e6
