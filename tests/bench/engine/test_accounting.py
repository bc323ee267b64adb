"""Costs are counted from what flows; FedLESAM's Table 7 and FedGF's Table 3 are reproduced by running the methods."""

import pandas as pd
import pytest
import torch

from fedflat.bench.engine.accounting import model_sizes, sent_size
from fedflat.bench.engine.method_costs import example, measured_costs
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import compose

COSTS = {name: measured_costs(entry, example(entry)) for name, entry in CATALOG.items()}

# Client state, server state, download, upload, gradients per step, in the second round of all clients.
EXPECTED = {
    **dict.fromkeys(["fedavg", "fedprox", "fedrcl"], (0, 0, 1, 1, 1)),
    **dict.fromkeys(["fedsam", "fedasam"], (0, 0, 1, 1, 2)),
    **dict.fromkeys(["fedavgm", "fedacg"], (0, 1, 1, 1, 1)),
    **dict.fromkeys(["fedadam", "fedadagrad", "fedyogi"], (0, 2, 1, 1, 1)),
    "scaffold": (1, 1, 2, 2, 1),
    "feddyn": (1, 1, 1, 1, 1),
    "feddc": (2, 2, 2, 2, 1),
    "fedcm": (0, 1, 2, 1, 1),
    "mimelite": (0, 1, 2, 2, 2),  # one epoch of local steps, and one pass
    "adabest": (1, 1, 1, 1, 1),
    "mofedsam": (0, 1, 2, 1, 2),
    "fedgamma": (1, 1, 2, 2, 2),
    "fedsmoo": (2, 2, 2, 2, 2),
    "fedspeed": (1, 1, 1, 1, 2),
    "fedlesam": (1, 0, 1, 1, 1),
    "fedlesam_s": (2, 1, 2, 2, 1),
    "fedlesam_d": (2, 1, 1, 1, 1),
    "fedgf": (0, 1, 2, 1, 2),
    "fedtoga": (1, 2, 2, 1, 2),
    "dp_fedsam": (0, 0, 1, 1, 2),
    "fedgloss": (1, 2, 1, 1, 2),
    "fedgmt": (1, 2, 2, 1, 1),
    "fedswa": (0, 0, 1, 1, 1),
    "fedmoswa": (1, 1, 2, 2, 1),
    "fedwmsam": (1, 2, 3, 1, 1),
    "fednsam": (0, 1, 1, 1, 2),
    "fedscam": (0, 1, 2, 1, 2.75),  # one epoch of four local steps, and three mini-batches
}
COLUMNS = ["client_state", "server_state", "download", "upload", "gradients"]


def published(paper: str, table: str) -> pd.DataFrame:
    return pd.read_csv(PAPER_TABLES / paper / "published" / f"{table}.csv")


def test_every_method_is_expected_but_fedrobust():
    """FedRobust's input shift is as large as the inputs, not as the model."""
    assert set(EXPECTED) == set(CATALOG) - {"fedrobust"}


@pytest.mark.parametrize("method", EXPECTED)
def test_counted_costs(method):
    """Windows of numbers, such as FedGF's indicators, are far below a hundredth of a model at these sizes."""
    assert [COSTS[method][column] for column in COLUMNS] == pytest.approx(EXPECTED[method], abs=0.03)


@pytest.mark.parametrize(
    ("method", "switches", "changed"),
    [
        ("fedspeed", {"server_dual": "active"}, {"server_state": 0, "upload": 1}),
        ("fedtoga", {"direction": "neighbour"}, {"gradients": 1}),
        ("fedtoga", {"direction": "fusion"}, {"gradients": 2}),
        ("fedlesam", {"estimate": "released_intent"}, {"client_state": 0, "download": 2, "server_state": 1}),
        ("fedsmoo", {"regulariser": False}, {"client_state": 1, "server_state": 1}),
        ("fedspeed", {"alpha": 0.5}, {"gradients": 2}),
        ("fedspeed", {"alpha": 0.0}, {"gradients": 1}),
        ("fedgmt", {}, {"teacher_passes": 1}),
        ("fedgmt", {"weight_kl": 0}, {"teacher_passes": 0}),
        ("fedgmt", {"server_dual": "active"}, {"server_state": 1}),
        ("fedmoswa", {"control": "gradient"}, {"gradients": 2}),
        ("fednsam", {"ascent": "momentum"}, {"download": 2, "gradients": 1}),
    ],
)
def test_switches_change_what_flows(method, switches, changed):
    costs = measured_costs(CATALOG[method], {**example(CATALOG[method]), **switches})
    assert {name: costs[name] for name in changed} == pytest.approx(changed, abs=0.03)


def test_losses_of_pixels_cost_what_those_of_images_do():
    entry = compose({"perturbation": "sam", "loss": "hard_pixels"})
    assert measured_costs(entry, example(entry)) == COSTS["fedsam"]


def test_fedgfs_table_3_is_reproduced_in_every_cell():
    rows = published("fedgf", "table_03")
    assert len(rows) == 18
    for row in rows.itertuples():
        direction = row.variant.split("direction=")[1].split(";")[0]
        costs = COSTS[row.method]
        counted = {**costs, "total": costs["upload"] + costs["download"]}[direction]
        assert counted == pytest.approx(row.value, abs=0.01), (row.method, direction)


# What FedLESAM's Table 7 prints, and what is counted: two cells differ.
NOT_REPRODUCED = {
    # 1 model + 2 + 2 vectors: H_i and μ_i of a client, H̄ and s of the server; the table seems to leave one out.
    ("fedsmoo", "stored_memory_x"): 5,
    # Its dual is updated from the models alone, as FedTOGA's Table 4 says too (1x); the table counts a second vector.
    ("fedlesam_d", "comm_cost_x"): 1,
}


def test_fedlesams_table_7_is_reproduced_but_for_two_cells():
    """Memory: the model, a client's and the server's vectors. Communication: 1x, or 2x for anything more."""
    differing = {}
    rows = published("fedlesam", "table_07")
    assert len(rows) == 24
    for row in rows.itertuples():
        costs = COSTS[row.method]
        counted = {
            "stored_memory_x": 1 + costs["client_state"] + costs["server_state"],
            "comm_cost_x": 1.0 if costs["download"] == costs["upload"] == 1 else 2.0,
            "backprop_x": costs["gradients"],
        }[row.metric]
        if counted != row.value:
            differing[row.method, row.metric] = counted
    assert differing == NOT_REPRODUCED


def test_single_numbers_are_not_counted():
    vectors = {"v": torch.zeros(10), "c": torch.tensor(0.5)}
    assert sent_size([torch.zeros(10)], [vectors], 10, lambda name, v: None) == 2
    assert model_sizes([torch.zeros(5), torch.zeros(1)], 10) == 0.5
