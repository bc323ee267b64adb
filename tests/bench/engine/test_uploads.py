"""Uploads and downloads that declare their bits: the documented method, sizes that depend on the content, tables."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedflat.analysis.measures.cost import per_round, spending
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.method_costs import example
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Correction, Server
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.corrections.scaffold import ControlVariates
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.user_file import recipe_from_file
from tests.documents import PAGES
from tests.problems import Problem, distance

PROBLEM, P = Problem(1), 43


@pytest.fixture
def top_k(tmp_path) -> Recipe:
    PAGES["docs/adding_a_method.md"].write_files(tmp_path)
    file = tmp_path / "mine" / "top_k.py"
    trust(file.read_bytes())
    return recipe_from_file(file)


def test_the_documented_method_sends_a_part_of_each_update(top_k):
    """k numbers of 32 bits with positions of 6 bits; what is not sent is kept, so that nothing is lost."""
    k = round(0.2 * P)
    federation = PROBLEM.federation(top_k, {"share": 0.2})
    state = federation.start(federation.objective.initial())
    for t, active in enumerate(PROBLEM.some()):
        before = {i: state.clients[i]["error"] if i in state.clients else torch.zeros(P) for i in active}
        results = federation.train_clients(state, active)
        for i, result in results.items():
            sent = result.model - state.w
            assert int(sent.count_nonzero()) == k
            torch.testing.assert_close(sent + result.state["error"], result.w - state.w + before[i])
        one, measured = federation.run_round(state, active, backend=Loop())
        other, in_a_cohort = federation.run_round(state, active, backend=Cohort())
        torch.testing.assert_close(one.w, other.w)
        assert measured["upload"] == in_a_cohort["upload"] == pytest.approx(k * (32 + 6) / (32 * P)), t
        assert measured["download"] == 1
        state = one
    whole, plain = PROBLEM.run(top_k, {"share": 1}), PROBLEM.run("fedavg")
    assert distance(whole, plain) < 1e-12
    assert whole.history["upload"].tolist() == pytest.approx([38 / 32] * 4)
    assert plain.history["upload"].tolist() == [1] * 4


class Thresholded(ControlVariates):
    """Sends the numbers of the update that are above a threshold, in 64 bits each, and its control in 8 bits."""

    name = "thresholded"

    def uploaded_model(self, w, client):
        update = w - client.w_global
        return client.w_global + torch.where(update.abs() > 0.02, update, 0)

    def upload_bits(self, name, v):
        return 64 * v.count_nonzero() if name == "model" else 8 * len(v)


class HalfPrecision(Server):
    """Sends its model in 16 bits."""

    name = "half"

    def download_bits(self, name, v):
        return 16 * len(v) if name == "model" else None

    def step(self, server):
        return server.mean_model


SPARSE = Recipe("sparse", "Sparse", "a test", Components(correction=Thresholded, server=HalfPrecision))


def test_sizes_may_depend_on_the_content_and_differ_between_vectors():
    federation = PROBLEM.federation(SPARSE, {})
    state = federation.start(federation.objective.initial())
    results = federation.train_clients(state, [0, 3])
    kept = [int((result.model - state.w).count_nonzero()) for result in results.values()]
    assert len({0, P, *kept}) == 4
    _, measured = federation.run_round(state, [0, 3])
    assert measured["upload"] == pytest.approx(2 * sum(kept) / 2 / P + 8 / 32)
    assert measured["download"] == 0.5 + 1  # SCAFFOLD's control is dense


def test_tables_count_what_was_declared(top_k):
    """Gigabytes of all clients, and models per client: those of FedAvg are 2 per round."""
    times = pd.DataFrame({"round": [1, 2, 3, 4], "train_seconds": 1.0, "evaluation_seconds": 1.0})
    history = PROBLEM.run(top_k, {"share": 0.2}).history
    upload = round(0.2 * P) * 38 / (32 * P)
    spent = spending(history, times, P, dict.fromkeys(range(1, 5), 10))
    assert spent["transmissions"].iloc[-1] == pytest.approx(4 * (1 + upload))
    assert spent["gigabytes"].iloc[-1] == pytest.approx(2 * 4 * (1 + upload) * 4 * P / 1e9)
    costs = per_round(history, times, P)
    assert costs["uploads_per_round"] == pytest.approx(upload)
    assert costs["transmissions_per_round"] == pytest.approx(1 + upload)


def test_sizes_may_be_numbers_of_numpy():
    class Sized(Correction):
        name = "sized"

        def upload_bits(self, name, v):
            return np.int64(8 * v.numel())

    history = PROBLEM.run(Recipe("sized", "Sized", "a test", Components(correction=Sized))).history
    assert history["upload"].tolist() == [8 / 32] * len(history)


def declaring(bits: object) -> Recipe:
    class Declared(Correction):
        name = "declared"

        def upload_bits(self, name, v):
            return bits

    return Recipe("declared", "Declared", "a test", Components(correction=Declared))


ALLOWED = r"\(allowed: a number of at least 0, or None\)"


@pytest.mark.parametrize("bits", [-1, math.nan, "many", True, 10**400, torch.zeros(2), np.float32(-1)])
def test_wrong_sizes_are_one_line(bits):
    with pytest.raises(UserError, match=rf"declared: upload_bits of 'model' = .* {ALLOWED}"):
        PROBLEM.run(declaring(bits))


@pytest.mark.parametrize("bits", [-1, math.nan, math.inf])
def test_wrong_sizes_on_the_device_are_one_line(bits):
    """Also if only one of the clients declares it."""

    class Sometimes(Correction):
        name = "sometimes"

        def upload_bits(self, name, v):
            return torch.where(v[0] == largest, bits, 1e6)

    recipe = Recipe("sometimes", "Sometimes", "a test", Components(correction=Sometimes))
    federation = PROBLEM.federation(recipe, {})
    state = federation.start(federation.objective.initial())
    largest = max((result.w - state.w)[0] for result in federation.train_clients(state, [0, 3]).values())
    with pytest.raises(UserError, match=rf"sometimes: upload_bits is negative, infinite or not a number {ALLOWED}"):
        federation.run_round(state, [0, 3])


@pytest.mark.parametrize("bits", [np.int64(43 * 8), np.float32(43 * 8), torch.tensor(43 * 8), 43 * 8])
def test_a_size_may_be_any_kind_of_number(bits):
    assert PROBLEM.run(declaring(bits)).history["upload"].tolist() == [0.25] * 4


class HalfOfAll(Server):
    """Sends all its vectors in 16 bits, and gets uploads of 8 bits."""

    name = "half of all"

    def download_bits(self, name, v):
        return 16 * len(v)

    def upload_bits(self, name, v):
        return 8 * len(v)

    def step(self, server):
        return server.mean_model


@pytest.mark.parametrize(
    ("method", "download", "upload"), [("fedwmsam", 3 / 2, 1 / 4), ("fedscam", 1, 1 / 4), ("fedgf", 1, 1 / 4)]
)
def test_single_numbers_are_not_counted(method, download, upload):
    """FedWMSAM's α has no dimension, FedSCAM's uploads have one: their hooks are not called for them."""
    own = SLOTS["perturbation"]["gf" if method == "fedgf" else method]
    correction = SLOTS["correction"]["fedwmsam" if method == "fedwmsam" else "none"]
    recipe = Recipe("half", "Half", "a test", Components(own, correction, HalfOfAll))
    history = PROBLEM.run(recipe, example(recipe)).history
    assert (history["download"].iloc[-1], history["upload"].iloc[-1]) == (download, upload)
