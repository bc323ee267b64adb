"""Analyses of real runs in bf16: the stated difference from fp32 is that of the tables."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import ANALYSES, parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.measures.forward_passes import DIFFERENCES, spread
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from tests.places import MINI
from tests.problems import train

CPU = torch.device("cpu")
BY_FORWARD_PASSES = {"surface", "plane", "local_plane", "interpolation", "perturbation", "flatness", "corruptions"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of FedSAM, four rounds on digits, trained in bf16."""
    values = {"training.precision": "bf16", "engine.backend": "loop"}
    config = load_experiment(MINI, values).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    return train(config, tmp_path_factory.mktemp("runs") / "run", CPU)


def of(run: RunDirectory, name: str, options: Mapping[str, Any]) -> pd.DataFrame:
    return parse_analysis(name, options).of_run(AnalysedRun(run, CPU))


def test_these_analyses_have_the_option() -> None:
    assert {name for name, analysis in ANALYSES.items() if "precision" in analysis.model_fields} == BY_FORWARD_PASSES
    for name in ("hessian", "sharpness", "discrepancy", "drift"):
        with pytest.raises(UserError, match="precision"):
            parse_analysis(name, {"precision": "bf16"})
    with pytest.raises(UserError, match=r"fp32.*bf16"):
        parse_analysis("surface", {"precision": "tf32"})


@pytest.mark.parametrize("evaluator", ["fedflat", "loss_landscapes"])
@pytest.mark.parametrize(("name", "points"), [("surface", 9), ("local_plane", 12), ("interpolation", 8)])
def test_a_landscape_states_its_difference_from_fp32(
    name: str, points: int, evaluator: str, trained: RunDirectory
) -> None:
    """The largest at five points of each sample; points by the package differ further by its own rounding."""
    size = {"steps": 5, "beyond": 1} if name == "interpolation" else {"points": 3}
    options = {**size, "images": 300, "evaluator": evaluator}
    fp32 = of(trained, name, options)
    bf16 = of(trained, name, {**options, "precision": "bf16"})
    assert fp32.columns.intersection(DIFFERENCES).empty
    pd.testing.assert_frame_equal(bf16[["loss", "error"]], fp32[["loss", "error"]], rtol=0.03, atol=1)
    assert (bf16["loss"] != fp32["loss"]).all()
    checked = [start + i for start in range(0, len(fp32), points) for i in spread(points)]
    gap = (bf16["loss"] - fp32["loss"]).abs()[checked]
    stated = bf16[list(DIFFERENCES)].drop_duplicates()
    assert len(stated) == 1
    assert stated["checked"].item() == len(checked)
    rounding = 2e-5 * fp32["loss"].max()
    assert stated["loss_difference"].item() == pytest.approx(gap.max(), abs=rounding)
    relative = (gap / fp32["loss"][checked]).max()
    assert stated["relative_loss_difference"].item() == pytest.approx(relative, abs=1e-4)
    errors = (bf16["error"] - fp32["error"]).abs()[checked]
    assert stated["error_difference"].item() == pytest.approx(errors.max(), abs=100 / 300 * (evaluator != "fedflat"))


def test_only_the_lpf_of_flatness_is_computed_in_bf16(trained: RunDirectory) -> None:
    """Sharpness has the same bits."""
    fp32, bf16 = (of(trained, "flatness", {"draws": 5, "precision": precision}) for precision in ("fp32", "bf16"))
    assert bf16["value"][1] == fp32["value"][1]
    assert bf16["value"][0] != fp32["value"][0]
    assert bf16[list(DIFFERENCES)].notna().all(axis=1).tolist() == [True, False]
    assert abs(bf16["value"][0] - fp32["value"][0]) <= bf16["loss_difference"][0], "all five draws were checked"


def test_directions_are_those_of_fp32(trained: RunDirectory) -> None:
    """Each direction's rows state the largest difference of its own points: with four radii, all five points."""
    options = {"directions": ["random", "gradient"], "radii": [0, 0.5, 1], "draws": 2}
    fp32, bf16 = (of(trained, "perturbation", {**options, "precision": p}) for p in ("fp32", "bf16"))
    gaps = (bf16["loss"] - fp32["loss"]).abs()
    for kind in ("random", "gradient"):
        rows = bf16["direction"] == kind
        assert set(bf16.loc[rows, "checked"]) == {5}
        assert set(bf16.loc[rows, "loss_difference"]) == {gaps[rows].max()}


def test_corruptions_in_bf16(trained: RunDirectory) -> None:
    options = {"corruptions": ["lighter", "occlusion"], "severities": [1, 5]}
    fp32, bf16 = (of(trained, "corruptions", {**options, "precision": p}) for p in ("fp32", "bf16"))
    gaps = (bf16["value"] - fp32["value"]).abs()[:5]
    assert bf16["error_difference"].tolist() == pytest.approx([gaps.max()] * len(bf16), abs=1e-9)
