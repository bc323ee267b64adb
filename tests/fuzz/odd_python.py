"""Odd values of Python: numbers, paths, arrays and models of every kind, by name. Each call builds a new one."""

import decimal
import enum
import fractions
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

N = 6
"""Samples of the arrays."""


class Three(enum.IntEnum):
    THREE = 3


class Hidden:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def endless() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


NUMBERS: dict[str, Callable[[], Any]] = {
    repr(value): (lambda value=value: value)
    for value in (
        0, 1, 2, 3, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 0.0, 0.1, 0.5, 1.0, 2.0, 2.5, -0.5, 1e-320, 1e308,
        float(2**60), float("inf"), float("nan"), True, False, 1 + 2j,
        np.int8(2), np.int64(3), np.uint64(2**64 - 1), np.float16(0.1), np.float32(0.1), np.float32(2), np.float64(2),
        np.longdouble("0.1"), np.longdouble(2), np.bool_(True), np.complex64(2), np.timedelta64(2, "s"),
        fractions.Fraction(1, 3), decimal.Decimal(2), Three.THREE,
    )
}  # fmt: skip
NUMBERS |= {"10**400": lambda: 10**400, "10**5000": lambda: 10**5000}

OBJECTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "tensor": lambda: torch.tensor(2),
    "tensor of floats": lambda: torch.tensor([1.0, 2.0]),
    "meta tensor": lambda: torch.zeros(2, device="meta"),
    "array": lambda: np.array(2),
    "array of one": lambda: np.array([1]),
    "table": lambda: pd.DataFrame({"a": [1]}),
    "column": lambda: pd.Series([2]),
    "missing": lambda: pd.NA,
    "list": lambda: [1, 2],
    "empty list": list,
    "endless list": endless,
    "tuple": lambda: (2,),
    "mapping": lambda: {"a": 1},
    "mapping of numbers": lambda: {1: 2},
    "mapping of objects": lambda: {"a": object()},
    "mapping of arrays": lambda: {"rho": np.array([0.1])},
    "mapping of a NumPy number": lambda: {"rho": np.float32(0.1)},
    "mapping of NaN": lambda: {"rho": float("nan")},
    "mapping of a huge number": lambda: {"rho": 10**400},
    "mapping of a tensor": lambda: {"rho": torch.tensor(0.1)},
    "override": lambda: {"training.rounds": 3},
    "override of nothing": lambda: {"": {}},
    "endless mapping": lambda: {"a": endless()},
    "rule": lambda: {"sampling": "bernoulli", "probability": 0.5},
    "partition": lambda: {"name": "iid", "clients": 2},
    "partition of a file": lambda: {"name": "from_file", "file": Path("absent.csv")},
    "partition of a device": lambda: {"name": "from_file", "file": "/dev/zero"},
    "set": lambda: {1, 2},
    "range": lambda: range(3),
    "generator": lambda: (i for i in range(2)),
    "object": object,
    "hidden": Hidden,
    "class": lambda: nn.Linear,
    "function": lambda: lambda *_: None,
    "ids": lambda: [[0], [1.0]],
    "ids of NumPy": lambda: np.array([[0, 1]]),
    "ids beyond": lambda: [[7]],
    "ids twice": lambda: [[0, 0]],
    "ids of text": lambda: ["01"],
    "no ids": lambda: [[]],
}

TEXTS: dict[str, Callable[[], Any]] = {
    repr(value)[:40]: (lambda value=value: value)
    for value in (
        "", " ", "2", "quick", "fedsam", "hessian", "loop", "cohort", "parallel", "average", "zero", "normalised",
        "uniform", "no", "x" * 5000, "a/" * 3000, "\0", "\udcff", "\ud800", "a\nb", "~nobody/x", "~", "..", ".", "/",
        "/dev/zero", "/dev/null", "/proc/self/mem", "absent.yaml", "folder.yaml", "{wildcards}", "*",
        b"bytes", bytearray(b"x"), Path("absent"), Path("x" * 5000), Path("\0"), np.str_("quick"),
    )
}  # fmt: skip

ANYTHING = {**NUMBERS, **OBJECTS, **TEXTS}


def _floats() -> np.ndarray:
    return np.linspace(-1, 1, 3 * N).reshape(N, 3)


def _masked() -> np.ndarray:
    return np.ma.masked_array(_floats(), mask=np.eye(N, 3, dtype=bool))


