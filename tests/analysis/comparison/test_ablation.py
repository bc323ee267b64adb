"""The variants of a method without each of its parts, and the table of what each part brings."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedflat.analysis.comparison.ablation import WITHOUT, variants
from fedflat.analysis.comparison.report.tables import tables
from fedflat.analysis.comparison.report.text import as_text
from fedflat.analysis.planning.workflow import Workflow
from fedflat.bench.experiments.schema import MethodEntry
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Server
from fedflat.bench.methods.recipe import Components
from fedflat.conformance.template import write_template
from tests.analysis.comparison.frames import compared, complete_runs


def test_each_part_with_a_base_is_left_out_once() -> None:
    found = variants("fedspeed", {"hyperparameters": {"rho": 0.1, "lam": 0.1}})
    assert list(found) == [f"fedspeed{WITHOUT}{part}" for part in ("rho", "alpha", "server")]
    rho, _, server = (MethodEntry.parse(entry) for entry in found.values())
    assert (rho.title, rho.hyperparameters["rho"], rho.search["rho"]) == ("FedSpeed without rho", 0, None)
    recipe = server.choice("any").recipe
    assert recipe.components.server is Components().server
    assert recipe.components.correction.name == "feddyn"
    assert issubclass(recipe.components.server, Server)


def test_a_component_that_others_need_stays() -> None:
    """SCAFFOLD's server keeps the control variate that its correction adds."""
    assert list(variants("fedgamma", {"hyperparameters": {"rho": 0.1}})) == [f"fedgamma{WITHOUT}rho"]
    with pytest.raises(UserError, match="scaffold has no part that an ablation could leave out"):
        variants("scaffold", {})


def test_what_each_part_brings_is_a_table_of_its_own() -> None:
    levels = {"fedavg": 80.0, "mine": 85.0, "mine-without-rho": 80.0, "mine-without-server": 85.0}
    rows = complete_runs(levels)
    is_variant = rows["method"].str.contains(WITHOUT)
    whole = compared(rows[~is_variant])
    assert "ablation" not in [table.name for table in tables(whole)]
    shown = replace(whole, ablation=replace(whole, rows=rows[rows["method"] != "fedavg"]))
    [table] = [table for table in tables(shown) if table.name == "ablation"]
    found = {row[0]: row for row in table.rows}
    assert set(found) == {"MINE-WITHOUT-RHO", "MINE-WITHOUT-SERVER"}
    assert found["MINE-WITHOUT-RHO"][-2] == "better"
    assert 4 < float(found["MINE-WITHOUT-RHO"][2]) < 6
    assert found["MINE-WITHOUT-SERVER"][-2] == "cannot tell"
    assert "What each part brings. Differences of test accuracy (%), MINE minus its variant" in as_text(shown, False)


def test_the_target_compare_trains_the_variants_alike(tmp_path: Path) -> None:
    own = write_template(tmp_path / "idea.py")
    config = {"grid": "quick", "method": str(own), "results": str(tmp_path / "results"), "trials": 3}
    compared_method = Workflow.of({**config, "ablation": True}).compared
    assert compared_method is not None
    experiment = compared_method.experiment.experiment
    assert list(experiment.methods) == ["idea", "idea-without-rho"]
    fixed = {run.method.hyperparameters["rho"] for path in experiment.paths() if "without" in path
             for run in experiment.cell(path).runs}  # fmt: skip
    assert fixed == {0}
    with pytest.raises(UserError, match=r"--config ablation=maybe \(allowed: true, false\)"):
        Workflow.of({**config, "ablation": "maybe"})
