"""Flatness of real runs: kept and retrained local models, sharpness by radius, both directions of the gradient."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures.flatness import Ascent, flatness_discrepancy, sharpness
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import EVALUATION_BATCH
from tests.places import MINI
from tests.problems import train

CPU = torch.device("cpu")
PLAIN = {"engine.backend": "loop", "engine.layout": "contiguous"}
"""Back end and layout with which retraining gives the same bits."""

Trained = Callable[..., RunDirectory]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of FedSAM, four rounds on digits, with changed values."""

    def make(**changes: object) -> RunDirectory:
        values = PLAIN | {f"evaluation.{key}": value for key, value in changes.items()}
        config = load_experiment(MINI, values).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
        return train(config, tmp_path_factory.mktemp("runs") / "run", CPU)

    return make


@pytest.fixture(scope="module")
def stored(trained: Trained) -> RunDirectory:
    return trained(local_models=[3, 4])


def of(run: RunDirectory, name: str, **options: object) -> pd.DataFrame:
    return parse_analysis(name, options).of_run(AnalysedRun(run, CPU))


def value(table: pd.DataFrame, metric: str = "flatness_discrepancy") -> float:
    return float(table.loc[table["metric"] == metric, "value"].item())


@pytest.mark.parametrize("finished", [None, 4])
def test_discrepancy_of_the_last_rounds_stored_models(finished: int | None, stored: RunDirectory) -> None:
    """Of w^4 and the models of round 4's participants, each on its own images, weighted by their number."""
    table = of(stored, "discrepancy", rho=0.3, round=finished)
    run = AnalysedRun(stored, CPU)
    objective, data = run.setup.objective, run.sample().data
    models = stored.local_models(4, CPU)
    sizes = {i: len(run.setup.split[i]) for i in models}
    mean = sum(sizes[i] * sharpness(objective, w, run.client_batches(i), 0.3) for i, w in models.items())
    mean /= sum(sizes.values())
    of_global = sharpness(objective, run.w, data, 0.3)
    assert value(table, "mean_local_sharpness") == pytest.approx(mean)
    assert value(table, "global_sharpness") == pytest.approx(of_global)
    assert value(table) == pytest.approx(abs(of_global - mean))
    assert "after round 4" in table["definition"][0]
    assert f"those of the {len(models)} participants of round 4" in table["definition"][0]


def test_stored_models_need_no_state_of_their_round(stored: RunDirectory) -> None:
    """States are stored after rounds 2 and 4; the global model of round 3 is stored with the local ones."""
    run, models = AnalysedRun(stored, CPU), stored.local_models(3, CPU)
    clients = [(models[i], run.client_batches(i)) for i in models]
    expected = flatness_discrepancy(run.setup.objective, models.w_global, run.sample().data, clients, rho=0.1)
    assert value(of(stored, "discrepancy", round=3)) == pytest.approx(expected.value)
    after = stored.local_models(4, CPU)
    assert torch.equal(after.w_global, stored.snapshot(4, CPU).w)
    with pytest.raises(UserError, match=r"has no saved local models of round 2 \(saved: 3, 4\)"):
        of(stored, "discrepancy", round=2)


def test_retrained_models_are_all_clients_from_the_state(stored: RunDirectory) -> None:
    """Full participation from w^2: what stored models of round 3 are for the participants."""
    table = of(stored, "discrepancy", local_models="retrained", round=2, steps=3)
    run = AnalysedRun(stored, CPU)
    state, setup = run.state(2), run.setup
    results = setup.federation.train_clients(state, range(20))
    local = [(result.w, run.client_batches(i)) for i, result in results.items()]
    expected = flatness_discrepancy(
        setup.objective, state.w, run.sample().data, local, rho=0.1, ascent=Ascent(3)
    )  # fmt: skip
    assert value(table) == pytest.approx(expected.value)
    assert all(torch.equal(results[i].w, w) for i, w in stored.local_models(3, CPU).items())


@pytest.mark.parametrize("method", ["fedsam", "fedsmoo", "scaffold"])
def test_with_full_participation_both_definitions_have_the_same_local_models(method: str, tmp_path: Path) -> None:
    """Those of round 4, bit for bit, and so their sharpness, although the methods have client states."""
    values = {
        "training.rounds": 4,
        "evaluation.every": 4,
        "evaluation.snapshot_every": 3,
        "evaluation.local_models": [4],
    }
    everyone = {"grid.participation": [{"sampling": "full"}]}
    experiment = load_experiment("quick_all", PLAIN | values | everyone)
    path = next(path for path in experiment.paths() if "/dirichlet-0.1/" in path and path.endswith(f"/{method}"))
    run = train(experiment.cell(path).runs[0], tmp_path / "run", CPU)
    assert len({len(own) for own in AnalysedRun(run, CPU).setup.split}) > 1, "clients have different weights"
    kept = of(run, "discrepancy", round=4)
    retrained = of(run, "discrepancy", round=3, local_models="retrained")
    assert "those of all clients" in retrained["definition"][0]
    assert value(retrained, "mean_local_sharpness") == value(kept, "mean_local_sharpness")
    assert value(retrained, "global_sharpness") != value(kept, "global_sharpness"), "of w^3 and w^4"


