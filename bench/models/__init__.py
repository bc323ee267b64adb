"""Models by name, and a user's own. A configuration's `model` is one of the choices here."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import nn

from bench.input.errors import UserError, unknown
from bench.models.base import ImageShape, ModelChoice, NamedModel
from bench.models.cnn_emnist import CNNEMNISTChoice
from bench.models.cnn_gn import CNNGNChoice
from bench.models.lenet import LeNetChoice
from bench.models.resnet import ResNet18GNChoice, ResNet18NoNormChoice
from bench.models.user_model import UserModel, parse_reference
from bench.numerics.streams import torch_seed

MODELS: dict[str, type[NamedModel]] = {
    choice.model_fields["name"].default: choice
    for choice in (CNNGNChoice, LeNetChoice, CNNEMNISTChoice, ResNet18GNChoice, ResNet18NoNormChoice)
}


def parse_model(model: Any) -> ModelChoice:
    """The choice that a configuration's `model` means.

    A name; a mapping of name and options; file.py:function or module:function, or these as a mapping.
    """
    if isinstance(model, ModelChoice):
        return model
    if isinstance(model, str) and ":" in model:
        model = parse_reference(model)
    fields = model if isinstance(model, Mapping) else {"name": model}
    if "function" in fields and "name" not in fields:
        return UserModel.parse(fields, where="model")
    if "name" not in fields:
        raise UserError("model needs a name, or the file and the function of one of your own")
    name = fields["name"]
    if not isinstance(name, str) or name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name].parse(fields, where=f"model {name}")


AnyModel = Annotated[
    CNNGNChoice | LeNetChoice | CNNEMNISTChoice | ResNet18GNChoice | ResNet18NoNormChoice | UserModel,
    BeforeValidator(parse_model),
]


def build_model(model: ModelChoice, image_shape: ImageShape, classes: int, seed: int) -> nn.Module:
    """A freshly initialised model; the seed alone decides its weights, and global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "model"))  # torch.manual_seed would touch GPUs too
        return model.build(image_shape, classes)
