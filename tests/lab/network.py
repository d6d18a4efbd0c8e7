"""Nodes in network namespaces: rails of bridges, a router between them, an SSH server for each node, and faults.

Every namespace belongs to a process that the kernel kills when the process that made the network dies. So nothing is
left behind even when a test is killed: interfaces, bridges, routes and rules go with the namespaces.

A node is reached by ``ssh`` with a ProxyCommand that starts ``sshd -i`` inside its namespaces: no management network.
With one, its SSH server listens there, and the controller runs in a namespace that has nothing else.
Addresses are ``10.<rail + 1>.0.<node + 1>``. Traffic between rails goes through a router. Each node sends from an
address over the interface that has it, as hosts with several rails are set up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

_NAMESPACES = ["--net", "--uts", "--ipc", "--pid", "--mount"]
_DEADLINE = 20.0
#: Both tables hold the faults: what stays within a rail is bridged, what crosses rails is routed.
_FAULTS = "".join(
    f"add table {family} mesh\n"
    f"add chain {family} mesh faults {{ type filter hook forward priority 0; policy accept; }}\n"
    for family in ("bridge", "inet")
)


def missing() -> str | None:
    """Return why such a network cannot be made here, or None."""
    if os.getuid() != 0:
        return "only root makes network namespaces"
    for tool in ("ip", "nft", "nsenter", "unshare", "setpriv", "ssh", "ssh-keygen", "sshd"):
        if _path(tool) is None:
            return f"no {tool} on this machine"
    done = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"namespaces cannot be made: {done.stderr.strip()[:100]}"


def _path(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class _Host:
    """A process that holds namespaces, and ends with the thread that made it."""

    def __init__(self, name: str) -> None:
        script = f"hostname {name} && mount -t sysfs sysfs /sys && echo up && exec sleep infinity"
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "--mount-proc", "--fork"]
        self._process = subprocess.Popen(
            [*argv, "--kill-child=KILL", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # On its way out it complains of a signal mask.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = 0

    def wait(self) -> None:
        """Wait until the namespaces are there."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"up\n":
            raise RuntimeError("namespaces could not be made")
        pid = self._process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pid = int(child)

    def enter(self, argv: Iterable[str], *, only_net: bool = False) -> list[str]:
        """Return the command that runs a command inside."""
        into = ["--net"] if only_net else _NAMESPACES
        return ["nsenter", "--target", str(self.pid), *into, "--", *argv]

    def run(self, *argv: str, text: str = "", only_net: bool = False) -> str:
        """Run a command inside and return what it printed."""
        done = subprocess.run(
            self.enter(argv, only_net=only_net), input=text, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def end(self) -> None:
        """Kill everything inside."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(5)


class Network:
    """Nodes and rails, reached by SSH.

    Args:
        folder: Where keys and configurations lie.
        nodes: How many nodes, called ``n0`` and so on.
        rails: How many interfaces each has, ``eth0`` and so on.
        mtu: Of everything.
        management: The interface of each node in a management network, which has no route to the rails; "" without.

    Attributes:
        names: The nodes' names.
        ssh_config: The configuration that reaches them.
    """

    def __init__(self, folder: Path, nodes: int = 8, rails: int = 4, mtu: int = 9000, management: str = "") -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.rails = range(rails)
        self.mtu = mtu
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self._fabric = _Host("mesh-fabric")
        self._hosts = {name: _Host(f"mesh-{name}") for name in self.names}
        self._management = management
        self._console = _Host("mesh-console") if management else None

    def __enter__(self) -> Self:
        try:
            for host in self._all():
                host.wait()
            self._wire()
            if self._console is not None:
                self._manage(self._console)
            self._serve()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take everything down."""
        for host in self._all():
            host.end()

    def _all(self) -> list[_Host]:
        return [*self._hosts.values(), self._fabric, *([self._console] if self._console is not None else [])]

    def controller(self, argv: Iterable[str]) -> list[str]:
        """Return the command that runs a command where the controller is."""
        return list(argv) if self._console is None else self._console.enter(argv, only_net=True)

    def address(self, node: str, rail: int) -> str:
        """Return the address of a node on a rail."""
        return f"10.{rail + 1}.0.{self.names.index(node) + 1}"

    def addresses(self) -> list[tuple[str, int, str]]:
        """Return node, rail and address of everything that is to answer."""
        return [(node, rail, self.address(node, rail)) for node in self.names for rail in self.rails]

    def _wire(self) -> None:
        # A bridge that is down passes nothing on, not even to the router.
        lines = ["link set lo up", f"link add elsewhere mtu {self.mtu} type bridge"]
        for rail in self.rails:
            lines += [f"link add br{rail} mtu {self.mtu} type bridge", f"link set br{rail} up"]
            lines += [f"addr add 10.{rail + 1}.0.254/24 dev br{rail}"]
            for name in self.names:
                port, pid = f"{name}r{rail}", self._hosts[name].pid
                lines += [
                    f"link add {port} mtu {self.mtu} type veth peer name eth{rail} mtu {self.mtu} netns {pid}",
                    f"link set {port} master br{rail} up",
                ]
        self.fabric("ip", "-batch", "-", text="\n".join(lines) + "\n")
        self.fabric("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.fabric("nft", "-f", "-", text=_FAULTS)
        for name, host in self._hosts.items():
            lines = ["link set lo up"]
            for rail in self.rails:
                net, table = f"10.{rail + 1}.0", 100 + rail
                lines += [
                    f"addr add {self.address(name, rail)}/24 dev eth{rail}",
                    f"link set eth{rail} up",
                    f"route add {net}.0/24 dev eth{rail} table {table}",
                    f"route add default via {net}.254 dev eth{rail} table {table}",
                    f"rule add from {self.address(name, rail)} table {table}",
                ]
            host.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)

    def _manage(self, console: _Host) -> None:
        """Connect the nodes and the controller by a network of its own."""
        lines = ["link set lo up", "link add wire type bridge", "link set wire up", "addr add 10.99.0.254/24 dev wire"]
        for name, host in self._hosts.items():
            lines += [
                f"link add {name} type veth peer name {self._management} netns {host.pid}",
                f"link set {name} master wire up",
            ]
        console.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)
        for name, host in self._hosts.items():
            lines = [
                f"addr add {self._login_address(name)}/24 dev {self._management}",
                f"link set {self._management} up",
            ]
            host.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)

    def _login_address(self, name: str) -> str:
        return f"10.99.0.{self.names.index(name) + 1}"

    def _serve(self) -> None:
        """Write what ssh needs to reach the nodes."""
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("id", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        public = " ".join((self.folder / "host.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text("".join(f"{name} {public}\n" for name in self.names))
        (self.folder / "sshd_config").write_text(
            f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/id.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\nMaxSessions 64\n"
        )
        sshd = [_path("sshd") or "sshd", "-i", "-f", str(self.folder / "sshd_config")]
        blocks = []
        for name, host in self._hosts.items():
            block = f"ProxyCommand {' '.join(host.enter(sshd))} 2>/dev/null"
            if self._console is not None:
                address = self._login_address(name)
                host.run(sshd[0], "-f", sshd[-1], "-o", f"ListenAddress={address}")
                block = f"HostName {address}\n HostKeyAlias {name}"
            blocks.append(f"Host {name}\n {block}\n")
        self.ssh_config.write_text(
            "".join(blocks) + f"Host *\n User root\n IdentityFile {self.folder}/id\n IdentitiesOnly yes\n"
            f" IdentityAgent none\n UserKnownHostsFile {self.folder}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
            " StrictHostKeyChecking yes\n ControlPath none\n"
        )

    # -- faults -------------------------------------------------------------------------------------------------------

    def in_fabric(self, argv: Iterable[str]) -> list[str]:
        """Return the command that runs a command in the network between the nodes."""
        return self._fabric.enter(argv, only_net=True)

    def fabric(self, *argv: str, text: str = "") -> str:
        """Run a command in the network between the nodes."""
        return self._fabric.run(*argv, text=text, only_net=True)

    def on(self, name: str, *argv: str, text: str = "") -> str:
        """Run a command on a node."""
        return self._hosts[name].run(*argv, text=text)

    def pull(self, name: str, rail: int) -> None:
        """Pull a cable: the node sees that it has no carrier."""
        self.fabric("ip", "link", "set", f"{name}r{rail}", "down")
        end = time.monotonic() + _DEADLINE
        while self.on(name, "cat", f"/sys/class/net/eth{rail}/operstate").strip() == "up":
            if time.monotonic() > end:
                raise RuntimeError("the carrier did not go")
            time.sleep(0.02)

    def misplug(self, name: str, rail: int) -> None:
        """Put a node's port on a bridge of its own, as into the wrong VLAN: the node sees a carrier and no one else."""
        self.fabric("ip", "link", "set", f"{name}r{rail}", "master", "elsewhere")

    def rule(self, match: str, action: str = "drop") -> None:
        """Have the network treat what matches, within a rail and between rails."""
        for family in ("bridge", "inet"):
            self.fabric("nft", "add", "rule", family, "mesh", "faults", *match.split(), *action.split())

    def forget_sources(self) -> None:
        """Have nodes send to a rail over their interface there, from any address, as hosts usually do."""
        for name, host in self._hosts.items():
            lines = [f"rule del from {self.address(name, rail)} table {100 + rail}" for rail in self.rails]
            host.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)

    def heal(self) -> None:
        """Take all faults back."""
        for family in ("bridge", "inet"):
            self.fabric("nft", "flush", "chain", family, "mesh", "faults")
        lines = [f"link set {name}r{rail} master br{rail} up" for name in self.names for rail in self.rails]
        self.fabric("ip", "-batch", "-", text="\n".join(lines) + "\n")
