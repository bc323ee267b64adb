"""The largest Hessian eigenvalues: Lanczos against PyHessian's power iteration, to the same residual."""

import sys
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import pyhessian
import torch
from torch import Tensor, nn

from fedflat.analysis.measures.curvature.hessian import hessian_product, top_eigenvalues
from fedflat.bench.engine.objective import Objective
from tests.benchmarks import machine
from tests.benchmarks.floor import synchronised
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.workload import Workload

TOLERANCE = 1e-3
"""Largest ‖Hv − λv‖ in units of |λ|."""
DEFAULTS = {"maxIter": 100, "tol": 1e-3}
"""PyHessian's default tolerance."""
SAME_RESIDUAL = {"maxIter": 1000, "tol": TOLERANCE**2}
"""PyHessian's tolerance for residuals near `TOLERANCE`: an estimate's error is of the order of the squared residual."""
STEPS, RATE = 30, 0.1
"""Steps of gradient descent before the measurement, so that the curvature differs from a random model's."""


@dataclass(frozen=True)
class Found:
    """The cost of computing some eigenvalues, and their accuracy."""

    eigenvalues: int
    seconds: float
    products: int
    residual: float
    peak_mib: float


class Eigenvalues:
    """A model after a few steps on the images of one client, and its Hessian's eigenvalues on these images."""

    def __init__(self, device: torch.device, workload: Workload) -> None:
        self._device = device
        self._objective = Objective(workload.module(0).to(device), channels_last=device.type == "cpu")
        x, y = (part.to(device) for part in workload.batch_of(workload.images))
        self._whole = (self._objective.inputs(x), y)
        self._batches = list(zip(x.split(workload.batch), y.split(workload.batch), strict=True))
        self._w = self._objective.initial()
        for step in range(STEPS):
            self._w = self._w - RATE * self._objective.gradient(self._w, *self._batches[step % len(self._batches)])[0]

    def lanczos(self, k: int) -> dict[str, Any]:
        """FedFlat's k eigenvalues; the time includes the computation of all residuals."""
        began = synchronised(self._device)
        found = top_eigenvalues(self._objective, self._w, self._batches, k, tolerance=TOLERANCE)
        seconds = synchronised(self._device) - began
        pairs = zip(found.eigenvalues, found.residuals, strict=True)
        return asdict(Found(k, seconds, found.products, max(r / abs(v) for v, r in pairs), self._peak()))

    def power(self, k: int, settings: dict[str, Any]) -> dict[str, Any]:
        """PyHessian's, all images in one batch, which lets it keep the gradient's graph; residuals are not timed."""
        model, module = self._objective.load(self._w), sys.modules["pyhessian.hessian"]
        for parameter in self._objective.parameters:
            parameter.grad = None  # backward adds to existing gradients
        product, made = module.hessian_vector_product, 0

        def counted(*arguments: Any) -> Any:
            nonlocal made
            made += 1
            return product(*arguments)

        module.hessian_vector_product = counted
        try:
            with warnings.catch_warnings(), torch.random.fork_rng():
                warnings.simplefilter("ignore")  # of the cycle that backward(create_graph=True) makes
                torch.manual_seed(0)
                began = synchronised(self._device)
                theirs = pyhessian.hessian(
                    model, nn.CrossEntropyLoss(), data=self._whole, cuda=self._device.type == "cuda"
                )
                values, vectors = theirs.eigenvalues(top_n=k, **settings)
                seconds = synchronised(self._device) - began
        finally:
            module.hessian_vector_product = product
        peak = self._peak()
        del theirs
        for parameter in self._objective.parameters:
            parameter.grad = None
        hessian = hessian_product(self._objective, self._w, self._batches)
        residuals = [self._residual(hessian, value, parts) for value, parts in zip(values, vectors, strict=True)]
        return asdict(Found(k, seconds, made, max(residuals), peak))

    def _residual(self, hessian: Any, value: float, parts: list[Tensor]) -> float:
        v = torch.cat([part.detach().reshape(-1) for part in parts])
        return float((hessian(v) - value * v).norm()) / abs(value)

    def _peak(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return machine.peak_memory_mib()


def measure(setting: Setting) -> list[Section]:
    """One table: FedFlat's k eigenvalues, and PyHessian's first few."""
    sizes = setting.sizes.hessian
    workload = Workload(sizes.model, 1, sizes.images, sizes.batch)
    contenders = {
        "FedFlat, Lanczos": ("lanczos", {"k": sizes.k}, True),
        "PyHessian, its defaults": ("power", {"k": sizes.first, "settings": DEFAULTS}, False),
        "PyHessian, to such residuals": ("power", {"k": sizes.first, "settings": SAME_RESIDUAL}, False),
    }
    rows: list[tuple[Cell, ...]] = []
    ours = 0.0
    for name, (method, given, keeps_memory) in contenders.items():
        setting.progress(f"hessian: {name}")
        with Process(setting.device, setting.all_cores, keeps_memory=keeps_memory) as process:
            process.build("job", "hessian", workload=workload)
            found = Found(**process.ask("job", method, **given))
        pace = found.seconds / found.eigenvalues * sizes.k
        ours = ours or pace
        rows.append(
            (name, found.eigenvalues, found.products, found.residual, found.seconds, pace, pace / ours, found.peak_mib)
        )
    about = (
        f"{sizes.model}, {sizes.images:,} images, after {STEPS} steps of gradient descent. FedFlat iterates until all "
        f"residuals are at most {TOLERANCE:g}·|λ|. PyHessian finds one eigenvalue after the other; only its first "
        f"{sizes.first} are timed, and *all {sizes.k}* is {sizes.k} times their mean time. This is an underestimate: "
        "later eigenvalues are closer together and need more iterations."
    )
    header = (
        "contender", "eigenvalues", "products", "largest residual / λ", "s", f"all {sizes.k}, s", "it / FedFlat",
        "peak MiB",
    )  # fmt: skip
    return [Section("Hessian eigenvalues", [Table(about, header, rows)])]
