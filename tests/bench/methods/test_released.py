"""The bundles behind `variant: released`: what they say, and that every one of them can be run."""

import math

import pytest
import torch

from fedflat.bench.engine.federation import Federation
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG, recipe
from fedflat.bench.methods.released import RELEASES, release
from fedflat.bench.methods.swa import SWA
from tests.problems import Problem

BUNDLES = [pytest.param(m, code, id=f"{m}-{code}") for m, codes in RELEASES.items() for code in codes]
SHORT_NAMES = {
    "fl_simulator": "woodenchild95/FL-Simulator",
    "fedlesam": "MediaBrain-SJTU/FedLESAM",
    "official_fedgf": "hwan-sig/Official-FedGF",
    "caldarola": "debcaldarola/fedsam",
    "feddc": "gaoliang13/FedDC",
    "fedacg": "geehokim/FedACG",
    "fedrcl": "skynbe/FedRCL",
    "fedsim": "varnio/fedsim",
    "dp_fedsam": "YMJS-Irfan/DP-FedSAM",
    "fedgloss": "pietrocagnasso/fedgloss",
    "fedgmt": "harrylee999/FL-SAM",
    "fedswa": "junkangLiu0/FedSWA",
    "fedswa_may": "junkangLiu0/FedSWA",
    "fedwmsam": "Huang-Yongzhi/NeurlPS_FedWMSAM",
    "fednsam": "junkangLiu0/FedNSAM",
    "fednsam_march": "junkangLiu0/FedNSAM",
}
WITHOUT_CODE = ["fedyogi", "mimelite", "fedrobust", "fedtoga", "fedscam"]


def using(code: str) -> set[str]:
    return {method for method, codes in RELEASES.items() if code in codes}


def required(method: str, bundle: dict) -> dict:
    """Values for what a method needs and the bundle leaves to the experiment."""
    fields = recipe(method).hyperparameters
    return {n: info.examples[0] for n, info in fields.items() if info.is_required() and n not in bundle}


def trained(federation: Federation, problem: Problem, rounds: int = 2) -> torch.Tensor:
    state = federation.start(federation.objective.initial())
    for active in problem.some()[:rounds]:
        state, _ = federation.run_round(state, active)
    return federation.evaluated(state)


def test_every_method_has_a_code_or_is_known_to_have_none():
    assert sorted([*RELEASES, *WITHOUT_CODE]) == sorted(CATALOG)


@pytest.mark.parametrize(("method", "code"), BUNDLES)
def test_the_short_name_is_the_repositorys(method, code):
    assert RELEASES[method][code].repository == SHORT_NAMES[code]


@pytest.mark.parametrize(("method", "code"), BUNDLES)
def test_the_method_takes_the_switches_and_they_depart_from_its_defaults(method, code):
    given = RELEASES[method][code].hyperparameters
    recipe(method).build(required(method, given) | given)
    fields = recipe(method).hyperparameters
    assert [name for name, value in given.items() if fields[name].default == value] == []


@pytest.mark.parametrize(("method", "code"), BUNDLES)
def test_training_is_settings_of_steps(method, code):
    settings = RELEASES[method][code].training
    steps = StepSettings.parse({"lr": 0.1, **settings})
    known = steps.model_dump()
    for name, value in settings.items():
        assert known[name] == ({**known[name], **value} if isinstance(value, dict) else value), name
    assert {"lr", "weight_decay", "server_lr"}.isdisjoint(settings), "papers' settings live with their experiments"


@pytest.mark.parametrize(("method", "code"), BUNDLES)
def test_faults_are_one_line_each(method, code):
    faults = RELEASES[method][code].not_covered
    assert all(fault and "\n" not in fault for fault in faults)
    assert len(set(faults)) == len(faults)


@pytest.mark.parametrize(("method", "code"), BUNDLES)
def test_two_rounds_stay_finite_and_the_switches_act(method, code):
    """With a clip that acts, so that all of a bundle's settings are at work."""
    problem, bundle = Problem(3), RELEASES[method][code]
    base = {"rho": 0.3, "lam": 0.2} | required(method, {})
    base = {name: value for name, value in base.items() if name in recipe(method).hyperparameters}
    training = dict(bundle.training) | ({"clip": 0.3} if bundle.training.get("clip") else {})
    w = trained(problem.federation(method, base | dict(bundle.hyperparameters), **training), problem)
    assert w.isfinite().all()
    if bundle.hyperparameters:
        published = trained(problem.federation(method, base, **training), problem)
        assert not torch.allclose(w, published, rtol=0, atol=1e-6)
    if training.get("prox_split"):
        whole = problem.federation(method, base | dict(bundle.hyperparameters), **training | {"prox_split": False})
        assert not torch.allclose(w, trained(whole, problem), rtol=0, atol=1e-6)


