"""MAC addresses and tables of neighbours: duplicates, strangers, old entries, and what healthy networks have."""

from typing import Any

import pytest

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.unit.diagnosis.test_mesh import Net, address

STRANGE = "02:ee:00:00:00:99"


def mac(node: str, rail: int) -> str:
    return f"02:00:00:00:{int(node[1:]):02x}:{rail:02x}"


class Kernels:
    """Four nodes with two rails, what their kernels know about each other, and changes to both."""

    def __init__(self, nodes: int = 4) -> None:
        self.net = Net(nodes, 2)
        self.macs = {(node, rail): mac(node, rail) for node in self.net.nodes for rail in self.net.rails}
        self.nics: dict[str, list[dict[str, Any]]] = {}
        #: MAC address and state that a node has learned, by node, other node and rail.
        self.learned: dict[tuple[str, str, int], tuple[str, str | None]] = {}

    def model(self) -> Model:
        for (node, rail), text in self.macs.items():
            entry = {"address": address(node, rail), "prefix": 24}
            self.net.nics[node, rail] = {"addresses": [entry], "mac": text, **self.net.nics.get((node, rail), {})}
        model = self.net.model()
        for node, record in model.nodes.items():
            assert record.inventory is not None
            record.inventory["nics"] += self.nics.get(node, [])
            entries = []
            for other in self.net.nodes:
                for rail in self.net.rails:
                    if other != node:
                        known = self.learned.get((node, other, rail), (self.macs[other, rail], "reachable"))
                        entry = {"address": address(other, rail), "nic": f"eth{rail}", "mac": known[0]}
                        entries.append({**entry, "state": known[1]})
            record.probe_results["routes"] = {"neighbours": entries}
        return model

    def learn(self, nodes: str, other: str, rail: int, text: str = STRANGE, state: str | None = "reachable") -> None:
        for node in nodes.split():
            self.learned[node, other, rail] = (text, state)

    def cut(self, *ends: tuple[str, str, int]) -> None:
        self.net.drops = lambda a, r, b, s: (a, b, s) in ends

    def found(self) -> list[Finding]:
        return mesh_findings(self.model())

    def titles(self) -> list[str]:
        return [title(one) for one in self.found()]

    def preflight(self) -> list[tuple[str, str]]:
        self.net.layers = ()
        found = preflight(self.model()).findings
        return [(title(one), str(one.severity)) for one in found if one.rule.id in ("FT236", "FT237", "FT238")]


SAME = "n1 eth0 and n3 eth0 have the same MAC 02:00:00:00:01:00: frames reach only one of them"


def test_a_healthy_network() -> None:
    assert Kernels().titles() == []
    assert Kernels().preflight() == []


def test_a_duplicate_mac_explains_what_fails_there() -> None:
    made = Kernels()
    made.macs["n3", 0] = mac("n1", 0).upper()
    made.net.drops = lambda a, r, b, s: r == s == 0 and {a, b} & {"n1", "n3"} and (a, b) != ("n1", "n0")
    made.net.filters = lambda a, r, b, s: (a, r, b, s) == ("n0", 0, "n1", 0)
    (one,) = made.found()
    assert (one.rule.id, one.severity, title(one)) == ("FT236", Severity.BAD, SAME)
    assert evidence(one)[:2] == ("n1 eth0: 10.1.0.2", "n3 eth0: 10.1.0.4")
    assert one.next == ("ssh n1 ip -br link show eth0", "ssh n3 ip -br link show eth0")
    assert made.preflight() == [(SAME, "bad")]


@pytest.mark.parametrize(
    "text", ["00:00:00:00:00:00", "00:00:5e:00:01:0a", "01:00:00:00:00:01", "80:00:" + "0a:" * 17 + "01", "", "None"]
)
def test_addresses_that_several_machines_may_have(text: str) -> None:
    made = Kernels()
    made.macs["n1", 0] = made.macs["n3", 0] = text
    made.learn("n0 n2", "n1", 0)
    assert made.titles() == []
    assert made.preflight() == []


