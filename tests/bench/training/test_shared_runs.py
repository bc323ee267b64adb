"""A run that another experiment has finished is taken, whole and safely; whatever cannot be taken is trained."""

import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedflat.analysis.provenance.verify import verify_cell, verify_run
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.shared_runs import shared_run, take_shared
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup, load_dataset
from fedflat.bench.training.train import train_cell, train_runs
from fedflat.bench.training.training_run import TrainingRun
from tests.bench.data.test_image_folder import folder_of_images, one_round
from tests.bench.training.small_runs import SETTING, contents
from tests.bench.training.test_runs_of_others import CELL as OWN_CELL
from tests.bench.training.test_runs_of_others import written
from tests.problems import train
from tests.waiting import wait_for

CPU = torch.device("cpu")
SEEDS = {
    "training.rounds": 4,
    "evaluation.every": 2,
    "evaluation.snapshot_every": 2,
    "evaluation.local_models": [2],
    "grid.seeds": [0, 1, 2],
    "engine.backend": "cohort",
    "engine.checkpoint_seconds": 0,
}
OWN = f"{SETTING}/fedlesam_s"
CONFIGS = load_experiment("quick", SEEDS).cell(OWN).runs


def place(results: Path, experiment: str, seed: int = 0) -> Path:
    return results / "runs" / experiment / SETTING / "fedlesam_s" / f"seed-{seed}"


def trained_for(results: Path, experiment: str, seeds=(0,), **options) -> list[str]:
    """Request the runs with these seeds; the lines of progress."""
    said: list[str] = []
    folders = [place(results, experiment, seed) for seed in seeds]
    train_runs([CONFIGS[seed] for seed in seeds], folders, CPU, said.append, **options)
    return [line for line in said if "taken" in line]


def is_taken(run: Path) -> bool:
    return "taken_from" in RunDirectory(run).provenance


