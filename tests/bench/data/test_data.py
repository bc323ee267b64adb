"""Data sets, partitions, participation and batches."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.data.partitions.dirichlet import Dirichlet
from fedflat.bench.data.partitions.even import IID
from fedflat.bench.data.partitions.pathological import Pathological
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.engine.batches import EpochBatches, LocalSteps, StepBatches
from fedflat.bench.engine.participation import Participation, active_clients
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream, torch_seed
from tests.bench.data.labelled import samples

TRAIN = Digits().load().train
LABELS = TRAIN.labels


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    data, original = Digits().load(), load_digits()
    assert len(data.train.images) + len(data.test.images) == len(original.images) == 1797
    together = sorted(image.tobytes() for part in (data.train.images, data.test.images) for image in part)
    assert together == sorted(image.astype(np.uint8).tobytes() for image in original.images)
    assert np.bincount(data.train.labels).min() >= 87
    assert data.train.images.dtype == np.uint8


def test_digits_are_normalised_on_the_device():
    train, _ = Digits().load().on(torch.device("cpu"))
    x, y = next(train.batches(len(train)))
    assert x.shape == (901, 1, 8, 8)
    assert abs(float(x.mean())) < 1e-3
    assert abs(float(x.std()) - 1) < 1e-3
    assert torch.equal(x, (train.images - train.shift) * train.factor)
    some = torch.tensor([5, 3])
    assert torch.equal(train.batch(some)[0], x[some])
    assert torch.equal(train.batch(some)[1], y[some])


equal_partitions = st.one_of(
    st.builds(IID, clients=st.integers(1, 60)),
    st.builds(Dirichlet, clients=st.integers(1, 60), alpha=st.sampled_from([0.001, 0.1, 0.6, 100.0])),
)


@settings(max_examples=30, deadline=None)
@example(partition=Dirichlet(clients=22, alpha=0.001), seed=29)  # proportions of 5e-324
@given(partition=equal_partitions, seed=st.integers(0, 100))
def test_partitions_use_every_image_once_in_equal_shares(partition, seed):
    split = partition.split(TRAIN, numpy_stream(seed, "partition"))
    sizes = [len(indices) for indices in split]
    assert sorted(np.concatenate(split)) == list(range(len(LABELS)))
    assert max(sizes) - min(sizes) <= 1
    again = partition.split(TRAIN, numpy_stream(seed, "partition"))
    assert partition_hash(split) == partition_hash(again)


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 60), k=st.integers(1, 10), seed=st.integers(0, 100))
def test_pathological_clients_hold_their_classes_and_no_others(clients, k, seed):
    split = Pathological(clients=clients, classes_per_client=k).split(TRAIN, numpy_stream(seed, "p"))
    held = [np.unique(LABELS[indices]) for indices in split]
    assert all(len(classes) == k for classes in held)
    used = np.concatenate(split)
    assert len(np.unique(used)) == len(used), "an image is used twice"
    assert set(LABELS[used]) == set(np.concatenate(held))
    assert len(used) == sum(int((c == LABELS).sum()) for c in set(np.concatenate(held).tolist()))
    holders = np.bincount(np.concatenate(held), minlength=10)
    assert holders.max() - holders.min() <= 1


def class_entropy(partition, seed=0) -> float:
    shares = [np.bincount(LABELS[i], minlength=10) / len(i) for i in partition.split(TRAIN, numpy_stream(seed, "p"))]
    return float(np.mean([-(s[s > 0] * np.log(s[s > 0])).sum() for s in shares]))


def test_smaller_alpha_is_more_heterogeneous():
    entropies = [class_entropy(Dirichlet(clients=20, alpha=a)) for a in (0.05, 0.1, 0.6, 10, 1000)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > 2.1
    assert entropies[0] < 1


def test_dirichlet_proportions_are_the_clients_own():
    """While no class is exhausted, counts follow a client's own Dirichlet draw: their variance is that of Dir(α)."""
    labels = np.repeat(np.arange(10), 5000)
    split = Dirichlet(clients=250, alpha=0.6).split(samples(labels), numpy_stream(1, "p"))
    early = np.array([np.bincount(labels[i], minlength=10) / len(i) for i in split])
    assert early.mean() == pytest.approx(0.1)
    expected = 0.1 * 0.9 / (10 * 0.6 + 1)
    assert early.var() == pytest.approx(expected, rel=0.2)


