"""Runs that store the accuracy of each client by round."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.client_accuracies import ClientAccuracies
from fedflat.bench.training.directories.run_files import check_run
from fedflat.bench.training.run_directory import BY_CLIENT, RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.training.small_runs import check_resume_of
from tests.problems import train

CPU = torch.device("cpu")
DATA = {
    "dataset": "digits",
    "model": {"name": "mlp", "hidden": []},
    "partition": {"name": "pathological", "clients": 5, "classes_per_client": 2},
    "participation": {"active": 2},
    "method": "fedavg",
    "training": {"rounds": 6, "local_steps": 2, "batch_size": 16, "lr": 0.1},
    "engine": {"backend": "loop", "checkpoint_seconds": 0},
    "seed": 0,
}


def config(**evaluation: object) -> RunConfig:
    return RunConfig.parse({**DATA, "evaluation": {"every": 2, "training_images": 10, **evaluation}})


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    metrics = ["worst_client", "client_deviation"]
    return train(config(by_client="expected", metrics=metrics), tmp_path_factory.mktemp("expected") / "seed-0", CPU)


def test_expected_accuracies_are_those_of_the_metrics_over_clients(expected: RunDirectory) -> None:
    clients, rounds = expected.client_accuracies(), expected.metrics().dropna(subset="test_worst_client")
    assert clients["round"].tolist() == [2] * 5 + [4] * 5 + [6] * 5
    assert clients["client"].tolist() == [0, 1, 2, 3, 4] * 3
    of_rounds = clients.groupby("round")["accuracy"]
    assert of_rounds.min().tolist() == rounds["test_worst_client"].tolist()
    assert of_rounds.std(ddof=0).tolist() == pytest.approx(rounds["test_client_deviation"].tolist())


@pytest.mark.parametrize("validation", [None, 0.3])
def test_own_images_are_those_held_out_or_trained(validation: float | None, tmp_path: Path) -> None:
    """Evaluated again here on the images of each client."""
    run = train(config(by_client="own", validation=validation), tmp_path / "seed-0", CPU)
    setup = RunSetup.build(config(by_client="own", validation=validation), CPU)
    table = run.client_accuracies()
    last = table[table["round"] == 6].set_index("client")["accuracy"]
    for client, (drawn, trained) in enumerate(zip(run.split(), setup.split, strict=True)):
        own = trained if validation is None else np.array([i for i in drawn if i not in set(trained.tolist())])
        assert 0 < len(own) <= len(drawn)
        _, accuracy = setup.objective.evaluate(run.final(CPU).w, [setup.train.batch(torch.from_numpy(own))])
        assert last[client] == pytest.approx(accuracy)


def test_interrupted_and_resumed_gives_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_resume_of(config(by_client="expected", every=1), CPU, tmp_path, monkeypatch)


def test_what_was_written_after_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / BY_CLIENT
    table = ClientAccuracies(file)
    table.add(1, np.array([50.0, np.nan]))
    kept = table.size
    table.add(2, np.array([60.0, 70.0]))
    ClientAccuracies(file, kept).add(2, np.array([61.0, 1 / 3]))
    assert pd.read_csv(file).fillna(-1).to_numpy().tolist() == [
        [1, 0, 50], [1, 1, -1], [2, 0, 61], [2, 1, 1 / 3],
    ]  # fmt: skip
    file.write_bytes(file.read_bytes()[: kept - 1])
    with pytest.raises(UserError, match=r"was cut off or deleted; delete '.*' to train from the start"):
        ClientAccuracies(file, kept)


def test_another_table_is_refused(expected: RunDirectory) -> None:
    file = expected.path / BY_CLIENT
    content = file.read_bytes()
    file.write_bytes(content[:-40])
    try:
        with pytest.raises(DamagedFileError, match=r"clients\.csv\.gz"):
            check_run(expected)
        with pytest.raises(DamagedFileError, match=r"clients\.csv\.gz"):
            expected.client_accuracies()
    finally:
        file.write_bytes(content)


def test_runs_without_it_keep_their_identity_and_say_so(tmp_path: Path) -> None:
    run = train(config(until=1), tmp_path / "seed-0", CPU)
    assert not (run.path / BY_CLIENT).exists()
    assert "by_client" not in run.config.canonical_json()
    with pytest.raises(UserError, match=r"stored no accuracies of clients \(set evaluation\.by_client"):
        run.client_accuracies()
