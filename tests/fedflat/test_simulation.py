"""`fedflat.simulate`: the bits of `fedflat run` with the same choice of the engine, and which choice it makes."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedflat
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.participation import Participation, active_clients
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.training import calibration
from fedflat.bench.training.run_setup import RunSetup
from tests.problems import Problem, distance, train

CPU = torch.device("cpu")
LONG = {"participants": [[0, 1], [2, 3]] * 12, "local_steps": 20, "lr": 0.01}
"""960 local steps of clients; 480 are the fewest for which two clients side by side are timed."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of stored choices, empty at first; steps alone decide what is measured, not their time."""
    monkeypatch.setattr(calibration, "LEAST_SECONDS", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedflat" / "calibration"


def remember(cache, backend):
    """Replace the only stored choice, whatever was measured; its file."""
    [file] = cache.glob("*.json")
    file.write_text(json.dumps(fedflat.EngineChoice(backend).as_json()), encoding="utf-8")
    return file


CHOICES = {
    "loop": {"engine.backend": "loop", "engine.layout": "contiguous"},
    "channels-last": {"engine.backend": "loop", "engine.layout": "channels_last"},
    "cohort": {"engine.backend": "cohort"},
}


@pytest.mark.parametrize("settings", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("method", ["fedavg", "fedsam", "fedsmoo"])
def test_the_bits_of_a_run(method, settings, tmp_path):
    """The clients have equally many batches."""
    grid = {"grid.partition": [{"name": "iid", "clients": 20}], "grid.participation": [{"active": 4}]}
    experiment = load_experiment("quick_all", {**grid, **settings, "training.rounds": 3, "grid.seeds": [5]})
    config = experiment.cell(f"digits/iid/4-of-20/{method}").runs[0]
    run = train(config, tmp_path / "run", CPU)
    setup, steps = RunSetup.build(config, CPU), config.training
    [local_steps] = {len(setup.federation.batch_sampler(i, 0)) for i in range(20)}
    state = setup.federation.start(setup.objective.initial())
    participants = []
    for state.round in range(3):
        participants.append(setup.active(state))
    same = {
        "lr": steps.lr,
        "hyperparameters": config.method.hyperparameters,
        "weight_decay": steps.weight_decay,
        "aggregation": steps.aggregation,
        "batch_size": steps.batch_size,
        "lr_decay": steps.lr_decay,
        "clip": steps.clip,
        "seed": 5,
        "keep_every_round": True,
    }
    simulated = fedflat.simulate(
        method,
        setup.objective.module,
        [setup.train.batch(torch.from_numpy(own)) for own in setup.split],
        participants,
        local_steps=local_steps,
        engine=fedflat.EngineChoice(**run.provenance["engine"]),
        **same,
    )
    by_name = fedflat.simulate(
        method,
        setup.objective.module,
        tuple(part.numpy() for part in setup.train.batch(torch.arange(len(setup.train)))),
        partition=grid["grid.partition"][0],
        participation=4,
        rounds=3,
        local_epochs=steps.local_epochs,
        test=setup.test.batch(torch.arange(len(setup.test))),
        engine=simulated.engine,
        **same,
    )
    assert all(map(torch.equal, simulated.global_params, by_name.global_params))
    assert all(map(np.array_equal, by_name.split, setup.split))
    assert simulated.engine.as_json() == run.provenance["engine"]
    assert torch.equal(simulated.global_params[-1], run.final(CPU).w)
    metrics = run.metrics()
    for name in ("local_loss", "client_drift", "upload", "gradients"):
        assert simulated.history[name].tolist() == metrics[name].tolist()
    for name in ("test_loss", "test_accuracy"):
        assert by_name.history[name].iloc[-1] == pytest.approx(metrics[name].iloc[-1], rel=1e-5)
    assert torch.equal(nn.utils.parameters_to_vector(by_name.model.parameters()), by_name.global_params[-1])


def test_a_long_simulation_is_measured_and_a_repetition_has_its_bits(cache, caplog):
    caplog.set_level(logging.INFO, "fedflat")
    model, threads = Problem(0).model(), torch.get_num_threads()
    before = [p.detach().clone() for p in model.parameters()]
    first = Problem(0).run("fedsmoo", {"rho": 0.1, "lam": 0.1}, model=model, **LONG)
    assert "cohort, 1 thread takes" in caplog.text
    assert caplog.messages[-1] == f"engine: {first.engine}"
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.get_num_threads() == threads
    [stored] = cache.glob("*.json")
    measured = stored.read_bytes()
    caplog.clear()
    again = Problem(0).run("fedsmoo", {"rho": 0.1, "lam": 0.1}, model=model, **LONG)
    assert caplog.messages[0].startswith("engine: as measured earlier on this machine")
    assert "takes" not in caplog.text
    assert stored.read_bytes() == measured
    assert again.engine == first.engine
    assert distance(first, again) == 0
    fixed = Problem(0).run("fedsmoo", {"rho": 0.1, "lam": 0.1}, engine=first.engine, **LONG)
    assert distance(first, fixed) == 0


def test_a_short_simulation_is_not_measured_and_does_not_depend_on_what_is_stored(cache):
    """It is shorter than ten times the steps with which three loops are timed."""
    long, short = ({**LONG, "participants": [[0]] * rounds, "local_steps": 5} for rounds in (72, 71))
    before = Problem(0).run("fedsam", {"rho": 0.1}, **short)
    assert before.engine == fedflat.EngineChoice("loop")
    assert not cache.exists()
    Problem(0).run("fedsam", {"rho": 0.1}, **long)
    remember(cache, "cohort")
    assert Problem(0).run("fedsam", {"rho": 0.1}, **long).engine.backend == "cohort"
    assert distance(before, Problem(0).run("fedsam", {"rho": 0.1}, **short)) == 0


@pytest.mark.parametrize("limit", ["steps", "seconds"])
def test_of_a_simulation_of_medium_length_only_loops_are_measured(limit, cache, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "fedflat")
    rounds = LONG["participants"]
    if limit == "steps":
        rounds = rounds[:11]
    else:
        monkeypatch.setattr(calibration, "LEAST_SECONDS", 1e9)
    run = Problem(0).run("fedsam", {"rho": 0.1}, **{**LONG, "participants": rounds})
    assert "channels-last, 1 thread takes" in caplog.text
    assert "cohort" not in caplog.text
    assert run.engine.backend == "loop"
    assert list(cache.glob("*.json"))


def test_no_rounds():
    with pytest.raises(fedflat.UserError, match=r"participants = \[\] \(allowed: for each round a list of ids"):
        Problem(0).run("fedavg", participants=[])


def test_only_the_last_parameters_are_kept_unless_all_are_wanted():
    every, last = (Problem(0).run("fedavg", keep_every_round=keep) for keep in (True, False))
    assert len(every.global_params) == 4
    [w] = last.global_params
    assert torch.equal(w, every.global_params[-1])
    assert not torch.equal(w, every.global_params[-2])


class Normalised(nn.Module):
    """With BatchNorm's statistics, which every round changes."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()

    def forward(self, x):
        """Class scores."""
        return self.body(x)


@pytest.mark.parametrize("method", ["fedavg", "fedavg_swa"])
def test_the_model_after_each_round_has_its_buffers(method):
    """Its loss is that of the round's row, which needs both: parameters and buffers."""
    test, swa = Problem(1).data()[0], {"swa": {"start": 2, "cycle": 1}} if method == "fedavg_swa" else {}
    options = {"model": Normalised(), "buffers": "average", "test": test, "hyperparameters": swa}
    every = Problem(0).run(method.removesuffix("_swa"), **options)
    losses = [nn.functional.cross_entropy(every.model_after(t)(test[0]), test[1]).item() for t in (1, 2, 3, 4)]
    assert losses == pytest.approx(every.history["test_loss"].tolist(), rel=1e-12)
    assert len(every.global_buffers) == 4 and len({tuple(b.tolist()) for b in every.global_buffers}) == 4
    last = Problem(0).run(method.removesuffix("_swa"), **options, keep_every_round=False)
    assert torch.equal(last.model_after(4).body[1].running_mean, every.model.body[1].running_mean)
    with pytest.raises(fedflat.UserError, match=r"no parameters of round 3 \(allowed: 4; keep_every_round=True"):
        last.model_after(3)


WILD = [
    ({"lr": 1e308}, 1, "parameters that are not finite"),
    ({"lr": 1e12}, 1, "losses that float64 stores with ease"),
    ({"weight_decay": 1e4}, 2, "a factor of -1000 in each local step"),
]


@pytest.mark.parametrize(("options", "ends_in", "what"), WILD, ids=[what for *_, what in WILD])
def test_a_simulation_ends_with_the_round_that_diverged(options, ends_in, what):
    """As a run does; its history keeps the columns of evaluations."""
    test = Problem(0).data()[0]
    given = {"participants": None, "rounds": 4, "lr": 0.1, "test": test, "evaluate_every": 4, **options}
    rows: list[dict] = []
    history = Problem(0).run("fedavg", on_round=rows.append, **given).history
    assert history["diverged"].tolist() == [0] * (len(history) - 1) + [1]
    assert len(rows) == len(history) < given["rounds"] and history["test_accuracy"].isna().all()
    assert len(history) == ends_in, what


def test_an_evaluated_loss_can_diverge_alone():
    """The server's last step makes the model useless; the local losses are those of the model before."""
    test = Problem(0).data()[0]
    history = Problem(0).run("fedavg", server_lr=1e15, participants=[[0, 1]], test=test).history
    assert history["local_loss"].item() < 10 and history["test_loss"].item() > 1e10
    assert history["diverged"].item() == 1


def network(forward):
    """A network whose class looks the same, whatever its code."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Problem(0).model()

    Net.forward = forward
    return Net().double()


def plain(self, x):
    return self.body(x)


def branching(self, x):
    return self.body(x) if float(x.sum()) < 1e9 else 2 * self.body(x)


def random_in_a_batch(self, x):
    """Other numbers in a batch of clients than alone, and no error there."""
    return self.body(x) * (3 if torch._C._functorch.is_batchedtensor(x) else 1)


@pytest.mark.parametrize("edited", [branching, random_in_a_batch])
def test_a_stored_choice_of_other_code_is_not_used(edited, cache):
    Problem(0).run("fedavg", model=network(plain), **LONG)
    stored = remember(cache, "cohort")
    assert Problem(0).run("fedavg", model=network(plain), **LONG).engine.backend == "cohort"
    mine = Problem(0).run("fedavg", model=network(edited), **LONG)
    assert mine.engine.backend in ("loop", "parallel")
    assert [*cache.glob("*.json")] == [stored]
    assert distance(mine, Problem(0).run("fedavg", engine="loop", model=network(edited), **LONG)) < 1e-12


@pytest.mark.parametrize("backend", ["loop", "parallel", "cohort"])
def test_a_given_back_end_is_used(backend):
    loop = Problem(0).run("fedsam", {"rho": 0.1})
    given = Problem(0).run("fedsam", {"rho": 0.1}, engine=backend)
    assert given.engine.backend == backend
    assert distance(loop, given) < 1e-12


def test_clients_in_parallel_have_the_threads(cache):
    """Although other back ends train a small model with one thread."""
    torch.set_num_threads(2)
    try:
        assert Problem(0).run("fedavg", engine="parallel", **LONG).engine.threads == 2
        assert Problem(0).run("fedavg", **LONG).engine.threads == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_round_that_a_cohort_cannot_compute_is_trained_by_the_loop(cache, monkeypatch):
    """Unless the cohort was requested."""
    train_cohort = Cohort.train

    def failing(self, local, works, probe=None):
        if works[0].round == 1:
            raise CannotBatchError("a branch")
        return train_cohort(self, local, works, probe)

    Problem(0).run("fedsam", {"rho": 0.1}, **LONG)
    remember(cache, "cohort")
    with monkeypatch.context() as patch:
        patch.setattr(Cohort, "train", failing)
        run = Problem(0).run("fedsam", {"rho": 0.1}, **LONG)
        repeated = Problem(0).run("fedsam", {"rho": 0.1}, engine=run.engine, **LONG)
        assert run.engine.backend == "cohort", "the choice of the first round"
        assert all(map(torch.equal, run.global_params, repeated.global_params))
        with pytest.raises(fedflat.UserError, match=r"engine\.backend cohort is not possible here: .*: a branch"):
            Problem(0).run("fedsam", {"rho": 0.1}, engine="cohort")


@pytest.mark.parametrize("options", [{}, LONG], ids=["short", "long"])
def test_what_is_not_possible_is_one_line(options, cache):
    with pytest.raises(fedflat.UserError, match="unknown engine 'lop'; did you mean 'loop'"):
        Problem(0).run("fedavg", engine="lop", **options)
    with pytest.raises(fedflat.UserError, match=r"engine\.backend graph needs an NVIDIA GPU \(allowed here: "):
        Problem(0).run("fedavg", engine="graph", **options)
    with pytest.raises(fedflat.UserError, match=r"engine\.backend graph is not possible here: "):
        Problem(0).run("fedavg", engine=fedflat.EngineChoice("graph"), **options)
    with pytest.raises(fedflat.UserError, match=r"engine\.backend cohort is not possible here: "):
        Problem(0).run("fedavg", model=network(branching), engine="cohort", **options)
    with pytest.raises(fedflat.UserError, match="unknown back end 'chort'; did you mean 'cohort'"):
        fedflat.EngineChoice("chort")


def test_the_number_of_local_steps_follows_from_epochs():
    """Five samples in batches of two are three steps; without a batch size, each epoch is one."""
    x, y = Problem(0).data()[0]
    options = {"model": Problem(0).model(), "clients": [(x[:5], y[:5])], "rounds": 2, "lr": 0.1, "participants": None}
    by_steps, by_epochs = (
        Problem(0).run("fedavg", **options, batch_size=2, local_steps=steps, local_epochs=epochs)
        for steps, epochs in ((6, None), (None, 2))
    )
    assert distance(by_steps, by_epochs) == 0
    whole = (
        Problem(0).run("fedavg", **options, local_steps=steps, local_epochs=epochs)
        for steps, epochs in ((2, None), (None, 2))
    )
    assert distance(*whole) == 0


def test_evaluation_and_callback_by_round(capsys):
    rows = []
    test = Problem(0).data()[3]
    model = Problem(0).model()
    result = Problem(0).run("fedavg", model=model, test=test, evaluate_every=3, on_round=rows.append, progress=True)
    assert pd.DataFrame(rows).equals(result.history)
    assert result.history["test_accuracy"].notna().tolist() == [False, False, True, True]
    assert "4/4" in capsys.readouterr().err
    x, y = test
    accuracy = 100 * (result.model(x).argmax(1) == y).double().mean()
    assert result.history["test_accuracy"].iloc[-1] == pytest.approx(float(accuracy))
    assert not result.model.training
    again = Problem(0).run("fedavg", model=model)
    assert distance(result, again) == 0, "evaluation changes no bit, and the model is given back"
    assert capsys.readouterr().err == "", "no bar outside of a terminal"


def test_participation_by_name():
    """All clients by default; a mapping as in an experiment."""
    options = {"participants": None, "rounds": 3}
    assert Problem(0).run("fedavg", **options).history["active"].tolist() == [4, 4, 4]
    drawn = {"sampling": "bernoulli", "probability": 0.5}
    active = Problem(0).run("fedavg", **options, participation=drawn).history["active"]
    assert active.tolist() == [len(active_clients(Participation(**drawn), 4, 0, t)) for t in range(3)]


ARRAYS = {
    "float32": lambda x, y: (x.numpy().astype("float32"), y.numpy()),
    "big-endian, reversed": lambda x, y: (x.numpy().astype(">f4")[::-1], y.numpy().astype("uint16")[::-1]),
    "read-only": lambda x, y: tuple(np.broadcast_to(part, part.shape) for part in (x.float().numpy(), y.numpy())),
}


@pytest.mark.parametrize("convert", ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_tensors(convert):
    x, y = Problem(0).data()[0]
    flipped = convert is ARRAYS["big-endian, reversed"]
    tensors = (x.float().flip(0), y.flip(0)) if flipped else (x.float(), y)
    by_tensors, by_arrays = (
        Problem(0).run("fedavg", model=Problem(0).model().float(), clients=[own], participants=[[0]])
        for own in (tensors, convert(x, y))
    )
    assert distance(by_tensors, by_arrays) == 0
