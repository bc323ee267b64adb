"""A copy of quick's experiment with another grid and other methods, and nothing else: every table and figure comes."""

import re
from pathlib import Path

import pandas as pd
import pytest

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES
from tests.end_to_end.pipeline import snakemake
from tests.tiers import thorough

pytestmark = [pytest.mark.long, thorough]

METHODS = "methods:\n  fedavg: {}\n  fedsam: {hyperparameters: {rho: [0.02, 0.2]}}\n"
EDITS = {
    r"name: quick\n": "name: own\n",
    r"rounds: 30, local_epochs: 2": "rounds: 2, local_epochs: 1",
    r"    - \{name: dirichlet, alpha: 0.6, clients: 20\}\n": "    - {name: dirichlet, alpha: 0.3, clients: 10}\n",
    r"    - \{name: dirichlet, alpha: 0.1, clients: 20\}\n": "",
    r"    - \{active: 10\}\n": "",
    r"snapshot_every: 5": "snapshot_every: 2",
    r"seeds: \[0, 1, 2\]": "seeds: [0]",
    r"methods:\n(  .*\n)*": METHODS,
}
TABLES = ["accuracy", "flatness", "sweep"]
FIGURES = [
    "convergence", "cost", "differences", "drift", "labels", "perturbation", "perturbation_rise", "surfaces",
    "sweep_accuracy", "sweep_flatness",
]  # fmt: skip


def edited_copy(folder: Path) -> None:
    """The folder with the edited copy and its results."""
    text = (PAPER_TABLES / "quick" / "experiments.yaml").read_text(encoding="utf-8")
    for old, new in EDITS.items():
        text, count = re.subn(old, new, text)
        assert count == 1, old
    (folder / "experiments.yaml").write_text(text, encoding="utf-8")
    assert "is left out" not in snakemake(folder, "own", experiments="[experiments.yaml]")


@pytest.fixture
def own(once) -> Path:
    return once(edited_copy)


def test_every_table_and_figure_shows_the_grid(own):
    report = own / "results" / "reports" / "own"
    assert sorted(file.stem for file in report.glob("tables/*.csv")) == TABLES
    assert sorted(file.stem for file in report.glob("figures/*.png")) == FIGURES
    page = (report / "index.html").read_text(encoding="utf-8")
    assert 'href="index.html"' in (report / "explore.html").read_text(encoding="utf-8"), "written before the report"
    assert "Not drawn yet" not in page
    assert "Not shown" not in page
    assert "α = 0.3" in page
    assert "4 of 10 clients per round" in page
    table = pd.read_csv(report / "tables" / "accuracy.csv")
    assert list(table["row"]) == ["fedavg", "fedsam-rho-0.02", "fedsam-rho-0.2"]
    assert "FedSAM (rho = 0.02)" in page
    assert table["mean"].notna().all()
    assert pd.read_csv(report / "tables" / "sweep.csv")["mean"].notna().all()


def test_a_swept_run_is_that_of_a_single_value(own):
    single = load_experiment(str(own / "experiments.yaml"), {"methods.fedsam.hyperparameters.rho": 0.2})
    [cell] = [cell for path, cell in single.cells().items() if path.endswith("/fedsam")]
    metrics = own / "results/experiments/own/digits/dirichlet-0.3/4-of-10/fedsam-rho-0.2/runs.csv"
    assert set(pd.read_csv(metrics)["identity"]) == {run.identity for run in cell.runs}
