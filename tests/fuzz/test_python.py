"""Any argument of the Python API is accepted without changing its value, or refused in one line."""

import functools
import inspect
import numbers
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import fedflat
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.training.train import train_cell
from tests.fuzz.answers import Answers
from tests.fuzz.odd_python import ANYTHING, INPUTS, LABELS, MODELS, NUMBERS, N, model
from tests.problems import Recorder

X, Y = torch.linspace(-1, 1, 3 * N).reshape(N, 3), torch.arange(N) % 2
SIMULATED = {
    "method": "fedsam",
    "model": model(),
    "clients": [(X, Y), (X, Y)],
    "lr": 0.1,
    "local_steps": 1,
    "rounds": 1,
    "hyperparameters": {"rho": 0.1},
    "progress": False,
}
MEASURED = {"model": model(), "data": (X, Y)}


@functools.cache
def result() -> fedflat.SimulationResult:
    return fedflat.simulate(**SIMULATED)


@functools.cache
def run() -> fedflat.Run:
    changes = {"training.rounds": 1, "grid.seeds": [0], "engine.backend": "loop"}
    folder = Path(tempfile.mkdtemp())
    cell = load_experiment("quick", changes).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    train_cell("quick", cell, folder, torch.device("cpu"), lambda line: None)
    return fedflat.Run(folder / "seed-0")


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "simulate": (fedflat.simulate, SIMULATED),
    "hessian": (fedflat.hessian, MEASURED),
    "sharpness": (fedflat.sharpness, MEASURED),
    "surface": (fedflat.surface, {**MEASURED, "points": 3}),
    "load_run": (fedflat.load_run, {"path": "absent"}),
    "load_model": (fedflat.load_model, {"path": "absent"}),
    "runs": (fedflat.runs, {"experiment": "quick", "results": "absent"}),
    "metrics": (fedflat.metrics, {"experiment": "quick", "results": "absent"}),
    "client_accuracies": (fedflat.client_accuracies, {"experiment": "quick", "results": "absent"}),
    "analysis_values": (fedflat.analysis_values, {"experiment": "quick", "name": "hessian", "results": "absent"}),
    "tensorboard": (fedflat.tensorboard, {"folder": "absent"}),
    "EngineChoice": (fedflat.EngineChoice, {}),
    "Run": (fedflat.Run, {"path": "absent"}),
    "Run.data": (lambda subset: run().data(subset), {"subset": "test"}),
    "SimulationResult.inputs": (lambda x: result().inputs(x), {"x": X}),
    "SimulationResult.model_after": (lambda round_: result().model_after(round_), {"round_": 1}),
}
TAKE_NOTHING = {"Run.model", "SimulationResult", "UserError", "__version__"}
"""Names without arguments of users."""

OF_ENGINE = {f"EngineChoice.{name}" for name in ("agrees_with", "as_json", "from_json", "is_possible_on", "prepare")}
OF_ENGINE |= {"EngineChoice.difference", "EngineChoice.simpler", "EngineChoice.smaller"}
"""Methods for FedFlat's own modules: docs/python.md has a choice as a value that is passed on."""

COMPUTING = ["simulate", "hessian", "sharpness", "surface"]
ARRAYS = ("clients", "test", "data")


@pytest.fixture
def tried(fuzz: Callable[..., Answers], tmp_path: Path) -> Callable[..., Answers]:
    """Try calls of a strategy; an exception other than a `UserError` fails the test, and so does a changed value."""
    (tmp_path / "folder.yaml").mkdir()

    def tried(share: float, calls: st.SearchStrategy[Any], answer: Callable[[Answers, Any], None]) -> Answers:
        def quiet(answers: Answers, call: Any) -> None:
            with warnings.catch_warnings(), torch.random.fork_rng():
                warnings.simplefilter("ignore")  # of torch, about its own odd tensors
                answer(answers, call)

        answers = fuzz(share, calls, quiet, fedflat.UserError)
        print("tracebacks 0, values silently changed 0")
        return answers

    return tried


