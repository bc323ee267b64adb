"""The networks of the registry: sizes, equality with their sources, feature levels; how a configuration names them."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedflat.bench.engine.local import MiniBatchGradient
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.losses.relaxed_contrastive import RelaxedContrastive, feature_levels
from fedflat.bench.models import MODELS, build_model, parse_model
from fedflat.bench.models.architectures.lenet import LeNet
from tests.places import ROOT

CIFAR_STEM = {"name": "resnet18_gn", "stem": "cifar"}
SIZES = [
    ("cnn_gn", (1, 8, 8), 10, 1_946, 10),
    ("lenet", (3, 32, 32), 10, 797_962, 10),
    ("lenet", (3, 32, 32), 100, 815_332, 10),
    ("cnn_emnist", (1, 28, 28), 62, 1_206_590, 8),
    ("resnet18_gn", (3, 32, 32), 10, 11_181_642, 62),
    ("resnet18_gn", (3, 32, 32), 100, 11_227_812, 62),
    (CIFAR_STEM, (3, 32, 32), 100, 11_220_132, 62),
    ("resnet18_nonorm", (3, 32, 32), 100, 11_210_532, 22),
    ("cnn1d", (1, 40), 10, 5_218, 8),
    ("cnn2d", (3, 32, 32), 10, 49_050, 8),
    ("mlp", (1, 40), 10, 15_210, 6),
    ("mobilenet_v2_gn", (3, 32, 32), 2028, 4_821_740, 158),
    ("vit_b_32", (3, 224, 224), 65, 87_505_217, 152),
]


def built(model: object, shape: tuple[int, ...], classes: int = 10, seed: int = 0) -> nn.Module:
    return build_model(parse_model(model), shape, classes, seed)


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("model", "shape", "classes", "parameters", "tensors"), SIZES, ids=str)
def test_sizes_are_the_published_ones(model, shape, classes, parameters, tensors):
    network = built(model, shape, classes)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert len(list(network.parameters())) == tensors
    assert network(images(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize(("model", "statistics"), [("fcn_gn", 0), ("fcn_bn", 5)])
def test_the_small_networks_for_segmentation(model, statistics):
    network = built(model, (3, 32, 32), 11)
    assert sum(p.numel() for p in network.parameters()) == 99_185
    assert sum(name.endswith("running_mean") for name, _ in network.named_buffers()) == statistics
    assert network(images(2, 3, 16, 24)).shape == (2, 11, 16, 24)
    with pytest.raises(UserError, match="multiples of 4, not 14×16"):
        built(model, (3, 14, 16))


SMALL = [
    ("cnn_gn", (1, 8, 8)),
    ("lenet", (1, 16, 17)),
    ("cnn_emnist", (1, 8, 8)),
    ("resnet18_gn", (1, 8, 8)),
    (CIFAR_STEM, (2, 8, 8)),
    ("resnet18_nonorm", (3, 8, 8)),
    ("cnn1d", (2, 9)),
    ("cnn2d", (2, 9, 8)),
    ("mlp", (5,)),
    ("mobilenet_v2_gn", (1, 32, 32)),
]
WITHOUT_LEVELS = {"vit_b_32", "bisenet_v2", "fcn_gn", "fcn_bn", "torchvision", "resnet20", "wrn_16_4", "lstm"}
"""Models that fedrcl refuses."""


@pytest.mark.parametrize(("model", "shape"), SMALL, ids=str)
def test_the_seed_decides_and_a_step_lowers_the_loss(model, shape):
    """In the engine's own gradient, whose objective takes no model with buffers."""
    objective, again, other = (Objective(built(model, shape, 4, seed)) for seed in (3, 3, 4))
    w = objective.initial()
    assert torch.equal(w, again.initial())
    assert not torch.equal(w, other.initial())
    x, y = images(8, *shape), torch.arange(8) % 4
    g, loss = objective.gradient(w, x, y)
    assert torch.isfinite(g).all()
    step = 0.01 * float(loss) / float(g.square().sum())  # one percent off, to first order
    assert objective.loss(w - step * g, [(x, y)]) < float(loss)


def test_every_model_is_tried_above():
    assert {parse_model(model).name for model, _ in SMALL} == set(MODELS) - WITHOUT_LEVELS


@pytest.mark.parametrize(("model", "shape"), SMALL, ids=str)
def test_feature_levels_are_outputs_that_nothing_overwrites(model, shape):
    """Levels are read after the pass: an in-place ReLU would have changed them."""
    network, levels = built(model, shape), []
    for level in feature_levels(network):
        level.register_forward_hook(lambda _module, _inputs, output: levels.append((output, output.clone())))
    network(images(2, *shape))
    assert len(levels) == {
        "cnn_gn": 2,
        "lenet": 4,
        "cnn_emnist": 3,
        "cnn1d": 3,
        "cnn2d": 3,
        "mlp": 2,
        "mobilenet_v2_gn": 7,
    }.get(parse_model(model).name, 5)
    for after, during in levels:
        assert torch.equal(after, during)
        assert (after < 0).any(), "features are taken before ReLU"


