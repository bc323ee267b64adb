"""Cells share their equal sections and are configured as if they did not."""

import pytest

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError

SETTINGS = ("digits/dirichlet-0.6/4-of-20", "digits/dirichlet-0.1/10-of-20")


def test_equal_sections_are_one_object():
    quick = load_experiment("quick")
    a, b = (quick.cell(f"{setting}/fedsam").runs[0] for setting in SETTINGS)
    for section in ("dataset", "model", "method", "training", "evaluation", "engine"):
        assert getattr(a, section) is getattr(b, section)
    assert a.partition != b.partition
    other = quick.cell(f"{SETTINGS[0]}/feddyn").runs[0]
    assert other.training.lr_decay != a.training.lr_decay
    assert other.partition is a.partition


@pytest.mark.parametrize("name", ["quick_all", "fedlesam", "fedsam_caldarola"])
def test_runs_equal_those_that_are_configured_alone(name):
    """Also where methods of different labels have equal sections, and aggregation and SWA depend on two sections."""
    for cell in load_experiment(name, {"grid.seeds": [3, 8]}).cells().values():
        assert [run.seed for run in cell.runs] == [3, 8]
        for run in cell.runs:
            alone = RunConfig.parse(run.model_dump())
            assert (alone, alone.identity) == (run, run.identity)


def test_another_seed_gives_another_identity():
    run = load_experiment("quick").cell(f"{SETTINGS[0]}/fedsam").runs[0]
    before = run.identity
    other = run.with_seed(8)
    assert (other.seed, run.seed, run.identity) == (8, 0, before)
    assert other.identity == RunConfig.parse({**run.model_dump(), "seed": 8}).identity != before


def test_a_mistake_in_one_cell_is_named_by_its_section(tmp_path):
    file = tmp_path / "mine.yaml"
    where = "{dirichlet-0.1: {training: {lr: -1}}}"
    file.write_text(f"name: mine\nextends: quick\nmethods:\n  fedsam: {{where: {where}}}\n", encoding="utf-8")
    mine = load_experiment(str(file))
    mine.cell(f"{SETTINGS[0]}/fedsam")
    with pytest.raises(UserError, match=r"training\.lr = -1"):
        mine.cell(f"{SETTINGS[1]}/fedsam")
