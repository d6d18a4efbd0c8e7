"""A Slurm cluster over the nodes of a lab network: munged, slurmctld, and a slurmd on each node, with their own files.

The daemons end with the process that starts them.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fabtui.lab import network as holder
from fabtui.lab.network import Network
from tests.forked import fabtui

_DEADLINE = 75.0
_TOOLS = ("slurmctld", "slurmd", "munged", "srun", "squeue", "salloc", "sbatch")
GPUS = 4
FABTUI = (sys.executable, "-m", "fabtui")


def missing() -> str | None:
    """Return why there can be no such cluster here, or None."""
    for tool in _TOOLS:
        if holder.path_of(tool) is None:
            return f"no {tool} on this machine"
    return holder.missing()


class SlurmCluster:
    """Slurm with four GPUs (character devices) on each node and two leaf switches in its topology.

    Args:
        folder: Where its files lie.
        nodes: How many nodes the network has.
        each: How many nodes of Slurm each of them plays, with a slurmd on a port of its own.
        more: Further lines of slurm.conf.

    Attributes:
        names: The nodes of Slurm.
        network: The network below; ``network.ssh_config`` reaches the nodes by ssh.
    """

    def __init__(self, folder: Path, nodes: int = 4, each: int = 1, more: str = "") -> None:
        # Paths of sockets are short.
        self.folder = folder
        self._more = more
        self.network = Network(folder, nodes=nodes, rails=1, management="mgmt0")
        self.names = [f"n{number}" for number in range(nodes * each)]
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.network.__enter__()
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait(5)
        self.network.close()

    def _configure(self) -> None:
        folder = self.folder
        for name in ("state", "spool", "dev", "munge"):
            (folder / name).mkdir()
        for number in range(GPUS):
            os.mknod(folder / "dev" / f"nvidia{number}", 0o600 | 0o020000, os.makedev(1, 3))
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o600)
        half = len(self.names) // 2
        nodes = "".join(
            f"NodeName={name} NodeAddr={self.network.login_address(self._host(name))} CPUs=16 RealMemory=20000"
            f" Port={6818 + number // len(self.network.names)} Gres=gpu:a10:{GPUS} State=UNKNOWN\n"
            for number, name in enumerate(self.names)
        )
        (folder / "slurm.conf").write_text(
            f"""ClusterName=lab
SlurmctldHost={socket.gethostname()}(10.99.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=task=1
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=600
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
LaunchParameters=use_interactive_step
PropagateResourceLimits=NONE
AccountingStorageType=accounting_storage/none
TopologyPlugin=topology/tree
GresTypes=gpu
{self._more}
{nodes}PartitionName=gpu Nodes={",".join(self.names)} Default=YES MaxTime=60 DefMemPerCPU=1000 State=UP
"""
        )
        (folder / "gres.conf").write_text(f"Name=gpu Type=a10 File={folder}/dev/nvidia[0-{GPUS - 1}]\n")
        # What it prints after the word is printed by the task.
        (folder / "prolog").write_text(f"#!/bin/sh\n[ ! -e {folder}/banner ] || cat {folder}/banner\n")
        (folder / "prolog").chmod(0o755)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        leaves = f"SwitchName=leaf1 Nodes={','.join(self.names[:half])}\n"
        leaves += f"SwitchName=leaf2 Nodes={','.join(self.names[half:])}\nSwitchName=spine1 Switches=leaf[1-2]\n"
        (folder / "topology.conf").write_text(leaves)

    def _start(self) -> None:
        folder, munge, config = self.folder, self.folder / "munge", str(self.folder / "slurm.conf")
        files = [f"--{kind}-file={munge}/{kind}" for kind in ("key", "pid", "log", "seed")]
        self._daemon(["munged", "--foreground", "--force", f"--socket={munge}/socket", *files], "munged")
        self._until(lambda: (munge / "socket").exists(), "munged")
        self._daemon(self.network.controller(["slurmctld", "-D", "-c", "-f", config]), "slurmctld")
        for name in self.names:
            (folder / "spool" / name).mkdir()
            host = self.network.holder(self._host(name))
            self._daemon(host.enter(["slurmd", "-D", "-f", config, "-N", name]), f"slurmd-{name}")
        self._until(self._idle, "slurmd")

    def _host(self, name: str) -> str:
        return self.network.names[self.names.index(name) % len(self.network.names)]

    def _daemon(self, argv: list[str], name: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *argv],
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _until(self, done: Any, what: str) -> None:
        end = time.monotonic() + _DEADLINE
        while not done():
            if time.monotonic() > end:
                logs = [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out")]
                raise RuntimeError(f"{what} did not start:\n" + "\n".join(logs))
            time.sleep(0.1)

    def _idle(self) -> bool:
        states = self.run("sinfo", "--noheader", "--Node", "--format=%T", check=False).stdout.split()
        return len(states) == len(self.names) and all(state == "idle" for state in states)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return {**kept, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf"), **more}

    def words(self, *argv: str) -> list[str]:
        return self.network.controller(argv)

    def run(
        self, *argv: str, check: bool = True, timeout: float = 120, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environ = self.environment(**(env or {}))
        if argv[: len(FABTUI)] == FABTUI:
            done = fabtui(*argv[len(FABTUI) :], env=environ, net=self.network.console, timeout=timeout)
        else:
            done = subprocess.run(
                self.words(*argv),
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
        return done

    def batch(self, *options: str, script: str = "sleep 600") -> str:
        output = f"--output={self.folder}/job-%j.out"
        return self.run("sbatch", "--parsable", output, *options, f"--wrap={script}").stdout.strip()

    def job(self, *options: str, script: str = "sleep 600") -> str:
        """Submit a job, wait until it runs, and return its id."""
        number = self.batch(*options, script=script)
        self._until(lambda: self.state(number) == "RUNNING", f"job {number}")
        return number

    def state(self, job: str) -> str:
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout.strip()

    def steps(self, job: str) -> list[str]:
        """Return the steps of a job by name, without its batch script."""
        lines = self.run("squeue", "--noheader", "--steps", "--format=%i %j", check=False).stdout.split("\n")
        names = [line.split() for line in lines if line.startswith(f"{job}.")]
        return [name for _, name in names if name not in ("batch", "extern", "interactive")]

    def clear(self) -> None:
        """Cancel all jobs and wait until the nodes are idle."""
        self.run("scancel", "--user=root", check=False)
        self._until(self._idle, "idle nodes")

    def fabtui(self, command: str, *args: str) -> list[str]:
        """Return a command line of fabtui for this cluster, as typed on the login node."""
        return [*FABTUI, command, "--remote-python", sys.executable, "--no-record", *args]

    def processes(self, name: str) -> list[str]:
        found = self.network.on(self._host(name), "ps", "-eo", "args").splitlines()
        return [line for line in found if "-IS -c" in line]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def short_folder(name: str) -> Path:
    """Return a new folder with a short path: paths of sockets are limited to 107 bytes."""
    path = Path(f"/tmp/lab-{name}-{os.getpid()}")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path