INPUTS: dict[str, Callable[[], Any]] = {
    **{
        f"{kind}": (lambda kind=kind: (np.abs(_floats()) * 100).astype(kind))
        for kind in (
            "float16", "float32", "float64", "longdouble", "int8", "int16", "int32", "int64", "uint8", "uint16",
            "uint32", "uint64", "bool", "complex64", "complex128", ">f4", ">i8", "U5", "S5", "object", "m8[s]", "M8[s]",
        )
    },
    **{
        f"tensor of {dtype}": (lambda dtype=dtype: torch.from_numpy(np.abs(_floats()) * 9).to(dtype))
        for dtype in (
            torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int32, torch.int64,
            torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
        )
    },
    "beyond float32": lambda: _floats() * 1e300,
    "longdouble beyond float64": lambda: _floats().astype("longdouble") * np.longdouble("1e4000"),
    "16777217": lambda: np.full((N, 3), 16777217),
    "2**63": lambda: np.full((N, 3), 2**63, np.uint64),
    "NaN": lambda: np.full((N, 3), np.nan),
    "masked": _masked,
    "mask of nothing": lambda: np.ma.masked_array(_floats()),
    "matrix": lambda: np.asmatrix(_floats()),
    "records": lambda: np.zeros(N, dtype=[("a", "f4")]),
    "reversed": lambda: _floats()[::-1, ::-1],
    "read-only": lambda: np.broadcast_to(np.ones(3), (N, 3)),
    "sparse": lambda: torch.eye(N, 3).to_sparse(),
    "sparse rows": lambda: torch.eye(N, 3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(N, 3), 0.1, 0, torch.qint8),
    "meta": lambda: torch.zeros(N, 3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(3)] * N),
    "mkldnn": lambda: torch.ones(N, 3).to_mkldnn(),
    "with gradient": lambda: torch.ones(N, 3, requires_grad=True) * 2,
    "number": lambda: np.array(2.0),
    "one dimension": lambda: np.ones(N),
    "no samples": lambda: np.ones((0, 3)),
    "no features": lambda: np.ones((N, 0)),
    "two features": lambda: np.ones((N, 2)),
    "images": lambda: np.ones((N, 1, 2, 2)),
}  # fmt: skip

LABELS: dict[str, Callable[[], Any]] = {
    name: (lambda build=build: build()[:, 0] * 0 if getattr(build(), "ndim", 0) > 1 else build())
    for name, build in INPUTS.items()
    if name in ("float64", "int8", "int64", "uint8", "uint16", "uint64", "complex64", ">i8", "bool", "meta")
}
LABELS |= {
    "of 2**63": lambda: np.full(N, 2**63, np.uint64),
    "masked labels": lambda: np.ma.masked_array(np.zeros(N, int), mask=[1] + [0] * (N - 1)),
    "sparse labels": lambda: torch.zeros(N, dtype=torch.long).to_sparse(),
    "negative": lambda: np.full(N, -1),
    "too large": lambda: np.full(N, 2),
    "of shape [n, 1]": lambda: np.zeros((N, 1), int),
}


class Returns(nn.Module):
    """A model whose output a function changes."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.change = change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x.float()))


def fails(_: Tensor) -> Any:
    raise KeyError("a model of the user")


def model(change: Callable[[nn.Module], Any] = lambda _: None, of: Callable[[], nn.Module] | None = None) -> nn.Module:
    """A linear model after a change of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = nn.Linear(3, 2) if of is None else of()
        change(built)
    return built


def holding(value: Any) -> Callable[[nn.Module], None]:
    return lambda module: setattr(module, "held", value)


def _integer() -> nn.Module:
    built = model()
    built.weight = nn.Parameter(torch.ones(2, 3, dtype=torch.int64), requires_grad=False)
    return built


def _sparse() -> nn.Module:
    built = model()
    built.weight = nn.Parameter(torch.eye(2, 3).to_sparse())
    return built


MODELS: dict[str, Callable[[], Any]] = {
    "linear": model,
    "meta": lambda: model(of=lambda: nn.Linear(3, 2, device="meta")),
    "lazy": lambda: model(of=lambda: nn.LazyLinear(2)),
    "lazy inside": lambda: model(of=lambda: nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(2))),
    "lazy buffers": lambda: model(of=lambda: nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d())),
    "complex": lambda: model(of=lambda: nn.Linear(3, 2, dtype=torch.complex64)),
    "complex buffer": lambda: model(lambda m: m.register_buffer("b", torch.ones(2, dtype=torch.complex64))),
    "float64": lambda: model(of=lambda: nn.Linear(3, 2, dtype=torch.float64)),
    "float16": lambda: model(of=lambda: nn.Linear(3, 2).half()),
    "float8": lambda: model(of=lambda: nn.Linear(3, 2).to(torch.float8_e4m3fn)),
    "two formats": lambda: model(of=lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).double())),
    "whole numbers": _integer,
    "sparse": _sparse,
    "quantised": lambda: torch.ao.nn.quantized.Linear(3, 2),
    "no parameters": nn.Flatten,
    "frozen": lambda: model(lambda m: m.requires_grad_(False)),
    "shared": lambda: model(holding(model())),
    "lock": lambda: model(holding(threading.Lock())),
    "generator": lambda: model(holding(i for i in range(3))),
    "result of a computation": lambda: model(holding(torch.ones(1, requires_grad=True) * 2)),
    "BatchNorm": lambda: model(of=lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))),
    "dropout": lambda: model(of=lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))),
    "script": lambda: torch.jit.script(model()),
    "NaN": lambda: model(lambda m: nn.init.constant_(m.weight, float("nan"))),
    "infinite": lambda: model(lambda m: nn.init.constant_(m.weight, float("inf"))),
    "embedding": lambda: model(of=lambda: nn.Sequential(nn.Embedding(200, 2), nn.Flatten(), nn.Linear(6, 2))),
    **{
        name: (lambda change=change: model(of=lambda: Returns(change)))
        for name, change in {
            "a pair": lambda scores: (scores, scores),
            "None": lambda scores: None,
            "whole scores": lambda scores: scores.long(),
            "complex scores": lambda scores: scores.to(torch.complex64),
            "detached": lambda scores: scores.detach(),
            "one score": lambda scores: scores[:, :1],
            "no samples": lambda scores: scores[:0],
            "the mean": lambda scores: scores.mean(),
            "sparse scores": lambda scores: scores.to_sparse(),
            "failing": fails,
        }.items()
    },
}
