"""Xids in a node's kernel log as findings with NVIDIA's action."""

import pytest

from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.finding import Finding, Kind, Severity, Subject
from fabtui.diagnosis.knowledge import load, xids
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.knowledge.xids import nvlink_report
from fabtui.diagnosis.preflight.checks import ProbeJudgement
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.presentation.findings import evidence, title
from fabtui_node.parsers import dmesg
from fabtui_node.probes.kernel_log import OLD
from tests.unit.diagnosis.texts import texts
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


@pytest.mark.parametrize(("report", "severity", "action"), texts("Xids"))
def test_severity_and_action_are_those_of_the_catalogue(report: str, severity: str, action: str) -> None:
    (found,) = findings(report)
    assert (found.severity, found.topic, found.nodes) == (severity, "xid", ("n0",))
    assert [line.split(":")[1].strip() for line in evidence(found)] == ([action] if action else [])


NETIR = (
    "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
)
RLW = "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000004 0x00000001 0x00000000 0x00100000 0x00000004)"


@pytest.mark.parametrize(
    ("code", "words", "found"),
    [
        (149, NETIR, (7, True, "NETIR_LINK_EVT", 37, 0)),
        (145, RLW, (13, False, "RLW_RXPIPE", 0, 4)),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", (None, True, "NETIR", 0, 0)),
        (149, "NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0260000a]", (1, True, "NETIR_LINK_EVT", 38, None)),
        (148, "NVLPW_CTRL Non-fatal XC0 i0 Link 05", (5, False, "NVLPW_CTRL", None, None)),
        (
            74,
            "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            (14, True, "", None, None),
        ),
    ],
)
def test_the_parts_of_a_report_about_a_link(code: int, words: str, found: tuple[object, ...]) -> None:
    report = nvlink_report(code, words)
    assert report is not None
    assert (report.link, report.fatal, report.unit, report.subcode, report.status) == found


@pytest.mark.parametrize("words", ["Fatal", "NVLINK: Link 3", "RLW_SRC_TRACK Nonfatal XC0 i0", "(0x1 0x2)", ""])
def test_a_report_that_is_written_otherwise_is_not_guessed(words: str) -> None:
    assert nvlink_report(145, words) is None
    assert nvlink_report(79, words) is None
    assert xids.meaning(145, words) == "NVLINK: RLW Error"


def test_the_registers_of_xid_74_are_explained_as_far_as_nvidia_does() -> None:
    report = nvlink_report(
        74, "NVLink: fatal error detected on link 14(0x100, 0x0, 0x10000, 0x0, 0x80000000, 0x0, 0x0)"
    )
    assert report is not None
    assert report.details == [
        "register 1, bit 8: maybe the hardware: check the mechanical connections of the link, then run diagnostics",
        "register 3, bit 16: run diagnostics if it recurs",
    ]


def test_reports_of_nvlink5_that_end_programs_without_being_fatal() -> None:
    ends = [
        nvlink_report(145, f"{unit} Nonfatal XC0 i0 Link 01 (0x1 {status:#x})")
        for unit, status in (("RLW_REMAP", 4), ("RLW_REMAP", 0x100), ("RLW_SRC_TRACK", 8), ("RLW_RXPIPE", 4))
    ]
    assert [one is not None and one.ends_programs for one in ends] == [True, False, True, False]
    assert xids.is_harmless(145, RLW)
    assert not xids.is_harmless(149, NETIR)


def test_a_link_that_went_down_is_one_finding_about_the_link() -> None:
    ended = "45, pid=1, name=python3, Ch 0000000c caused by previous Xid 149"
    (found,) = findings(
        ended, NETIR, "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", ended
    )
    assert title(found) == ("NVLink 7 of GPU 5: Xid 149: the link went down (NETIR_LINK_EVT, fatal); last 1 min ago")
    assert (found.severity, found.about) == (Severity.BAD, (Subject(Kind.GPU, "n0:5"),))
    assert evidence(found)[1:] == (
        "NVLink 7 of GPU 5: sub-code 37: device at the other end of the link, where it began",
        "Xid 45 follows (2 reports): programs were ended",
        "Xid 154 asks for recovery: Drain and Reset",
    )


def test_programs_that_another_xid_ended_are_part_of_its_finding() -> None:
    ended = "45, pid=1, name=python3, Ch 0000000c caused by previous Xid 79"
    (found,) = findings("79, pid=1, name=x, GPU has fallen off the bus.", ended, ended)
    assert title(found).endswith("; it ended programs (Xid 45, 2 times)")


