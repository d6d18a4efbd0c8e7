"""Findings of the mesh on models of up to 6 nodes with 4 rails, with faults made in each layer that would show them."""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import AddressPair, Finding, Kind, finished
from fabtui.diagnosis.mesh.mesh import address_pair
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings, settled_mesh_findings
from fabtui.export.json import as_json
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, InventoryUpdate, Measured, PhaseStart
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.report.summary import summary
from tests.conftest import ModelMaker

Bad = Callable[..., object]


def never(*_: object) -> bool:
    return False


def address(node: str, rail: int) -> str:
    return f"10.{rail + 1}.0.{int(node[1:]) + 1}"


class Net:
    """A network whose paths are good or bad according to functions of (source, rail, destination, rail)."""

    def __init__(self, nodes: int = 6, rails: int = 4, layers: tuple[Layer, ...] = MESH) -> None:
        self.nodes = [f"n{n}" for n in range(nodes)]
        self.rails = range(rails)
        self.layers = layers
        self.drops: Bad = never
        self.swallows: Bad = never
        self.narrow: Bad = never
        self.filters: Bad = never
        self.loses: Bad = never
        self.slow: Bad = never
        self.icmp: Bad = never
        #: What single nodes report of an interface, by node and rail; carrier changes by node.
        self.nics: dict[tuple[str, int], dict[str, Any]] = {}
        self.flaps: dict[str, dict[str, int]] = {}
        #: Rules that drop or reject, by node, where these could be read.
        self.rules: dict[str, list[str]] = {}

    def model(self) -> Model:
        maker = ModelMaker().start(self.nodes, options={"probes": ["ping", "udp"]})
        for node in self.nodes:
            entries = [{"address": address(node, r), "nic": f"eth{r}", "rail": r, "family": 4} for r in self.rails]
            usual = {"state": "up", "mtu": 9000}
            nics = [{"name": f"eth{r}", **usual, **self.nics.get((node, r), {})} for r in self.rails]
            maker.add("inventory", node=node, value={"data_addresses": entries, "nics": nics})
        maker.events.append(Measured(self.measured(), seq=len(maker.events), time=maker.now))
        for node, changes in self.flaps.items():
            net = {nic: {"carrier_changes": count, "rx_bytes": 5} for nic, count in changes.items()}
            maker.add("counters", node=node, since=0.0, until=1.0, deltas={"net": net})
        for node, rules in self.rules.items():
            value = {"source": "nft", "input": "accept", "rules": len(rules), "drops": rules, "why": None}
            maker.add("look", node=node, probe="firewall", value=value)
        return maker.model()

    def measured(self) -> list[Measurement]:
        found = []
        for a, b in itertools.permutations(self.nodes, 2):
            for r, s in itertools.product(self.rails, self.rails):
                found += [m for m in self._way(a, r, b, s) if m.layer in self.layers]
        return found

    def _way(self, *way: Any) -> list[Measurement]:
        faults = self.drops, self.swallows, self.narrow, self.filters, self.loses, self.slow, self.icmp
        bad = any(fault(*way) or fault(*way[2:], *way[:2]) for fault in faults)
        return self.rows(*way) if bad else good_rows(*way)

    def rows(self, *way: Any) -> list[Measurement]:
        a, r, b, s = way
        back = (b, s, a, r)

        def made(layer: Layer, bad: object, value: float, unit: str, error: str = "", **extra: Any) -> Measurement:
            verdict = Verdict.TIMEOUT if bad else Verdict.OK
            found = None if bad else value
            here, there = address(a, r), address(b, s)
            return Measurement(
                layer, a, b, verdict, found, unit, src_addr=here, dst_addr=there, error=error or None, extra=extra
            )

        gone = self.drops(*way) or self.drops(*back)
        hole = self.swallows(*way) or self.swallows(*back)
        echo = made(Layer.PING, gone or self.icmp(*way) or self.icmp(*back), 20.0 if self.slow(*way) else 0.05, "ms")
        rows = [echo]
        if not gone:
            narrow = self.narrow(*way)
            large = made(
                Layer.MTU,
                hole or narrow,
                9000,
                "B",
                loss=100.0 if hole else 0.0,
                payload=8972,
                passes=1472 if hole or narrow else None,
                path_mtu=1500 if narrow else None,
            )
            rows.append(large)
        small, big = (
            (0 if self.drops(*way) else 5),
            (0 if self.drops(*way) or self.swallows(*way) or self.narrow(*way) else 3),
        )
        if self.filters(*way) == "udp":
            small = big = 0
        udp = made(Layer.UDP, not (small and big), 0.0, "%", sent={"small": 5, "big": 3}, payload=8972)
        extra = {**(udp.extra or {}), "arrived": {"small": small, "big": big}}
        lossy = self.loses(*way) and bool(small)
        verdict = Verdict.SLOW if lossy else udp.verdict
        rows.append(
            Measurement(
                Layer.UDP,
                a,
                b,
                verdict,
                20.0 if lossy else udp.value,
                "%",
                src_addr=address(a, r),
                dst_addr=address(b, s),
                extra=extra,
            )
        )
        rows.append(made(Layer.TCP, gone or self.filters(*way) is True, 0.1, "ms", "no answer in 1.0 s"))
        return rows

    def findings(self) -> list[Finding]:
        """Return the findings; all that is bad is explained, and nothing that is not."""
        model = self.model()
        found = mesh_findings(model)
        cells = [cell for finding in found for cell in finding.measurements]
        bad = {(m.layer, address_pair(m)) for m in model.measurements() if m.verdict is not Verdict.OK}
        assert len(cells) == len(set(cells)), "explained once"
        assert set(cells) == bad
        return found

    def texts(self) -> list[str]:
        return [title(finding) for finding in self.findings()]


