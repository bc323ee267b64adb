"""The granulated Kendall coefficient of Jiang et al. (2020): rank correlation along one axis of a grid at a time."""

import numpy as np

from fedflat.analysis.comparison.study.configurations import Configurations
from fedflat.analysis.comparison.study.kendall import Floats, signs
from fedflat.analysis.comparison.study.levels import LEAST_CLUSTERS, Clusters, Correlation, with_interval

OVERALL = "Ψ"


def granulated(
    configurations: Configurations, measure: Floats, result: Floats, clusters: Clusters
) -> dict[str, Correlation]:
    """ψ of each axis that has pairs, and their mean Ψ, with 95 % intervals of a bootstrap over clusters of methods.

    ψ is the mean of sign(Δ measure) sign(Δ result) over all pairs of configurations that differ in this axis only. In a
    full grid it equals ψ of Jiang et al.; grids of methods have gaps, and each pair has the same weight. `measure` and
    `result` `[configurations]`; NaN leaves a configuration out.
    """
    same = configurations.codes[:, :, None] == configurations.codes[:, None, :]
    known = np.isfinite(measure) & np.isfinite(result)
    allowed = configurations.same_data_set() & known[:, None] & known & ~np.tri(len(known), dtype=bool)
    agreement, of_cluster = signs(measure) * signs(result), configurations.clusters
    found: dict[str, Floats] = {}
    for number, axis in enumerate(configurations.axes):
        one, other = np.nonzero(allowed & ~same[number] & np.delete(same, number, axis=0).all(axis=0))
        if not len(one):
            continue
        of_one, of_other = clusters.methods[:, of_cluster[one]], clusters.methods[:, of_cluster[other]]
        weights = np.where(of_cluster[one] == of_cluster[other], of_one, of_one * of_other)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[axis] = weights @ agreement[one, other] / weights.sum(axis=1)
    if found:
        found[OVERALL] = np.mean(list(found.values()), axis=0)
    enough = len(set(of_cluster[known])) >= LEAST_CLUSTERS
    return {axis: with_interval(drawn, enough=enough) for axis, drawn in found.items()}
