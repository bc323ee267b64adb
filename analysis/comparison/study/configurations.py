"""The configurations that a study compares: methods in settings, as means over seeds; and their value on each axis."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.sections.method_choice import MethodChoice
from fedflat.bench.methods.compose import SLOTS

CONFIGURATION = [*IDS, "variant"]
"""Columns that name a configuration: a method in a setting, with untuned or tuned values."""

AXES = {
    "perturbation": "perturbation",
    "correction": "correction",
    "server": "server",
    "loss": "loss",
    "averaging": "SWA",
    "variant": "tuning",
    "partition": "partition",
    "participation": "participation",
}
"""The axes of a grid, and their names in tables."""


@dataclass(frozen=True, eq=False)
class Configurations:
    """`means`: one row per configuration, with `CONFIGURATION` and the mean of each number over its seeds.

    `codes` `[axes, configurations]`: the value on each of the `axes` as a number. Axes with one value are left out.

    `clusters` `[configurations]`: equal numbers for methods with the same components, which are not independent of each
    other, also with other values, or with SWA, which shares all rounds before it.
    """

    means: pd.DataFrame
    axes: tuple[str, ...]
    codes: NDArray[np.int_]
    clusters: NDArray[np.int_]

    @classmethod
    def of(cls, runs: pd.DataFrame) -> "Configurations":
        """The configurations of a table of runs, with the columns of `run_table`.

        A method of a user's file counts as different from all others in all components.
        """
        grouped = runs.groupby(CONFIGURATION, sort=False, as_index=False)
        means = grouped.mean(numeric_only=True)
        chosen = [json.loads(text)["method"] for text in grouped["configuration"].first()["configuration"]]
        parts = [_components(method, str(label)) for method, label in zip(chosen, means["method"], strict=True)]
        values = pd.concat([means[["variant", "partition", "participation"]], pd.DataFrame(parts)], axis=1)
        axes = tuple(axis for axis in AXES if values[axis].nunique() > 1)
        codes = [pd.factorize(values[axis])[0] for axis in axes]
        recipes = ["+".join(of_method[slot] for slot in SLOTS) for of_method in parts]
        clusters = pd.factorize(np.array(recipes, dtype=object))[0]
        return cls(means, axes, np.array(codes, dtype=int).reshape(len(axes), len(means)), clusters)

    @property
    def cluster_of(self) -> dict[str, int]:
        """The cluster of each method, by its label."""
        return dict(zip(map(str, self.means["method"]), map(int, self.clusters), strict=True))

    def same_data_set(self) -> NDArray[np.bool_]:
        """Which pairs of configurations `[configurations, configurations]` have the same data set."""
        label = self.means["dataset"].to_numpy()
        return np.asarray(label[:, None] == label)


def perturbation(configuration: str, label: str) -> str:
    """The perturbation of a method, from the JSON of its configuration; the label of a user-defined one."""
    return _components(json.loads(configuration)["method"], label)["perturbation"]


def _components(method: dict[str, Any], label: str) -> dict[str, str]:
    swa = "yes" if method.get("hyperparameters", {}).get("swa") is not None else "no"
    if method.get("code") is not None:  # the hash of a user's file, whose place is not stored
        return {**dict.fromkeys(SLOTS, label), "averaging": swa}
    fields = {name: value for name, value in method.items() if name in ("name", *SLOTS)}
    components = MethodChoice.parse(fields).recipe.components
    return {**{slot: str(component.name) for slot, component in components.by_slot().items()}, "averaging": swa}
