"""Numbers that users give to the Python API: each arrives as it is, or is refused."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import fedflat
from fedflat.bench.data.inventory import check
from fedflat.bench.data.sources import parse_source
from fedflat.bench.models.dropout import Dropout
from tests.problems import Recorder, distance

CPU = torch.device("cpu")
N = 12
X, Y = torch.linspace(-1, 1, 3 * N).reshape(N, 3), torch.arange(N) % 2
SEEDS = [True, None, float("nan"), "abc", [1, 2], -1, 2**64, 2**63, 2.5, torch.tensor(2), np.array([2]), 2.0**60]
ROW = pd.DataFrame({"seed": [2], "lr": [0.1], "batch_size": [4]}).iloc[0]
"""The numbers of a row are floating-point ones."""


def seeded(*layers) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(build() for build in layers))


def linear(features: int = 3) -> nn.Module:
    return seeded(nn.Flatten, lambda: nn.Linear(features, 2))


def simulated(clients=(X, Y), **options):
    options = {"model": linear(), "partition": {"name": "iid", "clients": 2}, "rounds": 2, "local_steps": 2} | options
    return fedflat.simulate("fedsam", clients=clients, **{"lr": 0.1, "hyperparameters": {"rho": 0.1}, **options})


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
@pytest.mark.parametrize("call", [simulated, lambda seed: fedflat.surface(linear(), (X, Y), points=3, seed=seed)])
def test_seeds_are_whole_numbers(call, seed):
    message = r"^seed = .* \(allowed: whole numbers from 0 to 2\*\*63 - 1\)$"
    with pytest.raises(fedflat.UserError, match=message):
        call(seed=seed)


@pytest.mark.parametrize("seed", [2.0, np.int64(2), np.float32(2), ROW["seed"]], ids=repr)
def test_equal_numbers_are_equal_seeds(seed):
    result, same, other = (simulated(seed=one, participation=1, batch_size=3) for one in (seed, 2, 3))
    assert distance(result, same) == 0 < distance(result, other)
    assert list(map(list, result.split)) == list(map(list, same.split))


def test_numbers_of_numpy_and_of_a_row_are_those_of_python():
    plain = simulated(lr=0.1, batch_size=4, server_lr=0.5, participation=1)
    for batch_size, lr in ((np.int64(4), np.float64(0.1)), (ROW["batch_size"], ROW["lr"])):
        own = simulated(lr=lr, batch_size=batch_size, server_lr=np.float16(0.5), participation=np.uint8(1))
        assert distance(plain, own) == 0
    by_ids = simulated(participants=[[0.0], np.array([1])], rounds=None)
    assert by_ids.history["active"].tolist() == [1, 1]
    single = simulated(lr=np.float32(0.1))
    assert distance(single, simulated(lr=float(np.float32(0.1)))) == 0


class Tokens(nn.Module):
    """Counts on exact ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout, self.head = nn.Embedding(50, 4), Dropout(0.2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.int64
        scores: Tensor = self.head(self.dropout(self.embedding(x)).mean(1))
        return scores


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint32])
def test_whole_numbers_stay_whole_numbers(dtype):
    ids = np.arange(5 * N).reshape(N, 5).astype(dtype) % 50
    loop, cohort = (
        simulated((ids, Y), model=seeded(Tokens), engine=engine, test=(ids, Y)) for engine in ("loop", "cohort")
    )
    assert distance(loop, cohort) < 1e-6
    assert loop.history["test_accuracy"].notna().all()
    assert fedflat.hessian(loop.model, (ids, Y), batch_size=5).converged
    assert torch.equal(loop.inputs(ids), torch.from_numpy(ids.astype(np.int64)))


def test_a_large_whole_number_arrives_exactly():
    Recorder.seen.clear()
    simulated((np.full((N, 3), 2**24 + 1), Y), model=seeded(Recorder))
    assert Recorder.seen
    assert all((x == 2**24 + 1).all() for x in Recorder.seen)


BYTES = np.random.default_rng(0).integers(0, 256, (N, 3, 2, 2), dtype=np.uint8)


@pytest.mark.parametrize("x", [BYTES, BYTES[:, 0], BYTES.reshape(N, -1)], ids=["images", "grey", "features"])
def test_bytes_are_normalised_as_those_of_an_npz_file(x, tmp_path):
    np.savez(tmp_path / "a.npz", x_train=x, y_train=Y.numpy(), x_test=x[:4], y_test=Y[:4].numpy())
    stored = parse_source(str(tmp_path / "a.npz")).load(tmp_path)
    train, test = (part.batch(torch.arange(len(part)))[0] for part in stored.on(CPU))
    model = linear(x[0].size)
    by_bytes = simulated((x, Y), model=model, test=(x[:4], Y[:4]))
    by_floats = simulated((train, Y), model=model, test=(test, Y[:4]))
    assert torch.equal(by_bytes.inputs(x), train)
    assert distance(by_bytes, by_floats) == 0
    assert by_bytes.history.equals(by_floats.history)
    with pytest.raises(fedflat.UserError, match=r"data: inputs have the dtype uint8, which training normalises"):
        fedflat.sharpness(by_bytes.model, (x, Y))
    with pytest.raises(fedflat.UserError, match=r"test: inputs have the dtype float32 \(allowed: uint8, as for"):
        simulated((x, Y), model=model, test=(test, Y[:4]))


