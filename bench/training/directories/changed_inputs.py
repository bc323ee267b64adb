"""Inputs of a run that may change later: user-defined data, and weights that a user-defined model loads."""

from collections.abc import Mapping
from typing import Any

from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.models import build_model
from fedflat.bench.models.user_model import UserModel
from fedflat.bench.training.run_setup import load_dataset, model_hash


def changed_input(config: RunConfig, provenance: Mapping[str, Any]) -> str | None:
    """What has changed since a run of the configuration was trained, in words; None if nothing has.

    `provenance`: that of the run. The data are compared only if they are user-defined: published ones are fixed. So is
    the model, unless the run is of an earlier version, which did not record it.
    """
    if config.dataset.own and load_dataset(config.dataset, data_root()).content_hash() != provenance.get("data_hash"):
        return "the data"
    recorded = provenance.get("model_hash")
    if not isinstance(config.model, UserModel) or recorded is None:
        return None
    data = load_dataset(config.dataset, data_root())
    model = build_model(config.model, data.image_shape, data.classes, config.seed)
    return None if model_hash(config, model) == recorded else config.model.initial_weights
