"""Sides of faults, and what results have in common: a caller, this machine, a NIC that sends, one of several paths."""

from dataclasses import replace

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings
from fabtui.model.events import InventoryUpdate, Measured, NodeState, NodeUpdate, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.unit.diagnosis.test_mesh import Net


def of_caller(code: int, text: str, *layers: Layer, dst: str = "n2") -> list[Finding]:
    """Return the findings of a mesh in which calls of n1 to another node fail in some layers."""
    net = Net(4, 2)
    model = net.model()
    rows = [
        replace(m, verdict=Verdict.FAILED, value=None, error=text, extra={**(m.extra or {}), "errno": code})
        for m in net.measured()
        if (m.src, m.dst) == ("n1", dst) and m.layer in layers
    ]
    model.apply(Measured(measurements=rows))
    return mesh_findings(model)


def test_a_node_without_a_free_port_is_named_and_not_the_one_that_it_calls() -> None:
    (found,) = of_caller(98, "Address already in use", Layer.UDP, Layer.TCP)
    assert title(found) == "n1 has no free local port: Address already in use"
    assert (found.rule.id, found.nodes, len(found.measurements)) == ("FT212", ("n1",), 8)
    assert evidence(found)[0].startswith("8 measurements from n1 ended so before anything was sent")
    assert found.next[0] == "ssh n1 sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports"


def test_a_route_that_discards_explains_the_answers_that_are_lost_as_well() -> None:
    net = Net(4, 1)
    # What n2 sends to n1 arrives, and n1 cannot answer.
    net.drops = lambda a, r, b, s: False
    model = net.model()
    rows = []
    for m in net.measured():
        if (m.src, m.dst) == ("n1", "n2") and m.layer is not Layer.MTU:
            extra = {"errno": 22, "sent": {"small": 0, "big": 0}, "arrived": {"small": 0, "big": 0}}
            rows.append(replace(m, verdict=Verdict.FAILED, value=None, error="Invalid argument", extra=extra))
        elif (m.src, m.dst) == ("n2", "n1") and m.layer in (Layer.PING, Layer.TCP):
            rows.append(replace(m, verdict=Verdict.TIMEOUT, value=None, error="no answer"))
    model.apply(Measured(measurements=rows))
    (found,) = mesh_findings(model)
    assert title(found) == "n1 discards what it sends (a blackhole route): Invalid argument"
    assert found.next[0] == "ssh n1 ip route get 10.1.0.3 from 10.1.0.2"
    assert len(found.measurements) == 5


@pytest.mark.parametrize("code", [1, 13, 24, 98, 99, 101, 105, 7777])
def test_every_error_of_a_caller_has_words_and_a_command(code: int) -> None:
    (found,) = of_caller(code, "Some text", Layer.TCP)
    assert title(found).startswith("n1 ")
    assert title(found).endswith(": Some text")
    assert found.next
    assert all(command.startswith("ssh n1 ") for command in found.next)


def nodes_of(*states: tuple[str, float, NodeState]) -> Model:
    model = Model()
    model.apply(SessionStart(nodes=["n0", "n1", "n2"], time=1.0))
    for node in ("n0", "n1", "n2"):
        model.apply(NodeUpdate(node=node, state=NodeState.READY, time=2.0))
        model.apply(InventoryUpdate(node=node, value={"host": node}, time=2.0))
    for node, at, state in states:
        model.apply(NodeUpdate(node=node, state=state, text="no answer for 10 s", time=at))
    return model


LOST, READY = NodeState.LOST, NodeState.READY


def test_all_nodes_lost_at_once_are_this_machine() -> None:
    lost = [(f"n{at}", 100.0 + at, LOST) for at in range(3)]
    (found,) = [one for one in diagnose(nodes_of(*lost)).findings if one.rule.id == "FT001"]
    assert title(found) == "this machine, or its link, is cut off: n[0-2] were lost at the same time"
    assert found.next == ("ip -s -s link", "ip route")
    back = [(f"n{at}", 110.0, READY) for at in range(3)]
    (found,) = [one for one in diagnose(nodes_of(*lost, *back)).findings if one.rule.id == "FT001"]
    assert title(found) == (
        "this machine, or its link, was cut off for at least 10 s: n[0-2] were gone at once, and all are back"
    )
    assert found.severity == "warn"


def test_a_login_that_a_call_of_this_machine_ends_is_not_about_the_nodes() -> None:
    model = Model()
    model.apply(SessionStart(nodes=["n0", "n1"], time=1.0))
    for at, node in enumerate(model.nodes):
        text = f"10.99.0.{at} port 22: Network is unreachable"
        model.apply(NodeUpdate(node=node, state=NodeState.FAILED, text=text, time=2.0))
    (found,) = [one for one in diagnose(model).findings if one.rule.id == "FT001"]
    assert title(found) == "this machine, or its link, reaches none of n[0-1]"
    model.apply(NodeUpdate(node="n1", state=NodeState.FAILED, text="10.99.0.1 port 22: no answer", time=2.0))
    assert len([one for one in diagnose(model).findings if one.rule.id == "FT001"]) == 2


