"""Local models that a run keeps: those of the round's participants, with every back end, after any interruption."""

import pytest
import torch

from fedflat.bench.engine.checkpoint import save_models
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory, local_models_file
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.train import train_runs
from tests.bench.training.small_runs import CPU, SETTING, check_resume
from tests.problems import train

KEEPS = {
    "training.rounds": 3, "evaluation.snapshot_every": 1, "evaluation.local_models": [2, 3], "evaluation.every": 3,
    "engine.layout": "contiguous",
}  # fmt: skip


def configs(method, **changes):
    return load_experiment("quick_all", {**KEEPS, **changes}).cell(f"{SETTING}/{method}").runs


@pytest.mark.parametrize("method", ["fedlesam_s", "fedgf", "fedasam+swa"])
def test_they_are_those_trained_from_the_state_before(method, tmp_path):
    changes = {"engine.backend": "loop"}
    if method.endswith("+swa"):
        changes[f"methods.{method}"] = {"hyperparameters": {"rho": 0.3, "eta_a": 0.2, "swa": {"start": 0, "cycle": 1}}}
    run = train(configs(method, **changes)[0], tmp_path / "run", CPU)
    bench = RunSetup.build(run.config, CPU)
    for finished in (2, 3):
        before = run.snapshot(finished - 1, CPU)
        trained = bench.federation.train_clients(before, bench.active(before))
        stored = run.local_models(finished, CPU)
        assert list(stored) == sorted(bench.active(before))
        assert all(torch.equal(stored[i], trained[i].w) for i in stored)


def test_the_next_global_model_of_fedavg_is_their_weighted_mean(tmp_path):
    """w^r = Σ_i (n_i / Σ_j n_j) w_i⁺."""
    run = train(configs("fedavg", **{"training.aggregation": "samples"})[0], tmp_path / "run", CPU)
    stored, split = run.local_models(3, CPU), run.split()
    total = sum(len(split[i]) for i in stored)
    mean = sum(len(split[i]) / total * w.double() for i, w in stored.items())
    torch.testing.assert_close(mean.float(), run.final(CPU).w)


def test_seeds_in_one_cohort_keep_what_each_keeps_alone(tmp_path):
    together, loop = (
        train_runs(cell, [tmp_path / f"{backend}-{config.seed}" for config in cell], CPU)
        for backend in ("cohort", "loop")
        for cell in [configs("fedlesam_s", **{"engine.backend": backend})]
    )
    assert "seeds together" in (together[0].path / "run.log").read_text(encoding="utf-8")
    alone = train(configs("fedlesam_s", **{"engine.backend": "cohort"})[1], tmp_path / "alone", CPU)
    file = local_models_file(alone.path, 3)
    assert file.read_bytes() == local_models_file(together[1].path, 3).read_bytes()
    for run, other in zip(together, loop, strict=True):
        stored, expected = run.local_models(3, CPU), other.local_models(3, CPU)
        assert stored.keys() == expected.keys()
        assert all(float((stored[i] - w).norm() / w.norm()) < 1e-5 for i, w in expected.items())


def test_a_resumed_run_keeps_the_same_bits(tmp_path, monkeypatch):
    """Killed in its fourth round, it goes on after the second: round 3 is stored twice, round 5 afterwards."""
    check_resume("fedlesam_s", CPU, tmp_path, monkeypatch, **{"evaluation.local_models": [1, 3, 5]})
    stored = sorted(file.name for file in (tmp_path / "resumed" / "local_models").iterdir())
    assert stored == [f"round-0000{r}.safetensors" for r in (1, 3, 5)]


def test_last_is_the_last_round(tmp_path):
    run = train(configs("fedsam", **{"evaluation.local_models": "last"})[0], tmp_path / "run", CPU)
    assert run.config.rounds_of_local_models == [3]
    assert len(run.local_models(3, CPU)) == 4


def test_none_is_stored_unless_requested_and_identities_are_those_of_before(tmp_path):
    config = configs("fedsam", **{"evaluation.local_models": None})[0]
    assert "local_models" not in config.canonical_json()
    run = train(config, tmp_path / "run", CPU)
    assert not (run.path / "local_models").exists()
    with pytest.raises(
        UserError, match=r"no saved local models of round 3 \(saved: none; set evaluation.local_models\)"
    ):
        run.local_models(3, CPU)


def test_equal_choices_are_one_identity():
    one, other = (configs("fedsam", **{"evaluation.local_models": given})[0] for given in ([3, 2, 3], [2, 3]))
    assert one.identity == other.identity


def test_a_round_that_is_not_stored_or_a_damaged_file_is_one_line(tmp_path):
    run = train(configs("fedsam")[0], tmp_path / "run", CPU)
    with pytest.raises(UserError, match=r"has no saved local models of round 1 \(saved: 2, 3\)"):
        run.local_models(1, CPU)
    file = local_models_file(run.path, 3)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"round-00003.safetensors' is damaged .*: repeat .* with --replace"):
        RunDirectory(run.path).local_models(3, CPU)


def test_models_come_back_in_the_order_of_clients(tmp_path):
    models = {i: torch.full((3,), float(i)) for i in (11, 2, 0)}
    save_models(local_models_file(tmp_path, 7), models, torch.ones(3), {"round": 7})
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    found = RunDirectory(tmp_path).local_models(7, CPU)
    assert list(found) == [0, 2, 11]
    assert all(torch.equal(found[i], w) for i, w in models.items())
    assert found.w_global.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([2, 4], "evaluation.local_models: round 4, but training has 3 rounds"),
        (2, r"local_models = 2 \(allowed: a list of rounds"),
        ([], r"local_models = \[\] \(allowed: a list of rounds"),
        ([0], r"local_models = \[0\] \(allowed: a list of rounds"),
        ([True], "should be a number, not true or false"),
        ("first", "local_models = 'first' \\(allowed: a list of rounds from 1, such as .* or last"),
    ],
)
def test_what_is_no_choice_of_rounds_is_one_line(given, message):
    with pytest.raises(UserError, match=message) as error:
        configs("fedsam", **{"evaluation.local_models": given})
    assert "\n" not in str(error.value)