def rack(*reports: tuple[str, str, str, float], domain: bool = True) -> list[str]:
    """Return the findings of trays with reports: node, bus, text and how long ago."""
    values: dict[str, list[dict[str, object]]] = {}
    for node, bus, report, age in reports:
        log = dmesg.parse_kernel(f"[  10.000000] NVRM: Xid (PCI:{bus}): {report}").values
        values.setdefault(node, []).extend({**entry, "age": age} for entry in log["counts"])
    fabric = {"cluster": "6c1f-77" if domain else None, "clique": 3}
    buses = ("0008:01:00", "0009:01:00")
    gpus = [{"index": at, "bus": f"{bus}.0", "fabric": fabric} for at, bus in enumerate(buses)]
    nodes = [
        ProbedNode(node, {}, {"kernel": {"counts": found}, "gpus": {"gpus": gpus}}) for node, found in values.items()
    ]
    (rule,) = [rule for rule in RULES if rule.id == "FT130"]
    assert isinstance(rule, ProbeJudgement)
    found = rule.check(NodeContext(Model(), nodes))
    return [" | ".join([f"{fold(one.nodes)}: {title(one)}", *evidence(one)[1:]]) for one in found]


def test_what_other_gpus_of_a_domain_report_is_evidence_for_the_link_that_went_down() -> None:
    (found,) = rack(
        ("n001", "0008:01:00", RLW, 99.0),
        ("n001", "0008:01:00", "45, pid=1, name=x, Ch 1 caused by previous Xid 145", 98.0),
        ("n004", "0009:01:00", NETIR, 100.0),
        ("n002", "0008:01:00", RLW.replace("Link 13", "Link 02"), 99.0),
    )
    assert found == (
        "n004: NVLink 7 of GPU 1: Xid 149: the link went down (NETIR_LINK_EVT, fatal); last 1 min ago"
        " | NVLink 7 of GPU 1: sub-code 37: device at the other end of the link, where it began"
        " | Xid 145 follows on n001: NVLink 13 of GPU 0, n002: NVLink 2 of GPU 0:"
        " error (RLW_RXPIPE, status 0x4, not fatal)"
        " | Xid 45 follows (1 report): programs were ended"
    )


def test_a_link_that_began_it_comes_before_the_other_end_of_a_link() -> None:
    (found,) = rack(
        ("n001", "0008:01:00", NETIR, 100.0),
        ("n004", "0009:01:00", NETIR.replace("0x025525c6", "0x004025c6"), 99.0),
    )
    assert found.startswith("n004: NVLink 7 of GPU 1: Xid 149")
    assert "signal of the link" in found
    assert "Xid 149 follows on n001: NVLink 7 of GPU 0" in found


def test_reports_of_other_domains_and_of_other_times_stay_apart() -> None:
    reports = (("n004", "0009:01:00", NETIR, 100.0), ("n001", "0008:01:00", RLW, 99.0))
    assert len(rack(*reports, domain=False)) == 2
    assert len(rack(reports[0], ("n001", "0008:01:00", RLW, 9000.0))) == 2


def test_a_fault_of_all_gpus_of_a_domain_is_one_finding() -> None:
    (found,) = rack(*((f"n00{at}", "0008:01:00", NETIR, 100.0) for at in range(4)))
    assert found.startswith("n[000-003]: NVLinks of 4 GPUs: Xid 149")
    assert "n002: NVLink 7 of GPU 0" in found


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
    apart = sum(len(xids.judged(value)) + len(xids.sorted_out(value)[0]) for value in logs)
    assert apart == len(counts)


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


def test_a_line_has_the_same_meaning_in_a_log() -> None:
    """`explain` names link and sub-code, and takes what follows for a consequence or a notice."""
    head = "Nov 20 10:22:41 n4 kernel: NVRM: Xid (PCI:0009:01:00): "
    lines = [head + NETIR, head + RLW, head + "45, pid=1, name=x, Ch 01 caused by previous Xid 149"]
    lines.append("n4:71:93 [3] transport/p2p.cc:275 NCCL WARN Cuda failure 'uncorrectable NVLink error detected'")
    reader = LogReader()
    reader.add("\n".join(lines))
    result = reader.result()
    found = {one.meaning.id: one.meaning for one in (*result.causes, *result.notices)}
    assert found["xid-149"].text == (
        "Xid 149: NVLink 7: the link went down (NETIR_LINK_EVT, fatal);"
        " sub-code 37: device at the other end of the link, where it began"
    )
    assert found["xid-45"].text == "Xid 45: a program was ended because of Xid 149"
    assert [found[name].role for name in ("xid-149", "xid-145", "xid-45")] == ["cause", "notice", "notice"]
    assert [one.meaning.id for one in result.consequences] == ["gpu-memory-over-nvlink"]
