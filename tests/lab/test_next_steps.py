"""The first next command of a finding shows the fault: its output differs from that on a healthy network."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import QUICK, run
from tests.lab.test_link_layer import old_entry, same_mac

pytestmark = [pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"), pytest.mark.planted]

PINGS, MESH = ("--probes", "ping"), ("--probes", "ping,udp")
PAIRS = ("--probes", "p2p", "--layers", "p2p", *QUICK, "--bytes", "1M")
#: Relay of frames between two interfaces, each after up to this time (s), so that some overtake others.
RELAY = """
import heapq, random, select, socket, sys, time
ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2)]
for end, name in zip(ends, sys.argv[1:]):
    end.bind((name, 0))
waiting = []
while True:
    left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
    for end in select.select(ends, [], [], left)[0]:
        frame, about = end.recvfrom(65536)
        if about[2] != socket.PACKET_OUTGOING:
            other = ends[1 - ends.index(end)]
            heapq.heappush(waiting, (time.monotonic() + random.uniform(0.02, 0.2), id(frame), other, frame))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, other, frame = heapq.heappop(waiting)
        other.send(frame)
"""


class Fault(NamedTuple):
    """A fault, the finding about it, and what shows it."""

    plant: (
        str | Callable[[Network], Callable[[], object]]
    )  #: As in ``--lab-fault``, or a function that returns its end.
    title: str  #: Begin of the title of the finding.
    shown: str  #: Pattern in the output of its first command.
    other: str = ""  #: Node to compare with, where the command counts since the boot.


def delay(network: Network) -> Callable[[], object]:
    network.fabric("ip", "link", "add", "late0", "mtu", "9000", "type", "veth", "peer", "name", "late1", "mtu", "9000")
    network.fabric(
        "ip", "-batch", "-", text="link set late0 master br1 up\nlink set late1 up\nlink set n2r1 nomaster\n"
    )
    relay = subprocess.Popen(network.in_fabric([sys.executable, "-c", RELAY, "late1", "n2r1"]))

    def end() -> None:
        relay.kill()
        relay.wait()
        network.fabric("ip", "-batch", "-", text="link set n2r1 master br1\nlink del late0\n")

    return end


#: Faults of different NICs are there at once; each is found.
FAULTS: dict[str, tuple[tuple[str, ...], list[Fault]]] = {
    "mesh": (
        MESH,
        [
            Fault("n3.eth0=misplug", "n3 rail 0 (eth0 10.1.0.4) is cut off", "100% packet loss"),
            Fault("n2.eth1=loss-in:30%", "n2 rail 1 (eth1 10.2.0.3), incoming: ", r" [1-7]\d(\.\d+)?% packet loss"),
            Fault("n1.eth0=blackhole:1500", "MTU black hole for traffic from n1 rail 0", "100% packet loss"),
            Fault("n1.eth1=flap:0.8", "n1 rail 1 (eth1 10.2.0.2): the link flaps", r"transns\s+(\d+\s+){4}\d\d", "n0"),
        ],
    ),
    "neighbours": (
        MESH,
        [
            Fault(lambda n: same_mac(n)[1], "n1 eth0 and n3 eth0 have the same MAC", "", "n2"),
            Fault(lambda n: old_entry(n)[1], "n0 has a permanent neighbour entry", "PERMANENT"),
            Fault("n2.eth1>n3.eth1=drop", "one-way loss: n2 > n3 on rail 1", "100% packet loss"),
        ],
    ),
    "pings": (
        PINGS,
        [
            Fault(delay, "n2 rail 1 (eth1 10.2.0.3): round trip up to ", r"rtt [^=]*= [\d.]+/\d{3}\."),
            Fault("n3.eth0=down", "n3 rail 0 (eth0 10.1.0.4) is down", "state DOWN"),
        ],
    ),
    # On busy cores the other direction may be slow as well, and less than the limit arrives.
    "receives": (PAIRS, [Fault("n1.eth1=slow-in:12MB", "n1:1 is slow with ", r" ([2-9]|1\d)(\.\d)?M\b")]),
    "sends": (PAIRS, [Fault("n2.eth0=slow-out:12MB", "n2:0 is slow with ", "qdisc tbf")]),
}


#: Nodes and rails.
NETWORK = (4, 2)


@contextlib.contextmanager
def planted(network: Network, faults: Iterable[Fault]) -> Iterator[None]:
    with contextlib.ExitStack() as ends:
        ends.callback(network.heal)
        for fault in faults:
            if isinstance(fault.plant, str):
                network.plant(fault.plant)
            else:
                ends.callback(fault.plant(network))
        yield


def output(network: Network, command: str) -> str:
    argv = network.controller(
        ["sh", "-c", command.replace("fabtui run", f"{sys.executable} -m fabtui run --no-record")]
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout + done.stderr


def outputs(network: Network, commands: list[str]) -> list[str]:
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda command: output(network, command) if command else "", commands))


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_command_shows_the_fault(network: Network, tmp_path: Path, name: str) -> None:
    asked, faults = FAULTS[name]
    commands: list[str] = []
    with planted(network, faults):
        found = run(network, tmp_path, *asked)
        for fault in faults:
            mine = [one for one in found.saved["findings"] if one["title"].startswith(fault.title)]
            assert mine, (fault.title, found.printed)
            commands.append(mine[0]["next"][0])
        # On the same node later, or on a second node now.
        beside = [re.sub(r" n[13] ", f" {fault.other} ", one) for fault, one in zip(faults, commands, strict=True)]
        bad = outputs(network, commands)
        well = outputs(network, [one if fault.other else "" for fault, one in zip(faults, beside, strict=True)])
    for node in network.names:
        network.on(node, "ip", "neigh", "flush", "all")
    later = outputs(network, ["" if there else command for command, there in zip(commands, well, strict=True)])
    for fault, command, here, there, after in zip(faults, commands, bad, well, later, strict=True):
        healthy = there or after
        assert re.search(fault.shown, here), (command, here)
        assert not (fault.shown and re.search(fault.shown, healthy)), (command, healthy)
        assert here != healthy
