"""Tuning of cells: equal budgets, the better half goes on, no test image is used, and a kill changes no bit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from fedflat.bench.data.root import ENVIRONMENT
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.cell_trainer import CellTrainer
from fedflat.bench.tuning.cell_search import CellSearch, seed_of
from fedflat.bench.tuning.trials import as_trial
from fedflat.bench.tuning.tune import tune_cell
from fedflat.bench.tuning.winners import require_winners, write_winners
from tests.tables import with_sums

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"
SMALL = {
    "training.rounds": 8,
    "training.local_epochs": 1,
    "grid.partition": [{"name": "dirichlet", "alpha": 0.1, "clients": 20}],
    "grid.participation": [{"active": 4}],
    "tuning.trials": 4,
    "tuning.rungs": [0.25, 0.5],
}
METHODS = ("fedavg", "fedsam", "feddyn")
NOT_EQUAL = ["seconds"]


def experiment(name: str = "quick", **changes: object) -> Experiment:
    return load_experiment(name, {**SMALL, **changes})


def tuned(path: str, folder: Path, **changes: object) -> CellSearch:
    """A cell of quick after its search."""
    search = CellSearch.of(experiment(**changes), path, folder)
    tune_cell(search, CPU, lambda line: None)
    return search


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CellSearch]:
    folder = tmp_path_factory.mktemp("tuning")
    return {method: tuned(f"{SETTING}/{method}", folder / method) for method in METHODS}


def table(search: CellSearch) -> pd.DataFrame:
    """The stored trials of a search that has ended, after which nothing else is left."""
    assert sorted(file.name for file in search.folder.iterdir()) == with_sums("progress.csv", "trials.csv")
    return pd.read_csv(search.folder / "trials.csv").drop(columns=NOT_EQUAL)


def test_all_methods_get_the_same_budget(searches: dict[str, CellSearch]) -> None:
    tables = {method: table(search) for method, search in searches.items()}
    trained = {method: sorted(zip(rows["rung"], rows["round"], strict=True)) for method, rows in tables.items()}
    assert trained["fedavg"] == [(1, 2)] * 4 + [(2, 4)] * 2 + [(3, 8)]
    assert trained["fedavg"] == trained["fedsam"] == trained["feddyn"]
    rates = [rows.drop_duplicates("trial")["training.lr"].tolist() for rows in tables.values()]
    assert rates[0][0] == 0.1, "trial 0 has the values of the experiment"
    assert rates[0][1:] == rates[1][1:] == rates[2][1:], "the others have the same rates"
    assert len(set(rates[0])) == 4


def test_the_better_half_of_the_trials_goes_on(searches: dict[str, CellSearch]) -> None:
    for search in searches.values():
        rows = table(search)
        for _, rung in rows[rows["rung"] < 3].groupby("rung"):
            going_on, stopped = (rung[rung["outcome"] == name]["score"] for name in ("goes on", "stopped"))
            assert len(going_on) == len(stopped) == len(rung) / 2
            assert going_on.min() >= stopped.max()
        assert search.winner is not None
        last = rows[rows["outcome"] == "finished"]
        assert search.winner.number == last["trial"].item()


def test_trials_are_runs_with_another_seed_evaluated_on_held_out_images(searches: dict[str, CellSearch]) -> None:
    run = searches["fedsam"].trials[1].run
    assert run.seed == 1000
    assert run.evaluation.validation == 0.2
    assert sorted(run.evaluated_rounds) == [2, 4, 8]
    assert run.snapshots == []


class Killed(BaseException):
    pass


@contextmanager
def killed_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block, the process ends when this number of rounds have been trained."""
    train, count = CellTrainer.train_round, iter(range(rounds))

    def watched(trainer: CellTrainer, runs: list) -> list:
        if next(count, None) is None:
            raise Killed
        return train(trainer, runs)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CellTrainer, "train_round", watched)
        yield


