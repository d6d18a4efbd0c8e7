"""The mesh of nodes with several rails, over SSH into real network namespaces, with faults made in the network."""

import csv
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.mesh.mesh import address_pair
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.lab.network import Network, missing
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui_node.system import run_command
from tests.forked import fabtui
from tests.lab.field import network_in

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")


class Run(NamedTuple):
    """A run of ``fabtui run`` over the network."""

    code: int
    printed: str
    model: Model
    findings: list[Finding]

    def texts(self) -> list[str]:
        return [title(finding) for finding in self.findings]

    def check(self, network: Network) -> None:
        """See that all pairs were tested, and that nothing is called bad that no finding explains."""
        layers = (Layer.PING, Layer.UDP, Layer.TCP)
        found = {layer: len(list(self.model.addresses.pairs(layer))) for layer in layers}
        assert found == dict.fromkeys(layers, pairs_of(network))
        bad = {(m.layer, address_pair(m)) for m in self.model.measurements() if m.verdict is not Verdict.OK}
        explained = {cell for finding in self.findings for cell in finding.measurements}
        assert bad == explained, sorted(bad ^ explained)[:20]
        assert self.code == (1 if bad else 0), self.printed
        assert all(title(finding) in self.printed for finding in self.findings), self.printed
        assert "Traceback" not in self.printed


def pairs_of(network: Network) -> int:
    return len(network.names) * (len(network.names) - 1) * len(network.rails) ** 2


#: Nodes and rails.
NETWORK = (8, 4)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("few"), 4, 3) as network:
        yield network


@pytest.fixture
def small(few: Network) -> Iterator[Network]:
    yield few
    few.heal()


def run(network: Network, folder: Path, *args: str) -> Run:
    recording = folder / f"{len(list(folder.iterdir()))}.jsonl"
    words = ["--nodes", ",".join(network.names), "--ssh-config", str(network.ssh_config), "--probes", "ping,udp"]
    done = fabtui("run", *words, "--record", str(recording), *args)
    model = Model()
    for event in read_events(recording):
        model.apply(event)
    return Run(done.returncode, done.stdout + done.stderr, model, mesh_findings(model))


def test_every_address_reaches_every_other(small: Network, tmp_path: Path) -> None:
    network = small
    result = run(network, tmp_path, "--csv", str(tmp_path / "s.csv"), "--json", str(tmp_path / "s.json"))
    result.check(network)
    assert (result.code, result.texts()) == (0, [])
    assert "flows:" not in result.printed, "healthy pairs are tried once"
    expected = {
        (a, network.address(a, r), b, network.address(b, s))
        for a, b in itertools.permutations(network.names, 2)
        for r, s in itertools.product(network.rails, network.rails)
    }
    for layer in MESH:
        assert {address_pair(m) for m in result.model.addresses.pairs(layer)} == expected
    assert {m.value for m in result.model.addresses.pairs(Layer.MTU)} == {9000.0}
    saved: dict[str, Any] = json.loads((tmp_path / "s.json").read_text())
    pings = [m for m in saved["measurements"] if m["layer"] == "ping"]
    assert [m["class"] for m in pings].count("same-rail") == 4 * 3 * 3
    assert [m["class"] for m in pings].count("cross-rail") == 4 * 3 * 6
    assert (tmp_path / "s.csv").read_text().count(",udp,") == pairs_of(network)


def test_a_rail_cut_on_one_node(small: Network, tmp_path: Path) -> None:
    small.plant("n3.eth2=pull")
    result = run(small, tmp_path)
    result.check(small)
    assert result.texts() == ["n3 rail 2 (eth2 10.3.0.4) is down"]
    (found,) = result.findings
    assert "it has no carrier: check the cable and the switch port" in evidence(found)


def test_a_rail_cut_on_one_node_where_nodes_do_not_route_by_source(tmp_path: Path) -> None:
    with network_in(tmp_path, 4, 3) as network:
        # Nodes send to a rail over their interface there, from any address, as hosts usually do.
        for name in network.names:
            lines = [f"rule del from {network.address(name, rail)} table {100 + rail}" for rail in network.rails]
            network.on(name, "ip", "-batch", "-", text="\n".join(lines) + "\n")
        network.plant("n3.eth2=misplug")
        folder = tmp_path / "runs"
        folder.mkdir()
        result = run(network, folder)
    result.check(network)
    assert result.texts() == ["n3 rail 2 (eth2 10.3.0.4) is cut off"]


