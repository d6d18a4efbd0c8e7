"""A preflight over real SSH servers in namespaces of their own, with differences made on single nodes."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from fabtui.lab.network import Network, missing
from tests.forked import fabtui

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

NODES = 4
CLOSED = """
table inet filter {
  chain input {
    type filter hook input priority filter; policy accept;
    ct state established,related accept
    tcp dport 22 accept
    reject
  }
}
"""


#: Nodes and rails.
NETWORK = (NODES, 2)


def preflight(network: Network, *args: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON, and what was printed."""
    path = network.folder / "found.json"
    words = ["--nodes", f"n[0-{NODES - 1}]", "--no-record", "--json", str(path)]
    done = fabtui("preflight", *words, "--ssh-config", str(network.ssh_config), *args)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(path.read_text()), done.stdout


def serious(found: dict[str, Any]) -> dict[str, list[str]]:
    return {one["topic"]: one["nodes"] for one in found["findings"] if one["severity"] != "note"}


def test_equal_nodes_differ_in_nothing_and_then_in_what_was_changed(network: Network) -> None:
    code, found, printed = preflight(network)
    assert serious(found) == {}, printed
    assert code == 0, printed
    # They are namespaces of this machine, and are reported as such.
    assert [one["nodes"] for one in found["findings"] if one["topic"] == "machine"] == [network.names]
    before = network.folder / "before.json"
    shutil.copy(network.folder / "found.json", before)

    network.on("n1", "ip", "link", "set", "eth1", "mtu", "1500")
    network.on("n2", "ip", "addr", "add", f"{network.address('n3', 0)}/24", "dev", "eth1")
    network.on("n3", "nft", "-f", "-", text=CLOSED)
    config = network.ssh_config.read_text()
    lines = config.replace(
        "Host n2\n ProxyCommand nsenter", "Host n2\n ProxyCommand prlimit --memlock=65536:65536 nsenter"
    )
    assert lines != config
    network.ssh_config.write_text(lines)

    code, found, printed = preflight(network, "--baseline", str(before))
    assert code == 1
    facts = {node["name"]: node["facts"] for node in found["nodes"]}
    assert facts["n2"]["memlock"] == 65536
    assert facts["n1"]["mtu"] == "9000, 1500 on eth1"
    assert facts["n3"]["firewall"] == "drop"
    assert serious(found) == {
        "address": ["n2", "n3"],
        "addresses_number": ["n2"],
        "memlock": ["n2"],
        "mtu": ["n1"],
        "firewall": ["n3"],
    }, printed
    for line in ("n1  MTU: 9000 -> 9000, 1500 on eth1", "n2  memlock: ", "n3  firewall for input: accept -> drop"):
        assert line in printed


def test_two_nodes_that_nccl_takes_for_one(network: Network) -> None:
    network.on("n1", "hostname", "n0")
    try:
        code, found, printed = preflight(network)
    finally:
        network.on("n1", "hostname", "n1")
    assert code == 1
    assert serious(found)["machine"] == ["n0", "n1"], printed