@functools.cache
def good_rows(*way: Any) -> list[Measurement]:
    return Net().rows(*way)


def test_a_healthy_mesh_has_no_findings() -> None:
    assert Net().texts() == []
    assert mesh_findings(Model()) == []


@pytest.mark.parametrize("layers", [MESH, (Layer.PING, Layer.MTU)])
def test_a_cut_rail(layers: tuple[Layer, ...]) -> None:
    net = Net(layers=layers)
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s))
    (found,) = net.findings()
    assert (found.rule.name, title(found)) == ("unreachable", "n3 rail 2 (eth2 10.3.0.4) is cut off")
    assert found.nodes == ("n3",)
    assert "n3 reports eth2 up: the fault lies beyond it" in evidence(found)
    # What its own counters do not show comes first.
    assert found.next == (
        "ssh n3 ping -c3 -I 10.3.0.4 10.3.0.1",
        "ssh n3 ip neigh show to 10.3.0.1",
        "ssh n3 ip -s -s link show eth2",
    )
    assert any("--probes udp" in line for line in evidence(found)) == (layers != MESH)


@pytest.mark.slow
def test_a_cut_rail_of_a_host_that_does_not_route_by_source() -> None:
    net = Net(5)
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s)) or (a == "n3" and s == 2)
    assert net.texts() == ["n3 rail 2 (eth2 10.3.0.4) is cut off"]
    # What it sends from that address to other rails leaves by other interfaces, and arrives.
    net.drops = lambda a, r, b, s: (b, s) == ("n3", 2) or (a == "n3" and s == 2)
    assert net.texts() == ["n3 rail 2 (eth2 10.3.0.4) is cut off"]
    net.drops = lambda a, r, b, s: a == "n3" and s == 2
    assert net.texts() == ["n3 rail 2 (eth2 10.3.0.4) sends nothing, but receives"]
    net.drops = lambda a, r, b, s: s == 2
    assert net.texts() == ["rail 2 is cut off on all 5 nodes"]
    net = Net(2, 4)
    net.drops = lambda a, r, b, s: (b, s) == ("n1", 2) or (a == "n1" and s == 2)
    assert net.texts() == ["rail 2 is cut off on all 2 nodes"], "which of the two it is cannot be reported"


@pytest.mark.slow
def test_a_node_a_rail_and_everything() -> None:
    net = Net(4, 3)
    net.drops = lambda a, r, b, s: "n2" in (a, b)
    assert net.texts() == ["n2 is cut off on every rail"]
    net.drops = lambda a, r, b, s: 1 in (r, s)
    assert net.texts() == ["rail 1 is cut off on all 4 nodes"]
    net.drops = lambda *_: True
    assert net.texts() == ["no traffic between any two nodes"]


def test_one_way() -> None:
    net = Net()
    net.drops = lambda *way: way == ("n1", 0, "n2", 0)
    (found,) = net.findings()
    path = AddressPair("n1", "10.1.0.2", "n2", "10.1.0.3")
    assert title(found) == "one-way loss: n1 > n2 on rail 0 (10.1.0.2 > 10.1.0.3); reverse passes"
    assert found.measurements == {
        (Layer.UDP, path),
        *(
            (layer, way)
            for layer in (Layer.PING, Layer.TCP)
            for way in (
                AddressPair("n1", "10.1.0.2", "n2", "10.1.0.3"),
                AddressPair("n2", "10.1.0.3", "n1", "10.1.0.2"),
            )
        ),
    }
    net.drops = lambda a, r, b, s: (b, a) == ("n1", "n2")
    assert net.texts() == ["one-way loss: n2 > n1 on every rail; reverse passes"]