def marked(run: Path, **provenance: object) -> None:
    """Change the provenance of a run."""
    file = run / "provenance.json"
    write_checked_json(file, {**read_checked_json(file, ""), **provenance})


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A folder of results with the runs of three seeds, trained together."""
    results = tmp_path_factory.mktemp("first") / "results"
    train_runs(CONFIGS, [place(results, "quick", seed) for seed in range(3)], CPU)
    return results


@pytest.fixture
def results(first, tmp_path) -> Path:
    """A copy of it, which has no file in common with it."""
    return shutil.copytree(first, tmp_path / "results")


def test_a_finished_run_is_taken(results):
    """Same bits without disk space; the two runs depend on each other in nothing."""
    source, taken = place(results, "quick"), place(results, "mine")
    before = {file: file.read_bytes() for file in source.rglob("*") if file.is_file()}
    assert trained_for(results, "mine") == [
        f"seed 0: taken from 'runs/quick/{SETTING}/fedlesam_s/seed-0', which has the same configuration"
    ]
    assert contents(taken) == contents(source)
    for name in ("final.safetensors", "snapshots/round-00002.safetensors", "local_models/round-00002.safetensors"):
        assert (taken / name).samefile(source / name)
    about = RunDirectory(taken).provenance
    assert about == {
        **RunDirectory(source).provenance,
        "taken_from": f"runs/quick/{SETTING}/fedlesam_s/seed-0",
    }
    log = (taken / "run.log").read_text(encoding="utf-8")
    assert log.startswith((source / "run.log").read_text(encoding="utf-8"))
    assert "taken from 'runs/quick/" in log.splitlines()[-1]
    assert "verified: 9 files, identity, data, partition" in str(verify_run(taken, 1, lambda _: CPU))
    assert sorted(file.name for file in taken.parent.iterdir()) == ["seed-0"], "nothing else is left"

    marked(taken, code={"fingerprint": "0" * 16})
    trained_for(results, "mine", replace=True)  # taken again, in place of a run of other code
    shutil.rmtree(taken)
    assert {file: file.read_bytes() for file in source.rglob("*") if file.is_file()} == before
    trained_for(results, "mine")
    marked(source, code={"fingerprint": "0" * 16})
    marked(taken, code={"fingerprint": "0" * 16})
    assert trained_for(results, "quick", replace=True) == [], "neither is of this code"
    assert not is_taken(source)
    shutil.rmtree(source)
    assert "same bits (other code)" in str(verify_run(taken, 1, lambda _: CPU))


def test_some_seeds_are_taken_and_the_others_trained(results):
    """All seeds of the first experiment were trained together; the others now are, without the one that is taken."""
    for seed in (1, 2):
        shutil.move(place(results, "quick", seed), results / f"seed-{seed}")
    cell = load_experiment("quick", SEEDS).cell(f"{SETTING}/fedlesam_s")
    said: list[str] = []
    train_cell("mine", cell, place(results, "mine").parent, CPU, said.append)
    assert [is_taken(place(results, "mine", seed)) for seed in range(3)] == [True, False, False]
    for seed in (1, 2):
        assert contents(place(results, "mine", seed)) == contents(results / f"seed-{seed}")
        assert RunDirectory(place(results, "mine", seed)).provenance["engine"]["together"]
    table = pd.read_csv(place(results, "mine").with_name("metrics.csv"))
    assert set(table["experiment"]) == {"mine"}
    assert table.groupby("seed").size().to_dict() == {0: 4, 1: 4, 2: 4}
    assert verify_cell(place(results, "mine").parent).differs == []


def test_a_single_run_with_chosen_seeds_is_taken_and_can_be_taken(results):
    trained_for(results, "custom/quick", [0])
    shutil.rmtree(results / "runs" / "quick")
    assert "taken from 'runs/custom/quick/" in trained_for(results, "mine")[0]


def test_a_run_under_another_label_is_taken(results):
    """As after a value of the same experiment has become a list of values: rho 0.05 is now fedsam-rho-0.05."""
    said: list[str] = []
    for experiment in ("quick", "mine"):
        folder = results / "runs" / experiment / SETTING / "fedlesam_s-rho-0.05" / "seed-1"
        assert shared_run(CONFIGS[1], folder) is not None
        assert shared_run(CONFIGS[1], folder.with_name("seed-2")) is None, "not of this seed"
        assert shared_run(CONFIGS[1], Path(str(folder).replace("4-of-20", "5-of-20"))) is None, "not of this setting"
        train_runs([CONFIGS[1]], [folder], CPU, said.append)
        assert contents(folder) == contents(place(results, "quick", 1))
    assert [line.partition(", ")[0] for line in said] == [
        f"seed 1: taken from 'runs/quick/{SETTING}/fedlesam_s/seed-1'",
        f"seed 1: taken from 'runs/quick/{SETTING}/fedlesam_s-rho-0.05/seed-1'",
    ]


def test_a_run_that_others_finish_under_another_label_is_found(results):
    """Also if this process has looked before."""
    folder = results / "runs" / "quick" / SETTING / "other" / "seed-0"
    away = shutil.move(place(results, "quick"), results / "away")
    assert shared_run(CONFIGS[0], folder) is None
    shutil.move(away, place(results, "quick"))
    assert "taken_from" in train(CONFIGS[0], folder, CPU).provenance


def test_after_a_damaged_run_the_next_one_is_taken(results):
    shutil.copytree(results / "runs" / "quick", results / "runs" / "first")
    (place(results, "first") / "final.safetensors").unlink()
    wrong, right = trained_for(results, "mine")
    assert wrong.startswith(f"seed 0: 'runs/first/{SETTING}/fedlesam_s/seed-0' is not taken: ")
    assert right.startswith(f"seed 0: taken from 'runs/quick/{SETTING}/fedlesam_s/seed-0'")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: (run / "metrics.csv").write_bytes((run / "metrics.csv").read_bytes()[:-9]), "is damaged"),
        (lambda run: (run / "snapshots" / "round-00002.safetensors").write_bytes(b"no"), "is damaged"),
        (lambda run: (run / "local_models" / "round-00002.safetensors").unlink(), "it does not exist"),
        (lambda run: (run / "final.safetensors").unlink(), "it does not exist"),
        (lambda run: (run / "config.json").write_text("{}"), "config.json' is damaged"),
    ],
)
def test_a_damaged_run_is_not_taken(damage, reason, results):
    damage(place(results, "quick"))
    said: list[str] = []
    wanted = [(CONFIGS[0], place(results, "mine"))]
    with take_shared(wanted, said.append) as remaining:
        assert remaining == wanted, "it has to be trained"
    [line] = said
    assert line.startswith(f"seed 0: 'runs/quick/{SETTING}/fedlesam_s/seed-0' is not taken: ")
    assert reason in line
    assert not (results / "runs" / "mine").exists() or not any((results / "runs" / "mine").rglob("*.json"))


def test_a_run_that_is_replaced_while_it_is_taken_is_not_taken(results, first, monkeypatch):
    link = os.link

    def replaced(file: Path, name: Path) -> None:
        monkeypatch.undo()
        link(file, name)
        shutil.move(place(results, "quick"), results / "old")
        shutil.copytree(results / "old", place(results, "quick"))

    monkeypatch.setattr(os, "link", replaced)
    assert "it was replaced meanwhile" in trained_for(results, "mine")[0]
    assert contents(place(results, "mine")) == contents(place(first, "quick"))


def test_a_run_that_is_replaced_by_another_configuration_is_not_taken(results, first, monkeypatch):
    """After its files have been checked: the others would be taken unseen."""
    [other] = load_experiment("quick", {**SEEDS, "training.lr": 0.01, "grid.seeds": [0]}).cell(OWN).runs
    train(other, results / "other", CPU)

    def replaced(config: RunConfig, provenance: Mapping[str, Any]) -> None:
        monkeypatch.undo()
        shutil.move(place(results, "quick"), results / "old")
        shutil.move(results / "other", place(results, "quick"))

    monkeypatch.setattr("fedflat.bench.training.directories.shared_runs.changed_input", replaced)
    [said] = trained_for(results, "mine")
    assert said.endswith("is not taken: it was replaced meanwhile")
    assert contents(place(results, "mine")) == contents(place(first, "quick"))


@pytest.mark.parametrize("links", [0, 3, 99])
def test_a_process_that_is_killed_while_it_takes_a_run(links, results, first, monkeypatch):
    """The run is then taken, or trained if the other one has gone: the same files, and nothing else."""
    link, done = os.link, []

    def killed(*arguments: object) -> None:
        if len(done) == links:
            raise KeyboardInterrupt
        done.append(link(*arguments))

    def killed_at_the_end(*arguments: object) -> None:
        raise KeyboardInterrupt

    for gone in (False, True):
        done.clear()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "link", killed)
            patch.setattr("fedflat.bench.training.directories.shared_runs.publish", killed_at_the_end)
            trained_for(results, "mine")
        assert not place(results, "mine").exists()
        if gone:
            shutil.move(place(results, "quick"), results / "gone")
        trained_for(results, "mine")
        assert is_taken(place(results, "mine")) == (not gone or links == 99)
        assert contents(place(results, "mine")) == contents(place(first, "quick"))
        assert sorted(file.name for file in place(results, "mine").parent.iterdir()) == ["seed-0"]
        shutil.rmtree(results / "runs" / "mine")


def test_an_unfinished_run_gives_way_to_a_finished_one(results, monkeypatch):
    def killed(run: TrainingRun) -> None:
        raise KeyboardInterrupt

    away = shutil.move(results / "runs" / "quick", results / "away")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainingRun, "complete", killed)
        trained_for(results, "mine")
    [work] = place(results, "mine").parent.glob("seed-0.partial-*")
    shutil.move(away, results / "runs" / "quick")
    trained_for(results, "mine")
    assert is_taken(place(results, "mine"))
    assert not work.exists()


def test_without_hard_links_the_files_are_copied(results, monkeypatch):
    def refuse(*arguments: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    trained_for(results, "mine")
    assert is_taken(place(results, "mine"))
    assert contents(place(results, "mine")) == contents(place(results, "quick"))
    assert not (place(results, "mine") / "metrics.csv").samefile(place(results, "quick") / "metrics.csv")


def test_a_run_of_changed_images_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    folder_of_images(tmp_path / "mine")
    config = one_round(str(tmp_path / "mine"))
    runs = {name: train(config, place(tmp_path, name), CPU) for name in ("one", "two")}
    Image.new("RGB", (4, 4)).save(tmp_path / "mine/train/ant/1.png")
    load_dataset.cache_clear()  # as in a new process
    runs["three"] = train(config, place(tmp_path, "three"), CPU)
    assert [is_taken(run.path) for run in runs.values()] == [False, True, False]
    hashes = [run.provenance["data_hash"] for run in runs.values()]
    assert hashes[0] == hashes[1] != hashes[2]


READS = """
from pathlib import Path
import numpy as np

