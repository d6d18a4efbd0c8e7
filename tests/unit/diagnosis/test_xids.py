"""Xids in a node's kernel log as findings with NVIDIA's action."""

from __future__ import annotations

import pytest

from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.finding import Finding, Kind, Severity, Subject
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.knowledge.toml_data import load
from fabtui.diagnosis.preflight.checks import ProbeJudgement
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui_node.parsers.kernel import dmesg
from fabtui_node.probes.kernel_log import OLD
from tests.unit.probes.places import REAL

_PARTS = {"gpu", "memory", "nvlink", "pcie", "driver", "program", "power", "result", "note"}


def findings(*reports: str, age: float = 100.0) -> list[Finding]:
    """Return the findings of the rule FT130 for reports of the driver."""
    log = "\n".join(f"[  10.000000] NVRM: Xid (PCI:0000:9b:00): {report}" for report in reports)
    value = dmesg.parse_kernel(log).values
    for entry in value["counts"]:
        entry["age"] = age
    model = Model()
    model.apply(EndpointsAdded(endpoints=[Endpoint(0, "n0", 5, bus="0000:9B:00.0")]))
    context = NodeContext(model, [ProbedNode("n0", {}, {"kernel": value})])
    (rule,) = [rule for rule in RULES if rule.id == "FT130"]
    assert isinstance(rule, ProbeJudgement)
    return list(rule.check(context))


@pytest.mark.parametrize(
    ("report", "severity", "action"),
    [
        ("79, pid=1, name=x, GPU has fallen off the bus.", "bad", "RESTART_BM"),
        ("31, pid=1, name=x, MMU Fault", "note", "RESTART_APP"),
        ("58, Edge 2 unstable", "bad", ""),
        ("63, pid=1, Row Remapper", "warn", "IGNORE"),
        ("109, pid=1, name=x, Ch 0000, errorString CTX SWITCH TIMEOUT", "bad", "RESET_GPU"),
        ("145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 01", "warn", "WORKFLOW_NVLINK5_ERR"),
        ("145, RLW_SRC_TRACK Fatal XC0 i0 Link 01", "bad", "WORKFLOW_NVLINK5_ERR"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "bad", "XID_154"),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "note", "XID_154"),
        ("999, something", "warn", ""),
    ],
)
def test_severity_and_action_are_those_of_the_catalogue(report: str, severity: str, action: str) -> None:
    (found,) = findings(report)
    assert (found.severity, found.topic, found.nodes) == (severity, "xid", ("n0",))
    assert [line.split(":")[1].strip() for line in evidence(found)] == ([action] if action else [])


def test_the_report_and_its_place_are_in_the_title() -> None:
    (found,) = findings("79, pid=1, name=x, GPU has fallen off the bus.")
    assert title(found) == "Xid 79: GPU has fallen off the bus, at 0000:9b:00: last 1 min ago"
    assert found.about == (Subject(Kind.GPU, "n0:5"),), "the driver names no function of the device"
    assert evidence(found)[0].startswith("NVIDIA's action: RESTART_BM: drain the node and reboot it")


def test_reports_of_long_ago_are_notes() -> None:
    (found,) = findings("79, pid=1, name=x, GPU has fallen off the bus.", age=OLD + 1)
    assert found.severity is Severity.NOTE


def test_different_actions_are_different_findings() -> None:
    same = "GPU stopped processing"
    assert {found.facts["action"][:9] for found in findings(f"8, {same}", f"43, {same}", f"46, {same}")} == {
        "RESTART_A",
        "IGNORE: n",
        "RESET_GPU",
    }


@pytest.mark.skipif(not REAL.is_dir(), reason="no real samples here (FABTUI_REAL_SAMPLES)")
def test_logs_that_people_have_posted() -> None:
    logs = [dmesg.parse_kernel(path.read_text()).values for path in sorted((REAL / "dmesg-xid").glob("*.txt"))]
    counts = [entry for value in logs for entry in value["counts"] if entry["kind"] == "xid"]
    assert {entry["code"] for entry in counts} >= {48, 63, 79, 94, 119, 140}
    assert all(xids.known(entry) for entry in counts)
    assert sum(len(xids.judged(value)) for value in logs) == len(counts)


def test_a_healthy_log_and_one_that_is_unknown() -> None:
    assert findings() == []
    assert xids.judged({"counts": None}) == xids.judged({"counts": [1, {"kind": "xid", "code": ["x"]}]})[1:] == []


def test_the_catalogue() -> None:
    known = xids.xids()
    assert {one.part for one in known.values()} <= _PARTS
    assert {one.action for one in known.values()} - {""} == set(load("xids")["action"])
    assert len(known) >= 47
    assert all(one.advice or not one.action for one in known.values())


def test_one_finding_for_the_gpus_of_an_xid_and_none_of_the_clean_up_is_a_cause() -> None:
    counts = [
        {"kind": "xid", "code": code, "bus": f"0000:{bus}:00", "count": 1, "age": 60.0, "text": "Fatal"}
        for code, bus in ((149, "18"), (149, "2a"), (45, "18"), (45, "2b"))
    ]
    found = xids.judged({"counts": counts})
    assert [(one["verdict"], one["devices"]) for one in found] == [
        ("bad", ["bus:0000:18:00", "bus:0000:2a:00"]),
        ("note", ["bus:0000:18:00", "bus:0000:2b:00"]),
    ]
    assert "at 0000:18:00, 0000:2a:00: Fatal; 2 times" in found[0]["text"]
    assert "(see Xid 149)" in found[1]["text"]
    (alone,) = xids.judged({"counts": counts[2:3]})
    assert "see Xid" not in alone["text"]
