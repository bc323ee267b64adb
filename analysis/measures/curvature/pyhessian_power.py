"""Power iteration by the package PyHessian, the estimator behind many published eigenvalues.

Only its eigenvalues are used: its density calls torch.eig, which PyTorch no longer has, and its trace stops too early,
with errors of up to 16 %. Faults of version 0.1, and what is done about them here:

- For a single batch, it adds the gradient to what `.grad` holds, so that a second object for the same model finds
  doubled eigenvalues. Here it always receives a data loader, for which it clears `.grad` before each batch.
- It draws its starting vectors from torch's global generator. Here that is seeded, and then restored.
- Its backward passes warn of reference cycles, which it removes itself by clearing `.grad`. The warning is hidden.
- Its device is the current GPU. Here the model's GPU is made the current one.
- It reports no residuals, and does not count products. Here both are added.

Faults that remain, because they belong to the estimator: it finds the largest |λ|, negative ones included; it stops if
an estimate changes little, even if it is not close to an eigenvalue, and returns the estimate before the last one; the
error of each eigenvector changes the later eigenvalues; v/(‖v‖ + 1e-6) instead of v/‖v‖ makes all eigenvalues too small
by a relative 2e-6.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from itertools import count

import numpy as np
import pyhessian
import torch
from torch import Tensor, nn

from fedflat.analysis.measures.curvature.attention import twice_differentiable
from fedflat.analysis.measures.curvature.lanczos import Eigenpairs, Operator, Track, measured
from fedflat.bench.engine.objective import Batched, Objective
from fedflat.bench.numerics.streams import torch_seed

NAME = f"PyHessian {version('pyhessian')}"


class _Batches:
    """A data loader for the package: inputs in the model's memory format. It counts the products, one per pass."""

    def __init__(self, objective: Objective, data: Batched, track: Track) -> None:
        self._inputs, self._data = objective.inputs, data
        self._numbers = iter(track(count(1)))
        self.products = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.products = next(self._numbers)
        return ((self._inputs(x), y) for x, y in self._data)


def pyhessian_eigenpairs(
    objective: Objective,
    w: Tensor,
    data: Batched,
    k: int,
    product: Operator,
    *,
    iterations: int = 100,
    change: float = 1e-3,
    track: Track = iter,
) -> Eigenpairs:
    """k eigenvalues of ∇²F(w), w `[P]`, of largest modulus, by PyHessian's `eigenvalues` with its defaults.

    At most `iterations` products per eigenvalue; it stops earlier if the estimate changes by less than `change`,
    relatively. F is the mean cross-entropy over all of the data, batches weighted by their size. Further k products, by
    `product`, measure the residuals of the values that the package returns. On a CPU equal calls give equal bits. The
    module is left in evaluation mode, with empty gradients, as by all analyses. Memory: k vectors.
    """
    batches = _Batches(objective, data, track)
    on_gpu = w.device.type == "cuda"
    on_its_gpu = torch.cuda.device(w.device) if on_gpu else nullcontext()
    with on_its_gpu, _seeded(), twice_differentiable(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Using backward\(\) with create_graph=True")
        estimator = pyhessian.hessian(objective.load(w), nn.CrossEntropyLoss(), dataloader=batches, cuda=on_gpu)
        values, vectors = estimator.eigenvalues(maxIter=iterations, tol=change, top_n=k)
    flat = torch.stack([torch.cat([part.reshape(-1) for part in vector]).to(w) for vector in vectors])
    return measured(product, flat, np.array(values, dtype=np.float64), batches.products)


@contextmanager
def _seeded() -> Iterator[None]:
    """Torch's global generator of the CPU, from which the package draws, with a fixed seed; restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(0, "pyhessian-start"))
        yield
