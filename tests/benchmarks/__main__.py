"""The command behind `make bench`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError
from tests.benchmarks import (
    hessian,
    high_resolution,
    landscape,
    large,
    planning,
    profile,
    scaling,
    search,
    small,
    whole,
)
from tests.benchmarks.report import Report, Section, existing_report, number, write_report
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import CPU, GPU, QUICK, Sizes

SECTIONS: Mapping[str, Callable[[Setting], list[Section]]] = {
    "hessian": hessian.measure,
    "high_resolution": high_resolution.measure,
    "landscape": landscape.measure,
    "large": large.measure,
    "memory": lambda setting: [large.memory_passes(setting)],
    "planning": planning.measure,
    "profile": lambda setting: [profile.measure(setting)],
    "scaling": scaling.measure,
    "search": search.measure,
    "small": small.measure,
    "whole": whole.measure,
}


def facts(setting: Setting) -> dict[str, str]:
    """The machine, its rates, the versions, and how contenders are set up."""
    found: dict[str, str] = setting.process.ask("about", "lines")
    length = setting.sizes.copied
    copies = f"{number(setting.copy_rate(length) / 1e9)} GB/s read and written"
    matrix = ", ".join(f"{number(rate / 1e9)} GFLOP/s in {name}" for name, rate in setting.matrix_rates.items())
    return found | {
        "matrix rate": f"{matrix} (products of {setting.sizes.matrix_side}² matrices, the best of three)",
        "copy rate": f"{copies} (vectors of {4 * length / 2**20:.3g} MiB)",
        "threads": f"{setting.all_cores}, and 1 for small models",
        "allocator": "FedFlat and the floor keep freed memory, in huge pages; the plain reference has glibc's defaults",
        "images": "scikit-learn's digits for small models; for others random uint8 images, of CIFAR's shape or as said",
    }


MACHINE = ("processor", "system", "versions", "threads")
"""Sections of one page have these facts in common."""


def run(setting: Setting, sections: list[str], outs: list[Path]) -> None:
    """Measure, print each section when it is done, and write them to files of Markdown or JSON.

    A Markdown file keeps its other sections, which must come from the same machine with the same versions.
    """
    for file in outs:
        _check_writable(file)
    pages = {file: existing_report(file) for file in outs if file.suffix != ".json"}
    report = Report(facts(setting), {})
    kept: dict[Path, dict[str, str]] = {file: {} for file in pages}
    if set(sections) != set(SECTIONS):
        for file, page in pages.items():
            if page is not None and page.sections:
                _check_same_machine(file, page, report)
                kept[file] = dict(page.sections)
    print(report.markdown(), flush=True)
    measured: list[Section] = []
    texts: dict[str, str] = {}
    for name in sections:
        began, started, load = datetime.now(UTC), time.perf_counter(), _load()
        found = SECTIONS[name](setting)
        when = (
            f"*Section `{name}`: {began:%Y-%m-%d %H:%M} UTC, {time.perf_counter() - started:.0f} s; "
            f"{load} processes were running when it began.*"
        )
        for section in found:
            measured.append(section)
            texts[section.title] = f"{when}\n\n{section.markdown()}"
            print(f"\n### {section.title}\n\n{texts[section.title]}", flush=True)
    for file, other in kept.items():
        write_report(file, Report(report.facts, other | texts))
    for file in outs:
        if file.suffix == ".json":
            data = {"about": dict(report.facts), "sections": [section.data() for section in measured]}
            write_text(file, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _check_writable(file: Path) -> None:
    """Before the measurement, which takes long."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UserError(f"cannot write '{file}': {error.strerror}") from None


def _check_same_machine(file: Path, page: Report, report: Report) -> None:
    for name in MACHINE:
        if page.facts.get(name) != report.facts[name]:
            raise UserError(
                f"'{file}' has results of another machine: {name} {page.facts.get(name)}, here {report.facts[name]} "
                "(allowed: another file, or a full benchmark without --only)"
            )


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "an unknown number of"


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
    parser = _Parser(prog="python -m tests.benchmarks", description="Time the engine and the analyses.")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION",
                        help=f"some of: {', '.join(SECTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few repeats of small rounds, to see that it works")
    parser.add_argument("--out", nargs="+", type=Path, default=[], metavar="FILE",
                        help="a Markdown file, between whose marks these sections are replaced, or .json")  # fmt: skip
    try:
        options = parser.parse_args()
        device = _device(options.device)
        with Setting(device, _sizes(device, quick=options.quick), _progress) as setting:
            run(setting, options.only, options.out)
    except UserError as error:
        sys.exit(_one_line(error))


class _Parser(argparse.ArgumentParser):
    """Wrong options are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _progress(line: str) -> None:
    print(f"... {line}", file=sys.stderr, flush=True)


def _one_line(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