def test_a_search_that_is_killed_again_and_again_has_the_same_bits(
    searches: dict[str, CellSearch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed within a first round, in the middle of a rung, and between rungs; with a checkpoint after each round."""
    path, changes = f"{SETTING}/fedsam", {"engine.checkpoint_seconds": 0}
    for rounds in (0, 1, 3, 5):
        with killed_after(rounds, monkeypatch):
            tuned(path, tmp_path / "cell", **changes)
    search = CellSearch.of(experiment(**changes), path, tmp_path / "cell")
    search.read()
    assert search.next_step is not None, "not all of it was trained before"
    assert len(search.results) >= 3
    assert table(tuned(path, tmp_path / "cell", **changes)).equals(table(searches["fedsam"]))


def test_a_finished_search_trains_nothing_and_more_trials_only_what_is_missing(
    searches: dict[str, CellSearch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = searches["fedavg"]
    trained: list[str] = []
    train = CellTrainer.train_round
    monkeypatch.setattr(
        CellTrainer, "train_round", lambda trainer, runs: trained.append(runs[0].work.name) or train(trainer, runs)
    )
    path = f"{SETTING}/fedavg"
    folder = tmp_path / "fedavg"
    folder.mkdir()
    (folder / "trials.csv").write_bytes((first.folder / "trials.csv").read_bytes())
    tuned(path, folder)
    assert trained == []
    more = table(tuned(path, folder, **{"tuning.trials": 6}))
    assert {name[:9] for name in trained} >= {"trial-004", "trial-005"}
    assert table(tuned(path, tmp_path / "anew", **{"tuning.trials": 6})).equals(more)
    trained.clear()
    (folder / "trials.csv").unlink()  # as by Snakemake, before it makes the file again
    assert table(tuned(path, folder)).equals(table(first))
    assert table(tuned(path, folder, **{"tuning.trials": 6})).equals(more), "the further trials were kept"
    assert trained == []


def test_results_of_another_search_are_refused(searches: dict[str, CellSearch]) -> None:
    folder = searches["fedavg"].folder
    for changes in (
        {"tuning.seed": 7},
        {"tuning.validation": 0.3},
        {"tuning.rungs": []},
        {"training.weight_decay": 0.1},
        {"search.lr": {"low": 0.02, "high": 0.2}},
    ):
        with pytest.raises(UserError, match="holds trials of another search"):
            tuned(f"{SETTING}/fedavg", folder, **changes)


def test_replace_and_another_process(searches: dict[str, CellSearch], tmp_path: Path) -> None:
    path, folder = f"{SETTING}/fedavg", tmp_path / "fedavg"
    folder.mkdir()
    (folder / "trials.csv").write_bytes((searches["fedavg"].folder / "trials.csv").read_bytes())
    changes = {"training.rounds": 2, "tuning.trials": 2, "tuning.rungs": []}
    other = CellSearch.of(experiment(**changes), path, folder)
    with folder_lock(folder), pytest.raises(UserError, match="another process is tuning"):
        tune_cell(other, CPU, lambda line: None, replace=True)
    tune_cell(other, CPU, lambda line: None, replace=True)
    assert table(other)["round"].tolist() == [2, 2]


def arrays_experiment(folder: Path, test_labels: np.ndarray) -> Path:
    """An experiment on digits as a user's arrays with these test labels."""
    data = Digits().load()
    folder.mkdir()
    np.savez(
        folder / "digits.npz",
        x_train=data.train.images,
        y_train=data.train.labels,
        x_test=data.test.images,
        y_test=test_labels,
    )
    file = folder / "own.yaml"
    file.write_text("name: own\nextends: quick\ndataset: digits.npz\n", encoding="utf-8")
    return file


def test_the_test_images_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With wrong test labels, all values, scores and winners stay."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "root"))
    labels = Digits().load().test.labels
    found = []
    for name, given in (("right", labels), ("wrong", (labels + 1 + np.arange(len(labels)) % 9) % 10)):
        file = arrays_experiment(tmp_path / name, given)
        own = experiment(str(file))
        search = CellSearch.of(own, "digits/dirichlet-0.1/4-of-20/fedsam", tmp_path / name / "cell")
        tune_cell(search, CPU, lambda line: None)
        write_winners(own, str(file), {}, [search], tmp_path / name / "tuned.yaml")
        rows = table(search).drop(columns=["identity", "search"])
        found.append((rows, (tmp_path / name / "tuned.yaml").read_text(encoding="utf-8")))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]


def test_the_file_of_the_winners_gives_the_winners_runs(searches: dict[str, CellSearch], tmp_path: Path) -> None:
    file = tmp_path / "mine" / "tuned.yaml"
    own = experiment()
    write_winners(own, "quick", {"training.rounds": 8}, list(searches.values()), file)
    again = load_experiment(str(file), SMALL)
    assert again.name == "quick_tuned"
    assert list(again.methods) == list(METHODS)
    assert again.tuned is not None
    assert (again.tuned.trials, again.tuned.seed, again.tuned.validation) == (4, 1000, 0.2)
    assert again.tuned.set == {"training.rounds": 8}
    assert again.tuned.ranges["fedsam"].keys() == {"lr", "server_lr", "rho"}
    for method, search in searches.items():
        assert search.winner is not None
        run = again.cell(f"{SETTING}/{method}").runs[0]
        assert as_trial(run, seed_of(own), 0.2, [2, 4, 8]).identity == search.winner.run.identity


MINE = """
from typing import Annotated
from pydantic import Field
from fedflat.bench.methods.base import Perturbation, unit
from fedflat.bench.methods.marks import Search
from fedflat.bench.methods.recipe import Components, Recipe

class Mine(Perturbation):
    name = "mine"
    rho: Annotated[float, Search(values=(0.1, 0.2, 0.3, 0.4))] = Field(ge=0, examples=[0.1])
    server_state = ("rounds",)

    def delta(self, w, gradient, client):
        delta = self.rho * unit(gradient(w))
        return delta[:3] if self.rho == 0.3 else delta * float("nan") if self.rho == 0.4 else delta

    def aggregate(self, server):
        if self.rho == 0.2 and server.round == 2:
            raise RuntimeError("in round 3")

METHOD = Recipe("mine", "Mine", "nobody", Components(perturbation=Mine))
"""


def test_trials_whose_code_fails_count_and_say_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    file = tmp_path / "mine.yaml"
    ranges = "search: {lr: null, server_lr: null}"
    file.write_text(
        f"name: own\nextends: quick\n{ranges}\nmethods: {{mine: {{file: mine.py, hyperparameters: {{rho: 0.1}}}}}}\n",
        encoding="utf-8",
    )
    own = experiment(str(file), **{"tuning.trials": 16, "tuning.rungs": [0.1], "training.rounds": 4})
    lines: list[str] = []
    search = CellSearch.of(own, f"{SETTING}/mine", tmp_path / "cell")
    tune_cell(search, CPU, lines.append)
    rows = table(search)
    assert sorted(rows.loc[rows["rung"] == 1, "hyperparameters.rho"]) == [0.1, 0.2, 0.3, 0.4], "each configuration once"
    ends = rows.drop_duplicates("hyperparameters.rho", keep="last").set_index("hyperparameters.rho").sort_index()
    assert ends["outcome"].to_dict() == {0.1: "finished", 0.2: "failed", 0.3: "failed", 0.4: "diverged"}
    assert ends["score"].notna().tolist() == [True, False, False, False]
    assert "mine.py' fails in line 19: RuntimeError: in round 3" in ends["reason"][0.2]
    assert "mine.py' fails" in ends["reason"][0.3]
    assert ends["reason"][0.4] == "diverged in round 1"
    assert any("RuntimeError: in round 3" in line for line in lines)
    require_winners([search])


def test_cells_without_a_winner_are_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("values=(0.1, 0.2, 0.3, 0.4)", "values=(0.2,)"), encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: own\nextends: quick\nsearch: {lr: null, server_lr: null}\n"
        "methods: {mine: {file: mine.py, hyperparameters: {rho: 0.2}}}\n",
        encoding="utf-8",
    )
    own = experiment(str(file), **{"tuning.trials": 1, "tuning.rungs": [], "training.rounds": 3})
    search = CellSearch.of(own, f"{SETTING}/mine", tmp_path / "cell")
    tune_cell(search, CPU, lambda line: None)
    with pytest.raises(UserError, match=rf"all trials failed in {SETTING}/mine: .* RuntimeError: in round 3"):
        require_winners([search])


