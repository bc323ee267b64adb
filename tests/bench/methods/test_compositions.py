"""Every legal perturbation × correction × server runs and survives a checkpoint; illegal ones are refused."""

import itertools
import math

import pytest
import torch

from fedflat.bench.engine.checkpoint import load_state, save_state
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.schema import MethodEntry
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Perturbation
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import SLOTS, compose
from fedflat.bench.methods.recipe import Components
from tests.problems import Problem, distance
from tests.tiers import case

TRIPLES = list(itertools.product(*(SLOTS[slot] for slot in ("perturbation", "correction", "server"))))
KEEPS_DUALS = {"feddyn", "feddc", "fedgmt", "fedtoga"}
NEEDS_DUALS = {"feddyn", "fedgloss"}
LEGAL = [
    triple
    for triple in TRIPLES
    if (triple[2] not in NEEDS_DUALS or triple[1] in KEEPS_DUALS)
    and (triple[0] != "fedwmsam" or triple[1] == "fedwmsam")
]


def chosen(triple: tuple[str, str, str], loss: str = "cross_entropy") -> dict[str, str]:
    return {**dict(zip(("perturbation", "correction", "server"), triple, strict=True)), "loss": loss}


def test_the_counts():
    assert len(TRIPLES) == 13 * 14 * 11
    assert len(LEGAL) == 12 * (14 * 9 + 4 * 2) + 9


PAIRS = [
    case(perturbation, correction, quick=not (k + n) % 5)
    for k, perturbation in enumerate(SLOTS["perturbation"])
    for n, correction in enumerate(SLOTS["correction"])
]
"""A fifth of them, in which each component is, is not thorough."""


@pytest.mark.parametrize(("perturbation", "correction"), PAIRS)
def test_two_rounds_of_every_server(perturbation, correction, tmp_path):
    """Finite results, and after a checkpoint round trip in between the same bits."""
    problem = Problem(11)
    for server in [s for p, c, s in LEGAL if (p, c) == (perturbation, correction)]:
        recipe = compose(chosen((perturbation, correction, server)))
        federation = problem.federation(recipe, example(recipe))
        state = federation.start(federation.objective.initial())
        first, second = problem.some()[:2]
        state, _ = federation.run_round(state, first)
        save_state(tmp_path / f"{server}.safetensors", state, {})
        after, measured = federation.run_round(state, second)
        reloaded, _ = load_state(tmp_path / f"{server}.safetensors", state.w.device)
        again, _ = federation.run_round(reloaded, second)
        assert torch.isfinite(after.w).all(), server
        assert math.isfinite(measured["local_loss"])
        assert torch.equal(after.w, again.w), server
        assert after.server.keys() == again.server.keys()
        assert all(torch.equal(after.server[name], again.server[name]) for name in after.server)
        assert all(torch.equal(v, again.clients[i][n]) for i, vs in after.clients.items() for n, v in vs.items())


@pytest.mark.parametrize("loss", ["relaxed_contrastive", "affine_shift"])
@pytest.mark.parametrize(
    "triple", [("sam", "scaffold", "momentum"), ("toga", "fedtoga", "feddyn"), ("gf", "prox", "adam")]
)
def test_other_losses_compose_too(loss, triple):
    recipe = compose(chosen(triple, loss))
    run = Problem(3).run(recipe, example(recipe))
    assert all(bool(torch.isfinite(w).all()) for w in run.global_params)


