"""Smoke scale: the same grid as at the paper's scale, with small real data, a small network and few rounds."""

from collections.abc import Mapping
from typing import Any, Literal

from fedflat.bench.data.augmentation import Cutout, Mixup, ScaledCrop, parse_augmentations
from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.base import Source
from fedflat.bench.data.sources.digits_domains import DigitsDomains
from fedflat.bench.models import parse_model
from fedflat.bench.models.buffer_mode import BufferMode

Scale = Literal["paper", "smoke"]

ROUNDS = 8
"""Communication rounds at smoke scale, unless overridden."""

CLIENTS = 200
"""Maximum number of registered clients at smoke scale; they share 901 training images."""

SIDE = 8
"""Height and width of the digits."""

RATE = 0.1
"""Local learning rate, where the paper starts from trained weights: with its smaller one, random weights would not
learn in `ROUNDS` rounds."""


HELD_OUT = 0.2
"""Share that clients hold out where the data set has its own images for validation: the digits have none."""


def at_smoke_scale(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's configuration with scikit-learn's digits and a small network; other values stay where possible.

    Data sets of domains become digits in as many styles, those of segmentation scenes of digits in several domains.
    The source says what replaces `by_group`; each partition what replaces it otherwise. Statistics of BatchNorm are
    averaged, or stay with the clients, as in the paper, in segmentation. Where weights are trained ones in the
    paper, they are random, and the local rate is at least `RATE`. Only the augmentations mixup, cutout and
    scaled_crop remain, because other crops and flips turn digits of 8×8 pixels into other digits. SWA averages at
    least two models, if there are four rounds.
    """
    source = parse_source(config["dataset"])
    facts = getattr(source, "facts", None)  # user-defined images have none
    classes, side = (10, 32) if facts is None else (facts.classes, facts.shape[-1])
    training, evaluation, participation = config["training"], config["evaluation"], config["participation"]
    partition = _partition(config["partition"], classes, source)
    rate = max(RATE, training["lr"]) if starts_trained(config["model"]) else training["lr"]
    active = participation.get("active")
    return {
        **config,
        "dataset": source.stand_in,
        "model": _model(config["model"], source),
        "partition": partition,
        "method": _method(config["method"], training["rounds"]),
        "participation": {**participation, "active": active and min(active, partition["clients"])},
        "training": {
            **training,
            "lr": rate,
            "augmentation": _augmentation(training.get("augmentation"), side),
            "precision": None,
        },
        "evaluation": {
            "every": 1,
            "validation": HELD_OUT if evaluation["validation"] == "own" else evaluation["validation"],
            "snapshot_every": evaluation["snapshot_every"] and max(1, training["rounds"] // 4),
            "local_models": evaluation["local_models"] and "last",
        },
    }


def has_domains(source: Source) -> bool:
    """Whether digits in as many styles replace the domains of this data set."""
    return bool(source.stand_in["name"] == DigitsDomains.model_fields["name"].default)


def starts_trained(model: Any) -> bool:
    """Whether the `model` of a configuration starts from trained weights."""
    return isinstance(model, Mapping) and model.get("weights") is not None


def buffer_mode(model: Any) -> BufferMode | None:
    """What happens to the buffers of the `model` of a configuration, whose weights need not exist."""
    return parse_model({**model, "weights": None} if starts_trained(model) else model).buffer_mode


def _model(model: Any, source: Source) -> str | dict[str, Any]:
    """A small network, for segmentation with BatchNorm if the paper's model has its statistics."""
    if not source.label_maps:
        return "cnn_gn"
    mode = buffer_mode(model)
    if mode is None:
        return "fcn_gn"
    return {"name": "fcn_bn", "buffers": mode if mode == "average" else "local"}  # layers have other names


def _method(method: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """The method with SWA, if it has it, in the second half of the rounds, and a cycle that fits twice into it."""
    hyperparameters = method["hyperparameters"]
    swa = hyperparameters.get("swa")
    if not isinstance(swa, Mapping) or not isinstance(cycle := swa.get("cycle"), int):
        return dict(method)  # without SWA; wrong values of SWA are refused later
    swa = {**swa, "start": rounds // 2, "cycle": min(cycle, max(1, rounds // 4))}
    return {**method, "hyperparameters": {**hyperparameters, "swa": swa}}


def _partition(partition: Mapping[str, Any], classes: int, source: Source) -> dict[str, Any]:
    if partition["name"] == "by_group" and (groups := source.stand_in_groups(partition, CLIENTS)) is not None:
        return groups
    few = {**partition, "clients": min(partition["clients"], CLIENTS)}
    return PARTITIONS[partition["name"]].stand_in(few, classes)


def _augmentation(given: Any, side: int) -> list[dict[str, Any]] | None:
    """The augmentations that remain: mixup, scaled_crop, and cutout of the same share of the image's side.

    `side`: height of the paper's images.
    """
    remaining: list[dict[str, Any]] = []
    for augmentation in parse_augmentations(given) or ():
        if isinstance(augmentation, Mixup):
            remaining.append(augmentation.model_dump())
        elif isinstance(augmentation, ScaledCrop):
            remaining.append({**augmentation.model_dump(), "size": None})
        elif isinstance(augmentation, Cutout):
            remaining.append({**augmentation.model_dump(), "size": max(1, round(augmentation.size * SIDE / side))})
    return remaining or None


def trained_at_smoke_scale(training: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a method's training that also apply at smoke scale; augmentations by name."""
    values = {key: value for key, value in training.items() if key not in ("augmentation", "precision")}
    remaining = _augmentation(training.get("augmentation"), SIDE)
    return values if remaining is None else {**values, "augmentation": [entry["name"] for entry in remaining]}
