"""Classifiers of torchvision, and the residual networks of other federated benchmarks."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import fedflat
from fedflat.bench.engine.objective import Objective
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, check_model, parse_model
from fedflat.bench.models.architectures.torchvision_models import classifiers
from fedflat.bench.models.dropout import Dropout, StochasticDepth
from fedflat.bench.numerics.streams import torch_seed
from tests.bench.models.test_models import images
from tests.tiers import case

SMALLEST = {"alexnet": 64, "inception_v3": 96, "maxvit_t": 224, "squeezenet1_0": 32}
"""Sides of images for architectures that do not take 32×32."""

ONE_OF_EACH = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf", "resnet18", "resnext50_32x4d",
    "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2",
)  # fmt: skip
QUICK = {"resnet18", "squeezenet1_1"}


FAMILY = re.compile("efficientnet_v2|efficientnet|resnext|wide|swin_v2|vgg.*_bn|[a-z]+")


def test_all_families_are_tried() -> None:
    assert set(map(family, ONE_OF_EACH)) == set(map(family, classifiers())) - {"vgg"}


def family(arch: str) -> str:
    return re.sub(r"\d+", "", FAMILY.match(arch).group())


@pytest.mark.parametrize("arch", [case(arch, quick=arch in QUICK) for arch in ONE_OF_EACH])
def test_a_classifier_fits_the_channels_and_classes(arch: str) -> None:
    side = SMALLEST.get(arch, 32)
    choice = parse_model({"name": "torchvision", "arch": arch})
    check_model(choice, (1, side, side), 7)
    model = build_model(choice, (1, side, side), 7, 0)
    assert not [layer for layer in model.modules() if type(layer).__name__ in ("Dropout", "StochasticDepth")
                and type(layer) not in (Dropout, StochasticDepth)]  # fmt: skip
    objective = Objective(model, buffer_mode=choice.buffer_mode)
    gradient, loss = objective.gradient(objective.initial(), images(4, 1, side, side), torch.arange(4))
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("arch", ["resnet18", "regnet_y_128gf"])
def test_the_check_of_a_classifier_creates_no_weights(arch: str) -> None:
    """regnet_y_128gf would have 2.4 GiB of them."""
    checked = parse_model(arch)._on_meta((3, 32, 32), 10)
    assert {tensor.device.type for tensor in (*checked.parameters(), *checked.buffers())} == {"meta"}
    assert sum(p.numel() for p in checked.parameters()) == {"resnet18": 11_181_642, "regnet_y_128gf": 637_493_824}[arch]


def test_a_classifier_is_torchvisions() -> None:
    """The same start, and the same scores."""
    ours = build_model(parse_model("resnet18"), (3, 32, 32), 10, 3)
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(3, "model"))
        theirs = import_torchvision().models.resnet18(num_classes=10)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    x = images(2, 3, 32, 32)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))
    assert sum(p.numel() for p in ours.parameters()) == 11_181_642


def test_a_name_alone_has_no_other_architecture() -> None:
    with pytest.raises(UserError, match=r"^model resnet50: arch = vgg11"):
        parse_model({"name": "resnet50", "arch": "vgg11"})
    with pytest.raises(UserError, match=r"unknown model 'resnet5O'; did you mean 'resnet50'"):
        parse_model("resnet5O")


def test_a_name_alone_is_the_classifier() -> None:
    assert parse_model("resnet50") == parse_model({"name": "torchvision", "arch": "resnet50"})
    kept = parse_model({"name": "resnet50", "buffers": "local"})
    assert (kept.label, kept.buffer_mode) == ("torchvision(buffers=local, arch=resnet50)", "local")
    assert parse_model("resnet50").buffer_mode == "average"
    assert parse_model("vgg11").buffer_mode is None


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        ({"name": "torchvision", "arch": "resnet51"}, (3, 32, 32), "unknown classifier of torchvision 'resnet51'"),
        ("resnet51", (3, 32, 32), "unknown model 'resnet51'"),
        ("alexnet", (3, 32, 32), r"model torchvision\(arch=alexnet\) does not take images of 3×32×32: "),
        ("vit_b_16", (3, 30, 30), r"model torchvision\(arch=vit_b_16\) does not take images of 3×30×30: "),
        ("vit_b_16", (3, 32, 16), r"model torchvision\(arch=vit_b_16\) needs square images, not 32×16"),
        ("resnet18", (40,), r"model torchvision\(arch=resnet18\) needs images"),
        ({"name": "resnet20", "norm": "batch", "groups": 4}, (3, 9, 9), r"model resnet20\(norm=batch, groups=4\) has"),
        ({"name": "vgg11", "buffers": "local"}, (3, 32, 32), r"model torchvision\(buffers=local, arch=vgg11\) has no"),
        ({"name": "resnet20", "buffers": "local"}, (3, 32, 32), r"model resnet20\(buffers=local\) has no buffers"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_reported(model: object, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}") as error:
        check_model(parse_model(model), shape, 10)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "parameters"), [("resnet20", 269_722), ("wrn_16_4", 2_748_890)])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_residual_networks_have_the_published_sizes(name: str, parameters: int, norm: str) -> None:
    choice = parse_model({"name": name, "norm": norm})
    model = build_model(choice, (3, 32, 32), 10, 0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert (choice.buffer_mode, next(model.buffers(), None) is None) == {
        "group": (None, True),
        "batch": ("average", False),
    }[norm]
    objective = Objective(model, buffer_mode=choice.buffer_mode)
    w, x, y = (
        objective.initial(),
        images(8, 3, 16, 16),
        torch.arange(8),
    )
    g, loss = objective.gradient(w, x, y)
    assert objective.gradient(w - 0.01 * float(loss) / float(g.square().sum()) * g, x, y)[1] < loss


class Skips(nn.Module):
    """A network with a residual branch that is skipped, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.skip, self.drop = StochasticDepth(0.5), Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.head(self.drop(x + self.skip(torch.tanh(self.branch(x)))))


def test_stochastic_depth_skips_whole_samples_alike_in_all_back_ends() -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(12, 4)).astype("float32"), rng.integers(0, 2, 12)) for _ in range(3)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Skips()
    found = [
        fedflat.simulate(
            "fedsam", model, clients, rounds=2, local_epochs=2, batch_size=5, lr=0.1,
            hyperparameters={"rho": 0.05}, engine=fedflat.EngineChoice(backend),
        )
        for backend in ("loop", "cohort")
    ]  # fmt: skip
    one, other = (torch.cat([p.flatten() for p in result.model.parameters()]) for result in found)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    skip = StochasticDepth(0.5)

    class Half:
        def restart(self) -> None: ...

        def uniform(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([0.4, 0.6])

    skip.draws = Half()
    assert skip(torch.ones(2, 3, 4)).mean((1, 2)).tolist() == [2, 0]
    assert skip.eval()(torch.ones(2, 3)).tolist() == [[1, 1, 1], [1, 1, 1]]