def test_fedlesam_s_as_released():
    bundle = release("fedlesam_s", "released")
    assert bundle.hyperparameters == {"estimate": "released_literal", "correction_weight": 0.1}
    assert bundle.training == {"clip": 10.0, "lr_decay": 0.998, "aggregation": "uniform"}
    assert (bundle.sampling, bundle.report) == ("bernoulli", "best")


@pytest.mark.parametrize("method", ["fedlesam", "fedlesam_s", "fedlesam_d"])
def test_the_authors_of_fedlesam_shift_tensors_by_single_numbers(method):
    assert release(method, "released").hyperparameters["estimate"] == "released_literal"


def test_the_simulators_split_the_proximal_term_and_nobody_else_does():
    splitting = {(m, c) for m, codes in RELEASES.items() for c, b in codes.items() if b.training.get("prox_split")}
    assert splitting == {
        ("fedprox", "fl_simulator"),
        ("feddyn", "fl_simulator"),
        ("feddyn", "fedlesam"),
        ("fedsmoo", "fl_simulator"),
        ("fedspeed", "fl_simulator"),
        ("fedlesam_d", "fedlesam"),
    }


@pytest.mark.parametrize("code", ["fl_simulator", "fedlesam"])
def test_the_simulators_protocol_holds_for_all_their_methods(code):
    for method in using(code):
        bundle = RELEASES[method][code]
        shared = {name: value for name, value in bundle.training.items() if name != "prox_split"}
        assert shared == {"clip": 10.0, "lr_decay": 0.998, "aggregation": "uniform"}
        assert (bundle.sampling, bundle.report) == ("bernoulli", "best")


@pytest.mark.parametrize("code", ["official_fedgf", "caldarola"])
def test_the_others_neither_clip_nor_decay(code):
    for method in using(code):
        bundle = RELEASES[method][code]
        assert (bundle.training["clip"], bundle.training["lr_decay"]) == (None, 1.0)
        assert (bundle.sampling, bundle.report) == ("fixed", "mean_last_100")


@pytest.mark.parametrize(
    ("method", "variant", "cosine"),
    [
        ("fedswa", "fedswa", True),
        ("fedmoswa", "fedswa", True),
        ("fedswa", "fedswa_may", False),
        ("fednsam", "fednsam", True),
        ("fednsam", "fednsam_march", True),
    ],
)
def test_the_later_scripts_of_fedswa_ignore_the_decay(method, variant, cosine):
    """In an experiment with a decay: the rate of round t is (1 + cos(π t/T))/2 times the given one."""
    experiment = load_experiment("quick_catalog", {f"methods.{method}.variant": f"released:{variant}"})
    [run, *_] = experiment.cell(f"digits/dirichlet-0.1/4-of-20/{method}").runs
    training, rounds = run.training, run.training.rounds
    factors = [(1 + math.cos(math.pi * t / rounds)) / 2 if cosine else 0.998**t for t in range(rounds)]
    assert [training.round_rate(t, rounds) / training.lr for t in range(rounds)] == pytest.approx(factors)


def test_fedgfs_code_weighs_clients_method_by_method():
    weighing = {m: RELEASES[m]["official_fedgf"].training["aggregation"] for m in using("official_fedgf")}
    by_samples = {m for m, rule in weighing.items() if rule == "samples"}
    assert by_samples == {"fedsam", "fedasam", "fedgf", "fedsmoo", "fedavgm"}
    assert set(weighing) - by_samples == {"fedavg", "fedprox", "feddyn", "scaffold", "fedgamma", "mofedsam"}


def test_fedgfs_fedsmoo_has_no_dual():
    assert release("fedsmoo", "released:official_fedgf").hyperparameters == {"regulariser": False}
    assert release("fedsmoo", "released").hyperparameters == {"s_rule": "mu_only"}


