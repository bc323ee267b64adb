"""Loss and error of models at many points of parameter space; a killed analysis continues after its saved points."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from fedflat.analysis.analyses.analysed_run import AnalysedRun, Sample
from fedflat.analysis.analyses.base import OfLandscape
from fedflat.analysis.analyses.partial_results import PartialResults
from fedflat.analysis.analyses.provenance import analysis_fingerprint
from fedflat.analysis.measures.directions import Family
from fedflat.analysis.measures.forward_passes import differences, forward_precision, spread
from fedflat.analysis.measures.landscape import (
    CachedBatches,
    LandscapeGrid,
    Point,
    Score,
    chunks,
    points_together,
    score,
)
from fedflat.analysis.measures.packaged_landscape import packaged_scores
from fedflat.bench.data.dataset import Subset
from fedflat.bench.input.content import short_hash


def score_points(
    run: AnalysedRun,
    analysis: OfLandscape,
    family: Family,
    grid: LandscapeGrid,
    samples: Mapping[Subset, Sample],
) -> pd.DataFrame:
    """Loss and error of the models at all points, on each sample: columns point (its index), data, loss, error.

    If they are computed in bf16, also the columns `DIFFERENCES`.
    """
    data = {subset: CachedBatches(run.setup.objective, sample.data) for subset, sample in samples.items()}
    evaluated = _by_package if analysis.evaluator == "loss_landscapes" else _by_fedflat
    with forward_precision(run.setup.objective, analysis.precision):
        scores = evaluated(run, analysis, family, grid, data)
    rows = [(i, subset, *values) for subset, found in scores.items() for i, values in enumerate(found)]
    table = pd.DataFrame(rows, columns=["point", "data", "loss", "error"])
    return table if analysis.precision == "fp32" else table.assign(**_differences(run, family, grid, data, scores))


def _by_fedflat(
    run: AnalysedRun, analysis: OfLandscape, family: Family, grid: LandscapeGrid, data: Mapping[Subset, CachedBatches]
) -> dict[Subset, list[Score]]:
    """The scores at the grid's points.

    Saved results are used only if analysis, options, models, points, images, code, PyTorch, device, number of threads
    and points per batched call are the same.
    """
    objective, points = run.setup.objective, grid.points
    together = {subset: points_together(objective, family, batches) for subset, batches in data.items()}
    steps = [(subset, chunk) for subset in data for chunk in chunks(len(points), together[subset])]
    results = PartialResults(run.partial_results, {**_key(run, analysis, family, points), "together": together})
    if done := len(results.finished):
        run.log(f"seed {run.config.seed}: {done} of {len(steps)} steps were already done")
    for subset, chunk in run.progress(steps[done:], "step"):
        results.add(score(objective, family, [points[i] for i in chunk], data[subset]))
    scores: dict[Subset, list[Score]] = {subset: [] for subset in data}
    for (subset, _), found in zip(steps, results.finished, strict=True):
        scores[subset] += [Score(*values) for values in found]
    return scores


def _by_package(
    run: AnalysedRun, analysis: OfLandscape, family: Family, grid: LandscapeGrid, data: Mapping[Subset, CachedBatches]
) -> dict[Subset, list[Score]]:
    """The scores at the grid's points by the package loss-landscapes, and at the further points by FedFlat."""
    objective, scores = run.setup.objective, {}
    for subset, batches in data.items():
        on_grid = packaged_scores(objective, family, grid.axes, batches, lambda numbers: run.progress(numbers, "point"))
        scores[subset] = on_grid + [score(objective, family, [point], batches)[0] for point in grid.further]
    return scores


def _differences(
    run: AnalysedRun,
    family: Family,
    grid: LandscapeGrid,
    data: Mapping[Subset, CachedBatches],
    scores: Mapping[Subset, Sequence[Score]],
) -> dict[str, float]:
    """The values of `DIFFERENCES` for scores in bf16, at a few points of the grid and on all samples."""
    checked = [(subset, i) for subset in data for i in spread(len(grid.points))]
    exact = [score(run.setup.objective, family, [grid.points[i]], data[subset])[0] for subset, i in checked]
    return differences([scores[subset][i] for subset, i in checked], exact)


def _key(run: AnalysedRun, analysis: OfLandscape, family: Family, points: Sequence[Point]) -> dict[str, Any]:
    """Everything that the scores at the points depend on."""
    vectors = (vector.cpu().numpy().data for vector in (family.w, *family.directions))
    return {
        "analysis": analysis.name,
        "options": analysis.inputs(),
        "run": run.directory.identity,
        "points": short_hash(repr([tuple(point) for point in points]), *vectors, digits=64),
        "images": run.setup.dataset.content_hash(),
        "code": analysis_fingerprint(analysis.name),
        "computed": [torch.__version__, str(run.device), torch.get_num_threads()],
    }