def test_without_datagrams_the_way_is_not_known() -> None:
    net = Net(layers=(Layer.PING,))
    net.drops = lambda *way: way == ("n1", 0, "n2", 0)
    assert net.texts() == ["no traffic between n1 and n2 on rail 0 (10.1.0.2 > 10.1.0.3)"]


def test_datagrams_that_were_not_counted_are_not_recommended_again() -> None:
    net = Net(2, 1, layers=(Layer.PING,))
    net.drops = lambda *_: True
    model = net.model()
    (found,) = mesh_findings(model)
    assert evidence(found)[-1] == "only echo requests were sent, which do not show the direction; --probes udp does"
    error = "Cannot assign requested address"
    rows = [replace(m, layer=Layer.UDP, verdict=Verdict.FAILED, error=error, extra=None) for m in net.measured()]
    model.apply(Measured(measurements=rows))
    (found,) = mesh_findings(model)
    assert evidence(found)[-1] == f"no datagrams could be counted, which would show the direction: {error}"


@pytest.mark.parametrize("enabled", [True, False, None])
def test_an_interface_that_is_down_explains_all_that_is_lost_there(enabled: bool | None) -> None:
    net = Net(4, 3)
    net.nics["n3", 2] = {"state": "down", "enabled": enabled}
    # What it sends from the address to other rails leaves by other interfaces: that it arrives means nothing.
    net.drops = lambda a, r, b, s: (b, s) == ("n3", 2) or ((a, r) == ("n3", 2) and s == 2)
    (found,) = net.findings()
    assert (found.rule.id, title(found)) == ("FT221", "n3 rail 2 (eth2 10.3.0.4) is down")
    first = {True: "it has no carrier", False: "it is switched off: sudo ip link set eth2 up", None: "18 of 18 address"}
    assert evidence(found)[0].startswith(first[enabled])
    # Without routes by source, all that goes to that rail is lost as well.
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s)) or (a == "n3" and s == 2) or (b == "n3" and r == 2)
    assert net.texts() == ["n3 rail 2 (eth2 10.3.0.4) is down"]
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s)) or (a, r, b, s) == ("n3", 0, "n1", 2)
    assert net.texts() == [
        "n3 rail 2 (eth2 10.3.0.4) is down",
        "one-way loss: n3 > n1 on rail 0 > rail 2 (10.1.0.4 > 10.3.0.2); reverse passes",
    ]


def test_a_link_that_flaps_explains_what_is_lost_there() -> None:
    net = Net()
    net.flaps = {"n3": {"eth2": 5, "eth1": 1}}
    (found,) = net.findings()
    assert (found.rule.id, found.severity, evidence(found)) == ("FT220", "warn", ())
    text = "n3 rail 2 (eth2 10.3.0.4): the link flaps (carrier changed 5 times during the session)"
    assert title(found) == text
    # A cable that was plugged in again does not warn for the rest of the session.
    net.flaps = {"n3": {"eth2": 2}}
    (once,) = net.findings()
    name = "n3 rail 2 (eth2 10.3.0.4): the link went down once, and came back"
    assert (title(once), once.severity) == (name, "note")
    net.flaps = {"n3": {"eth2": 5}}
    net.drops = lambda a, r, b, s: (a, r, b, s) == ("n1", 2, "n3", 2)
    net.loses = lambda a, r, b, s: (a, r, b) == ("n3", 2, "n5")
    net.icmp = lambda a, r, b, s: (a, r, b, s) == ("n3", 2, "n4", 2)
    net.filters = lambda a, r, b, s: (a, r, b, s) == ("n0", 0, "n3", 2)
    (found,) = net.findings()
    assert (title(found), found.severity) == (text, "bad")
    assert found.next == ("ssh n3 ip -s -s link show eth2",)
    net.nics["n3", 2] = {"state": "down"}
    assert net.texts() == [text], "it was down when the node was looked at"


def test_a_direction_that_a_larger_cause_explains_does_not_pass() -> None:
    net = Net()
    net.drops = lambda a, r, b, s: b == "n3" or (a == "n3" and r == s == 0 and b == "n1")
    assert net.texts() == [
        "no traffic between n1 and n3 on rail 0 (10.1.0.4 > 10.1.0.2), in either direction",
        "n3 receives nothing on any rail, but sends",
    ]


