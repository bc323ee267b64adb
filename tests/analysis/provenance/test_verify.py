"""Verification of a finished run: an intact run is verified, and every change of what it has stored is found."""

import gzip
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedflat.analysis.provenance.verification import Verification
from fedflat.analysis.provenance.verify import find, verify_run
from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.engine.checkpoint import load_state, save_state
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json, write_csv
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from tests.commands import fedflat
from tests.problems import train
from tests.strangers import become_another_user

CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/fedsam"
SAVED = {"training.rounds": 5, "evaluation.snapshot_every": 2, "evaluation.local_models": [3]}


def config(method: str = "scaffold", **changes: Any) -> RunConfig:
    cell = load_experiment("quick_all", {**SAVED, **changes}).cell(CELL.replace("fedsam", method))
    return cell.runs[0]


def verified(run: Path, rounds: int = 1) -> Verification:
    return verify_run(run, rounds, lambda _: CPU)


def differences(run: Path, rounds: int = 1) -> str:
    """What differs in a run, which must be something."""
    verdict = verified(run, rounds)
    assert verdict.differs, str(verdict)
    assert str(verdict).isprintable(), "one line"
    return str(verdict)


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with states of server and clients."""
    return train(config(), tmp_path_factory.mktemp("scaffold") / "seed-0", CPU).path


@pytest.fixture
def run(scaffold: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be changed."""
    return Path(shutil.copytree(scaffold, tmp_path / "seed-0"))


def rewritten(file: Path, **changes: Any) -> None:
    """Change values of a JSON file, with a new checksum."""
    write_checked_json(file, {**read_checked_json(file, ""), **changes})


def with_number(run: Path, number: int, column: str, change: Callable[[float], float]) -> None:
    """Change a number of metrics.csv, with a new checksum, and a new hash in provenance.json."""
    table = RunDirectory(run).metrics()
    table.loc[number - 1, column] = change(table.loc[number - 1, column])
    write_csv(run / "metrics.csv", table)
    tables = read_checked_json(run / "provenance.json", "")["tables"]
    own = short_hash((run / "metrics.csv").read_bytes())
    rewritten(run / "provenance.json", tables={**tables, "metrics.csv": own})


@pytest.mark.parametrize(
    ("rounds", "again"),
    [
        (0, ""),
        (1, "round 5 of 5 and "),
        (2, "rounds 3 to 4 of 5 and "),
        (3, "rounds 3 to 5 of 5 and "),
        (5, "rounds 1 to 5 of 5 and "),
        (99, "rounds 1 to 5 of 5 and "),
    ],
)
def test_an_intact_run_is_verified(rounds, again, scaffold):
    assert str(verified(scaffold, rounds)) == (
        f"{scaffold}: verified: 10 files, identity, data, partition, "
        f"{again}the evaluation of the final model computed again with the same bits"
    )


@pytest.mark.parametrize(
    ("first", "again"),
    [(1, "rounds 1 to 2"), (2, "rounds 1 to 3"), (3, "rounds 3 to 4"), (4, "rounds 3 to 5"), (5, "round 5")],
)
def test_rounds_are_computed_again_from_the_state_before_the_first(first, again, scaffold):
    """States are stored after rounds 2 and 4."""
    verdict = verify_run(scaffold, 2, lambda _: CPU, first=first)
    assert f"partition, {again} of 5 and " in str(verdict)
    assert "with the same bits" in str(verdict)


def test_a_round_that_the_run_lacks_is_not_verified(scaffold):
    verdict = verify_run(scaffold, 1, lambda _: CPU, first=6)
    assert verdict.unverified == ["rounds (the run has no round 6 (allowed: 1 to 5))"]


