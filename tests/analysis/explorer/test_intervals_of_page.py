"""The intervals of the interactive page: its quantiles, and the bands that its own scripts draw."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtr

from fedflat.analysis.explorer.page import ASSETS
from tests.analysis.explorer.frames_by_hand import SETTINGS, explorer, frames
from tests.analysis.figures.test_intervals import deviation, t_interval


def test_the_quantiles_of_the_interactive_page() -> None:
    """They are rounded to four decimals."""
    quantiles = explorer().data()["quantiles"]
    assert len(quantiles) == 99
    found = [stdtr(df, [q - 6e-5, q + 6e-5]) for df, q in enumerate(quantiles, start=1)]
    assert all(below < 0.975 < above for below, above in found)


def _node() -> str | None:
    """Node.js, or that of the package playwright."""
    found = importlib.util.find_spec("playwright")
    own = Path(str(found.origin)).parent / "driver" / "node" if found else None
    return shutil.which("node") or (str(own) if own and own.is_file() else None)


BANDS = """
globalThis.document = {
  getElementById: () => ({ textContent: PAGE }), documentElement: { dataset: { theme: "light" } },
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.valueText = String;
SCRIPTS
const found = {};
for (const entry of ENTRIES) {
  state.pinned.add(entry.key);
  found[entry.key] = ["deviation", "interval"].map((kind) => {
    state.spread = kind;
    const [low, high] = curveTraces(entry);
    return [low.y, high.y];
  });
}
console.log(JSON.stringify(found));
"""
"""Prints the edges of the bands of all methods in the first setting: deviations, and intervals."""


@pytest.mark.skipif(_node() is None, reason="needs Node.js, such as that of the package playwright")
def test_the_intervals_of_the_interactive_page() -> None:
    """Of the values on the page, which have four digits."""
    names = ("statistics.js", "data.js", "state.js", "marks.js", "charts.js", "curves.js")
    scripts = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)
    script = BANDS.replace("PAGE", json.dumps(json.dumps(explorer().data()))).replace("SCRIPTS", scripts)
    done = subprocess.run([str(_node()), "-"], input=script, capture_output=True, text=True, check=True)
    _, curves = frames()
    curves = curves[(curves["partition"] == SETTINGS[0][1]) & (curves["variant"] == "tuned")]
    for method, rows in curves.groupby("method"):
        values = [of_round.tolist() for _, of_round in rows.groupby("round")["test_accuracy"]]
        for shown, interval in zip(json.loads(done.stdout)[f"{method} tuned"], (deviation, t_interval), strict=True):
            np.testing.assert_allclose(np.transpose(shown), list(map(interval, values)), atol=0.03)