def test_nothing_is_claimed_of_a_direction_that_was_not_measured() -> None:
    net = Net(3, 1)
    net.drops = lambda a, r, b, s: (a, b) == ("n0", "n1")
    maker = ModelMaker().start(net.nodes, options={"probes": ["ping", "udp"]})
    rows = [m for m in net.measured() if (m.src, m.dst) != ("n1", "n0")]
    maker.add("measured", measurements=[m.to_json() for m in rows])
    (found,) = mesh_findings(maker.model())
    assert title(found) == "one-way loss: n0 > n1 (10.1.0.1 > 10.1.0.2); reverse not measured"
    rows = [m for m in net.measured() if m.dst != "n0"]
    net.drops = lambda a, r, b, s: a == "n0"
    maker = ModelMaker().start(net.nodes, options={"probes": ["ping", "udp"]})
    maker.add("measured", measurements=[m.to_json() for m in net.measured() if m.dst != "n0"])
    assert title(mesh_findings(maker.model())[0]).startswith("n0 (10.1.0.1) ")


def test_an_interface_that_sends_nothing() -> None:
    net = Net()
    net.drops = lambda a, r, b, s: (a, r) == ("n3", 2)
    assert net.texts() == ["n3 rail 2 (eth2 10.3.0.4) sends nothing, but receives"]
    net.drops = lambda a, r, b, s: b == "n3"
    assert net.texts() == ["n3 receives nothing on any rail, but sends"]


def test_two_nodes_alone() -> None:
    net = Net(2, 1)
    net.drops = lambda a, r, b, s: a == "n0"
    assert net.texts() == ["one-way loss: n0 > n1 on rail 0 (10.1.0.1 > 10.1.0.2); reverse passes"]
    net = Net(2, 4)
    net.drops = lambda a, r, b, s: a == "n0"
    assert net.texts() == ["one-way loss: n0 > n1 on every rail; reverse passes"]
    net.drops = lambda a, r, b, s: ("n1", 3) in ((a, r), (b, s))
    assert net.texts() == ["n1 rail 3 (eth3 10.4.0.2) is cut off"]


@pytest.mark.slow
def test_paths_between_rails_and_halves_of_one() -> None:
    net = Net(4)
    net.drops = lambda a, r, b, s: r != s
    assert net.texts() == ["no traffic between rails"]
    net.drops = lambda a, r, b, s: {r, s} == {0, 3}
    assert net.texts() == ["no traffic between rails 0 and 3"]
    net.drops = lambda a, r, b, s: (r, s) == (3, 0)
    assert net.texts() == ["no traffic from rail 3 to rail 0"]
    net.drops = lambda a, r, b, s: s == 0 and r != 0
    assert net.texts() == ["no traffic from the other rails to rail 0"]
    net.drops = lambda a, r, b, s: r == s == 1 and (a < "n2") != (b < "n2")
    assert net.texts() == ["nothing passes between n[0-1] and n[2-3] on rail 1"]


def apart(a: str, r: int, b: str, s: int) -> bool:
    return s == 0 and (a < "n2") != (b < "n2")


def test_what_fails_between_groups_of_a_rail_is_one_finding() -> None:
    net = Net(4, 2)
    between = "between n[0-1] and n[2-3] on rail 0"
    net.swallows = apart
    (found,) = net.findings()
    assert (found.rule.id, title(found)) == ("FT211", f"9000-byte packets do not pass {between}")
    assert found.subject == (Kind.LEAF_CUT, "n[0-1] - n[2-3] on rail 0")
    assert "1500-byte packets pass" in evidence(found)
    assert found.next == ("ssh n0 ping -M do -s 8972 -c 3 -I 10.1.0.1 10.1.0.3",)
    net = Net(4, 2)
    net.drops = apart
    assert net.texts() == [f"nothing passes {between}"]
    net.drops = lambda a, r, b, s: r == s == 0 and a < "n2" <= b
    assert net.texts() == ["nothing passes from n[0-1] to n[2-3] on rail 0"]
    net = Net(4, 2)
    net.filters = apart
    assert net.texts() == [f"TCP connections do not pass {between}"]
    net.filters = lambda *way: apart(*way) and "udp"
    assert net.texts() == [f"UDP datagrams do not pass {between}"]
    net = Net(4, 2)
    net.loses = apart
    assert net.texts() == [f"{between}: 20 % of packets are lost"]
    net = Net(6, 2)
    net.drops = lambda a, r, b, s: int(a[1]) // 2 != int(b[1]) // 2
    assert net.texts() == ["nothing passes between n[0-1], n[2-3] and n[4-5] on every rail"]


