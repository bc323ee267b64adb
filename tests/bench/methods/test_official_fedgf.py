"""The methods that FedGF's paper compares train the same models as its released code, on the same batches.

Each local step uses all data of its client. The code is not in the repository. FEDFLAT_OFFICIAL_FEDGF names the folder
of a clone of https://github.com/hwan-sig/Official-FedGF (compared: commit 36233b7); without it, the tests are skipped:

    FEDFLAT_OFFICIAL_FEDGF=../Official-FedGF python -m pytest tests/bench/methods/test_official_fedgf.py
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.models.architectures.lenet import LeNet
from tests.problems import Problem

CODE = Path(os.environ.get("FEDFLAT_OFFICIAL_FEDGF") or "not set")

pytestmark = pytest.mark.skipif(
    not (CODE / "fedlab").is_dir(), reason="needs FEDFLAT_OFFICIAL_FEDGF, the folder of a clone of Official-FedGF"
)

FILES = ("basic_server", "basic_client", "fedsam", "fedasam", "fedSMOO_woReg", "fedgf")

STEPS, LR, DECAY = 3, 0.1, 0.01

PROBLEM = Problem(seed=0, rounds=8)

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedsam": {"rho": 0.1},
    "fedasam": {"rho": 0.7, "eta_a": 0.2},
    "fedsmoo": {"rho": 0.1, "lam": 0.0, "regulariser": False},
    "fedgf": {"rho": 0.1, "rho_g": 0.2, "T_D": 0.18, "W": 2},
}
"""The hyperparameters of each method."""


@pytest.fixture
def code(monkeypatch) -> SimpleNamespace:
    """The classes of the code, for a machine without a GPU: tensors stay where they are."""
    monkeypatch.syspath_prepend(str(CODE))
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_: tensor)
    import_torchvision()
    modules = [import_module(f"fedlab.contrib.algorithm.{file}") for file in FILES]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def built(code: SimpleNamespace, method: str) -> tuple[Any, Any]:
    """The server and the trainer, as the code's `load_algorithms` builds them."""
    handler, serial = {
        "fedavg": (code.SyncServerHandler, code.SGDSerialClientTrainer),
        "fedsam": (code.FedSamServerHandler, code.FedSamSerialClientTrainer),
        "fedasam": (code.FedASamServerHandler, code.FedASamSerialClientTrainer),
        "fedsmoo": (code.FedSMOONoRegServerHandler, code.FedSMOONoRegSerialClientTrainer),
        "fedgf": (code.FedGfServerHandler, code.FedGfSerialClientTrainer),
    }[method]
    model, own = PROBLEM.model(), METHODS[method]
    server = handler(model, global_round=PROBLEM.rounds, num_clients=PROBLEM.clients, sample_ratio=0.5)
    server.device = "cpu"  # the code sets it only for a GPU
    if method == "fedsmoo":
        server.setup_optim(own["rho"])
    if method == "fedgf":
        server.setup_optim(own["rho_g"], own["T_D"], own["W"])
    radii = {name: own[key] for name, key in (("rho", "rho"), ("eta", "eta_a")) if key in own}
    trainer = serial(model, PROBLEM.clients, **radii, cuda=False)
    trainer.setup_optim(1, None, LR, weight_decay=DECAY, momentum=0)
    return server, trainer


def trained(server: Any, trainer: Any) -> tuple[list[Tensor], set[float]]:
    """The code's global model after each round, and all values of FedGF's c."""
    clients = PROBLEM.data()
    trainer.setup_dataset(SimpleNamespace(get_dataloader=lambda client, _: [clients[client]] * STEPS))
    models, shares = [], set()
    for active in PROBLEM.some():
        shares.add(float(getattr(server, "c", 0)))
        trainer.local_process(server.downlink_package, active)
        for upload in trainer.uplink_package:
            server.load(upload)
        models.append(server.model_parameters)
    return models, shares


@pytest.mark.parametrize("method", METHODS)
def test_same_global_models(code, method):
    models, shares = trained(*built(code, method))
    weights = (
        "uniform" if method == "fedavg" else "samples"
    )  # the code's; clients here have different numbers of images
    run = PROBLEM.run(
        method, METHODS[method], local_steps=STEPS, lr=LR, weight_decay=DECAY, aggregation=weights
    )  # fmt: skip
    start = nn.utils.parameters_to_vector(PROBLEM.model().parameters())
    moved = (torch.stack(run.global_params) - start).norm()
    difference = (torch.stack(run.global_params) - torch.stack(models)).norm()
    assert difference < 1e-6 * moved, "the code's weights of clients are in single precision"
    if method == "fedgf":
        assert shares == {0.0, 0.5, 1.0}


def test_same_network(code):
    with torch.random.fork_rng(devices=[]):
        theirs, ours = import_module("fedlab.models.FedSAMcnn").FedsamCNN_CIFAR10(), LeNet((3, 32, 32), 10)
        x = torch.randn(4, 3, 32, 32)
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(theirs.parameters()), ours.parameters())
    assert torch.equal(theirs(x), ours(x))
