"""Programs that start one process on each of many nodes by one call: srun, Flux, mpirun and Kubernetes.

Each process calls this machine back (`fabtui.transport.node_starter`). The options of srun and of OpenMPI 4.1 were
tried (docs/tested.md); those of Flux and Kubernetes follow their manuals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabtui.nodeset import expand_listed, fold
from fabtui.transport.byte_pipe import output_of
from fabtui.transport.launcher import SRUN, STEP_OPTIONS, VIA, LauncherError, srun_environment
from fabtui.transport.link import NodeUnreachable
from fabtui_node.runtime.call_back import SETTING

#: Deadline (s) of a question to a scheduler.
ASK = 5.0
#: Settings of OpenMPI and of PRRTE with options of ssh, which must neither ask nor wait for long.
_SSH_SETTINGS, _SSH = ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"), "-o BatchMode=yes -o ConnectTimeout=10"


class StartCall(NamedTuple):
    """Nodes, command and settings of one call."""

    nodes: Sequence[str]
    command: Sequence[str]  #: Command line of each process, which finds `setting` in its environment.
    setting: str  #: Value of `SETTING`.
    number: str  #: Number of the call, 8 hexadecimal digits.
    wait: float  #: Time (s) for the call to start.
    placement: Sequence[str] = ()  #: Options of srun that select the job.
    manifest: str = ""  #: Manifest of Kubernetes, with places for the values above.
    #: Ranks of the brokers of Flux by node; empty outside of an instance that has all of the nodes.
    brokers: Mapping[str, int] = {}


class Starter(NamedTuple):
    """A program that starts one process per node by one call."""

    words: Callable[[StartCall], list[str]]
    errors: Sequence[LauncherError] = VIA
    environment: Callable[[], dict[str, str]] = lambda: dict(os.environ)
    text: Callable[[StartCall], str] = lambda call: ""  #: Its standard input.
    stop: Sequence[str] = ()  #: Command line that stops it, with the same input, where its own end does not.
    first: float = 0.0  #: Time (s) until the first process calls, besides that of any link.
    stays: bool = True  #: Whether its process lives as long as what it started.
    #: Whether a node where it cannot start a process ends the others as well.
    whole: bool = False


def _srun(call: StartCall) -> list[str]:
    number = len(call.nodes)
    tasks = [f"--nodes={number}", f"--ntasks={number}", "--ntasks-per-node=1", "--input=none"]
    # --no-kill: the end of one node is not that of the step. --verbose: srun reports each task that it launched.
    tasks += ["--label", "--no-kill", "--verbose", *STEP_OPTIONS, f"--immediate={max(1, round(call.wait))}"]
    return ["srun", *call.placement, f"--nodelist={fold(call.nodes)}", *tasks, "--", *call.command]


def _flux(call: StartCall) -> list[str]:
    if call.brokers:
        # Beside what runs there: it takes no resources of the instance.
        chosen = ",".join(str(rank) for rank in sorted(call.brokers[node] for node in call.nodes))
        return ["flux", "exec", f"--rank={chosen}", "--noinput", "--label-io", "--dir=/", *call.command]
    number = len(call.nodes)
    tasks = [f"--nodes={number}", f"--ntasks={number}", f"--requires=hosts:{fold(call.nodes)}"]
    return ["flux", "run", *tasks, "--label-io", "--setopt=exit-timeout=none", *call.command]


def _mpirun(call: StartCall) -> list[str]:
    where = ["--host", ",".join(call.nodes), "--map-by", "ppr:1:node", "--bind-to", "none"]
    return ["mpirun", *where, "-x", SETTING, *call.command]


def _manifest(call: StartCall) -> str:
    # A process that fails must not fail the Job, which would end all others.
    shell = [*call.command[:-1], f"({call.command[-1]}) || exit 0"]
    values = {"command": shell, "call_back": call.setting, "nodes": list(call.nodes), "count": len(call.nodes)}
    text = call.manifest.replace("{number}", call.number)
    for name, value in values.items():
        # JSON is YAML.
        text = text.replace(f"{{{name}}}", json.dumps(value))
    return text


STARTERS: dict[str, Starter] = {
    "srun": Starter(_srun, SRUN, srun_environment, whole=True),
    "flux": Starter(_flux),
    # Each process leaves mpirun once it is connected: mpirun ends all when one of them fails.
    "mpirun": Starter(_mpirun, environment=lambda: {**dict.fromkeys(_SSH_SETTINGS, _SSH), **os.environ}, stays=False),
    "kubernetes": Starter(
        lambda call: ["kubectl", "create", "--filename=-"],
        text=_manifest,
        stop=("kubectl", "delete", "--ignore-not-found", "--wait=false", "--filename=-"),
        # Images are pulled first.
        first=300.0,
        stays=False,
    ),
}


async def brokers(nodes: Sequence[str]) -> dict[str, int]:
    """Return the broker of Flux on each node; empty outside of an instance that has all of the nodes."""
    try:
        status, output, _ = await output_of(("flux", "getattr", "hostlist"), ASK)
    except OSError as error:
        raise NodeUnreachable("local", f"cannot run flux: {error}") from None
    names = (expand_listed(output.decode("utf-8", "replace")) or []) if status == 0 else []
    ranks = {name: rank for rank, name in enumerate(names)}
    return {node: ranks[node] for node in nodes} if ranks.keys() >= set(nodes) else {}
