"""Searches by a tiny protocol that really train: what is stored, killed and shared, and what is refused."""

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.lists import listed_runs
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.training_run import TrainingRun
from fedflat.bench.tuning.protocol import queue as queues
from fedflat.bench.tuning.protocol.finals import Final
from fedflat.bench.tuning.protocol.queue import Queue, work
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.rounds import Rounds
from fedflat.bench.tuning.protocol.status import Status
from fedflat.bench.tuning.protocol.trial import as_trial
from fedflat.bench.tuning.protocol.unit import Unit
from fedflat.bench.tuning.protocol.units import Units
from fedflat.bench.tuning.trials import with_values
from tests.bench.tuning.tiny_protocol import PROTOCOL, write
from tests.problems import train

CPU = torch.device("cpu")
CELL = "mnist1d-60/iid/2-of-4"
SEARCHES = ["main/fedsam/1000", "main/fedgf/1000"]
MEASURED = ["cpu_seconds"]

pytestmark = pytest.mark.usefixtures("data_folder")


def queue_in(folder: Path, **changes: object) -> Queue:
    return Queue(Units(SearchedGrid.read(str(write(folder / "grid", **changes))), folder / "results"))


def search(folder: Path, names: Sequence[str] = SEARCHES) -> Queue:
    queue = queue_in(folder)
    assert work(units_of(queue, names), CPU, silent)
    return queue


def units_of(queue: Queue, names: Sequence[str] = SEARCHES) -> list[Unit]:
    """The named units with their bases, without the runs that follow."""
    return [item for item in queue.named(names) if isinstance(item, Unit)]


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """All trials of a tiny search by method, without what is measured."""
    files = sorted((folder / "results/search/tiny/tiny").rglob("trials.csv"))
    return {file.parts[-3]: pd.read_csv(file, dtype=str).drop(columns=MEASURED) for file in files}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSetup, "build", classmethod(without_test(RunSetup.build.__func__)))
        search(folder)
    return folder


def without_test(build):
    """The set-up of a run whose test signals cannot be read."""

    def built(cls, *args, **options):
        setup = build(cls, *args, **options)
        unreadable = replace(setup.test, labels=None)
        with pytest.raises(AttributeError):
            next(unreadable.batches(10))
        return replace(setup, test=unreadable)

    return built


def test_a_search_stores_all_its_trials_and_never_reads_the_test(searched: Path) -> None:
    found = tables(searched)
    assert {method: len(table) for method, table in found.items()} == {"fedavg": 16, "fedgf": 12, "fedsam": 12}
    for method, table in found.items():
        taken = table["from"].notna()
        assert taken.sum() == (0 if method == "fedavg" else 4)
        assert table["identity"].is_unique
        assert (table["rounds"] == "4").all()
    assert not list((searched / "results").rglob("*.partial-*")), "what trials leave is removed"


def test_a_trial_is_what_its_run_measures(searched: Path, tmp_path: Path) -> None:
    """Trained again as a run of its own, whose metrics are read here without the code of the search."""
    unit = queue_in(tmp_path).units.of("main", "fedsam", 1000)
    table = tables(searched)["fedsam"]
    row = table[table["stage"] == "points"].iloc[0]
    config = with_values(unit.base, json.loads(row["values"]))
    assert config.identity == row["identity"]
    metrics = train(config, tmp_path / "run", CPU).metrics()
    last = metrics.iloc[-1]
    assert float(row["train_accuracy"]) == last["train_accuracy"]
    assert float(row["validation_accuracy"]) == last["validation_accuracy"]
    assert not [name for name in metrics if "test" in name]
    assert float(row["distance"]) == metrics["client_drift"].median()
    fitted = metrics[metrics["train_accuracy"] >= PROTOCOL["fitted"]["least"]]
    first = fitted["round"].iloc[0]
    assert int(float(row["fit_round"])) == first
    sent = (metrics["active"] * (metrics["download"] + metrics["upload"]))[metrics["round"] <= first].sum()
    assert float(row["fit_mb"]) == pytest.approx(sent * 4 * 410 / 1e6)
    assert float(row["gradients"]) == 4 * 2 * 2 * 2, "rounds, clients, steps, gradients of a step"