@pytest.mark.parametrize(
    ("trained", "x", "message"),
    [
        (BYTES, BYTES[:, 0], r"x: an input has the shape \[2, 2\] \(allowed: \[3, 2, 2\], as for client 0\)"),
        (BYTES, BYTES[0], r"x: an input has the shape \[2, 2\] \(allowed: \[3, 2, 2\]"),
        (BYTES.reshape(N, -1), BYTES.reshape(N * 2, -1), r"x: an input has the shape \[6\] \(allowed: \[12\]"),
        (X, X[:, :2], r"x: an input has the shape \[2\] \(allowed: \[3\]"),
        (BYTES, BYTES.astype(float), r"x: inputs have the dtype float64 \(allowed: uint8"),
        (X, X.tolist(), r"x: the inputs are \[\[.*\]\] \(allowed: a tensor or a NumPy array\)"),
        (X, None, r"x: the inputs are None \(allowed: a tensor or a NumPy array\)"),
    ],
)
def test_inputs_of_a_result_are_of_one_shape_and_kind(trained, x, message):
    """A colour channel's mean is not subtracted from a grey picture of as many rows, or pictures."""
    result = simulated((trained, Y), model=linear(trained[0].size if isinstance(trained, np.ndarray) else 3))
    with pytest.raises(fedflat.UserError, match=f"^{message}"):
        result.inputs(x)


def test_token_ids_in_bytes_are_refused_with_the_way():
    ids = (np.arange(5 * N) % 50).astype(np.uint8).reshape(N, 5)
    way = r"\(bytes are normalised; token ids are x.long\(\), or x.astype\('int64'\) of an array\)$"
    with pytest.raises(fedflat.UserError, match=rf"^clients: the model fails for inputs .*{way}"):
        simulated((ids, Y), model=seeded(Tokens))
    assert simulated((ids.astype("int64"), Y), model=seeded(Tokens)).history["diverged"].sum() == 0


def quantised() -> Tensor:
    with warnings.catch_warnings(action="ignore"):  # torch will remove them
        return torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)


REFUSED = {
    "masked values": np.ma.masked_array(X.numpy(), mask=np.eye(N, 3, dtype=bool)),
    "complex64": X.numpy().astype("complex64"),
    "NaN or infinite": np.full((N, 3), np.inf),
    "beyond float32": X.double().numpy() * 1e300,
    "2**63 or more": np.full((N, 3), 2**63, np.uint64),
    "the shape [12]": X[:, 0],
    "bool": X > 0,
    "layout sparse_coo": X.to_sparse(),
    "device meta": X.to("meta"),
    "is quantised": quantised(),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_no_number_is_changed_silently(wrong):
    for name, call in {
        "clients": lambda: simulated((REFUSED[wrong], Y)),
        "client 1": lambda: simulated([(X, Y), (REFUSED[wrong], Y)], partition=None),
        "test": lambda: simulated(test=(REFUSED[wrong], Y)),
        "data": lambda: own_batches_of(REFUSED[wrong]),
    }.items():
        with pytest.raises(fedflat.UserError, match=f"^{name}: .*{re.escape(wrong)}"):
            call()


def own_batches_of(x) -> object:
    return fedflat.hessian(linear(), (x, Y))


def test_an_npz_file_or_function_has_the_same_rules(tmp_path):
    """Of masked values only a function can give some."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef build():\n    x = np.ma.masked_array(np.ones((2, 3)), mask=[[1, 0, 0], [0, 0, 0]])\n"
        "    return {'x_train': x, 'y_train': [0, 1], 'x_test': x, 'y_test': [0, 1]}\n"
    )
    with pytest.raises(fedflat.UserError, match=r"x_train has masked values \(allowed: numbers; for example array.fil"):
        list(check(f"{tmp_path}/mine.py:build", tmp_path))


def test_data_check_shows_the_numbers_and_their_normalisation(tmp_path):
    y = Y.numpy()
    floats = X.numpy().astype(np.float64)
    np.savez(tmp_path / "floats.npz", x_train=floats, y_train=y, x_test=2 * floats, y_test=y)
    images = np.repeat(np.arange(N, dtype=np.uint8)[:, None, None], 4, 1)
    np.savez(tmp_path / "bytes.npz", x_train=images, y_train=y, x_test=images[:2], y_test=y[:2])
    lines = [list(check(f"{tmp_path}/{name}.npz", tmp_path)) for name in ("floats", "bytes")]
    assert [line.partition(": ")[2] for line in lines[0]] == [
        "12 samples, float32 of the shape (3,), -1 to 1, mean 0, ok",
        "12 samples, float32 of the shape (3,), -2 to 2, mean 0, ok",
        "inputs are used as they are, in float32: nothing normalises them",
    ]
    std = np.arange(N).std() / 255
    assert [line.partition(": ")[2] for line in lines[1]] == [
        "12 samples, uint8 of the shape (4, 1), 0 to 11, mean 5.5, ok",
        "2 samples, uint8 of the shape (4, 1), 0 to 1, mean 0.5, ok",
        f"inputs become (x / 255 - mean) / deviation over all values: mean {5.5 / 255:.4g}, deviation {std:.4g}",
    ]


def test_a_method_that_moves_inputs_needs_floating_point_numbers():
    with pytest.raises(fedflat.UserError, match=r"^fedrobust moves inputs, but these are whole numbers"):
        fedflat.simulate(
            "fedrobust", seeded(Tokens), [(np.ones((N, 5), int), Y)], rounds=1, local_steps=1, lr=0.1, progress=False
        )
