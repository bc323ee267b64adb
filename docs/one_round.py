"""Federated training with FedSAM in plain PyTorch: data, clients, participants, local training, average, evaluation.

Nothing here comes from FedFlat, and the parameters equal those of `fedflat.simulate` bit for bit. Each function names
the place in FedFlat that does the same, for all methods, models and data sets. Run it with: python docs/one_round.py
"""

import hashlib

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

SEED, CLIENTS, ACTIVE, ROUNDS = 0, 10, 4, 20
EPOCHS, BATCH, LR, RHO, ALPHA = 2, 16, 0.1, 0.05, 0.3


def stream(purpose: str, *indices: int) -> np.random.Generator:
    """Random numbers that depend on the seed and these words alone, so that every method has the same ones.

    In FedFlat: fedflat.bench.numerics.streams.numpy_stream
    """
    words = ":".join(map(str, (SEED, purpose, *indices)))
    key = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images `[n, 64]` of handwritten digits, each with its labels `[n]`.

    In FedFlat: fedflat.bench.data.sources
    """
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.from_numpy(stream("test images").permutation(len(y)))
    train, test = order[:1400], order[1400:]
    return (x[train], y[train]), (x[test], y[test])


def split(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The images of each client: of each class, clients get shares that are drawn from a Dirichlet distribution.

    In FedFlat: fedflat.bench.data.partitions
    """
    owner = torch.empty(len(y), dtype=torch.int64)
    for label in range(10):
        rng, of_class = stream("split", label), torch.nonzero(y == label)[:, 0]
        ends = (rng.dirichlet([ALPHA] * CLIENTS).cumsum()[:-1] * len(of_class)).astype(int)
        for client, part in enumerate(np.split(rng.permutation(of_class.numpy()), ends)):
            owner[part] = client
    return [(x[owner == client], y[owner == client]) for client in range(CLIENTS)]


def model() -> nn.Module:
    """A small network, always with the same initial parameters.

    In FedFlat: fedflat.bench.models
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def gradient(network: nn.Module, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∇F(w) `[P]` on a mini-batch.

    In FedFlat: fedflat.bench.engine.objective.Objective
    """
    vector_to_parameters(w, network.parameters())
    loss = cross_entropy(network(x), y)
    return parameters_to_vector(torch.autograd.grad(loss, list(network.parameters())))


def local_training(network: nn.Module, w: Tensor, x: Tensor, y: Tensor, client: int, t: int) -> Tensor:
    """The client's model `[P]` after its local epochs, which begin at the global model w.

    In FedFlat: fedflat.bench.engine.backends.loop.Loop, fedflat.bench.methods.perturbations.sam.SAM
    """
    for epoch in range(EPOCHS):
        order = torch.from_numpy(stream("batches", t, client, epoch).permutation(len(y)))
        for batch in order.split(BATCH):
            g = gradient(network, w, x[batch], y[batch])
            delta = g * (RHO / (g.norm() + 1e-12))  # SAM's ascent step of length ρ
            w = descent(w, gradient(network, w + delta, x[batch], y[batch]))
    return w


def descent(w: Tensor, g: Tensor) -> Tensor:
    """w − η g, computed in one pass over the model.

    In FedFlat: fedflat.bench.engine.step_settings.StepSettings
    """
    return torch.addr(w[:, None], g, torch.tensor([-LR]))[:, 0]


def participants(t: int) -> list[int]:
    """The active clients of round t.

    In FedFlat: fedflat.bench.engine.participation.active_clients
    """
    return sorted(stream("participation", t).choice(CLIENTS, ACTIVE, replace=False).tolist())


@torch.no_grad()
def accuracy(network: nn.Module, w: Tensor, x: Tensor, y: Tensor) -> float:
    """The share of images that the model w classifies correctly, in percent.

    In FedFlat: fedflat.bench.engine.objective.Objective
    """
    vector_to_parameters(w, network.parameters())
    return 100 * int((network(x).argmax(1) == y).sum()) / len(y)


def train() -> tuple[Tensor, list[float]]:
    """The final global model `[P]`, and the test accuracy in percent after each round.

    In FedFlat: fedflat.bench.engine.federation.Federation, fedflat.bench.methods.servers.average.Average
    """
    train_set, (x_test, y_test) = data()
    clients, network = split(*train_set), model()
    w, accuracies = parameters_to_vector(network.parameters()).detach(), []
    for t in range(ROUNDS):
        active = participants(t)
        updates = torch.stack([local_training(network, w, *clients[i], i, t) - w for i in active])
        sizes = torch.tensor([len(clients[i][1]) for i in active], dtype=torch.float64)
        w = w + (sizes / sizes.sum()).float() @ updates  # FedAvg's server, η_g = 1
        accuracies.append(accuracy(network, w, x_test, y_test))
        print(f"round {t + 1}: test accuracy {accuracies[-1]:.2f} %")
    return w, accuracies


if __name__ == "__main__":
    train()
