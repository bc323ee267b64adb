"""The command behind `make bench`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from bench.files.atomic import write_text
from bench.input.errors import UserError
from tests.benchmarks import hessian, landscape, large, profile, scaling, small, whole
from tests.benchmarks.report import Section, check_report, number, write_report
from tests.benchmarks.setting import LARGE_COPY, Setting
from tests.benchmarks.sizes import CPU, GPU, QUICK, Sizes

SECTIONS: Mapping[str, Callable[[Setting], list[Section]]] = {
    "hessian": hessian.measure,
    "landscape": landscape.measure,
    "large": large.measure,
    "memory": lambda setting: [large.memory_passes(setting)],
    "profile": lambda setting: [profile.measure(setting)],
    "scaling": scaling.measure,
    "small": small.measure,
    "whole": whole.measure,
}


def head(setting: Setting, began: datetime) -> str:
    """The machine, its rates, the versions, and how contenders are set up."""
    facts: dict[str, str] = setting.process.ask("about", "lines")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    matrix = ", ".join(f"{number(rate / 1e9)} GFLOP/s in {name}" for name, rate in setting.matrix_rates.items())
    facts |= {
        "matrix rate": f"{matrix} (products of {setting.sizes.matrix_side}² matrices, the best of three)",
        "copy rate": f"{number(setting.copy_rate(LARGE_COPY) / 1e9)} GB/s read and written (vectors of 256 MiB)",
        "threads": f"{setting.all_cores}, and 1 for small models",
        "allocator": "FedFlat and the floor keep freed memory, in huge pages; the plain reference has glibc's defaults",
        "images": "random uint8 images of CIFAR's shape for LeNet and ResNet-18; scikit-learn's digits for others",
        "load": "unknown" if load is None else f"{load:.2f} processes were running when the benchmark began",
        "date": f"{began:%Y-%m-%d %H:%M} UTC",
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def run(setting: Setting, sections: list[str], outs: list[Path]) -> None:
    """Measure, print each section when it is done, and write all of them to files of Markdown or JSON."""
    started, began = time.perf_counter(), datetime.now(UTC)
    for file in outs:
        if file.suffix != ".json":
            check_report(file)
    text = head(setting, began)
    print(text, flush=True)
    measured: list[Section] = []
    for name in sections:
        for section in SECTIONS[name](setting):
            measured.append(section)
            print(f"\n{section.markdown()}", flush=True)
    taken = f"Measured in {time.perf_counter() - started:.0f} s by `{_command()}`."
    print(f"\n{taken}")
    for file in outs:
        if file.suffix == ".json":
            data = {"about": text.splitlines(), "sections": [section.data() for section in measured]}
            write_text(file, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        else:
            write_report(file, "\n\n".join([text, *(section.markdown() for section in measured), taken]))


def _command() -> str:
    return " ".join(["python -m tests.benchmarks", *sys.argv[1:]])


def _device(name: str) -> str:
    """`auto` is a GPU if torch sees one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda requested, but torch sees no GPU (allowed here: auto, cpu)")
    return name


def _sizes(device: str, *, quick: bool) -> Sizes:
    return QUICK if quick else GPU if device == "cuda" else CPU


def main() -> None:
    """Read the command line; a `UserError` is one line, and status 2."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Time the engine and the analyses.")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION",
                        help=f"some of: {', '.join(SECTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few repeats of small rounds, to see that it works")
    parser.add_argument("--out", nargs="+", type=Path, default=[], metavar="FILE",
                        help="Markdown (put between an existing file's marks), or .json with all values")  # fmt: skip
    options = parser.parse_args()
    try:
        device = _device(options.device)
        with Setting(device, _sizes(device, quick=options.quick), _progress) as setting:
            run(setting, options.only, options.out)
    except UserError as error:
        sys.exit(_one_line(error))


def _progress(line: str) -> None:
    print(f"... {line}", file=sys.stderr, flush=True)


def _one_line(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
