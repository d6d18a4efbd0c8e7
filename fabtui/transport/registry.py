"""The transports: ways to start the node side on a node. Importing this module imports none of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, NamedTuple

_CONNECTOR = "fabtui.transport.connector:Connector"


class TransportSpec(NamedTuple):
    """One transport."""

    name: str
    title: str
    opener: str  #: ``module:function``; the coroutine function takes the `Connector` and a host and returns a `Link`.
    #: Command line that runs something on a node by hand, with ``{node}``, ``{command}`` and, for srun, ``{job}``.
    hint: str = "ssh {node} {command}"
    configurable: bool = True  #: Whether the settings file may name it.
    remote: bool = True

    def open(self) -> Any:
        return resolve_name(self.opener)


#: The transports by name, the default first.
TRANSPORTS: dict[str, TransportSpec] = {
    spec.name: spec
    for spec in (
        TransportSpec("ssh", "asyncssh; OpenSSH for what asyncssh cannot do", f"{_CONNECTOR}.open_ssh"),
        TransportSpec("openssh", "one process of your ssh per node", f"{_CONNECTOR}.open_openssh"),
        TransportSpec(
            "local",
            "this host only, without ssh",
            f"{_CONNECTOR}.open_local",
            hint="{command}",
            # It ignores which nodes are named, so it has to be requested each time.
            configurable=False,
            remote=False,
        ),
        TransportSpec(
            "srun",
            "steps of your Slurm job; one for all nodes from 33 on",
            f"{_CONNECTOR}.open_srun",
            hint="srun --overlap {job} {command}",
        ),
        TransportSpec(
            "flux",
            "flux exec within your instance, else flux run; nodes call back",
            f"{_CONNECTOR}.open_called",
            hint="flux run --requires=hosts:{node} {command}",
        ),
        TransportSpec("mpirun", "one mpirun for all nodes, which call back", f"{_CONNECTOR}.open_called"),
        TransportSpec(
            "kubernetes",
            "an Indexed Job of --manifest, a pod per node, which call back",
            f"{_CONNECTOR}.open_called",
            hint="kubectl debug --image=busybox -it node/{node} -- {command}",
        ),
        TransportSpec(
            "via",
            "the command line of --via, such as kubectl exec",
            f"{_CONNECTOR}.open_via",
            hint="{via} {command}",
            # --via selects it.
            configurable=False,
        ),
    )
}


#: The transports whose hints are not ssh's.
LAUNCHED = tuple(spec.name for spec in TRANSPORTS.values() if spec.remote and not spec.hint.startswith("ssh"))


def command_on_node(options: Mapping[str, Any], node: str, command: str, backend: str = "") -> str:
    """Return the command line that runs a command on a node by hand, in the terms of the session's transport.

    ``options`` are the session's, as recorded; ``backend`` is how the node was reached, if known: a session may fall
    back to srun.
    """
    name = backend if backend in LAUNCHED else str(options.get("transport", ""))
    quoted = shlex.quote(node)
    if name == "srun":
        placements = options.get("placements") or {}
        words = [str(word) for word in placements.get(node) or (f"--nodelist={node}",)]
        return f"srun --overlap {shlex.join(words)} {command}"
    if name == "via":
        return f"{str(options.get('via', '')).replace('{node}', quoted)} {command}".strip()
    if name in TRANSPORTS and not TRANSPORTS[name].hint.startswith("ssh"):
        return TRANSPORTS[name].hint.replace("{node}", quoted).replace("{command}", command)
    config = options.get("ssh_config")
    return f"ssh {f'-F {shlex.quote(str(config))} ' if config else ''}{quoted} {command}"