@pytest.mark.parametrize(("model", "shape"), SMALL, ids=str)
def test_fedrcls_loss_reaches_every_level(model, shape):
    """Its contrastive terms change the gradient of the first layer, through all levels."""
    objective = Objective(built(model, shape, 4))
    w, x, y = objective.initial(), images(8, *shape), torch.arange(8) % 4
    losses = CrossEntropy(), RelaxedContrastive()
    plain, contrastive = (MiniBatchGradient(objective.gradients, loss, x, y, None, {})(w) for loss in losses)
    first = objective.layout.sizes[0]
    assert torch.isfinite(contrastive).all()
    assert not torch.allclose(plain[:first], contrastive[:first])


# --- ResNet-18


def test_resnet_is_torchvisions():
    """Same state dict, same outputs and gradients as torchvision's own network with GroupNorm(2); same start."""
    models = import_torchvision().models
    ours = built("resnet18_gn", (3, 32, 32), 10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = models.resnet18(norm_layer=lambda channels: nn.GroupNorm(2, channels), num_classes=10)
        torch.manual_seed(0)
        fresh = parse_model("resnet18_gn").build((3, 32, 32), 10)
    for (name, own), (other, their) in zip(fresh.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(own, their)
    theirs.load_state_dict(ours.state_dict())
    x, y = images(4, 3, 32, 32), torch.arange(4)
    assert torch.equal(ours(x), theirs(x))
    gradients = [
        torch.autograd.grad(F.cross_entropy(network(x), y), list(network.parameters())) for network in (ours, theirs)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    ("model", "sides"), [("resnet18_gn", [16, 8, 4, 2, 1]), (CIFAR_STEM, [32, 32, 16, 8, 4])], ids=str
)
def test_stems_leave_the_stages_what_the_papers_say(model, sides):
    """ImageNet's stem leaves one pixel of a CIFAR image to the last stage, CIFAR's leaves 4×4."""
    network, seen = built(model, (3, 32, 32)), []
    for level in feature_levels(network):
        level.register_forward_hook(lambda _module, _inputs, output: seen.append(tuple(output.shape[1:])))
    network(images(1, 3, 32, 32))
    assert seen == [(width, side, side) for width, side in zip([64, 64, 128, 256, 512], sides, strict=True)]


def test_groups_are_an_option():
    norms = [part for part in built({"name": "resnet18_gn", "groups": 32}, (3, 8, 8)).modules()
             if isinstance(part, nn.GroupNorm)]  # fmt: skip
    assert len(norms) == 20
    assert {norm.num_groups for norm in norms} == {32}


def test_without_norm_the_scores_keep_their_size():
    """FedGF's network has plain convolutions, as nn.Conv2d starts them; its scores neither vanish nor explode."""
    network = built("resnet18_nonorm", (3, 32, 32), 100)
    weight = network.layer4[1].conv2.weight
    assert float(weight.detach().abs().max()) <= (512 * 9) ** -0.5
    assert 0.001 < float(network(images(8, 3, 32, 32)).detach().std()) < 10
    assert not any(isinstance(part, nn.GroupNorm | nn.BatchNorm2d) for part in network.modules())


# --- LeNet


@pytest.mark.parametrize("seed", range(5))
def test_both_published_forms_of_lenet_are_one_function(seed):
    """ReLU then pool (Hsu et al.'s order) and pool then ReLU: the same scores and gradients, bit by bit."""
    network = built("lenet", (3, 16, 16), 10, seed)

    def relu_first(x: torch.Tensor) -> torch.Tensor:
        for layer in (network.conv1, network.conv2):
            x = F.max_pool2d(F.relu(layer(x)), 2)
        return network.head(F.relu(network.fc2(F.relu(network.fc1(x.flatten(1))))))

    x, y = images(6, 3, 16, 16, seed=seed), torch.arange(6)
    parameters = list(network.parameters())
    results = [(f(x), torch.autograd.grad(F.cross_entropy(f(x), y), parameters)) for f in (network, relu_first)]
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64), (3, 16, 40)], ids=str)
def test_lenet_takes_other_sizes(shape):
    assert LeNet.forward(built("lenet", shape, 7), images(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("model", "smallest"), [("lenet", 16), ("cnn_emnist", 6), ("cnn_gn", 3)])
def test_images_that_are_too_small_are_reported(model, smallest):
    """The stated smallest size works, one pixel less does not."""
    assert built(model, (1, smallest, smallest))(images(1, 1, smallest, smallest)).shape == (1, 10)
    with pytest.raises(UserError) as error:
        built(model, (3, smallest + 5, smallest - 1))
    least = f"at least {smallest}×{smallest} pixels, not {smallest + 5}×{smallest - 1}"
    assert str(error.value) == f"model {model} needs images of {least}"


# --- How a configuration names them


def config(model: object) -> RunConfig:
    return load_experiment("quick", {"model": model}).cell("digits/dirichlet-0.1/4-of-20/fedavg").runs[0]


@pytest.mark.parametrize(
    "spellings",
    [
        ["cnn_gn", {"name": "cnn_gn"}],
        ["resnet18_gn", {"name": "resnet18_gn"}, {"name": "resnet18_gn", "groups": 2, "stem": "imagenet"}],
        ["cnn_emnist", {"name": "cnn_emnist", "dropout_hidden": 0.5}],
    ],
    ids=str,
)
def test_one_identity_for_all_spellings(spellings):
    runs = [config(spelling) for spelling in spellings]
    assert len({run.identity for run in runs}) == 1
    assert all(RunConfig.parse(run.model_dump(mode="json")) == run for run in runs)


def test_options_are_part_of_the_identity_and_of_the_label():
    plain, other = config("resnet18_gn"), config(CIFAR_STEM)
    assert plain.identity != other.identity
    assert (plain.model.label, other.model.label) == ("resnet18_gn", "resnet18_gn(stem=cifar)")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("resnet18gn", "unknown model 'resnet18gn'; did you mean 'resnet18_gn'?"),
        ({"name": "lenett"}, "unknown model 'lenett'; did you mean 'lenet'?"),
        ({"name": "lenet", "stem": "cifar"}, "model lenet: unknown key of lenet 'stem' (allowed: name)"),
        ({"name": "resnet18_gn", "sten": "cifar"}, "unknown key of resnet18_gn 'sten'; did you mean 'stem'?"),
        ({"name": "resnet18_gn", "stem": "cifr"}, "model resnet18_gn: stem = 'cifr': Input should be 'imagenet' or"),
        ({"name": "resnet18_gn", "groups": 3}, "model resnet18_gn: groups = 3: Input should be 1, 2, 4"),
        (
            {"name": "resnet18_gn", "groups": True},
            "resnet18_gn: groups = True: Input should be a number",
        ),
        ({"name": "cnn_emnist", "dropout_hidden": 1}, "model cnn_emnist: dropout_hidden = 1"),
        ({"stem": "cifar"}, "model needs a name, or the file and function of a user-defined model"),
        ({"name": ["lenet"]}, "unknown model '['lenet']'"),
    ],
    ids=str,
)
def test_mistakes_are_reported(model, message):
    with pytest.raises(UserError) as error:
        config(model)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_that_is_no_name_is_reported():
    for wrong in (3, None):
        with pytest.raises(UserError, match=f"unknown model '{wrong}'"):
            parse_model(wrong)


