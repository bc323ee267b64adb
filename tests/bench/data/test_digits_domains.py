"""Digits in several styles: real images with real labels, each in one domain."""

import numpy as np
import pytest

from fedflat.bench.data.partitions.by_group import ByGroup
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.digits import read_digits
from fedflat.bench.data.sources.digits_domains import STYLES
from fedflat.bench.experiments.sections.scale import at_smoke_scale
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from tests.bench.data.image_copies import ENTRIES


def digits(domain: str, domains: int = 6):
    return parse_source({"name": "digits_domains", "test_domain": domain, "domains": domains}).load()


def test_each_digit_belongs_to_one_domain():
    grey, labels, _ = read_digits()
    sizes = []
    for number, style in enumerate(STYLES):
        data = digits(style)
        assert set(data.test.groups) == {number}
        assert set(data.train.groups) == set(range(6)) - {number}
        assert len(data.train) + len(data.test) == len(grey) == 1797
        assert np.bincount(data.test.labels, minlength=10).min() >= 28
        assert data.image_shape == (3, 8, 8)
        assert data.test.images.max() <= 16
        sizes.append(len(data.test))
    assert sum(sizes) == 1797
    plain = digits("plain").test
    assert (plain.images == plain.images[:, :1]).all()
    known = {image.tobytes(): label for image, label in zip(grey, labels, strict=True)}
    assert [known[image[0].tobytes()] for image in plain.images] == plain.labels.tolist()


def test_styles_differ_from_the_plain_digits():
    styles = {style: digits(style).test.images for style in STYLES}
    mean = {style: images.mean() for style, images in styles.items()}
    assert mean["inverted"] == pytest.approx(16 - mean["plain"], abs=0.3)
    assert mean["thick"] > 1.3 * mean["plain"]
    assert styles["blurred"].std() < 0.8 * styles["plain"].std()
    assert (styles["coloured"] != styles["coloured"][:, :1]).any((1, 2, 3)).all(), "each image has a colour"
    assert (styles["rotated"] == styles["rotated"][:, :1]).all()


def test_fewer_domains_are_the_first_ones():
    data = digits("inverted", domains=4)
    assert len(np.unique(data.train.groups)) == 3
    with pytest.raises(UserError, match=r"with domains: 4 'plain' \(allowed: blurred, coloured, inverted, rotated\)"):
        digits("plain", domains=4)
    with pytest.raises(UserError, match="unknown domain of digits_domains 'turned'"):
        digits("turned")


@pytest.mark.parametrize("name", ["officehome", "domainnet", "pacs", "vlcs"])
def test_at_smoke_scale_digits_have_as_many_domains_and_the_same_split(name):
    number = 6 if name == "domainnet" else 4
    partition = {"name": "by_group", "clients": 10 * (number - 1), "clients_per_group": 10}
    config = smoke({"name": name, **ENTRIES[name]}, partition)
    assert config["partition"] == partition
    data = parse_source(config["dataset"]).load()
    split = ByGroup.parse(config["partition"]).split(data.train, numpy_stream(0, "partition"))
    assert all(len(set(data.train.groups[indices])) == 1 for indices in split)
    held_out = {domain: smoke({"name": name, "test_domain": domain}, partition)["dataset"] for domain in known(name)}
    assert len({str(dataset) for dataset in held_out.values()}) == number
    assert smoke(config["dataset"], partition)["dataset"] == config["dataset"]


def test_at_smoke_scale_authors_become_a_dirichlet_split():
    config = smoke({"name": "landmarks_user_160k"}, {"name": "by_group", "clients": 1262, "clients_per_group": None})
    assert config["dataset"] == {"name": "digits"}
    assert config["partition"] == {"name": "dirichlet", "alpha": 1.0, "clients": 200}


def known(name: str) -> tuple[str, ...]:
    return parse_source({"name": name, **ENTRIES[name]}).known()


def smoke(dataset: dict, partition: dict) -> dict:
    return at_smoke_scale(
        {
            "dataset": dataset,
            "model": "vit_b_32",
            "partition": partition,
            "participation": {"active": 6},
            "method": {"hyperparameters": {}},
            "training": {"rounds": 8, "lr": 0.1},
            "evaluation": {"validation": None, "snapshot_every": None, "local_models": None},
        }
    )
