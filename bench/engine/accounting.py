"""What a round costs, counted from what actually flows; never declared by a method.

Sizes are in units of the model. Numbers that travel or rest beside vectors, such as FedGF's c, are not counted.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor


def model_sizes(tensors: Iterable[Tensor], parameters: int) -> float:
    """The tensors' total size in models of so many parameters; single numbers are left out."""
    return sum(tensor.numel() for tensor in tensors if tensor.numel() > 1) / parameters


def traffic(
    received: Mapping[str, Tensor], uploads: Sequence[Mapping[str, Tensor]], parameters: int
) -> dict[str, float]:
    """Per client and round: `download`, and `upload` in the mean over clients; the model itself included."""
    sent = [tensor for upload in uploads for tensor in upload.values()]
    return {
        "download": 1 + model_sizes(received.values(), parameters),
        "upload": 1 + model_sizes(sent, parameters) / len(uploads),
    }
