"""What calibration times, and what its stored choices depend on."""

import time

import pytest
import torch

from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.batches import FullBatches
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.training import calibration
from fedflat.bench.training.calibration import SEEDS, _Calibration
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_setup import RunSetup
from tests.problems import Problem
from tests.tape import Tapes

CPU = torch.device("cpu")


class Clock:
    """A clock that stands still until a test sets its time."""

    def __init__(self) -> None:
        self.now = 0.0

    def thread_time(self) -> float:
        return self.now


def calibration_of(method="fedsam", **changes) -> _Calibration:
    config = load_experiment("quick_all", changes).cell(f"digits/dirichlet-0.1/4-of-20/{method}").runs[0]
    setup = RunSetup.build(config, CPU)
    return _Calibration(setup, setup.federation.start(setup.objective.initial()))


def timed(seconds_of_calls: list[float], warm_up: int, best: float, monkeypatch) -> float | None:
    """The seconds of a round that are recorded for a back end whose calls take this long, next to a loop's `best`."""
    clock, calls = Clock(), iter(seconds_of_calls)

    class Slow(Loop):
        def train(self, local, works, probe=None):
            results = super().train(local, works, probe)
            clock.now += next(calls)
            return results

    Slow.warm_up = warm_up
    monkeypatch.setitem(BACKENDS, "slow", Slow)
    monkeypatch.setattr(calibration.time, "thread_time", clock.thread_time)
    measured = calibration_of()
    steps = sum(len(work.batches) for work in calibration._last_steps(measured.setup, measured.state)) * SEEDS
    loop = EngineChoice("loop")
    measured.seconds[loop] = best / steps
    chosen = measured._better(loop, EngineChoice("slow"))
    assert chosen.backend == ("slow" if measured.seconds[EngineChoice("slow")] * 1.1 < best / steps else "loop")
    assert next(calls, None) is None, "fewer calls than expected"
    return measured.seconds[EngineChoice("slow")] * steps


def test_warm_up_calls_are_neither_timed_nor_remembered(monkeypatch):
    """A graph's second call captures it, for example in 30 s; from the third on it is replayed in 0.1 s."""
    assert timed([5.0, 30.0, 0.1, 0.12, 0.1], warm_up=2, best=1.0, monkeypatch=monkeypatch) == pytest.approx(0.1)


def test_a_slow_candidate_is_given_up_after_one_timed_call(monkeypatch):
    assert timed([5.0, 3.0], warm_up=1, best=1.0, monkeypatch=monkeypatch) == pytest.approx(3.0)


def test_no_call_begins_after_the_time_limit(monkeypatch):
    assert timed([9.0, 0.9, 0.9], warm_up=1, best=1.0, monkeypatch=monkeypatch) == pytest.approx(0.9)


@pytest.mark.parametrize("choice", [EngineChoice("loop"), EngineChoice("parallel", threads=2)])
def test_time_in_which_others_have_the_processor_does_not_count(choice, monkeypatch):
    """A call that waits for 0.3 s, as on a busy machine, is timed as one that does not."""

    class Waiting(BACKENDS[choice.backend]):
        def train(self, local, works, probe=None):
            time.sleep(0.3)
            return super().train(local, works, probe)

    monkeypatch.setitem(BACKENDS, choice.backend, Waiting)
    measured = calibration_of()
    measured._time(choice)
    steps = sum(len(work.batches) for work in measured._works(choice))
    assert 0 < measured.seconds[choice] * steps < 0.2


@pytest.mark.parametrize("kind", [Graph, Branches])
def test_a_graph_is_warm_when_all_of_it_has_been_captured(kind):
    """Clients of few steps need the most calls; the first call of any back end is not timed."""
    calls = []
    for steps in (1, 2, 3):
        federation = Problem(1).federation("fedsam", {"rho": 0.1})
        federation.batch_sampler = FullBatches(federation.batch_sampler.split, steps)
        works = federation.work(federation.start(federation.objective.initial()), range(4))
        tapes, last = Tapes(), 0
        backend = kind(tapes)
        for call in range(1, 6):
            captured = tapes.captured
            backend.train(federation.local, works)
            last = call if tapes.captured > captured else last
        calls.append(last)
    assert max(calls) == kind.warm_up
    assert all(backend.warm_up >= 1 for backend in BACKENDS.values())


def test_seeds_are_timed_with_models_of_their_own(monkeypatch):
    """As they are trained; copies of one work would share a model, and each layer would be one large product."""
    seen = []

    class Watched(Cohort):
        def train(self, local, works, probe=None):
            seen.append(works)
            return super().train(local, works, probe)

    monkeypatch.setitem(BACKENDS, "cohort", Watched)
    measured = calibration_of("fedsmoo")
    measured._loop()
    measured._time(EngineChoice("cohort"))
    works, active = seen[-1], len(measured.setup.active(measured.state))
    assert len(works) == SEEDS * active
    assert len({id(work.broadcast) for work in works}) == SEEDS
    assert len({work.broadcast.model.data_ptr() for work in works}) == SEEDS
    assert len({work.broadcast.vectors["s"].data_ptr() for work in works}) == SEEDS
    assert all(torch.equal(work.broadcast.model, works[0].broadcast.model) for work in works)


def test_stored_choices_depend_on_the_local_work_and_on_a_gpu_on_the_method():
    def key(method="fedsam", device=CPU, **changes):
        measured = calibration_of(method, **changes)
        measured.device = device
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Objective, "device", device)
            return measured.file.name

    cuda = torch.device("cuda", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "machine", lambda device: device.type)
        assert key() == key("fedsmoo") == key("fedsam", **{"training.lr": 0.5})
        assert key() != key(**{"training.local_epochs": 4})
        assert key("fedsam", cuda) != key("fedsmoo", cuda)
        assert key("fedsam", cuda) == key("fedsam", cuda, **{"grid.seeds": [1]})


@pytest.mark.parametrize("key", EngineChoice().as_json())
@pytest.mark.parametrize("value", [[], {}, "x", 1.5, -1, 0, 10**30], ids=repr)
def test_a_stored_choice_with_a_wrong_type_is_no_choice(key, value):
    with pytest.raises(ValueError, match="not a choice of the engine"):
        EngineChoice.from_json({**EngineChoice().as_json(), key: value})
    assert EngineChoice.from_json(EngineChoice().as_json()) == EngineChoice()


@pytest.mark.parametrize("fitting", [0, 1, 2])
def test_clients_that_do_not_fit_into_the_memory_are_not_trained_side_by_side(fitting, monkeypatch):
    measured = calibration_of()
    measured.most_threads = 2
    monkeypatch.setattr(calibration, "graph_bytes", lambda gradient: 2**30)
    client = 2 * 2**30 + calibration.VECTORS * measured.state.w.nbytes
    monkeypatch.setattr(calibration, "available_memory", lambda: (fitting + 0.5) * client / calibration.MEMORY)
    candidates = list(measured._parallel(EngineChoice("loop")))
    assert candidates == ([EngineChoice("parallel", threads=2)] if fitting == 2 else [])
    assert len(measured.impossible) == (fitting < 2)
