"""A Slurm cluster on this machine for tests: its own munge key, configuration and free ports, one slurmd per node."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.waiting import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun")
PLUGIN = "snakemake_executor_plugin_slurm"
MISSING = [*(name for name in PROGRAMS if shutil.which(name) is None), *([] if find_spec(PLUGIN) else [PLUGIN])]
"""What a cluster needs and this machine does not have."""

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
JobRequeue=0
ReturnToService=2
SlurmdTimeout=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} State=UNKNOWN\n"
)
NODE_MEBIBYTES = 16_000


class Cluster:
    """A running cluster; its commands find it in the environment `env`."""

    def __init__(self, folder: Path, nodes: int, cpus: int) -> None:
        self._folder = folder
        folder.chmod(0o755)  # munged refuses a socket that others could not reach
        self.nodes = [f"node{number}" for number in range(nodes)]
        host, (port, *ports) = socket.gethostname(), _free_ports(1 + nodes)
        lines = CONFIGURATION.format(folder=folder, host=host, port=port, user=getpass.getuser())
        for node, own in zip(self.nodes, ports, strict=True):
            lines += NODE.format(node=node, host=host, port=own, cpus=cpus, memory=NODE_MEBIBYTES)
            (folder / f"spool-{node}").mkdir()
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(lines, encoding="utf-8")
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{self._srun_with_configuration()}:{os.environ['PATH']}",
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def _srun_with_configuration(self) -> Path:
        """A folder with a `srun` that finds the cluster within jobs, too, where SLURM_CONF is not set."""
        folder = self._folder / "bin"
        folder.mkdir()
        script = f'#!/bin/sh\nSLURM_CONF={self._folder}/slurm.conf exec {shutil.which("srun")} "$@"\n'
        (folder / "srun").write_text(script, encoding="utf-8")
        (folder / "srun").chmod(0o755)
        return folder

    def start(self) -> None:
        """Start all daemons, and wait until each node accepts jobs."""
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        names = {
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munge.seed",
        }
        files = [f"--{option}={self._folder / name}" for option, name in names.items()]
        self._start("munged", "munged", "--foreground", f"--key-file={key}", *files)
        wait_for((self._folder / "munge.socket").exists)
        self._start("slurmctld", "slurmctld", "-D")
        for node in self.nodes:
            self.start_node(node)
        idle = ["idle"] * len(self.nodes)
        wait_for(lambda: self.printed("sinfo", "-h", "-N", "-o", "%T").split() == idle, pause=0.1)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def _start(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(command, env=self.env, stdout=output, stderr=output)

    def printed(self, *command: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False).stdout

    def node_that_runs(self, word: str) -> str:
        """The node of the job with this word in the command of a process."""
        [node] = {node for process, node in self._processes() if any(word in part for part in process.cmdline())}
        return node

    def crash(self, node: str) -> None:
        """Kill the slurmd of a node, and all processes of its jobs."""
        self._daemons[node].kill()
        self._daemons[node].wait()
        tasks = [process for process, where in self._processes() if where == node]
        parents = {parent for task in tasks for parent in task.parents() if parent.name() == "slurmstepd"}
        for process in [*parents, *tasks]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _processes(self) -> Iterator[tuple[psutil.Process, str]]:
        """The processes of this cluster's jobs, each with its node."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                environment = process.environ()
                if environment.get("PATH", "").startswith(f"{self._folder}/") and "SLURMD_NODENAME" in environment:
                    yield process, environment["SLURMD_NODENAME"]

    def stop(self) -> None:
        """Cancel all jobs, and end all daemons, the last started first."""
        self.printed("scancel", "--user", getpass.getuser())
        with suppress(TimeoutError):
            wait_for(lambda: not self.printed("squeue", "-h"), seconds=20, pause=0.1)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@contextmanager
def cluster(folder: Path, nodes: int = 2, cpus: int = 1) -> Iterator[Cluster]:
    """A cluster that runs during the block; `folder` is short, because the path of a socket is limited."""
    started = Cluster(folder, nodes, cpus)
    try:
        started.start()
        yield started
    finally:
        started.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
