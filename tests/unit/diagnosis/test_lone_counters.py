"""Counters that grow on one node alone are named with the node; any name counts."""

import shlex
from collections.abc import Mapping

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import RULES, Finding, Severity
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.links.lone_counters import LoneCounters, command_for, damage_of
from fabtui.model.events import NodeGrowth
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric
from tests.unit.diagnosis.texts import texts

Grew = Mapping[str, Mapping[str, int]]
#: Traffic of a node.
_TRAFFIC = {"mlx5_0:rx_bytes": 10_000_000, "TcpOutSegs": 10_000}


def grown(model: Model, grew: Grew, phase: str = "p2p", seconds: float = 10.0) -> Model:
    """Return a model to which the growth of counters was added, with the usual traffic of all nodes."""
    for node in model.nodes:
        counts = {**_TRAFFIC, **grew.get(node, {})}
        model.apply(NodeGrowth(node=node, phase=phase, seconds=seconds, grew=counts, time=2.0))
    return model


def healthy(nodes: str = "abcd") -> Model:
    return fabric(nodes, 2, dead_if(lambda s, d: False))


def found(model: Model) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.rule.id.startswith("FT16") or one.rule.id == "FT142"]


def test_a_counter_of_damage_that_grows_on_one_node_is_a_warning() -> None:
    (one,) = found(grown(healthy(), {"b": {"TcpInCsumErrors": 400, "TcpInErrs": 401}}))
    assert (one.rule.id, one.severity, one.nodes) == ("FT161", Severity.WARN, ("b",))
    assert title(one) == "b: packets with wrong checksums: TcpInCsumErrors 400, 0 on 3 others during p2p"
    assert evidence(one) == ("also TcpInErrs 401, 0 on 3 others",)
    assert one.next == ("ssh b nstat -asz TcpInCsumErrors", "ssh b nstat -asz TcpInErrs")


def test_what_all_nodes_but_one_receive_damaged_comes_from_that_one() -> None:
    damaged = {node: {"TcpInCsumErrors": 100 + at, "UdpInCsumErrors": 50} for at, node in enumerate("acd")}
    repeated = {"b": {"TcpRetransSegs": 1900}}
    (one,) = found(grown(healthy(), {**damaged, **repeated}, "ping"))
    assert (one.rule.id, one.nodes) == ("FT161", ("b",))
    assert title(one) == (
        "b sends packets with wrong checksums: TcpInCsumErrors 100 or more on a,c,d, 0 there during ping"
    )
    assert evidence(one) == ("also UdpInCsumErrors 50 or more; TcpRetransSegs 1,900, 0 on 3 others",)
    assert one.next == (
        "ssh b ethtool -k mlx5_0",
        "ssh b ethtool -k mlx5_1",
        "ssh a nstat -asz TcpInCsumErrors",
    )


def test_what_peers_repeat_follows_from_what_a_node_drops() -> None:
    grew = {"b": {"TcpExtListenOverflows": 174, "TcpExtListenDrops": 174}, "a": {"TcpExtTCPSynRetrans": 500}}
    (one,) = found(grown(healthy(), grew))
    assert title(one) == (
        "b: connections that no program took in time: TcpExtListenOverflows 174, 0 on 3 others during p2p"
    )
    assert one.nodes == ("b",)


@pytest.mark.parametrize(("counter", "count", "rule", "words"), texts("counters of damage"))
def test_names_mean_damage(counter: str, count: int, rule: str, words: str) -> None:
    (one,) = found(grown(healthy(), {"c": {counter: count}}))
    assert (one.rule.id, one.severity) == (rule, Severity.WARN)
    assert title(one) == f"c: {words}: {counter} {count:,}, 0 on 3 others during p2p"


@pytest.mark.parametrize(
    "grew",
    [
        {},
        # Retransmissions of a healthy lab whose cores are busy.
        {"a": {"TcpRetransSegs": 300}, "b": {"TcpRetransSegs": 61}, "c": {"TcpRetransSegs": 70}},
        {"a": {"TcpRetransSegs": 40, "TcpExtTCPTimeouts": 4}},
        # Probes of what may be lost: real NCCL between healthy nodes.
        {"a": {"TcpExtTCPLossProbes": 292, "TcpExtTCPLostRetransmit": 28}},
        # Below the floors.
        {"a": {"eth0:rx_dropped": 4, "TcpInCsumErrors": 3, "cgroup:cpu.throttled_usec": 9000}},
        # On all nodes: a switch, or a habit of the site.
        {node: {"eth0:rx_dropped": 400} for node in "abcd"},
        # Interfaces with names of their own.
        {node: {f"enp{at}s0:rx_dropped": 400 + at, f"enp{at}s0:rx_bytes": 90_000} for at, node in enumerate("abcd")},
        # Three times as much traffic.
        {"a": {"TcpRetransSegs": 900, "eth0:rx_bytes": 90_000_000}, "b": {"TcpRetransSegs": 60}},
        # Connections that end are reset.
        {"a": {"TcpEstabResets": 400, "TcpOutRsts": 400, "TcpExtTCPAbortOnClose": 400, "IcmpOutDestUnreachs": 90}},
    ],
)
def test_what_is_usual_is_silent(grew: Grew) -> None:
    assert found(grown(healthy(), grew)) == []