@pytest.mark.slow
def test_black_holes() -> None:
    net = Net(4, 3)
    net.swallows = lambda *way: way in (("n1", 0, "n2", 0), ("n2", 0, "n1", 0))
    (found,) = net.findings()
    reported = "MTU black hole between n1 and n2 on rail 0 (10.1.0.2 > 10.1.0.3): 8972 bytes do not pass, 1472 do"
    assert (found.rule.name, title(found)) == ("mtu-black-hole", reported)
    assert found.next == ("ssh n1 ping -M do -s 8972 -c 3 -I 10.1.0.2 10.1.0.3",)
    net.swallows = lambda *way: way == ("n1", 0, "n2", 0)
    assert net.texts() == [reported.replace("between n1 and", "from n1 to").replace("to n2 on", "to n2 on")]
    net.swallows = lambda a, r, b, s: ("n3", 1) in ((a, r), (b, s))
    assert net.texts() == ["MTU black hole at n3 rail 1 (eth1 10.2.0.4): 8972 bytes do not pass, 1472 do"]
    net.swallows = lambda a, r, b, s: r != s
    assert net.texts() == ["MTU black hole between rails: 8972 bytes do not pass, 1472 do"]
    net.swallows = lambda *_: True
    assert net.texts() == ["MTU black hole between all nodes: 8972 bytes do not pass, 1472 do"]


def test_a_path_that_reports_its_mtu() -> None:
    net = Net(4, 3)
    net.narrow = lambda a, r, b, s: r != s
    (text,) = net.texts()
    assert text.startswith("narrow path between rails: path MTU is 1500, the interfaces' is larger: 8972 bytes")


def test_firewalls() -> None:
    net = Net()
    net.rules = {"n3": ["tcp flags & (syn|ack) == syn drop", "udp dport 1024-65535 drop"]}
    net.filters = lambda a, r, b, s: (a, b) == ("n1", "n3")
    assert net.texts() == ["n3 blocks incoming TCP from n1 on every rail on ephemeral ports (ping passes)"]
    net.filters = lambda a, r, b, s: b == "n3"
    (found,) = net.findings()
    assert title(found) == "n3 blocks incoming TCP from any node on ephemeral ports (ping passes)"
    assert (found.rule.name, found.nodes) == ("firewall", ("n3",))
    assert "TCP: no answer in 1.0 s" in evidence(found)
    assert evidence(found)[0] == "n3 has the rule: tcp flags & (syn|ack) == syn drop"
    net.filters = lambda a, r, b, s: "udp" if b == "n3" else False
    assert net.texts() == ["n3 blocks incoming UDP from any node on ephemeral ports (ping passes)"]


#: Rules that drop no new connection from 10.2.0.2 to an ephemeral port.
HARMLESS = [
    *("ct state invalid drop", 'iifname "lo" ip daddr != 127.0.0.0/8 drop', "udp dport 30000-60000 drop"),
    *("meta l4proto icmp drop", "tcp dport { 22, 111 } reject with tcp reset", "ip saddr 192.168.0.0/16 drop"),
    *("ip saddr { 10.2.0.7, 10.2.0.9 } counter packets 5 bytes 300 drop",),
    *("-A INPUT -m conntrack --ctstate INVALID -j DROP", "-A INPUT -s 10.9.0.0/16 -p tcp -j DROP"),
]


@pytest.mark.parametrize("rules", [None, [], HARMLESS])
def test_without_a_rule_that_drops_it_no_node_blocks(rules: list[str] | None) -> None:
    net = Net()
    net.rules = {} if rules is None else {"n3": rules}
    net.filters = lambda a, r, b, s: (a, r, b, s) == ("n1", 1, "n3", 1)
    (found,) = net.findings()
    assert title(found) == (
        "no answer on ephemeral ports of n3 to TCP from n1 on rail 1 (10.2.0.2 > 10.2.0.4) (ping passes)"
    )
    assert evidence(found)[0] == (
        "a firewall of n3 drops them, or something on the path to it; its rules were not read"
        if rules is None
        else "no rule was found on n3 that drops them: something on the path to it does"
    )
    net.filters = lambda a, r, b, s: "udp" if b == "n3" else False
    if not rules:
        assert net.texts() == ["UDP from any node does not arrive on ephemeral ports of n3 (ping passes)"]


@pytest.mark.parametrize(
    "rule",
    [
        "drop",
        "tcp dport >= 30000 reject with tcp reset",
        "ip saddr { 10.2.0.2 } tcp flags & (syn|ack) == syn drop",
        "ip saddr 10.2.0.0/24 counter drop",
        "ct state new counter packets 4 bytes 240 drop",
        "tcp dport != { 22, 80 } drop",
        "-A INPUT -p tcp -m multiport --dports 22,1024:65535 -j REJECT --reject-with icmp-port-unreachable",
        "-A INPUT -s 10.2.0.0/16 -j DROP",
    ],
)
def test_rules_that_drop_new_connections(rule: str) -> None:
    net = Net()
    net.rules = {"n3": [rule]}
    net.filters = lambda a, r, b, s: (a, r, b, s) == ("n1", 1, "n3", 1)
    (text,) = net.texts()
    assert text.startswith("n3 blocks incoming TCP from n1 on rail 1")


