"""Four nodes on a simulated fabric with the real tools: what is wrong with it shows in preflight and on the pairs."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.importers.catalogue import formats
from fabtui.lab.network import Network
from fabtui_node.parsers.base import Reading
from tests import forked
from tests.lab.field import network_in
from tests.lab.simulated import Fabric, missing, topology

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no simulated fabric: {missing()}")

DEADLINE = 30.0
#: One link of one lane, one cable to the spine at half of its speed.
PLAN = topology({"leaf1": ["n0", "n1"], "leaf2": ["n2", "n3"]}, narrow="n2", slow="leaf2")
NARROW = "link below what both ends can do: width 1X of 4X, 50 Gb/s, to leaf2 port 1"
SLOW = "link below what both ends can do: 25.78125 Gb/s a lane of 53.125, 100 Gb/s"
DOWN = "Down, physical state Polling: no signal from the other end (cable, module, switch port)"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("fabric"), 4, 1) as made:
        yield made


@pytest.fixture(scope="module")
def fabric(network: Network) -> Iterator[Fabric]:
    with Fabric(network, PLAN) as made:
        yield made


def ssh(network: Network, node: str, *command: str) -> str:
    argv = ["ssh", "-F", str(network.ssh_config), node, "--", *command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, check=False)
    return done.stdout + done.stderr


def read(network: Network, node: str, *command: str) -> Reading:
    text = ssh(network, node, *command)
    reading = formats()[command[0]].parse(text)
    assert reading.unknown == [], text
    return reading


def fabtui(network: Network, command: str, *words: str) -> tuple[int, str]:
    options = ("--nodes", "n[0-3]", "--ssh-config", str(network.ssh_config), "--no-record")
    done = forked.fabtui(command, *options, *words, timeout=180)
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def findings(network: Network, folder: Path) -> list[dict[str, Any]]:
    path = folder / "preflight.json"
    fabtui(network, "preflight", "--json", str(path))
    found: list[dict[str, Any]] = json.loads(path.read_text())["findings"]
    return [one for one in found if one["topic"] in ("ibstat", "rdma", "ibfabric")]


def test_the_real_tools_are_understood(network: Network, fabric: Fabric) -> None:
    (ca,) = read(network, "n0", "ibstat").values["cas"]
    assert (ca["ca"], ca["ports"][0]["state"], ca["ports"][0]["link_layer"]) == ("mlx5_0", "Active", "InfiniBand")
    rows = read(network, "n0", "ibnetdiscover", "-p").values["links"]
    whole = read(network, "n0", "ibnetdiscover").values
    cables = {(row["name"], row["port"]): row["peer"]["name"] for row in rows if row["peer"]}
    assert cables == {(link["name"], link["port"]): link["peer"]["name"] for link in whole["links"]}
    assert (cables["n2 mlx5_0", 1], cables["n1 mlx5_0", 1], len(cables)) == ("leaf2", "leaf1", 18)
    for words in (("iblinkinfo", "-l"), ("iblinkinfo",)):
        links = read(network, "n0", *words).values["links"]
        below = {(link["name"], link["port"]): link["below"] for link in links if link["below"]}
        assert below == {
            ("n2 mlx5_0", 1): ["width"],
            ("leaf2", 1): ["width"],
            ("leaf2", 16): ["speed"],
            ("spine1", 4): ["speed"],
        }
    (block,) = read(network, "n0", "perfquery").values["blocks"]
    assert (block["port"], block["counters"]["SymbolErrorCounter"]) == (1, 0)
    assert read(network, "n0", "ibqueryerrors").values["complete"]
    assert read(network, "n0", "sminfo").values["sm"]["state"] == "MASTER"
    names = {record["fields"]["NodeDescription"] for record in read(network, "n0", "saquery").values["records"]}
    # The simulator hands out the first record of a table alone.
    assert names <= {"leaf1", "leaf2", "spine1", "mgmt mlx5_0", *(f"{node} mlx5_0" for node in network.names)}
    assert names


def test_what_is_always_wrong(network: Network, fabric: Fabric, tmp_path: Path) -> None:
    found = {one["title"]: one["nodes"] for one in findings(network, tmp_path)}
    assert found[f"mlx5_0/1: {NARROW}"] == ["n2"]
    (slow,) = (text for text in found if text.startswith(("leaf2 port 16", "spine1 port 4")))
    assert SLOW in slow
    assert not any("no subnet manager" in text for text in found)
    assert not any(set(nodes) & {"n0", "n1", "n3"} for text, nodes in found.items() if text.startswith("mlx5_0/1"))


def test_a_pulled_cable_and_errors(network: Network, fabric: Fabric, tmp_path: Path) -> None:
    fabric.send_command('Unlink "n1 mlx5_0"[1]')
    fabric.send_command('PerformanceSet "leaf2"[2] PortCounters.SymbolErrorCounter=1742')
    fabric.send_command('PerformanceSet "n3 mlx5_0"[1] PortCounters.PortRcvErrors=65535')
    end = time.monotonic() + DEADLINE
    while read(network, "n1", "ibstat").values["cas"][0]["ports"][0]["state"] != "Down":
        assert time.monotonic() < end
        time.sleep(0.1)
    errors = read(network, "n0", "ibqueryerrors").values
    bad = {(port["node"], port["port"]): port["counters"] for port in errors["ports"] if port["port"] != "ALL"}
    assert bad["leaf2", 2]["SymbolErrorCounter"] == 1742
    assert bad["n3 mlx5_0", 1]["PortRcvErrors"] == 65535

    found = findings(network, tmp_path)
    assert [one["nodes"] for one in found if one["title"] == f"mlx5_0/1: {DOWN}" and one["severity"] == "bad"] == [
        ["n1"]
    ]
    of_n3 = json.dumps([one for one in found if "n3" in one["nodes"]])
    assert "symbol_error 1742, at leaf2 port 2" in of_n3
    assert "port_rcv_errors 65535 or more (it is at its limit)" in of_n3

    path = tmp_path / "run.json"
    probes = "ibstat,rdma,ibfabric,p2p"
    light = ("--bytes", "1M", "--iters", "5", "--remote-python", sys.executable)
    code, printed = fabtui(network, "run", "--probes", probes, *light, "--json", str(path))
    # On a busy machine a pair of CPU ranks may well be slow.
    assert code in (0, 1), printed
    assert f"n1 mlx5_0/1: {DOWN}" in printed
    pairs = {
        (m["src"][:2], m["dst"][:2]): (m["class"], " ".join(m.get("notes", [])))
        for m in json.loads(path.read_text())["measurements"]
        if m["layer"] == "p2p"
    }
    assert len(pairs) == 12
    for (src, dst), (kind, notes) in pairs.items():
        ends = {src, dst}
        assert (DOWN in notes) == ("n1" in ends)
        assert (NARROW in notes) == ("n2" in ends)
        assert ("symbol_error 1742" in notes) == ("n3" in ends)
        # Which leaf the pulled one was connected to is no longer known.
        across = "n0" in ends and bool(ends & {"n2", "n3"})
        assert kind == ("cross-leaf" if across else "same-rail")
        assert ("a cable between the leaves" in notes) == across