def build():
    return dict(np.load(Path(__file__).parent / "raw.npz"))
"""


OWN_DATA = """
name: own
extends: quick
dataset: data.py:build
model: mlp
training: {rounds: 1, batch_size: 4}
evaluation: {snapshot_every: null}
engine: {backend: loop}
grid: {partition: [{name: iid, clients: 2}], participation: [{sampling: full}], seeds: [0]}
methods: {fedavg: {}}
"""


def test_a_run_of_the_same_code_next_to_other_data_is_not_taken(tmp_path, monkeypatch):
    """A function reads a file next to its own: the same code in two folders stands for two data sets."""
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    x, y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
    made, said = {}, list[str]()
    for name, shift in (("one", 0), ("other", 1), ("same", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.py").write_text(READS, encoding="utf-8")
        (tmp_path / name / "own.yaml").write_text(OWN_DATA, encoding="utf-8")
        np.savez(tmp_path / name / "raw.npz", x_train=x + shift, y_train=y, x_test=x, y_test=y)
        [cell] = load_experiment(str(tmp_path / name / "own.yaml")).cells().values()
        [made[name]] = train_runs(cell.runs, [place(tmp_path, name)], CPU, said.append)
    assert len({run.identity for run in made.values()}) == 1
    assert [is_taken(run.path) for run in made.values()] == [False, False, True]
    assert "/one/" in said[0]
    assert "is not taken: the data are other ones than those with which it was trained" in said[0]
    first = {name: float(RunSetup.build(run.config, CPU).dataset.train.images[0, 0]) for name, run in made.items()}
    assert first == {"one": 0, "other": 1, "same": 0}, "a run's copy of the code stands for the run's data"


def test_a_run_of_the_same_own_code_is_taken_from_wherever_the_files_were(tmp_path):
    """The taken run names the present files; an edited method is another run."""
    configs = [load_experiment(str(written(tmp_path / name))).cell(OWN_CELL).runs[0] for name in ("old", "new")]
    train(configs[0], place(tmp_path, "old"), CPU)
    shutil.rmtree(tmp_path / "old")
    taken = train(configs[1], place(tmp_path, "new"), CPU)
    assert is_taken(taken.path)
    stored = read_checked_json(taken.path / "config.json", "")
    assert stored["method"]["file"] == str(tmp_path / "new" / "method.py")
    assert taken.config.method.recipe.title == "Mine"
    with (tmp_path / "new" / "method.py").open("a", encoding="utf-8") as code:
        code.write("# edited\n")
    edited = load_experiment(str(tmp_path / "new" / "mine.yaml")).cell(OWN_CELL).runs[0]
    assert not is_taken(train(edited, place(tmp_path, "edited"), CPU).path)


def test_a_process_waits_for_another_experiment_that_trains_the_same_run(results):
    """Locks belong to open files, so threads wait for each other as processes do."""
    finished = shutil.move(results / "runs" / "quick", results / "finished")
    said: list[str] = []
    waiting = threading.Thread(
        target=train_runs, args=([CONFIGS[0]], [place(results, "mine")], CPU, said.append), daemon=True
    )
    with take_shared([(CONFIGS[0], place(results, "quick"))], print):
        waiting.start()
        wait_for(lambda: said)
        with pytest.raises(UserError, match=r"another process is training '.*/runs/quick/"):
            trained_for(results, "quick")
        shutil.move(finished, results / "runs" / "quick")
    waiting.join(60)
    assert said == [
        f"seed 0: waits for 'runs/quick/{SETTING}/fedlesam_s/seed-0', which another process trains",
        f"seed 0: taken from 'runs/quick/{SETTING}/fedlesam_s/seed-0', which has the same configuration",
    ]
    assert is_taken(place(results, "mine"))
    assert not list(results.rglob(".*.lock"))


def test_a_run_that_another_process_is_replacing_is_not_named(tmp_path, monkeypatch, caplog):
    """Its files vanish between the look into the folder and the reading; a damaged run is named."""
    results = tmp_path / "results"
    for experiment in ("vanishing", "damaged"):
        place(results, experiment).mkdir(parents=True)
        (place(results, experiment) / "provenance.json").write_text("no", encoding="utf-8")
    read = Path.read_bytes

    def vanished(file: Path) -> bytes:
        if "vanishing" in file.parts:
            file.unlink()
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", vanished)
    assert shared_run(CONFIGS[0], place(results, "quick")) is None
    assert [line.message.count(str(place(results, "damaged"))) for line in caplog.records] == [1]
