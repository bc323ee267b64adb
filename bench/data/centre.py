"""The centre of images: what models see of images that are stored with a margin."""

from torch import Tensor


def centre(images: Tensor, side: int | None) -> Tensor:
    """The central square of images `[..., height, width]` with at most this side; None: the whole images.

    A view. Where the margins cannot be equal, the one at the top or left is smaller by one pixel.
    """
    if side is None:
        return images
    height, width = images.shape[-2:]
    top, left = (max(0, length - side) // 2 for length in (height, width))
    return images[..., top : top + side, left : left + side]


def centre_shape(image_shape: tuple[int, ...], side: int | None) -> tuple[int, ...]:
    """The shape of the centre of an image (channels, height, width)."""
    return image_shape if side is None else (image_shape[0], *(min(side, length) for length in image_shape[1:]))
