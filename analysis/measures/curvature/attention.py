"""Attention whose gradients can be differentiated again, as Hessians need it."""

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel


def twice_differentiable() -> AbstractContextManager[None]:
    """In the block, attention is computed by its formula: torch's fused kernels have no second derivative."""
    context: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
    return context