def test_a_model_that_does_not_fit_into_memory_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr("fedflat.bench.models.base.available_memory", lambda: 10**11)
    with pytest.raises(UserError, match=r"^model mlp\(hidden=\(100000, 100000\)\) has 10,007,600,010 parameters: "):
        built({"name": "mlp", "hidden": [100_000, 100_000]}, (1, 8, 8))
    state = torch.get_rng_state()
    monkeypatch.setattr("fedflat.bench.models.base.available_memory", lambda: 3 * 4 * 15_210)
    assert built("mlp", (1, 40))
    monkeypatch.setattr("fedflat.bench.models.base.available_memory", lambda: 3 * 4 * 15_210 - 1)
    with pytest.raises(UserError, match=r"^model mlp has 15,210 parameters: training needs at least 0\.0 GB"):
        built("mlp", (1, 40))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("side", range(3, 13))
def test_sizes_that_are_computed_fit_the_feature_maps(side):
    """Of images with sides of any length, and of signals."""
    for model, shape in (("cnn_gn", (1, side, side + 1)), ("cnn1d", (1, side)), ("cnn1d", (side,))):
        assert built(model, shape)(torch.zeros(2, *shape)).shape == (2, 10)


def test_named_models_are_checked_without_the_imports_of_a_forward_pass():
    """They take seconds, in each process that trains."""
    checked = "; ".join(
        f"check_model(parse_model('{model}'), {shape}, 10)"
        for model, shape in (("cnn_gn", (1, 8, 8)), ("cnn1d", (1, 40)), ("mlp", (1, 40)), ("lenet", (3, 32, 32)))
    )
    imports = "import sys; from fedflat.bench.models import check_model, parse_model"
    code = f"{imports}; {checked}; print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