def test_pings_that_are_dropped_while_datagrams_pass() -> None:
    net = Net()
    net.icmp = lambda a, r, b, s: "n2" in (a, b)
    assert net.texts() == ["n2: pings are lost, datagrams pass: ICMP is dropped"]


def test_loss_by_chance_is_still_one_finding() -> None:
    net = Net()
    chance = random.Random(1)
    net.loses = lambda a, r, b, s: (a, r) == ("n2", 1) and chance.random() < 0.8
    (found,) = net.findings()
    assert (found.rule.name, title(found)) == (
        "packet-loss",
        "n2 rail 1 (eth1 10.2.0.3), outgoing: 20 % of packets are lost",
    )


def test_a_probe_that_failed_is_no_cable() -> None:
    net = Net(3, 2)
    model = net.model()
    extra = {"probe_failed": "n1", "reason": "OSError: [Errno 22] Invalid argument"}
    rows = [
        replace(m, verdict=Verdict.INCONCLUSIVE, value=None, error="?", extra=extra)
        for m in net.measured()
        if m.layer in (Layer.UDP, Layer.TCP) and m.src == "n1"
    ]
    model.apply(Measured(measurements=rows))
    (found,) = mesh_findings(model)
    assert title(found) == "the udp probe failed on n1: OSError: [Errno 22] Invalid argument"
    assert evidence(found) == ("16 measurements without a result",)
    assert (found.nodes, found.severity, found.next) == (("n1",), "warn", ("fabtui preflight --nodes n1",))
    assert found.measurements == {(m.layer, address_pair(m)) for m in rows}


def test_where_much_is_lost_a_connection_that_fails_is_no_firewall() -> None:
    net = Net()
    # 20 % loss: all SYNs to one address were lost, or all answers to SYNs of another.
    net.loses = lambda a, r, b, s: (a, r) == ("n2", 1)
    net.filters = lambda *way: way in (("n2", 1, "n4", 1), ("n5", 0, "n2", 1))
    assert net.texts() == ["n2 rail 1 (eth1 10.2.0.3), outgoing: 20 % of packets are lost"]
    net.filters = lambda *way: way == ("n3", 1, "n4", 1)
    assert len(net.texts()) == 2, "nothing is lost there"


def test_late_answers_are_reported_and_are_not_bad() -> None:
    net = Net()
    net.slow = lambda a, r, b, s: {a, b} == {"n1", "n4"} and r == s == 0
    (found,) = net.findings()
    assert title(found) == "n1 and n4 on rail 0 (10.1.0.2 > 10.1.0.5): round trip up to 20 ms, usually 0.05 ms"
    assert not found.measurements


def test_one_late_echo_of_three_is_no_finding() -> None:
    model = Net().model()
    late = next(m for m in model.addresses.pairs(Layer.PING) if (m.src, m.dst) == ("n0", "n1"))
    busy = replace(late, value=9.0, extra={"rtt_min": 0.05, "rtt_max": 26.0})
    model.apply(Measured([busy], time=9.0))
    assert mesh_findings(model) == []


@pytest.mark.parametrize(("lossy", "subject"), [(8, "n2 rail 1 (eth1 10.2.0.3), outgoing"), (6, None)])
def test_an_address_is_lossy_if_half_of_its_pairs_are(lossy: int, subject: str | None) -> None:
    """Some of 14 pairs lose nothing by chance."""
    net = Net(8, 2)
    lossy_paths = [(b, s) for b in net.nodes if b != "n2" for s in net.rails][:lossy]
    net.loses = lambda a, r, b, s: (a, r) == ("n2", 1) and (b, s) in lossy_paths
    named = [text.partition(":")[0] for text in net.texts()]
    assert (named == [subject]) if subject else (len(named) > 1 and "n2 rail 1" not in named[0])


