"""Named and user-defined models. The `model` of a configuration selects one of them."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import nn

from fedflat.bench.code.named_code import parse_reference
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.registry import OneOf, registered
from fedflat.bench.models.architectures.torchvision_models import classifiers
from fedflat.bench.models.base import ImageShape, ModelChoice, NamedModel
from fedflat.bench.models.user_model import NOUN, UserModel
from fedflat.bench.numerics.streams import torch_seed

MODELS = registered(NamedModel, "fedflat.bench.models.architectures")


def parse_model(model: Any) -> ModelChoice:
    """The model choice for the `model` of a configuration.

    Accepted: a name, also of a classifier of torchvision; a mapping with name and options; `file.py:function` or
    `module:function`, also as a mapping.
    """
    if isinstance(model, ModelChoice):
        return model
    if isinstance(model, str) and ":" in model:
        model = parse_reference(model, NOUN)
    fields = model if isinstance(model, Mapping) else {"name": model}
    if "function" in fields and "name" not in fields:
        return UserModel.parse(fields, where="model")
    if "name" not in fields:
        raise UserError("model needs a name, or the file and function of a user-defined model")
    name = fields["name"]
    if not isinstance(name, str) or name not in MODELS:
        if name not in classifiers():
            raise unknown("model", str(name), [*MODELS, *classifiers()])
        if "arch" in fields:
            raise UserError(f"model {name}: arch = {fields['arch']} (allowed: only with name: torchvision)")
        fields, name = {**fields, "name": "torchvision", "arch": name}, "torchvision"
    return MODELS[name].parse(fields, where=f"model {name}")


AnyModel = Annotated[ModelChoice, OneOf([*MODELS.values(), UserModel]), BeforeValidator(parse_model)]


def build_model(model: ModelChoice, image_shape: ImageShape, classes: int, seed: int) -> nn.Module:
    """A newly initialised model. The seed alone determines its weights; global random state is not changed.

    A `UserError` if the memory that is free does not suffice for the weights of a named model.
    """
    model.check_kind(image_shape)
    with torch.random.fork_rng(devices=[]):
        model.check_memory(image_shape, classes)
        torch.default_generator.manual_seed(torch_seed(seed, "model"))  # torch.manual_seed would touch GPUs too
        return model.build(image_shape, classes)


def check_model(model: ModelChoice, image_shape: ImageShape, classes: int) -> None:
    """Raises `UserError` if `build_model` would; global random state is not changed."""
    model.check_kind(image_shape)
    with torch.random.fork_rng(devices=[]):
        model.check(image_shape, classes)
