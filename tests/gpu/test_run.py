"""The command for a machine with a GPU, as far as it runs without one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import commands
from tests.gpu.__main__ import BACKENDS, CONTENDERS, _verdict, correctness_table, main, part, speed_table
from tests.gpu.__main__ import Part as Rows
from tests.gpu.parts import QUICK_METHODS
from tests.places import ROOT
from tests.tiers import thorough

RUN = Path(__file__).with_name("run")


@pytest.mark.long
@pytest.mark.parametrize(
    ("backends", "contenders"),
    [(("graph",), ("floor", "branches im2col")), pytest.param(BACKENDS, CONTENDERS, marks=thorough)],
    ids=["small", "whole"],
)
def test_the_page(backends, contenders, tmp_path, monkeypatch, capsys):
    """Its parts are forks: the imports of new processes take longer than their measurements."""

    def fork(command, seconds):
        done = commands.run(["python", *command[1:]], ROOT)
        return done.stdout, None if done.returncode == 0 else done.stderr

    out = tmp_path / "page.md"
    monkeypatch.setattr("tests.gpu.__main__.run", fork)
    monkeypatch.setattr("tests.gpu.__main__.BACKENDS", backends)
    monkeypatch.setattr("tests.gpu.__main__.CONTENDERS", contenders)
    monkeypatch.setattr("sys.argv", ["tests/gpu/run", "--device", "cpu", "--quick", "--out", str(out)])
    main()
    text = out.read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert re.search(r"^\d+ skipped in 1 files$", text, re.MULTILINE)
    cases = len(backends) * len(QUICK_METHODS)
    verdicts = len(backends) * r" ok \S+ \|"
    assert f"{cases} of {cases} as the loop on a CPU" in text
    for method in QUICK_METHODS:
        assert re.search(rf"^\| {method} \|{verdicts}$", text, re.MULTILINE)
    for contender in contenders[1:]:
        assert re.search(rf"^\| lenet \| fedavg \| fp32 \| {contender} \| [\d.]+ \|", text, re.MULTILINE)
    assert "did not run" not in text


def test_a_part_is_a_process_of_its_own():
    found = part("about", "-", "cpu", 60, quick=True)
    assert found.trouble is None
    assert [row["torch"] for row in found.rows] == [torch.__version__]


def test_the_time_limit(tmp_path):
    out = tmp_path / "page.md"
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    command = [str(RUN), "--device", "cpu", "--quick", "--out", str(out), "--seconds", "4"]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    text = out.read_text(encoding="utf-8")
    assert text in done.stdout
    assert "no time was left" in text or "stopped at its limit" in text
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
