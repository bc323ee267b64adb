"""Whether a folder has a run as it is wanted now, and if not, why: no other module decides this.

A run's identity says what was computed, but not all of how. So a finished run of the identity that is wanted

- is current if it was trained on another device, by other code or with other threads: it is taken, and `remarks` says
  so;
- contradicts if a value of the engine is fixed and it has another one, or if user-defined data, or weights that a
  user-defined model loads, have changed since: it is refused, or trained again if the user has said so (`replace`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.run_config import METRICS, NOT_IDENTITY, RunConfig
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.host.progress import Progress, silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.user_metric import NOUN
from fedflat.bench.models import build_model
from fedflat.bench.models.user_model import UserModel
from fedflat.bench.training.directories.run_files import check_models, check_run, has_only_final
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.provenance import device_name
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import load_dataset, model_hash

Replace = bool | Literal["damaged"]
"""Whether finished runs are trained again that are not as wanted now, none of them, or only those that are damaged."""


def finished_run(path: Path, config: RunConfig) -> RunDirectory | None:
    """The finished run of this configuration in `path`, even if it contradicts; None if `path` does not exist.

    A `UserError` if `path` holds a run of another configuration, or no run; a `DamagedFileError` if the run is damaged
    (`check_run`).
    """
    if not path.exists():
        return None
    run = RunDirectory(path)
    if run.identity != config.identity:
        try:
            difference: object = first_differing_field(run.config, config)
        except DamagedFileError as error:  # as another one's, it is not replaced
            difference = error.damage
        raise UserError(f"'{path}' holds a run of another configuration ({difference}): move it away")
    check_run(run)
    return run


def current_run(
    path: Path, config: RunConfig, *, replace: Replace = False, inputs: bool = True, progress: Progress = silent
) -> RunDirectory | None:
    """The run in `path` that need not be trained; None: it has to be.

    A `UserError` as for `finished_run`, and if the run contradicts. With `replace`, a run that contradicts, is damaged,
    lacks models, or is of other code has to be trained; with "damaged", a damaged one. `progress` receives what is
    damaged. Without `inputs`, data and weights are not compared.
    """
    try:
        run = finished_run(path, config)
        if run is not None and replace is True and run.of_this_code and not has_only_final(run):
            check_models(run)
        reason = None if run is None else contradiction(run, config, inputs=inputs)
    except DamagedFileError as error:
        if not replace:
            raise
        progress(f"{error.damage}: the run is trained again")
        return None
    if run is not None and replace is True:
        return run if reason is None and run.of_this_code else None
    if reason is not None:
        raise UserError(
            f"'{path}' {reason}; --replace trains it again (with Snakemake: --config replace=true), and another folder "
            "of results (--results) keeps both"
        )
    return run


def contradiction(run: RunDirectory, config: RunConfig, *, inputs: bool = True) -> str | None:
    """Why a run of the configuration's identity is not what is wanted, in words; None if it is."""
    about = run.provenance
    for name in ("engine_at_start", "engine"):
        if (choice := _choice(about.get(name))) is not None and (differs := choice.difference(config.engine)):
            return f"was computed with {differs}"
    changed = changed_input(config, about) if inputs else None
    return None if changed is None else f"was trained before {changed} changed"


def _choice(recorded: Any) -> EngineChoice | None:
    """The engine's choice; None if the run is of a version that recorded none, or others."""
    try:
        return EngineChoice.from_json(recorded)
    except ValueError:
        return None


def remarks(run: RunDirectory, device: torch.device) -> str:
    """How a current run was computed otherwise than one on this device would be, in words; empty if not."""
    found = [] if run.of_this_code else ["by another version of the code, --replace trains it again"]
    there = run.provenance.get("device")
    if there is not None and there != device_name(device):
        found.append(f"on {there}")
    return f"trained {' and '.join(found)}" if found else ""


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


def first_differing_field(there: RunConfig, here: RunConfig) -> str | None:
    """The first difference between two configurations, in words; None if they are equal."""
    a, b = (dict(_flatten(config.model_dump(mode="json", exclude=NOT_IDENTITY))) for config in (there, here))
    key = next((k for k in [*b, *a] if a.get(k) != b.get(k)), None)
    stored = there.code_files
    for name, own in here.code_files.items():
        is_place = key == (METRICS if name.startswith(f"{NOUN}_") else f"{name}.code")
        if is_place and name in stored and stored[name].code_hash != own.code_hash:
            return f"'{own.file}' has been edited; the run's copy is '{stored[name].file}'"
    return None if key is None else f"{key}: {a.get(key)} there, {b.get(key)} here"


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
