"""`fedflat run --log`: a user's function gets the rows of the metrics; TensorBoard gets them as scalars."""

import importlib.util
import json

import pandas as pd
import pytest
import torch

import fedflat
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.progress import silent
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from fedflat.round_logs import RunLogs
from tests.problems import Problem

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
OVERRIDES = {"training.rounds": 3, "grid.seeds": [0, 1], "engine.backend": "loop", "evaluation.every": 2}
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
LOG = """
import json
from pathlib import Path

def start(folder, config):
    file = Path(__file__).with_name(f"{Path(folder).name}.jsonl")
    print(json.dumps({"seed": config["seed"]}), file=file.open("a"))
    return lambda row: print(json.dumps(row), file=file.open("a"))

def failing(folder, config):
    return lambda row: row["absent"]

def unable(folder, config):
    return config["absent"]

class Closing:
    def __init__(self, folder, config):
        self.file = Path(__file__).with_name("closed.txt")

    def __call__(self, row):
        if row["round"] == 2 and self.file.with_name("interrupt").exists():
            raise KeyboardInterrupt

    def close(self):
        print("closed", file=self.file.open("a"))
"""


def train(tmp_path, reference, say=silent):
    cell = load_experiment("quick", OVERRIDES).cell(CELL)
    with RunLogs(reference, tmp_path / "results", say) as logs:
        return train_cell("quick", cell, tmp_path / "results", torch.device("cpu"), silent, on_round=logs)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "log.py"
    file.write_text(LOG, encoding="utf-8")
    return file


def test_a_function_gets_every_row_of_the_metrics(file, tmp_path):
    out = train(tmp_path, f"{file}:start")
    for seed in (0, 1):
        lines = (tmp_path / f"seed-{seed}.jsonl").read_text(encoding="utf-8").splitlines()
        about, *rows = map(json.loads, lines)
        assert about == {"seed": seed}
        logged = pd.DataFrame(rows)
        metrics = RunDirectory(out / f"seed-{seed}").metrics()
        pd.testing.assert_frame_equal(logged, metrics[list(logged)], check_dtype=False)
        assert logged["test_accuracy"].notna().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tensorbord", "unknown logger 'tensorbord' (allowed: tensorboard, path/to/file.py:function)"),
        ("absent.py:start", "cannot read the logger 'absent.py'"),
        ("{file}:begin", "'begin'"),
    ],
)
def test_mistakes_are_one_line(reference, message, file, tmp_path):
    with pytest.raises(fedflat.UserError) as error:
        train(tmp_path, reference.format(file=file))
    assert message in str(error.value)


@pytest.mark.parametrize(("name", "line"), [("failing", 11), ("unable", 14)])
def test_a_logger_that_fails_is_reported_once_and_the_runs_go_on(name, line, file, tmp_path):
    said = []
    out = train(tmp_path, f"{file}:{name}", said.append)
    assert said == [
        f"seed-{seed}: the logger '{file}' fails in line {line}: KeyError: 'absent'; the run goes on without it"
        for seed in (0, 1)
    ]
    assert [len(RunDirectory(out / f"seed-{seed}").metrics()) for seed in (0, 1)] == [3, 3]


def test_a_logger_is_closed_once_when_its_run_ends_or_is_interrupted(file, tmp_path):
    closed = tmp_path / "closed.txt"
    (tmp_path / "interrupt").touch()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, f"{file}:Closing")
    assert closed.read_text() == "closed\n", "that of the run that was interrupted"
    (tmp_path / "interrupt").unlink()
    train(tmp_path, f"{file}:Closing")
    assert closed.read_text() == "closed\n" * 3


@pytest.mark.skipif(HAS_TENSORBOARD, reason="needs an environment without tensorboard")
def test_a_missing_package_is_reported_before_training(tmp_path):
    with pytest.raises(fedflat.UserError, match="install it with: pip install tensorboard"):
        train(tmp_path, "tensorboard")
    assert not (tmp_path / "results").exists()


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="needs the optional package tensorboard")
def test_tensorboard_gets_every_row(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars(folder, name):
        events = EventAccumulator(str(folder))
        events.Reload()
        return {event.step: event.value for event in events.Scalars(name)}

    out = train(tmp_path, "tensorboard")
    metrics = RunDirectory(out / "seed-1").metrics()
    logged = scalars(
        tmp_path / "results/tensorboard" / out.relative_to(tmp_path / "results/store") / "seed-1", "local_loss"
    )
    assert logged == pytest.approx(dict(zip(metrics["round"], metrics["local_loss"], strict=True)), rel=1e-6)

    for _ in range(2):  # the second writes its rounds instead of those of the first
        result = Problem(0).run("fedavg", on_round=fedflat.tensorboard(tmp_path / "own"))
    assert list(scalars(tmp_path / "own", "local_loss")) == result.history["round"].tolist()
