"""Triples of components: which are legal, the same, or published; and what their entries in an experiment contain."""

from pathlib import Path

import pytest

from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.recipe import Components
from studies.compositions.entries import GridEntries
from studies.compositions.files import write_best, write_screening
from studies.compositions.triples import (
    AXES,
    NEUTRAL,
    SAME,
    Triple,
    all_triples,
    compositions,
    published,
    why_left_out,
)
from tests.bench.methods.test_compositions import KEEPS_DUALS, NEEDS_DUALS
from tests.problems import Problem

OTHERS = Triple("sam", "feddyn", "momentum")
SETTING = "dirichlet-0.1/4-of-20"


def test_every_triple_is_a_composition_or_left_out_for_a_stated_reason() -> None:
    """It is legal if its server has the duals that it needs, and counts once if two components do the same."""
    for triple in all_triples():
        reason = why_left_out(triple)
        repeated = [name for slot, name in triple._asdict().items() if name in SAME.get(slot, {})]
        if repeated:
            assert reason is not None
            assert f"{repeated[0]} does the same as" in reason
        elif triple.perturbation == "fedwmsam" and triple.correction != "fedwmsam":
            assert reason is not None
            assert "needs the correction fedwmsam" in reason or "needs a correction that stores H" in reason
        elif triple.server in NEEDS_DUALS and triple.correction not in KEEPS_DUALS:
            assert reason is not None
            assert "needs a correction that stores H" in reason
        else:
            assert reason is None
            assert triple in compositions()
    assert len(all_triples()) == 13 * 14 * 11
    assert len(compositions()) == len(set(compositions())) == 8 * (14 * 7 + 4 * 2) + 7
    assert len({triple.label for triple in compositions()}) == len(compositions())


@pytest.mark.parametrize("slot", AXES)
def test_components_do_the_same_only_where_stated(slot: str) -> None:
    """The same bits after four rounds, in which every client takes part twice; GF interpolates by a constant."""
    problem = Problem(11)
    found: dict[str, bytes] = {}
    for name in SLOTS[slot]:
        needed = {"correction": "fedwmsam"} if (slot, name) == ("perturbation", "fedwmsam") else {}
        recipe = OTHERS._replace(**{slot: name}, **needed).recipe
        values = example(recipe) | ({"c": 0.5} if name == "gf" else {})
        found[name] = problem.run(recipe, values).global_params[-1].numpy().tobytes()
    groups = {tuple(name for name in found if found[name] == bits) for bits in found.values()}
    others = SAME.get(slot, {})
    stated = {tuple(sorted([other, *(n for n in others if others[n] == other)])) for other in set(others.values())}
    assert {tuple(sorted(group)) for group in groups if len(group) > 1} == stated


def test_methods_of_the_catalog_are_recognised() -> None:
    known = published()
    for recipe in CATALOG.values():
        triple = Triple.of(recipe)
        if recipe.name in ("fedrcl", "fedrobust", "fedgmt"):
            assert triple is None, "their loss is no part of a triple"
        else:
            assert triple is not None
            assert triple in compositions()
            assert known[triple] == recipe.title
    assert known[Triple("sam", "feddyn", "feddyn")] == "FedSpeed", "mixed_sam at its default is sam"
    assert known[Triple("none", "fedcm", "average")] == "FedCM"
    assert known[Triple("sam", "none", "look_ahead")] == "FedNSAM", "its default switches are SAM and FedACG's server"
    assert known[Triple("asam", "scaffold", "average")] == "SCAFFOLD + ASAM", "published in Caldarola et al."
    assert "bench1d" in experiment_names()
    assert len([triple for triple in compositions() if triple in known]) == 37


def test_a_component_of_a_user_is_no_triple() -> None:
    class Own(SLOTS["perturbation"]["sam"]):  # type: ignore[misc]
        name = "sam"

    recipe = CATALOG["fedsam"].__class__("own", "Own", "", Components(perturbation=Own))
    assert Triple.of(recipe) is None
    assert Triple.of(CATALOG["fedavg"]) == NEUTRAL


@pytest.fixture(scope="module")
def sources() -> GridEntries:
    return GridEntries.of(load_experiment("bench1d", {}))


@pytest.mark.parametrize(
    ("triple", "hyperparameters", "training"),
    [
        # rho of FedSAM, not of FedGAMMA, which has a correction, too; the server and its rate are FedAdam's
        (Triple("sam", "none", "adam"), {"rho": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}, {"server_lr": 0.01}),
        (Triple("lesam", "prox", "momentum"), {"rho": 0.01, "lam": 0.1, "beta": 0.9}, None),
        (Triple("none", "fedtoga", "look_ahead"), {"lam": 0.1, "correction.beta": 0.9, "server.beta": 0.85}, None),
        (Triple("smoo", "scaffold", "average"), {"rho": 0.1}, None),
    ],
)
def test_values_are_those_of_the_methods_with_the_fewest_components(
    sources: GridEntries, triple: Triple, hyperparameters: dict[str, float], training: dict[str, float] | None
) -> None:
    entry = sources.entry(triple)
    assert entry is not None
    assert Triple(*(entry[slot] for slot in AXES)) == triple
    assert (entry.get("hyperparameters"), entry.get("training")) == (hyperparameters, training)


def test_a_grid_without_a_component_gives_its_examples() -> None:
    entry = GridEntries.of(load_experiment("quick", {})).entry(Triple("none", "adabest", "momentum"))
    assert entry is not None
    assert entry["hyperparameters"] == {"mu": 0.02, "beta": 0.9}


@pytest.mark.parametrize("grid", ["bench1d", "quick"])
def test_the_screening_has_every_composition_once_with_values_that_build(grid: str, tmp_path: Path) -> None:
    setting = "dirichlet_by_class-0.1/5-of-50" if grid == "bench1d" else SETTING
    file = tmp_path / "screening.yaml"
    assert write_screening(grid, setting, None, None, file) == len(compositions())
    experiment, base = load_experiment(str(file), {}), load_experiment(grid, {})
    cells = [experiment.cell(path) for path in experiment.paths()]
    triples = [Triple.of(cell.runs[0].method.recipe) for cell in cells]
    assert sorted(map(str, triples)) == sorted(map(str, compositions()))
    assert experiment.name == f"{grid}_screening"
    assert experiment.training.rounds == base.training.rounds // 2
    assert experiment.tuning.seed not in (*base.grid.seeds, base.grid.seeds[0] + 1000)
    for label in set(experiment.methods) & set(base.methods):
        assert experiment.methods[label] == base.methods[label]
    assert all(cell.runs[0].method.built is not None for cell in cells)


def test_an_experiment_of_some_triples_has_all_settings(tmp_path: Path) -> None:
    file = tmp_path / "composed.yaml"
    write_best("quick", [OTHERS, Triple("none", "prox", "look_ahead")], file)
    experiment, base = load_experiment(str(file), {}), load_experiment("quick", {})
    assert list(experiment.methods) == ["sam+feddyn+momentum", "none+prox+look_ahead"]
    assert list(experiment.settings) == list(base.settings)
    assert (experiment.grid.seeds, experiment.training) == (base.grid.seeds, base.training)
    assert experiment.tuning == base.tuning


def test_another_setting_or_several_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown setting of experiment quick 'dirichlet-0\.1/5-of-20'"):
        write_screening("quick", "dirichlet-0.1/5-of-20", None, None, tmp_path / "s.yaml")
    with pytest.raises(UserError, match="has several parts"):
        write_screening("fedtoga", SETTING, None, None, tmp_path / "s.yaml")
    assert not list(tmp_path.iterdir())
