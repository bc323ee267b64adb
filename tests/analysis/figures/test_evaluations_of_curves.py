"""The papers' own runs are evaluated where their curves and swept values need it.

Figures of other kinds show columns that all rounds have, such as c, or final models.
"""

from itertools import pairwise

import pytest

from analysis.figures.draw import load_figure
from analysis.figures.training.convergence import ConvergenceLayout
from analysis.figures.training.sweep import SweepLayout
from analysis.layouts.layout import layout_names
from analysis.measures.convergence import reported
from analysis.published.numbers import papers
from bench.experiments.experiment import load_experiment

CURVES = [
    (paper, name, layout)
    for paper in (*papers(), "fedgf_cifar10", "fedgf_cifar10_jpeg")
    for name in layout_names(paper, "figures")
    if isinstance(layout := load_figure(paper, name), ConvergenceLayout) and layout.metric != "local_loss"
]

SWEEPS = [
    (paper, name, layout)
    for paper in papers()
    for name in layout_names(paper, "figures")
    if isinstance(layout := load_figure(paper, name), SweepLayout) and layout.needed_file == "metrics"
]


@pytest.mark.parametrize(("paper", "name", "layout"), SWEEPS, ids=[f"{paper}_{name}" for paper, name, _ in SWEEPS])
def test_each_evaluation_of_a_swept_value_is_made(paper: str, name: str, layout: SweepLayout) -> None:
    """A mean of 100 evaluations is one over the last 100 rounds; methods without another rule report the last round."""
    experiment = load_experiment(paper)
    cells = layout.cells(experiment)
    assert cells
    for cell in cells:
        final = layout.final or reported(experiment.methods[cell.method].release(cell.method))
        run = experiment.cell(cell.path).runs[0]
        rounds = run.training.rounds
        needed = rounds if final.rule == "best" else final.n or 1
        assert set(range(rounds + 1 - needed, rounds + 1)) <= run.evaluated_rounds, cell


@pytest.mark.parametrize(("paper", "name", "layout"), CURVES, ids=[f"{paper}_{name}" for paper, name, _ in CURVES])
def test_points_are_evaluated_and_windows_are_evenly_spaced(paper: str, name: str, layout: ConvergenceLayout) -> None:
    """Else a curve would be interrupted, or a mean over neighbours be mostly over rounds on one side."""
    experiment = load_experiment(paper)
    for cell in layout.cells(experiment):
        run = experiment.cell(cell.path).runs[0]
        rounds = run.training.rounds
        evaluated = sorted(r for r in run.evaluated_rounds if r % layout.spacing == 0)
        points = [r for r in evaluated if r % layout.every == 0]
        if layout.every > 1:
            assert points == list(range(layout.every, rounds + 1, layout.every)), cell
        if layout.window > 1:
            places = {r: k for k, r in enumerate(evaluated)}
            for point in points:
                first = max(0, places[point] - layout.window // 2)
                window = evaluated[first : places[point] + -(-layout.window // 2)]
                assert len({b - a for a, b in pairwise(window)}) == 1, (cell, point)
