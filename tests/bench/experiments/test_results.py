"""Paths of results: written and read in one place."""

import re
from pathlib import Path

from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths

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
    lists = Path(f"/out/experiments/quick/{CELL}")
    assert PATHS.tidy("quick", CELL, "metrics") == PATHS.runs("quick", CELL) == lists / "runs.csv"
    assert PATHS.tidy("quick", CELL, "hessian") == PATHS.analysis("quick", CELL, "hessian") == lists / "hessian.csv"
    assert PATHS.tidy("quick", CELL, "partition", 2) == Path(f"/out/partitions/quick/{CELL}/seed-2/partition.csv.gz")
    assert PATHS.report("quick").folder == Path("/out/reports/quick")
    assert PATHS.report("quick", "best").folder == Path("/out/reports/quick_best")
    assert PATHS.log("quick", "train", CELL) == Path(f"/out/logs/quick/{CELL}/train.log")
    assert PATHS.log("quick", "page") == Path("/out/logs/quick/page.log")


def test_a_run_is_where_its_configuration_says() -> None:
    """Whoever asks for it: by an experiment of another name, or as a value of a sweep."""
    run = load_experiment("quick").cell(CELL).runs[2]
    place = PATHS.run(run)
    assert re.fullmatch(r"/out/store/digits/dirichlet-0\.1/4-of-20/fedsam-[0-9a-f]{8}/seed-2", str(place))
    assert PATHS.run(run.with_seed(0)) == place.with_name("seed-0")
    others = {
        key: load_experiment("quick_all", {key: value, "grid.seeds": [2]}).cell(CELL).runs[0]
        for key, value in {
            "engine.backend": "loop",
            "training.rounds": 7,
            "methods.fedsam.hyperparameters.rho": 0.2,
            "evaluation.local_models": [3],
        }.items()
    }
    assert [key for key, other in others.items() if PATHS.run(other) == place] == ["engine.backend"]
    assert [key for key, other in others.items() if other.identity == run.identity] == ["engine.backend"]


def test_the_place_of_a_run_does_not_depend_on_names_of_files(tmp_path: Path) -> None:
    """As its identity: a renamed file with the same content is no other run."""
    places = set()
    for name in ("mine", "renamed"):
        file = tmp_path / f"{name}.csv"
        file.write_text("round,client\n0,1\n0,2\n1,5\n", encoding="utf-8")
        changes = {"grid.participation": [{"sampling": "schedule", "file": str(file)}], "training.rounds": 2}
        places.add(
            load_experiment("quick", changes).cell(f"digits/dirichlet-0.1/schedule-{name}-of-20/fedavg").runs[0].place
        )
    [place] = places
    assert re.fullmatch(r"schedule-[0-9a-f]{8}-of-20", place.parts[2])


def test_names_of_compositions_are_names_of_folders(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "name: own\nextends: quick\n"
        "methods: {x: {perturbation: sam, correction: scaffold, hyperparameters: {rho: 0.1}}}\n",
        encoding="utf-8",
    )
    place = load_experiment(str(own)).cell(CELL.replace("fedsam", "x")).runs[0].place
    assert place.parts[3].rpartition("-")[0] == "sam+scaffold"


def test_paths_are_patterns_for_snakemake() -> None:
    pattern = str(
        ResultPaths().analysis("{experiment}", "{dataset}/{partition}/{participation}/{method}", "{analysis}")
    )
    assert pattern == "results/experiments/{experiment}/{dataset}/{partition}/{participation}/{method}/{analysis}.csv"


def test_files_of_a_cell_are_found_back() -> None:
    for file in (
        PATHS.runs("quick", CELL),
        PATHS.analysis("quick", CELL, "hessian"),
        PATHS.partition("quick", CELL, 1),
    ):
        assert PATHS.cell_of(file) == ("quick", CellAddress.of(CELL))


def test_other_files_belong_to_no_cell() -> None:
    for file in (
        PATHS.report("quick").page,
        PATHS.lists("quick", "digits"),
        PATHS.store / CELL / "seed-0" / "metrics.csv",
        Path("paper_tables/quick/a.yaml"),
    ):
        assert PATHS.cell_of(file) is None
