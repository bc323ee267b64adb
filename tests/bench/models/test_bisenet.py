"""BiSeNetV2: sizes, outputs, initial state, normalisations."""

import pytest
import torch
from torch import nn

from fedflat.bench.input.errors import UserError
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.models.blocks.bilateral import GatherExpand, GatherExpandDown
from fedflat.bench.models.buffer_mode import kept_positions
from fedflat.bench.models.network import has_buffers

PIXELS = (3, 64, 96)


def built(**options: object) -> nn.Module:
    return build_model(parse_model({"name": "bisenet_v2", **options}), PIXELS, 19, 0)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return built()


def images(n: int) -> torch.Tensor:
    return torch.randn(n, *PIXELS, generator=torch.Generator().manual_seed(0))


def test_sizes(network):
    """Counted in FedDrive's network, whose state dictionary has the same names and shapes."""
    assert count(network) == 8_196_416
    assert count(built(auxiliary=False)) == 4_585_552
    assert count(built(norm="group")) == 8_196_416
    assert len(network.state_dict()) == 359


def test_every_pixel_has_scores_and_in_training_those_of_five_heads(network):
    x = images(2)
    scores = network.train()(x)
    assert scores.shape == (2, 19, 5, 64, 96)
    assert network.eval()(x).shape == (2, 19, 64, 96)
    assert built(auxiliary=False).train()(x).shape == (2, 19, 64, 96)


def test_the_first_scores_are_those_of_the_main_head():
    """With GroupNorm, training and evaluation compute the same."""
    model, x = built(norm="group"), images(1)
    torch.testing.assert_close(model.train()(x)[:, :, 0], model.eval()(x))


def test_branches_of_gather_and_expand_add_nothing_at_first(network):
    x = torch.randn(2, 32, 8, 8, generator=torch.Generator().manual_seed(1))
    same = [layer for layer in network.modules() if isinstance(layer, GatherExpand)]
    down = [layer for layer in network.modules() if isinstance(layer, GatherExpandDown)]
    assert (len(same), len(down)) == (5, 3)
    assert torch.equal(same[0](x), torch.relu(x))
    assert torch.equal(down[1](x), torch.relu(down[1].shortcut(x)))


@pytest.mark.parametrize(
    ("options", "mode"),
    [({}, "average"), ({"buffers": "local"}, "local"), ({"norm": "group"}, None)],
)
def test_buffers(options, mode):
    assert parse_model({"name": "bisenet_v2", **options}).buffer_mode == mode
    assert has_buffers(built(**options)) == (mode is not None)


def test_clients_keep_the_statistics_of_the_layers_that_fed_drive_keeps(network):
    """FedDrive's SiloBN keeps `bn.running_mean`, `bn.running_var` and the count: those of 28 of 58 layers. The other 30
    are in nn.Sequential, so that their names are numbers."""
    buffers = dict(network.named_buffers())
    statistics = {name: b.numel() for name, b in buffers.items()}
    assert sum(name.endswith("running_mean") for name in statistics) == 58
    of_bn = [name for name in statistics if name.endswith("bn.running_mean")]
    assert len(of_bn) == 28
    choice = parse_model({"name": "bisenet_v2", "buffers": {"local": ["*.bn.*"]}})
    assert choice.label == "bisenet_v2(buffers=local *.bn.*)"
    kept = kept_positions(choice.buffer_mode, buffers)
    assert len(kept) == sum(2 * statistics[name] + 1 for name in of_bn)  # mean, variance, count
    assert len(kept_positions("local", buffers)) == sum(statistics.values())
    assert len(kept_positions("average", buffers)) == 0


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({"norm": "group", "buffers": "local"}, PIXELS, "buffers: local needs statistics of BatchNorm"),
        ({"norm": "group", "buffers": {"local": ["*.bn.*"]}}, PIXELS, "buffers: local needs statistics of BatchNorm"),
        ({"buffers": "own"}, PIXELS, "buffers = 'own' (allowed: average, local, or {local: [PATTERN, ...]})"),
        ({"buffers": None}, PIXELS, "buffers = null (allowed: average, local, or {local: [PATTERN, ...]})"),
        ({"buffers": {"local": "x"}}, PIXELS, "buffers = {'local': 'x'} (allowed: average, local, or {local: [PATTERN"),
        ({"buffers": {"local": []}}, PIXELS, "buffers = {'local': []} (allowed: average, local, or {local: [PATTERN"),
        ({}, (3, 64, 90), "needs height and width that are multiples of 32, not 64×90"),
        ({}, (40,), "model bisenet_v2 needs images"),
        ({"norm": "layer"}, PIXELS, "norm"),
    ],
)
def test_wrong_options_and_images(options, shape, message):
    with pytest.raises(UserError) as error:
        build_model(parse_model({"name": "bisenet_v2", **options}), shape, 3, 0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