def test_fedgfs_feddyn_is_plain_sgd_with_a_server_dual():
    """Its own recursion: clients as in FedAvg; h ← h − (α/N) Σ Δ_i, and w = mean w_i − h/α, for any α."""
    problem, alpha = Problem(5), 0.37
    fedavg = problem.federation("fedavg", {})
    state = fedavg.start(fedavg.objective.initial())
    h = torch.zeros_like(state.w)
    for t, active in enumerate(problem.some()[:3]):
        models = torch.stack([row.w for row in fedavg.train_clients(state, active).values()])
        h = h - alpha / problem.clients * (models - state.w).sum(0)
        state = fedavg.start(models.mean(0) - h / alpha)
        state.round = t + 1
    bundle = release("feddyn", "released:official_fedgf")
    w = trained(problem.federation("feddyn", dict(bundle.faults), **bundle.training), problem, rounds=3)
    assert torch.allclose(w, state.w, rtol=0, atol=1e-12)


def test_fedacgs_weight_is_half_of_lam():
    """∂/∂w of 1e-3 ‖w − a‖² is 2e-3 (w − a)."""
    assert release("fedacg", "released").hyperparameters["lam"] == 2 * 1e-3


def test_adaptive_servers_as_released():
    assert release("fedadam", "released").hyperparameters == {"init_v": "zero", "tau": 0.01}
    assert release("fedadam", "released:caldarola").hyperparameters == {
        "init_v": "zero",
        "tau": 0.1,
        "bias_correction": True,
    }
    assert release("fedadagrad", "released").hyperparameters == {"init_v": "zero", "tau": 0.01}


def test_swa_of_caldarolas_code_wraps_only_what_is_wrapped():
    bundle = release("fedasam", "released")
    assert "swa" not in bundle.hyperparameters
    assert SWA(start=1, cycle=2, **bundle.swa).collect == "release"
    assert all(not b.swa for codes in RELEASES.values() for name, b in codes.items() if name != "caldarola")


@pytest.mark.parametrize(
    ("method", "code"),
    [
        *((own, own) for own in ("feddc", "fedacg", "fedrcl", "fedlesam")),
        *((own, own) for own in ("dp_fedsam", "fedgloss", "fedgmt", "fedswa", "fedwmsam", "fednsam")),
        ("fedmoswa", "fedswa"),
        ("adabest", "fedsim"),
        ("fedgf", "official_fedgf"),
        ("fedsmoo", "fl_simulator"),
        ("fedspeed", "fl_simulator"),
        ("fedlesam_s", "fedlesam"),
        ("fedlesam_d", "fedlesam"),
        ("fedsam", "caldarola"),
        ("fedasam", "caldarola"),
        *((m, "fl_simulator") for m in ("fedavg", "fedadam", "fedprox", "scaffold", "feddyn", "fedcm")),
        *((m, "fl_simulator") for m in ("mofedsam", "fedgamma")),
    ],
)
def test_released_means_the_authors_code_or_else_fl_simulators(method, code):
    assert release(method, "released") is RELEASES[method][code]
    assert release(method, f"released:{code}") is RELEASES[method][code]


def one_line(method: str, variant: str) -> str:
    with pytest.raises(UserError) as error:
        release(method, variant)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_variant_names_the_known_ones():
    message = one_line("fedsmoo", "released:oficial_fedgf")
    assert "did you mean 'released:official_fedgf'?" in message
    assert "(allowed: released, released:fl_simulator, released:official_fedgf)" in message


def test_a_code_without_the_method_is_no_variant():
    assert "unknown variant of fedgamma 'released:fedlesam'" in one_line("fedgamma", "released:fedlesam")


@pytest.mark.parametrize("method", WITHOUT_CODE)
def test_a_method_without_code_has_no_released_variant(method):
    message = one_line(method, "released")
    assert message.startswith(f"{method} has no variant 'released'")
    assert "fedsmoo" in message


def test_an_unknown_method_is_reported_as_everywhere():
    assert "did you mean 'fedsam'?" in one_line("fedsamm", "released")


def test_constants_of_the_code_of_fedmoswa_replace_given_values():
    values = {variant: release("fedmoswa", variant).faults for variant in ("released", "released:fedswa_may")}
    assert values == {
        "released": {"lr_ratio": 1.0, "control_rate": 0.4},
        "released:fedswa_may": {"control_rate": 0.1},
    }
