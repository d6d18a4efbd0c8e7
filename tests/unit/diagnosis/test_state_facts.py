"""Differences of the state of nodes: findings by the table of keys, evidence for others, one line for a group."""

import itertools
import re

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.diagnosis.preflight.state_facts import state_fact
from fabtui.model.events import InventoryUpdate, ProbeResult
from fabtui.model.facts.states import PROBE, Facts, States, packed
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.report.preflight import preflight_text
from tests.conftest import ModelMaker

RMEM = "sysctl.net.ipv4.tcp_rmem"
BASE = {RMEM: "4096 131072 6291456", "sysctl.site.unheard_of": "1", "link.eth0.flags": "0x1043"}
NODES = ("n0", "n1", "n2", "n3")


def model_of(
    changed: dict[str, Facts], nodes: tuple[str, ...] = NODES, gone: tuple[tuple[str, str], ...] = ()
) -> Model:
    """Return a session whose nodes have `BASE`, but for some changes by node."""
    model = ModelMaker().start(nodes).endpoints(dict.fromkeys(nodes, 1)).model()
    first: Facts = {}
    for at, node in enumerate(nodes):
        facts = {key: value for key, value in (BASE | changed.get(node, {})).items() if (node, key) not in gone}
        model.apply(InventoryUpdate(node=node, value={"kernel": "6.1"}))
        first = facts if at == 0 else first
        model.apply(ProbeResult(node=node, probe=PROBE, value=packed(facts, nodes[0], first if at else {})))
    return model


def found(model: Model) -> list[Finding]:
    return [one for one in preflight(model).findings if one.rule.id == "FT302"]


def test_a_difference_that_can_break_something_is_a_finding() -> None:
    model = model_of({"n2": {RMEM: "4096 8192 8192"}})
    (one,) = found(model)
    assert title(one) == "net.ipv4.tcp_rmem: 8 KiB 8 KiB, not 128 KiB 6 MiB as on 3 others"
    assert (one.severity, one.nodes) == (Severity.WARN, ("n2",))
    assert evidence(one)[0].startswith("buffers of TCP")
    assert one.next == ("ssh n2 sysctl net.ipv4.tcp_rmem",)
    assert preflight(model).table.differing("n2") == {RMEM}


def test_a_key_that_no_table_names_is_shown_and_is_not_a_finding() -> None:
    model = model_of({"n1": {"sysctl.site.unheard_of": "2"}})
    assert found(model) == []
    inspected = preflight(model)
    assert inspected.table.differing("n1") == {"sysctl.site.unheard_of"}
    assert inspected.table.differences("n1") == ["differs on n1: site.unheard_of 2, 1 on 3 others"]
    assert inspected.exit_code == 0
    short, whole = (
        preflight_text(model, inspected, None, "", 100, everything, ascii_only=True, color=False)
        for everything in (False, True)
    )
    assert "1 difference of settings hidden (--all)" in short
    assert "site.unheard_of" not in short
    assert "site.unheard_of" in whole


def test_half_of_a_fleet_is_one_line() -> None:
    upgraded = {f"sysctl.kernel.new{at}": "1" for at in range(300)} | {RMEM: "4096 131072 33554432"}
    (one,) = found(model_of({"n2": upgraded, "n3": upgraded}))
    assert title(one) == (
        "settings of a group of nodes: net.ipv4.tcp_rmem and 300 more differ between n[2-3] and n[0-1]"
    )
    assert one.severity is Severity.WARN


def test_two_nodes_are_not_compared() -> None:
    assert found(model_of({"n1": {RMEM: "1 1 1"}}, ("n0", "n1"))) == []


def test_many_differences_of_one_node_are_few_findings() -> None:
    changed = {f"sysctl.net.core.netdev_x{at}": "5" for at in range(9)}
    findings = found(model_of({"n1": changed}))
    assert len(findings) == 3
    assert len(evidence(findings[-1])) == 7


def test_what_an_interface_lacks_that_is_down_is_not_a_finding() -> None:
    changed = {node: {"link.eth1.speed": "10000", "route.254 default/0": "unicast dev eth1"} for node in NODES}
    gone = (("n1", "link.eth1.speed"), ("n1", "route.254 default/0"))
    model = model_of(changed, gone=gone)
    assert len(found(model)) == 2
    down = {"kernel": "6.1", "down_addresses": [{"nic": "eth1"}], "data_addresses": []}
    model.apply(InventoryUpdate(node="n1", value=down))
    assert [one.topic for one in found(model)] == ["addresses_number"]


def test_the_differences_of_a_blamed_node_are_evidence() -> None:
    model = model_of({"n2": {"sysctl.site.unheard_of": "7"}})
    maker = ModelMaker()
    for src, dst in itertools.permutations(NODES, 2):
        bad = "n2" in (src, dst)
        fields = {"verdict": "failed", "error": "x"} if bad else {"value": 10.0, "unit": "GB/s", "bytes": 4 << 20}
        maker.measured("p2p", f"{src}:0", f"{dst}:0", **fields)
    for event in maker.events:
        model.apply(event)
    blamed = [one for one in diagnose(model).findings if one.subject.node == "n2"]
    assert blamed
    assert "differs on n2: site.unheard_of 7, 1 on 3 others" in evidence(blamed[0])


@pytest.mark.parametrize("part", ["key", "show"])
def test_patterns_of_the_table(part: str) -> None:
    rows = load("state_keys")[part]
    assert all(re.compile(row["key"]) for row in rows)
    levels = {"bad", "warn", "note", "all", "no"}
    assert part == "show" or {row["level"] for row in rows} <= levels


def test_what_shows_a_key() -> None:
    states = States([], {})
    commands = {
        "sysctl.vm.swappiness": "ssh {node} sysctl vm.swappiness",
        "feature.eth0.tx-checksumming": "ssh {node} ethtool -k eth0",
        "process.cpus": "ssh {node} 'taskset -pc $$'",
        "fs./tmp.inodes": "ssh {node} df -i /tmp",
        "mount./home; reboot": "ssh {node} findmnt -T '/home; reboot'",
        "unheard.of": "",
    }
    for key, command in commands.items():
        fact = state_fact(states, key)
        assert fact is not None
        assert fact.next == command
    assert state_fact(states, "sysctl.kernel.hostname") is None
