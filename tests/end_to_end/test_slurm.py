"""The profile for Slurm, on a cluster of two nodes on this machine: jobs on real images, and a node that fails."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.end_to_end.pipeline import CELLS, run_files, snakemake
from tests.end_to_end.slurm import MISSING, Cluster, cluster
from tests.places import MINI, ROOT
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"needs Debian's slurm-wlm and the extra slurm: no {', '.join(MISSING)}"),
]

CONFIG = {"rounds": 150, "engine": "loop"}
OPTIONS = [
    "--slurm-no-account",
    "--slurm-status-command=squeue",
    "--slurm-init-seconds-before-status-checks=2",
    "--group-components=tiny=1",
]
"""There are no accounts and no accounting; the first check comes soon; each of the two cells has its own job."""


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, cluster(Path(folder)) as started:
        yield started


def submit(slurm: Cluster, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Snakemake with the profile, without --cores."""
    config = [f"{key}={value}" for key, value in {"experiments": f"[{MINI}]", **CONFIG}.items()]
    command = [
        *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)),
        *("--profile", str(ROOT / "profiles" / "slurm"), *OPTIONS, *words, "--config", *config),
    ]
    output = (folder / "output").open("w", encoding="utf-8")
    return subprocess.Popen(command, cwd=folder, env=slurm.env, stdout=output, stderr=output, text=True)


def test_a_node_fails_and_the_results_are_those_of_one_machine(slurm: Cluster, tmp_path: Path):
    """The jobs of the failed node are submitted again, and its run continues."""
    submitted, local = tmp_path / "submitted", tmp_path / "local"
    submitted.mkdir()
    local.mkdir()
    process = submit(slurm, submitted)
    try:
        run = submitted / "results" / "experiments" / "mini" / CELLS / "fedsam"
        wait_for(lambda: process.poll() is not None or any(run.glob("*/checkpoint.safetensors")), 600)
        node = slurm.node_that_runs("fedsam")
        slurm.crash(node)
        assert process.poll() is None
        slurm.start_node(node)
        process.wait(1200)  # six minutes on two busy cores
    finally:
        process.kill()
        process.wait()
    output = (submitted / "output").read_text(encoding="utf-8")
    assert process.returncode == 0, output
    assert "Trying to restart job" in output
    assert any("resumed after round" in log.read_text(encoding="utf-8") for log in run.glob("*/run.log"))
    snakemake(local, **CONFIG)
    assert run_files(submitted) == run_files(local)
