"""Small copies of the papers' models: a cohort follows the loop on them, and curvature is finite."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedflat.analysis.measures.curvature.hessian import hessian_product, top_eigenvalues
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.models import build_model, parse_model
from tests.bench.engine.rounds_of_backends import SINGLE, share_of_update
from tests.tiers import thorough

CLASSES, SIDE = 5, 32
SIZES = [3, 2, 2]


def vision_transformer() -> nn.Module:
    """torchvision's, of which ViT-B/32 is one: two layers, and images of 16 patches. Its head starts at zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: nn.Module = import_torchvision().models.VisionTransformer(
            image_size=SIDE, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=CLASSES
        )
        nn.init.normal_(module.heads.head.weight)
    return module


def bisenet() -> nn.Module:
    """With GroupNorm, because BatchNorm's statistics of several clients cannot be computed together."""
    return build_model(parse_model({"name": "bisenet_v2", "norm": "group"}), (3, SIDE, SIDE), CLASSES, 0)


MODELS = {"vision_transformer": vision_transformer, "bisenet_v2": bisenet}


def data(name: str) -> DeviceData:
    """Images of noise; with label maps for segmentation, a tenth of whose pixels have no label."""
    stream, count = torch.Generator().manual_seed(1), sum(SIZES)
    x, labels = torch.randn((count, 3, SIDE, SIDE), generator=stream), torch.arange(count) % CLASSES
    maps = None
    if name == "bisenet_v2":
        maps = torch.randint(CLASSES, (count, SIDE, SIDE), generator=stream, dtype=torch.uint8)
        maps[torch.rand(maps.shape, generator=stream) < 0.1] = UNLABELLED
    return DeviceData(x, labels, torch.zeros(()), torch.ones(()), maps=maps)


def federation(name: str, method: str, **hyperparameters: float) -> Federation:
    edges = np.cumsum([0, *SIZES])
    batches = EpochBatches([np.arange(a, b) for a, b in pairwise(edges)], 1, 2, seed=0)
    settings = StepSettings(lr=0.05, aggregation="uniform")
    built, objective = recipe(method).build(hyperparameters), Objective(MODELS[name]())
    return Federation(built, objective, data(name), batches, SIZES, settings, 0)


def two_rounds(fed: Federation, start: Tensor, backend: Backend) -> FederationState:
    state = fed.start(start)
    for active in ([0, 1, 2], [0, 2]):
        state, _ = fed.run_round(state, active, backend=backend)
    return state


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # fused attention has no batching rule
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("fedsam", {"rho": 0.01}),
        pytest.param("fedlesam_s", {"rho": 0.01}, marks=thorough),
    ],
)
def test_a_cohort_follows_the_loop(name, method, values):
    """Clients of unequal size; the segmentation network has dropout, and auxiliary heads in training."""
    fed = federation(name, method, **values)
    start = fed.objective.initial()
    loop, cohort = (two_rounds(fed, start, backend) for backend in (Loop(), Cohort()))
    assert float((loop.w - start).norm()) > 0
    assert share_of_update(loop, cohort, start) < SINGLE


@pytest.mark.parametrize("estimator", ["lanczos", "pyhessian"])
def test_eigenvalues_of_a_vision_transformer(estimator):
    """torch's fused attention has no second derivative."""
    fed = federation("vision_transformer", "fedavg")
    batch = [fed.local.data.batch(torch.arange(4))]
    found = top_eigenvalues(fed.objective, fed.objective.initial(), batch, 1, estimator=estimator)
    assert found.residuals[0] < 0.05 * abs(found.eigenvalues[0])


def test_the_hessian_of_a_vision_transformer_is_symmetric():
    fed = federation("vision_transformer", "fedavg")
    w, batch = fed.objective.initial(), [fed.local.data.batch(torch.arange(4))]
    stream = torch.Generator().manual_seed(2)
    a, b = (torch.randn(w.shape, generator=stream) for _ in range(2))
    hessian = hessian_product(fed.objective, w, batch)
    assert float(a @ hessian(b)) == pytest.approx(float(b @ hessian(a)), rel=1e-3)
