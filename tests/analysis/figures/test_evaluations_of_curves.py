"""The papers' own runs are evaluated where their curves and swept values need it.

Figures of other kinds show columns that all rounds have, such as c, or final models.
"""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from fedflat.analysis.figures.draw import load_figure
from fedflat.analysis.figures.kinds.convergence import ConvergenceLayout
from fedflat.analysis.figures.kinds.sweep import SweepLayout
from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.measures.convergence import reported
from fedflat.analysis.published.numbers import papers
from fedflat.bench.experiments.experiment import Experiment, load_experiment

LIKE_PAPERS = ("fedgf_cifar10", "fedgf_cifar10_jpeg")


@pytest.mark.parametrize("paper", [*papers(), *LIKE_PAPERS])
def test_each_evaluation_that_a_curve_or_a_swept_value_needs_is_made(paper: str) -> None:
    experiment = load_experiment(paper)
    wrong, drawn = [], 0
    for name in layout_names(paper, "figures"):
        layout = load_figure(paper, name, experiment)
        if isinstance(layout, ConvergenceLayout) and layout.metric != "local_loss":
            found = list(curve_faults(layout, experiment))
        elif isinstance(layout, SweepLayout) and layout.needed_file == "metrics":
            found = list(sweep_faults(layout, experiment))
        else:
            continue
        drawn += 1
        wrong += [f"{name}: {fault}" for fault in found]
    assert drawn
    assert not wrong


def sweep_faults(layout: SweepLayout, experiment: Experiment) -> Iterator[str]:
    """A mean of 100 evaluations is one over the last 100 rounds; methods without another rule report the last round."""
    cells = layout.cells(experiment)
    if not cells:
        yield "no cells"
    for cell in cells:
        final = layout.final or reported(experiment.methods[cell.method].release(cell.method))
        run = experiment.cell(cell.path).runs[0]
        rounds = run.training.rounds
        needed = rounds if final.rule == "best" else final.n or 1
        if missing := set(range(rounds + 1 - needed, rounds + 1)) - run.evaluated_rounds:
            yield f"{cell}: no evaluation after {sorted(missing)}"


def curve_faults(layout: ConvergenceLayout, experiment: Experiment) -> Iterator[str]:
    """Points are evaluated and windows evenly spaced: else a curve would be interrupted, or a mean be one-sided."""
    for cell in layout.cells(experiment):
        run = experiment.cell(cell.path).runs[0]
        rounds = run.training.rounds
        evaluated = sorted(r for r in run.evaluated_rounds if r % layout.spacing == 0)
        points = [r for r in evaluated if r % layout.every == 0]
        if layout.every > 1 and points != list(range(layout.every, rounds + 1, layout.every)):
            yield f"{cell}: points after {points}"
        if layout.window > 1:
            places = {r: k for k, r in enumerate(evaluated)}
            for point in points:
                first = max(0, places[point] - layout.window // 2)
                window = evaluated[first : places[point] + -(-layout.window // 2)]
                if len({b - a for a, b in pairwise(window)}) != 1:
                    yield f"{cell}: the window around round {point} is {window}"
