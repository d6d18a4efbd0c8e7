import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.network import routes
from fabtui_node.system import netlink, run_command


def test_neighbours_whose_mac_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(address: str, state: int, index: int = 2, mac: bytes | None = b"\xa2\x02\xf5\xb1\x48\x90") -> Any:
        data = {1: socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)}
        return struct.pack("=BxxxiHBB", 2, index, state, 0, 1), data if mac is None else {**data, 2: mac}

    entries = [entry("10.1.0.3", 0x02), entry("fd00::1", 0x04), entry("fe80::1", 0x04), entry("10.1.0.9", 0x80)]
    entries += [entry("10.1.0.4", 0x20), entry("224.0.0.1", 0x40), entry("10.1.0.5", 0x02, mac=None)]
    tables = {netlink.LINKS: [(struct.pack("=BxHiII", 0, 1, 2, 0, 0), {3: b"eth0\0"})], netlink.NEIGHBOURS: entries}
    monkeypatch.setattr(netlink, "dump", lambda kind: iter(tables[kind]))
    mac = {"nic": "eth0", "mac": "a2:02:f5:b1:48:90"}
    assert routes.neighbours() == [
        {"address": "10.1.0.3", **mac, "state": "reachable"},
        {"address": "fd00::1", **mac, "state": "stale"},
        {"address": "10.1.0.9", **mac, "state": "permanent"},
    ]


def test_a_kernel_without_these_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: int) -> Any:
        raise OSError(93, "not supported")

    monkeypatch.setattr(netlink, "dump", refused)
    assert routes.neighbours() == []


@pytest.mark.parametrize(
    ("text", "dev", "via"),
    [
        ('[{"dst":"10.1.0.1","from":"10.2.0.4","gateway":"10.2.0.254","dev":"eth1"}]', "eth1", "10.2.0.254"),
        ('[{"dev":"eth1"}]', "eth1", None),
        ('[{"dev":3}]', None, None),
        ("[3]", None, None),
        ("[]", None, None),
        ("RTNETLINK answers: Network is unreachable", None, None),
    ],
)
def test_the_interface_and_gateway_of_a_route(text: str, dev: str | None, via: str | None) -> None:
    assert routes.parse_route(text) == {"dev": dev, "via": via}


def test_filters_as_they_take_effect(tmp_path: Path) -> None:
    for nic, value in {"all": 1, "default": 1, "lo": 0, "eth0": 0, "eth1": 2}.items():
        folder = tmp_path / "sys/net/ipv4/conf" / nic
        folder.mkdir(parents=True)
        (folder / "rp_filter").write_text(f"{value}\n")
    found = routes.run({}, None, 5.0, str(tmp_path))
    assert found == {
        "routes": [],
        "neighbours": [],
        "filters": {"eth0": {"rp_filter": 1, "arp_ignore": 0}, "eth1": {"rp_filter": 2, "arp_ignore": 0}},
    }


@pytest.mark.skipif(run_command.find("ip") is None, reason="no iproute2 on this machine")
def test_a_route_of_this_machine_and_one_that_cannot_be() -> None:
    (here, none) = routes.run({"pairs": [["127.0.0.1", "127.0.0.2"], ["10.1.0.1", "fd00::1"]]}, None, 5.0)["routes"]
    assert (here["src"], here["dst"], here["dev"], here["error"]) == ("127.0.0.1", "127.0.0.2", "lo", None)
    assert none["dev"] is None
    assert none["error"]
