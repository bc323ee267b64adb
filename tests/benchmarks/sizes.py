"""How much is measured: in full on a CPU or a GPU, quickly, or as small as possible for tests."""

from dataclasses import dataclass

from tests.benchmarks.workload import GRADIENTS


@dataclass(frozen=True)
class Shape:
    """A round: clients, and local steps of each."""

    clients: int
    steps: int

    def __str__(self) -> str:
        return f"{self.clients} client{'s' * (self.clients > 1)} × {self.steps} steps"


@dataclass(frozen=True)
class Large:
    """Rounds of one shape, of one model under several methods; `clients` have state."""

    model: str
    batch: int
    round: Shape
    repeats: int
    methods: tuple[str, ...] = tuple(GRADIENTS)
    clients: int = 10


@dataclass(frozen=True)
class Scaling:
    """Clients per round; registered clients; seeds, with `seed_clients` clients of `seed_images` images."""

    per_round: tuple[int, ...]
    registered: tuple[int, ...]
    active: int
    seeds: tuple[int, ...]
    seed_model: str
    seed_clients: int
    seed_batch: int
    seed_images: int
    repeats: int


@dataclass(frozen=True)
class SideBySide:
    """Rounds of one shape, in which the clients are trained one after another or at the same time."""

    model: str
    batch: int
    round: Shape
    repeats: int
    methods: tuple[str, ...] = ("fedavg", "fedsam")


@dataclass(frozen=True)
class Small:
    """Models on digits: `active` of `clients`, with 45 images each, as in the quick experiment."""

    models: tuple[str, ...]
    methods: tuple[str, ...]
    clients: int
    active: int
    repeats: int


@dataclass(frozen=True)
class Hessian:
    """k eigenvalues of a model on `images` images; PyHessian computes only the `first` of them."""

    model: str
    images: int
    batch: int
    k: int
    first: int


@dataclass(frozen=True)
class Landscape:
    """Points of a plane: `points` per turn, each over `images` images."""

    models: tuple[str, ...]
    images: int
    points: int
    repeats: int


@dataclass(frozen=True)
class Whole:
    """A run: `active` of `clients` with `images` each; evaluations of all training images and `test_images`."""

    model: str
    methods: tuple[str, ...]
    clients: int
    active: int
    images: int
    test_images: int
    batch: int
    rounds: int
    every: int
    repeats: int


@dataclass(frozen=True)
class Search:
    """Trials of an experiment's methods."""

    experiment: str
    methods: tuple[str, ...]
    trials: int
    rounds: int


@dataclass(frozen=True)
class Sizes:
    """Everything that `make bench` measures; `planning` are grids of at least so many cells, and their seeds.

    The device's rates are those of products of square matrices with this side, and of copies of vectors of this length.
    """

    matrix_side: int
    copied: int
    large: tuple[Large, ...]
    high_resolution: tuple[Large, ...]
    scaling: Scaling
    side_by_side: tuple[SideBySide, ...]
    small: Small
    hessian: Hessian
    landscape: Landscape
    whole: Whole
    planning: tuple[tuple[int, int], ...]
    search: Search


LARGE_COPY = 2**26
"""Length of a vector that fits in no cache."""
TENS = (100, 1_000, 10_000, 100_000)
DIGITS_SEEDS = ("cnn_gn", 10, 16, 45)
LENET_SEEDS = ("lenet", 5, 64, 8 * 64)
HIGH_RESOLUTION = ("fedlesam_s", "fedsam")
LARGE_GRIDS = ((20_000, 1), (48, 417))
SMALL_METHODS = ("fedavg", "fedsam", "fedsmoo")

