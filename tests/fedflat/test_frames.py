"""From the command `fedflat run` to a client's gradient, the project has few functions on the call stack."""

import logging
import sys
from pathlib import Path

import pytest
import torch

from fedflat.__main__ import main
from fedflat.bench.engine.objective import Objective
from fedflat.bench.host.threads import ONE_THREAD
from tests.places import ROOT

MOST_FRAMES = 13
PACKAGES = tuple(str(ROOT / package) for package in ("bench", "analysis", "fedflat"))


@pytest.fixture
def process_settings(monkeypatch):
    """Restore what the command changes in its process."""
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    log, threads = logging.getLogger("fedflat.data"), torch.get_num_threads()
    handlers, level = list(log.handlers), log.level
    yield
    log.handlers[:], log.level = handlers, level
    torch.set_num_threads(threads)


def own_frames() -> list[str]:
    """The project's functions on the call stack, from `main` to the caller's caller."""
    frame, found = sys._getframe(2), []
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if file.startswith(PACKAGES):
            found.append(f"{Path(file).relative_to(ROOT)}: {name}")
        frame = frame.f_back
    return found[::-1]


def test_few_frames_lie_between_the_command_and_the_gradient(tmp_path, monkeypatch, process_settings):
    """FedSAM's first gradient of a local step: command, cell, round, client, step, and the method's maths."""
    gradients, stacks = Objective.gradients, []

    def recorded(objective, *arguments):
        frames = [*own_frames(), "bench/engine/objective.py: Objective.gradients"]
        if not any("calibration" in frame for frame in frames):
            stacks.append(frames)
        return gradients(objective, *arguments)

    monkeypatch.setattr(Objective, "gradients", recorded)
    command = ["fedflat", "run", "quick", "digits/dirichlet-0.1/4-of-20/fedsam", "--seed", "0", "--device", "cpu"]
    command += ["--set", "training.rounds=1", "--set", "engine.backend=loop", "--results", str(tmp_path / "cell")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert stacks[0][0] == "fedflat/__main__.py: main"
    assert len(stacks[0]) <= MOST_FRAMES, "\n".join(stacks[0])
