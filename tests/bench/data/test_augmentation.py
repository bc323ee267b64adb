"""Augmentations: what they do to a batch, with which chances, and that all passes of a step see the same pixels."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare
from torch import Tensor
from torch.nn import functional as F

from fedflat.bench.data.augmentation import (
    AnyAugmentation,
    Augment,
    Context,
    Crop,
    Cutout,
    Flip,
    Mixup,
    RandomResizedCrop,
    parse_augmentations,
)
from fedflat.bench.engine.local import AUGMENTATION
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_setup import RunSetup
from tests.problems import one_round

CELL = "digits/dirichlet-0.1/4-of-20/"


ALL = ["mixup", {"name": "cutout", "size": 4}, "flip", "crop", "fl_simulator", ["standard", "mixup"]]
CONTEXT = Context(5, (3, 5, 4), black=torch.tensor([-2.0, -1.5, -1.0]).view(3, 1, 1))


def stream(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def images(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def applied(
    augmentation: AnyAugmentation, x: Tensor, y: Tensor, draws: np.random.Generator, context: Context = CONTEXT
) -> tuple[Tensor, Tensor]:
    """One mini-batch, augmented with draws for it."""
    channels, height, width = x.shape[1:]
    drawn = augmentation.draw(draws, [len(x)], (channels, height, width))
    return augmentation.apply(x, y, context, {name: torch.from_numpy(draw) for name, draw in drawn.items()})


def formula(part: AnyAugmentation, x: Tensor, y: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """What an augmentation is, written image by image, its draws made as they are used."""
    count, (height, width) = len(x), x.shape[2:]
    if isinstance(part, Flip):
        flipped = draws.random(count) < part.probability
        return torch.stack([image.flip(2) if yes else image for image, yes in zip(x, flipped, strict=True)]), y
    if isinstance(part, Crop):
        corner = draws.integers(2 * part.padding + 1, size=(2, count))
        corner[:, draws.random(count) >= part.probability] = part.padding
        windows = []
        for image, top, left in zip(x, *corner, strict=True):
            border = CONTEXT.black if part.pad == "black" else torch.zeros(3, 1, 1)
            framed = border.repeat(1, height + 2 * part.padding, width + 2 * part.padding)
            framed[:, part.padding : part.padding + height, part.padding : part.padding + width] = image
            windows.append(framed[:, top : top + height, left : left + width])
        return torch.stack(windows), y
    if isinstance(part, Mixup):
        share = float(draws.beta(part.a, part.a))
        other = torch.from_numpy(draws.permutation(count))
        labels = F.one_hot(y, CONTEXT.classes).to(x.dtype)
        return share * x + (1 - share) * x[other], share * labels + (1 - share) * labels[other]
    if isinstance(part, RandomResizedCrop):
        area = draws.uniform(part.least_area, 1, (10, count)) * height * width
        ratio = np.exp(draws.uniform(-1, 1, (10, count)) * np.log(part.most_ratio))
        windows = [window_of(area[:, k], ratio[:, k], height, width) for k in range(count)]
        corners = draws.integers([[height - h + 1, width - w + 1] for h, w in windows])
        resized = []
        for image, (top, left), (h, w) in zip(x, corners, windows, strict=True):
            window = image[None, :, top : top + h, left : left + w]
            size = (height, width) if part.size is None else (part.size, part.size)
            resized.append(F.interpolate(window, size, mode="bilinear", align_corners=False))
        return torch.cat(resized), y
    rows, columns = draws.integers(height, size=count), draws.integers(width, size=count)
    x = x.clone()
    for image, row, column in zip(x, rows, columns, strict=True):
        top, left = row - part.size // 2, column - part.size // 2
        image[:, max(top, 0) : max(top + part.size, 0), max(left, 0) : max(left + part.size, 0)] = 0
    return x, y


def window_of(areas: np.ndarray, ratios: np.ndarray, height: int, width: int) -> tuple[int, int]:
    """The first of the windows with these areas and ratios that fits into an image, else the image."""
    for area, ratio in zip(areas, ratios, strict=True):
        h, w = round(float(np.sqrt(area / ratio))), round(float(np.sqrt(area * ratio)))
        if 0 < h <= height and 0 < w <= width:
            return h, w
    return height, width


EVERY = ["standard", "fl_simulator", "mixup", {"name": "cutout", "size": 3}]
CHAINS = [
    *EVERY,
    "random_resized_crop",
    [{"name": "random_resized_crop", "size": 3}, {"name": "cutout", "size": 2}],
    ["fl_simulator", {"name": "cutout", "size": 2}, "mixup", "standard"],
    ["mixup", "standard"],
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@given(seed=st.integers(0, 1000), count=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_draws_and_results_are_those_of_the_formulas(chain, seed, count):
    """One stream, read in the order of the augmentations; the pixels to the last bit, if they are not interpolated."""
    augment = Augment(parse_augmentations(chain), CONTEXT)
    x, y, draws = images(seed, count, 3, 5, 4), torch.arange(count) % 5, stream(seed)
    drawn = augment.draw(stream(seed), [count])
    after = augment(x, y, {name: torch.from_numpy(draw) for name, draw in drawn.items()})
    for part in augment.augmentations:
        x, y = formula(part, x, y, draws)
    if any(
        isinstance(part, RandomResizedCrop) for part in augment.augmentations
    ):  # torch sums the four neighbours of a pixel in another order
        assert torch.allclose(after[0], x, atol=1e-5)
    else:
        assert torch.equal(after[0], x)
    assert torch.equal(after[1], y)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@given(seed=st.integers(0, 1000), counts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_mini_batches_can_be_treated_in_one_call(chain, seed, counts):
    """Each comes out as it does alone; shorter ones are padded: their first image again, and draws of zero."""
    augment, longest = Augment(parse_augmentations(chain), CONTEXT), max(counts)
    xs, ys, drawn, alone = [], [], [], []
    for k, count in enumerate(counts):
        x, y = images(seed + k, count, 3, 5, 4), torch.arange(k, k + count) % 5
        draws = {name: torch.from_numpy(draw) for name, draw in augment.draw(stream(seed + k), [count]).items()}
        assert all(len(draw) == count for draw in draws.values())
        alone.append(augment(x, y, draws))
        padded = torch.arange(longest) * (torch.arange(longest) < count)
        xs.append(x[padded])
        ys.append(y[padded])
        drawn.append({name: torch.cat([d, d.new_zeros(longest - count, *d.shape[1:])]) for name, d in draws.items()})
    together = augment(
        torch.cat(xs), torch.cat(ys), {name: torch.cat([draws[name] for draws in drawn]) for name in drawn[0]}
    )
    for count, (x, y), one_x, one_y in zip(counts, alone, *(v.split(longest) for v in together), strict=True):
        assert torch.equal(one_x[:count], x)
        assert torch.equal(one_y[:count], y)
        assert torch.isfinite(one_x).all()


@pytest.mark.parametrize("part", [Flip(), Crop(), Crop(pad="mean"), RandomResizedCrop(), Mixup()], ids=str)
def test_draws_of_zero_leave_an_image_as_it_is(part):
    x, y = images(0, 6, 3, 5, 4), torch.arange(6) % 5
    zeros = {name: torch.from_numpy(np.zeros_like(draw)) for name, draw in part.draw(stream(0), [6], (3, 5, 4)).items()}
    after, targets = part.apply(x, y, CONTEXT, zeros)
    assert torch.equal(after, x)
    assert torch.equal(targets, F.one_hot(y, 5).float() if isinstance(part, Mixup) else y)


def test_images_stored_channels_last_are_augmented_alike():
    augment = Augment(parse_augmentations(["standard", "mixup", {"name": "cutout", "size": 2}]), CONTEXT)
    x, y = images(0, 6, 3, 5, 4), torch.arange(6) % 5
    draws = {name: torch.from_numpy(draw) for name, draw in augment.draw(stream(0), [6]).items()}
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(augment(last, y, draws)[0], augment(x, y, draws)[0])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), a=st.sampled_from([0.2, 1.0, 5.0]))
def test_mixups_loss_is_the_mixed_loss(seed, a):
    """Cross-entropy with the mixed probabilities is L CE(y) + (1 − L) CE(y[P])."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(6, 3, 4, 4, generator=generator).double(), torch.randint(0, 5, (6,), generator=generator)
    logits = torch.randn(6, 5, generator=generator).double()
    mixed, targets = applied(Mixup(a=a), x, y, stream(seed))
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
    mixed, targets = applied(Mixup(a=0), x, y, stream(0))
    assert mixed is x
    assert targets is y


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(1, 9))
def test_cutouts_hole_is_a_clipped_square(seed, size):
    holes = applied(Cutout(size=size), torch.ones(8, 3, 6, 5), torch.zeros(8), stream(seed))[0] == 0
    draws = stream(seed)
    rows, columns = draws.integers(6, size=8), draws.integers(5, size=8)
    for image, row, column in zip(holes, rows, columns, strict=True):
        expected = torch.zeros(6, 5, dtype=torch.bool)
        top, left = row - size // 2, column - size // 2
        expected[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = True
        assert (image == expected).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(1, 5))