@pytest.mark.parametrize(
    "changed",
    [
        config("fedgamma", **{"engine.backend": "cohort"}),
        config("fedsam", **{"engine.backend": "loop", "engine.layout": "channels_last"}),
        config("fedasam", **{"methods.fedasam.hyperparameters.swa": {"cycle": 1, "start": 2, "lr_end": 0.01}}),
        config("fedgf", **{"training.precision": "bf16"}),
        config("fedavg", **{"training.lr": 1e20, "training.clip": None}),
        config("fedavg", **{"evaluation.until": 15}),
        config(
            "mofedsam", **{"evaluation.every": 3, "evaluation.snapshot_every": None, "evaluation.local_models": None}
        ),
    ],
    ids=["cohort", "channels-last", "swa", "bf16", "diverged", "stopped", "no states"],
)
@pytest.mark.parametrize("rounds", [1, 99])
def test_runs_of_all_kinds_have_the_same_bits(changed, rounds, kinds):
    verdict = verified(kinds(changed), rounds)
    assert "computed again with the same bits" in str(verdict)
    assert not verdict.unverified


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], Path]:
    """The run of a configuration, trained when it is first needed."""
    folder = tmp_path_factory.mktemp("kinds")

    def trained(config: RunConfig) -> Path:
        return train(config, folder / config.identity / "run", CPU).path

    return trained


def test_an_exported_run_without_models_is_verified_from_the_start(run):
    shutil.rmtree(run / "snapshots")
    shutil.rmtree(run / "local_models")
    (run / "final.safetensors").unlink()
    verdict = verified(run)
    assert not verdict.differs
    assert verdict.unverified == ["models (none is stored)"]
    assert verdict.verified[-1] == "round 1 of 5 computed again with the same bits"


def test_a_kept_run_with_only_its_final_model_is_verified_from_the_start(run):
    shutil.rmtree(run / "snapshots")
    shutil.rmtree(run / "local_models")
    verdict = verified(run)
    assert not verdict.differs
    assert verdict.unverified == ["states and local models (none is stored)"]
    assert verdict.verified[-1] == (
        "round 1 of 5 and the evaluation of the final model computed again with the same bits"
    )


@contextmanager
def flipped(file: Path, bit: int) -> Iterator[None]:
    before = file.read_bytes()
    changed = bytearray(before)
    changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)
    try:
        yield
    finally:
        file.write_bytes(before)


def unpacked(file: Path) -> bytes | None:
    """The content of a gzip file; None if it is damaged. Some bits of header and padding change no content."""
    try:
        return gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error):
        return None


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_flipped_bit_in_any_file_is_found(data, scaffold):
    files = [file for file in scaffold.rglob("*") if file.is_file() and file.name != "run.log"]
    file = data.draw(st.sampled_from(sorted(files)))
    read = unpacked if file.suffix == ".gz" else Path.read_bytes
    before = read(file)
    with flipped(file, data.draw(st.integers(0, 8 * file.stat().st_size - 1))):
        verdict, is_same = verified(scaffold, rounds=0), read(file) == before
    assert bool(verdict.differs) != is_same, (file.name, str(verdict))
    assert all("repeat the command that trained the run, with --replace" in line for line in verdict.differs)


@pytest.mark.parametrize(
    ("number", "column"),
    [
        (1, "local_loss"),
        (2, "test_loss"),
        (3, "test_accuracy"),
        (4, "client_drift"),
        (5, "test_accuracy"),
        (5, "upload"),
    ],
)
def test_a_changed_number_with_a_right_checksum_is_found_in_rounds_that_are_computed_again(number, column, run):
    """Also in round 3, where the model was not evaluated, and a number is added."""
    with_number(run, number, column, lambda value: 1.0 if pd.isna(value) else value * (1 + 1e-9))
    assert f"metrics.csv': {column} of round {number} is " in differences(run, rounds=5)


def test_the_last_round_is_checked_by_the_final_model(run):
    with_number(run, 5, "test_accuracy", lambda value: value + 0.5)
    assert "metrics.csv': test_accuracy of round 5 is " in differences(run, rounds=0)