def test_ranges_of_the_experiment_and_of_a_method(tmp_path: Path) -> None:
    changes = {
        "search.lr": {"values": [0.05, 0.1]},
        "search.server_lr": {"low": 0.5, "high": 2},
        "methods.fedsam.search": {"lr": {"low": 0.2, "high": 0.3}, "rho": None, "lr_decay": {"values": [0.99, 1.0]}},
    }
    own = experiment(**changes)
    shown = {
        method: {place: str(one) for place, one in CellSearch.of(own, f"{SETTING}/{method}", tmp_path).ranges.items()}
        for method in ("fedavg", "fedsam", "feddyn")
    }
    assert shown["fedavg"] == {"training.lr": "0.05 or 0.1", "training.server_lr": "0.5 to 2"}
    assert shown["fedsam"] == {
        "training.lr": "0.2 to 0.3",
        "training.server_lr": "0.5 to 2",
        "training.lr_decay": "0.99 or 1.0",
    }
    assert shown["feddyn"].keys() == {"training.lr", "hyperparameters.lam"}


def test_values_of_swa_and_of_an_entrys_where_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "swa.yaml"
    entry = {"hyperparameters": {"swa": {"cycle": 1}}, "where": {"dirichlet-0.1": {"training": {"lr_decay": 0.5}}}}
    file.write_text(
        yaml.safe_dump({"name": "swa", "extends": "quick", "methods": {"fedavg+swa": entry}}), encoding="utf-8"
    )
    own = experiment(str(file), **{"tuning.trials": 2, "tuning.rungs": [], "training.rounds": 2})
    search = CellSearch.of(own, f"{SETTING}/fedavg+swa", tmp_path / "cell")
    assert "hyperparameters.swa.cycle" in search.ranges
    tune_cell(search, CPU, lambda line: None)
    write_winners(own, str(file), {}, [search], tmp_path / "tuned.yaml")
    where = experiment_data(str(tmp_path / "tuned.yaml"))["methods"]["fedavg+swa"]["where"]
    assert where["dirichlet-0.1"] == {"training": {"lr_decay": 0.5}}
    assert where["dirichlet-0.1/4-of-20"]["hyperparameters"]["swa"].keys() == {"cycle", "lr_end"}, "no default is fixed"
    again = load_experiment(str(tmp_path / "tuned.yaml"), {**SMALL, "training.rounds": 2})
    run = again.cell(f"{SETTING}/fedavg+swa").runs[0]
    assert run.training.lr_decay == 0.5
    assert search.winner is not None
    assert as_trial(run, seed_of(own), 0.2, [2]).identity == search.winner.run.identity