def test_every_function_and_method_of_the_api_is_tried():
    names = set(fedflat.__all__)
    for name in fedflat.__all__:
        one = getattr(fedflat, name)
        if inspect.isclass(one):
            methods = [key for key, value in vars(one).items() if inspect.isroutine(value) and key[0] != "_"]
            names |= {f"{name}.{key}" for key in methods}
    assert names == {*CALLS, *TAKE_NOTHING, *OF_ENGINE}


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A function, and one or two of its arguments with the names of odd values; most often of those that compute."""
    name = draw(st.one_of(st.sampled_from(COMPUTING), st.sampled_from(COMPUTING), st.sampled_from(sorted(CALLS))))
    known = [key for key in inspect.signature(CALLS[name][0]).parameters if key not in (*ARRAYS, "model")]
    keys = draw(st.lists(st.sampled_from(known), min_size=1, max_size=draw(st.sampled_from([1, 1, 2])), unique=True))
    return name, {key: draw(st.one_of(names(NUMBERS), names(ANYTHING))) for key in keys}


def test_arguments(tried):
    """An accepted number has the result of the same number of Python."""

    def answer(answers: Answers, change: tuple[str, dict[str, str]]) -> None:
        name, odd = change
        function, valid = CALLS[name]
        values = {key: ANYTHING[value]() for key, value in odd.items()}
        result = answers.of(functools.partial(function, **valid | values))
        if result is not None and any(isinstance(value, numbers.Number | np.generic) for value in values.values()):
            same = function(**valid | {key: python_number(value) for key, value in values.items()})
            assert as_text(result) == as_text(same), (name, odd)

    tried(0.1, changes(), answer)


def python_number(value: Any) -> Any:
    """The same number as a plain whole or floating-point one of Python; others are no numbers that may be accepted."""
    if not isinstance(value, numbers.Number | np.generic) or isinstance(value, bool | np.str_):
        return value
    assert isinstance(value, int | float | np.integer | np.floating), value
    number = int(value) if value == int(value) else float(value)
    assert number == value
    return number


def as_text(result: Any) -> str:
    """All numbers of a result."""
    if isinstance(result, fedflat.SimulationResult):
        return f"{[w.tolist() for w in result.global_params]} {result.history.to_csv()} {result.engine}"
    return result.to_csv() if hasattr(result, "to_csv") else str(result)


def test_models(tried):
    def answer(answers: Answers, call: tuple[str, str]) -> None:
        function, valid = CALLS[call[0]]
        answers.of(lambda: function(**valid | {"model": MODELS[call[1]]()}))

    tried(0.05, st.tuples(st.sampled_from(COMPUTING), names(MODELS)), answer)


def names(values: Mapping[str, Any]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(values))


def test_arrays(tried):
    """What the model receives are the given numbers, floating-point ones rounded to its format, bytes normalised."""
    recorder = model(of=Recorder)

    def answer(answers: Answers, call: tuple[str, str, str | None, bool]) -> None:
        name, inputs, labels, tests = call
        x = INPUTS[inputs]()
        y = Y if labels is None else LABELS[labels]()
        function, valid = CALLS[name]
        own = {"clients": [(x, y)], "model": recorder} if name == "simulate" else {"data": (x, y), "model": recorder}
        if name == "simulate" and tests:
            own["test"] = (x, y)
        Recorder.seen.clear()
        if answers.of(lambda: function(**valid | own)) is not None:
            assert any(len(seen) == N for seen in Recorder.seen)
            for seen in Recorder.seen:
                check_received(x, seen)

    tried(
        0.05,
        st.tuples(st.sampled_from(COMPUTING), names(INPUTS), st.one_of(st.none(), names(LABELS)), st.booleans()),
        answer,
    )


def check_received(x: Any, seen: Tensor) -> None:
    """Compare the inputs that the model received, the first ones or all, with the numbers that were given."""
    given = (x.tolist() if x.dtype != torch.bfloat16 else x.double().tolist())[: len(seen)]
    if str(x.dtype).endswith("uint8"):
        pixels = np.array(x.tolist(), dtype=float)
        std = pixels.std(0)
        given = (pixels - pixels.mean(0)) / np.where(std == 0, 1, std)
        assert np.allclose(seen.numpy(), given[: len(seen)], atol=1e-4)
    elif not seen.is_floating_point():
        assert seen.tolist() == given
    else:
        assert all(type(value) is not int for row in given for value in row)
        assert seen.tolist() == np.array(given, dtype=np.float32).tolist()