def test_a_method_without_effect_is_what_its_base_was(searched: Path, tmp_path: Path) -> None:
    """Trained with a radius of zero, FedSAM and FedGF give the numbers of the base's trials that they take."""
    found, units = tables(searched), queue_in(tmp_path).units
    for method in ("fedsam", "fedgf"):
        row = found[method].iloc[0]
        base = found["fedavg"].set_index("number").loc[row["from"].rpartition("/")[2]]
        assert row["identity"] == base["identity"]
        config = with_values(units.of("main", method, 1000).base, json.loads(row["values"]))
        last = train(config, tmp_path / method, CPU).metrics().iloc[-1]
        for score in ("train_accuracy", "validation_accuracy"):
            assert last[score] == float(row[score]) == float(base[score])


def kill_after(folder: Path, recorded: int) -> None:
    """Search in a process that is killed with SIGKILL after this number of rounds of trials."""

    def searching() -> None:
        record, count = TrainingRun.record, [0]

        def counted(run, result):
            count[0] += 1
            if count[0] > recorded:
                os.kill(os.getpid(), signal.SIGKILL)
            return record(run, result)

        TrainingRun.record = counted  # type: ignore[method-assign]
        search(folder)

    child = multiprocessing.get_context("fork").Process(target=searching)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def test_a_killed_search_goes_on_to_the_same_bits(searched: Path, tmp_path: Path) -> None:
    """Killed within its first batch, between batches of a base, and in the search of a method."""
    for recorded in (5, 12, 14, 30):
        kill_after(tmp_path, recorded)
    search(tmp_path)
    expected, found = tables(searched), tables(tmp_path)
    assert found.keys() == expected.keys()
    for method, table in expected.items():
        pd.testing.assert_frame_equal(found[method], table)