CPU = Sizes(
    2048,
    LARGE_COPY,
    (
        Large("lenet", 50, Shape(1, 50), repeats=5),
        Large("resnet18_gn", 50, Shape(1, 25), repeats=3),
    ),
    (
        Large("vit_b_32", 32, Shape(3, 2), 3, HIGH_RESOLUTION, clients=3),
        Large("bisenet_v2", 2, Shape(3, 2), 3, HIGH_RESOLUTION, clients=3),
    ),
    Scaling((1, 3, 10, 30, 100), TENS, 10, (1, 2, 4, 8), *DIGITS_SEEDS, repeats=5),
    (SideBySide("lenet", 64, Shape(5, 8), repeats=5), SideBySide("resnet18_gn", 64, Shape(2, 2), repeats=5)),
    Small(("cnn_gn", "mlp"), SMALL_METHODS, 20, 10, repeats=15),
    Hessian("lenet", images=2000, batch=250, k=50, first=2),
    Landscape(("lenet", "resnet18_gn"), 2000, points=3, repeats=5),
    Whole("lenet", ("fedavg",), 20, 5, 500, 10_000, 64, rounds=50, every=10, repeats=2),
    LARGE_GRIDS,
    Search("flat1d", ("fedavg", "fedspeed"), trials=16, rounds=50),
)
GPU = Sizes(
    8192,
    LARGE_COPY,
    (
        Large("lenet", 50, Shape(10, 50), repeats=3),
        Large("resnet18_gn", 50, Shape(10, 50), repeats=2),
    ),
    (
        Large("vit_b_32", 32, Shape(3, 10), 3, HIGH_RESOLUTION, clients=3),
        Large("bisenet_v2", 2, Shape(3, 10), 3, HIGH_RESOLUTION, clients=3),
    ),
    Scaling((1, 3, 10, 30, 100), TENS, 10, (1, 2, 4, 5, 8), *LENET_SEEDS, repeats=5),
    (),
    Small(("cnn_gn", "mlp"), SMALL_METHODS, 20, 10, repeats=7),
    Hessian("lenet", images=2000, batch=2000, k=50, first=10),
    Landscape(("lenet", "resnet18_gn"), 2000, points=256, repeats=3),
    Whole("lenet", ("fedavg", "fedsam"), 20, 5, 500, 10_000, 64, rounds=50, every=10, repeats=3),
    LARGE_GRIDS,
    Search("flat1d", ("fedavg", "fedspeed"), trials=16, rounds=50),
)
QUICK = Sizes(
    1024,
    LARGE_COPY,
    (
        Large("lenet", 50, Shape(2, 5), repeats=2, clients=4),
        Large("resnet18_gn", 50, Shape(1, 5), repeats=2, clients=2),
    ),
    (Large("vit_b_32", 4, Shape(1, 1), 1, ("fedlesam_s",), clients=1),),
    Scaling((1, 10), (100, 10_000), 10, (1, 4), *DIGITS_SEEDS, repeats=2),
    (SideBySide("lenet", 64, Shape(2, 2), repeats=2),),
    Small(("cnn_gn", "mlp"), ("fedavg", "fedsam"), 20, 10, repeats=2),
    Hessian("lenet", images=100, batch=50, k=10, first=1),
    Landscape(("lenet",), 500, points=2, repeats=2),
    Whole("lenet", ("fedavg",), 10, 5, 100, 1_000, 64, rounds=10, every=5, repeats=1),
    ((240, 1),),
    Search("flat1d", ("fedavg",), trials=4, rounds=5),
)
TOY = Sizes(
    64,
    2**10,
    (Large("lenet", 2, Shape(2, 2), repeats=1, methods=("fedsmoo",), clients=2),),
    (Large("vit_b_32", 1, Shape(1, 1), 1, ("fedavg",), clients=1),),
    Scaling((1, 2), (10,), 2, (1, 2), "cnn_gn", 2, 8, 8, repeats=1),
    (SideBySide("lenet", 2, Shape(2, 1), repeats=1, methods=("fedsam",)),),
    Small(("mlp",), ("fedsam",), 20, 2, repeats=1),
    Hessian("mlp", images=40, batch=30, k=5, first=2),
    Landscape(("cnn_gn",), 20, points=2, repeats=1),
    Whole("lenet", ("fedsam",), 2, 1, 10, 10, 10, rounds=2, every=1, repeats=1),
    ((1, 2),),
    Search("quick", ("fedsam",), trials=2, rounds=1),
)