@pytest.mark.parametrize(("number", "what"), [(4, "the global model after round 4"), (5, "the global model after")])
def test_a_changed_state_with_a_right_checksum_is_found(number, what, run):
    file = run / "snapshots" / f"round-{number:05d}.safetensors"
    state, about = load_state(file, CPU)
    state.w[7] = torch.nextafter(state.w[7], torch.tensor(torch.inf))
    save_state(file, state, about)
    assert what in differences(run, rounds=5)


def test_a_changed_state_of_a_client_is_found(run):
    file = run / "snapshots/round-00002.safetensors"
    state, about = load_state(file, CPU)
    client = min(state.clients)
    state.clients = state.clients.updated({client: {name: 2 * v for name, v in state.clients[client].items()}})
    save_state(file, state, about)
    assert f"of client {client} after round 2 differs by up to" in differences(run, rounds=5)


def test_an_edited_configuration_is_found(run):
    training = read_checked_json(run / "config.json", "")["training"]
    rewritten(run / "config.json", training={**training, "lr": 0.05})
    assert "its identity differs from the one in provenance.json" in differences(run)
    identity = RunConfig.parse(read_checked_json(run / "config.json", "")).identity
    rewritten(run / "provenance.json", identity=identity)
    assert "final.safetensors' is damaged (it belongs to another run)" in differences(run)
    read = {file: load_state(file, CPU) for file in [run / "final.safetensors", *run.glob("snapshots/*")]}
    for file, (state, about) in read.items():
        save_state(file, state, {**about, "identity": identity})
    shutil.rmtree(run / "local_models")
    rewritten(run / "config.json", evaluation={"every": 2, "snapshot_every": 2})
    rewritten(run / "provenance.json", identity=RunConfig.parse(read_checked_json(run / "config.json", "")).identity)
    assert "differs" in differences(run, rounds=5)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("provenance.json", {"data_hash": "0" * 16}, "the data of digits have changed, or the file has; restore"),
        ("provenance.json", {"partition_hash": "0" * 16}, "its hash differs from partition_hash"),
        ("provenance.json", {"outcome": "diverged"}, "diverged, but metrics.csv has 5 of 5 rounds, finished"),
        ("provenance.json", {"seed": 1}, "its seed is not that of the configuration"),
        ("provenance.json", {"libraries": "torch"}, "libraries = 'torch'"),
        ("config.json", {"seed": 1}, "its identity differs"),
    ],
)
def test_changed_records_are_found(file, changes, message, run):
    rewritten(run / file, **changes)
    assert message in differences(run)


def test_a_changed_partition_is_found(run):
    table = pd.read_csv(run / "partition.csv.gz")
    swapped = table.copy()
    swapped.loc[[0, len(table) - 1], "index"] = table.loc[[len(table) - 1, 0], "index"].to_numpy()
    write_csv(run / "partition.csv.gz", swapped)
    assert "its hash differs from partition_hash in provenance.json" in differences(run)
    split = [group["index"].to_numpy() for _, group in swapped.groupby("client")]
    rewritten(run / "provenance.json", partition_hash=partition_hash(split))
    assert "the split that the configuration gives is another one" in differences(run)


def test_changed_labels_are_found(run):
    table = pd.read_csv(run / "partition.csv.gz")
    write_csv(run / "partition.csv.gz", table.assign(label=table["label"].iloc[::-1].to_numpy()))
    assert "its labels are not those of the images" in differences(run)


@pytest.mark.parametrize(
    "file",
    [
        "config.json",
        "provenance.json",
        "metrics.csv",
        "times.csv",
        "partition.csv.gz",
        "final.safetensors",
        "snapshots/round-00002.safetensors",
        "local_models/round-00003.safetensors",
    ],
)
def test_a_missing_file_is_found(file, run):
    (run / file).unlink()
    assert find(run.parent) == [run]
    assert f"{file}' is damaged (it does not exist): repeat the command" in differences(run)


def test_a_file_that_has_lost_its_checksum_is_found(run):
    content = read_checked_json(run / "config.json", "")
    (run / "config.json").write_text(json.dumps(content), encoding="utf-8")
    assert "config.json' is damaged (it has no checksum, but other files of the run have one)" in differences(run)