def test_two_of_many_nodes_are_both_named_and_half_of_them_are_not() -> None:
    nodes = "abcdefghij"
    model = grown(healthy(nodes), {node: {"TcpInCsumErrors": 90} for node in "bd"})
    assert [one.nodes for one in found(model)] == [("b",), ("d",)]
    model = grown(healthy(nodes), {node: {"TcpInCsumErrors": 90} for node in "bdfhj"})
    assert found(model) == []


def test_of_two_nodes_the_one_that_counts_is_named() -> None:
    (one,) = found(grown(healthy("ab"), {"a": {"UdpRcvbufErrors": 90}}))
    assert title(one) == "a: out of buffers: UdpRcvbufErrors 90, 0 on 1 other during p2p"


def test_counters_of_any_name_are_evidence_of_findings_about_the_node_and_nothing_by_themselves() -> None:
    odd = {"b": {"TcpExtNobodyKnows": 700, "mlx5_0:ethtool.strange": 900}}
    model = grown(healthy(), odd)
    assert diagnose(model).findings == []
    (note,) = LoneCounters().findings(model)
    assert title(note) == (
        "b: counters that grow there alone: mlx5_0:ethtool.strange 900, 0 on 3 others; "
        "TcpExtNobodyKnows 700, 0 on 3 others during p2p"
    )
    slow = fabric("abcd", 2, lambda s, d: 0.3 if "b" in (s[0], d[0]) and s[0] != d[0] else 1.0)
    first, *_ = diagnose(grown(slow, odd)).findings
    assert first.nodes == ("b",)
    assert any("TcpExtNobodyKnows 700" in line for line in evidence(first))


def test_damage_is_evidence_of_a_finding_about_the_node_with_its_command_first() -> None:
    slow = fabric("abcd", 2, lambda s, d: 0.3 if d[0] == "b" and s[0] != "b" else 1.0)
    first, *rest = diagnose(grown(slow, {"b": {"TcpExtTCPToZeroWindowAdv": 321}})).findings
    assert "b: no room for what is received: TcpExtTCPToZeroWindowAdv 321, 0 on 3 others during p2p" in evidence(first)
    assert first.next[0] == "ssh b nstat -asz TcpExtTCPToZeroWindowAdv"
    assert not [one for one in rest if one.rule.id.startswith("FT16")]


def test_what_a_node_sends_damaged_is_the_cause_of_all_that_fails_with_it() -> None:
    failing = fabric("abcd", 2, dead_if(lambda s, d: (s[0] == "b" and d[0] != "b") or (d == "b:1" and s[0] == "a")))
    assert len(diagnose(failing).findings) > 0
    damaged = {node: {"TcpInCsumErrors": 100} for node in "acd"}
    (one,) = diagnose(grown(failing, damaged)).findings
    assert (one.rule.id, one.severity, one.subject.node) == ("FT161", Severity.BAD, "b")
    assert title(one).startswith("b sends packets with wrong checksums: TcpInCsumErrors 100 or more on a,c,d, 0 there")
    assert {"b"} == {"b" for pair in one.cells if "b" in (pair[0][0], pair[1][0])}
    assert one.next[0] == "ssh b ethtool -k mlx5_0"


def test_what_a_node_repeats_follows_from_tests_with_it_that_fail() -> None:
    failing = fabric("abcd", 2, dead_if(lambda s, d: "b" in (s[0], d[0]) and s[0] != d[0]))
    first, *rest = diagnose(grown(failing, {"d": {"TcpExtTCPTimeouts": 64}})).findings
    assert first.subject.node == "b"
    assert "d: packets sent again: TcpExtTCPTimeouts 64, 0 on 3 others during p2p" in evidence(first)
    assert not [one for one in rest if one.rule.id == "FT162"]


def test_phases_are_named_in_their_order() -> None:
    model = grown(healthy(), {"b": {"UdpRcvbufErrors": 10}}, "ping")
    (one,) = found(grown(model, {"b": {"UdpRcvbufErrors": 90}}, "p2p"))
    assert title(one) == "b: out of buffers: UdpRcvbufErrors 90, 0 on 3 others during ping and p2p"


def test_a_gauge_is_no_counter() -> None:
    model = grown(healthy(), {"b": {"nf_conntrack:drop": 900}})
    model.apply(NodeGrowth(node="a", phase="p2p", seconds=1.0, grew={"x": 1}, fell=["nf_conntrack:drop"], time=3.0))
    assert found(model) == []


@pytest.mark.parametrize(("counter", "command"), texts("counters and their commands"))
def test_each_counter_has_the_command_that_prints_it(counter: str, command: str) -> None:
    assert command_for(counter) == command
    assert shlex.split(command)


def test_the_table_names_rules_that_exist() -> None:
    known = {rule.id for rule in RULES}
    rows = load("counters")["counter"]
    assert {row["rule"] for row in rows} <= {"", *known}
    assert all(row["words"] for row in rows if row["rule"])
    assert damage_of("IcmpOutDestUnreachs").rule == damage_of("TcpExtTCPAbortOnData").rule == ""
