"""Wiring, addresses, netmasks and filters of nodes, from what their kernels report."""

from dataclasses import replace
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.knowledge.next_commands import path_commands
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from tests.unit.diagnosis.test_mesh import Net, address

EVIL = "\x1b[2J\nx"
Entry = tuple[str, str, str]


def mac(node: str, rail: int) -> str:
    return f"02:00:00:00:{int(node[1:]):02x}:{rail:02x}"


class Kernels:
    """Nodes whose kernels report what they see: neighbours as (node, rail it is heard on, MAC address)."""

    def __init__(self, nodes: int = 4, rails: int = 2) -> None:
        self.net = Net(nodes, rails)
        self.prefix: dict[tuple[str, int], int] = {}
        self.address: dict[tuple[str, int], str] = {}
        self.on_rail: dict[tuple[str, int], int] = {}
        self.more: list[tuple[str, int, str]] = []
        self.routes: dict[str, Any] = {}

    def model(self) -> Model:
        for node in self.net.nodes:
            for rail in self.net.rails:
                entry = {"address": self.at(node, rail), "prefix": self.prefix.get((node, rail), 24)}
                self.net.nics[node, rail] = {"addresses": [entry], "mac": mac(node, rail).upper()}
        model = self.net.model()
        places = {(n, r): self.on_rail.get((n, r), r) for n in self.net.nodes for r in self.net.rails}
        for node, record in model.nodes.items():
            assert record.inventory is not None
            for entry, rail in zip(record.inventory["data_addresses"], self.net.rails, strict=True):
                entry["address"] = self.at(node, rail)
            heard = [
                (mac(other, there), here)
                for (other, there), place in places.items()
                for here in self.net.rails
                if other != node and places[node, here] == place
            ]
            heard += [(text, rail) for one, rail, text in self.more if one == node]
            neighbours = [{"address": "x", "nic": f"eth{rail}", "mac": text} for text, rail in heard]
            record.probe_results["routes"] = {"neighbours": neighbours, **self.routes.get(node, {})}
        return model

    def at(self, node: str, rail: int) -> str:
        return self.address.get((node, rail), address(node, rail))

    def found(self) -> list[Finding]:
        return mesh_findings(self.model())

    def titles(self) -> list[str]:
        return [title(finding) for finding in self.found()]


def swapped(*nodes: str, of: int = 4) -> Kernels:
    made = Kernels(of)
    for node in nodes:
        made.on_rail |= {(node, 0): 1, (node, 1): 0}
    return made


SWAPPED = "rails swapped on {}: eth0 is connected to rail 1, eth1 is connected to rail 0"


def test_a_healthy_network_has_no_finding() -> None:
    assert Kernels().titles() == []


def test_crossed_rails_are_found_although_everything_passes() -> None:
    made = swapped("n2")
    assert made.titles() == [SWAPPED.format("n2")]
    model = made.model()
    model.apply(EndpointsAdded([Endpoint(0, "n0", 0, kind="cpu")], seq=99, time=0.0))
    assert diagnose(model).code == 1
    assert swapped("n1", "n2", of=6).titles() == [SWAPPED.format("n1"), SWAPPED.format("n2")]


def test_of_two_nodes_either_may_be_crossed() -> None:
    assert swapped("n1", of=2).titles() == [SWAPPED.format("n0"), SWAPPED.format("n1")]


def test_three_rails_of_which_two_are_crossed() -> None:
    made = Kernels(rails=3)
    made.on_rail = {("n1", 1): 2, ("n1", 2): 1}
    assert made.titles() == ["rails swapped on n1: eth1 is connected to rail 2, eth2 is connected to rail 1"]


def test_nodes_that_count_their_rails_differently_are_not_crossed() -> None:
    made = Kernels()
    for node in ("n2", "n3"):
        made.address |= {(node, rail): address(node, 1 - rail) for rail in made.net.rails}
        made.on_rail |= {(node, rail): 1 - rail for rail in made.net.rails}
    assert made.titles() == []


def test_one_network_for_all_rails_proves_nothing() -> None:
    made = Kernels()
    made.on_rail = {(node, rail): 0 for node in made.net.nodes for rail in made.net.rails}
    assert made.titles() == []


def test_a_router_shows_crossed_rails_where_no_node_answers() -> None:
    made = Kernels()
    routers = {rail: f"02:ff:00:00:00:{rail:02x}" for rail in made.net.rails}
    made.on_rail = {("n2", 0): 7, ("n2", 1): 8}
    made.more = [(node, 1 - r if node == "n2" else r, routers[r]) for node in made.net.nodes for r in made.net.rails]
    assert made.titles() == [SWAPPED.format("n2")]
    # A router may have one MAC address on all rails.
    made.more = [(node, rail, routers[0]) for node in made.net.nodes for rail in made.net.rails]
    assert made.titles() == []
    # Two nodes differ: there is no majority.
    made.more = [("n0", 0, routers[0]), ("n2", 1, routers[0])]
    assert made.titles() == []


def test_what_reaches_other_rails_only_is_crossed() -> None:
    made = Kernels()
    made.net.drops = lambda a, r, b, s: b == "n2" or (a == "n2" and r == s)
    assert made.titles() == ["rails swapped on n2"]
    (finding,) = made.found()
    assert finding.subject == ("node", "n2")
    made.net.drops = lambda a, r, b, s: b == "n2"
    assert made.titles() == ["n2 receives nothing on any rail, but sends"]