def test_what_is_taken_unless_the_options_say(stored: RunDirectory, trained: Trained) -> None:
    assert "participants of round 4" in of(stored, "discrepancy")["definition"][0]
    retrained = of(trained(), "discrepancy", local_models="retrained")
    assert "those of all clients, after the local steps of one more round" in retrained["definition"][0]


def test_a_run_without_stored_models_is_one_line_if_they_are_requested(trained: Trained, tmp_path: Path) -> None:
    run = trained()
    with pytest.raises(UserError, match=r"evaluation.local_models is null: .*set it to rounds such as \[30\]") as error:
        run_analysis(parse_analysis("discrepancy", {}), run.path, tmp_path / "x.csv", CPU, str)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "x.csv").exists()


def test_stored_models_alone_suffice(trained: Trained, tmp_path: Path) -> None:
    """No state is needed for the last round: its global model is the run's final one."""
    run = trained(snapshot_every=None, local_models="last")
    run_analysis(parse_analysis("discrepancy", {}), run.path, tmp_path / "x.csv", CPU, str)
    assert value(pd.read_csv(tmp_path / "x.csv")) > 0


def test_sharpness_by_radius(stored: RunDirectory) -> None:
    """Wider balls hold the narrower ones' maxima; the first order is ρ‖∇F(w)‖."""
    table = of(stored, "sharpness", radii=[0.05, 0.1, 0.5], images=100, steps=4)
    run = AnalysedRun(stored, CPU)
    data = run.sample(images=100).data
    slope = float(run.setup.objective.full_gradient(run.w, data).norm())
    assert list(table["first_order"]) == pytest.approx([0.05 * slope, 0.1 * slope, 0.5 * slope])
    assert table["sharpness"].is_monotonic_increasing
    one = of(stored, "sharpness", radii=[0.5], images=100, steps=1)["sharpness"].item()
    assert one == pytest.approx(of(stored, "flatness", rho=0.5, images=100)["value"][1])
    assert one < table["sharpness"].iloc[2]
    assert "best of 4 projected ascent steps, each 1 × the radius long" in table["definition"].iloc[2]


def test_both_directions_of_the_gradient_next_to_random_ones(stored: RunDirectory) -> None:
    table = of(stored, "perturbation", directions=["random", "gradient"], radii=[0, 0.01, 1], draws=2, images=100)
    by_kind = dict(iter(table.groupby("direction")))
    assert list(by_kind["random"]["radius"]) == [0, 0.01, 1] * 2
    assert list(by_kind["gradient"]["radius"]) == [-1, -0.01, 0, 0.01, 1]
    below, here, above = by_kind["gradient"]["loss"].iloc[1:4]
    assert below < here < above
    assert (by_kind["random"].loc[by_kind["random"]["radius"] == 0, "loss"] == here).all()
    alone = of(stored, "perturbation", radii=[0, 0.01, 1], draws=2, images=100)
    pd.testing.assert_frame_equal(alone, by_kind["random"].reset_index(drop=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sharpness", {"radii": [0.1, 1], "steps": 3}),
        ("perturbation", {"directions": ["gradient"], "radii": [0, 1]}),
        ("discrepancy", {"steps": 3}),
        ("drift", {"virtual": "all"}),
    ],
)
def test_batches_change_nothing_beyond_rounding(
    name: str, options: dict, stored: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32: to 1e-3, as differences of losses are small compared with the losses."""
    whole = of(stored, name, **options)
    monkeypatch.setitem(EVALUATION_BATCH, "cpu", 40)
    pd.testing.assert_frame_equal(of(stored, name, **options), whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("discrepancy", {"local_models": "keep"}, "local_models = 'keep': Input should be 'kept' or 'retrained'"),
        ("sharpness", {"radii": [0]}, "radii.0 = 0: Input should be greater than 0"),
        ("flatness", {"steps": 0}, "steps = 0: Input should be greater than or equal to 1"),
        ("perturbation", {"directions": ["uphill"]}, "directions.0 = 'uphill': Input should be 'random' or 'gradient'"),
    ],
)
def test_wrong_options_are_one_line(name: str, options: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_analysis(name, options)
    assert message in str(error.value)
