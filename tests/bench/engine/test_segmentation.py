"""Losses and scores of label maps: by hand, by scikit-learn, and by what must not change them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from fedflat.analysis.measures.curvature.hessian import hessian_product
from fedflat.bench.data.label_maps import IGNORED
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.losses.hard_pixels import HardPixels
from fedflat.bench.metrics.base import NO_CLIENTS, confusion
from fedflat.bench.metrics.evaluation import evaluate
from fedflat.bench.metrics.kinds.accuracy import Accuracy
from fedflat.bench.metrics.kinds.miou import MeanIoU, iou
from fedflat.bench.models.network import Network, cross_entropy, image_losses, pixel_losses

CLASSES, HEIGHT, WIDTH = 4, 5, 6
seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, n: int = 3, heads: int | None = None, ignored: float = 0.3) -> tuple[Tensor, Tensor]:
    """Scores and label maps; each image has a labelled pixel."""
    stream = torch.Generator().manual_seed(seed)
    shape = (n, CLASSES, HEIGHT, WIDTH) if heads is None else (n, CLASSES, heads, HEIGHT, WIDTH)
    scores = torch.randn(shape, generator=stream, dtype=torch.float64)
    y = torch.randint(CLASSES, (n, HEIGHT, WIDTH), generator=stream)
    y[torch.rand(y.shape, generator=stream) < ignored] = IGNORED
    y[:, 0, 0] = 1
    return scores, y


@given(seed=seeds)
def test_the_loss_of_an_image_is_the_mean_over_its_labelled_pixels(seed):
    scores, y = drawn(seed)
    by_hand = [
        -torch.stack(
            [F.log_softmax(s[:, i, j], 0)[t[i, j]] for i in range(HEIGHT) for j in range(WIDTH) if t[i, j] != IGNORED]
        ).mean()
        for s, t in zip(scores, y, strict=True)
    ]
    torch.testing.assert_close(image_losses(scores, y), torch.stack(by_hand))
    torch.testing.assert_close(cross_entropy(scores, y), torch.stack(by_hand).mean())


@given(seed=seeds)
def test_ignored_pixels_count_nowhere(seed):
    scores, y = drawn(seed)
    other = torch.where((y == IGNORED).unsqueeze(1), 7 * scores.flip(1), scores)
    assert torch.equal(image_losses(scores, y), image_losses(other, y))
    assert torch.equal(confusion(scores, y), confusion(other, y))
    hard = [HardPixels(share=0.2).value(Network(_Fixed(values)), values, y, None, {}) for values in (scores, other)]
    assert torch.equal(*hard)


class _Fixed(nn.Module):
    """A network whose scores are given."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor) -> Tensor:
        return self.scores


def test_an_image_without_labels_has_the_loss_zero():
    scores, y = drawn(0)
    y[1] = IGNORED
    assert image_losses(scores, y)[1] == 0
    assert torch.isfinite(cross_entropy(scores, y))


@given(seed=seeds)
def test_heads_are_summed(seed):
    scores, y = drawn(seed, heads=3)
    each = torch.stack([cross_entropy(scores[:, :, head], y) for head in range(3)])
    torch.testing.assert_close(cross_entropy(scores, y), each.sum())
    hard = HardPixels(share=0.3)
    heads = torch.stack([hard.value(Network(_Fixed(scores[:, :, h])), scores, y, None, {}) for h in range(3)])
    torch.testing.assert_close(hard.value(Network(_Fixed(scores)), scores, y, None, {}), heads.sum())


@given(seed=seeds, share=st.floats(0.01, 1))
def test_hard_pixels_are_those_with_the_largest_losses(seed, share):
    scores, y = drawn(seed)
    losses = pixel_losses(scores, y).squeeze(1).numpy()
    count = max(1, int(share * HEIGHT * WIDTH))
    by_hand = np.sort(losses, axis=1)[:, -count:].mean(axis=1).mean()
    found = HardPixels(share=share).value(Network(_Fixed(scores)), scores, y, None, {})
    assert float(found) == pytest.approx(by_hand)
    fewest = int((y != IGNORED).flatten(1).sum(1).min())  # beyond them, ignored pixels count with a loss of zero
    assert count > fewest or float(found) >= float(cross_entropy(scores, y)) - 1e-12


@given(seed=seeds)
def test_weights_of_images(seed):
    """Equal weights are the mean; an image of weight zero pads a batch."""
    scores, y = drawn(seed)
    for loss in (lambda w: cross_entropy(scores, y, w), lambda w: _hard(scores, y, w)):
        torch.testing.assert_close(loss(torch.full((3,), 1 / 3, dtype=torch.float64)), loss(None))
    padded = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(cross_entropy(scores, y, padded), cross_entropy(scores[:2], y[:2]))