def test_one_mac_on_interfaces_that_do_not_meet() -> None:
    made = Kernels()
    made.macs["n3", 1] = mac("n1", 0)
    made.macs["n2", 1] = mac("n2", 0)
    assert made.titles() == [], "other networks, and bonds and VLANs of one node"
    made = Kernels()
    made.macs["n3", 0] = mac("n1", 0)
    assert made.titles() == [], "both reach each other: one network by address, two on the wire"
    for node in ("n1", "n3"):
        made.net.nics[node, 0] = {"link_kind": "ipvlan"}
    assert made.preflight() == [], "containers share the address of the interface below"


def test_another_machine_answers() -> None:
    made = Kernels()
    made.learn("n0 n2 n3", "n1", 1)
    made.net.drops = lambda a, r, b, s: (b, s) == ("n1", 1) and a != "n3"
    (one,) = made.found()
    text = f"for 10.2.0.2: n[0,2-3] have its MAC as {STRANGE}, n1's eth1 has 02:00:00:00:01:01"
    assert title(one) == f"another machine answers {text}"
    assert (one.rule.id, one.severity, one.subject) == ("FT237", Severity.BAD, ("nic", "n1 eth1"))
    assert one.next == ("ssh n0 ip neigh show 10.2.0.2", "ssh n1 ip -br link show eth1")
    assert made.preflight() == [(f"another machine answers {text}", "warn")]
    made.nics["n3"] = [{"name": "eth9", "mac": STRANGE}]
    assert made.preflight() == [(f"n3 answers {text}", "warn")]


def test_a_proxy_and_a_router_answer_for_several_nodes() -> None:
    made = Kernels()
    for node in made.net.nodes:
        for other in made.net.nodes:
            made.learn(node, other, 0)
    made.cut(("n0", "n1", 0))
    assert not {one.rule.id for one in made.found()} & {"FT236", "FT237", "FT238"}
    assert made.preflight() == []


def test_what_answers_instead_and_passes_on_is_no_fault() -> None:
    made = Kernels()
    made.learn("n0 n2 n3", "n1", 1)
    assert made.titles() == []


def test_ports_of_a_bond_answer_with_their_own_address() -> None:
    made = Kernels()
    made.nics["n1"] = [{"name": "eth5", "mac": STRANGE, "master": "bond0"}]
    made.learn("n0 n2", "n1", 1)
    made.cut(("n0", "n1", 1))
    assert not {one.rule.id for one in made.found()} & {"FT236", "FT237", "FT238"}
    assert made.preflight() == []


def test_an_entry_that_was_made_by_hand() -> None:
    made = Kernels()
    made.learn("n0", "n2", 1, state="permanent")
    text = f"n0 has a permanent neighbour entry with an old MAC for n2 (10.2.0.3 is 02:00:00:00:02:01, not {STRANGE})"
    assert made.titles() == [], "it passes: who answers passes it on"
    made.net.drops = lambda a, r, b, s: (a, b, s) == ("n0", "n2", 1)
    (one,) = made.found()
    assert (one.rule.id, title(one)) == ("FT238", text)
    assert one.next[0] == "ssh n0 ip neigh show 10.2.0.3"
    assert made.preflight() == [(text, "bad")]


def test_an_entry_with_the_mac_of_another_node_is_a_detour_though_pings_pass() -> None:
    made = Kernels()
    made.learn("n0", "n2", 1, mac("n3", 1), state="permanent")
    text = (
        "n0 has a permanent neighbour entry with the MAC of n3 for n2 "
        "(10.2.0.3 is 02:00:00:00:02:01, not 02:00:00:00:03:01)"
    )
    assert [(one.rule.id, title(one), one.severity) for one in made.found()] == [("FT238", text, Severity.BAD)]
    assert made.preflight() == [(text, "bad")], "as in the run"