def test_a_duplicate_address_explains_all_that_is_bad_there() -> None:
    made = Kernels()
    made.address["n3", 0] = address("n1", 0)
    made.net.drops = lambda a, r, b, s: (b, s) == ("n1", 0)
    assert made.titles() == ["n[1,3] have the same address 10.1.0.2: packets reach only one of them"]
    made.net.drops = lambda a, r, b, s: (b, s) == ("n1", 0) or (a, r, b, s) == ("n0", 1, "n2", 1)
    assert made.titles()[1:] == ["one-way loss: n0 > n2 on rail 1 (10.2.0.1 > 10.2.0.3); reverse passes"]


@pytest.mark.parametrize(("prefix", "bad"), [(31, True), (25, True), (16, False), (8, False)])
def test_a_netmask_that_differs(prefix: int, bad: bool) -> None:
    made = Kernels()
    made.prefix["n1", 0] = prefix
    made.net.drops = lambda a, r, b, s: bad and (a, r) == ("n1", 0) and s == 0
    assert made.titles() == [f"n1 eth0: netmask /{prefix} on 10.1.0.2, /24 on 3 other nodes of this network"]
    (finding,) = made.found()
    assert finding.severity is (Severity.BAD if bad else Severity.WARN)
    assert finding.subject == ("nic", "n1 eth0")


def test_netmasks_of_routed_fabrics_differ_by_design() -> None:
    made = Kernels()
    made.prefix = {(node, rail): 31 for node in made.net.nodes for rail in made.net.rails}
    assert made.titles() == []
    made.prefix = {(node, rail): 32 for node in made.net.nodes[:2] for rail in made.net.rails}
    assert made.titles() == []


def filtered(*nodes: str, value: Any = 1, dev: Any = "eth0") -> Kernels:
    made = Kernels()
    made.net.drops = lambda a, r, b, s: b in nodes and r != s
    for node in nodes:
        routes = [
            {"src": address(node, 1), "dst": address(peer, 0), "dev": dev} for peer in made.net.nodes if peer != node
        ]
        routes += [
            {"src": address(node, 0), "dst": address(peer, 1), "dev": "eth1"}
            for peer in made.net.nodes
            if peer != node and dev == "eth0"
        ]
        made.routes[node] = {"routes": routes, "filters": {nic: {"rp_filter": value} for nic in ("eth0", "eth1")}}
    return made


def test_a_strict_filter_without_source_routing_is_one_finding() -> None:
    text = (
        "n3 drops packets that arrive on an interface other than the one it answers through (rp_filter is 1 on"
        " eth1, eth0)"
    )
    assert filtered("n3").titles() == [text]
    assert {finding.rule.id for finding in filtered("n3").found()} == {"FT233"}
    assert not [one for one in filtered("n3", value=2).titles() if "rp_filter" in one]
    assert not [one for one in filtered("n3", dev="eth1").titles() if "rp_filter" in one]
    assert not [one for one in filtered("n0", "n1", "n2", "n3").titles() if "drops what" in one]


def test_a_node_of_another_address_family() -> None:
    made = Kernels()
    made.address |= {("n3", rail): f"fd00:{rail}::4" for rail in made.net.rails}
    found = [one for one in made.found() if one.rule.id == "FT234"]
    assert [title(one) for one in found] == [
        "only IPv6 addresses on the data interfaces of n3, IPv4 on the other nodes"
    ]
    made.address |= {(node, 1): f"fd00:1::{node[1:]}" for node in made.net.nodes}
    made.address.pop(("n3", 0))
    assert "FT234" not in {one.rule.id for one in made.found()}, "all have both"


def test_commands_do_not_mix_address_families() -> None:
    model = Kernels().model()
    ends = [Endpoint(0, "n0", 0, address="10.1.0.1"), Endpoint(1, "n1", 0, address="fd00::2")]
    words = ["ping -c3 fd00::2", "ip neigh show to fd00::2", "ip route get fd00::2"]
    assert path_commands(model, ends[0], ends[1]) == [f"ssh n0 {word}" for word in words]
    assert path_commands(model, ends[1], ends[1])[2] == "ssh n1 ip route get fd00::2 from fd00::2"


def test_a_cached_path_mtu_is_not_blamed_on_the_path() -> None:
    made = Kernels()
    made.net.layers = (Layer.PING, Layer.MTU, Layer.TCP)
    made.net.narrow = lambda a, r, b, s: (r, s) == (0, 1) and a in ("n0", "n1")
    rows = made.net.measured()
    marked = [
        replace(m, verdict=Verdict.SLOW, extra={**(m.extra or {}), "loss": 100.0, "outdated": m.src == "n0"})
        if m.layer is Layer.MTU and m.verdict.bad
        else m
        for m in rows
    ]
    made.net.measured = lambda: marked  # type: ignore[method-assign]
    found = made.found()
    cached = [one for one in found if one.rule.id == "FT235"]
    assert [title(one) for one in cached] == ["outdated path MTU 1500 in the kernel's cache of n0: the paths pass more"]
    assert {path.src for one in found if one not in cached for _, path in one.measurements} == {"n1"}
    assert {path.src for _, path in cached[0].measurements} == {"n0"}


@pytest.mark.parametrize("value", [None, 3, EVIL, [EVIL, 3, {}], {"nic": EVIL}], ids=repr)
def test_hostile_results_are_no_harm(value: Any) -> None:
    made = filtered("n3")
    model = made.model()
    for name, record in model.nodes.items():
        known = record.probe_results["routes"]
        model.nodes[name].probe_results["routes"] = {
            **known,
            "routes": value,
            "filters": value,
            "neighbours": [*known["neighbours"], value, {"nic": value, "mac": value}],
        }
        assert record.inventory is not None
        record.inventory["nics"] = [*record.inventory["nics"], value, {"name": value, "addresses": value}]
    assert all(title(one).isprintable() for one in mesh_findings(model))