def test_nodes_that_are_lost_one_after_the_other_are_their_own_fault() -> None:
    found = diagnose(nodes_of(("n0", 100.0, LOST), ("n1", 101.0, LOST))).findings
    assert [title(one) for one in found if one.rule.id == "FT001"] == ["n0 lost", "n1 lost"]
    found = diagnose(nodes_of(*((f"n{at}", 100.0 + 60 * at, LOST) for at in range(3)))).findings
    assert len([one for one in found if one.rule.id == "FT001"]) == 3


def test_a_cached_path_mtu_of_several_nodes_is_one_finding() -> None:
    net = Net(4, 2)
    net.narrow = lambda a, r, b, s: (r, s) == (0, 1)
    marked = [
        replace(m, verdict=Verdict.SLOW, extra={**(m.extra or {}), "loss": 100.0, "outdated": True})
        for m in net.measured()
        if m.layer is Layer.MTU and m.verdict.bad
    ]
    net.narrow = lambda *_: False
    model = net.model()
    model.apply(Measured(measurements=marked))
    (found,) = [one for one in mesh_findings(model) if one.rule.id == "FT235"]
    assert title(found) == "outdated path MTU 1500 in the kernel's cache of n[0-3]: the paths pass more"


def test_what_one_nic_sends_with_wrong_checksums_is_about_that_nic_alone() -> None:
    """Nodes that do not route by source: all to rail 1 leaves by eth1, and so do the answers to connections."""
    net = Net(4, 2)

    def sent(a: str, r: int, b: str, s: int) -> bool:
        return a == "n2" and s == 1

    net.filters = lambda a, r, b, s: sent(a, r, b, s) or (b == "n2" and r == 1)
    model = net.model()
    rows = [
        replace(m, verdict=Verdict.TIMEOUT, value=None, extra={"sent": {"small": 5}, "arrived": {"small": 0}})
        for m in net.measured()
        if m.layer is Layer.UDP and m.src == "n2" and str(m.dst_addr).startswith("10.2.")
    ]
    model.apply(Measured(measurements=rows))
    (found,) = mesh_findings(model)
    assert title(found) == (
        "TCP and UDP packets from n2 rail 1 (eth1 10.2.0.3) do not arrive on ephemeral ports of any node (ping passes)"
    )
    assert found.subject.name == "n2 eth1"
    assert found.next[:2] == ("ssh n0 nstat -asz UdpInCsumErrors TcpInCsumErrors", "ssh n2 ethtool -k eth1")


def test_large_packets_on_one_of_two_equal_paths_are_one_finding() -> None:
    net = Net(4, 2)
    lost = {("n0", 0, "n2", 0), ("n0", 1, "n3", 1), ("n1", 1, "n2", 1), ("n1", 0, "n3", 0), ("n0", 0, "n3", 1)}
    net.swallows = lambda *way: way in lost or (*way[2:], *way[:2]) in lost
    (found,) = net.findings()
    assert title(found) == (
        "9000-byte packets do not pass between n[0-1] and n[2-3] on every rail, on one of several equal paths"
    )
    assert evidence(found)[0] == "10 of 48 address pairs are affected; within each group all pass"
    assert found.next == ("ssh n0 ping -M do -s 8972 -c 3 -I 10.1.0.1 10.1.0.3",)
    # Pairs within a group show another cause.
    lost.add(("n0", 0, "n1", 0))
    assert "equal" not in " ".join(net.texts())


def test_a_wall_around_every_node_is_one_finding() -> None:
    net = Net(4, 1)
    net.filters = lambda *_: True
    (found,) = net.findings()
    assert title(found) == "no answer on ephemeral ports to TCP between all nodes (ping passes)"


def test_a_firewall_of_one_address_is_about_it() -> None:
    net = Net(4, 2)
    net.filters = lambda a, r, b, s: (b, s) == ("n3", 1)
    net.rules = {"n3": ["drop"]}
    assert net.texts() == ["n3 blocks incoming TCP from any node to eth1 10.2.0.4 on ephemeral ports (ping passes)"]
    net = Net(4, 1)
    net.filters = lambda a, r, b, s: "n3" in (a, b)
    net.rules = {"n3": ["drop"]}
    assert net.texts() == ["n3 blocks incoming TCP from any node on ephemeral ports (ping passes)"]
    # The rules show which of two nodes drops, where connections fail both ways.
    net = Net(4, 2)
    net.filters = lambda a, r, b, s: {a, b} == {"n1", "n3"}
    net.rules = {"n1": ["drop"], "n3": []}
    assert net.texts() == ["n1 blocks incoming TCP from n3 on every rail on ephemeral ports (ping passes)"]
