"""The user's ``ssh`` as transport: for Kerberos, host-based logins, security keys and shared connections."""

from __future__ import annotations

from pathlib import Path

from fabtui.transport.byte_pipe import Ending, Explain, explain_end
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.local import ProcessPipe
from fabtui.transport.login_errors import classify_openssh
from fabtui.transport.ssh_config.resolved import Policy

_HOST_KEYS: dict[Policy, tuple[str, ...]] = {
    "strict": ("StrictHostKeyChecking=yes",),
    # Not "no": with that, OpenSSH goes on after a changed key.
    "accept-new": ("StrictHostKeyChecking=accept-new",),
    "off": ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null"),
}
_ALWAYS = (
    "BatchMode=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "Tunnel=no",
    # Uses a shared connection, but does not become the master of others.
    "ControlMaster=no",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # Errors are recognised from its output.
    "LogLevel=INFO",
)


def argv(ssh: str, ssh_config: Path | None, host: str, command: str, policy: Policy, within: float) -> list[str]:
    """Return the command line of the program ``ssh`` that runs a command on a host; ``within`` (s) to connect."""
    options = [*_ALWAYS, f"ConnectTimeout={max(1, round(within))}", *_HOST_KEYS[policy]]
    words = [ssh, "-T", "-x", "-a", "-e", "none"]
    if ssh_config is not None:
        words += ["-F", str(ssh_config)]
    for option in options:
        words += ["-o", option]
    return [*words, "--", host, command]


class SshPipe(ProcessPipe):
    """The byte pipe of an ``ssh``."""

    async def ending(self) -> Ending:
        """Wait for ssh. It ends with 255 when the connection breaks and when a signal ends the command."""
        ending = await super().ending()
        if ending.status == 255:
            return Ending(reason="ssh lost the connection, or the command was killed")
        return ending


def explainer(node: str) -> Explain:
    """Return the function that converts an early end of ssh to an error."""

    def explain(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
        if ending.lost and (known := classify_openssh(node, stderr)) is not None:
            return known
        return explain_end(ending, banner, stderr)

    return explain
