"""Loss and error of models at many points of parameter space; a killed analysis continues after its saved points."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from analysis.analyses.analysed_run import AnalysedRun, Sample
from analysis.analyses.base import Analysis
from analysis.analyses.partial_results import PartialResults
from analysis.analyses.provenance import analysis_fingerprint
from analysis.measures.directions import Family
from analysis.measures.landscape import Point, Prepared, chunks, points_together, score
from bench.data.sources.base import Subset
from bench.input.content import short_hash


def score_points(
    run: AnalysedRun,
    analysis: Analysis,
    family: Family,
    points: Sequence[Point],
    samples: Mapping[Subset, Sample],
) -> pd.DataFrame:
    """Loss and error of the models at all points, on each sample: columns point (its index), data, loss, error.

    Saved results are used only if analysis, options, models, points, images, code, PyTorch, device, number of threads
    and points per batched call are the same.
    """
    objective = run.setup.objective
    data = {subset: Prepared(objective, sample.data) for subset, sample in samples.items()}
    together = {subset: points_together(objective, family, batches) for subset, batches in data.items()}
    steps = [(subset, chunk) for subset in data for chunk in chunks(len(points), together[subset])]
    results = PartialResults(run.partial_results, {**_key(run, analysis, family, points), "together": together})
    if done := len(results.finished):
        run.log(f"seed {run.config.seed}: {done} of {len(steps)} steps were already done")
    for subset, chunk in run.progress(steps[done:], "step"):
        results.add(score(objective, family, [points[i] for i in chunk], data[subset]))
    rows = [
        (i, subset, *values)
        for (subset, chunk), scores in zip(steps, results.finished, strict=True)
        for i, values in zip(chunk, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["point", "data", "loss", "error"])


def _key(run: AnalysedRun, analysis: Analysis, family: Family, points: Sequence[Point]) -> dict[str, Any]:
    """Everything that the scores at the points depend on."""
    vectors = (vector.cpu().numpy().data for vector in (family.w, *family.directions))
    return {
        "analysis": analysis.name,
        "options": analysis.options(),
        "run": run.directory.identity,
        "points": short_hash(repr([tuple(point) for point in points]), *vectors, digits=64),
        "images": run.setup.dataset.content_hash(),
        "code": analysis_fingerprint(analysis.name),
        "computed": [torch.__version__, str(run.device), torch.get_num_threads()],
    }
