"""One table and one figure of each paper by Snakemake, at a scale still smaller than smoke."""

import pandas as pd
import pytest

from tests.end_to_end.test_snakemake import snakemake

SMALLEST = {"experiments": None, "scale": "smoke", "rounds": 2, "seeds": "[0]"}

TARGETS = {
    "fedgf": ("5", "7", "[fedavg,fedgf,fedgf_c0,fedgf_c0.5,fedgf_c1]"),
    "fedlesam": ("7", "2", "[fedavg,fedlesam,sam]"),
    "fedtoga": ("10", "2a", "[fedavg,fedsam,fedtoga]"),
    "fedsam_qu": ("2", "1", "[fedavg,fedsam]"),
    "fedsam_caldarola": ("5", "11", "[fedavg,fedasam]"),
}
"""By paper: one table, one figure, and the methods that are run."""


@pytest.mark.long
@pytest.mark.parametrize("paper", TARGETS)
def test_a_table_and_a_figure(paper, tmp_path):
    table, figure, methods = TARGETS[paper]
    snakemake(tmp_path, f"{paper}_table_{table}", f"{paper}_figure_{figure}", **SMALLEST, methods=methods)
    folder = tmp_path / "results" / "reports" / f"{paper}_smoke"
    assert (folder / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "tables" / f"{table}.md").read_text(encoding="utf-8")
    assert "scikit-learn's digits replace the data" in text
    assert "Nothing is judged at this scale" in text
    rows = pd.read_csv(folder / "tables" / f"{table}.csv")
    assert (rows["source"] == "run").any(), "some numbers are reproduced"
    assert rows["published"].notna().any(), "some are shown"
