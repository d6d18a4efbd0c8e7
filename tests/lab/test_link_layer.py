"""Faults of MAC addresses, neighbours and switches between nodes of a network: the first finding is the fault."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.lab.network import Holder, Network, missing
from tests.forked import fabtui
from tests.lab.field import QUICK, run
from tests.wire.sshd import login_variables

pytestmark = [pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}"), pytest.mark.planted]

MESH = ("--probes", "ping,udp")
STRANGE = "02:ee:00:00:00:99"
#: Words of findings that name a consequence of these faults as the cause.
WRONG = ("blocks incoming", "one-way", "black hole", "ICMP is dropped", "fails on all nodes", "no traffic")


#: Nodes and rails.
NETWORK = (4, 2)


def preflight(network: Network, folder: Path) -> tuple[int, list[str]]:
    """Return the exit code of ``fabtui preflight``, and the titles of its findings."""
    path = folder / "preflight.json"
    words = ["preflight", "--nodes", ",".join(network.names), "--no-record", "--ssh-config", str(network.ssh_config)]
    done = fabtui(*words, "--remote-python", sys.executable, "--json", str(path))
    assert path.exists(), done.stdout + done.stderr
    saved: dict[str, Any] = json.loads(path.read_text())
    return done.returncode, [one["title"] for one in saved["findings"] if one["severity"] != "note"]


def mac_of(network: Network, node: str, nic: str) -> str:
    return network.on(node, "cat", f"/sys/class/net/{nic}/address").strip()


def same_mac(network: Network) -> tuple[str, Callable[[], object]]:
    mac, own = mac_of(network, "n1", "eth0"), mac_of(network, "n3", "eth0")

    def give(text: str) -> None:
        network.on("n3", "ip", "link", "set", "eth0", "address", text)
        for name in network.names:
            network.on(name, "ip", "neigh", "flush", "all")

    give(mac)
    return f"n1 eth0 and n3 eth0 have the same MAC {mac}: frames reach only one of them", lambda: give(own)


def old_entry(network: Network) -> tuple[str, Callable[[], object]]:
    network.on("n0", "ip", "neigh", "replace", "10.2.0.3", "lladdr", STRANGE, "dev", "eth1", "nud", "permanent")
    own = mac_of(network, "n2", "eth1")
    title = f"n0 has a permanent neighbour entry with an old MAC for n2 (10.2.0.3 is {own}, not {STRANGE})"
    return title, lambda: network.on("n0", "ip", "neigh", "del", "10.2.0.3", "dev", "eth1")


@pytest.mark.parametrize("plant", [same_mac, old_entry])
def test_a_fault_of_macs_is_named_in_the_preflight_and_first_in_a_run(
    network: Network, tmp_path: Path, plant: Callable[[Network], tuple[str, Callable[[], object]]]
) -> None:
    title, heal = plant(network)
    try:
        early = preflight(network, tmp_path)
        found = run(network, tmp_path, *MESH)
    finally:
        heal()
    assert early == (1, [title])
    assert found.titles == [title], found.printed
    assert not any(word in found.printed for word in WRONG), found.printed
    assert "ip neigh show" in found.printed or "ip -br link" in found.printed


def test_a_machine_outside_answers_for_an_address(network: Network, tmp_path: Path) -> None:
    own = mac_of(network, "n1", "eth1")
    # The node answers no ARP request and sends none, so that the other machine always wins.
    network.on("n1", "sysctl", "-qw", "net.ipv4.conf.eth1.arp_ignore=8")
    for name in ("n0", "n2", "n3"):
        known = ("lladdr", mac_of(network, name, "eth1"), "dev", "eth1", "nud", "permanent")
        network.on("n1", "ip", "neigh", "replace", network.address(name, 1), *known)
        network.on(name, "ip", "neigh", "flush", "all")
    stranger = Holder("stranger")
    try:
        stranger.wait()
        far = f"peer name eth1 mtu 9000 address {STRANGE} netns {stranger.pid}"
        lines = f"link add stray mtu 9000 master br1 type veth {far}\nlink set stray up\n"
        network.fabric("ip", "-batch", "-", text=lines)
        lines = "addr add 10.2.0.2/24 dev eth1\nlink set eth1 up\n"
        stranger.run("ip", "-batch", "-", text=lines, only_net=True)
        found = run(network, tmp_path, *MESH)
    finally:
        stranger.end()
        network.on("n1", "sysctl", "-qw", "net.ipv4.conf.eth1.arp_ignore=0")
        for name in ("n0", "n2", "n3"):
            network.on("n1", "ip", "neigh", "del", network.address(name, 1), "dev", "eth1")
            network.on(name, "ip", "neigh", "flush", "all")
    title = f"another machine answers for 10.2.0.2: n[0,2-3] have its MAC as {STRANGE}, n1's eth1 has {own}"
    assert found.titles == [title], found.printed


@pytest.mark.parametrize(
    ("match", "what"),
    [("ip length > 1500", "9000-byte packets do not pass"), ("", "nothing passes")],
    ids=["jumbo", "everything"],
)
def test_a_path_between_leaf_switches(network: Network, tmp_path: Path, match: str, what: str) -> None:
    halves = ["{ 10.1.0.1, 10.1.0.2 }", "{ 10.1.0.3, 10.1.0.4 }"]
    for here, there in (halves, halves[::-1]):
        network.rule(f"ip saddr {here} ip daddr {there} {match}")
    found = run(network, tmp_path, *MESH)
    assert found.titles == [f"{what} between n[0-1] and n[2-3] on rail 0"], found.printed
    assert found.saved["findings"][0]["subject"] == {"kind": "leaf-cut", "name": "n[0-1] - n[2-3] on rail 0"}


def test_a_switch_port_that_passes_nothing_is_not_blamed_on_the_nic(network: Network, tmp_path: Path) -> None:
    network.plant("n2.eth1=misplug")
    found = run(network, tmp_path, "--probes", "ping,udp,p2p", "--layers", "p2p", *QUICK, "--timeout", "5")
    first = found.saved["findings"][0]
    # Addresses and ranks show the same fault; either may be the title, and the other is its evidence.
    named = "n2:1 reaches no other node: check the switch port of eth1"
    assert found.titles[0] in (named, "n2 rail 1 (eth1 10.2.0.3) is cut off"), found.printed
    assert named in (found.titles[0], *first["evidence"]), found.printed
    assert "n2 reports eth1 up: the fault lies beyond it" in first["evidence"]
    assert "ping -c3 -I 10.2.0.3" in first["next"][0]
    assert "check its NIC" not in found.printed.partition("not ok:")[0]


def test_a_duplicate_address_drains_no_node_alone(network: Network, tmp_path: Path) -> None:
    lines = ("addr del 10.1.0.4/24 dev eth0", "addr add 10.1.0.2/24 dev eth0", "rule add from 10.1.0.2 table 100")
    back = ("addr del 10.1.0.2/24 dev eth0", "addr add 10.1.0.4/24 dev eth0", "rule del from 10.1.0.2 table 100")
    network.on("n3", "ip", "-batch", "-", text="\n".join(lines) + "\n")
    try:
        found = run(network, tmp_path, "--probes", "ping,udp,p2p", "--layers", "p2p", *QUICK, "--timeout", "5")
    finally:
        network.on("n3", "ip", "-batch", "-", text="\n".join((*back, network.routes("n3", 0))) + "\n")
    assert found.titles[0] == "n[1,3] have the same address 10.1.0.2: packets reach only one of them", found.printed
    assert not any("n1:0" in text or "n3:0" in text or " - n3:" in text for text in found.titles[1:]), found.printed
    assert "to drain" not in found.printed
    # Busy cores may cost other nodes their place; neither of these two has one.
    assert {"n1", "n3"}.isdisjoint(found.saved["healthy"]["nodes"]), found.printed


#: Prints what switches announce: each rail has one, but for one cable.
_LLDPCTL = """#!/bin/sh
one() {
    printf '{"%s": {"via": "LLDP", "chassis": {"%s": {"id": {"type": "local", "value": "%s"},' "$1" "$2" "$2"
    printf '"capability": {"type": "Bridge", "enabled": true}}}, "port": {"id": {"type": "ifname", "value": "swp1"}}}}'
}
second=leaf1
[ "$(hostname)" = n3 ] && second=leaf0
printf '{"lldp": {"interface": [%s, %s]}}' "$(one eth0 leaf0)" "$(one eth1 $second)"
"""


def test_switches_that_announce_themselves_show_a_wrong_cable(tmp_path: Path) -> None:
    tool = tmp_path / "bin/lldpctl"
    tool.parent.mkdir()
    tool.write_text(_LLDPCTL)
    tool.chmod(0o755)
    path = f"{tool.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with Network(tmp_path, 4, 2, variables={**login_variables(tmp_path), "PATH": path}) as network:
        code, titles = preflight(network, tmp_path)
    assert "n3 eth1 (rail 1) is connected to leaf0 swp1, rail 1 of 3 other nodes to leaf1" in titles
    assert code == 1
