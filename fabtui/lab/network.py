"""Nodes in network namespaces: rails of bridges, a router between them, an SSH server for each node, and faults.

Every namespace belongs to a process that the kernel kills when the process that made the network dies. So nothing is
left behind even when that is killed: interfaces, bridges, routes and rules go with the namespaces.

A node is reached by ``ssh`` with a ProxyCommand that starts ``sshd -i`` inside its namespaces: no management network.
With one, its SSH server listens there. The controller then runs in a namespace that has nothing else, or reaches that
by a ProxyCommand. Addresses are ``10.<rail + 1>.0.<node + 1>``. Traffic between rails goes through a router. Each node
sends from an address over the interface that has it, as hosts with several rails are set up.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fabtui.lab.faults import Fault, LabSpec, parse_faults, places_of

#: The most nodes and rails that have addresses.
MAX_NODES, MAX_RAILS = 64, 8

#: Both tables hold the faults: what stays within a rail is bridged, what crosses rails is routed.
_TABLES = ("bridge", "inet")
_FAULTS = "".join(
    f"add table {family} mesh\n"
    f"add chain {family} mesh faults {{ type filter hook forward priority 0; policy accept; }}\n"
    for family in _TABLES
)
#: Places of commands besides the nodes: the network between the nodes, and the management network.
FABRIC, CONSOLE = "fabric", "console"
#: A bucket (bytes) that holds some frames, and the time after which what waits for it is dropped.
_BURST, _LATENCY = 64_000, "50ms"
#: A node answers for its address by any interface: while its cables were crossed, others learned that of the wrong
#: one, which stays dead for up to a minute. It announces its addresses, as network services do when a carrier returns.
_ANNOUNCE = """\
sysctl -qw net.ipv4.conf.all.arp_notify=1
for name in eth0 eth1; do set -- $(ip -br link show dev $name); ip link set dev $name address $3; done"""
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")
#: What the network and the nodes are made with.
_TOOLS = ("ip", "nft", "tc", "nsenter", "unshare", "setpriv", "ssh", "ssh-keygen", "sshd")
#: Timeout (s) of a command.
_TIMEOUT = 60.0


def _escaped(text: object) -> str:
    return str(text).replace("%", "%%")


class Network:
    """Nodes and rails, reached by SSH.

    Its nodes are called ``n0`` and so on, or have `names`; each has an interface ``eth0`` and so on for each rail.
    ``management`` is the interface of each node in a management network, which has no route to the rails; "" without.
    ``relayed``: the controller is outside of that, and reaches the nodes by a ProxyCommand. ``variables`` are those of
    logins on the nodes; ``own`` returns those of one node instead.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 8,
        rails: int = 4,
        mtu: int = 9000,
        management: str = "",
        *,
        relayed: bool = False,
        variables: Mapping[str, str] | None = None,
        own: Callable[[str], Mapping[str, str]] = lambda _: {},
        names: Sequence[str] = (),
    ) -> None:
        self.names = list(names) or [f"n{number}" for number in range(nodes)]  #: The nodes' names.
        self.rails = range(rails)
        self.mtu = mtu
        self.folder = folder
        self.ssh_config = folder / "ssh_config"  #: The configuration that reaches them.
        self.faults: dict[str, Fault] = {}  #: What is planted, by its place.
        self._fabric = Holder("fabric")
        self._hosts = {name: Holder(name) for name in self.names}
        self._management = management
        self._console = Holder("console") if management else None
        self._relayed = relayed
        self._variables = dict(variables or {})
        self._own = own
        self._rules: list[str] = []
        self._loops: dict[str, subprocess.Popen[bytes]] = {}

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
        for where in list(self._loops):
            self._end_loop(where)
        for host in self._all():
            host.end()

    def _all(self) -> list[Holder]:
        return [*self._hosts.values(), self._fabric, *([self._console] if self._console is not None else [])]

    @property
    def console(self) -> int | None:
        """The process whose network namespace the controller is in; None for that of this process."""
        return None if self._console is None else self._console.pid

    def controller(self, argv: Iterable[str]) -> list[str]:
        return list(argv) if self._console is None else self._console.enter(argv, only_net=True)

    def address(self, node: str, rail: int) -> str:
        return f"10.{rail + 1}.0.{self.names.index(node) + 1}"

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
        # Where bridged frames pass the rules of both tables, 5 % of loss would become 9.75 %.
        self.fabric("sysctl", "-eqw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=0")
        self.fabric("nft", "-f", "-", text=_FAULTS)
        for name, host in self._hosts.items():
            lines = ["link set lo up"]
            for rail in self.rails:
                own = self.address(name, rail)
                lines += [f"addr add {own}/24 dev eth{rail}", f"link set eth{rail} up"]
                lines += [self.routes(name, rail) + f"rule add from {own} table {100 + rail}"]
            host.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)

    def routes(self, node: str, rail: int) -> str:
        """Return the input of ``ip -batch`` that makes the routes of an interface."""
        net, end = f"10.{rail + 1}.0", f"dev eth{rail} table {100 + rail}\n"
        return f"route replace {net}.0/24 {end}route replace default via {net}.254 {end}"

    def _manage(self, console: Holder) -> None:
        lines = ["link set lo up", "link add wire type bridge", "link set wire up", "addr add 10.99.0.254/24 dev wire"]
        for name, host in self._hosts.items():
            lines += [
                f"link add {name} type veth peer name {self._management} netns {host.pid}",
                f"link set {name} master wire up",
            ]
        console.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)
        for name, host in self._hosts.items():
            lines = [
                f"addr add {self.login_address(name)}/24 dev {self._management}",
                f"link set {self._management} up",
            ]
            host.run("ip", "-batch", "-", text="\n".join(lines) + "\n", only_net=True)

    def login_address(self, name: str) -> str:
        return f"10.99.0.{self.names.index(name) + 1}"

    def server(self, node: str) -> tuple[str, ...]:
        """Return the command that starts the SSH server of a node in the management network."""
        if self._console is None:
            return ("true",)
        return (*self._sshd(node), "-o", f"ListenAddress={self.login_address(node)}")

    def _sshd(self, node: str) -> tuple[str, ...]:
        command = (path_of("sshd") or "sshd", "-f", str(self.folder / "sshd_config"))
        own = _variables_text(self._own(node))
        return (*command, "-o", f"SetEnv={own}") if own else command

    def _serve(self) -> None:
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("id", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        public = " ".join((self.folder / "host.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text("".join(f"{name} {public}\n" for name in self.names))
        variables = _variables_text(self._variables)
        (self.folder / "sshd_config").write_text(
            f'HostKey "{self.folder}/host"\nAuthorizedKeysFile "{self.folder}/id.pub"\nStrictModes no\nUsePAM no\n'
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\nMaxSessions 64\n"
            + (f"SetEnv {variables}\n" if variables else "")
        )
        blocks = []
        for name, host in self._hosts.items():
            block = f"ProxyCommand {_escaped(shlex.join(host.enter([*self._sshd(name), '-i'])))} 2>/dev/null"
            if self._console is not None:
                host.run(*self.server(name))
                block = f"HostName {self.login_address(name)}\n HostKeyAlias {name}"
                if self._relayed:
                    relay = [sys.executable, "-IS", str(Path(__file__).with_name("relay.py"))]
                    words = _escaped(shlex.join(self._console.enter(relay, only_net=True)))
                    block += f"\n ProxyCommand {words} %h %p"
            blocks.append(f"Host {name}\n {block}\n")
        self.ssh_config.write_text(
            "".join(blocks) + f'Host *\n User root\n IdentityFile "{_escaped(self.folder)}/id"\n IdentitiesOnly yes\n'
            f' IdentityAgent none\n UserKnownHostsFile "{_escaped(self.folder)}/known_hosts"\n'
            " GlobalKnownHostsFile /dev/null\n"
            " StrictHostKeyChecking yes\n ControlPath none\n"
        )

    # -- faults -------------------------------------------------------------------------------------------------------

    def in_fabric(self, argv: Iterable[str]) -> list[str]:
        return self._fabric.enter(argv, only_net=True)

    def fabric(self, *argv: str, text: str = "") -> str:
        return self._fabric.run(*argv, text=text, only_net=True)

    def on(self, name: str, *argv: str, text: str = "") -> str:
        return self._hosts[name].run(*argv, text=text)

    def holder(self, name: str) -> Holder:
        return self._hosts[name]

    @property
    def spec(self) -> LabSpec:
        return LabSpec((1,) * len(self.names), len(self.rails), True, tuple(self.names))

    def plant(self, *texts: str) -> None:
        """Plant faults, all of them or none.

        Raises:
            ValueError: A text is not a fault, names what is not there, or its place has a fault already.
        """
        for fault in parse_faults(texts, self.spec, self.faults.values()):
            self.faults[fault.where] = fault
            self._put(fault)
        self._write_rules()

    def heal(self, *places: str) -> None:
        """Take the faults of some places back, or all of them.

        Raises:
            ValueError: A place has no fault.
        """
        for where in places_of(places, self.faults):
            self._end_loop(where)
            self._run(effect_of(self.faults.pop(where), self).heal)
        # Healing a fault may switch on what a second one has switched off.
        for fault in self.faults.values():
            self._put(fault)
        if not places:
            self._rules.clear()
        self._write_rules()

    def _put(self, fault: Fault) -> None:
        effect = effect_of(fault, self)
        self._run(effect.plant)
        if effect.loop and fault.where not in self._loops:
            self._loops[fault.where] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.in_fabric(["sh", "-c", effect.loop])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _end_loop(self, where: str) -> None:
        if (loop := self._loops.pop(where, None)) is not None:
            # With what it runs just now.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(loop.pid, signal.SIGKILL)
            loop.wait(5)

    def _run(self, steps: Iterable[Step]) -> None:
        for place, argv, text in steps:
            if place == FABRIC:
                self.fabric(*argv, text=text)
            elif place != CONSOLE:
                self.on(place, *argv, text=text)
            elif self._console is not None:
                self._console.run(*argv, text=text, only_net=True)

    def rule(self, match: str) -> None:
        """Have the network drop what matches, within a rail and between rails."""
        self._rules.append(match)
        self._write_rules()

    def _write_rules(self) -> None:
        matches = [*self._rules, *(rule for fault in self.faults.values() for rule in effect_of(fault, self).rules)]
        lines = [f"flush chain {family} mesh faults" for family in _TABLES]
        lines += [f"add rule {family} mesh faults {match} drop" for family in _TABLES for match in matches]
        self.fabric("nft", "-f", "-", text="\n".join(lines) + "\n")


def _variables_text(variables: Mapping[str, str]) -> str:
    return " ".join(f'"{name}={value}"' for name, value in variables.items())


class Step(NamedTuple):
    """A command: where it runs, its words, and its standard input."""

    place: str
    argv: tuple[str, ...]
    text: str = ""


class Effect(NamedTuple):
    """Effect of a fault."""

    plant: tuple[Step, ...] = ()  #: Commands that plant it; they may run again while it is there.
    heal: tuple[Step, ...] = ()  #: Commands that take it back.
    rules: tuple[str, ...] = ()  #: What the network drops while it is there.
    loop: str = ""  #: A script that runs in the network while it is there, or "".


def effect_of(fault: Fault, network: Network) -> Effect:
    return _EFFECTS[fault.kind.place, fault.kind.name](fault, network)


def _link(place: str, *words: str) -> Step:
    return Step(place, ("ip", "link", "set", *words))


def _port(fault: Fault) -> str:
    return f"{fault.nodes[0]}r{fault.rails[0]}"


def _own(fault: Fault, network: Network) -> str:
    return network.address(fault.nodes[0], fault.rails[0])


def _pull(fault: Fault, network: Network) -> Effect:
    return Effect((_link(FABRIC, _port(fault), "down"),), (_link(FABRIC, _port(fault), "up"),))


def _misplug(fault: Fault, network: Network) -> Effect:
    port = _port(fault)
    # A bridge without an address and without other ports.
    return Effect(
        (_link(FABRIC, port, "master", "elsewhere"),), (_link(FABRIC, port, "master", f"br{fault.rails[0]}"),)
    )


def _crossed(fault: Fault, network: Network) -> Effect:
    (node,) = fault.nodes
    ends = ((f"{node}r0", f"{node}r1"), ("br0", "br1"))
    plant = tuple(_link(FABRIC, port, "master", bridge) for port, bridge in zip(ends[0], ends[1][::-1], strict=True))
    heal = tuple(_link(FABRIC, port, "master", bridge) for port, bridge in zip(*ends, strict=True))
    return Effect(plant, (*heal, Step(node, ("sh", "-ec", _ANNOUNCE))))


def _interface_down(fault: Fault, network: Network) -> Effect:
    ((node,), (rail,)) = fault.nodes, fault.rails
    # Its routes go with it.
    routes = Step(node, ("ip", "-batch", "-"), network.routes(node, rail))
    return Effect((_link(node, f"eth{rail}", "down"),), (_link(node, f"eth{rail}", "up"), routes))


def _flap(fault: Fault, network: Network) -> Effect:
    port = _port(fault)
    states = " ".join(f"ip link set {port} {state}; sleep {fault.value:g};" for state in ("down", "up"))
    return Effect(heal=(_link(FABRIC, port, "up"),), loop=f"while :; do {states} done")


def _slow(inwards: bool) -> Callable[[Fault, Network], Effect]:
    def effect(fault: Fault, network: Network) -> Effect:
        # What a node receives is what the switch sends to it.
        place, device = (FABRIC, _port(fault)) if inwards else (fault.nodes[0], f"eth{fault.rails[0]}")
        rate, burst = f"{int(fault.value)}bps", str(max(_BURST, 2 * network.mtu))
        words = f"tc qdisc replace dev {device} root tbf rate {rate} burst {burst} latency {_LATENCY}"
        return Effect(
            (Step(place, tuple(words.split())),), (Step(place, ("tc", "qdisc", "del", "dev", device, "root")),)
        )

    return effect


def _percent(fault: Fault) -> str:
    return f"numgen random mod 1000 < {round(10 * fault.value)}"


def _mtu(fault: Fault, network: Network) -> Effect:
    ((node,), (rail,)) = fault.nodes, fault.rails
    device = f"eth{rail}"
    return Effect((_link(node, device, "mtu", f"{fault.value:g}"),), (_link(node, device, "mtu", str(network.mtu)),))


def _port_rule(match: Callable[[Fault], str], towards: str = "saddr") -> Callable[[Fault, Network], Effect]:
    return lambda fault, network: Effect(rules=(f"ip {towards} {_own(fault, network)} {match(fault)}",))


def _way_rule(match: Callable[[Fault], str]) -> Callable[[Fault, Network], Effect]:
    def effect(fault: Fault, network: Network) -> Effect:
        rails = fault.rails or tuple(network.rails)
        ends = [fault.rails] if fault.rails else [(a, b) for a in rails for b in rails]
        return Effect(
            rules=tuple(
                f"ip saddr {network.address(fault.nodes[0], a)} ip daddr {network.address(fault.nodes[1], b)} "
                f"{match(fault)}".rstrip()
                for a, b in ends
            )
        )

    return effect


def _rail_cut(fault: Fault, network: Network) -> Effect:
    bridge = f"br{fault.rails[0]}"
    return Effect((_link(FABRIC, bridge, "down"),), (_link(FABRIC, bridge, "up"),))


def _firewall(fault: Fault, network: Network) -> Effect:
    (node,) = fault.nodes
    interfaces = ", ".join(f'"eth{rail}"' for rail in network.rails)
    gone = "add table inet wall\ndelete table inet wall\n"
    rules = (
        "add table inet wall\nadd chain inet wall input { type filter hook input priority 0; policy accept; }\n"
        f"add rule inet wall input iifname {{ {interfaces} }} tcp flags & (syn|ack) == syn drop\n"
    )
    return Effect((Step(node, ("nft", "-f", "-"), gone + rules),), (Step(node, ("nft", "-f", "-"), gone),))


def _cut(fault: Fault, network: Network) -> Effect:
    (node,) = fault.nodes
    links = [(FABRIC, f"{node}r{rail}") for rail in network.rails] + [(CONSOLE, node)]
    return Effect(tuple(_link(*link, "down") for link in links), tuple(_link(*link, "up") for link in links))


def _signal(fault: Fault, name: str) -> Step:
    # To everything on the node but its first process, which holds the namespaces.
    return Step(fault.nodes[0], ("sh", "-c", f"kill -{name} -1 2>/dev/null || true"))


def _stop(fault: Fault, network: Network) -> Effect:
    return Effect((_signal(fault, "STOP"),), (_signal(fault, "CONT"),))


def _down(fault: Fault, network: Network) -> Effect:
    return Effect((_signal(fault, "KILL"),), (Step(fault.nodes[0], network.server(fault.nodes[0])),))


_EFFECTS: dict[tuple[str, str], Callable[[Fault, Network], Effect]] = {
    ("port", "pull"): _pull,
    ("port", "misplug"): _misplug,
    ("port", "down"): _interface_down,
    ("port", "flap"): _flap,
    ("port", "slow-in"): _slow(inwards=True),
    ("port", "slow-out"): _slow(inwards=False),
    ("port", "loss-in"): _port_rule(_percent, "daddr"),
    ("port", "loss-out"): _port_rule(_percent),
    ("port", "blackhole"): _port_rule(lambda fault: f"ip length > {fault.value:g}"),
    ("port", "mtu"): _mtu,
    ("way", "drop"): _way_rule(lambda fault: ""),
    ("way", "drop-tcp"): _way_rule(lambda fault: "ip protocol tcp"),
    ("way", "loss"): _way_rule(_percent),
    ("way", "blackhole"): _way_rule(lambda fault: f"ip length > {fault.value:g}"),
    ("rail", "cut"): _rail_cut,
    ("node", "crossed"): _crossed,
    ("node", "firewall"): _firewall,
    ("node", "cut"): _cut,
    ("node", "stop"): _stop,
    ("node", "down"): _down,
}


def missing() -> str | None:
    if os.getuid() != 0:
        return "only root makes network namespaces"
    for tool in _TOOLS:
        if path_of(tool) is None:
            return f"no {tool} on this machine"
    done = subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"namespaces cannot be made: {done.stderr.strip()[:100]}"


def path_of(tool: str) -> str | None:
    """Return the path of a command, of those of the administrator as well; None if it is not installed."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Holder:
    """A process that holds namespaces, and ends with the thread that made it."""

    def __init__(self, name: str) -> None:
        # The shell, which waits, collects orphans as the first process of a machine does.
        script = f"hostname {name} && mount -t sysfs sysfs /sys && echo up && while :; do sleep 3600; done"
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--mount-proc", "--fork"]
        self._process = subprocess.Popen(
            [*argv, "--kill-child=KILL", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # On its way out it complains of a signal mask.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = 0  #: The process whose namespaces they are, once `wait` has returned.

    def wait(self) -> None:
        """Wait until the namespaces are there.

        Raises:
            RuntimeError: They could not be made.
        """
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"up\n":
            raise RuntimeError("namespaces could not be made")
        pid = self._process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pid = int(child)

    def enter(self, argv: Iterable[str], *, only_net: bool = False) -> list[str]:
        into = ["--net"] if only_net else NAMESPACES
        return ["nsenter", "--target", str(self.pid), *into, "--", *argv]

    def run(self, *argv: str, text: str = "", only_net: bool = False) -> str:
        """Run a command inside and return what it printed.

        Raises:
            RuntimeError: It failed.
        """
        done = subprocess.run(
            self.enter(argv, only_net=only_net),
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def end(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(5)
