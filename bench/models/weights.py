"""Trained weights from which a model starts: a file of your own, or weights that torchvision publishes."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedflat.bench.files.atomic import replacing
from fedflat.bench.files.text_table import aligned
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.content import LargeFile, file_hash
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.input.registry import OneOf

KIND = "weights file"
FOLDER = "weights"
"""The folder of published weights, below that of all data sets."""

log = logging.getLogger("fedflat.weights")

IMAGENET = "imagenet"

StateDict = Mapping[str, Tensor]


class WeightsFile(LargeFile):
    """A state dictionary in a file of your own. The identity of a run depends on its content, not on its path."""

    in_words = KIND
    kind = KIND

    @property
    def label(self) -> str:
        """The name of the file without its ending, and the first digits of its hash."""
        return f"{self.file.stem}@{str(self.hash)[:8]}"

    def path(self, model: str, root: Path) -> Path:
        """The file. A `UserError` if its content has changed."""
        return self.unchanged()


class PublishedWeights(Frozen):
    """Weights that torchvision publishes for the model."""

    in_words = "published weights"

    published: Literal["imagenet"]

    @property
    def label(self) -> str:
        """The data set on which the weights were trained."""
        return self.published

    def path(self, model: str, root: Path) -> Path:
        """The verified file. A `UserError` with instructions if it is missing or corrupt. Nothing is downloaded."""
        return published(model).provide(root)


def parse_weights(given: Any) -> WeightsFile | PublishedWeights:
    """The weights for `imagenet`, the path of a file, or the fields of a finished run's configuration."""
    if isinstance(given, WeightsFile | PublishedWeights):
        return given
    if isinstance(given, str):
        given = {"published": given} if given == IMAGENET else {"file": given}
    if not isinstance(given, Mapping):
        raise UserError(f"weights = {given!r} (allowed: imagenet, the path of a file, or null)")
    kind = PublishedWeights if "published" in given else WeightsFile
    return kind.parse(given, where="weights")


Weights = Annotated[
    WeightsFile | PublishedWeights, OneOf((WeightsFile, PublishedWeights)), BeforeValidator(parse_weights)
]


# --- Weights that torchvision publishes

PUBLISHED = {"vit_b_32": "ViT_B_32_Weights.IMAGENET1K_V1"}
"""By model, torchvision's name of its weights. The model has the same tensors as torchvision's."""


@dataclass(frozen=True)
class PublishedFile:
    """Published weights of a model. The name of the file contains the first digits of its SHA-256."""

    model: str
    url: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def sha256(self) -> str:
        """The first digits of the file's SHA-256."""
        return Path(self.name).stem.rpartition("-")[2]

    def place(self, root: Path) -> Path:
        """The path of the file below the folder of data sets."""
        return root / FOLDER / self.name

    def is_there(self, root: Path) -> bool:
        """Whether the file exists. It is not read."""
        return self.place(root).is_file()

    def is_intact(self, root: Path) -> bool:
        """Whether the file exists and has the published checksum."""
        return self.is_there(root) and file_hash(self.place(root), KIND).startswith(self.sha256)

    def provide(self, root: Path) -> Path:
        """The verified file. A `UserError` with instructions if it is missing or corrupt."""
        file = self.place(root)
        if not self.is_intact(root):
            problem = f"corrupt (its SHA-256 does not begin with {self.sha256})" if self.is_there(root) else "missing"
            raise UserError(
                f"model {self.model}: '{file}' is {problem}; run 'fedflat weights download {self.model}', or save "
                f"{self.url} there"
            )
        return file

    def download(self, root: Path) -> Path:
        """The verified file, which is downloaded unless it is there. If that fails, no file remains."""
        file = self.place(root)
        if self.is_intact(root):
            return file
        with replacing(file) as temporary:
            log.info("downloading %s", self.url)
            try:
                torch.hub.download_url_to_file(self.url, str(temporary), self.sha256)
            except (OSError, RuntimeError) as error:
                raise UserError(
                    f"cannot download {self.url} ({error}); download it elsewhere and save it as '{file}'"
                ) from None
        return file


def published(model: str) -> PublishedFile:
    """The published weights of a model; a `UserError` if there are none."""
    if model not in PUBLISHED:
        raise UserError(
            f"there are no published weights of {model} (allowed: {', '.join(PUBLISHED)}; or the path of a file)"
        )
    return PublishedFile(model, import_torchvision().models.get_weight(PUBLISHED[model]).url)


def listing(root: Path) -> str:
    """One line per model with published weights: its file below `root`, whether it is there, and its source."""
    rows = [("model", "file", "status", "source")]
    for weights in map(published, PUBLISHED):
        status = "there" if weights.is_there(root) else "missing"
        rows.append((weights.model, str(weights.place(root)), status, weights.url))
    return "\n".join(aligned(rows))