@pytest.mark.parametrize(
    ("label", "entry", "title", "same"),
    [
        ("fedsam", {"loss": "hard_pixels"}, "FedSAM + hard_pixels", {"perturbation": "sam", "loss": "hard_pixels"}),
        ("fedavg", {"loss": "hard_pixels"}, "FedAvg + hard_pixels", {"loss": "hard_pixels"}),
        ("mine", {"name": "feddyn", "perturbation": "sam"}, "FedDyn + sam",
         {"perturbation": "sam", "correction": "feddyn", "server": "feddyn"}),
        ("fedsam", {"perturbation": "sam", "correction": "scaffold"}, "FedSAM + scaffold",
         {"perturbation": "sam", "correction": "scaffold"}),
        ("fedsam", {"perturbation": "sam"}, "FedSAM", {"perturbation": "sam"}),
        ("mine", {"perturbation": "sam"}, "sam", {"perturbation": "sam"}),
    ],
)  # fmt: skip
def test_a_method_of_the_catalog_takes_components_in_its_free_slots(label, entry, title, same):
    recipe = MethodEntry.parse(entry).choice(label).recipe
    assert (recipe.title, recipe.components) == (title, compose(same).components)


def test_a_variant_has_no_other_components():
    entry = MethodEntry.parse({"name": "fedsam", "loss": "hard_pixels", "variant": "released"})
    with pytest.raises(UserError, match="only methods of the catalog have a variant 'released'"):
        entry.release("mine")


WITHOUT_DUALS = [t for t in TRIPLES if t[2] in NEEDS_DUALS and t[1] not in KEEPS_DUALS]


@pytest.mark.parametrize("triple", WITHOUT_DUALS[::16])
def test_a_server_without_its_duals_is_refused(triple):
    with pytest.raises(UserError) as error:
        compose(chosen(triple))
    assert f"server {triple[2]} needs a correction that stores H" in str(error.value)
    assert "(allowed: feddc, feddyn, fedgmt, fedtoga)" in str(error.value)


