"""What is stored of a real search by a protocol, and methods that are compared with it."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.flat.search import add_search, load_search
from fedflat.analysis.comparison.flat.stored import Stored, grid_of, store
from fedflat.analysis.comparison.report.text import as_text
from fedflat.analysis.planning.compared_by_protocol import ComparedByProtocol
from fedflat.analysis.planning.compared_method import ComparedMethod
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.units import Units
from fedflat.cli.comparing import compare
from fedflat.conformance.template import write_template
from tests.analysis.comparison import tiny_search
from tests.analysis.conftest import run_of
from tests.bench.tuning import tiny_protocol as tiny


def winning(seed: int) -> Path:
    """FedSAM's run with winning values."""
    return run_of(Path("results"), "tiny_t1000", "mnist1d-60/iid/2-of-4/fedsam", seed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_search.store_one_pair(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def searched(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the protocol of a finished search, in whose folder the test works."""
    monkeypatch.chdir(finished)
    return finished / "grid" / "search.yaml"


def test_the_runs_of_a_search_are_stored(searched: Path) -> None:
    stored = Stored(str(searched))
    assert stored.units["seed"].tolist() == [1000, 1000, 1001, 1001]
    assert set(stored.units["method"]) == {"fedavg", "fedsam"}


def test_a_unit_has_the_numbers_of_its_runs(searched: Path) -> None:
    unit = Stored(str(searched)).units.set_index(["method", "seed"]).loc[("fedsam", 1000)]
    last = pd.DataFrame([RunDirectory(winning(seed)).metrics().iloc[-1] for seed in (0, 1)])
    for column in ("train_accuracy", "validation_accuracy", "test_accuracy"):
        assert unit[column] == pytest.approx(last[column].mean(), rel=1e-6)
    assert pd.isna(unit["fit_round"])  # of 99 %


def test_storing_again_changes_nothing(searched: Path) -> None:
    folder = Path("results/baselines")
    before = {file: file.read_bytes() for file in folder.rglob("*.csv")}
    store(str(searched), Path("results"), progress=silent)
    assert {file: file.read_bytes() for file in folder.rglob("*.csv")} == before


def test_a_method_whose_runs_are_not_finished_is_left_out(searched: Path, tmp_path: Path) -> None:
    run = winning(1)
    shutil.move(run, tmp_path / "kept")
    store(str(searched), Path("results"), tmp_path / "stored", progress=silent)
    shutil.move(tmp_path / "kept", run)
    rows = load("tiny", tmp_path / "stored" / "tiny").runs
    assert len(rows) == 6
    assert set(rows.loc[rows["method"] == "fedsam", "seed"]) == {2, 3}


def test_an_own_method_is_searched_as_those_of_the_protocol(searched: Path) -> None:
    """The file of `fedflat new-method` is FedSAM: so are its trials at the base's best two."""
    trust(write_template(Path("mine")).read_bytes())
    compared = ComparedByProtocol.of("mine.py", str(searched), Path("results"))
    assert (compared.base, compared.seeds) == ("fedavg", [1000, 1001])
    compared.search(prepare_device("cpu", 1, silent), silent)
    own = compared.units.of("main", "mine", 1000)
    sam = Units(SearchedGrid.read(str(searched)), Path("results")).of("main", "fedsam", 1000)
    stages = ("neutral", "points", "beyond")  # what follows is drawn, for each method from its own scramble
    mine, theirs = ([one for one in unit.read() if one.planned.stage in stages] for unit in (own, sam))
    assert [one.values for one in mine] == [one.values for one in theirs]
    assert [one.train_accuracy for one in mine] == [one.train_accuracy for one in theirs]
    assert [one.distance for one in mine] == pytest.approx([one.distance for one in theirs], rel=1e-6)
    made = compared.comparison()
    words = as_text(made, by_setting=False)
    assert words.startswith("Mine − FedAvg: ")
    assert "No verdict: 2 seeds" in words
    assert set(made.scores.methods) == {"mine", "fedavg", "fedsam"}


def test_a_method_of_the_protocol_is_compared_without_training(searched: Path) -> None:
    compared = ComparedByProtocol.of("fedsam", str(searched), Path("results"))
    assert compared.is_stored
    assert compared.comparison().lead[0].startswith("FedSAM − FedAvg: ")
    assert not compared.folder.exists()


def test_a_method_without_a_base_in_the_protocol_is_searched_as_a_base(searched: Path) -> None:
    """FedGAMMA has another correction than FedAvg; its radius is among the ranges."""
    compared = ComparedByProtocol.of("fedgamma", str(searched), Path("results"))
    assert (compared.is_base, compared.seeds) == (True, [1000, 1001])
    compared.search(prepare_device("cpu", 1, silent), silent)
    trials = compared.units.of("main", "fedgamma", 1001).read()
    assert len(trials) == compared.stored.protocol.trials.all
    radii = {one.values["hyperparameters.rho"] for one in trials}
    assert len(radii) > 3
    assert all(0.001 <= rho <= 0.5 for rho in radii)
    made = compared.comparison()
    assert made.lead == ()
    assert set(made.scores.methods) == {"fedgamma", "fedavg", "fedsam"}


def test_a_method_without_a_neutral_value_is_refused(searched: Path) -> None:
    text = """from fedflat.methods import Components, Perturbation, Recipe


class Plain(Perturbation):
    name = "plain"

    def delta(self, w, gradient, client):
        return 0.1 * w


METHOD = Recipe("plain", "Plain", "a test", Components(perturbation=Plain))
"""
    Path("plain.py").write_text(text, encoding="utf-8")
    trust(text.encode())
    with pytest.raises(UserError, match=r"plain has no hyper-parameter that is marked Neutral\(0\)"):
        _ = ComparedByProtocol.of("plain.py", str(searched), Path("results")).units


def test_trials_of_another_protocol_are_refused(searched: Path, tmp_path: Path) -> None:
    trials = load_search("tiny")
    assert trials is not None
    other = trials[trials["tuning_seed"] == 1000].assign(protocol="another", tuning_seed=1)
    write_checked_csv(tmp_path / "search.csv", other)
    with pytest.raises(UserError, match="several protocols"):
        add_search("tiny", Path("results"), tmp_path)


def test_without_a_search_nothing_is_stored(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no search of flat1d has ended"):
        add_search("flat1d", tmp_path, tmp_path / "stored")
    assert not (tmp_path / "stored").exists()


def test_experiments_of_a_search_belong_to_grids() -> None:
    names = ("flat1d_t1000", "flat1d_x1001", "flat1d_k2_t1000", "flat1d_a01_x1000", "flat1d")
    assert [grid_of(name) for name in names] == ["flat1d", "flat1d_x", "flat1d_k2", "flat1d_a01_x", None]


def test_snakemake_names_the_command_for_a_grid_with_a_protocol() -> None:
    with pytest.raises(UserError, match=r"fedflat compare mine\.py --grid flat1d"):
        ComparedMethod.of({"method": "mine.py", "grid": "flat1d"}, Path("results"), {})


def test_before_a_base_is_stored_a_method_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.write(tmp_path / "empty")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no search of fedavg, the base of fedlesam, is stored"):
        _ = ComparedByProtocol.of("fedlesam", str(file), Path("results")).seeds


def test_what_a_protocol_decides_is_no_option() -> None:
    with pytest.raises(UserError, match="--metric: a grid with a protocol compares test accuracies"):
        compare("mine.py", "flat1d", metric="lambda_max")
