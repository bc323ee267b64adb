"""The back end of a run is measured once, or requested; seeds are trained together where that changes no bit."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch.func import vmap

from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.training.calibration import train_together
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.train import train_cell, train_runs
from tests.bench.engine.rounds_of_backends import CPU, benches
from tests.problems import train


@contextmanager
def cache(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield


def engine_lines(run) -> list[str]:
    return [
        line.split("engine: ")[1]
        for line in (run / "run.log").read_text(encoding="utf-8").splitlines()
        if "engine: " in line
    ]


def test_a_choice_is_measured_once_logged_and_recorded(tmp_path, monkeypatch):
    config = load_experiment("quick", {"training.rounds": 2}).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    with cache(tmp_path / "cache", monkeypatch):
        shown: dict[str, list[str]] = {"a": [], "b": []}
        first, second = (train(config, tmp_path / name, CPU, progress=lines.append) for name, lines in shown.items())
    assert [[line for line in lines if line.startswith("timing the engine's")] != [] for lines in shown.values()] == [
        True,
        False,
    ], "a line before the measurement, which takes long"
    measured, remembered = engine_lines(first.path), engine_lines(second.path)
    assert any("loop" in line and "ms per client and step" in line for line in measured)
    assert any("cohort" in line and "ms per client and step" in line for line in measured)
    assert any(line.startswith("measured in") for line in measured)
    assert remembered[0].startswith("as measured earlier on this machine; delete ")
    assert first.provenance["engine"] == second.provenance["engine"]
    assert (first.path / "metrics.csv").read_bytes() == (second.path / "metrics.csv").read_bytes()


def test_a_choice_does_not_depend_on_the_seeds_that_are_requested(tmp_path, monkeypatch):
    """Nor do a run's bits: seed 1 trained alone equals seed 1 trained with the others."""
    cell = load_experiment("quick", {"training.rounds": 3}).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    with cache(tmp_path / "cache", monkeypatch):
        runs = train_runs(cell.runs, [tmp_path / f"all-{config.seed}" for config in cell.runs], CPU)
        alone = train(cell.runs[1], tmp_path / "alone", CPU)
    engines = [{**run.provenance["engine"], "together": None} for run in (*runs, alone)]
    assert all(engine == engines[0] for engine in engines)
    assert (alone.path / "final.safetensors").read_bytes() == (runs[1].path / "final.safetensors").read_bytes()


def test_a_method_that_turns_out_not_to_batch_is_trained_by_the_loop(tmp_path, monkeypatch):
    """A branch that a calibration does not meet: the run goes on, and its log says how."""
    config = load_experiment("quick", {"training.rounds": 3}).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    train_cohort, seen = Cohort.train, []

    def failing(self, local, works, probe=None):
        if works[0].round == 1:
            raise CannotBatchError("a branch")
        seen.append(works[0].round)
        return train_cohort(self, local, works, probe)

    monkeypatch.setattr(Cohort, "train", failing)
    monkeypatch.setattr("fedflat.bench.training.choices.choose_engine", lambda *_: EngineChoice("cohort"))
    run = train(config, tmp_path / "run", CPU)
    assert set(seen) == {0}
    assert engine_lines(run.path)[-2:] == ["this round is not possible in a cohort: a branch", "loop, 1 thread"]
    assert run.provenance["engine"]["backend"] == "loop"
    assert len(run.metrics()) == 3


@pytest.mark.parametrize("backend", ["loop", "cohort"])
def test_a_back_end_can_be_requested(backend, tmp_path):
    changes = {"training.rounds": 2, "engine.backend": backend, "engine.seeds": "together"}
    cell = load_experiment("quick", changes).cell("digits/dirichlet-0.1/4-of-20/fedlesam_s")
    assert cell.identity == load_experiment("quick", {"training.rounds": 2}).cell(cell.path).identity
    folder = train_cell("quick", cell, tmp_path, CPU, lambda line: None)
    chosen = engine_lines(folder / "seed-2")[-1].split(", ")
    assert chosen[0] == backend
    assert ("seeds together" in chosen) == (backend == "cohort")


def test_what_is_not_possible_is_one_line(tmp_path):
    changes = {"training.rounds": 2, "engine.backend": "graph"}
    config = load_experiment("quick", changes).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    with pytest.raises(UserError, match=r"graph needs an NVIDIA GPU \(allowed here: auto, loop, parallel, cohort\)"):
        train(config, tmp_path / "run", CPU)
    assert list(tmp_path.iterdir()) == []


def test_back_ends_are_known_by_the_names_of_the_settings():
    schema = load_experiment("quick").engine.model_json_schema()
    assert {"auto", *BACKENDS} == set(schema["properties"]["backend"]["enum"])


@pytest.mark.parametrize("part", ["model", "upload", "state", "loss"])
@pytest.mark.parametrize("seed", range(3))
def test_one_bit_in_company_is_noticed(part, seed, monkeypatch):
    """In any seed, and in whatever the server or a later round reads."""
    parts = benches("scaffold")
    states = [bench.federation.start(bench.objective.initial()) for bench in parts]
    train_cohort, several = Cohort.train, 3 * len(parts[0].active(states[0]))

    def other_bit(v):
        return torch.nextafter(v, v + 1)

    def disturbed(self, local, works, probe=None):
        results = train_cohort(self, local, works, probe)
        if len(works) == several:
            k = seed * len(results) // 3
            value = getattr(results[k], part)
            results[k] = replace(
                results[k],
                **{part: {n: other_bit(v) for n, v in value.items()} if isinstance(value, dict) else other_bit(value)},
            )
        return results

    said = []
    arguments = (parts, states, EngineChoice("cohort"), said.append)
    assert train_together(*arguments)
    monkeypatch.setattr(Cohort, "train", disturbed)
    assert not train_together(*arguments)
    assert said == [
        "engine: training seeds together would change the last bits of a run, so they are trained one by one"
    ]


def test_where_company_changes_bits_seeds_are_trained_apart(tmp_path, monkeypatch):
    """As it did, with one active client, if a single row were not computed twice."""
    monkeypatch.setattr("fedflat.bench.engine.backends.cohort.mapped", lambda function, *rows: vmap(function)(*rows))
    changes = {"training.rounds": 2, "engine.backend": "cohort", "grid.participation": [{"active": 1}]}
    cell = load_experiment("quick_all", changes).cell("digits/dirichlet-0.1/1-of-20/fedavg")
    runs = train_runs(cell.runs, [tmp_path / str(config.seed) for config in cell.runs], CPU)
    assert not any(run.provenance["engine"]["together"] for run in runs)
    assert any("training seeds together would change" in line for line in engine_lines(runs[0].path))
