"""Parts of a module that are not trained: neither their parameters nor their buffers change, and none is sent."""

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor, nn

from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.models.weights import is_in


def freeze(module: nn.Module, parts: Sequence[str]) -> None:
    """Parameters of these parts require no gradients. A `UserError` if a part does not exist, or if none remains."""
    names = [name for name, _ in module.named_parameters()]
    for part in parts:
        if not any(is_in(name, [part]) for name in names):
            modules = [name for name, _ in module.named_modules() if name]
            raise unknown("part of the model in frozen", part, modules)
    if all(is_in(name, parts) for name in names):
        raise UserError("frozen has all parts of the model (allowed: some of them, so that parameters are trained)")
    for name, parameter in module.named_parameters():
        if is_in(name, parts):
            parameter.requires_grad_(False)


def frozen_parts(module: nn.Module) -> list[nn.Module]:
    """The largest parts of a module that have parameters, none of which requires gradients."""
    return list(_frozen_below(module))


def _frozen_below(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        parameters = list(child.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            yield child
        else:
            yield from _frozen_below(child)


def trained_buffers(module: nn.Module, frozen: Iterable[nn.Module]) -> dict[str, Tensor]:
    """The module's buffers by name, in its order, without those of its `frozen` parts."""
    constant = {id(buffer) for part in frozen for buffer in part.buffers()}
    return {name: buffer for name, buffer in module.named_buffers() if id(buffer) not in constant}


def set_training(module: nn.Module, frozen: Iterable[nn.Module]) -> None:
    """Training mode, but for the `frozen` parts, which keep the statistics of BatchNorm and drop nothing."""
    module.train()
    for part in frozen:
        part.eval()
