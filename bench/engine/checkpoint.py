"""A federation's state, and local models, in safetensors files: no pickles, written atomically, checked when read.

A saved state (`save_state`) is complete, but refers to earlier states of the same run for vectors of clients that they
contain. A checkpoint, which is rewritten again and again, refers to the client states in the slots of another file:
only client states that have changed are written.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedflat.bench.engine.client_store import ClientStates, ClientStore, RecordFormat, StoredClient
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.files.checksums import CHECKSUM, DIFFERS, DamagedFileError
from fedflat.bench.files.repeated import repeated
from fedflat.bench.files.slot_file import Slot
from fedflat.bench.files.tensor_file import Kind, TensorFile, open_tensors, write_tensors

CHECKPOINTS = ("checkpoint.safetensors", "checkpoint.older.safetensors")
"""The names of the newest checkpoint and of the one before it."""

AGAIN = "write it again"
"""The end of the message about a damaged file whose reader knows no command that writes it."""

OF_ANOTHER_RUN = "belongs to another run"
"""What is wrong with a file of another configuration or seed, for messages."""

_GLOBAL = "global"
REPEATED = "repeated"
"""The entry of a state's description that lists tensors which are not in its file, with the places of equal ones."""
TABLE = "clients"
"""The name of a checkpoint's tensor `[clients, 3]`: each client's id, slot and checksum."""


def save_state(path: Path, state: FederationState, about: Mapping[str, Any], earlier: Sequence[Path] = ()) -> None:
    """Write a state and `about`, its description as JSON values.

    Tensors are named `global`, `server/<name>` and `client/<id>/<name>`. A client's tensor is not written if it equals
    another client's, or one in a file of `earlier`, which are in the same folder: `about` lists it under `repeated`.
    """
    clients, record_format = state.clients, state.clients.store.record_format
    fields = [] if record_format is None else record_format.fields
    vectors = {
        f"client/{i}/{name}": ((dtype, shape), partial(_vector, clients, i, name))
        for i in sorted(clients)
        for name, dtype, shape in fields
    }
    places = repeated(path, ((name, read) for name, (_, read) in vectors.items()), earlier)
    own = {name: vector for name, vector in vectors.items() if name not in places}
    kinds = {name: kind for name, (kind, _) in own.items()}
    tensors = ((name, read()) for name, (_, read) in own.items())
    _write(path, state, kinds, tensors, {**about, REPEATED: places} if places else about)


def _vector(clients: ClientStates, client: int, name: str) -> Tensor:
    return clients[client][name]


Check = Callable[[Mapping[str, Any]], None]
"""Raises a ValueError if the description of a file is not that of the wanted one."""


def _any(about: Mapping[str, Any]) -> None:
    """Accept every file."""