# --- State dictionaries

ALLOWED = "(allowed: tensors by name, as safetensors or torch.save(model.state_dict(), file) write them)"


GLOBAL = "global"
"""The name of the flat vector of the global model in files of a run, see `fedflat.bench.engine.checkpoint`."""


def read_weights(file: Path) -> StateDict:
    """The tensors by name, of a safetensors file or of a file that torch.save has written; no pickle is executed.

    Nested dictionaries are joined with dots: a file with weights by part is read like one with all of them.
    """
    try:
        is_safe = file.suffix == ".safetensors"
        content = load_file(file) if is_safe else torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"cannot read the {KIND} '{file}': {error.strerror or error}") from None
    except (UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, SafetensorError) as error:
        if isinstance(error, UnpicklingError) and _is_of_torch(file):
            problem = "contains Python objects, which are not executed"
        else:
            problem = f"is damaged, or is not a {KIND}"
        raise UserError(f"the {KIND} '{file}' {problem} {ALLOWED}") from None
    found = dict(_flattened(content, "")) if isinstance(content, Mapping) else {}
    _refuse_state_of_run(file, found)
    if not found:
        raise UserError(f"the {KIND} '{file}' contains no tensors by name {ALLOWED}")
    return found


def _is_of_torch(file: Path) -> bool:
    """Whether the file begins like those of torch.save: a zip archive, or, in older versions, a binary pickle."""
    with file.open("rb") as opened:
        return opened.read(4).startswith((b"PK\x03\x04", b"\x80"))


def _refuse_state_of_run(file: Path, tensors: StateDict) -> None:
    """Raises `UserError` with instructions if a run has written the file: its model is one flat vector, `global`."""
    if GLOBAL not in tensors or any("." in name for name in tensors):  # parameters of modules have dots in their names
        return
    run = str(file.parent) if file.name == "final.safetensors" else "RUN"
    what = "the final model of a run" if run != "RUN" else "a state or local models of a run"
    raise UserError(
        f"the {KIND} '{file}' is {what}; write the weights of the final model to a file with the Python code: "
        f"import fedflat, torch; torch.save(fedflat.load_model({run!r}).state_dict(), 'weights.pth')"
    )


def _flattened(content: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Tensor]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, Tensor):
            yield f"{prefix}{key}", value


def load_weights(module: nn.Module, weights: StateDict, new: Collection[str], what: str) -> list[str]:
    """Copy the weights into the module. Return the names of the tensors that keep their initial values.

    Raises `UserError` as `kept_tensors`.
    """
    kept, own = kept_tensors(module, weights, new, what), module.state_dict()
    module.load_state_dict({name: own[name] if name in kept else weights[name] for name in own})
    return kept


def kept_tensors(module: nn.Module, weights: StateDict, new: Collection[str], what: str) -> list[str]:
    """The names of the module's tensors that the weights cannot replace.

    These may only be tensors of the parts `new`, such as the last layer: they are not in the weights, or have another
    shape there, because of another number of classes. All others must be there. A `UserError` that begins with `what`
    if they are not, or if the weights contain further tensors. It names a prefix that all tensors have in the weights.
    """
    own = module.state_dict()
    differing = [name for name in own if name not in weights or weights[name].shape != own[name].shape]
    kept = [name for name in differing if is_in(name, new)]
    problems = []
    if missing := [name for name in differing if name not in weights and name not in kept]:
        if prefix := _common_prefix([name for name in own if not is_in(name, new)], weights):
            raise UserError(
                f"{what} have the prefix '{prefix}' before the names of the model's tensors (allowed: a file with "
                "these tensors alone, named without the prefix)"
            )
        problems.append(f"missing tensors: {first_few(missing)}")
    if other := [name for name in differing if name in weights and name not in kept]:
        shapes = (f"{name} {list(weights[name].shape)} instead of {list(own[name].shape)}" for name in other)
        problems.append(f"tensors of other shapes: {first_few(list(shapes), 2)}")
    if unexpected := [name for name in weights if name not in own and not is_in(name, new)]:
        problems.append(f"unexpected tensors: {first_few(unexpected)}")
    if problems:
        raise UserError(f"{what} are of another model: {'; '.join(problems)}")
    return kept


def _common_prefix(own: Sequence[str], weights: StateDict) -> str:
    """What precedes all these names in the weights, such as module. or state_dict.; empty: no prefix does."""
    ends = own and [name for name in weights if name.endswith(f".{own[0]}")]
    prefixes = [name.removesuffix(own[0]) for name in ends]
    return next((one for one in prefixes if all(f"{one}{name}" in weights for name in own)), "")


def is_in(name: str, parts: Collection[str]) -> bool:
    """Whether a tensor belongs to one of these parts of a module, such as encoder.layers."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)
