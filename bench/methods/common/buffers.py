"""What happens to a model's buffers, such as the running statistics of BatchNorm, in a federation.

    average   sent with the model: b_i starts at b^t, and b^{t+1} = b^t + Σ_i p_i (b_i⁺ − b^t)
    local     each client keeps its own b_i, as in SiloBN (Andreux et al. 2020), and nothing is sent

The first gradient of each local step updates b_i; further gradients of the step, as those of SAM, and passes over all
data do not. The server's b is that of the evaluated model. For `local`, it is the mean over the participants of the
latest round, which serves the evaluation only. FedDrive's code (Fantauzzo et al. 2022) evaluates SiloBN otherwise: by
the statistics of each mini-batch of test images, or, for images of a known domain, of a client with this domain.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import ConfigDict
from torch import Tensor

from bench.methods.base import ClientRound, Component, ServerRound

BUFFERS = "model_buffers"
"""Name of b `[B]` in the state of server and clients, in broadcasts and uploads, and in `ClientRound.scratch`."""

Mode = Literal["average", "local"]


class BufferExchange(Component):
    """Keeps the buffers of server and clients; the engine adds it to the method of a model with buffers."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: ClassVar[str] = "buffers"

    mode: Mode
    initial: Tensor

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """The initial buffers, if the client keeps its own."""
        return {BUFFERS: self.initial.clone()} if self.mode == "local" else {}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """The initial buffers."""
        return {BUFFERS: self.initial.clone()}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """b^t, if it is sent."""
        return {BUFFERS: state[BUFFERS]} if self.mode == "average" else {}

    def start(self, client: ClientRound) -> None:
        """b_i starts at the received buffers, or at the client's own."""
        client.scratch[BUFFERS] = (client.received if self.mode == "average" else client.state)[BUFFERS]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores b_i⁺ if the client keeps it."""
        client.upload[BUFFERS] = client.scratch[BUFFERS]
        if self.mode == "local":
            client.state[BUFFERS] = client.scratch[BUFFERS]

    def aggregate(self, server: ServerRound) -> None:
        """b^{t+1} as a step from b^t: numbers that never change keep their bits, and infinite ones stay infinite."""
        b, received = server.state[BUFFERS], server.uploads[BUFFERS]
        server.state[BUFFERS] = b + server.mean(torch.where(received == b, 0, received - b))

    @staticmethod
    def diverged(before: Tensor, after: Tensor) -> Tensor:
        """Whether a number of b has become infinite or NaN in a round; constants of a model, such as masks, may be."""
        stayed = (after == before) | (after.isnan() & before.isnan())
        return (after.isfinite() | stayed).all().logical_not()

    def sent(self, upload: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The part of an upload that counts as traffic."""
        return {name: v for name, v in upload.items() if name != BUFFERS or self.mode == "average"}
