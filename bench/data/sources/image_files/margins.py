"""Images that are stored with a margin, of which models see the centre."""

from pydantic import Field, model_validator

from fedflat.bench.data.sources.base import Source
from fedflat.bench.data.sources.image_files.decoding import Side
from fedflat.bench.input.errors import UserError


class Margins(Source):
    """The common base class of data sets of square images. Augmentations get the whole stored images."""

    size: Side | None = Field(
        examples=[256], default=None, description="height and width of the stored images, in pixels"
    )
    crop: Side | None = Field(
        examples=[224],
        default=None,
        description="height and width of the centre of the stored images, which is the input of models; null: the "
        "whole images",
    )

    @model_validator(mode="after")
    def _crop_fits(self) -> "Margins":
        if self.crop is not None and (self.size is None or self.crop > self.size):
            allowed = "null, or a size of the stored images" if self.size is None else f"at most size, {self.size}"
            raise UserError(f"crop = {self.crop} (allowed: {allowed})")
        return self

    def stored_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """(channels, size, size)."""
        return input_shape if self.crop is None or self.size is None else (input_shape[0], self.size, self.size)
