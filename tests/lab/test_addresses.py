"""Faults of addresses, routes and networks on a few nodes: each is named first, and nothing else is blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.field import QUICK, run
from tests.lab.network import Network, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

MESH = ("ping", "mtu", "udp", "tcp")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path, 4, 2) as made:
        yield made


@pytest.mark.parametrize("interface", ["eno1", "mgmt0"])
def test_a_management_network_is_no_rail(tmp_path: Path, interface: str) -> None:
    with Network(tmp_path, 3, 2, management=interface) as network:
        healthy = run(network, tmp_path, "--probes", "ping,udp")
        assert (healthy.code, healthy.titles, healthy.cells(*MESH)) == (0, [], []), healthy.printed
        assert "tested networks: rail 0 10.1.0.0/24 (eth0), rail 1 10.2.0.0/24 (eth1)\n" in healthy.printed
        assert f"not tested, as SSH uses it: 10.99.0.0/24 ({interface})" in healthy.printed
        if interface == "eno1":
            ranks = run(network, tmp_path, "--probes", "p2p", *QUICK)
            pairs = [m for m in ranks.saved["measurements"] if m["layer"] == "p2p" and m["class"] != "same-node"]
            own = {f"{name}:{rail}": network.address(name, rail) for name in network.names for rail in network.rails}
            assert {(m["src"], m["src_addr"]) for m in pairs} == set(own.items()), ranks.printed
            assert {m["class"] for m in pairs} == {"same-rail", "cross-rail"}
