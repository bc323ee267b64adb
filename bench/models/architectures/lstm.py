"""A recurrent network for sequences of token ids, as LEAF's for Shakespeare (Caldas et al. 2018)."""

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.input.bounds import MOST
from fedflat.bench.input.errors import UserError
from fedflat.bench.models.base import ImageShape, NamedModel

Width = Annotated[int, Field(ge=1, le=10_000)]


class LSTMChoice(NamedModel):
    """The network with its widths as options; the defaults are those of LEAF's network for Shakespeare."""

    name: Literal["lstm"] = "lstm"
    embedding: Width = Field(default=8, description="numbers that represent a token")
    hidden: tuple[Width, ...] = Field(
        default=(256, 256), min_length=1, max_length=10, description="units of the LSTM layers"
    )
    vocabulary: int | None = Field(
        default=None, ge=1, le=MOST, examples=[5000], description="number of token ids; null: that of the data set"
    )

    tokens: ClassVar[bool | None] = True

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for token ids `[B, length]`."""
        there = image_shape.vocabulary if isinstance(image_shape, TokenShape) else 1
        if len(image_shape) != 1 or (self.vocabulary is not None and self.vocabulary < there):
            raise UserError(
                f"model {self.label} needs sequences of token ids below its vocabulary, but these have the shape "
                f"{image_shape} and {there} ids (allowed: [n, length], and vocabulary: null or at least {there})"
            )
        return LSTM(self.vocabulary or there, self.embedding, self.hidden, classes)


class LSTMLayer(nn.Module):
    """`torch.nn.LSTM` of one layer, with its initial weights, written as matrix products.

    torch's own works neither under `torch.func.vmap`, nor has it second derivatives on a GPU.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(inputs, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, x: Tensor) -> list[Tensor]:
        """The states `[B, hidden]` after each step of x `[B, length, inputs]`."""
        states, cell = list[Tensor](), x.new_zeros(())
        weight = self.of_state.weight.T
        for given in (self.of_input(x) + self.of_state.bias).unbind(1):
            gates = torch.addmm(given, states[-1], weight) if states else given
            admit, keep, candidate, show = gates.chunk(4, dim=-1)
            admitted = admit.sigmoid() * candidate.tanh()
            cell = keep.sigmoid() * cell + admitted if states else admitted
            states.append(show.sigmoid() * cell.tanh())
        return states


class LSTM(nn.Module):
    """An embedding, LSTM layers, and a linear layer on the state after the last token.

    With LEAF's defaults and 80 characters: 820,000 parameters.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        widths = (embedding, *hidden)
        self.layers = nn.ModuleList(LSTMLayer(*pair) for pair in zip(widths, hidden, strict=False))
        self.head = nn.Linear(hidden[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        """The state `[B, hidden]` of the last layer after the last token."""
        sequence: Tensor = self.embedding(x)
        states = list[Tensor]()
        for layer in self.layers:
            states = layer(torch.stack(states, 1) if states else sequence)
        return states[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Class scores `[B, classes]` of token ids `[B, length]`."""
        scores: Tensor = self.head(self.features(x))
        return scores