def test_more_classes_than_there_are_is_refused():
    with pytest.raises(UserError, match=r"11 classes per client, but the data set has 10 \(allowed: 1 to 10\)"):
        Pathological(clients=20, classes_per_client=11).split(TRAIN, numpy_stream(0, "p"))


def test_a_client_without_images_is_refused():
    labels = np.repeat(np.arange(2), [2, 50])
    with pytest.raises(UserError, match="leaves one of 10 clients without images"):
        Pathological(clients=10, classes_per_client=1).split(samples(labels), numpy_stream(0, "p"))


def test_more_clients_than_images_is_refused():
    with pytest.raises(UserError, match="902 clients for 901 training images"):
        IID(clients=902).split(TRAIN, numpy_stream(0, "p"))


def test_fixed_participation_is_a_function_of_seed_and_round():
    fixed = Participation(active=4)
    schedule = [active_clients(fixed, 20, 0, t) for t in range(200)]
    assert schedule == [active_clients(fixed, 20, 0, t) for t in range(200)]
    assert all(len(set(active)) == 4 and active == sorted(active) for active in schedule)
    assert schedule[1:] != [active_clients(fixed, 20, 1, t) for t in range(199)], "seed + round must not repeat"
    counts = np.bincount(np.concatenate(schedule), minlength=20)
    assert counts.min() > 20
    assert counts.sum() == 800


def test_bernoulli_participation_is_never_empty():
    rare = Participation(sampling="bernoulli", probability=0.05)
    sizes = [len(active_clients(rare, 20, 0, t)) for t in range(300)]
    assert min(sizes) == 1
    assert np.mean(sizes) == pytest.approx(20 * 0.05 / (1 - 0.95**20), rel=0.15)


def test_epochs_cover_a_clients_data_and_are_reshuffled():
    split = [np.arange(100, 110), np.arange(7)]
    steps = EpochBatches(split, epochs=2, batch_size=4, seed=0)(0, 3)
    assert [len(s) for s in steps] == [4, 4, 2, 4, 4, 2]
    first, second = torch.cat(steps[:3]), torch.cat(steps[3:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(100, 110))
    assert first.tolist() != second.tolist()
    assert first.tolist() != torch.cat(EpochBatches(split, 2, 4, 0)(0, 4)[:3]).tolist(), "rounds differ"


def test_step_batches_make_exactly_the_steps_requested():
    steps = StepBatches([np.arange(10)], steps=7, batch_size=4, seed=0)(0, 0)
    assert [len(s) for s in steps] == [4, 4, 2, 4, 4, 2, 4]


@pytest.mark.parametrize(("n", "sizes"), [(9, [8]), (16, [8, 8]), (23, [8, 8]), (8, [8]), (7, [7]), (1, [1])])
def test_a_short_last_batch_is_dropped_unless_it_is_the_only_one(n, sizes):
    split = [np.arange(n)]
    dropping = EpochBatches(split, epochs=2, batch_size=8, seed=0, drop_last=True)
    assert [len(batch) for batch in dropping(0, 0)] == 2 * sizes
    kept = EpochBatches(split, epochs=1, batch_size=8, seed=0)(0, 0)
    assert all(torch.equal(*pair) for pair in zip(dropping(0, 0), kept[: len(sizes)], strict=False)), "the same order"
    assert sorted(torch.cat(dropping.one_pass(0)).tolist()) == list(range(n))


@given(
    steps=st.integers(1, 20),
    epochs=st.booleans(),
    batch=st.none() | st.integers(1, 9),
    n=st.integers(1, 20),
    drop_last=st.booleans(),
)
def test_counts_of_steps_and_images_are_those_of_the_batches(steps, epochs, batch, n, drop_last):
    local = LocalSteps(**{"epochs" if epochs else "steps": steps}, batch_size=batch, drop_last=drop_last)
    batches = local.sampler([np.arange(n)], seed=0)(0, 0)
    assert local.count(n) == len(batches)
    assert local.images(n) == sum(map(len, batches))


def test_streams_differ_by_every_part_of_their_key():
    keys = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", 1, 1), (0, "a", 11)]
    assert len({torch_seed(*key) for key in keys}) == len(keys)
