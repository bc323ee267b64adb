"""The plain reference: five methods written in the usual way of released research codes, from their equations.

A module trained by torch.optim.SGD; one DataLoader per client and round, whose data set augments image by image with
NumPy; models and method vectors travel as flat vectors on the CPU; perturbations are loops over the parameters, linear
terms of the direction come in by a second backward pass through the concatenated parameters. The class of a method
holds what its server does and what its clients do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from fedflat.bench.engine.step_settings import StepSettings
from tests.benchmarks.workload import HYPERPARAMETERS, SETTINGS, Workload

EPS = 1e-12
PADDING = 4


class ClientImages(Dataset[tuple[Tensor, int]]):
    """A client's normalised images `[n, channels, height, width]` and labels `[n]`.

    With a stream, each image is flipped with probability 1/2, and with probability 1/2 shifted in a border of zeros.
    """

    def __init__(
        self, images: NDArray[np.floating], labels: NDArray[np.int64], stream: np.random.Generator | None = None
    ) -> None:
        self.images = images
        self.labels = labels
        self.stream = stream

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if self.stream is not None:
            if self.stream.random() < 0.5:
                image = image[:, :, ::-1]
            if self.stream.random() < 0.5:
                _, height, width = image.shape
                framed = np.pad(image, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
                top, left = self.stream.integers(2 * PADDING + 1, size=2)
                image = framed[:, top : top + height, left : left + width]
            image = np.ascontiguousarray(image)
        return torch.from_numpy(image), int(self.labels[index])


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """One vector on the CPU."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).cpu()