def test_flipping_everything_twice_is_nothing(seed, width):
    x, y = images(seed, 4, 3, 3, width), torch.arange(4)
    once, labels = applied(Flip(probability=1), x, y, stream(seed))
    assert torch.equal(once[..., 0], x[..., -1])
    assert labels is y
    assert torch.equal(applied(Flip(probability=1), once, y, stream(seed + 1))[0], x)


NOTHING = [Flip(probability=0), Crop(probability=0), Crop(probability=0, pad="mean"), Crop(padding=0), Mixup(a=0)]


@pytest.mark.parametrize("augmentation", NOTHING, ids=str)
@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_without_border_or_chance_nothing_happens(augmentation, seed):
    x, y = images(seed, 6, 3, 5, 4), torch.arange(6)
    after, labels = applied(augmentation, x, y, stream(seed))
    assert torch.equal(after, x)
    assert torch.equal(labels, y)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), padding=st.integers(0, 6), pad=st.sampled_from(["black", "mean"]))
def test_a_crop_is_a_window_of_the_framed_image(seed, padding, pad):
    x = images(seed, 7, 3, 5, 4)
    cropped = applied(Crop(padding=padding, pad=pad), x, torch.arange(7), stream(seed))[0]
    tops, lefts = stream(seed).integers(2 * padding + 1, size=(2, 7))
    black = CONTEXT.black if pad == "black" else torch.zeros(3, 1, 1)
    for image, window, top, left in zip(x, cropped, tops, lefts, strict=True):
        framed = F.pad(image - black, (padding,) * 4) + black
        assert torch.allclose(window, framed[:, top : top + 5, left : left + 4], atol=1e-6)


