"""The command for a machine with a GPU, as far as it runs without one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.__main__ import BACKENDS, CONTENDERS, _verdict, correctness_table, speed_table
from tests.gpu.__main__ import Part as Rows
from tests.gpu.parts import QUICK_METHODS

RUN = Path(__file__).with_name("run")


def page(out: Path, *options: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    command = [str(RUN), "--device", "cpu", "--quick", "--out", str(out), *options]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    text = out.read_text(encoding="utf-8")
    assert text in done.stdout
    return text


@pytest.mark.long
def test_the_page(tmp_path):
    text = page(tmp_path / "page.md")
    assert re.search(r"^\d+ skipped in 1 files$", text, re.MULTILINE)
    cases = len(BACKENDS) * len(QUICK_METHODS)
    verdicts = len(BACKENDS) * r" ok \S+ \|"
    assert f"{cases} of {cases} as the loop on a CPU" in text
    for method in QUICK_METHODS:
        assert re.search(rf"^\| {method} \|{verdicts}$", text, re.MULTILINE)
    for contender in CONTENDERS[1:]:
        assert re.search(rf"^\| lenet \| fedavg \| fp32 \| {contender} \| [\d.]+ \|", text, re.MULTILINE)
    assert "did not run" not in text


def test_the_time_limit(tmp_path):
    text = page(tmp_path / "page.md", "--seconds", "4")
    assert "no time was left" in text or "ended after" in text
    assert float(re.search(r"Measured in (\d+) s", text)[1]) <= 10


def test_errors_and_wrong_numbers_are_shown():
    assert _verdict(1e-12) == "ok 1e-12"
    assert _verdict(0.1) == "WRONG 1e-01"
    assert _verdict(float("nan")).startswith("WRONG")
    assert _verdict("RuntimeError: no") == "RuntimeError: no"
    rows = [{"method": "fedavg", "difference": 0.5}, {"method": "fedsam", "difference": 1e-9}]
    assert correctness_table({"graph": Rows(rows)})[0].startswith("1 of 2 ")
    failed = {"model": "lenet", "method": "fedavg", "precision": "fp32", "contender": "graph", "error": "no memory"}
    assert any("no memory" in line for line in speed_table({"graph": Rows([failed])}))