@pytest.mark.parametrize(
    ("drops", "subject"),
    [
        (lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s)), (Kind.NIC, "n3 eth2")),
        (lambda a, r, b, s: "n3" in (a, b), (Kind.NODE, "n3")),
        (lambda a, r, b, s: 1 in (r, s), (Kind.RAIL, "1")),
        (lambda a, r, b, s: r == s == 1 and (a < "n2") != (b < "n2"), (Kind.LEAF_CUT, "n[0-1] - n[2-3] on rail 1")),
        (lambda a, r, b, s: {a, b} == {"n1", "n3"}, (Kind.NODE_PAIR, "n1 - n3")),
        (lambda a, r, b, s: (a, b) == ("n3", "n1"), (Kind.NODE_PAIR, "n3 > n1")),
        (lambda a, r, b, s: {r, s} == {0, 2}, (Kind.RAIL_PAIR, "0 - 2")),
        (lambda a, r, b, s: (r, s) == (2, 0), (Kind.RAIL_PAIR, "2 > 0")),
        (lambda a, r, b, s: r != s, (Kind.CROSS_RAIL, "all rails")),
        (lambda a, r, b, s: r != s and 1 in (r, s), (Kind.CROSS_RAIL, "rail 1")),
        (lambda *_: True, (Kind.CROSS_NODE, "all nodes")),
    ],
)
def test_a_scope_is_the_component_that_other_findings_blame(drops: Bad, subject: tuple[Kind, str]) -> None:
    net = Net(4, 3)
    net.drops = drops
    (found,) = net.findings()
    assert found.subject == subject


@pytest.mark.parametrize(("nic", "name"), [("mlx5_7", "n1 mlx5_7"), (None, "n1 eth0")])
def test_an_address_is_the_nic_of_its_endpoint(nic: str | None, name: str) -> None:
    net = Net(4, 1)
    net.drops = lambda a, r, b, s: "n1" in (a, b)
    model = net.model()
    model.apply(EndpointsAdded([Endpoint(0, "n1", 0, nic=nic, address=address("n1", 0))], time=1.0))
    (found,) = mesh_findings(model)
    assert found.subject == (Kind.NIC, name)


def lossy(probe: Layer, value: float | None, **extra: Any) -> Finding:
    model = Net(4, 1).model()
    rows = [
        replace(m, verdict=Verdict.SLOW, value=value, extra={**(m.extra or {}), **extra})
        for m in model.addresses.pairs(probe)
        if (m.src, m.dst) == ("n1", "n2")
    ]
    model.apply(Measured(rows, time=9.0))
    (found,) = mesh_findings(model)
    return found


def test_the_share_of_loss_is_that_of_the_layer_that_counted() -> None:
    assert title(lossy(Layer.UDP, 12.0)) == "n1 > n2 on rail 0 (10.1.0.2 > 10.1.0.3): 12 % of packets are lost"
    assert "34 % of packets" in title(lossy(Layer.PING, 0.05, loss=34.0))
    assert "25 % of packets" in title(lossy(Layer.MTU, 9000, loss=25.0))
    found = lossy(Layer.PING, 0.05, loss=34.0)
    assert (found.rule.name, found.facts["lossy"], found.next) == (
        "packet-loss",
        1,
        (
            "ssh n1 ping -q -c 80 -i 0.2 -I 10.1.0.2 10.1.0.3",
            "ssh n1 ip neigh show to 10.1.0.3",
            "ssh n1 ip route get 10.1.0.3 from 10.1.0.2",
        ),
    )


def test_several_faults_at_once() -> None:
    net = Net(6, 3)
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s)) or (a, r, b, s) == ("n0", 1, "n1", 1)
    net.swallows = lambda a, r, b, s: r != s
    net.filters = lambda a, r, b, s: b == "n5"
    net.rules = {"n5": ["drop"]}
    assert net.texts() == [
        "n3 rail 2 (eth2 10.3.0.4) is cut off",
        "one-way loss: n0 > n1 on rail 1 (10.2.0.1 > 10.2.0.2); reverse passes",
        "MTU black hole between rails: 8972 bytes do not pass, 1472 do",
        "n5 blocks incoming TCP from any node on ephemeral ports (ping passes)",
    ]


@pytest.mark.parametrize("seed", range(12))
def test_any_faults_are_all_explained_once(seed: int) -> None:
    chance = random.Random(seed)
    net = Net(5, 3)
    paths = {
        (a, r, b, s)
        for a, b in itertools.permutations(net.nodes, 2)
        for r, s in itertools.product(net.rails, net.rails)
        if chance.random() < 0.1
    }
    net.drops = lambda *way: way in paths
    covered = {cell for finding in net.findings() for cell in finding.measurements}
    assert covered


def test_the_findings_are_among_the_causes_once_the_mesh_is_through() -> None:
    net = Net()
    net.drops = lambda *way: way == ("n1", 0, "n2", 0)
    model = net.model()
    model.apply(PhaseStart("udp", 5, time=5.0))
    assert finished(settled_mesh_findings(model)) == []
    model.apply(PhaseStart("done", time=6.0))
    (cause,) = diagnose(model).findings
    assert (cause.severity, title(cause)) == (
        "bad",
        "one-way loss: n1 > n2 on rail 0 (10.1.0.2 > 10.1.0.3); reverse passes",
    )
    assert finished(settled_mesh_findings(model)) is finished(settled_mesh_findings(model)), (
        "put together once for the same measurements"
    )


