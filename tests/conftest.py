"""One thread per test process (on busy cores, more threads slow tiny operations down); small models on real digits."""

import gc
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.engine.objective import Objective
from fedflat.bench.files.locks import locked
from fedflat.bench.models.architectures.cnn_gn import CNNGN

torch.set_num_threads(1)

# On a busy machine an example may take longer than Hypothesis's 0.2 seconds; no test depends on time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Background jobs of a shell ignore Ctrl-C, and their child processes inherit this; tests of Ctrl-C need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the same of `nohup` and a closed terminal


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-cases", type=int, default=500, help="number of inputs that tests/fuzz tries")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU if there is none; long tests first, after all were put in random order."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Modules and tests stay: collections of garbage need not go through them, which takes 0.5 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def global_random_state_is_left_alone():
    """Fail a test if the project draws from torch's global generator."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "torch's global random state was used"


@pytest.fixture(autouse=True)
def one_thread():
    """Commands set the number of threads, on which calibration depends; each test begins with one."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """The first 60 training digits, float64."""
    x, y = Digits().load().on(torch.device("cpu"))[0].batch(torch.arange(60))
    return x.double(), y


def in_batches(x: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of all samples; the last batch is smaller."""
    return list(zip(x.split(size), y.split(size), strict=True))


def seeded(build: type[nn.Module], *arguments: object) -> Objective:
    """A float64 objective with weights from a fixed seed, leaving global random state alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Objective(build(*arguments).double())


@pytest.fixture
def cnn() -> Objective:
    """CNNGN on 8×8 digits: 1,946 parameters."""
    return seeded(CNNGN, (1, 8, 8), 10)


class Logistic(nn.Sequential):
    """Multinomial logistic regression on 8×8 images: a convex loss."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


@pytest.fixture
def logistic() -> Objective:
    """650 parameters."""
    return seeded(Logistic)


@pytest.fixture
def trained(cnn: Objective, digits: tuple[Tensor, Tensor]) -> Tensor:
    """CNNGN's parameters after 20 steps of gradient descent, so that its curvature differs from a random model's."""
    w = cnn.initial()
    for _ in range(20):
        w -= 0.2 * cnn.full_gradient(w, [digits])
    return w


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default current folder of tests, so that no relative path leads into the repository or its results."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing may depend on the folder from which the tests are started, and nothing may be left there."""
    monkeypatch.chdir(empty_folder)
    yield
    left = [file.name for file in empty_folder.iterdir()]
    for name in left:
        (empty_folder / name).rename(empty_folder.with_name(f"left-{os.getpid()}-{time.monotonic_ns()}-{name}"))
    assert not left, f"the test left files in the current folder: {left}"


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], object]], Path]:
    """`once(build)` is a folder that `build` has filled, once for all processes of a test run: a test only reads it."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp().parent if parallel else tmp_path_factory.getbasetemp()

    def filled(build: Callable[[Path], object]) -> Path:
        folder = base / f"once-{build.__module__}.{build.__qualname__}"
        complete = folder.with_name(f"{folder.name}.complete")
        with locked(folder):
            if not complete.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process whose `build` has failed
                folder.mkdir()
                build(folder)
                complete.touch()
        return folder

    return filled


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory):
    """A separate home folder for the tests, so that they do not use what FedFlat stores in the user's home folder."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
        yield