def _hard(scores: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    return HardPixels(share=0.5).value(Network(_Fixed(scores)), scores, y, weights, {})


def test_losses_of_many_clients_at_once():
    both = [drawn(seed) for seed in (1, 2)]
    scores, y = (torch.stack(parts) for parts in zip(*both, strict=True))
    together = vmap(cross_entropy)(scores, y)
    torch.testing.assert_close(together, torch.stack([cross_entropy(*one) for one in both]))


def test_hard_pixels_need_label_maps():
    with pytest.raises(UserError, match="hard_pixels needs labels of pixels"):
        HardPixels().value(Network(nn.Identity()), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), None, {})


# --- Scores


@settings(max_examples=50)
@given(seed=seeds, ignored=st.floats(0, 0.9))
def test_iou_is_scikit_learns(seed, ignored):
    scores, y = drawn(seed, ignored=ignored)
    found = iou(confusion(scores, y)).numpy()
    values = evaluate(lambda x: x, [(scores, y)], (Accuracy(), MeanIoU()))
    labelled = (y != IGNORED).flatten()
    true, predicted = y.flatten()[labelled].numpy(), scores.argmax(1).flatten()[labelled].numpy()
    theirs = jaccard_score(true, predicted, labels=range(CLASSES), average=None, zero_division=0)
    present = np.isin(range(CLASSES), true)
    assert found[present] == pytest.approx(100 * theirs[present])
    assert np.isnan(found[~present]).all()
    assert values == pytest.approx({"accuracy": 100 * (true == predicted).mean(), "miou": 100 * theirs[present].mean()})


@given(seed=seeds)
def test_counts_of_batches_add_up_exactly(seed):
    scores, y = drawn(seed, n=5)
    parts = [confusion(scores[part], y[part]) for part in (slice(2), slice(2, None))]
    assert torch.equal(sum(parts), confusion(scores, y))


def test_no_labelled_pixels_are_no_score():
    scores, y = drawn(0)
    seen = MeanIoU.of_batch(scores, torch.full_like(y, IGNORED))
    assert np.isnan(MeanIoU().value(seen, len(y), NO_CLIENTS))


# --- As an objective


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, CLASSES, 1)).double()


def images(n: int = 6) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(5)
    return torch.randn(n, 2, HEIGHT, WIDTH, generator=stream, dtype=torch.float64), drawn(5, n)[1]


def test_the_objective_does_not_depend_on_batches():
    objective, (x, y) = Objective(network()), images()
    w = objective.initial()
    whole, parts = [(x, y)], [(x[:2], y[:2]), (x[2:], y[2:])]
    assert objective.evaluate(w, whole) == pytest.approx(objective.evaluate(w, parts))
    torch.testing.assert_close(objective.full_gradient(w, whole), objective.full_gradient(w, parts))
    g, loss = objective.gradient(w, x, y)
    assert float(loss) == pytest.approx(objective.loss(w, whole))
    step = 1e-6
    assert (objective.loss(w - step * g, whole) - float(loss)) / step == pytest.approx(
        -float(g.square().sum()), rel=1e-3
    )


class WithHeads(nn.Module):
    """An auxiliary head for training only."""

    auxiliary = ("second",)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = network(), network()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.first(x)
        return torch.stack([scores, self.second(x)], dim=2) if self.training else scores


def test_auxiliary_heads_are_trained_and_not_measured():
    objective, (x, y) = Objective(WithHeads()), images()
    w = objective.initial()
    trained = objective.gradients(w, lambda model, _: cross_entropy(model(x), y), {})[0]
    measured, loss = objective.gradient(w, x, y)
    assert float(loss) == pytest.approx(objective.loss(w, [(x, y)]))
    half = len(w) // 2
    torch.testing.assert_close(trained[:half], measured[:half])
    assert (trained[half:] != 0).any()
    assert not measured[half:].any()
    product = hessian_product(objective, w, [(x, y)])(torch.ones_like(w))
    assert product[:half].any()
    assert not product[half:].any()


class WithoutSecond(WithHeads):
    """Its forward pass leaves out half of the parameters, also in training."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.first(x)
        return scores


class WithoutHeads(WithoutSecond):
    """The same module, which lists no auxiliary heads."""

    auxiliary = ()


UNUSED = "^the loss does not depend on these parameters of the model: second.0.weight, second.0.bias"


def test_unused_parameters_are_refused_in_training():
    """Also if they belong to auxiliary heads: a head without any effect is a mistake."""
    objective, (x, y) = Objective(WithoutSecond()), images()
    w = objective.initial()
    with pytest.raises(UserError, match=UNUSED):
        objective.gradients(w, lambda model, _: cross_entropy(model(x), y), {})
    assert objective.gradient(w, x, y)[0].any(), "in evaluation, heads need not be used"


def test_unused_parameters_of_a_model_without_auxiliary_heads_are_refused_everywhere():
    objective, (x, y) = Objective(WithoutHeads()), images()
    w = objective.initial()
    with pytest.raises(UserError, match=UNUSED):
        objective.gradient(w, x, y)
    with pytest.raises(UserError, match=UNUSED):
        hessian_product(objective, w, [(x, y)])
