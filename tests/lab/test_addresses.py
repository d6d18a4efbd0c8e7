"""Faults of addresses, routes and networks on a few nodes: each is named first, and nothing else is blamed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import QUICK, Outcome, network_in, run

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

MESH = ("ping", "mtu", "udp", "tcp")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with network_in(tmp_path, 4, 2) as made:
        yield made


def check(found: Outcome, title: str, node: str, code: int = 1) -> dict[str, Any]:
    """See that one finding names the cause, that nothing else is bad, and that its command names a node."""
    assert found.titles == [title], found.printed
    assert found.code == code
    assert found.cells(*MESH, without=node) == [], "nodes without the fault are unharmed"
    (finding,) = found.saved["findings"]
    assert any(command.startswith("ssh ") and f" {node[-2:]} " in command for command in finding["next"]), finding[
        "next"
    ]
    made: dict[str, Any] = finding
    return made


def test_a_management_network_is_no_rail(tmp_path: Path) -> None:
    # By its name, eno1 is the first of the interfaces.
    with network_in(tmp_path, 3, 2, management="eno1") as network:
        healthy = run(network, tmp_path, "--probes", "ping,udp")
        ranks = run(network, tmp_path, "--probes", "p2p", "--layers", "p2p", *QUICK)
    assert (healthy.code, healthy.titles, healthy.cells(*MESH)) == (0, [], []), healthy.printed
    assert "tested networks: rail 0 10.1.0.0/24 (eth0), rail 1 10.2.0.0/24 (eth1)\n" in healthy.printed
    assert "not tested, as SSH uses it: 10.99.0.0/24 (eno1)" in healthy.printed
    pairs = [m for m in ranks.saved["measurements"] if m["layer"] == "p2p" and m["class"] != "same-node"]
    own = {f"{name}:{rail}": network.address(name, rail) for name in network.names for rail in network.rails}
    assert {(m["src"], m["src_addr"]) for m in pairs} == set(own.items()), ranks.printed
    assert {rail: sum(m["src"].endswith(rail) for m in pairs) for rail in (":0", ":1")} == {":0": 12, ":1": 12}


@pytest.mark.parametrize(
    "strict", [(), ("n2",), ("n0", "n1", "n2", "n3")], ids=["default", "on the node", "everywhere"]
)
def test_crossed_rails_are_named_whoever_answers_arp(network: Network, tmp_path: Path, strict: tuple[str, ...]) -> None:
    for name in strict:
        network.on(name, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1")
    network.plant("n2=crossed")
    found = run(network, tmp_path, "--probes", "ping,udp")
    title = "rails swapped on n2: eth0 is connected to rail 1, eth1 is connected to rail 0"
    finding = check(found, title, "n2")
    assert finding["subject"] == {"kind": "node", "name": "n2"}
    # By default everything passes, over the wrong interfaces.
    assert bool(found.cells(*MESH)) is bool(strict)
    network.heal("n2")
    # At once, although the others have learned who answered meanwhile.
    for rail in network.rails:
        network.on("n0", "ping", "-c1", "-W1", network.address("n2", rail))


def test_a_duplicate_address_is_named_first(network: Network, tmp_path: Path) -> None:
    lines = ("addr del 10.1.0.4/24 dev eth0", "addr add 10.1.0.2/24 dev eth0", "rule add from 10.1.0.2 table 100")
    network.on("n3", "ip", "-batch", "-", text="\n".join(lines) + "\n")
    found = run(network, tmp_path, "--probes", "ping,udp")
    finding = check(found, "n[1,3] have the same address 10.1.0.2: packets reach only one of them", "n1,n3")
    assert {"n1 eth0", "n3 eth0"} <= {line.partition(":")[0] for line in finding["evidence"]}


@pytest.mark.parametrize(("prefix", "code"), [(31, 1), (8, 0)])
def test_a_wrong_netmask_is_named_by_node_and_interface(
    network: Network, tmp_path: Path, prefix: int, code: int
) -> None:
    lines = ["addr del 10.1.0.2/24 dev eth0", f"addr add 10.1.0.2/{prefix} dev eth0", "route flush table 100"]
    lines += (
        ["route add 10.1.0.2/31 dev eth0 table 100"] if prefix == 31 else ["route add 10.0.0.0/8 dev eth0 table 100"]
    )
    network.on("n1", "ip", "-batch", "-", text="\n".join(lines) + "\n")
    found = run(network, tmp_path, "--probes", "ping,udp")
    title = f"n1 eth0: netmask /{prefix} on 10.1.0.2, /24 on 3 other nodes of this network"
    check(found, title, "n1", 1 if found.cells(*MESH) else code)
    assert bool(found.cells(*MESH)) or prefix != 31


def test_rp_filter_without_source_routing_is_one_finding_on_that_node(network: Network, tmp_path: Path) -> None:
    for rail in network.rails:
        network.on("n3", "ip", "rule", "del", "from", network.address("n3", rail), "table", str(100 + rail))
    network.on("n3", "sysctl", "-qw", *(f"net.ipv4.conf.{name}.rp_filter=1" for name in ("all", "eth0", "eth1")))
    found = run(network, tmp_path, "--probes", "ping,udp")
    title = (
        "n3 drops packets that arrive on an interface other than the one it answers through (rp_filter is 1 on"
        " eth0, eth1)"
    )
    finding = check(found, title, "n3")
    assert any("is on eth0, and answers to 10.2.0.1 leave through eth1" in line for line in finding["evidence"])
    assert "rp_filter" in finding["next"][0]


def test_a_node_that_answers_some_nodes_by_the_other_rail_is_named(network: Network, tmp_path: Path) -> None:
    for address in ("10.1.0.1", "10.1.0.2"):
        network.on("n2", "ip", "route", "add", f"{address}/32", "dev", "eth1", "table", "100")
    network.on("n2", "sysctl", "-qw", *(f"net.ipv4.conf.{name}.rp_filter=1" for name in ("all", "eth0", "eth1")))
    found = run(network, tmp_path, "--probes", "ping,udp")
    title = (
        "n2 drops packets that arrive on an interface other than the one it answers through (rp_filter is 1 on eth0)"
    )
    finding = check(found, title, "n2")
    assert any("answers to 10.1.0.1 leave through eth1" in line for line in finding["evidence"])
    assert "rp_filter" in finding["next"][0]


def test_a_node_with_ipv6_only_is_reported_as_such(network: Network, tmp_path: Path) -> None:
    for rail in network.rails:
        lines = [
            f"addr del {network.address('n3', rail)}/24 dev eth{rail}",
            f"addr add fd00:{rail}::4/64 dev eth{rail} nodad",
        ]
        network.on("n3", "ip", "-batch", "-", text="\n".join(lines) + "\n")
    found = run(network, tmp_path, "--probes", "ping,udp,p2p", "--layers", "p2p", *QUICK[2:])
    assert found.titles[0] == "only IPv6 addresses on the data interfaces of n3, IPv4 on the other nodes", found.printed
    assert found.code == 1
    assert found.cells(*MESH) == []
    assert all("failed" != m["verdict"] != "timeout" for m in found.cells("p2p", without="n3"))
    shown = [line for line in found.printed.splitlines() if "next: " in line]
    assert shown
    assert not any("10." in line and "fd00:" in line for line in shown), "no command mixes address families"


def test_a_path_mtu_of_the_past_is_not_blamed_on_the_rail(network: Network, tmp_path: Path) -> None:
    network.fabric("ip", "link", "set", "br1", "mtu", "1500")
    for name in ("n1", "n2"):
        command = f"ping -M do -s 8972 -c 1 -W 1 -I 10.1.0.1 {network.address(name, 1)} || true"
        assert "mtu" in network.on("n0", "sh", "-c", f"{command} 2>&1")
    network.fabric("ip", "link", "set", "br1", "mtu", "9000")
    found = run(network, tmp_path, "--probes", "ping,udp")
    finding = check(found, "outdated path MTU 1500 in the kernel's cache of n0: the paths pass more", "n0")
    assert finding["next"][-1].endswith("n0 sudo ip route flush cache")
    assert "2 of 48 address pairs" in finding["evidence"][0]