def load_state(
    path: Path, device: torch.device, remedy: str = AGAIN, check: Check = _any
) -> tuple[FederationState, dict[str, Any]]:
    """Read a state and its description, which `check` refuses before anything else is read.

    A `DamagedFileError` with this `remedy` if the file is missing, damaged or refused.
    """
    clients: dict[int, dict[str, Tensor]] = {}
    with open_tensors(path, remedy) as file:
        check(_about(file))
        state, others, about = _read(file, device)
        places = {name: (str(where), str(there)) for name, (where, there) in about.pop(REPEATED, {}).items()}
        for other in sorted({where for where, _ in places.values()}):
            with open_tensors(path.with_name(Path(other).name), remedy) as earlier:
                if _about(earlier).get("identity") != about.get("identity"):
                    raise ValueError(f"it {OF_ANOTHER_RUN}")
                here = {there: earlier.read(there, device) for where, there in places.values() if where == other}
            others |= {name: here[there] for name, (where, there) in places.items() if where == other}
        for name, v in sorted(others.items()):
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

    `w_global` is the global model that the server computed from them. A `DamagedFileError` with the `remedy` if the
    file is missing or damaged, or if `check` refuses its description.
    """

    def __init__(self, path: Path, device: torch.device, remedy: str = AGAIN, check: Check = _any) -> None:
        self._path, self._device, self._remedy = path, device, remedy
        with open_tensors(path, remedy) as file:
            check(_about(file))
            self._clients = sorted(int(name) for name in file.names if name != _GLOBAL)
            self.w_global = _model(file, device)

    def __getitem__(self, client: int) -> Tensor:
        if client not in self._clients:
            raise KeyError(client)
        with open_tensors(self._path, self._remedy) as file:
            return file.read(str(client), self._device)

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


class Checkpoint:
    """The last two checkpoints of a run, which refer to slots in the file of the run's client store.

    These slots are not reused before a later checkpoint has replaced theirs, so the files are consistent whenever the
    process is killed. The older checkpoint is used if the newest is damaged, and if its slots have not been reused
    since a run was resumed from the newest.
    """

    def __init__(self, folder: Path, store: ClientStore) -> None:
        self.newest, self.older = (folder / name for name in CHECKPOINTS)
        self._store = store
        self._slots_in_use: Sequence[Slot] = ()
        self._older_slots_in_use: Sequence[Slot] = ()

    def save(self, state: FederationState, about: Mapping[str, Any]) -> None:
        """Write a state whose clients are in the store; clients that the store's file already has are not written."""
        assert state.clients.store is self._store
        if self.newest.exists():
            self.newest.replace(self.older)
            self._older_slots_in_use = self._slots_in_use
        slots = self._store.persist(state.clients.stored.values())
        rows = [(i, slot.number, slot.checksum) for i, slot in zip(state.clients, slots, strict=True)]
        table = torch.tensor(rows, dtype=torch.int64).view(-1, 3)
        record_format = None if self._store.record_format is None else self._store.record_format.as_json()
        kinds = {TABLE: (table.dtype, tuple(table.shape))}
        _write(self.newest, state, kinds, [(TABLE, table)], {**about, "record_format": record_format})
        self._slots_in_use = slots

    def load(
        self, device: torch.device, report: Callable[[str], None]
    ) -> tuple[FederationState, dict[str, Any]] | None:
        """Read the newest intact state and its description; None if there is none: then all files are removed.

        `report` receives one line about each damaged checkpoint.
        """
        for file in (self.newest, self.older):
            if not file.exists():
                continue
            try:
                found = self._load(file, device)
            except DamagedFileError as error:
                report(str(error))
                continue
            if file == self.older:
                self.older.replace(self.newest)  # the next checkpoint replaces the damaged one, not this one
            return found
        self.remove()
        return None

    def _load(self, path: Path, device: torch.device) -> tuple[FederationState, dict[str, Any]]:
        with open_tensors(path, "it is not used") as file:
            if not file.is_checked:
                raise ValueError(f"it has no {CHECKSUM}")
            state, others, about = _read(file, device)
            table: list[list[int]] = others[TABLE].tolist()
        if table:
            self._store.expect(RecordFormat.from_json(about["record_format"]), device)
        stored: dict[int, StoredClient] = {}
        for client, number, checksum in table:
            stored_client = self._store.restore(number, checksum)
            if stored_client is None:
                assert self._store.path is not None
                raise DamagedFileError(self._store.path, f"client {client}: {DIFFERS}", f"'{path}' is not used")
            stored[client] = stored_client
        state.clients = ClientStates(self._store, stored)
        self._slots_in_use = [stored_client.slot for stored_client in stored.values() if stored_client.slot is not None]
        return state, about

    def remove(self) -> None:
        """Remove all files, those that refer to the client states first, and release the slots."""
        self._slots_in_use = self._older_slots_in_use = ()
        self.newest.unlink(missing_ok=True)
        self.older.unlink(missing_ok=True)
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


def _read(file: TensorFile, device: torch.device) -> tuple[FederationState, dict[str, Tensor], dict[str, Any]]:
    """The state without its clients, all other tensors, and the description."""
    about = _about(file)
    tensors = {name: file.read(name, device) for name in file.names if name != _GLOBAL}
    server = {name.removeprefix("server/"): tensors.pop(name) for name in list(tensors) if name.startswith("server/")}
    return FederationState(int(about["round"]), _model(file, device), server), tensors, about


def _about(file: TensorFile) -> dict[str, Any]:
    """The description of a file."""
    about: dict[str, Any] = json.loads(file.metadata["about"])
    return about


def _model(file: TensorFile, device: torch.device) -> Tensor:
    """The global model `[P]`; a ValueError if it is not a vector, as in a damaged file without checksums."""
    w = file.read(_GLOBAL, device)
    if w.dim() != 1 or not w.is_floating_point():
        raise ValueError(f"{_GLOBAL} is not a vector of parameters")
    return w
