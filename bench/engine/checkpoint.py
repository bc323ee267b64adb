"""A federation's state as one safetensors file: no pickles, written atomically, checked when read."""

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bench.atomic import write_bytes
from bench.engine.federation import FederationState
from bench.errors import UserError


def save_state(path: Path, state: FederationState, about: dict[str, Any]) -> None:
    """Write a state and a JSON-able description of it.

    Tensors are named `global`, `server/<name>` and `client/<id>/<name>`.
    """
    named = {"global": state.w}
    named |= {f"server/{name}": v for name, v in state.server.items()}
    named |= {f"client/{i}/{name}": v for i, vectors in state.clients.items() for name, v in vectors.items()}
    tensors = {name: v.detach().cpu().clone() for name, v in named.items()}  # clones: no two may share memory
    about = {**about, "round": state.round}
    write_bytes(path, safetensors.torch.save(tensors, {"about": json.dumps(about)}))


def load_state(path: Path, device: torch.device) -> tuple[FederationState, dict[str, Any]]:
    """Read a state and its description; a `UserError` if the file is missing, truncated or not ours."""
    try:
        with safetensors.safe_open(path, framework="pt", device=str(device)) as file:
            about = json.loads(file.metadata()["about"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        state = FederationState(int(about["round"]), tensors.pop("global"), {})
    except FileNotFoundError:
        raise UserError(f"'{path}' does not exist") from None
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError):
        raise UserError(f"checkpoint '{path}' is truncated or unreadable; delete it to train from the start") from None
    for name, v in tensors.items():
        match name.split("/"):
            case ["server", vector]:
                state.server[vector] = v
            case ["client", client, vector]:
                state.clients.setdefault(int(client), {})[vector] = v
    return state, about
