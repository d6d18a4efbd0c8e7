"""Faults of single NICs and their links, end to end: the first finding names them, and no other finding appears."""

from __future__ import annotations

import re

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import Outcome, run

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

MESH = ("--probes", "ping,udp")
LAYERS = ("ping", "mtu", "udp", "tcp")


def blamed(found: Outcome) -> list[tuple[str, str]]:
    return [(one["subject"]["kind"], one["subject"]["name"]) for one in found.saved["findings"]]


#: Nodes and rails.
NETWORK = (4, 2)


def test_an_interface_that_is_switched_off(network: Network) -> None:
    """An interface of rail 0; one of rail 1 is in `test_faults`."""
    network.plant("n2.eth0=down")
    found = run(network, network.folder, *MESH)
    assert found.titles == ["n2 rail 0 (eth0 10.1.0.3) is down"], found.printed
    assert blamed(found) == [("nic", "n2 eth0")]
    evidence = found.saved["findings"][0]["evidence"]
    assert "it is switched off: sudo ip link set eth0 up" in evidence
    assert "n2: data addresses: 1 (eth0 down), not 2 as on 3 others" in evidence
    assert found.cells(*LAYERS, without="n2") == []
    assert found.code == 1


def test_a_link_that_flaps(network: Network) -> None:
    network.plant("n1.eth1=flap:0.8")
    found = run(network, network.folder, *MESH)
    title, *others = found.titles
    assert title.startswith("n1 rail 1 (eth1 10.2.0.2): the link flaps (carrier changed "), found.printed
    assert others == []
    assert blamed(found) == [("nic", "n1 eth1")]
    assert found.cells(*LAYERS, without="n1") == []


def test_packets_that_are_lost_in_one_direction_of_a_nic(network: Network) -> None:
    network.plant("n1.eth0=loss-out:1%", "n3.eth1=loss-out:5%")
    found = run(network, network.folder, *MESH)
    for name, words in (("n1", r"n1 rail 0 \(eth0 10\.1\.0\.2\)"), ("n3", r"n3 rail 1 \(eth1 10\.2\.0\.4\)")):
        (title,) = (one for one in found.titles if one.startswith(name))
        assert re.fullmatch(words + r", outgoing: [\d to]+ % of packets are lost", title), found.printed
    assert sorted(blamed(found)) == [("nic", "n1 eth0"), ("nic", "n3 eth1")]
    assert found.cells(*LAYERS, without="n1,n3") == []
