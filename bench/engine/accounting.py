"""The costs of a round, counted from the tensors that are sent and stored; methods declare nothing.

Sizes are in units of the model. Single numbers, such as FedGF's c, are not counted.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor


def model_sizes(tensors: Iterable[Tensor], parameters: int) -> float:
    """The total size of the tensors in units of a model with this many parameters; single numbers are not counted."""
    return sum(tensor.numel() for tensor in tensors if tensor.numel() > 1) / parameters


def traffic(
    received: Mapping[str, Tensor], uploads: Sequence[Mapping[str, Tensor]], parameters: int
) -> dict[str, float]:
    """Per client and round: `download`, and the mean `upload` over clients; both include the model itself."""
    sent = [tensor for upload in uploads for tensor in upload.values()]
    return {
        "download": 1 + model_sizes(received.values(), parameters),
        "upload": 1 + model_sizes(sent, parameters) / len(uploads),
    }
