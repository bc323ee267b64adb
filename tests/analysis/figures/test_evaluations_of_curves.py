"""The papers' own runs are evaluated where their curves need it."""

from itertools import pairwise

import pytest

from analysis.figures.draw import load_figure
from analysis.figures.training.convergence import ConvergenceLayout
from analysis.layouts.layout import layout_names
from analysis.published.numbers import papers
from bench.experiments.experiment import load_experiment

CURVES = [
    (paper, name, layout)
    for paper in papers()
    for name in layout_names(paper, "figures")
    if isinstance(layout := load_figure(paper, name), ConvergenceLayout) and layout.metric != "local_loss"
]


@pytest.mark.parametrize(("paper", "name", "layout"), CURVES, ids=[f"{paper}_{name}" for paper, name, _ in CURVES])
def test_points_are_evaluated_and_windows_are_evenly_spaced(paper: str, name: str, layout: ConvergenceLayout) -> None:
    """Else a curve would be interrupted, or a mean over neighbours be mostly over rounds on one side."""
    experiment = load_experiment(paper)
    for cell in layout.cells(experiment):
        run = experiment.cell(cell.path).runs[0]
        rounds = run.training.rounds
        evaluated = sorted(run.evaluated_rounds)
        points = [r for r in evaluated if r % layout.every == 0]
        if layout.every > 1:
            assert points == list(range(layout.every, rounds + 1, layout.every)), cell
        if layout.window > 1:
            places = {r: k for k, r in enumerate(evaluated)}
            for point in points:
                first = max(0, places[point] - layout.window // 2)
                window = evaluated[first : places[point] + -(-layout.window // 2)]
                assert len({b - a for a, b in pairwise(window)}) == 1, (cell, point)
