"""Loss and error of a run at many points of parameter space; points that are done survive a kill."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from analysis.analyses.partial_results import KeptParts
from analysis.analyses.provenance import analysis_fingerprint
from analysis.analyses.subject import Part, Sample, Subject
from analysis.measures.directions import Family
from analysis.measures.landscape import Point, Prepared, chunks, points_together, score


def score_points(
    subject: Subject, family: Family, points: Sequence[Point], samples: Mapping[Part, Sample], asked: Mapping[str, Any]
) -> pd.DataFrame:
    """Loss and error of the models at all points, on each sample: columns point (its number), data, loss, error.

    `asked` is what else the samples depend on, the analysis and its options: kept points of another question, of other
    models, data, code or another way to compute are not taken.
    """
    objective = subject.bench.objective
    data = {part: Prepared(objective, sample.data) for part, sample in samples.items()}
    together = {part: points_together(objective, family, batches) for part, batches in data.items()}
    steps = [(part, chunk) for part in data for chunk in chunks(len(points), together[part])]
    kept = KeptParts(subject.unfinished, {**_key(subject, family, points, asked), "together": together})
    if kept.parts:
        subject.tell(f"seed {subject.run.config.seed}: {len(kept.parts)} of {len(steps)} steps were done before")
    for part, chunk in subject.progress(steps[len(kept.parts) :], "step"):
        kept.add(score(objective, family, [points[i] for i in chunk], data[part]))
    rows = [
        (i, part, *values)
        for (part, chunk), scores in zip(steps, kept.parts, strict=True)
        for i, values in zip(chunk, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["point", "data", "loss", "error"])


def _key(subject: Subject, family: Family, points: Sequence[Point], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the scores at the points depend on."""
    digest = hashlib.sha256(repr([tuple(point) for point in points]).encode())
    for vector in (family.w, *family.directions):
        digest.update(vector.cpu().numpy().data)
    return {
        "asked": asked,
        "run": subject.run.identity,
        "points": digest.hexdigest(),
        "images": subject.bench.dataset.content_hash(),
        "code": analysis_fingerprint(asked["analysis"]),
        "computed": [torch.__version__, str(subject.device), torch.get_num_threads()],
    }
