"""mixup and cutout: what they do to a batch, and that all passes of a step see the same pixels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from bench.data.augmentation import Cutout, Mixup
from bench.errors import UserError
from bench.experiments import load_experiment
from bench.run import Bench

CELL = "digits/dirichlet-0.1/4-of-20/"


def stream(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), a=st.sampled_from([0.2, 1.0, 5.0]))
def test_mixups_loss_is_the_mixed_loss(seed, a):
    """Cross-entropy with the mixed probabilities is L CE(y) + (1 − L) CE(y[P])."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(6, 3, 4, 4, generator=generator).double(), torch.randint(0, 5, (6,), generator=generator)
    logits = torch.randn(6, 5, generator=generator).double()
    mixed, targets = Mixup(a=a).apply(x, y, 5, stream(seed))
    share = float(stream(seed).beta(a, a))
    again = stream(seed)
    again.beta(a, a)
    other = torch.from_numpy(again.permutation(6))
    assert torch.allclose(mixed, share * x + (1 - share) * x[other])
    both = share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[other])
    assert torch.allclose(F.cross_entropy(logits, targets), both)
    assert torch.allclose(targets.sum(1), torch.ones(6).double())


def test_mixup_with_a_zero_is_plain():
    x, y = torch.ones(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    mixed, targets = Mixup(a=0).apply(x, y, 3, stream(0))
    assert mixed is x
    assert targets is y


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(1, 9))
def test_cutouts_hole_is_a_clipped_square(seed, size):
    holes = Cutout(size=size).apply(torch.ones(8, 3, 6, 5), torch.zeros(8), 2, stream(seed))[0] == 0
    draws = stream(seed)
    rows, columns = draws.integers(6, size=8), draws.integers(5, size=8)
    for image, row, column in zip(holes, rows, columns, strict=True):
        expected = torch.zeros(6, 5, dtype=torch.bool)
        top, left = row - size // 2, column - size // 2
        expected[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = True
        assert (image == expected).all()


def bench(augmentation: object, method: str = "fedavg") -> Bench:
    changes = {"training.augmentation": augmentation, "training.rounds": 2}
    return Bench.set_up(load_experiment("quick_all", changes).cell(CELL + method).runs[0], torch.device("cpu"))


@pytest.mark.parametrize("augmentation", ["mixup", {"name": "cutout", "size": 4}])
def test_it_reaches_training_and_repeats_itself(augmentation):
    plain, augmented = bench(None), bench(augmentation)
    start = plain.federation.start(plain.objective.initial())
    states = [b.play_round(start)[0].w for b in (plain, augmented, bench(augmentation))]
    assert torch.isfinite(states[1]).all()
    assert not torch.allclose(states[0], states[1])
    assert torch.equal(states[1], states[2])


@pytest.mark.parametrize("augmentation", ["mixup", {"name": "cutout", "size": 4}])
def test_both_passes_of_sam_see_the_same_pixels(augmentation):
    """With rho = 0 the second pass repeats the first: FedSAM is FedAvg, also with random augmentation."""
    changes = {"training.augmentation": augmentation, "methods.fedsam.hyperparameters.rho": 0}
    runs = [load_experiment("quick_all", changes).cell(CELL + m).runs[0] for m in ("fedavg", "fedsam")]
    ends = []
    for config in runs:
        made = Bench.set_up(config, torch.device("cpu"))
        ends.append(made.play_round(made.federation.start(made.objective.initial()))[0].w)
    assert torch.equal(*ends)


def test_fedrcl_needs_labels():
    with pytest.raises(UserError, match="fedrcl needs one label per image"):
        bench("mixup", "fedrcl")


@pytest.mark.parametrize(
    ("augmentation", "message"),
    [("mixip", "unknown training.augmentation 'mixip'; did you mean 'mixup'?"), ("cutout", "size is missing")],
)
def test_mistakes_are_told(augmentation, message):
    with pytest.raises(UserError) as error:
        load_experiment("quick", {"training.augmentation": augmentation})
    assert message in str(error.value)
