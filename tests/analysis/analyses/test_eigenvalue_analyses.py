"""The analyses of Hessians on real runs: what their rows say, and what they refuse."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures.curvature.hessian import top_eigenvalues
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.analysis.conftest import LITTLE
from tests.benchmarks import estimators

CPU = torch.device("cpu")
CELL = Path("results", "experiments", "little", "digits", "dirichlet-0.1", "4-of-20")


def run_of(method: str = "fedsam") -> Path:
    [run] = Path("results", "store", *CELL.parts[-3:]).glob(f"{method}-*/seed-0")
    return run


def analysed(
    name: str, options: dict, method: str = "fedsam", *, all_seeds: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    said: list[str] = []
    run_analysis(parse_analysis(name, options), run_of(method), Path("x.csv"), CPU, said.append)
    return pd.read_csv("x.csv"), said


def test_hessian_lists_every_eigenvalue(little: Path) -> None:
    table, said = analysed("hessian", {"images": 80, "eigenvalues": 8})
    values = table.set_index("metric")
    top = table[table["metric"] == "eigenvalue"]
    assert top["index"].tolist() == list(range(1, 9))
    assert top["value"].is_monotonic_decreasing
    assert (top["residual"] <= 1e-3 * top["value"]).all()
    assert values.loc["lambda_max", "value"] == top["value"].iloc[0]
    assert values.loc["lambda_ratio_1_5", "value"] == pytest.approx(top["value"].iloc[0] / top["value"].iloc[4])
    assert values.loc["lambda_converged", "value"] == 1
    assert not said
    double, _ = analysed("hessian", {"images": 80, "eigenvalues": 8, "dtype": "float64"})
    np.testing.assert_allclose(double["value"], table["value"], rtol=1e-3, atol=1e-3)
    assert double["definition"].str.contains("float64, mean cross-entropy of 80 training images").all()


def test_an_eigenvalue_that_is_less_exact_than_requested_is_reported(little: Path) -> None:
    table, said = analysed("hessian", {"images": 80, "max_products": 7})
    assert table.set_index("metric").loc["lambda_converged", "value"] == 0
    assert "eigenvalues have residuals above 0.001·|λ| after 12 products" in said[0]


def test_published_estimator_by_name(little: Path) -> None:
    exact, _ = analysed("hessian", {"images": 80})
    published, said = analysed("hessian", {"images": 80, "estimator": "power", "steps": 20})
    first, other = (table.set_index("metric").loc["lambda_max", "value"] for table in (exact, published))
    assert other == pytest.approx(first, rel=0.05)
    assert published["definition"].str.contains("power iteration of at most 20 steps").all()
    assert said


def test_the_package_by_name(little: Path) -> None:
    exact, _ = analysed("hessian", {"images": 80})
    package, said = analysed("hessian", {"images": 80, "estimator": "pyhessian", "iterations": 50, "change": 0.01})
    first, other = (table.set_index("metric").loc["lambda_max", "value"] for table in (exact, package))
    assert other == pytest.approx(first, rel=0.05)
    how = "PyHessian 0.1, power iteration of at most 50 steps, change 0.01, float32, mean cross-entropy of 80"
    assert package["definition"].str.contains(how).all()
    assert "eigenvalues have residuals above" in said[0]


def test_the_table_of_estimators(little: Path) -> None:
    """The docs show such tables: a row per estimator, each near the first, Lanczos, with the smallest residuals."""
    table = estimators.measure(AnalysedRun(RunDirectory(run_of()), CPU), 60)
    columns = dict(zip(table.header, zip(*table.rows, strict=True), strict=True))
    assert columns["estimator"] == tuple(estimators.ESTIMATORS)
    first, *others = map(float, columns["λ_1"])
    assert others == pytest.approx([first] * 3, rel=0.05)
    residuals = [float(value) for value in columns["residual of λ_1 / λ_1"]]
    assert min(residuals) == residuals[0] <= 1e-3


def test_spectrum_has_density_and_trace(little: Path) -> None:
    table, _ = analysed("spectrum", {"data": "test", "images": 40, "probes": 3, "steps": 12})
    density = table[table["metric"] == "density"]
    assert np.trapezoid(density["value"], density["eigenvalue"]) == pytest.approx(1, abs=1e-6)
    one = table.set_index("metric")
    assert one.loc["trace", "stderr"] > 0
    mean = np.trapezoid(density["value"] * density["eigenvalue"], density["eigenvalue"])
    P = AnalysedRun(RunDirectory(run_of()), CPU).w.numel()
    assert one.loc["trace", "value"] == pytest.approx(P * mean, rel=1e-3)
    assert one.loc["density_single", "value"] * one.loc["density_sigma", "value"] * P == pytest.approx(0.3989, abs=1e-4)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run with states after rounds 1 and 2."""
    (tmp_path / "little.yaml").write_text(LITTLE, encoding="utf-8")
    changes = {"training.rounds": 2, "evaluation.snapshot_every": 1, "grid.seeds": [0]}
    cell = load_experiment(str(tmp_path / "little.yaml"), changes).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    train_cell("little", cell, tmp_path / "results", CPU, str)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_clients_have_the_curvature_of_their_own_models(stored: Path) -> None:
    """Each row against the client's training done by hand, on its own images."""
    table, _ = analysed("client_hessian", {"clients": [3, 11]})
    assert table[["round", "client"]].to_numpy().tolist() == [[1, 3], [1, 11], [2, 3], [2, 11]]
    run = AnalysedRun(RunDirectory(run_of()), CPU)
    federation = run.setup.federation
    for row in table.itertuples():
        w = federation.train_clients(run.state(int(row.round)), [int(row.client)])[int(row.client)].w
        own = run.setup.train.batch(torch.from_numpy(run.setup.split[int(row.client)]))
        assert row.images == len(own[1])
        exact = top_eigenvalues(run.setup.objective, w, [own], 1, tolerance=1e-4)
        assert row.lambda_max == pytest.approx(exact.eigenvalues[0], rel=1e-3)
    assert table["definition"].str.contains("at its model after one more round").all()


def test_clients_are_so_many_or_these(stored: Path) -> None:
    some, _ = analysed("client_hessian", {"clients": 3, "rounds": [2]})
    assert set(some["round"]) == {2}
    assert some["client"].nunique() == 3
    assert some["client"].is_monotonic_increasing
    everyone, _ = analysed("client_hessian", {"rounds": [1], "max_products": 4, "tolerance": 1})
    assert everyone["client"].tolist() == list(range(20))
    with pytest.raises(UserError, match=r"names 20 \(allowed: 0 to 19\)"):
        analysed("client_hessian", {"clients": [20]})
    with pytest.raises(UserError, match=r"has no saved state after round 7 \(saved: 1, 2\)"):
        analysed("client_hessian", {"rounds": [7]})


def test_missing_states_are_reported(little: Path) -> None:
    with pytest.raises(UserError, match="client_hessian needs stored states of the runs"):
        analysed("client_hessian", {})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hessian", {"estimator": "arnoldi"}, "estimator"),
        ("hessian", {"eigenvalues": 51}, "less than or equal to 50"),
        ("hessian", {"dtype": "float16"}, "'float32' or 'float64'"),
        ("client_hessian", {"clients": 0}, "clients"),
        ("client_hessian", {"clients": [-1]}, "clients"),
        ("spectrum", {"probes": 1}, "greater than or equal to 2"),
    ],
)
def test_options_are_checked(name: str, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_analysis(name, options)
