"""Tables and figures of each paper, at a scale still smaller than smoke: by Snakemake, or from runs trained here."""

from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.training.train import train_cell
from tests.end_to_end.pipeline import snakemake
from tests.tiers import thorough

SMALLEST = {"experiments": None, "scale": "smoke", "rounds": 2, "seeds": "[0]"}

TARGETS = {
    "fedgf": ("5", "7", "[fedavg,fedgf,fedgf_c0,fedgf_c0.5,fedgf_c1]"),
    "fedlesam": ("7", "2", "[fedavg,fedlesam,sam]"),
    "fedtoga": ("10", "2a", "[fedavg,fedsam,fedtoga]"),
    "fedsam_qu": ("2", "1", "[fedavg,fedsam]"),
    "fedsam_caldarola": ("5", "11", "[fedavg,fedasam]"),
}
"""By paper: one table, one figure, and the methods that are run."""
QUICKEST, *OTHERS = TARGETS
PAPERS = [QUICKEST, *(pytest.param(paper, marks=thorough) for paper in OTHERS)]


@pytest.mark.long
@pytest.mark.parametrize("paper", PAPERS)
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


@pytest.mark.long
@thorough
def test_landmarks_and_street_scenes(tmp_path):
    """Caldarola et al.'s Tables 7 and 8, whose blocks have rows of their own, and predictions of two parts."""
    paper = "fedsam_caldarola"
    targets = (f"{paper}_table_7", f"{paper}_table_8", f"{paper}_figure_predictions")
    snakemake(tmp_path, *targets, **SMALLEST, methods="[fedavg,silobn,centralized]")
    folder = tmp_path / "results" / "reports" / f"{paper}_smoke"
    landmarks, scenes = (pd.read_csv(folder / "tables" / f"{name}.csv") for name in ("7", "8"))
    assert (landmarks["source"] == "run").sum() == 4, "FedAvg, with both kinds of SWA, and centralised training"
    assert scenes.groupby("block", sort=False)["row"].unique().map(list).to_dict() == {
        "Uniform clients": ["fedavg", "fedavg+swa"],
        "Heterogeneous clients": ["fedavg", "fedavg+swa"],
        "Heterogeneous clients, SiloBN": ["silobn"],
    }
    assert (scenes["source"] == "run").all()
    assert scenes["mean"].between(0, 100).all()
    text = (folder / "tables" / "8.md").read_text(encoding="utf-8")
    assert "The small network has BatchNorm" in text
    picture = folder / "figures" / "predictions.md"
    assert "Statistics of BatchNorm" in picture.read_text(encoding="utf-8")
    assert picture.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@thorough
def test_held_out_domains(tmp_path: Path):
    """FedLESAM's Tables 3 and 4 and Figure 4 from the runs of OfficeHome: 16 of their cells, and 20 of radii."""
    overrides = {"scale": "smoke", "training.rounds": 2, "grid.seeds": [0]}
    requested = RequestedExperiment("fedlesam", tmp_path, overrides)
    experiment, device = requested.experiment, prepare_device("cpu", 1)
    shown = {"fedavg", "fedlesam", *(label for label in experiment.methods if label.startswith("fedlesam_s_rho"))}
    for path, cell in experiment.cells().items():
        address = CellAddress.of(path)
        part, method = address.setting.dataset, address.method
        if part.startswith("officehome") and not part.endswith("windows") and method in shown:
            train_cell(experiment.name, cell, requested.paths.root, device, silent)
    for name in ("3", "4"):
        Tables(requested).render(name)
    domains, means = (pd.read_csv(requested.report_paths.table(name)[2]) for name in ("3", "4"))
    run = domains[domains["source"] == "run"]
    assert set(run["row"]) == {"fedavg", "fedlesam"}
    assert len(run) == 16
    expected = run.groupby("row")["mean"].mean()
    shown_means, gains = (
        means[means["column"].str.endswith(f"OfficeHome, {what}") & (means["source"] == "run")].set_index("row")["mean"]
        for what in ("mean", "gain")
    )
    assert shown_means.to_dict() == pytest.approx(expected.to_dict())
    assert gains.to_dict() == pytest.approx({"fedlesam": expected["fedlesam"] - expected["fedavg"]})
    picture, _, text = Figures(requested).render("4")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Not run" in text.read_text(encoding="utf-8"), "the other three data sets"