def test_processes_share_the_work(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two search at the same time: each batch is trained by one of them, and the results are those of one process."""
    monkeypatch.setattr(queues, "WAIT_SECONDS", 0.05)

    def searching(name: str) -> None:
        with (tmp_path / name).open("w") as file:
            assert work(units_of(queue), CPU, lambda line: print(line, file=file))

    queue = queue_in(tmp_path)
    children = [multiprocessing.get_context("fork").Process(target=searching, args=(name,)) for name in ("a", "b")]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    lines = [line for name in ("a", "b") for line in (tmp_path / name).read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 7 + 5 + 5, "a line for each batch"
    for method, table in tables(searched).items():
        pd.testing.assert_frame_equal(tables(tmp_path)[method], table)


def test_what_another_process_does_is_left_to_it(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    [base] = units_of(queue, ["main/fedavg/1000"])
    assert not work([base], CPU, silent, seconds=0), "the time is over"
    with folder_lock(base.folder):
        method = queue.units.of("main", "fedsam", 1000)
        assert not method.is_ready
        assert work([method], CPU, silent), "it needs its base, on which nobody of this queue works"
    assert not method.rows


def test_trials_of_another_protocol_are_refused(searched: Path) -> None:
    other = {**PROTOCOL["ranges"], "lr": {**PROTOCOL["ranges"]["lr"], "high": 1.5}}
    changes = (
        {"ranges": other},
        {"fitted": {"least": 11.0, "of": "train_accuracy"}},
        {"refine": {"share": 0.2, "around": 2}},
    )
    for change in changes:
        queue = queue_in(searched, **change)
        with pytest.raises(UserError, match="holds trials of another search"):
            queue.units.of("main", "fedavg", 1000).read()
    points = {**PROTOCOL["methods"], "fedsam": {**PROTOCOL["methods"]["fedsam"], "points": {"rho": [0, 0.3]}}}
    queue = queue_in(searched, methods=points)
    with pytest.raises(UserError, match="holds trials of another search"):
        queue.units.of("main", "fedsam", 1000).read()
    assert queue.units.of("main", "fedavg", 1000).read(), "the base's stay"
    write(searched / "grid")


def test_winners_become_experiments_with_runs_of_their_own_seeds(searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    queue = search(tmp_path, ["main/fedavg/1001", *SEARCHES])
    of_fedsam = [item for items in queue.entries.values() for item in items if item.name.endswith("/fedsam")]
    finals = [item for item in of_fedsam if isinstance(item, Final) and item.is_ready]
    assert [item.name for item in finals] == ["tiny_t1000/fedsam", "tiny_x1001/fedsam", "tiny_noise_t1000/fedsam"]
    more_compute = [item for item in queue.entries["main.equal_compute"] if item.is_ready]
    assert [item.name for item in more_compute] == [
        f"tiny_{key}_t{seed}/fedavg" for seed in (1000, 1001) for key in ("k2", "t2")
    ]
    work([*finals, *more_compute[:2]], CPU, silent)
    paths, unit = queue.units.paths, queue.units.of("main", "fedsam", 1000)
    experiment = load_experiment(str(paths.search("tiny") / "tiny_t1000.yaml"))
    cell = experiment.cell(f"{CELL}/fedsam")
    assert [run.seed for run in cell.runs] == [0, 1]
    assert as_trial(cell.runs[0], 1000).identity == with_values(unit.base, unit.winner.values).identity
    assert experiment.tuned is not None
    assert (experiment.tuned.seed, experiment.tuned.trials, experiment.tuned.validation) == (1000, 16, "own")
    assert experiment.tuned.protocol == queue.protocol.identity
    assert list(experiment.methods) == ["fedavg", "fedsam", "fedgf"]
    metrics = RunDirectory(paths.run(cell.runs[1])).metrics()
    assert {"train_accuracy", "test_accuracy", "validation_accuracy"} <= {*metrics}
    crossed = load_experiment(str(paths.search("tiny") / "tiny_x1001.yaml")).cell(cell.path)
    assert [run.seed for run in crossed.runs] == [2, 3]
    assert crossed.runs[0].method == cell.runs[0].method, "the values of the other tuning seed"
    noise = listed(paths, "tiny_noise_t1000", "mnist1d-60-noise-0.5/iid/2-of-4/fedsam").metrics()
    assert {"train_true_accuracy", "validation_accuracy"} <= {*noise}
    for key, amounts in (("k2", (4, 4, 0.9)), ("t2", (8, 2, 0.9486833))):
        training = listed(paths, f"tiny_{key}_t1000", f"{CELL}/fedavg").config.training
        assert (training.rounds, training.local_steps, training.lr_decay) == amounts
    assert all(item.has_ended for item in finals)


def listed(paths: ResultPaths, experiment: str, cell: str) -> RunDirectory:
    return listed_runs(paths.runs(experiment, cell), paths.root, "")[0].run


def test_status_tells_what_is_done_and_estimates_the_rest(searched: Path) -> None:
    lines = list(Status(queue_in(searched)).lines())
    assert lines[0] == "rounds: 0 of 0 done, 0.00 h spent"
    assert lines[1].startswith("main.ten: ")
    assert "h to come" in lines[1]
    assert any(line.startswith("in all: 0.00 of 1 core hours spent") for line in lines)


@pytest.mark.parametrize(("least", "expected"), [(5.0, 2), (100.0, 4)])
def test_the_fewest_rounds_with_which_each_method_is_fitted(tmp_path: Path, least: float, expected: int) -> None:
    rounds = {**PROTOCOL["rounds"], "chosen": {"main": None}}
    changes = {"rounds": rounds, "fitted": {"least": least, "of": "train_accuracy"}}
    queue = queue_in(tmp_path, **changes)
    with pytest.raises(UserError, match=r"rounds\.chosen\.main is null"):
        queue.named(["main/fedavg/1000"])
    assert [len(items) for items in queue.entries.values()] == [1, 0, 0, 0, 0, 0], "nothing else can begin"
    assert work(queue.named(["rounds"]), CPU, silent)
    rule = Rounds(queue.units, "main")
    assert rule.result() == expected
    assert f"main: {expected} rounds" in rule.lines()[-1]
    assert ("not fitted" in rule.lines()[-1]) == (least == 100.0)
    assert len(list((tmp_path / "results").rglob("rounds-*/trials.csv"))) == 2 * (1 if expected == 2 else 2)


def test_the_data_of_the_test_are_not_those_of_validation() -> None:
    """The stand-in above would not notice if both shared their labels."""
    config = SearchedGrid.read("flat1d").cell("main", "fedavg").runs[0]
    setup = RunSetup.build(config, CPU)
    assert isinstance(setup.validation, DeviceData)
    assert (len(setup.train), len(setup.validation), len(setup.test)) == (1000, 1500, 2500)
