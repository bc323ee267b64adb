"""What smoke scale keeps of segmentation and of trained weights: buffers, splits by domain, a rate that learns."""

import numpy as np
import pytest
import torch

from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.digit_scenes import STYLES
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.scale import RATE, at_smoke_scale
from fedflat.bench.methods.common.buffers import BUFFERS
from fedflat.bench.training.run_setup import RunSetup

CPU = torch.device("cpu")


def run(paper: str, cell: str) -> RunConfig:
    return load_experiment(paper, {"scale": "smoke"}).cell(cell).runs[0]


def domains_of_clients(config: RunConfig) -> list[set[int]]:
    setup = RunSetup.build(config, CPU)
    return [set(setup.dataset.train.groups[indices].tolist()) for indices in setup.split]


@pytest.mark.parametrize("part", ["cityscapes", "idda_country", "idda_rainy"])
def test_splits_of_scenes_are_those_of_the_paper(part):
    """Uniform clients have scenes of all domains; a heterogeneous one scenes of one domain, and each domain clients."""
    clients = {"cityscapes": (146, 144), "idda_country": (90, 90), "idda_rainy": (69, 69)}[part]
    uniform = domains_of_clients(run("fedsam_caldarola", f"{part}_uniform/by_group/5-of-{clients[0]}/fedavg"))
    assert all(len(domains) > 1 for domains in uniform)
    mixed = [len(domains) for domains in uniform]
    assert np.mean(mixed) > 3.9
    for kind, method in (("heterogeneous", "fedavg"), ("silobn", "silobn")):
        own = domains_of_clients(run("fedsam_caldarola", f"{part}_{kind}/by_group/5-of-{clients[1]}/{method}"))
        assert len(own) == len(uniform) == 20
        unseen = "inverted" if part == "idda_rainy" else "blue"
        assert own[::5] == [{number} for number, name in enumerate(STYLES) if name != unseen]
        assert all(len(domains) == 1 for domains in own)


def test_statistics_of_batchnorm_are_averaged_or_stay_with_the_clients():
    """A round of Table 8's rows: what is sent, and what clients keep."""
    found = {}
    for part, method in (("cityscapes_heterogeneous", "fedavg"), ("cityscapes_silobn", "silobn")):
        setup = RunSetup.build(run("fedsam_caldarola", f"{part}/by_group/5-of-144/{method}"), CPU)
        state = setup.federation.start(setup.objective.initial())
        state, row = setup.federation.run_round(state, setup.active(state)[:2])
        found[method] = row["upload"], [list(own) for own in state.clients.values()]
    assert found["fedavg"][0] > 1
    assert found["fedavg"][1] == []
    assert found["silobn"] == (1, [[BUFFERS], [BUFFERS]])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("bisenet_v2", {"name": "fcn_bn", "buffers": "average"}),
        ({"name": "bisenet_v2", "buffers": "local"}, {"name": "fcn_bn", "buffers": "local"}),
        ({"name": "bisenet_v2", "buffers": {"local": ["*.bn.*"]}}, {"name": "fcn_bn", "buffers": "local"}),
        ({"name": "bisenet_v2", "norm": "group"}, "fcn_gn"),
        ({"name": "bisenet_v2", "weights": "/no/such/file.pt"}, {"name": "fcn_bn", "buffers": "average"}),
        ("fcn_gn", "fcn_gn"),
    ],
    ids=str,
)
def test_the_small_network_has_batchnorm_if_the_paper_s_has_it(model, expected):
    assert smoke("cityscapes", model)["model"] == expected


@pytest.mark.parametrize(
    ("model", "lr", "expected"),
    [
        ({"name": "vit_b_32", "weights": "imagenet"}, 0.001, RATE),
        ({"name": "vit_b_32", "weights": "imagenet"}, 0.5, 0.5),
        ({"name": "vit_b_32", "weights": None}, 0.001, 0.001),
        ("vit_b_32", 0.001, 0.001),
    ],
    ids=str,
)
def test_random_weights_in_place_of_trained_ones_get_a_rate_that_learns(model, lr, expected):
    assert smoke({"name": "officehome", "test_domain": "art"}, model, lr)["training"]["lr"] == expected


def test_one_may_still_choose_another_rate():
    cell = "officehome_art_1/by_group/all-of-3/fedavg"
    assert run("fedlesam", cell).training.lr == RATE
    given = load_experiment("fedlesam", {"scale": "smoke", "training.lr": 0.03})
    assert given.cell(cell).runs[0].training.lr == 0.03


def smoke(dataset: object, model: object, lr: float = 0.1) -> dict:
    return at_smoke_scale(
        {
            "dataset": parse_source(dataset),
            "model": model,
            "partition": {"name": "by_group", "clients": 3, "clients_per_group": None},
            "participation": {"active": 2},
            "method": {"hyperparameters": {}},
            "training": {"rounds": 8, "lr": lr},
            "evaluation": {"validation": None, "snapshot_every": None, "local_models": None},
        }
    )
