"""What `--config method=... grid=...` requests, and what it refuses before any job starts."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fedflat.analysis.comparison.baselines import Baselines, load, save
from fedflat.analysis.planning.workflow import Workflow
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError
from fedflat.conformance.template import write_template
from tests.commands import ended


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_template(tmp_path / "idea.py")


def requested(tmp_path: Path, **config: object) -> Workflow:
    return Workflow.of({"grid": "quick", **config, "results": str(tmp_path / "results")})


def test_a_file_is_tuned_and_compared_in_all_settings_of_the_grid(own: Path, tmp_path: Path) -> None:
    flow = requested(tmp_path, method=str(own), trials=3, seeds=[0, 1])
    assert flow.compared is not None
    experiment = flow.compared.experiment.experiment
    quick = flow.experiments["quick"].experiment
    assert list(experiment.methods) == ["idea"]
    assert list(experiment.settings) == list(quick.settings)
    assert (experiment.tuning.trials, experiment.grid.seeds) == (3, (0, 1))
    assert experiment.methods["idea"].file == own
    assert {run.method.hyperparameters["rho"] for cell in experiment.cells().values() for run in cell.runs} == {0.1}
    assert flow.compared.judged_name == "quick_idea_tuned"
    assert flow.compared.judged.name_or_file == str(tmp_path / "results" / "tuning" / "quick_idea" / "tuned.yaml")
    assert flow.targets["compare"](None) == [
        tmp_path / "results" / "reports" / "quick_idea_tuned" / "comparison" / "report.md"
    ]


def test_without_trials_the_values_of_the_file_are_compared(own: Path, tmp_path: Path) -> None:
    compared = requested(tmp_path, method=str(own), trials=0).compared
    assert compared is not None
    assert compared.judged is compared.experiment
    assert compared.judged_name == "quick_idea"


def test_six_of_the_seeds_are_enough(own: Path, tmp_path: Path) -> None:
    compared = requested(tmp_path, method=str(own), grid="bench1d", seeds=[0, 1, 2, 5, 8, 9]).compared
    assert compared is not None
    assert compared.experiment.experiment.grid.seeds == (0, 1, 2, 5, 8, 9)


def test_the_file_of_the_experiment_is_written_again_only_if_it_changes(own: Path, tmp_path: Path) -> None:
    file = tmp_path / "results" / "compare" / "quick" / "idea.yaml"
    requested(tmp_path, method=str(own))
    first = file.stat()
    requested(tmp_path, method=str(own))
    assert file.stat() == first
    own.write_text(own.read_text(encoding="utf-8").replace("examples=[0.1]", "examples=[0.2]"), encoding="utf-8")
    requested(tmp_path, method=str(own))
    assert "rho: 0.2" in file.read_text(encoding="utf-8")


def test_methods_of_the_grid_of_experiments_and_of_the_catalog(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nextends: quick\nmethods: {dyn_sam: {perturbation: sam, correction: feddyn, "
                    "server: feddyn, hyperparameters: {rho: 0.05, lam: 0.1}}}\n", encoding="utf-8")  # fmt: skip
    for method, label in ((f"{mine}:dyn_sam", "dyn_sam"), ("fedsam", "fedsam"), ("fedcm", "fedcm")):
        compared = requested(tmp_path, method=method).compared
        assert compared is not None
        assert list(compared.experiment.experiment.methods) == [label]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "idea.py", "grid": None}, "a comparison needs two keys: --config method=mine.py grid=bench1d"),
        ({"grid": "quick"}, "a comparison needs two keys"),
        ({"method": "idea.py", "grid": "quik"}, "unknown grid of stored baselines 'quik'; did you mean 'quick'"),
        ({"method": "idea.py", "rounds": 5}, "--config rounds: runs with it cannot be compared with stored ones"),
        ({"method": "idea.py", "scale": "smoke"}, "--config scale: runs with it cannot be compared"),
        ({"method": "none.py"}, "none.py: there is no such file"),
        ({"method": "fedsamm"}, "unknown method 'fedsamm'; did you mean 'fedsam'"),
        ({"method": "quick:fedsamm"}, "unknown method of 'quick' 'fedsamm'; did you mean 'fedsam'"),
        ({"method": "fedsam.py"}, "grid quick has a method named fedsam; rename the file"),
        (
            {"method": "idea.py", "seeds": [0, 8, 9]},
            "seeds=.0,8,9.: grid quick has no runs with seed 8, 9 .allowed: 0, 1, 2",
        ),
        (
            {"method": "idea.py", "grid": "bench1d", "seeds": [0, 1, 99]},
            "no runs with seed 99 .allowed: 0, 1, 2, 3, 4, 5",
        ),
        (
            {"method": "idea.py", "grid": "bench1d", "seeds": [0, 1]},
            "seeds=.0,1.: a verdict needs at least 6 seeds .allowed: at least 6 of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9.",
        ),
        ({"method": "idea.py", "trials": -1}, "trials=-1 .allowed: a whole number of at least 1, or 0 for no tuning"),
        ({"method": "idea.py", "trials": "x"}, "trials=x .allowed: a whole number of at least 1, or 0 for no tuning"),
        ({"method": ["idea.py"]}, "allowed: a file or method, and the name of a grid"),
        ({"method": "idea.py", "grid": "fedgf"}, "no stored baselines|unknown grid of stored baselines"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_job(
    own: Path, tmp_path: Path, config: dict[str, object], message: str
) -> None:
    (tmp_path / "fedsam.py").write_bytes(own.read_bytes())
    if isinstance(method := config.get("method"), str) and method.endswith(".py"):
        config = config | {"method": str(tmp_path / method)}
    with pytest.raises(UserError, match=message):
        requested(tmp_path, **config)
    assert not (tmp_path / "results").exists()


def test_baselines_of_another_version_are_refused_before_any_job(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = load("quick")
    monkeypatch.chdir(tmp_path)
    save(ResultPaths().baselines("quick"), Baselines(stored.runs.assign(code="9.9.0+ffffffffffffffff"), stored.curves))
    with pytest.raises(UserError, match=r"runs of FedFlat 0.1 cannot be compared with the stored runs of FedFlat 9.9"):
        requested(tmp_path / "own", method=str(own))
    assert not (tmp_path / "own").exists()


def edit(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("return self.rho * unit", "return 0.5 * self.rho * unit"), encoding="utf-8")


def test_tuned_values_are_outdated_if_a_search_is(own: Path, tmp_path: Path) -> None:
    """Also while the trials are missing: Snakemake has deleted them before the search that failed."""
    w = SimpleNamespace(experiment="quick_idea")
    one = requested(tmp_path, method=str(own)).searches(w)
    assert one == requested(tmp_path, method=str(own)).searches(w)
    more = requested(tmp_path, method=str(own), trials=3).searches(w)
    edit(own)
    assert len({one, more, requested(tmp_path, method=str(own)).searches(w)}) == 3


def test_the_target_names_the_keys_that_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = Workflow.of({"results": str(tmp_path)})
    with ended(capsys, r"the target compare needs --config method=mine.py grid=bench1d"):
        flow.targets["compare"](None)
