"""Where and how a benchmark runs: the device, how much is measured, and what the device can do at best."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from fedflat.bench.host.threads import available_cores
from tests.benchmarks.process import Process
from tests.benchmarks.sizes import Sizes

RATE_REPEATS = 10


@dataclass
class Setting:
    """`passes` is how many passes the floor takes in a row each time that it is timed.

    A context manager that runs a process with the jobs `about` and `rates` on the device.
    """

    device: str
    sizes: Sizes
    progress: Callable[[str], None]
    passes: int = 10
    all_cores: int = field(default_factory=available_cores)
    _copy_rates: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> "Setting":
        self.process = Process(self.device, self.all_cores, keeps_memory=True)
        self.process.build("about", "about")
        self.process.build("rates", "rates", side=self.sizes.matrix_side)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.close()

    @cached_property
    def matrix_rates(self) -> dict[str, float]:
        """Floating-point operations per second of large matrix products, by precision: the best of three."""
        turns = [self.process.ask("rates", "multiply", repeats=RATE_REPEATS) for _ in range(3)]
        return {precision: max(turn[precision] for turn in turns) for precision in turns[0]}

    def copy_rate(self, length: int) -> float:
        """Bytes per second, read and written, of copies of vectors of so many fp32 numbers: the best of three."""
        if length not in self._copy_rates:
            turns = [self.process.ask("rates", "copy", length=length, repeats=RATE_REPEATS) for _ in range(3)]
            self._copy_rates[length] = max(turns)
        return self._copy_rates[length]