def test_the_widest_border_and_the_largest_hole_are_allowed():
    """Even around and in images that are far smaller."""
    x = images(0, 7, 3, 5, 4)
    assert applied(Crop(padding=64), x, torch.arange(7), stream(0))[0].shape == x.shape
    assert not applied(Cutout(size=1024), x, torch.arange(7), stream(0))[0].any()


def test_a_share_of_the_images_is_cropped():
    x = images(0, 4000, 1, 4, 4)
    cropped = applied(Crop(padding=1, probability=0.5, pad="mean"), x, torch.arange(4000), stream(0))[0]
    moved = int((cropped != x).flatten(1).any(1).sum())
    expected = 4000 * 0.5 * 8 / 9  # one window of nine is the image itself
    assert chisquare([moved, 4000 - moved], [expected, 4000 - expected]).pvalue > 0.01


def test_crop_and_flip_have_torchvisions_outcomes_with_its_frequencies():
    """RandomCrop before normalisation, RandomHorizontalFlip: 9 windows × 2 sides of a tiny image, equally likely."""
    import_torchvision()
    from torchvision.transforms import Compose, RandomCrop, RandomHorizontalFlip

    raw, shift, factor, count = torch.arange(1.0, 13).view(1, 3, 4), 5.0, 0.25, 6000
    context = Context(2, (1, 3, 4), black=torch.full((1, 1, 1), (0 - shift) * factor))
    x, y = ((raw - shift) * factor).repeat(count, 1, 1, 1), torch.zeros(count)
    draws = stream(0)
    for augmentation in (Crop(padding=1), Flip()):
        x, y = applied(augmentation, x, y, draws, context)
    transform = Compose([RandomCrop((3, 4), padding=1), RandomHorizontalFlip()])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = Counter(((transform(raw) - shift) * factor).numpy().tobytes() for _ in range(count))
    ours = Counter(image.numpy().tobytes() for image in x)
    assert len(theirs) == 18
    assert ours.keys() == theirs.keys()
    outcomes = sorted(theirs)
    assert chisquare([ours[outcome] for outcome in outcomes]).pvalue > 0.01
    table = [[counts[outcome] for outcome in outcomes] for counts in (ours, theirs)]
    assert chi2_contingency(table).pvalue > 0.01