def test_faults_of_all_kinds_at_once(network: Network, tmp_path: Path) -> None:
    network.plant("n3.eth2=misplug")
    network.plant("n1.eth1>n6.eth1=blackhole", "n6.eth1>n1.eth1=blackhole")
    # Within a rail and across.
    network.plant("n1.eth0>n2.eth0=drop", "n4.eth3>n5.eth1=drop")
    result = run(network, tmp_path)
    result.check(network)
    assert result.texts() == [
        "n3 rail 2 (eth2 10.3.0.4) is cut off",
        "one-way loss: n1 > n2 on rail 0 (10.1.0.2 > 10.1.0.3); reverse passes",
        "one-way loss: n4 > n5 on rail 3 > rail 1 (10.4.0.5 > 10.2.0.6); reverse passes",
        "MTU black hole between n1 and n6 on rail 1 (10.2.0.2 > 10.2.0.7): 8972 bytes do not pass, 1472 do",
    ]
    assert "n3 reports eth2 up: the fault lies beyond it" in evidence(result.findings[0])
    assert {m.value for m in result.model.addresses.latest(Layer.MTU, "n1", "n6")} == {9000.0, 1500.0}


def test_a_firewall_on_a_node_beside_a_narrow_path_of_another(small: Network, tmp_path: Path) -> None:
    small.plant("n0.eth1=blackhole:1500")
    rules = (
        "add table inet wall\n"
        "add chain inet wall input { type filter hook input priority 0; policy accept; }\n"
        f"add rule inet wall input ip saddr {{ {', '.join(small.address('n1', rail) for rail in small.rails)} }} "
        "tcp flags & (syn|ack) == syn drop\n"
    )
    small.on("n3", "nft", "-f", "-", text=rules)
    try:
        result = run(small, tmp_path)
        result.check(small)
    finally:
        small.on("n3", "nft", "delete", "table", "inet", "wall")
    assert sorted(result.texts()) == [
        "MTU black hole for traffic from n0 rail 1 (eth1 10.2.0.1): 8972 bytes do not pass, 1472 do",
        "n3 blocks incoming TCP from n1 on every rail on ephemeral ports (ping passes)",
    ]


def test_packets_that_are_lost_by_chance(small: Network, tmp_path: Path) -> None:
    small.plant("n2.eth1=loss-out:40%")
    result = run(small, tmp_path)
    losses = [finding for finding in result.findings if finding.rule.name == "packet-loss"]
    assert result.code == 1
    assert any("n2 rail 1 (eth1 10.2.0.3), outgoing" in title(finding) for finding in losses), result.printed
    assert all("n2" in finding.nodes for finding in result.findings), result.printed


def test_nothing_is_left_of_a_network_whose_maker_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from fabtui.lab.network import Network\n"
        f"with Network(Path({str(tmp_path)!r}), 3, 1) as n:\n"
        "    print(*(host.pid for host in map(n.holder, n.names)), flush=True); time.sleep(60)\n"
    )
    maker = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert maker.stdout is not None
    held = [Path(f"/proc/{pid}") for pid in maker.stdout.readline().split()]
    assert len(held) == 3
    assert all(process.exists() for process in held)
    maker.send_signal(signal.SIGKILL)
    maker.wait(10)
    end = time.monotonic() + 10
    while any(process.exists() for process in held) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(process.exists() for process in held)


@pytest.mark.skipif(run_command.find("iperf3") is None, reason="no iperf3 on this machine")
def test_iperf3_between_the_nodes_of_a_rail(tmp_path: Path) -> None:
    with network_in(tmp_path, 2, 2) as network:
        network.rule(f"ip saddr {network.address('n0', 0)} ip daddr {network.address('n1', 0)} tcp dport != 22")
        path = tmp_path / "s.csv"
        words = ["--nodes", "n0,n1", "--ssh-config", str(network.ssh_config), "--probes", "iperf3,perftest"]
        done = fabtui("run", *words, "--no-record", "--csv", str(path), timeout=200)
        with path.open(newline="") as file:
            rows = {(row["src_addr"], row["dst_addr"]): row for row in csv.DictReader(file) if row["layer"] == "iperf3"}
        left = [network.on(name, "ps", "-e", "-o", "comm=").split() for name in network.names]
    expected = {(f"10.{r}.0.{a}", f"10.{r}.0.{b}") for r in (1, 2) for a, b in itertools.permutations((1, 2), 2)}
    assert set(rows) == expected
    bad = {ends for ends, row in rows.items() if row["verdict"] in ("failed", "timeout")}
    assert bad == {("10.1.0.1", "10.1.0.2"), ("10.1.0.2", "10.1.0.1")}, "TCP needs both ways"
    assert all(float(row["value"]) > 0.01 and row["unit"] == "GB/s" for ends, row in rows.items() if ends not in bad)
    assert re.search(r"^  n\[0-1\]:? +perftest: no", done.stdout, re.M), done.stdout
    assert not any("iperf3" in running for running in left)