@pytest.mark.parametrize("correction", sorted(SLOTS["correction"]))
def test_feddyns_server_takes_corrections_with_duals(correction):
    if correction in KEEPS_DUALS:
        assert compose({"correction": correction, "server": "feddyn"}).components.correction.name == correction
        return
    with pytest.raises(UserError) as caught:
        compose({"correction": correction, "server": "feddyn"})
    message = f"server feddyn needs a correction that stores H, which {correction} does not (allowed: feddc, feddyn"
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ({"perturbation": "sham"}, "unknown perturbation 'sham'; did you mean 'sam'?"),
        ({"optimiser": "adam"}, "unknown component of a method 'optimiser'"),
        ({"perturbation": "asamm"}, "unknown perturbation 'asamm'; did you mean 'asam'"),
        ({"server": "asam"}, "unknown server 'asam'"),
    ],
)
def test_unknown_components_are_reported(components, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        compose(components)


def test_a_component_that_lacks_its_equation_is_reported():
    class Nowhere(Perturbation):
        name = "nowhere"

    with pytest.raises(UserError, match=r"^Nowhere is a perturbation without delta\(\.\.\.\)$"):
        Components(Nowhere)


def test_every_method_of_the_catalog_is_a_legal_composition():
    for entry in CATALOG.values():
        names = {slot: component.name for slot, component in entry.components.by_slot().items()}
        assert compose(names).components == entry.components
    assert compose({}).components == Components()


# Caldarola et al. 2022, Table 6: ASAM or SAM under other servers and regularisers, as named methods of the catalog.
SAME = [
    ({"perturbation": "asam"}, "fedasam", {"rho": 0.5, "eta_a": 0.2}),
    ({"server": "momentum"}, "fedavgm", {"beta": 0.9}),
    ({"correction": "prox"}, "fedprox", {"lam": 0.1}),
    ({"perturbation": "sam", "correction": "scaffold"}, "fedgamma", {"rho": 0.1}),
    ({"perturbation": "lesam", "correction": "feddyn", "server": "feddyn"}, "fedlesam_d", {"rho": 0.1, "lam": 0.2}),
]


@pytest.mark.parametrize(("components", "name", "values"), SAME, ids=lambda v: v if isinstance(v, str) else "")
def test_a_composition_is_the_named_method(components, name, values):
    composed, named = (Problem(5).run(method, values) for method in (compose(components), name))
    assert all(torch.equal(a, b) for a, b in zip(composed.global_params, named.global_params, strict=True))


CALDAROLA_TABLE_6 = [
    ({"perturbation": "asam", "server": "momentum"}, {"rho": 0.5, "eta_a": 0.2, "beta": 0.9}),
    ({"perturbation": "asam", "correction": "prox"}, {"rho": 0.5, "eta_a": 0.2, "lam": 0.1}),
    ({"perturbation": "asam", "correction": "scaffold"}, {"rho": 0.5, "eta_a": 0.2}),
    ({"perturbation": "sam", "correction": "feddyn", "server": "feddyn"}, {"rho": 0.1, "lam": 0.01}),
    ({"perturbation": "asam", "correction": "adabest", "server": "adabest"},
     {"rho": 0.5, "eta_a": 0.2, "mu": 0.02, "beta": 0.8}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("components", "values"), CALDAROLA_TABLE_6, ids=lambda v: "+".join(v.values()) if "rho" not in v else ""
)
def test_combinations_of_caldarolas_table_6_differ_from_their_base(components, values):
    base = {slot: name for slot, name in components.items() if slot != "perturbation"}
    base_values = {name: value for name, value in values.items() if name not in ("rho", "eta_a")}
    flat, plain = Problem(2).run(compose(components), values), Problem(2).run(compose(base), base_values)
    assert not torch.allclose(flat.global_params[-1], plain.global_params[-1])
    still = Problem(2).run(compose(components), {**values, "rho": 0.0})
    assert distance(still, plain) < 1e-10


@pytest.mark.parametrize("server", [s for p, c, s in LEGAL if (p, c) == ("none", "dp_fedsam")])
def test_every_server_gets_the_noise(server):
    """Also one that steps by the mean direction."""
    recipe, after = compose(chosen(("none", "dp_fedsam", server))), []
    literal = {"server_step": "literal"} if "server_step" in recipe.hyperparameters else {}
    for sigma in (0, 1):
        federation = Problem(11).federation(recipe, {**example(recipe), **literal, "dp_noise": sigma})
        after.append(federation.run_round(federation.start(federation.objective.initial()), [0, 3])[0].w)
    assert float((after[0] - after[1]).abs().max()) > 1e-3


@pytest.mark.parametrize("perturbation", ["toga", "gf"])
def test_the_server_computes_from_what_was_sent(perturbation):
    """FedTOGA's last update A, and FedGF's indicator: sent updates are shorter than T_D, the clients' are longer."""
    values = {"dp_clip": 1e-3, "rho": 0.1} | {"gf": {"rho_g": 0.1, "W": 3, "T_D": 5e-3}}.get(perturbation, {})
    recipe = compose(chosen((perturbation, "dp_fedsam", "average")))
    federation = Problem(11).federation(recipe, {**example(recipe), **values})
    state = federation.start(federation.objective.initial())
    results = federation.train_clients(state, [0, 3]).values()
    after, measured = federation.run_round(state, [0, 3])
    assert measured["client_drift"] > 5e-3
    if perturbation == "toga":
        mean = -sum((result.model - state.w) / result.steps for result in results) / 2
        torch.testing.assert_close(after.server["A"], mean)
    else:
        assert after.server["indicators"].tolist() == [0]


def test_duals_that_are_sent_reveal_the_update():
    """FedTOGA's A is that of w_i⁺, although clients send w_i⁺ + H_i."""
    recipe = compose(chosen(("sam", "fedtoga", "feddyn")))
    federation = Problem(11).federation(recipe, {**example(recipe), "server_dual": "active"})
    state = federation.start(federation.objective.initial())
    for _ in range(2):
        results = federation.train_clients(state, [0, 3]).values()
        mean = -sum((result.w - state.w) / result.steps for result in results) / 2
        state, _ = federation.run_round(state, [0, 3])
        torch.testing.assert_close(state.server["A"], mean)
