"""Every golden trajectory of the catalog's methods replays to 1e-8 in float64."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.utils import skip_init

from fedflat.bench.engine.local import LocalWork
from fedflat.bench.methods import CATALOG
from fedflat.simulation import simulate
from tests.places import GOLDEN

FILES = sorted(GOLDEN.glob("*.json"))


def replay(file: Path, device: torch.device) -> float:
    """The largest difference from the golden trajectory, over all rounds and coordinates."""
    case = json.loads(file.read_text(encoding="utf-8"))
    layers = []
    for k, (outputs, inputs) in enumerate(case["layers"]):
        layers += ([torch.nn.Tanh()] if k else []) + [skip_init(torch.nn.Linear, inputs, outputs)]
    model = torch.nn.Sequential(*layers).double().to(device)
    w0 = torch.tensor(case["initial_params"], dtype=torch.float64, device=device)
    torch.nn.utils.vector_to_parameters(w0, model.parameters())
    clients = [(torch.tensor(c["x"], dtype=torch.float64), torch.tensor(c["y"])) for c in case["clients"]]
    same_names = "method hyperparameters participants local_steps lr server_lr weight_decay aggregation"
    arguments = {name: case[name] for name in same_names.split()}
    momentum = case["protocol"]["local_momentum"]
    run = simulate(model=model, clients=clients, local_momentum=momentum, keep_every_round=True, **arguments)
    want = torch.tensor(case["expected"]["global_params_after_round"], dtype=torch.float64)
    got = torch.stack(run.global_params).cpu()
    assert got.shape == want.shape
    assert torch.equal(torch.nn.utils.parameters_to_vector(model.parameters()), w0), "the model was changed"
    return float((got - want).abs().max())


def replace_draws(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients draw the numbers in the file's `noise`: one vector for each participant of each round."""
    case = json.loads(file.read_text(encoding="utf-8"))

    def given(work: LocalWork, purpose: str, count: int, dtype: torch.dtype) -> torch.Tensor:
        z = case["noise"][work.round][case["participants"][work.round].index(work.client)]
        assert len(z) == count
        return torch.tensor(z, dtype=dtype)

    if "noise" in case:
        monkeypatch.setattr(LocalWork, "normal", given)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_replays(file, monkeypatch):
    replace_draws(file, monkeypatch)
    assert replay(file, torch.device("cpu")) < 1e-8


def test_every_method_has_a_golden_file():
    assert {json.loads(file.read_text(encoding="utf-8"))["method"] for file in FILES} == set(CATALOG)