def test_presets_are_their_parts():
    """An identity shows what is done, and is the same however it was written."""
    crop, flip = (
        {"name": "crop", "padding": 4, "probability": 1.0, "pad": "black"},
        {"name": "flip", "probability": 0.5},
    )
    late = {"name": "crop", "probability": 0.5, "pad": "mean"}
    assert parse_augmentations("standard") == parse_augmentations([crop, flip]) == (Crop(), Flip())
    assert parse_augmentations({"name": "standard"}) == (Crop(), Flip())
    assert parse_augmentations("fl_simulator") == parse_augmentations(["flip", late])
    assert parse_augmentations(["standard", "mixup"]) == (Crop(), Flip(), Mixup())
    assert parse_augmentations([{"name": "cutout", "size": 4}, "standard"])[0] == Cutout(size=4)


@pytest.mark.parametrize(
    "spellings",
    [
        ["mixup", ["mixup"], {"name": "mixup"}, [{"name": "mixup", "a": 1}]],
        [None, []],
        ["standard", ["crop", "flip"], ["standard"], [{"name": "crop", "padding": 4}, "flip"]],
    ],
    ids=str,
)
def test_one_identity_for_all_spellings(spellings):
    runs = [config(spelling) for spelling in spellings]
    assert len({run.identity for run in runs}) == 1
    assert all(RunConfig.parse(run.model_dump(mode="json")) == run for run in runs)
    assert config("flip").identity != runs[0].identity


def config(augmentation: object, method: str = "fedavg") -> RunConfig:
    changes = {"training.augmentation": augmentation, "training.rounds": 2}
    return load_experiment("quick_all", changes).cell(CELL + method).runs[0]


def test_black_is_what_normalisation_makes_of_zero():
    """A crop far into the border, in a run: its pixels are those of an image of zeros."""
    made = RunSetup.build(config({"name": "crop", "padding": 40}), torch.device("cpu"))
    zero = (torch.zeros(1, 8, 8) - made.train.shift) * made.train.factor
    x, y = made.train.batch(torch.arange(50))
    augment = made.federation.local.augment
    draws = augment.draw(stream(0), [len(x)])
    cropped = augment(x, y, {name: torch.from_numpy(draw) for name, draw in draws.items()})[0]
    empty = (cropped == zero).flatten(1).all(1)
    assert int(empty.sum()) > 25


