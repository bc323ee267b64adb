"""A federation's state, and local models, in safetensors files: no pickles, written atomically, checked when read.

A saved state (`save_state`) is one complete file. A checkpoint, which is rewritten again and again, refers to the
client states in the slots of a second file: only client states that have changed are written.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from bench.engine.client_store import ClientStates, ClientStore, RecordFormat, StoredClient
from bench.engine.federation import FederationState
from bench.files.slot_file import Slot
from bench.files.tensor_file import Kind, write_tensors
from bench.input.errors import UserError

_GLOBAL = "global"
TABLE = "clients"
"""The name of a checkpoint's tensor `[clients, 3]`: each client's id, slot and checksum."""


def save_state(path: Path, state: FederationState, about: Mapping[str, Any]) -> None:
    """Write a state and `about`, its description as JSON values.

    Tensors are named `global`, `server/<name>` and `client/<id>/<name>`.
    """
    record_format = state.clients.store.record_format
    fields = [] if record_format is None else record_format.fields
    kinds = {f"client/{i}/{name}": (dtype, shape) for i in state.clients for name, dtype, shape in fields}
    clients = ((f"client/{i}/{name}", v) for i, vectors in state.clients.items() for name, v in vectors.items())
    _write(path, state, kinds, clients, about)


def load_state(path: Path, device: torch.device) -> tuple[FederationState, dict[str, Any]]:
    """Read a state and its description; a `UserError` if the file is missing, truncated or of another kind."""
    clients: dict[int, dict[str, Tensor]] = {}
    with _errors_in_one_line(path):
        state, others, about = _read(path, device)
        for name, v in others.items():
            _, client, vector = name.split("/")
            clients.setdefault(int(client), {})[vector] = v
    state.clients = state.clients.updated(clients)
    return state, about


def save_models(path: Path, models: Mapping[int, Tensor], w_global: Tensor, about: Mapping[str, Any]) -> None:
    """Write clients' models `[P]`, each under the client's id, the global model `[P]`, and a description, `about`."""
    named = {str(client): w for client, w in models.items()} | {_GLOBAL: w_global}
    kinds = {name: (w.dtype, tuple(w.shape)) for name, w in named.items()}
    write_tensors(path, kinds, named.items(), {"about": json.dumps(about)})


class Models(Mapping[int, Tensor]):
    """Clients' models `[P]` in a file, in the order of the clients' ids; each is read when it is accessed.

    `w_global` is the global model that the server computed from them. A `UserError` if the file is missing,
    truncated or of another kind.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path, self._device = path, device
        with _errors_in_one_line(path), _open(path, device) as file:
            self._clients = sorted(int(name) for name in file.keys() if name != _GLOBAL)  # noqa: SIM118 - no mapping
            self.w_global = _copied(file, _GLOBAL)

    def __getitem__(self, client: int) -> Tensor:
        if client not in self._clients:
            raise KeyError(client)
        with _errors_in_one_line(self._path), _open(self._path, self._device) as file:
            return _copied(file, str(client))

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


class Checkpoint:
    """The checkpoint of a run, which refers to slots in the file of the run's client store.

    These slots are not reused before the next checkpoint has replaced this one, so the two files are consistent
    whenever the process is killed.
    """

    def __init__(self, path: Path, store: ClientStore) -> None:
        self.path = path
        self._store = store
        self._slots_in_use: Sequence[Slot] = ()

    def save(self, state: FederationState, about: Mapping[str, Any]) -> None:
        """Write a state whose clients are in the store; clients that the store's file already has are not written."""
        assert state.clients.store is self._store
        slots = self._store.persist(state.clients.stored.values())
        rows = [(i, slot.number, slot.checksum) for i, slot in zip(state.clients, slots, strict=True)]
        table = torch.tensor(rows, dtype=torch.int64).view(-1, 3)
        record_format = None if self._store.record_format is None else self._store.record_format.as_json()
        kinds = {TABLE: (table.dtype, tuple(table.shape))}
        _write(self.path, state, kinds, [(TABLE, table)], {**about, "record_format": record_format})
        self._slots_in_use = slots

    def load(self, device: torch.device) -> tuple[FederationState, dict[str, Any]]:
        """Read the state and its description; a `UserError` if one of the two files is missing or damaged."""
        with _errors_in_one_line(self.path, "; delete it to train from the start"):
            state, others, about = _read(self.path, device)
            table: list[list[int]] = others[TABLE].tolist()
            if table:
                self._store.expect(RecordFormat.from_json(about["record_format"]), device)
        stored: dict[int, StoredClient] = {}
        for client, number, checksum in table:
            stored_client = self._store.restore(number, checksum)
            if stored_client is None:
                raise UserError(
                    f"'{self._store.path}' is truncated or damaged; delete '{self.path}' to train from the start"
                )
            stored[client] = stored_client
        state.clients = ClientStates(self._store, stored)
        self._slots_in_use = [stored_client.slot for stored_client in stored.values() if stored_client.slot is not None]
        return state, about

    def remove(self) -> None:
        """Remove both files, first the one that refers to the other, and release the slots."""
        self._slots_in_use = ()
        self.path.unlink(missing_ok=True)
        self._store.remove_file()


def _write(
    path: Path,
    state: FederationState,
    kinds: Mapping[str, Kind],
    tensors: Iterable[tuple[str, Tensor]],
    about: Mapping[str, Any],
) -> None:
    """Write the global model, the server's tensors, and other tensors, which `kinds` declares."""
    own = {_GLOBAL: state.w} | {f"server/{name}": v for name, v in state.server.items()}
    kinds = {name: (v.dtype, tuple(v.shape)) for name, v in own.items()} | dict(kinds)
    metadata = {"about": json.dumps({**about, "round": state.round})}
    write_tensors(path, kinds, itertools.chain(own.items(), tensors), metadata)


def _read(path: Path, device: torch.device) -> tuple[FederationState, dict[str, Tensor], dict[str, Any]]:
    """The state without its clients, all other tensors, and the description."""
    with _open(path, device) as file:
        tensors, about = {name: _copied(file, name) for name in file.keys()}, json.loads(file.metadata()["about"])  # noqa: SIM118 - no mapping
    server = {name.removeprefix("server/"): tensors.pop(name) for name in list(tensors) if name.startswith("server/")}
    return FederationState(int(about["round"]), tensors.pop(_GLOBAL), server), tensors, about


def _open(path: Path, device: torch.device) -> Any:
    return safetensors.safe_open(path, framework="pt", device=str(device))


def _copied(file: Any, name: str) -> Tensor:
    """A copy of a tensor of an open file, at an aligned address.

    In the file, a tensor may start at any address; the address of a vector can change the rounding of sums over it.
    """
    copy: Tensor = file.get_tensor(name).clone()
    return copy


@contextmanager
def _errors_in_one_line(path: Path, advice: str = "") -> Iterator[None]:
    """Turns every error about the file into a `UserError` of one line."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"'{path}' does not exist") from None
    except (safetensors.SafetensorError, AttributeError, KeyError, TypeError, ValueError, OSError):
        raise UserError(f"'{path}' is truncated or unreadable{advice}") from None