def test_changed_images_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    stream = torch.Generator().manual_seed(0)
    for part in ("train", "test"):
        for name in ("ant", "bee"):
            (tmp_path / "mine" / part / name).mkdir(parents=True)
            for k in range(6):
                pixels = torch.randint(0, 256, (8, 8), generator=stream, dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(tmp_path / "mine" / part / name / f"{k}.png")
    own = {
        "dataset": {"name": "image_folder", "root": str(tmp_path / "mine")},
        "grid.partition": [{"name": "iid", "clients": 4}],
        "grid.participation": [{"active": 2}],
    }
    cell = load_experiment("quick", {**SAVED, **own}).cell("mine/iid/2-of-4/fedavg")
    run = train(cell.runs[0], tmp_path / "run", CPU).path
    assert "computed again with the same bits" in fedflat("verify", run).stdout
    Image.new("L", (8, 8), 7).save(tmp_path / "mine/train/ant/3.png")
    done = fedflat("verify", run)
    assert done.returncode == 2
    assert "the data of mine have changed, or the file has; restore the data, or repeat the command" in done.stdout
    shutil.rmtree(tmp_path / "mine")
    done = fedflat("verify", run)
    assert done.returncode == 0
    assert ": verified in part: 10 files, identity; not verified: data (" in done.stdout
    assert "), partition and rounds, which need the data" in done.stdout


def test_on_another_machine_rounding_is_no_difference_and_more_is(run):
    rewritten(run / "provenance.json", processor="Abacus 3000")
    assert "computed again with the same bits (Abacus 3000 instead of " in str(verified(run))
    with_number(run, 5, "local_loss", lambda value: value * (1 + 1e-5))
    verdict = verified(run)
    assert not verdict.differs
    assert "equal up to rounding (local_loss of round 5 is " in str(verdict)
    with_number(run, 5, "local_loss", lambda value: value * 1.01)
    assert "which is more than rounding explains (Abacus 3000 instead of" in differences(run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"libraries": {"torch": "1.0"}}, "torch 1.0 instead of "),
        ({"code": {"version": "0.0.1", "fingerprint": "0" * 16}}, "other code"),
        ({"device": "NVIDIA H100"}, "NVIDIA H100 instead of cpu"),
        ({"engine_at_start": {"backend": "fast"}}, "another choice of the engine"),
    ],
)
def test_what_the_run_was_computed_with_is_named(changes, words, run):
    rewritten(run / "provenance.json", **changes)
    assert words in str(verified(run))


NETWORK = """
from torch import nn

def build(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def test_code_in_a_run_is_executed_only_if_trusted(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    cell = load_experiment("quick", {**SAVED, "model": f"{tmp_path / 'net.py'}:build"}).cell(CELL)
    run = train(cell.runs[0], tmp_path / "run", CPU).path
    assert "computed again with the same bits" in str(verified(run)), "code of this user's own experiments"
    become_another_user(tmp_path / "another user's", monkeypatch)
    verdict = verified(run)
    assert verdict.verified == ["11 files"]
    assert "--trust" in verdict.unverified[0]
    assert "computed again with the same bits" in str(verify_run(run, 1, lambda _: CPU, trust=True))
    (run / "model.py").write_text(NETWORK + "\n", encoding="utf-8")
    assert "model.py' is damaged (its hash differs from the one in config.json)" in differences(run)


def test_an_unfinished_run_is_left_out(run):
    run.rename(run.with_name("seed-0.partial-01234567"))
    with pytest.raises(UserError, match="no finished run in"):
        find(run.parent)


def test_a_verdict_is_one_line_of_printable_characters(run):
    rewritten(run / "provenance.json", device="cpu \x1b[31m\nred")
    line = str(verified(run))
    assert line.isprintable()
    assert r"cpu \x1b[31m\nred instead of cpu" in line
