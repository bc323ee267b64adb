"""Paths of results: written and read in one place."""

from pathlib import Path

import pytest

from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.results import ResultPaths, custom, custom_analysis

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
PATHS = ResultPaths(Path("/out"))


def test_a_path_is_an_address_and_an_address_is_a_path() -> None:
    address = CellAddress.of(CELL)
    assert address == CellAddress(Setting("digits", "dirichlet-0.1", "4-of-20"), "fedsam")
    assert address.path == CELL
    assert address.setting == Setting.of("digits/dirichlet-0.1/4-of-20")
    assert list(address.columns) == ["dataset", "partition", "participation", "method"]
    assert "/".join(address.ids) == CELL


def test_where_results_are_stored() -> None:
    assert PATHS.run("quick", CELL, 3) == Path(f"/out/runs/quick/{CELL}/seed-3")
    assert (
        PATHS.tidy("quick", CELL, "metrics")
        == PATHS.metrics("quick", CELL)
        == PATHS.cell("quick", CELL) / "metrics.csv"
    )
    assert PATHS.tidy("quick", CELL, "hessian") == Path(f"/out/analysis/quick/{CELL}/hessian.csv")
    assert PATHS.tidy("quick", CELL, "partition", 2) == Path(f"/out/partitions/quick/{CELL}/seed-2/partition.csv.gz")
    assert PATHS.report("quick").folder == Path("/out/reports/quick")
    assert PATHS.report("quick", "best").folder == Path("/out/reports/quick_best")
    assert PATHS.log("quick", "train", CELL) == Path(f"/out/logs/quick/{CELL}/train.log")
    assert PATHS.log("quick", "page") == Path("/out/logs/quick/page.log")


def test_paths_are_patterns_for_snakemake() -> None:
    pattern = str(
        ResultPaths().analysis("{experiment}", "{dataset}/{partition}/{participation}/{method}", "{analysis}")
    )
    assert pattern == "results/analysis/{experiment}/{dataset}/{partition}/{participation}/{method}/{analysis}.csv"


@pytest.mark.parametrize("experiment", ["quick", custom("quick")])
def test_files_of_a_cell_are_found_back(experiment: str) -> None:
    for file in (
        PATHS.metrics(experiment, CELL),
        PATHS.run(experiment, CELL, 0),
        PATHS.run(experiment, CELL, 0) / "config.json",
        PATHS.analysis(experiment, CELL, "hessian"),
        PATHS.partition(experiment, CELL, 1),
    ):
        assert PATHS.cell_of(file) == (experiment, CellAddress.of(CELL))


def test_other_files_belong_to_no_cell() -> None:
    for file in (
        PATHS.report("quick").page,
        PATHS.cell("quick", "digits"),
        PATHS.root / "runs",
        Path("paper_tables/quick/a.yaml"),
    ):
        assert PATHS.cell_of(file) is None


def test_custom_analyses_are_stored_apart_from_those_of_experiments() -> None:
    """They are not where tables look for the experiment's own."""
    place = Path(f"/out/analysis/custom/quick/{CELL}/seed-0/drift.csv")
    assert PATHS.analysis(custom("quick"), f"{CELL}/seed-0", "drift") == place
    assert custom_analysis(PATHS.run("quick", CELL, 0), "drift") == place
    assert custom_analysis(PATHS.run(custom("quick"), CELL, 0), "drift") == place
    assert custom_analysis(Path("/try"), "drift") == Path("/try/analysis/drift.csv")