def test_findings_are_in_the_json_and_in_the_summary() -> None:
    net = Net()
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s))
    model = net.model()
    (found,) = as_json(diagnose(model))["mesh"]
    assert (found["id"], found["title"], found["nodes"]) == ("FT201", "n3 rail 2 (eth2 10.3.0.4) is cut off", ["n3"])
    assert found["measurements"] == 3 * 40, "ping, udp and tcp"
    text = summary(diagnose(model), plain=True)
    assert "findings: 1\n  1 n3 rail 2 (eth2 10.3.0.4) is cut off  FT201\n" in text
    assert "not ok" not in text, "what a finding explains is not listed again"
    assert "ping: 440 of 480 address pairs answer" in text


def test_the_cells_of_a_finding_are_those_of_the_endpoints_whose_addresses_it_is_about() -> None:
    net = Net(2, 2)
    net.drops = lambda *way: way == ("n0", 1, "n1", 1)
    model = net.model()
    ends = [Endpoint(n, f"n{n // 2}", n % 2, kind="gpu", address=address(f"n{n // 2}", n % 2)) for n in range(4)]
    model.apply(EndpointsAdded(ends, time=1.0))
    (cause,) = finished(settled_mesh_findings(model))
    assert cause.cells == {("n0:1", "n1:1"), ("n1:1", "n0:1")}


def test_what_nodes_call_their_interfaces_does_not_get_into_commands() -> None:
    net = Net()
    net.drops = lambda a, r, b, s: ("n3", 2) in ((a, r), (b, s))
    model = net.model()
    record = model.nodes["n3"].inventory
    assert record is not None
    for entry in record["data_addresses"]:
        entry["nic"] = "eth2; reboot\x1b[2J"
    model.apply(InventoryUpdate("n3", record, time=1.0))
    (cause,) = finished(settled_mesh_findings(model))
    assert cause.next[2].startswith("ssh n3 ip -s -s link show 'eth2; reboot")
    assert all("\x1b" not in text for text in (title(cause), *evidence(cause), *cause.next))


def test_many_paths_that_have_nothing_in_common_are_one_finding() -> None:
    net = Net()
    chance = random.Random(3)
    pairs = list(itertools.product(net.nodes, net.rails, net.nodes, net.rails))
    lost = set(chance.sample([way for way in pairs if way[0] != way[2]], 200))
    net.drops = lambda *way: way in lost
    found = [finding for finding in net.findings() if finding.rule.name in ("unreachable", "one-way")]
    assert title(found[-1]) == "no traffic between addresses of 15 pairs of nodes that have nothing in common"
    assert "neighbour table" in evidence(found[-1])[0]
    assert len(found) < 4


@pytest.mark.parametrize(("udp", "reported"), [(False, 1), (True, 2)])
def test_a_pair_that_a_firewall_explains_is_not_reported_again(udp: bool, reported: int) -> None:
    net = Net(nodes=4, rails=2)
    net.filters = lambda a, r, b, s: ("udp" if udp else True) if (a, r, b, s) == ("n1", 0, "n3", 0) else False
    model = net.model()
    ends = [
        Endpoint(2 * n + r, f"n{n}", r, kind="gpu", rail=r, address=address(f"n{n}", r))
        for n in range(4)
        for r in range(2)
    ]
    model.apply(EndpointsAdded(endpoints=ends, time=9.0))
    rows = [
        Measurement(Layer.P2P, str(a), str(b), Verdict.TIMEOUT if dead else Verdict.OK, None if dead else 45.0, "GB/s")
        for a, b in itertools.permutations(model.endpoints, 2)
        for dead in [(str(a), str(b)) == ("n1:0", "n3:0")]
    ]
    model.apply(Measured(measurements=rows, time=9.0))
    found = diagnose(model).findings
    assert [title(one) for one in found if "TCP" not in title(one) and "UDP" not in title(one)] == (
        ["n1:0 > n3:0 timed out"] if udp else []
    )
    assert len(found) == reported


def test_datagrams_alone_show_a_black_hole_and_its_size() -> None:
    net = Net(3, 1, layers=(Layer.PING, Layer.UDP))
    net.swallows = lambda a, r, b, s: (a, b) == ("n0", "n1")
    assert net.texts() == ["MTU black hole from n0 to n1 on rail 0 (10.1.0.1 > 10.1.0.2): 8972 bytes do not pass"]