class FedAvg:
    """w ← w + mean(w_i⁺ − w)."""

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[ClientImages],
        settings: StepSettings,
        hyperparameters: Mapping[str, float],
        epochs: int,
        batch: int,
    ) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.clients = clients
        self.settings = settings
        self.hyper = hyperparameters
        self.epochs = epochs
        self.batch = batch
        self.w = flatten(self.parameters)
        self.rounds = 0
        self.lr = settings.lr
        self.steps = 0
        self.order = torch.Generator().manual_seed(0)

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.w)

    def zeros_per_client(self) -> list[Tensor]:
        return [self.zeros() for _ in self.clients]

    def round(self, active: Sequence[int]) -> float:
        """Train one round and return the mean loss of all local steps."""
        self.lr = self.settings.lr * self.settings.lr_decay**self.rounds
        losses, models = [], []
        for i in active:
            losses.append(self.train_client(i))
            w_i = flatten(self.parameters)
            self.finish_client(i, w_i)
            models.append(w_i)
        self.aggregate(active, torch.stack(models))
        self.rounds += 1
        return float(np.mean(losses))

    @torch.no_grad()
    def evaluate(self, images: ClientImages, batch: int) -> tuple[float, float]:
        """Mean loss, and accuracy in percent, of w on images without augmentation."""
        for parameter, value in zip(self.parameters, self.per_parameter(self.w), strict=True):
            parameter.data.copy_(value)
        self.model.eval()
        loss, correct = 0.0, 0
        for x, y in DataLoader(images, batch):
            logits, labels = self.model(x.to(self.device)), y.to(self.device)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += int((logits.argmax(1) == labels).sum())
        return loss / len(images), 100 * correct / len(images)

    def train_client(self, i: int) -> float:
        """Local training from w; leaves w_i⁺ in the model."""
        for parameter, value in zip(self.parameters, self.per_parameter(self.w), strict=True):
            parameter.data.copy_(value)
        self.start_client(i)
        settings, total_loss = self.settings, 0.0
        optimizer = torch.optim.SGD(
            self.parameters, lr=self.lr, momentum=settings.local_momentum or 0, weight_decay=settings.weight_decay
        )
        loader = DataLoader(self.clients[i], self.batch, shuffle=True, generator=self.order)
        self.steps = self.epochs * len(loader)
        self.model.train()
        for _ in range(self.epochs):
            for images, labels in loader:
                x, y = images.to(self.device), labels.to(self.device)
                total_loss += self.gradient(x, y)
                if settings.clip is not None:
                    nn.utils.clip_grad_norm_(self.parameters, settings.clip)
                optimizer.step()
        return total_loss / self.steps

    def per_parameter(self, flat: Tensor) -> list[Tensor]:
        """A flat vector on the device, in the parameters' shapes."""
        flat = flat.to(self.device)
        parts, at = [], 0
        for parameter in self.parameters:
            parts.append(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()
        return parts

    def backward(self, x: Tensor, y: Tensor) -> float:
        """Leaves the gradient of the mini-batch in the parameters."""
        self.model.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss.item()

    def gradient(self, x: Tensor, y: Tensor) -> float:
        """Leaves the method's direction, before clipping, in the parameters' gradients."""
        return self.backward(x, y)

    def backward_at(self, offsets: Sequence[Tensor], x: Tensor, y: Tensor) -> float:
        """Leaves the gradient at the parameters plus offsets; the parameters do not change."""
        before = [parameter.data.clone() for parameter in self.parameters]
        for parameter, offset in zip(self.parameters, offsets, strict=True):
            parameter.data.add_(offset)
        loss = self.backward(x, y)
        for parameter, value in zip(self.parameters, before, strict=True):
            parameter.data.copy_(value)
        return loss

    def of_length_rho(self, direction: Sequence[Tensor]) -> list[Tensor]:
        """ρ r/‖r‖, the norm over the whole model."""
        length = torch.norm(torch.stack([torch.norm(part) for part in direction]))
        return [self.hyper["rho"] * part / (length + EPS) for part in direction]

    def add_linear(self, slope: Tensor, curvature: float = 0.0) -> None:
        """Adds the gradient of <slope, w> + curvature/2 ‖w‖²; `slope` is flat, on the device."""
        w = torch.cat([parameter.view(-1) for parameter in self.parameters])
        loss = torch.sum(w * slope)
        if curvature:
            loss = loss + curvature / 2 * torch.sum(w * w)
        loss.backward()

    def start_client(self, i: int) -> None:
        """Before local training: read the vectors that the server sends in addition to w, and the client's state."""

    def finish_client(self, i: int, w_i: Tensor) -> None:
        """After local training."""

    def aggregate(self, active: Sequence[int], models: Tensor) -> None:
        """The next w, from the models `[M, P]`."""
        self.w = self.w + self.settings.server_lr * (models.mean(0) - self.w)


class FedSAM(FedAvg):
    """The gradient at w + ρ g/‖g‖."""

    def gradient(self, x: Tensor, y: Tensor) -> float:
        self.backward(x, y)
        return self.backward_at(self.ascent(), x, y)

    def ascent(self) -> list[Tensor]:
        """The perturbation, from the gradient at w in the parameters."""
        return self.of_length_rho([parameter.grad for parameter in self.parameters])


class FedLESAMS(FedAvg):
    """The gradient at w + ρ unit(w_old − w^t), and SCAFFOLD's control variates."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.w_old = self.zeros_per_client()
        self.c, self.c_i = self.zeros(), self.zeros_per_client()
        self.control_changes: list[Tensor] = []

    def start_client(self, i: int) -> None:
        self.offsets = self.of_length_rho(self.per_parameter(self.w_old[i] - self.w))
        self.slope = (self.c - self.c_i[i]).to(self.device)

    def gradient(self, x: Tensor, y: Tensor) -> float:
        loss = self.backward_at(self.offsets, x, y)
        self.add_linear(self.slope)
        return loss

    def finish_client(self, i: int, w_i: Tensor) -> None:
        new = self.c_i[i] - self.c - (w_i - self.w) / (self.steps * self.lr)
        self.control_changes.append(new - self.c_i[i])
        self.c_i[i] = new
        self.w_old[i] = self.w

    def aggregate(self, active: Sequence[int], models: Tensor) -> None:
        super().aggregate(active, models)
        self.c = self.c + torch.stack(self.control_changes).sum(0) / len(self.clients)
        self.control_changes.clear()


class WithDual(FedSAM):
    """FedDyn's terms: the direction has λ (H_i + w − w^t), the next model is mean(w_i⁺) + H̄."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.H = self.zeros_per_client()
        self.H_bar = self.zeros()

    def start_client(self, i: int) -> None:
        self.slope = (self.hyper["lam"] * (self.H[i] - self.w)).to(self.device)

    def gradient(self, x: Tensor, y: Tensor) -> float:
        loss = super().gradient(x, y)
        self.add_linear(self.slope, self.hyper["lam"])
        return loss

    def finish_client(self, i: int, w_i: Tensor) -> None:
        self.H[i] = self.H[i] + (w_i - self.w)

    def aggregate(self, active: Sequence[int], models: Tensor) -> None:
        self.H_bar = self.H_bar + (models - self.w).sum(0) / len(self.clients)
        self.w = models.mean(0) + self.H_bar


class FedSMOO(WithDual):
    """The perturbation is ρ unit(g − μ_i − s)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mu, self.s = self.zeros_per_client(), self.zeros()
        self.sent: list[Tensor] = []

    def start_client(self, i: int) -> None:
        super().start_client(i)
        self.local_mu = self.per_parameter(self.mu[i].clone())
        self.local_s = self.per_parameter(self.s)

    def ascent(self) -> list[Tensor]:
        parts = zip(self.parameters, self.local_mu, self.local_s, strict=True)
        self.offsets = self.of_length_rho([parameter.grad - mu - s for parameter, mu, s in parts])
        for mu, offset, s in zip(self.local_mu, self.offsets, self.local_s, strict=True):
            mu.add_(offset - s)
        return self.offsets

    def finish_client(self, i: int, w_i: Tensor) -> None:
        super().finish_client(i, w_i)
        self.mu[i] = flatten(self.local_mu)
        self.sent.append(self.mu[i] - flatten(self.offsets))

    def aggregate(self, active: Sequence[int], models: Tensor) -> None:
        super().aggregate(active, models)
        s = torch.stack(self.sent).mean(0)
        self.s = self.hyper["rho"] * s / (torch.norm(s) + EPS)
        self.sent.clear()


class FedTOGA(WithDual):
    """The perturbation is ρ unit(g + κA), and the direction has βA, where A is the last global update per step."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.A = self.zeros()

    def start_client(self, i: int) -> None:
        super().start_client(i)
        self.slope = self.slope + self.hyper["beta"] * self.A.to(self.device)
        self.local_A = self.per_parameter(self.A)

    def ascent(self) -> list[Tensor]:
        parts = zip(self.parameters, self.local_A, strict=True)
        return self.of_length_rho([parameter.grad + self.hyper["kappa"] * A for parameter, A in parts])

    def aggregate(self, active: Sequence[int], models: Tensor) -> None:
        self.A = -(models - self.w).mean(0) / self.steps
        super().aggregate(active, models)


PLAIN: Mapping[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedsam": FedSAM,
    "fedsmoo": FedSMOO,
    "fedlesam_s": FedLESAMS,
    "fedtoga": FedTOGA,
}


class Plain:
    """A workload that the plain reference trains."""

    def __init__(self, workload: Workload, method: str, device: torch.device) -> None:
        self.workload = workload
        data = workload.data()
        self._images = ((data.images - data.shift) * data.factor).numpy()
        self._labels = data.labels.numpy()
        self._stream = np.random.default_rng(0) if workload.augmented else None
        self._run = PLAIN[method](
            workload.module(0).to(device),
            self._clients(workload.images),
            SETTINGS,
            HYPERPARAMETERS[method],
            workload.epochs,
            workload.batch,
        )

    def round(self, active: Sequence[int], images: int) -> float:
        """One round, with `images` images per active client; the mean local loss."""
        if len(self._run.clients[0]) != images:
            self._run.clients = self._clients(images)
        return self._run.round(active)

    def _clients(self, images: int) -> list[ClientImages]:
        return [ClientImages(self._images[i], self._labels[i], self._stream) for i in self.workload.split(images)]
