"""Experiments at another scale than their paper's: the same grid, small and real, to try things out."""

from collections.abc import Mapping
from typing import Any, Literal

from bench.data.augmentation import Cutout, Mixup, parse_augmentations
from bench.data.sources import parse_source

Scale = Literal["paper", "smoke"]

ROUNDS = 8
"""Communication rounds at smoke scale, unless others are asked for."""

CLIENTS = 200
"""Registered clients at smoke scale at most: the 901 training images have to do for all of them."""

PLACES = 800
"""Clients times classes per client at smoke scale at most: each of ten classes has some more than 80 images."""

SIDE = 8
"""Height and width of the digits."""

IN_WORDS: Mapping[Scale, str] = {
    "paper": "",
    "smoke": "Smoke scale: few rounds of a small network on scikit-learn's digits stand in for the data named here, "
    f"with {CLIENTS} clients at most, without crops and flips. Classes per client are in proportion to ten, splits by "
    "groups become Dirichlet splits; thresholds and radii are the paper's. "
    "Windows, and what lies between points, are a quarter of the rounds at most.",
}
"""What captions say of it."""


def at_smoke_scale(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's configuration on scikit-learn's digits with a small network, all else as it is where it can be.

    Pathological splits keep the share of the classes that a client holds; those by groups become Dirichlet splits.
    Of augmentations, mixup and cutout stay: at 8×8 pixels, crops and flips of digits make others of them.
    """
    facts = getattr(parse_source(config["dataset"]), "facts", None)  # a user's own images have none
    classes, side = (10, 32) if facts is None else (facts.classes, facts.shape[1])
    training, evaluation, participation = config["training"], config["evaluation"], config["participation"]
    partition = _partition(config["partition"], classes)
    active = participation.get("active")
    return {
        **config,
        "dataset": "digits",
        "model": "cnn_gn",
        "partition": partition,
        "participation": {**participation, "active": active and min(active, partition["clients"])},
        "training": {**training, "augmentation": _augmentation(training.get("augmentation"), side), "precision": None},
        "evaluation": {
            "every": 1,
            "snapshot_every": evaluation["snapshot_every"] and max(1, training["rounds"] // 4),
            "local_models": evaluation["local_models"] and "last",
        },
    }


def _partition(partition: Mapping[str, Any], classes: int) -> dict[str, Any]:
    few = {**partition, "clients": min(partition["clients"], CLIENTS)}
    if partition["name"] == "pathological":
        held = max(1, round(partition["classes_per_client"] * 10 / classes))
        return {**few, "classes_per_client": held, "clients": min(few["clients"], PLACES // held)}
    if partition["name"] in ("pam", "by_group"):
        return {"name": "dirichlet", "alpha": partition.get("alpha", 1.0), "clients": few["clients"]}
    return few


def _augmentation(given: Any, side: int) -> list[dict[str, Any]] | None:
    """Mixup, and cutout of the same share of the image, whose paper's height is `side`."""
    kept: list[dict[str, Any]] = []
    for augmentation in parse_augmentations(given) or ():
        if isinstance(augmentation, Mixup):
            kept.append(augmentation.model_dump())
        elif isinstance(augmentation, Cutout):
            kept.append({**augmentation.model_dump(), "size": max(1, round(augmentation.size * SIDE / side))})
    return kept or None


def trained_at_smoke_scale(training: Mapping[str, Any]) -> dict[str, Any]:
    """Of a method's own values of training, those that smoke scale leaves. Of augmentations, the names."""
    left = {key: value for key, value in training.items() if key not in ("augmentation", "precision")}
    kept = _augmentation(training.get("augmentation"), SIDE)
    return left if kept is None else {**left, "augmentation": [augmentation["name"] for augmentation in kept]}
