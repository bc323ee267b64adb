"""Plans count the runs that a target needs, and what is finished; hours and bytes follow from stated numbers."""

from pathlib import Path

import pytest
import torch

from analysis import plan
from analysis.plan import disk, in_words, seconds
from bench.errors import UserError
from bench.experiments import load_experiment
from bench.run import train_cell

CPU = torch.device("cpu")
ONE = {"training.rounds": 2, "grid.seeds": [0]}


def test_a_table_needs_the_runs_that_it_shows(tmp_path: Path) -> None:
    [estimate] = plan.plan("quick_table_flatness", tmp_path, ONE, CPU)
    assert (estimate.part, estimate.runs, estimate.finished) == ("quick: digits", 24, 0)
    assert estimate.hours > 0
    cell = load_experiment("quick", ONE).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    train_cell("quick", cell, tmp_path / "runs" / "quick" / cell.path, CPU, str)
    [after] = plan.plan("quick_table_flatness", tmp_path, ONE, CPU)
    assert (after.runs, after.finished) == (24, 1)
    assert after.bytes < estimate.bytes


def test_targets_without_runs_are_told() -> None:
    with pytest.raises(UserError, match="unknown target 'fedgff'; did you mean 'fedgf'"):
        plan.plan("fedgff", Path("none"), {}, CPU)
    with pytest.raises(UserError, match=r"'quick_tabel_x' is no target with runs .allowed: quick, quick_runs"):
        plan.plan("quick_tabel_x", Path("none"), {}, CPU)
    with pytest.raises(UserError, match="unknown table of experiment quick 'accurace'; did you mean 'accuracy'"):
        plan.plan("quick_table_accurace", Path("none"), {}, CPU)


def test_hours_and_bytes_grow_with_what_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_gradient_seconds", lambda *_: 1.0)
    changes = {"evaluation.every": 1000, "training.rounds": 10, "evaluation.snapshot_every": None}

    def run(label: str, **more: object):  # type: ignore[no-untyped-def]
        return load_experiment("quick", {**changes, **more}).cell(f"digits/dirichlet-0.1/{label}").runs[0]

    plain, sam, many = (seconds(run(x), CPU) for x in ("4-of-20/fedavg", "4-of-20/fedsam", "10-of-20/fedavg"))
    # 10 rounds x 4 clients x 2 epochs x 3 steps of 16 of 45 images, each a gradient of a second; one evaluation.
    evaluation = (901 + 896) / 16 * plan.FORWARD
    assert plain == pytest.approx(10 * 4 * 2 * 3 * plan.OVERHEAD + evaluation)
    assert sam - evaluation == pytest.approx(2 * (plain - evaluation))
    assert many - evaluation == pytest.approx(2.5 * (plain - evaluation))
    model = disk(run("4-of-20/fedavg"))
    assert model == 4 * 1946
    assert disk(run("4-of-20/fedavg", **{"evaluation.local_models": "last"})) == pytest.approx(model * 6)
    states = disk(run("4-of-20/scaffold", **{"evaluation.snapshot_every": 5}))
    assert states == pytest.approx(model * (1 + 2 * (1 + 1 + 20)))


def test_parts_are_lines_with_their_sum() -> None:
    one, two = plan.Estimate("a: x", 2, 1, 1.5, 2**30), plan.Estimate("a: y", 3, 0, 0.25, 2**29)
    lines = in_words([one, two]).splitlines()
    assert lines[-1].split() == ["all", "5", "1", "1.75", "1.50"]
    assert len(in_words([one]).splitlines()) == 2
