"""docs/one_round.py, federated training in plain PyTorch, computes what `fedflat.simulate` computes."""

import pydoc
import re
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
import torch

import fedflat
from tests.places import ROOT

PROGRAM = ROOT / "docs" / "one_round.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = spec_from_file_location("one_round", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_parameters_and_accuracies_equal_those_of_simulate_in_every_bit(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "ROUNDS", 6)
    w, accuracies = program.train()
    train_set, test_set = program.data()
    result = fedflat.simulate(
        "fedsam",
        program.model(),
        program.split(*train_set),
        rounds=program.ROUNDS,
        participation=program.ACTIVE,
        local_epochs=program.EPOCHS,
        batch_size=program.BATCH,
        lr=program.LR,
        hyperparameters={"rho": program.RHO},
        test=test_set,
        seed=program.SEED,
        engine="loop",
    )
    assert torch.equal(w, result.global_params[-1])
    assert accuracies == result.history["test_accuracy"].tolist()


def test_the_program_imports_nothing_of_fedflat_and_names_places_that_exist() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert not re.search(r"^\s*(import|from) fedflat", text, re.MULTILINE)
    named = re.findall(r"fedflat\.bench[\w.]+", text)
    assert len(named) >= 8
    assert [name for name in named if pydoc.locate(name) is None] == []
