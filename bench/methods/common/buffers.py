"""What happens to a model's buffers, such as the running statistics of BatchNorm, in a federation.

    average   sent with the model: b_i starts at b^t, and b^{t+1} = b^t + Σ_i p_i (b_i⁺ − b^t)
    local     each client keeps its own b_i, as in SiloBN (Andreux et al. 2020), and nothing is sent

Some entries of b may be averaged, and the others local. The first gradient of each local step updates b_i; further
gradients of the step, as those of SAM, and passes over all data do not. The server's b is that of the evaluated model.
For local entries, it is the mean over the participants of the latest round, which serves the evaluation only.
FedDrive's code (Fantauzzo et al. 2022) evaluates SiloBN otherwise: by the statistics of each mini-batch of test images,
or, for images of a known domain, of a client with this domain.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, PrivateAttr
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Component, ServerRound

BUFFERS = "model_buffers"
"""Name of b `[B]` in the state of the server, in uploads, and in `ClientRound.scratch`; of its local entries in the
state of a client, and of the others in broadcasts."""


class BufferExchange(Component):
    """Keeps the buffers of server and clients; the engine adds it to the method of a model with buffers.

    `initial` is b `[B]` at the start; `kept` `[K]` are the positions of its local entries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: ClassVar[str] = "buffers"

    initial: Tensor
    kept: Tensor
    _sent: Tensor = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """The positions `[B − K]` of the entries that are sent: found once, because a GPU would wait for the host."""
        is_sent = torch.ones(len(self.initial), dtype=torch.bool, device=self.initial.device)
        is_sent[self.kept] = False
        self._sent = is_sent.nonzero().flatten()

    def start_client(self, w: Tensor) -> dict[str, Tensor]:
        """The initial local entries, if there are any."""
        return {BUFFERS: self.initial[self.kept]} if len(self.kept) else {}

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """The initial buffers."""
        return {BUFFERS: self.initial.clone()}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """The entries of b^t that are sent."""
        return {BUFFERS: state[BUFFERS][self._sent]} if len(self._sent) else {}

    def start(self, client: ClientRound) -> None:
        """b_i starts at the received entries, and the client's own ones."""
        b = self.initial.clone()
        if len(self._sent):
            b[self._sent] = client.received[BUFFERS]
        if len(self.kept):
            b[self.kept] = client.state[BUFFERS]
        client.scratch[BUFFERS] = b

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores the entries of b_i⁺ that the client keeps."""
        client.upload[BUFFERS] = client.scratch[BUFFERS]
        if len(self.kept):
            client.state[BUFFERS] = client.scratch[BUFFERS][self.kept]

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
        others = {name: v for name, v in upload.items() if name != BUFFERS}
        return {**others, BUFFERS: upload[BUFFERS][self._sent]} if len(self._sent) else others
