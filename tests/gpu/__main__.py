"""The command: runs the parts one after the other, within the time limit, and prints the page."""

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.text_table import markdown
from tests.benchmarks.report import number

ROOT = Path(__file__).parents[2]
SECONDS = 480
BACKENDS = ("loop", "cohort", "graph", "branches")
CONTENDERS = (
    "floor", "plain", "branches", "branches im2col", "graph", "graph im2col", "cohort", "cohort im2col", "loop",
)  # fmt: skip
TOLERANCE = 1e-6
"""Largest difference in float64 after some rounds; on an H100, sums are taken in another order than on a CPU."""
SHARE = {"correctness": 0.25, "speed": 0.5, "tests": 0.25}
"""Of the time; what a part leaves is for the later ones."""
MARKED = re.compile(r"pytest\.mark\.gpu\b")


@dataclass
class Part:
    """The rows of a part, and why it ended if it did not end well."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    trouble: str | None = None


def run(command: Sequence[str], seconds: float) -> tuple[str, str | None]:
    """The output of a process, also if it is ended after this time, and what went wrong."""
    if seconds < 1:
        return "", "no time was left for this part"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, start_new_session=True)
        trouble = None
        try:
            if (code := process.wait(seconds)) != 0:
                err.seek(0)
                last = err.read().strip().splitlines()
                trouble = f"ended with status {code}: {last[-1] if last else 'no message'}"
        except subprocess.TimeoutExpired:
            trouble = f"stopped at its limit of {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that tests started
            process.wait()
        out.seek(0)
        return out.read(), trouble


def part(kind: str, name: str, device: str, seconds: float, *, quick: bool) -> Part:
    """The rows of a part."""
    print(f"... {kind} {name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tests.gpu.parts", kind, name, device, *(["quick"] if quick else [])]
    out, trouble = run(command, seconds)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    return Part(rows, trouble)


def tests(seconds: float, *, quick: bool) -> list[str]:
    """The outcome of the tests that need a GPU, and those that failed."""
    print("... tests", file=sys.stderr, flush=True)
    files = sorted(
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if MARKED.search(file.read_text(encoding="utf-8"))
    )
    if quick:
        files = files[:1]
    out, trouble = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-vv",
            "-m",
            "gpu",
            "-p",
            "no:randomly",
            "--continue-on-collection-errors",
            *files,
        ],
        seconds,
    )
    outcomes = re.findall(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED)", out, re.MULTILINE)
    counts = {
        name: sum(outcome == name for _, outcome in outcomes) for name in ("PASSED", "FAILED", "ERROR", "SKIPPED")
    }
    line = ", ".join(f"{count} {name.lower()}" for name, count in counts.items() if count) or "none"
    bad = [f"- {test}" for test, outcome in outcomes if outcome in ("FAILED", "ERROR")]
    return [f"{line} in {len(files)} files" + (f"; {trouble}" if trouble and not bad else ""), *bad]


def correctness_table(parts: dict[str, Part]) -> list[str]:
    """One row per method, one column per back end."""
    found = {(row["method"], name): row["difference"] for name, part in parts.items() for row in part.rows}
    methods = list(dict.fromkeys(method for method, _ in found))
    rows = [[method, *(_verdict(found.get((method, name))) for name in parts)] for method in methods]
    if not found:
        return ["Not measured."]
    good = sum(_is_good(difference) for difference in found.values())
    return [f"{good} of {len(found)} as the loop on a CPU, in float64.", "", *markdown(("method", *parts), rows)]


def _is_good(difference: float | str | None) -> bool:
    return isinstance(difference, float) and difference <= TOLERANCE


def _verdict(difference: float | str | None) -> str:
    if difference is None:
        return "not run"
    if isinstance(difference, str):
        return difference
    return f"{'ok' if _is_good(difference) else 'WRONG'} {difference:.0e}"


SPEED_HEADER = (
    "model", "method", "precision", "contender", "ms per step", "steps per s", "rounds per s", "step / floor",
    "plain / it", "MiB", "launches per step", "first round, s",
)  # fmt: skip


def speed_table(parts: dict[str, Part]) -> list[str]:
    """One row per model, method, precision and contender."""
    rows = [row for part in parts.values() for row in part.rows]
    at = {(row["model"], row["method"], row["precision"], row["contender"]): row.get("ms") for row in rows}
    table = []
    for row in sorted(rows, key=lambda row: (row["model"], row["method"], row["precision"])):
        if row["contender"] == "floor":
            continue
        name = [row["model"], row["method"], row["precision"], row["contender"]]
        if "error" in row:
            table.append([*name, row["error"], *[""] * 7])
            continue
        floor = at.get((row["model"], row["method"], row["precision"], "floor"))
        plain = at.get((row["model"], row["method"], "fp32", "plain"))
        table.append([
            *name, number(row["ms"]), number(1e3 / row["ms"]), number(row["rounds_per_second"]),
            f"{row['ms'] / floor:.2f}" if floor else "", f"{plain / row['ms']:.1f} ×" if plain else "",
            number(row["mib"]), number(row["launches"]), number(row["first_round"]),
        ])  # fmt: skip
    return markdown(SPEED_HEADER, table, right=set(range(4, len(SPEED_HEADER))))


def page(device: str, seconds: float, *, quick: bool) -> str:
    """All measurements, in at most this time."""
    began = time.perf_counter()

    def left(until: float) -> float:
        """Seconds until this share of the time is used."""
        return seconds * until - (time.perf_counter() - began)

    about = part("about", "-", device, left(1.0), quick=quick)
    until = SHARE["correctness"]
    right = {name: part("correctness", name, device, left(until), quick=quick) for name in BACKENDS}
    until += SHARE["speed"]
    fast = {name: part("speed", name, device, left(until), quick=quick) for name in CONTENDERS}
    tested = tests(left(1.0), quick=quick)
    facts = [f"- {name}: {value}" for row in about.rows for name, value in row.items() if name != "seconds"]
    troubles = [
        f"- {' '.join(filter(None, (kind, name)))}: {found.trouble}"
        for kind, parts in (("about", {"": about}), ("correctness", right), ("speed", fast))
        for name, found in parts.items()
        if found.trouble
    ]
    lines = [
        "# FedFlat on a GPU" if device != "cpu" else "# FedFlat, as on a GPU",
        "", *facts, f"- date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        "", "## Tests that need a GPU", "", *tested,
        "", "## Correctness", "", *correctness_table(right),
        "", "## Speed", "",
        "Milliseconds per local step of one client, in whole rounds; a local step of the floor is its gradients alone. "
        "A graph is one launch.",
        "", *speed_table(fast),
        *(["", "## What did not run to its end", "", *troubles] if troubles else []),
        "", f"Measured in {time.perf_counter() - began:.0f} s by `{' '.join(['tests/gpu/run', *sys.argv[1:]])}`.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(prog="tests/gpu/run", description="Everything that needs a GPU, on one page.")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--quick", action="store_true", help="as little as possible, to see that it works")
    options.add_argument("--seconds", type=float, default=SECONDS, help="time limit")
    options.add_argument("--out", type=Path, help="a file for the page")
    return options


def main() -> None:
    """Read the command line, and print the page."""
    options = parser().parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # × where the locale has none
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    text = page(options.device, options.seconds, quick=options.quick)
    if options.out is not None:
        write_text(options.out.resolve(), text)
    print(text)


if __name__ == "__main__":
    main()