def test_an_old_entry_that_the_kernel_still_has() -> None:
    made = Kernels()
    made.learn("n0", "n2", 1, state="stale")
    assert made.preflight() == [], "the kernel asks again before it is used"
    made = Kernels()
    made.learn("n0", "n2", 1, state="stale")
    made.net.drops = lambda a, r, b, s: (a, b, s) == ("n0", "n2", 1)
    (text,) = made.titles()
    assert text.startswith("n0 has a stale neighbour entry with an old MAC for n2 ")


@pytest.mark.parametrize(
    "value", [None, 3, "\x1b[2J", {"address": 7}, {"address": "10.1.0.2", "mac": ["\x1b"]}], ids=repr
)
def test_hostile_tables(value: Any) -> None:
    made = Kernels()
    made.learn("n0 n2", "n1", 0)
    made.net.drops = lambda a, r, b, s: (b, s) == ("n1", 0)
    model = made.model()
    for record in model.nodes.values():
        record.probe_results["routes"]["neighbours"] += [value, {"state": value, "address": "10.1.0.2", "nic": "\x1b"}]
    assert all(title(one).isprintable() for one in mesh_findings(model))


class Cabled(Kernels):
    """Nodes whose interfaces hear switches: each rail has its own."""

    def __init__(self, nodes: int = 4) -> None:
        super().__init__(nodes)
        self.switch = {(node, rail): f"leaf{rail}" for node in self.net.nodes for rail in self.net.rails}
        self.hosts: set[tuple[str, int]] = set()

    def model(self) -> Model:
        model = super().model()
        for node, record in model.nodes.items():
            heard = [
                {
                    "interface": f"eth{rail}",
                    "chassis": f"02:aa:{switch}",
                    "system": switch,
                    "port": f"swp{node[1:]}",
                    "switch": (name, rail) not in self.hosts,
                }
                for (name, rail), switch in self.switch.items()
                if name == node
            ]
            record.probe_results["lldp"] = {"source": "lldpctl", "neighbours": heard}
        return model

    def wrong(self) -> list[str]:
        self.net.layers = ()
        return [title(one) for one in preflight(self.model()).findings if one.rule.id == "FT239"]


def test_a_cable_in_the_switch_of_another_rail() -> None:
    made = Cabled()
    assert made.wrong() == []
    made.switch["n3", 1] = "leaf0"
    text = "n3 eth1 (rail 1) is connected to leaf0 swp3, rail 1 of 3 other nodes to leaf1"
    assert made.wrong() == [text]
    (found,) = (one for one in made.found() if one.rule.id == "FT239")
    assert (found.severity, found.subject) == (Severity.WARN, ("nic", "n3 eth1"))
    assert evidence(found)[0] == "leaf0 serves rail 0 of the other nodes"
    assert found.next == ("ssh n3 sudo lldpctl eth1",)
    made.switch["n3", 1] = "storage"
    assert made.wrong() == [text.replace("leaf0", "storage")]


def test_cabling_without_a_clear_pattern() -> None:
    made = Cabled()
    made.switch |= {("n3", rail): f"leaf{rail}-other-pod" for rail in made.net.rails}
    assert made.wrong() == [], "a node of another part of the fabric"
    made = Cabled(5)
    made.switch |= {(node, rail): f"leaf{rail}-b" for node in ("n3", "n4") for rail in made.net.rails}
    made.switch["n1", 1] = "leaf0"
    assert made.wrong() == [], "several switches for a rail"
    made = Cabled()
    made.switch = dict.fromkeys(made.switch, "leaf0")
    assert made.wrong() == [], "one switch for all rails"
    made = Cabled(2)
    made.switch["n1", 1] = "leaf0"
    assert made.wrong() == [], "of two nodes either may be wrong"
    made = Cabled()
    made.switch["n3", 1] = "leaf0"
    made.hosts = {("n3", 1)}
    assert made.wrong() == [], "a host, not a switch"
