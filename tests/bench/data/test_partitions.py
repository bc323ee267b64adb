"""Partitions beyond the simplest: what each promises of sizes, re-use and classes, and what it refuses."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedflat.bench.data.partitions.base import Partition, partition_hash
from fedflat.bench.data.partitions.by_group import ByGroup
from fedflat.bench.data.partitions.dirichlet import Dirichlet
from fedflat.bench.data.partitions.dirichlet_by_class import DirichletByClass
from fedflat.bench.data.partitions.lda import LDA
from fedflat.bench.data.partitions.pam import PAM
from fedflat.bench.data.partitions.pathological import Pathological
from fedflat.bench.data.partitions.refill import fill_and_refill
from fedflat.bench.input.errors import UserError
from tests.bench.data.labelled import CLASSES, LABELS, drawn, samples


def class_counts(split: list[np.ndarray], labels: np.ndarray = LABELS) -> np.ndarray:
    return np.stack([np.bincount(labels[indices], minlength=labels.max() + 1) for indices in split])


def mean_entropy(partition: Partition) -> float:
    counts = np.concatenate([class_counts(drawn(partition, seed=seed)) for seed in range(3)])
    shares = counts / counts.sum(1, keepdims=True)
    return float(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(1).mean())


alphas = st.sampled_from([1e-9, 0.001, 0.1, 0.6, 10.0, 1000.0])
equal_shares = st.one_of(
    st.builds(LDA, clients=st.integers(1, 60), alpha=alphas),
    st.builds(PAM, clients=st.integers(1, 60), alpha=alphas, beta=alphas),
)
released = st.just("released")
refilled = st.one_of(
    st.builds(Dirichlet, clients=st.integers(1, 60), alpha=st.sampled_from([0.001, 0.1, 10.0]), variant=released),
    st.builds(Pathological, clients=st.integers(1, 60), classes_per_client=st.integers(1, 10), variant=released),
)


@settings(max_examples=40, deadline=None)
@given(partition=equal_shares, seed=st.integers(0, 100))
def test_every_image_goes_to_one_client_in_equal_shares(partition, seed):
    split = drawn(partition, seed=seed)
    sizes = [len(indices) for indices in split]
    assert len(split) == partition.clients
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(split)) == list(range(len(LABELS)))


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 12),
    alpha=st.sampled_from([0.3, 0.6, 10.0]),
    least=st.integers(1, 15),
    seed=st.integers(0, 9),
)
def test_shares_of_classes_use_every_image_once_and_leave_no_client_too_small(clients, alpha, least, seed):
    split = drawn(DirichletByClass(clients=clients, alpha=alpha, least=least), seed=seed)
    assert len(split) == clients
    assert min(map(len, split)) >= least
    assert sorted(np.concatenate(split)) == list(range(len(LABELS)))


def test_shares_of_classes_have_the_variance_of_the_dirichlet_distribution():
    """A share of Dir(α) over N clients has mean 1/N and variance (N − 1) / (N² (Nα + 1))."""
    labels = np.repeat(np.arange(10), 5000)
    splits = [drawn(DirichletByClass(clients=20, alpha=0.6), samples(labels), seed=seed) for seed in range(5)]
    shares = np.concatenate([class_counts(split, labels) / 5000 for split in splits])
    assert shares.mean() == pytest.approx(1 / 20)
    assert shares.var() == pytest.approx(19 / 400 / 13, rel=0.2)
    sizes = [len(indices) for indices in splits[0]]
    assert max(sizes) > 2 * min(sizes)


def test_small_shares_are_drawn_again():
    """Of two classes with 30 and 10 images, the first draw leaves client 0 with 7 + 2 images, fewer than ten."""
    labels = np.repeat([0, 1], [30, 10])
    stream = Script(dirichlet=[[0.25, 0.75], [0.2, 0.8], [0.25, 0.75], [0.3, 0.7]])
    split = DirichletByClass(clients=2, alpha=1.0).split(samples(labels), stream)
    assert [len(indices) for indices in split] == [10, 30]
    assert split[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 30, 31, 32]
    assert stream.all_drawn()


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (DirichletByClass(clients=70, alpha=1.0), "600 training images are too few for least = 10 at each of 70"),
        (DirichletByClass(clients=50, alpha=0.01), "none of 10,000 draws gives each of 50 clients at least 10 of 600"),
    ],
)
def test_shares_of_classes_that_cannot_be_drawn_are_refused(partition, message):
    train = samples(np.zeros(600, dtype=int))
    with pytest.raises(UserError, match=f"^dirichlet_by_class-.*{message}.*\\(allowed: .*\\)$"):
        drawn(partition, train)


@settings(max_examples=40, deadline=None)
@given(partition=refilled, seed=st.integers(0, 100))
def test_released_clients_are_equally_large_and_client_0_takes_the_rest(partition, seed):
    split = drawn(partition, seed=seed)
    quota, rest = divmod(len(LABELS), partition.clients)
    assert [len(indices) for indices in split] == [quota + rest] + [quota] * (partition.clients - 1)
    used = np.bincount(np.concatenate(split), minlength=len(LABELS))
    # A class's images are used equally often, up to one: a refill comes only after the last of them.
    for c in range(CLASSES):
        assert used[c == LABELS].max() - used[c == LABELS].min() <= 1


@settings(max_examples=20, deadline=None)
@given(
    partition=st.one_of(equal_shares, refilled, st.builds(LDA, clients=st.sampled_from([10, 60]), alpha=st.just(0))),
    seed=st.integers(0, 100),
)
@example(partition=Dirichlet(clients=7, alpha=0.3), seed=0)
def test_the_seed_decides_the_split(partition, seed):
    same, again, other = (partition_hash(drawn(partition, seed=s)) for s in (seed, seed, seed + 1))
    assert same == again
    assert same != other or partition.clients == 1


def test_released_splits_use_some_images_again_and_others_never():
    split = drawn(Dirichlet(clients=20, alpha=0.1, variant="released"))
    used = np.bincount(np.concatenate(split), minlength=len(LABELS))
    assert used.max() >= 2
    assert used.min() == 0
    assert any(
        len(np.unique(indices)) < len(indices)
        for indices in drawn(Dirichlet(clients=2, alpha=0.05, variant="released"))
    )


def test_released_dirichlet_clients_keep_their_proportions_to_the_end():
    """Refilling leaves every client its own Dirichlet proportions: their variance is that of Dir(α) + multinomial."""
    labels = np.repeat(np.arange(10), 500)
    split = drawn(Dirichlet(clients=250, alpha=0.6, variant="released"), samples(labels))
    shares = class_counts(split, labels) / 20
    expected = 0.09 * (1 / 7 + (1 - 1 / 7) / 20)
    assert shares.mean() == pytest.approx(0.1)
    assert shares.var() == pytest.approx(expected, rel=0.1)


class Script:
    """A stream whose draws are written down beforehand; nothing is permuted."""

    def __init__(self, **draws):
        self.draws = {name: iter(values) for name, values in draws.items()}
        self.random = lambda: next(self.draws["random"])
        self.integers = lambda high: next(self.draws["integers"])
        self.dirichlet = lambda concentrations: np.array(next(self.draws["dirichlet"]), dtype=float)
        self.permutation = np.asarray

    def all_drawn(self):
        return all(next(values, None) is None for values in self.draws.values())


def test_a_refill_is_followed_by_another_draw():
    """Image 0 is the only one of class 0; images 1 to 4 are of class 1. The draw u takes class 0 if 1 − u ≤ 1/2.

    client 0, u 0.7: class 0, image 0
    client 1, u 0.9: class 0 is exhausted and refilled; the same client draws again, u 0.1: class 1, its last image, 4
    client 1, u 0.5: class 0, image 0 once more
    client 0, u 0.8: exhausted again, refilled; u 0.6: class 0, now full: image 0
    client 0, u 0.2: class 1, image 3
    """
    stream = Script(integers=[0, 1, 1, 0, 0], random=[0.7, 0.9, 0.1, 0.5, 0.8, 0.6, 0.2])
    halves = np.full((2, 2), 0.5)
    split = fill_and_refill(np.array([0, 1, 1, 1, 1]), halves, np.array([3, 2]), stream)
    assert [indices.tolist() for indices in split] == [[0, 0, 3], [4, 0]]
    assert stream.all_drawn()


def test_released_pathological_clients_draw_equally_from_their_own_classes():
    counts = class_counts(drawn(Pathological(clients=6, classes_per_client=2, variant="released")))
    assert ((counts > 0).sum(1) == 2).all()
    assert counts[counts > 0].min() > 30, "of 100 images, 50 are expected of each class"
    many = class_counts(drawn(Pathological(clients=60, classes_per_client=3, variant="released")))
    holders = (many > 0).sum(0)
    assert holders.max() - holders.min() > 1, "classes are drawn, not dealt"


def test_the_published_variant_has_no_mark():
    assert Dirichlet(clients=5, alpha=0.6, variant="published") == Dirichlet(clients=5, alpha=0.6)
    assert Dirichlet(clients=5, alpha=0.6).label == "dirichlet-0.6"
    assert Dirichlet(clients=5, alpha=0.6, variant="released").label == "dirichlet-0.6-released"
    assert Pathological(clients=5, classes_per_client=3, variant="released").label == "pathological-3-released"
    with pytest.raises(UserError, match="variant = 'realised': Input should be 'published' or 'released'"):
        Dirichlet.parse({"clients": 5, "alpha": 0.6, "variant": "realised"})


@pytest.mark.parametrize(
    "partition",
    [
        Dirichlet(clients=5, alpha=0.5),
        Dirichlet(clients=5, alpha=0.5, variant="released"),
        Pathological(clients=5, classes_per_client=5, variant="released"),
        LDA(clients=6, alpha=0.5),
        LDA(clients=6, alpha=0),
    ],
)
def test_a_class_without_training_images_is_no_trouble(partition):
    labels = np.array([0, 1, 4] * 20)
    split = drawn(partition, samples(labels))
    assert sum(map(len, split)) == 60


def heterogeneity(name, alpha):
    return {
        "dirichlet": lambda: Dirichlet(clients=20, alpha=alpha),
        "released": lambda: Dirichlet(clients=20, alpha=alpha, variant="released"),
        "lda": lambda: LDA(clients=20, alpha=alpha * CLASSES),
        "pam": lambda: PAM(clients=20, alpha=alpha),
        "beta": lambda: PAM(clients=20, alpha=1, beta=alpha),
    }[name]()


@pytest.mark.parametrize("name", ["dirichlet", "released", "lda", "pam", "beta"])
def test_smaller_concentrations_are_more_heterogeneous(name):
    entropies = [mean_entropy(heterogeneity(name, alpha)) for alpha in (0.01, 0.1, 1, 100)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0] + 0.3


def test_the_published_dirichlet_is_monotone_down_to_tiny_concentrations():
    """Nearly one class per client, and another one when that is exhausted: not what is left of all classes."""
    labels = np.repeat(np.arange(10), 200)
    held = []
    for alpha in (1e-9, 1e-4, 1e-3, 0.01, 0.1, 0.6, 10):
        splits = [drawn(Dirichlet(clients=100, alpha=alpha), samples(labels), seed) for seed in range(10)]
        held.append(np.mean([(class_counts(split, labels) > 0).sum(1).mean() for split in splits]))
    assert held[3:] == sorted(held[3:])
    assert max(held[:3]) < 1.05 * held[3], "the limit of one class each, up to the noise of ten splits"
    assert held[3] < 3


@pytest.mark.parametrize(
    ("classes", "alpha", "released"),
    [
        (10, 0, 1.0),
        (10, 0.05, 1.32),
        (10, 0.1, 1.54),
        (10, 0.2, 2.19),
        (10, 0.5, 3.57),
        (10, 1, 4.78),
        (10, 10, 9.28),
        (10, 100, 9.9),
        (100, 0, 1.0),
        (100, 0.5, 5.13),
        (100, 1000, 98.8),
    ],
)
def test_lda_gives_as_many_classes_per_client_as_the_released_splits(classes, alpha, released):
    """100 clients of 500 images, CIFAR-10 and CIFAR-100; the released mean is one draw from the law of ours."""
    labels = np.repeat(np.arange(classes), 50_000 // classes)
    means = [
        (class_counts(drawn(LDA(clients=100, alpha=alpha), samples(labels), seed), labels) > 0).sum(1).mean()
        for seed in range(20)
    ]
    assert abs(np.mean(means) - released) <= 3.1 * np.std(means, ddof=1) + 0.005, "beyond 1 in 500 draws and rounding"


def test_lda_with_alpha_0_deals_each_class_to_equally_many_clients():
    counts = class_counts(drawn(LDA(clients=30, alpha=0)))
    assert ((counts > 0).sum(1) == 1).all()
    assert ((counts > 0).sum(0) == 3).all()
    assert (counts.sum(1) == 20).all()
    with pytest.raises(UserError, match=r"25 clients are not a multiple of 10 classes"):
        drawn(LDA(clients=25, alpha=0))


def test_lda_clients_have_their_proportions_without_sampling_noise():
    """At a large alpha all proportions are 1/C, and so are the counts: whole numbers nearest to them."""
    counts = class_counts(drawn(LDA(clients=20, alpha=1e12)))
    assert (counts == 3).all()


def test_pam_draws_fine_labels_within_coarse_ones():
    """A small alpha and a large beta: nearly one coarse label per client, its fine labels equally often."""
    early = class_counts(drawn(PAM(clients=30, alpha=0.001, beta=1e6)))[:8]
    coarse = early.reshape(8, 5, 2)
    assert (coarse.sum(2).max(1) >= 19).mean() > 0.7
    fine = coarse[np.arange(8), coarse.sum(2).argmax(1)]
    assert fine.min() >= 4
    assert PAM().label == "pam-0.1-10"
    assert PAM().clients == 500


def test_pam_clients_have_fine_proportions_of_their_own():
    """Within one coarse label, while no class is exhausted, they vary between clients as Dir(β) + multinomial does.

    With several coarse labels, the proportions within two of them are independent.
    """
    labels = np.repeat(np.arange(10), 2000)
    one = drawn(PAM(clients=1000, beta=0.6), samples(labels, groups=np.zeros_like(labels)))[:250]
    shares = class_counts(one, labels) / 20
    assert shares.mean() == pytest.approx(0.1)
    assert shares.var() == pytest.approx(0.09 * (1 / 7 + (1 - 1 / 7) / 20), rel=0.1)
    two = drawn(PAM(clients=200, alpha=1e6, beta=0.6), samples(labels, groups=labels // 5))[:50]
    counts = class_counts(two, labels).reshape(50, 2, 5)
    within = counts / counts.sum(2, keepdims=True)
    together = [np.corrcoef(within[:, 0, k], within[:, 1, k])[0, 1] for k in range(5)]
    assert abs(np.mean(together)) < 0.3


def test_pam_keeps_a_clients_other_proportions_when_a_coarse_label_is_exhausted():
    """Three coarse labels of one class each: image 0 of class 0, images 1 to 3 of class 1, 4 and 5 of class 2.

    Client 0 has proportions 1/2, 1/2, 0: u 0.3 takes image 0, the only one of its class; renormalised 0, 1, 0, its
    other draws take the last images of class 1, 3 and 2. Client 1 has 0, 1 over the two classes left, takes 5 and 4,
    and, as nothing of its classes is left, draws a new tree over class 1, whose image 1 it takes.
    """
    labels = np.array([0, 1, 1, 1, 2, 2])
    trees = [[0.5, 0.5, 0], [1], [1], [1], [0, 1], [1], [1], [1], [1]]
    # Each image takes two draws: its coarse label, and the fine one within it.
    stream = Script(dirichlet=trees, random=[0.3, 0, 0.1, 0, 0.9, 0, 0.1, 0, 0.9, 0, 0.5, 0])
    split = PAM(clients=2).split(samples(labels, groups=labels), stream)
    assert [indices.tolist() for indices in split] == [[0, 2, 3], [1, 4, 5]]
    assert stream.all_drawn()


def test_pam_needs_a_coarse_label_per_class():
    with pytest.raises(
        UserError, match=r"pam needs coarse labels, which this data set lacks \(cifar100_pam has them\)"
    ):
        drawn(PAM(clients=5), samples(LABELS))
    with pytest.raises(UserError, match="one coarse label per class, but class 3 has 2"):
        drawn(PAM(clients=5), samples(LABELS, groups=np.where(LABELS == 3, np.arange(len(LABELS)) % 2, 7)))


def test_by_group_has_one_client_per_group():
    groups = np.array([7, 3, 7, 11, 3, 7])
    split = drawn(ByGroup(clients=3), samples(np.zeros(6, np.int64), groups))
    assert [indices.tolist() for indices in split] == [[1, 4], [0, 2, 5], [3]]
    with pytest.raises(UserError, match="by_group with 4 clients, but the data set has 3 groups"):
        drawn(ByGroup(clients=4), samples(np.zeros(6, np.int64), groups))
    with pytest.raises(UserError, match="by_group needs groups"):
        drawn(ByGroup(clients=4), samples(LABELS))


def test_by_group_divides_each_group_among_its_clients():
    groups = np.arange(100) % 3 * 10
    split = drawn(ByGroup(clients=12, clients_per_group=4), samples(np.zeros(100, np.int64), groups))
    assert [np.unique(groups[indices]).tolist() for indices in split] == [[10 * (k // 4)] for k in range(12)]
    assert sorted(np.concatenate(split)) == list(range(100))
    assert {len(indices) for indices in split} <= {8, 9}
    other = drawn(ByGroup(clients=12, clients_per_group=4), samples(np.zeros(100, np.int64), groups), seed=1)
    assert partition_hash(split) != partition_hash(other)
    one = drawn(ByGroup(clients=3, clients_per_group=1), samples(np.zeros(100, np.int64), groups))
    assert partition_hash(one) == partition_hash(drawn(ByGroup(clients=3), samples(np.zeros(100, np.int64), groups)))
    message = r"by_group with 10 clients, but the data set has 3 groups with 4 clients each \(allowed: 12 clients\)"
    with pytest.raises(UserError, match=message):
        drawn(ByGroup(clients=10, clients_per_group=4), samples(np.zeros(100, np.int64), groups))
    with pytest.raises(UserError, match="120 clients for 100 training images"):
        drawn(ByGroup(clients=120, clients_per_group=40), samples(np.zeros(100, np.int64), groups))
