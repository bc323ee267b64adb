"""Runs that hold out training images: each client holds out its share and trains on the rest."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat.bench.data.root import ENVIRONMENT
from fedflat.bench.data.validation import hold_out
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory, evaluated_subset
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.training.small_runs import check_resume
from tests.commands import fedflat
from tests.problems import train

CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/{}"
CHANGES = {"training.rounds": 4, "evaluation.every": 2, "evaluation.validation": 0.2}


def config(method: str = "fedavg", **changes: object) -> RunConfig:
    return load_experiment("quick_all", {**CHANGES, **changes}).cell(CELL.format(method)).runs[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(config("adabest"), tmp_path_factory.mktemp("validation") / "seed-0", CPU)


def test_each_client_holds_out_its_share_drawn_by_the_seed() -> None:
    split = [np.arange(start, start + n) for start, n in ((0, 50), (50, 3), (53, 1), (54, 2))]
    trained, held = hold_out(split, 0.2, seed=0)
    assert [len(own) for own in trained] == [40, 2, 1, 1]
    assert np.array_equal(np.sort(np.concatenate([*trained, held])), np.arange(56)), "no image twice, none lost"
    assert np.array_equal(hold_out(split, 0.2, seed=0)[1], held)
    assert not np.array_equal(hold_out(split, 0.2, seed=1)[1], held)
    assert [len(own) for own in hold_out(split, 0.999, seed=0)[0]] == [1, 1, 1, 1], "a client keeps an image"
    with pytest.raises(UserError, match="no client has two images"):
        hold_out(split[2:3], 0.2, seed=0)


def test_metrics_are_those_of_held_out_and_of_trained_images(run: RunDirectory) -> None:
    """Evaluated again here on the images, which are selected from the data set without the code under test."""
    setup, metrics = RunSetup.build(config("adabest"), CPU), run.metrics()
    assert not [name for name in metrics if "test" in name]
    assert metrics["validation_accuracy"].notna().tolist() == [False, True] * 2
    assert "validation_accuracy_w_bar" in metrics
    last, data = metrics.iloc[-1], setup.dataset.train
    held = np.setdiff1d(np.concatenate(run.split()), np.concatenate(setup.split))
    assert 0.19 < len(held) / len(data) < 0.21
    for name, indices in (("validation", held), ("train", np.setdiff1d(np.arange(len(data)), held))):
        batch = setup.train.batch(torch.from_numpy(indices))
        loss, accuracy = setup.objective.evaluate(run.final(CPU).w, [batch])
        assert last[f"{name}_accuracy"] == pytest.approx(accuracy)
        assert last[f"{name}_loss"] == pytest.approx(loss, rel=1e-5)


def test_held_out_images_are_in_no_local_step_and_not_in_the_clients_sizes(run: RunDirectory) -> None:
    setup = RunSetup.build(config(), CPU, run.split())
    assert setup.held_out is not None
    held = set(setup.held_out.tolist())
    sampler = setup.federation.batch_sampler
    for client, own in enumerate(setup.split):
        used = {int(i) for step in (*sampler(client, 0), *sampler.one_pass(client)) for i in step}
        assert used == set(own.tolist())
        assert not used & held
    work = setup.work(setup.federation.start(setup.objective.initial()))
    sizes = {one.client: sum(map(len, one.batches)) for one in work}
    assert sizes == {i: len(setup.split[i]) * config().training.local_epochs for i in sizes}


def test_a_run_without_validation_keeps_its_identity() -> None:
    plain = load_experiment("quick_all", {"training.rounds": 4}).cell(CELL.format("fedavg")).runs[0]
    assert "validation" not in plain.canonical_json()
    assert config().identity != plain.identity


def test_killed_and_resumed_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_resume("fedlesam_s", CPU, tmp_path, monkeypatch, **{"evaluation.validation": 0.3})


def test_until_is_a_validation_accuracy(run: RunDirectory, tmp_path: Path) -> None:
    first = run.metrics()["validation_accuracy"].dropna().iloc[0]
    stopped = train(config("adabest", **{"evaluation.until": first}), tmp_path / "stopped", CPU)
    assert stopped.stopped
    assert len(stopped.metrics()) == 2


def test_shared_images_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "split.csv"
    file.write_text("client,index\n0,0\n0,1\n1,1\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"evaluation.validation = 0.2, but clients of the partition"):
        partition = [{"name": "from_file", "file": str(file), "repeats": True}]
        load_experiment(
            "quick", {"grid.partition": partition, "grid.participation": [{"active": 1}], **CHANGES}
        ).cells()


def on_signals(**evaluation: object) -> RunConfig:
    training = {"rounds": 2, "local_steps": 1, "batch_size": 8, "lr": 0.1}
    return RunConfig.parse(
        {
            "dataset": {"name": "mnist1d", "signals": 60},
            "model": {"name": "mlp", "hidden": []},
            "partition": {"name": "iid", "clients": 4},
            "participation": {"active": 2},
            "method": "fedavg",
            "training": training,
            "evaluation": evaluation,
            "seed": 0,
        }
    )


def test_own_images_for_validation_leave_the_clients_all_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged on them, or on the test with both scores; the training is the same, bit for bit."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "data"))
    setup = RunSetup.build(on_signals(validation="own"), CPU)
    assert sum(map(len, setup.split)) == 60
    assert setup.held_out is None
    own, both = (train(on_signals(**one), tmp_path / str(len(one)), CPU) for one in ({"validation": "own"}, {}))
    assert torch.equal(own.final(CPU).w, both.final(CPU).w)
    judged, tested = own.metrics(), both.metrics()
    assert not [name for name in judged if "test" in name]
    assert judged["validation_accuracy"].equals(tested["validation_accuracy"])
    assert "test_accuracy" in tested
    assert evaluated_subset(judged) == "validation"
    assert evaluated_subset(tested) == "test"
    assert setup.validation is not None
    expected = setup.objective.evaluate(own.final(CPU).w, setup.batches(setup.validation))[1]
    assert judged["validation_accuracy"].iloc[-1] == pytest.approx(expected)


def test_own_images_for_validation_must_exist() -> None:
    with pytest.raises(UserError, match=r"evaluation.validation = own, but the data set digits has no images for"):
        config(**{"evaluation.validation": "own"})
    for wrong in ("mine", 0, 1.5):
        with pytest.raises(UserError, match=rf": validation = {wrong!r} \(allowed: a share between 0 and 1"):
            config(**{"evaluation.validation": wrong})


def test_commands_name_the_images(tmp_path: Path) -> None:
    """A run says validation accuracy and can be verified; a table of test accuracies is refused in one line."""
    file = tmp_path / "held.yaml"
    file.write_text(
        "name: held\nextends: quick\ntraining: {rounds: 2}\nevaluation: {validation: 0.2, every: 2}\n"
        "grid: {seeds: [0]}\nmethods: {fedavg: }\n",
        encoding="utf-8",
    )
    common = ("--results", str(tmp_path / "results"))
    done = fedflat("run", str(file), CELL.format("fedavg"), *common)
    assert "% validation accuracy after round 2" in done.stdout
    assert "test accuracy" not in done.stdout
    folder = tmp_path / "results/experiments/held" / CELL.format("fedavg")
    assert fedflat("verify", str(folder)).returncode == 0
    for command in (("table", str(file), "accuracy"), ("summary", str(file))):
        refused = fedflat(*command, *common)
        assert refused.returncode == 2
        assert "evaluation.validation = 0.2" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
