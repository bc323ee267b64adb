"""User-defined models: a Python function of the image shape and the number of classes."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from bench.input.content import code_hash, expanded, read_own, short_hash
from bench.input.errors import UserError, first_few, unknown
from bench.input.user_code import check_suffix, current_folder_importable, failure, reason, run_file
from bench.models.base import ImageShape, ModelChoice

KIND = "model file"


class UserModel(ModelChoice):
    """A model built by `function(image_shape, classes)` of a file or module; modules may be in the current folder.

    The identity of a run depends on `code`, the hash of this file, and on the name of the function. It does not depend
    on the path of the file, nor on modules that the file imports.
    """

    in_words: ClassVar[str] = "a user-defined model"

    file: Path | None = Field(default=None, description="a Python file; for a module: filled in")
    module: str | None = Field(default=None, description="the dotted name of a module, instead of a file")
    function: str = Field(description="called with (channels, height, width) and the number of classes")
    code: str | None = Field(default=None, description="hash of the file; filled in")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        file, module = data.get("file"), data.get("module")
        if file is None and isinstance(module, str):
            file = _file_of(module)
        if not isinstance(file, str | Path):
            return data
        file = expanded(file, f"the path of the {KIND}")
        check_suffix(file, KIND)
        return {**data, "file": file, "code": code_hash(file, data.get("code"), KIND)}

    @model_validator(mode="after")
    def _found(self) -> "UserModel":
        if self.file is None:
            raise UserError("a user-defined model needs a file or a module")
        return self

    @property
    def label(self) -> str:
        """The function's name with the hash of its file, for example small_net@0123456789abcdef."""
        return f"{self.function}@{self.code}"

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module that the function returns, tested on two blank images, forward and backward.

        Every mistake is reported as a `UserError` of one line.
        """
        assert self.file is not None
        source = read_own(self.file, KIND)
        if short_hash(source) != self.code:
            raise UserError(
                f"the {KIND} '{self.file}' was edited after the command had started; start the command again"
            )
        with current_folder_importable():
            module = run_file(self.file, source, KIND, (self.module or "").rpartition(".")[0])
            function = getattr(module, self.function, None)
            if not callable(function):
                functions = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
                raise unknown(f"function of the {KIND} '{self.file}'", self.function, functions)
            try:
                model = function(image_shape, classes)
                if isinstance(model, nn.Module):
                    _try(model, image_shape, classes)
            except (Exception, SystemExit) as error:
                raise failure(self.file, KIND, error) from None
        if not isinstance(model, nn.Module):
            raise UserError(
                f"'{self.function}' of the {KIND} '{self.file}' returns {type(model).__name__}, not a torch.nn.Module"
            )
        return model


def parse_reference(text: str) -> dict[str, str]:
    """The fields of a user-defined model for path/to/file.py:function, or for package.module:function."""
    place, _, function = text.rpartition(":")
    if not place or not function:
        raise UserError(
            f"model '{text}': a user-defined model must be path/to/file.py:function or package.module:function"
        )
    return {"file" if place.endswith(".py") or "/" in place else "module": place, "function": function}


def _file_of(module: str) -> Path:
    """The source file of a module. The module's packages are imported, but the module is not."""
    with current_folder_importable():
        importlib.invalidate_caches()
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # its package
            found = None
        except Exception as error:
            raise UserError(f"the model's module '{module}' cannot be found: {reason(error)}") from None
    if found is None:
        raise UserError(f"the model's module '{module}' is neither on Python's path nor in the current folder")
    if found.origin is None or not found.has_location:
        raise UserError(f"the model's module '{module}' is not a Python file")
    return Path(found.origin)


def _try(model: nn.Module, image_shape: ImageShape, classes: int) -> None:
    """Raises `UserError` for mistakes that would make training or evaluation fail later."""
    parameters = dict(model.named_parameters())
    if not parameters:
        raise UserError("the model has no parameters")
    if frozen := [name for name, parameter in parameters.items() if not parameter.requires_grad]:
        raise UserError(f"every parameter is trained, so none may be frozen (requires_grad=False): {first_few(frozen)}")
    if next(model.buffers(), None) is not None:
        return  # the objective reports buffers; a forward pass would change them
    images = torch.zeros(2, *image_shape)
    before = torch.get_rng_state()
    with torch.no_grad():
        tested: Tensor = model.eval()(images)
    with torch.enable_grad():
        scores: Tensor = model.train()(images)
    if not torch.equal(before, torch.get_rng_state()):
        raise UserError(
            "the model draws random numbers in its forward pass, which is not repeatable; "
            "for dropout use bench.models.dropout.Dropout"
        )
    _check_scores(scores, classes, "")
    _check_scores(tested, classes, " in evaluation (model.eval())")
    unused = list(parameters)
    if scores.requires_grad:
        loss = F.cross_entropy(scores, torch.zeros(2, dtype=torch.long))
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        unused = [name for name, gradient in zip(parameters, gradients, strict=True) if gradient is None]
    if unused:
        raise UserError(f"the loss does not depend on these parameters of the model: {first_few(unused)}")


def _check_scores(scores: object, classes: int, when: str) -> None:
    if not isinstance(scores, Tensor) or scores.shape != (2, classes):
        shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise UserError(f"the model turns two images into {shape}{when}, not into [2, {classes}] class scores")
    if not scores.is_floating_point():
        raise UserError(f"the model's class scores{when} are {scores.dtype}, not floating-point numbers")
