"""How an experiment chooses a method: free compositions, hyper-parameters, released variants, and SWA."""

import json

import pytest

from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.files import read_yaml
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.input.errors import UserError
from tests.bench.methods.test_user_file import SETTING, written
from tests.places import ROOT


def composed(hyperparameters: dict | None = None, **components: str) -> MethodConfig:
    return MethodConfig.parse({**components, "hyperparameters": hyperparameters or {}})


def test_names_that_clash_are_given_once_or_by_slot():
    """FedSpeed's mixture and FedCM's momentum both call their weight alpha."""
    components = {"perturbation": "mixed_sam", "correction": "fedcm"}
    both = composed({"rho": 0.1, "alpha": 0.3}, **components)
    method = both.recipe.build(both.hyperparameters)
    assert (method.perturbation.alpha, method.correction.alpha) == (0.3, 0.3)
    apart = composed({"rho": 0.1, "perturbation.alpha": 0.5, "correction.alpha": 0.3}, **components)
    method = apart.recipe.build(apart.hyperparameters)
    assert (method.perturbation.alpha, method.correction.alpha) == (0.5, 0.3)
    mixed = composed({"rho": 0.1, "alpha": 0.3, "perturbation.alpha": 0.5}, **components)
    assert mixed.recipe.build(mixed.hyperparameters) == method
    with pytest.raises(UserError, match=r"mixed_sam \+ fedcm needs alpha"):
        composed({"rho": 0.1, "perturbation.alpha": 0.5}, **components)
    with pytest.raises(UserError, match=r"did you mean 'correction.alpha'"):
        composed({"rho": 0.1, "corection.alpha": 0.5}, **components)
    with pytest.raises(UserError, match="unknown hyper-parameter"):
        composed({"perturbation.rho": 0.1, "alpha": 0.5}, **components)
    with pytest.raises(UserError, match=r"unknown hyper-parameter .* 'server.alpha'"):
        composed({"rho": 0.1, "alpha": 0.25, "server.alpha": 1}, **components)


def test_a_default_of_one_component_is_not_another_components_requirement():
    """mixed_sam's alpha is 1 unless given, fedcm's must be given; the default is filled in where it belongs."""
    method = composed({"rho": 0.1, "correction.alpha": 0.3}, perturbation="mixed_sam", correction="fedcm")
    assert method.hyperparameters == {"rho": 0.1, "correction.alpha": 0.3, "perturbation.alpha": 1.0}
    built = method.recipe.build(method.hyperparameters)
    assert (built.perturbation.alpha, built.correction.alpha) == (1.0, 0.3)


def entry(label: str, value: dict, **changes) -> RunConfig:
    data = read_yaml(ROOT / "paper_tables/quick/experiments.yaml")
    return Experiment.parse({**data, "methods": {label: value}, **changes}).cell(f"{SETTING}/{label}").runs[0]


def test_released_expands_and_the_cell_keeps_its_place():
    run = entry("fedlesam_s", {"variant": "released", "hyperparameters": {"rho": 0.1}})
    values = run.method.hyperparameters
    assert (values["estimate"], values["correction_weight"], values["rho"]) == ("released_literal", 0.1, 0.1)
    assert (run.training.clip, run.training.lr_decay, run.training.aggregation) == (10.0, 0.998, "uniform")
    assert (run.participation.sampling, run.participation.probability, run.participation.active) == (
        "bernoulli", 0.2, None,
    )  # fmt: skip
    published = entry("fedlesam_s", {"hyperparameters": {"rho": 0.1}})
    assert published.participation.active == 4
    assert published.identity != run.identity
    assert RunConfig.parse(json.loads(run.canonical_json())) == run


def test_explicit_values_go_before_the_bundles():
    given = {"rho": 0.1, "correction_weight": 0.5}
    run = entry(
        "lesam", {"name": "fedlesam_s", "variant": "released", "hyperparameters": given, "training": {"clip": 3}}
    )
    assert (run.method.hyperparameters["correction_weight"], run.training.clip) == (0.5, 3.0)
    assert run.method.hyperparameters["estimate"] == "released_literal"


def test_a_variant_is_one_of_the_catalogs(tmp_path):
    file = str(written(tmp_path) / "my_method.py")
    with pytest.raises(UserError, match="unknown variant of fedsam 'relesed'; did you mean 'released'"):
        entry("fedsam", {"variant": "relesed", "hyperparameters": {"rho": 0.1}})
    for value in ({"file": file}, {"perturbation": "sam"}):
        with pytest.raises(UserError, match="only methods of the catalog have a variant 'released'"):
            entry("x", {**value, "variant": "released", "hyperparameters": {"rho": 0.1}})


def test_a_label_with_swa_needs_swa():
    values = {"rho": 0.3, "eta_a": 0.2}
    with pytest.raises(UserError, match=r"fedasam\+swa: its hyperparameters need swa, for example {cycle: 5}"):
        entry("fedasam+swa", {"hyperparameters": values})
    run = entry("fedasam+swa", {"hyperparameters": {**values, "swa": {"cycle": 5}}})
    assert run.method.name == "fedasam"
    assert run.method.hyperparameters["swa"] == {"start": 22, "cycle": 5, "lr_end": 1e-4, "collect": "end"}


@pytest.mark.parametrize(("rounds", "start"), [(30, 22), (40, 30), (1, 0)])
def test_swa_begins_after_three_quarters(rounds, start, tmp_path):
    file = str(written(tmp_path) / "my_method.py")
    training = {"rounds": rounds, "local_epochs": 1, "batch_size": 16, "lr": 0.1}
    for value in ({"name": "fedavg"}, {"file": file}, {"perturbation": "sam"}):
        rho = {} if "name" in value else {"rho": 0.1}
        run = entry("x", {**value, "hyperparameters": {**rho, "swa": {"cycle": 2}}}, training=training)
        assert run.method.hyperparameters["swa"]["start"] == start
    chosen = {"name": "fedavg", "hyperparameters": {"swa": {"cycle": 2, "start": 0}}}
    assert entry("x", chosen, training=training).method.hyperparameters["swa"]["start"] == 0
