"""Counters that grow on one node of a network name that node, with the command that prints them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import QUICK, network_in, run

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"),
    pytest.mark.slow,
    pytest.mark.planted,
]

PAIRS = ("--layers", "p2p", *QUICK, "--bytes", "1M", "--sizes", "64K")
#: Switches checksums, and what needs them, of an interface on or off: they are left to the receiver otherwise.
OFFLOAD = """
import array, fcntl, socket, struct, sys
for command in (0x1F, 0x24, 0x17):
    data = array.array("B", struct.pack("=II", command, int(sys.argv[2])))
    request = struct.pack("16sP16x", sys.argv[1].encode(), data.buffer_info()[0])
    fcntl.ioctl(socket.socket(), 0x8946, request)
"""
WRONG = """
add table inet wrong
add chain inet wrong out { type filter hook postrouting priority 300; }
add rule inet wrong out oifname eth1 meta l4proto tcp tcp checksum set 0x1234
add rule inet wrong out oifname eth1 meta l4proto udp udp checksum set 0x1234
"""
#: Receives datagrams into a buffer that it does not read, and sends them.
RECEIVE = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
s.bind(("10.1.0.2", 5998))
print("ready", flush=True)
time.sleep(600)
"""
SEND = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    s.sendto(bytes(500), ("10.1.0.2", 5998))
    time.sleep(0.005)
"""


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("counters"), 4, 2) as network:
        yield network


def test_checksums_that_break_behind_one_port_are_one_finding_about_their_sender(
    network: Network, tmp_path: Path
) -> None:
    network.on("n2", sys.executable, "-c", OFFLOAD, "eth1", "0")
    network.on("n2", "nft", "-f", "-", text=WRONG)
    found = run(network, tmp_path, *PAIRS)
    assert found.code == 1, found.printed
    first = found.saved["findings"][0]
    assert (first["id"], first["nodes"]) == ("FT161", ["n2"]), found.printed
    assert first["title"].startswith("n2 sends packets with wrong checksums: "), found.printed
    assert " or more on n[0-1,3], 0 there during ping" in first["title"]
    assert [one["id"] for one in found.saved["findings"] if one["severity"] == "bad"] == ["FT161"], found.printed


def test_a_receive_buffer_that_overflows_is_a_warning_about_its_node(network: Network, tmp_path: Path) -> None:
    started = []
    try:
        for name, program in (("n1", RECEIVE), ("n3", SEND)):
            words = network.holder(name).enter([sys.executable, "-c", program])
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE if name == "n1" else None))
            if name == "n1":
                assert started[0].stdout is not None
                assert started[0].stdout.readline()
        found = run(network, tmp_path, *PAIRS)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert found.code == 0, found.printed
    (one,) = [one for one in found.saved["findings"] if one["id"].startswith("FT16")]
    assert (one["id"], one["severity"], one["nodes"]) == ("FT163", "warn", ["n1"])
    assert one["title"].startswith("n1: out of buffers: UdpRcvbufErrors "), found.printed
    assert one["next"][0].endswith("n1 nstat -asz UdpRcvbufErrors")
    assert "UdpRcvbufErrors" in network.on("n1", "nstat", "-asz", "UdpRcvbufErrors")
