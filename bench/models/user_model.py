"""User-defined models: a Python function of the image shape and the number of classes."""

from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedflat.bench.code.user_function import UserFunction
from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.host.torchvision_compat import prepare_imports
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, ModelChoice
from fedflat.bench.models.buffer_mode import BufferMode, GivenModeOrNone
from fedflat.bench.models.frozen_parts import frozen_parts, set_training
from fedflat.bench.models.network import check_used, cross_entropy, has_auxiliary_heads
from fedflat.bench.numerics.precision import check_not_half

NOUN = "model"


class UserModel(UserFunction, ModelChoice):
    """A model built by `function(image_shape, classes)` of a file or module; modules may be in the current folder."""

    in_words: ClassVar[str] = "a user-defined model"
    label_maps: ClassVar[bool | None] = None
    tokens: ClassVar[bool | None] = None
    noun: ClassVar[str] = NOUN

    function: str = Field(description="called with the shape of an input and the number of classes")
    buffers: GivenModeOrNone = Field(
        default=None,
        description="average: buffers, such as BatchNorm's statistics, are sent and averaged like parameters; local: "
        "each client keeps its own; {local: [PATTERN, ...]}: those whose names match; refuse, or null: the model must "
        "not have any outside of frozen parts",
    )

    @property
    def buffer_mode(self) -> BufferMode | None:
        """The field `buffers`."""
        return self.buffers

    @property
    def label(self) -> str:
        """The function's name with the hash of its file, for example small_net@0123456789abcdef."""
        return f"{self.function}@{self.code}"

    @property
    def initial_weights(self) -> str:
        """What the function returns, in words for messages."""
        return f"the initial weights of the model in '{self.file}'"

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module that the function returns, tested on two blank images, forward and backward.

        Every mistake is reported as a `UserError` of one line.
        """

        def tested(model: object) -> object:
            if isinstance(model, nn.Module):
                _try(model, image_shape, classes)
            return model

        prepare_imports(self.source())
        model = self.call(image_shape, classes, then=tested)
        if not isinstance(model, nn.Module):
            raise UserError(
                f"'{self.function}' of the {self.kind_of_file()} '{self.file}' returns {type(model).__name__}, not a "
                "torch.nn.Module"
            )
        return model


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Number formats of parameters and inputs."""


def unusual(tensor: Tensor) -> str:
    """What keeps a tensor from being computed with, in words; empty: nothing."""
    if is_lazy(tensor):
        return "has no shape yet: its module is lazy, and must see an input first"
    if tensor.is_meta:
        return "is on the device meta, and so has no values"
    if tensor.is_quantized:
        return "is quantised"
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"has the layout {str(tensor.layout).removeprefix('torch.')}"
    return ""


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require gradients, by name; a `UserError` if there are none, or if they are no dense
    floating-point numbers of one format on one device."""
    if next(model.parameters(), None) is None:
        raise UserError("the model has no parameters")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if problem := unusual(tensor):
            raise UserError(f"the model's '{name}' {problem} (allowed: dense tensors with values)")
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not trained:
        raise UserError("all parameters of the model are frozen (requires_grad=False), so there is nothing to train")
    kinds = {(parameter.dtype, str(parameter.device)) for parameter in trained.values()}
    if len(kinds) > 1 or not {dtype for dtype, _ in kinds} <= {*FLOATS}:
        names = " and ".join(sorted(f"{str(dtype).removeprefix('torch.')} on {device}" for dtype, device in kinds))
        raise UserError(
            f"the model's parameters are {names} (allowed: one format of floating-point numbers, one device)"
        )
    return trained


def _try(model: nn.Module, image_shape: ImageShape, classes: int) -> None:
    """Raises `UserError` for mistakes that would make training or evaluation fail later."""
    if next(model.buffers(), None) is not None:
        model = deepcopy(model)  # a forward pass changes them
    parameters = trained_parameters(model)
    check_not_half(parameters.values())
    images = torch.zeros(2, *image_shape, dtype=torch.int64 if isinstance(image_shape, TokenShape) else None)
    before = torch.get_rng_state()
    with torch.no_grad():
        tested: Tensor = model.eval()(images)
    with torch.enable_grad():
        set_training(model, frozen_parts(model))
        scores: Tensor = model(images)
    if not torch.equal(before, torch.get_rng_state()):
        raise UserError(
            "the model draws random numbers in its forward pass, which is not repeatable; "
            "for dropout use fedflat.models.Dropout"
        )
    _check_scores(scores, image_shape, classes, "", may_have_heads=has_auxiliary_heads(model))
    _check_scores(tested, image_shape, classes, " in evaluation (model.eval())")
    gradients: Sequence[Tensor | None] = [None] * len(parameters)
    if scores.requires_grad:
        loss = cross_entropy(scores, torch.zeros(2, *scores.shape[2:][-2:], dtype=torch.long))
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    check_used("parameters of the model", parameters, gradients)


def _check_scores(
    scores: object, image_shape: ImageShape, classes: int, when: str, *, may_have_heads: bool = False
) -> None:
    """A `UserError` unless these are scores of images, or of their pixels."""
    sizes = scores.shape if isinstance(scores, Tensor) else torch.Size()
    if may_have_heads and len(sizes) == 5:
        sizes = torch.Size([*sizes[:2], *sizes[3:]])
    of_pixels = (2, classes, *image_shape[1:]) if len(image_shape) == 3 else None
    if not isinstance(scores, Tensor) or sizes not in ((2, classes), of_pixels):
        shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise UserError(
            f"the model turns two images into {shape}{when}, not into [2, {classes}] class scores"
            + (f" (for segmentation: {list(of_pixels)})" if of_pixels else "")
        )
    if not scores.is_floating_point():
        raise UserError(f"the model's class scores{when} are {scores.dtype}, not floating-point numbers")