def bench(augmentation: object, method: str = "fedavg") -> RunSetup:
    return RunSetup.build(config(augmentation, method), torch.device("cpu"))


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_it_reaches_training_and_repeats_itself(augmentation):
    plain, augmented = bench(None), bench(augmentation)
    start = plain.federation.start(plain.objective.initial())
    states = [one_round(b, start)[0].w for b in (plain, augmented, bench(augmentation))]
    assert torch.isfinite(states[1]).all()
    assert not torch.allclose(states[0], states[1])
    assert torch.equal(states[1], states[2])


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_every_client_round_and_seed_has_its_own_draws_whatever_the_method_is(augmentation):
    def draws(method="fedavg", **changes):
        made = bench(augmentation, method).federation
        [work] = made.work(made.start(made.objective.initial()), [3])
        return replace(work, **changes).host_batches(made.local.augment, AUGMENTATION)["draws"]

    def are_equal(one, other):
        return all(torch.equal(one[name], other[name]) for name in one)

    first = draws()
    assert are_equal(first, draws())
    assert are_equal(first, draws("scaffold"))
    for changes in ({"client": 4}, {"round": 1}, {"seed": 1}):
        assert not are_equal(first, draws(**changes)), changes


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_both_passes_of_sam_see_the_same_pixels(augmentation):
    """With rho = 0 the second pass repeats the first: FedSAM is FedAvg, also with random augmentation."""
    changes = {"training.augmentation": augmentation, "methods.fedsam.hyperparameters.rho": 0}
    runs = [load_experiment("quick_all", changes).cell(CELL + m).runs[0] for m in ("fedavg", "fedsam")]
    ends = []
    for config in runs:
        made = RunSetup.build(config, torch.device("cpu"))
        ends.append(one_round(made, made.federation.start(made.objective.initial()))[0].w)
    assert torch.equal(*ends)


@pytest.mark.parametrize("augmentation", ["mixup", ["standard", "mixup"], ["mixup", "flip"]])
def test_fedrcl_needs_labels(augmentation):
    with pytest.raises(UserError, match="fedrcl needs one label per image"):
        bench(augmentation, "fedrcl")
    assert bench("standard", "fedrcl").config.training.augmentation == (Crop(), Flip())


@pytest.mark.parametrize(
    ("augmentation", "message"),
    [
        ("mixip", "unknown augmentation 'mixip'; did you mean 'mixup'?"),
        ("standart", "did you mean 'standard'?"),
        (["flip", "crob"], "unknown augmentation 'crob'; did you mean 'crop'?"),
        (3, "unknown augmentation '3'"),
        ([[]], "unknown augmentation '[]'"),
        ({"size": 3}, "unknown augmentation ''"),
        ("cutout", "augmentation cutout: size is missing"),
        ({"name": "crop", "paddin": 2}, "augmentation crop: unknown key of crop 'paddin'; did you mean 'padding'?"),
        ({"name": "crop", "padding": -1}, "augmentation crop: padding = -1"),
        ({"name": "crop", "padding": 1_000_000}, "padding = 1000000: Input should be less than or equal to 64"),
        ({"name": "cutout", "size": 2**63}, "size = 9223372036854775808: Input should be less than or equal to 1024"),
        ({"name": "crop", "padding": True}, "padding = True: Input should be a number"),
        ({"name": "crop", "pad": "white"}, "pad = 'white': Input should be 'black' or 'mean'"),
        ({"name": "flip", "probability": 1.5}, "augmentation flip: probability = 1.5"),
        ({"name": "standard", "padding": 2}, "augmentation standard has no options (allowed: its name alone)"),
        (["mixup", "mixup"], "mixup is allowed only once"),
    ],
    ids=str,
)
def test_mistakes_are_reported(augmentation, message):
    with pytest.raises(UserError) as error:
        load_experiment("quick", {"training.augmentation": augmentation})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_schema_knows_the_shorthands():
    """Editors and Snakemake accept what the parser accepts."""
    kinds = {part.get("type") for part in Training.model_json_schema()["properties"]["augmentation"]["anyOf"]}
    assert kinds == {"string", "object", "array", "null"}
