"""Preflight: from probe results to findings and to lines of text."""

from typing import Any

import pytest

from fabtui.diagnosis import diagnosis
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Domain, Finding, Kind, Severity, Subject, finished, rules_of
from fabtui.diagnosis.preflight.checks import Preflight, latest_preflight, preflight
from fabtui.diagnosis.preflight.node_context import NodeContext, severity_of
from fabtui.model.events import InventoryUpdate, LogEntry, NodeState, NodeUpdate, ProbeResult, SessionStart
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import FactTable, PreflightChanges, changes_since, earlier_of, fact_table
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import ASCII, UNICODE
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.preflight_lines import chosen_facts, finding_lines, short_lines, table_lines
from fabtui.presentation.wording import plain
from tests.unit.model.cluster import clock, host, inventory, memlock, node


def model_of(*nodes: ProbedNode, lab: str | None = None) -> Model:
    model = Model()
    names = [one.name for one in nodes]
    model.apply(SessionStart(format=1, version="0", nodes=names, options={}, lab=lab, faults=[], time=0.0))
    for one in nodes:
        model.apply(InventoryUpdate(node=one.name, value=dict(one.inventory)))
        for probe, value in one.probe_results.items():
            model.apply(ProbeResult(node=one.name, probe=probe, value=dict(value)))
    return model


def of_rules(prefix: str, nodes: list[ProbedNode]) -> list[Finding]:
    context = NodeContext(Model(), nodes)
    return [one for rule in rules_of(Domain.NODES) if rule.id.startswith(prefix) for one in rule.findings(context)]


def clashes(nodes: list[ProbedNode]) -> list[Finding]:
    return of_rules("FT31", nodes)


def sockets(nodes: list[ProbedNode]) -> list[Finding]:
    return of_rules("FT32", nodes)


def judged(nodes: list[ProbedNode]) -> list[Finding]:
    return of_rules("FT301", nodes)


def found_on(*nodes: ProbedNode, lab: str | None = None) -> Preflight:
    return preflight(model_of(*nodes, lab=lab))


def four() -> list[ProbedNode]:
    return [node(f"n06{i}") for i in range(4)]


def test_equal_nodes_are_well() -> None:
    found = found_on(*four())
    assert (found.findings, found.missing, found.exit_code) == ([], [], 0)


def test_memlock_over_ssh_is_found_once_by_its_probe_and_by_its_neighbours() -> None:
    nodes = four()
    nodes[2] = node("n062", host=memlock("n062", 65536))
    found = found_on(*nodes)
    (finding,) = found.findings
    assert (finding.severity, finding.topic, finding.nodes) == ("bad", "memlock", ("n062",))
    assert title(finding) == "memlock is 64 KiB in an SSH session: RDMA cannot register memory"
    assert "memlock: 64 KiB, not unlimited as on 3 others" in evidence(finding)[0]
    assert finding.next == ("ssh n062 ulimit -l",)
    assert found.exit_code == 1


def test_what_is_wrong_everywhere_is_one_finding() -> None:
    nodes = [node(f"n{i}", host=memlock(f"n{i}", 65536)) for i in range(64)]
    (finding,) = found_on(*nodes).findings
    assert len(finding.nodes) == 64
    assert plain(finding_lines(finding, 100, UNICODE)[0]).startswith("x n[0-63]  memlock is 64 KiB")


def test_a_difference_has_both_sides_and_the_next_command() -> None:
    nodes = four()
    nodes[1] = node("n061", inventory(host="n061", driver="550.54.15"))
    (finding,) = found_on(*nodes).findings
    assert title(finding) == ("driver: 550.54.15, not 570.86.15 as on 3 others")
    assert evidence(finding) == ()
    assert (finding.severity, finding.next) == ("warn", ("ssh n061 nvidia-smi --version",))


def test_a_tie_has_no_majority() -> None:
    (finding,) = found_on(node("a"), node("b", inventory(kernel="6.8"))).findings
    assert finding.nodes == ("a", "b")
    assert "no value has a majority" in title(finding)
    assert "5.15.0-105-generic on a, 6.8 on b" in title(finding)


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_gpus_that_miss_nvlinks_are_one_finding_even_if_no_value_has_a_majority(names: str) -> None:
    def nvlink(index: int, dark: bool) -> dict[str, Any]:
        links = [{"link": n, "state": "inactive" if dark and not n else "active", "speed": 26.5} for n in range(18)]
        return {"index": index, "links": links}

    reported = {name: {"gpus": [nvlink(at, dark=name + str(at) == "a1") for at in range(4)]} for name in names}
    (finding,) = found_on(*(node(name, nvlink=reported[name]) for name in names)).findings
    assert (finding.rule.name, finding.nodes, len(finding.facts["related"])) == ("nvlink-active", ("a",), 1)


def test_a_clock_that_is_off() -> None:
    nodes = four()
    nodes[3] = node("n063", clock=clock(-3.2))
    (finding,) = found_on(*nodes).findings
    assert title(finding) == "clock offset: -3.2 s, not about 0 s as on 3 others"
    assert finding.severity == "warn"


def test_a_clock_that_is_off_comes_before_what_all_nodes_have_in_common() -> None:
    clocks = [{**clock(90.0 if at == 3 else 0.0), "synchronised": False} for at in range(4)]
    first, second = found_on(*(node(f"n06{at}", clock=one) for at, one in enumerate(clocks))).findings
    assert (title(first), first.nodes) == ("clock offset: 90 s, not about 0 s as on 3 others", ("n063",))
    assert second.nodes == ("n060", "n061", "n062", "n063")


@pytest.mark.parametrize(
    ("other", "subject", "verdict"),
    [
        # The same machine under two names.
        ({"hostname": "n060", "boot_id": "boot-n060", "machine_id": "id-n060"}, "machine", "bad"),
        # Two containers on one machine.
        ({"hostname": "pod", "boot_id": "boot-n060", "machine_id": "m"}, "machine", "note"),
        ({"hostname": "n060", "boot_id": "b", "machine_id": "m"}, "hostname", "warn"),
        ({"hostname": "n061", "boot_id": "b", "machine_id": "id-n060"}, "machine-id", "note"),
    ],
)
def test_clashes_of_identity(other: dict[str, Any], subject: str, verdict: str) -> None:
    nodes = [node("n060"), node("n061", host=host("n061", identity=other))]
    (finding,) = clashes(nodes)
    assert (finding.topic, finding.severity, finding.nodes) == (subject, verdict, ("n060", "n061"))


def test_one_address_on_two_machines() -> None:
    data = [{"address": "10.0.0.1", "nic": "eth0"}, {"address": "10.0.1.1", "nic": "eth1"}]
    nodes = [node(name, inventory(host=name, data_addresses=data)) for name in ("a", "b")]
    (finding,) = clashes(nodes)
    assert (finding.topic, finding.severity, evidence(finding)) == ("address", "bad", ("10.0.0.1", "10.0.1.1"))


def test_one_guid_or_host_id_on_two_machines() -> None:
    guids: dict[str, Any] = {
        "cas": [{"ca": "mlx5_0", "node_guid": "0xa088c20300e312f2"}, {"ca": "x", "node_guid": "0x0"}]
    }
    nodes = [node(name, inventory(host=name, env={"NCCL_HOSTID": "x"}), ibstat=guids) for name in ("a", "b")]
    assert [(one.topic, evidence(one)) for one in clashes(nodes)] == [
        ("guid", ("0xa088c20300e312f2",)),
        ("hostid", ("x",)),
    ]


def test_the_nodes_of_a_lab_are_one_machine_by_intent() -> None:
    identity = {"identity": {"hostname": "here", "boot_id": "b", "machine_id": "m"}}
    nodes = [node(f"n{i}", host=host("n", **identity)) for i in range(2)]
    assert [one.topic for one in found_on(*nodes).findings] == ["machine"]
    assert found_on(*nodes, lab="2x4").findings == []


def test_nodes_that_wait_for_their_inspection_are_one_line() -> None:
    model = Model()
    model.apply(SessionStart(format=1, version="0", nodes=["a1", "a2", "a3"], options={}, time=0.0))
    assert preflight(model).missing == [(("a1", "a2", "a3"), "a[1-3]: not inspected yet")]


def test_what_could_not_be_inspected_is_listed_apart() -> None:
    model = model_of(*four())
    model.apply(NodeUpdate(node="n060", state=NodeState.FAILED, text="no route to host"))
    model.apply(ProbeResult(node="n061", probe="host", error="worker died"))
    model.apply(ProbeResult(node="n062", probe="host", error="worker died"))
    found = preflight(model)
    assert [line for _, line in found.missing] == ["n060: no route to host", "n[061-062]: host: worker died"]
    assert [found.verdict(name).verdict for name in ("n060", "n061", "n063")] == ["unknown", "unknown", "ok"]
    assert found.exit_code == 3


def test_many_different_texts_of_one_subject_are_one_finding() -> None:
    nodes = [node(f"n{i}", host=memlock(f"n{i}", 4096 * (i + 1))) for i in range(5)]
    (finding,) = judged(nodes)
    assert finding.nodes == ("n0", "n1", "n2", "n3", "n4")
    assert len(evidence(finding)) == 5


# -- lines ------------------------------------------------------------------------------------------------------------


def table_of(*nodes: ProbedNode) -> FactTable:
    return finished(fact_table(nodes, facts_for(nodes)))


def test_equal_nodes_share_a_column() -> None:
    nodes = [node(f"n{i:03}") for i in range(64)]
    nodes[7] = node("n007", host=memlock("n007", 65536))
    table = table_of(*nodes)
    lines = [plain(line) for line in table_lines(table, chosen_facts(table, False), 100, UNICODE)]
    assert lines[0].split() == ["n[000-006,008-063]", "n007"]
    assert lines[1].split() == ["≠", "memlock", "unlimited", "64", "KiB", "≠"]
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_many_different_nodes_are_listed_value_by_value(width: int) -> None:
    nodes = [node(f"n{i:03}", inventory(host=f"n{i:03}", kernel=f"5.{i}")) for i in range(9)]
    table = table_of(*nodes)
    lines = [plain(line) for line in table_lines(table, chosen_facts(table, True), width, ASCII)]
    assert sum("5." in line for line in lines) == 9
    assert all(line.isascii() for line in lines)
    if width >= 60:
        assert all(len(line) <= width for line in lines)


def test_short_lines_are_those_that_count() -> None:
    nodes = four()
    nodes[2] = node("n062", inventory(host="n062", driver="1", kernel="2"), host=memlock("n062", 65536))
    lines = [plain(line) for line in short_lines(found_on(*nodes), 60, 2, UNICODE)]
    assert lines[0].startswith(" x n062 memlock is 64 KiB")
    assert lines[-1] == "   and 1 more"
    assert all(len(line) <= 60 for line in lines)


# -- an earlier one ---------------------------------------------------------------------------------------------------


def changes(before: list[ProbedNode], now: list[ProbedNode]) -> PreflightChanges:
    return changes_since(earlier_of(table_of(*before)), table_of(*now))


def test_nothing_changed() -> None:
    assert not changes(four(), four()).any


def test_changes_are_listed_by_node() -> None:
    now = four()
    now[0] = node("n060", host=memlock("n060", 65536))
    now[1] = node(
        "n061", host=host("n061", identity={"hostname": "n061", "boot_id": "another", "machine_id": "id-n061"})
    )
    (memory, started) = changes(four(), now).changes
    assert (memory.title, memory.before, memory.now, memory.nodes) == ("memlock", "unlimited", "64 KiB", ["n060"])
    assert (started.title, started.nodes) == ("rebooted", ["n061"])


def test_nodes_come_and_go() -> None:
    found = changes(four()[:3], four()[1:])
    assert (found.changes, found.new, found.gone) == ([], ["n063"], ["n060"])


def test_what_moves_by_itself_is_no_change() -> None:
    now = [
        node(
            "n060",
            clock=clock(0.4),
            host=host("n060", uptime=99.0, memory={"available": 890 << 30, "shm_size": 500 << 30}),
        )
    ]
    assert not changes(four()[:1], now).any


# -- judgements of devices --------------------------------------------------------------------------------------------


def ports(*states: str) -> dict[str, Any]:
    words = {"Active": "LinkUp", "Down": "Polling"}
    found = [
        {
            "ca": f"mlx5_{i}",
            "type": "MT4129",
            "ports": [{"port": 1, "state": s, "physical_state": words[s], "rate": 400.0}],
        }
        for i, s in enumerate(states)
    ]
    return {"cas": found}


def test_a_port_that_is_down_is_named_once() -> None:
    nodes = []
    for name in ("n0", "n1", "n2"):
        down = name == "n1"
        found = inventory(host=name, cards=4)
        found["ib"][1]["state"] = "Down" if down else "Active"
        nodes.append(node(name, found, ibstat=ports("Active", "Down" if down else "Active", "Active", "Active")))
    (finding,) = found_on(*nodes).findings
    assert (finding.severity, finding.nodes) == ("bad", ("n1",))
    assert title(finding).startswith("mlx5_1/1: Down, physical state Polling: no signal")
    assert "RDMA port state: Active, Down on mlx5_1, not Active as on 2 others" in evidence(finding)[0]
    assert finding.next == ("ssh n1 ibstat mlx5_1 1",)
    assert finding.about == (Subject(Kind.NIC, "n1 mlx5_1"),)


def test_a_judgement_of_many_devices_of_many_nodes_is_one_finding() -> None:
    nodes = [node(f"n{i}", ibstat=ports("Active", *["Down"] * 7)) for i in range(64)]
    (finding,) = judged(nodes)
    assert len(finding.nodes) == 64
    assert title(finding).startswith("mlx5_1/1, mlx5_2/1, mlx5_3/1 and 4 more: Down")
    assert evidence(finding)[0].startswith("n[0-63]: mlx5_1/1: Down")


def test_what_may_be_meant_so_does_not_count() -> None:
    unused = ports("Down")
    unused["cas"][0]["ports"][0]["physical_state"] = "Disabled"
    found = found_on(*[node(f"n{i}", ibstat=unused) for i in range(2)])
    assert [finding.severity for finding in found.findings] == ["note"]
    assert found.exit_code == 0


# -- the interfaces of NCCL -------------------------------------------------------------------------------------------


def wired(name: str, *interfaces: str, setting: str | None = None) -> ProbedNode:
    addresses = [{"address": "10.0.0.1", "family": 4}]
    nics = [{"name": interface, "state": "up", "addresses": addresses} for interface in interfaces]
    return node(name, inventory(host=name, nics=nics, env={"NCCL_SOCKET_IFNAME": setting} if setting else {}))


def test_an_interface_that_leads_nowhere() -> None:
    nodes = [wired("a", "lo", "eth0"), wired("b", "lo", "docker0"), wired("c", "eno1", setting="eth")]
    reported = sorted((one.nodes, title(one)) for one in sockets(nodes))
    assert reported == [
        (("b",), "NCCL picks docker0 for its bootstrap, which leads to no other node"),
        (("c",), "NCCL_SOCKET_IFNAME=eth matches no interface that has an address: NCCL does not start"),
    ]
    assert sockets(nodes[1:2]) == []
    assert sockets([node("a"), node("b")]) == []


# -- among the causes of a session ------------------------------------------------------------------------------------


def test_what_counts_is_among_the_findings_and_many_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = four()
    assert diagnose(model_of(*nodes)).findings == []
    nodes[2] = node("n062", inventory(host="n062", driver="1"), host=memlock("n062", 65536))
    model = model_of(*nodes)
    found = diagnose(model).findings
    assert [(one.rule.id, one.severity) for one in found] == [("FT301", "bad"), ("FT302", "warn")]
    assert found[0].next[0] == "ssh n062 ulimit -l"
    monkeypatch.setattr(diagnosis, "_MOST_LISTED", 1)
    bad, more = diagnose(model).findings
    assert title(bad).startswith("memlock is 64 KiB"), "what is bad is named"
    assert (title(more), evidence(more)[0][:12]) == ("preflight: 1 warning", "n062: driver")


@pytest.mark.parametrize(("different", "listed"), [(3, 3), (4, 1)])
def test_three_differences_are_listed_and_four_are_one_line(different: int, listed: int) -> None:
    values: dict[str, Any] = {"kernel": "6.8", "os": "Debian 12", "driver": "1", "cpus": 8}
    odd = dict(list(values.items())[:different])
    found = diagnose(model_of(*(node(name) for name in "abc"), node("d", inventory(host="d", **odd)))).findings
    assert len(found) == listed
    assert all((one.rule.id == "FT302") is (listed == 3) for one in found)


def test_it_is_computed_again_only_when_more_was_found() -> None:
    model = model_of(*four())
    first = latest_preflight(model)
    model.apply(LogEntry(level="info", text="x"))
    assert latest_preflight(model) is first
    model.apply(ProbeResult(node="n060", probe="host", value=memlock("n060", 65536)))
    assert latest_preflight(model).exit_code == 1


def test_verdicts_of_nodes_and_exit_codes() -> None:
    good = preflight(model_of(*(node(name) for name in "abc")))
    assert (good.exit_code, good.verdict("a")) == (0, ("ok", ()))
    bad = preflight(model_of(*(node(name) for name in "ab"), node("c", host=memlock("c", 65536))))
    assert (bad.exit_code, bad.verdict("a")) == (1, ("ok", ()))
    assert bad.verdict("c").verdict == "bad"
    assert bad.verdict("c").rules == tuple(dict.fromkeys(one.rule.id for one in bad.findings))
    assert (bad.code_from(Severity.BAD), bad._replace(findings=[]).exit_code) == (1, 0)
    vague = bad._replace(findings=[], missing=[(("c",), "no nvidia-smi")])
    assert (vague.exit_code, vague.verdict("c").verdict, vague.verdict("a").verdict) == (3, "unknown", "ok")
    noted = [one.replace(severity=Severity.NOTE) for one in bad.findings]
    assert (bad._replace(findings=noted).exit_code, bad._replace(findings=noted).verdict("c").verdict) == (0, "ok")
    warned = bad._replace(findings=[one.replace(severity=Severity.WARN) for one in bad.findings])
    assert (warned.exit_code, warned.code_from(Severity.BAD), warned.verdict("c").verdict) == (1, 0, "warn")


@pytest.mark.parametrize(
    ("verdicts", "severity"),
    [
        (("bad", "failed", "error", "timeout", "fatal"), "bad"),
        (("warn", "warning", "slow", "inconclusive"), "warn"),
        (("note", "ok", "odd"), "note"),
    ],
)
def test_the_severity_of_what_a_judge_returns(verdicts: tuple[str, ...], severity: str) -> None:
    assert {str(severity_of(verdict)) for verdict in verdicts} == {severity}


def test_in_a_lab_nccl_may_pick_the_loopback() -> None:
    nodes = [wired("a", "lo", setting="lo"), wired("b", "lo", setting="ib")]
    assert {one.rule.id for one in found_on(*nodes).findings} >= {"FT320", "FT321"}
    assert not {one.rule.id for one in found_on(*nodes, lab="2x4").findings} & {"FT320", "FT321"}


def test_the_command_about_a_shared_host_name_is_for_the_node_that_came_last() -> None:
    same = [host(name, identity={"hostname": "h", "boot_id": name, "machine_id": name}) for name in ("a", "b", "c")]
    (one,) = clashes([node(name, host=each) for name, each in zip("abc", same, strict=True)])
    assert one.next == ("ssh c hostnamectl",)


def test_what_one_machine_shares_with_itself_is_no_clash() -> None:
    identity = {"hostname": "h", "boot_id": "b", "machine_id": "m"}
    more = inventory(env={"NCCL_HOSTID": "x"})
    assert [one.topic for one in clashes([node(name, more, host=host("h", identity=identity)) for name in "ab"])] == [
        "machine"
    ]
    unknown = [node(name, more, host=host(name, identity={})) for name in "ab"]
    assert [one.topic for one in clashes(unknown)] == ["hostid"]


def test_only_facts_of_interfaces_are_about_an_interface_that_is_down() -> None:
    nodes = [node(f"n{at}", inventory(host=f"n{at}", data_addresses=[{"address": f"10.0.0.{at}"}])) for at in range(4)]
    value = inventory(host="n1", driver="1", down_addresses=[{"nic": "eth1"}, {"nic": "eth1"}])
    found = {one.topic: one.about for one in found_on(nodes[0], node("n1", value), *nodes[2:]).findings}
    assert found == {"addresses_number": (Subject(Kind.NIC, "n1 eth1"),), "driver": ()}


DSCPS = {str(priority): list(range(8 * priority, 8 * priority + 8)) for priority in range(8)}


def roce(name: str, env: dict[str, str] | None = None, **more: Any) -> ProbedNode:
    start = {"trust": "dscp", "dscp": DSCPS, "pfc": [3], "ecn_np": [3], "ecn_rp": [3, 4], "class": None}
    ports = [{"ca": f"mlx5_{n}", "port": 1, "interface": f"eth{n}", **start, **more} for n in (0, 1)]
    return node(name, inventory(host=name, env=env or {}), rdma={"ports": [], "qos": ports, "conf": {}})


def with_qos(name: str, env: dict[str, str], key: str, value: Any) -> ProbedNode:
    made = roce(name, env)
    return made._replace(probe_results={**made.probe_results, "rdma": {**made.probe_results["rdma"], key: value}})


def classes(*nodes: ProbedNode, env: tuple[str, ...] = ()) -> list[Finding]:
    model = model_of(*nodes)
    model.options["env"] = list(env)
    return [one for one in preflight(model).findings if one.rule.id == "FT150"]


def test_a_class_of_nccl_without_flow_control() -> None:
    pfc, ecn = classes(*(roce(name, {"NCCL_IB_TC": "0x2e"}) for name in "ab"))
    assert (pfc.severity, pfc.nodes) == (Severity.WARN, ("a", "b"))
    assert title(pfc) == "mlx5_0/1, mlx5_1/1: NCCL sends in priority 1, which has no PFC; priority 3 has it"
    assert evidence(pfc)[0] == "NCCL_IB_TC=46: DSCP 11, and the port trusts dscp"
    assert evidence(pfc)[1] == "DSCP 24-31 is in such a priority: NCCL_IB_TC is four times the DSCP"
    assert pfc.next == ("ssh a mlnx_qos -i eth0",)
    assert "which has no ECN; priority 3 has it" in title(ecn)


@pytest.mark.parametrize(
    "nodes",
    [
        [roce("a", {"NCCL_IB_TC": "106"})],
        [with_qos("a", {}, "conf", {"NCCL_IB_TC": "106"})],
        [roce("a", {"NCCL_IB_TC": "0"}, **{"class": 106})],
        [roce("a", {"NCCL_IB_TC": "0"}, pfc=[], ecn_np=[], ecn_rp=[])],
        [roce("a", {"NCCL_IB_TC": "0"}, pfc=None, ecn_np=None)],
        [roce("a", {"NCCL_IB_TC": "0"}, trust=None)],
        [roce("a", {"NCCL_IB_TC": "0"}, dscp=None)],
        [roce("a", trust="pcp", dscp=None)],
        [roce("a", {"NCCL_IB_SL": "3", "NCCL_IB_TC": "106"}, trust="pcp", dscp=None)],
        [node("a", inventory(host="a", env=None), rdma={"qos": [{"trust": "dscp", "dscp": DSCPS, "pfc": [3]}]})],
    ],
)
def test_no_class_is_at_fault_that_is_right_or_not_known(nodes: list[ProbedNode]) -> None:
    assert classes(*nodes) == []


def test_a_variable_of_the_session_replaces_the_one_of_a_node() -> None:
    assert classes(roce("a", {"NCCL_IB_TC": "0"}), env=("NCCL_IB_TC=106",)) == []


def test_a_class_that_nothing_sets_is_a_note() -> None:
    found = classes(roce("a"))
    assert {one.severity for one in found} == {Severity.NOTE}
    assert evidence(found[0])[0] == "NCCL_IB_TC is not set: DSCP 0, and the port trusts dscp"


def test_a_dscp_is_ignored_where_tags_are_trusted() -> None:
    (found, _) = classes(roce("a", {"NCCL_IB_TC": "106"}, trust="pcp", dscp=None))
    assert found.severity is Severity.WARN
    assert evidence(found) == ("NCCL_IB_SL is not set; NCCL_IB_TC=106 is ignored, and the port trusts pcp",)


def test_a_node_whose_trust_or_pfc_differs() -> None:
    env = {"NCCL_IB_TC": "106"}
    nodes = [roce(name, env) for name in "abc"]
    odd = roce("d", env, pfc=[3, 4])
    dicts = odd.probe_results["rdma"]["qos"]
    dicts[1]["trust"] = "pcp"
    found = {one.topic: title(one) for one in found_on(*nodes, odd).findings if one.rule.id == "FT302"}
    assert found == {
        "roce_trust": "RoCE trust: dscp, pcp on mlx5_1/1, not dscp as on 3 others",
        "roce_pfc": "RoCE priorities with PFC: 3-4, not 3 as on 3 others",
    }


def test_nodes_whose_files_of_nccl_choose_another_class() -> None:
    conf = {"NCCL_IB_TC": "106"}
    nodes = [with_qos(name, {}, "conf", conf) for name in "abc"]
    found = found_on(*nodes, with_qos("d", {}, "conf", {**conf, "NCCL_IB_SL": "3"})).findings
    assert [title(one) for one in found] == [
        "RoCE class in NCCL's files: NCCL_IB_SL=3 NCCL_IB_TC=106, not NCCL_IB_TC=106 as on 3 others"
    ]


def test_a_tool_that_is_missing_on_one_node_is_no_difference() -> None:
    env = {"NCCL_IB_TC": "106"}
    nodes = [roce("a", env), roce("b", env), roce("c", env, trust=None, dscp=None, pfc=None, ecn_np=None)]
    assert found_on(*nodes).findings == []


def _odd_facts(*nodes: ProbedNode) -> set[str]:
    return {odd.fact.name for odd in finished(fact_table(list(nodes), facts_for(list(nodes)))).odd}


def test_another_python_first_in_path_and_a_missing_pytorch_differ() -> None:
    good = inventory(
        tools={"python3": "/usr/bin/python3"},
        pythons=[{"path": "/usr/bin/python3", "version": "3.11.7", "torch": "2.6"}],
    )
    other = inventory(
        tools={"python3": "/opt/py312/python3"}, pythons=[{"path": "/opt/py312/python3", "version": "3.12.1"}]
    )
    nodes = [node(f"h{at}", dict(good, host=f"h{at}")) for at in range(3)]
    assert _odd_facts(*nodes, node("h3", dict(other, host="h3"))) >= {"torch", "python"}
    found = [one for one in found_on(*nodes, node("h3", dict(other, host="h3"))).findings if one.topic == "torch"]
    assert [(one.nodes, title(one)) for one in found] == [(("h3",), "PyTorch: none, not 2.6 as on 3 others")]
    slow = dict(other, host="h3", pythons=[{"path": "/opt/py312/python3", "error": "no answer within 5 s"}], tools={})
    assert not _odd_facts(*nodes, node("h3", slow)) & {"torch", "python"}, "what did not answer is unknown"


def test_interfaces_whose_order_is_not_known_are_no_difference() -> None:
    names = ("eth0", "eth1", "mgmt0")
    nics = [{"name": one, "state": "up", "addresses": [{"address": f"10.0.{at}.1"}]} for at, one in enumerate(names)]
    indexes = {"eth0": 3, "eth1": 4, "mgmt0": 2}
    known = {"port_range": [1, 2], "indexes": indexes}
    nodes = [node(name, inventory(host=name, nics=nics), host=host(name, network=known)) for name in ("h0", "h2", "h3")]
    silent = ProbedNode("h1", inventory(host="h1", nics=nics), {})
    assert "nccl_interfaces" not in _odd_facts(*nodes, silent)
    placed = [dict(nic, index=indexes[str(nic["name"])]) for nic in nics]
    assert "nccl_interfaces" not in _odd_facts(*nodes, silent._replace(inventory=inventory(host="h1", nics=placed)))


def test_an_interface_that_a_variable_names_wrongly_is_reported_once() -> None:
    nics = [{"name": "eth0", "state": "up", "index": 2, "addresses": [{"address": "10.0.0.1"}]}, {"name": "lo"}]
    nodes = [node(f"h{at}", inventory(host=f"h{at}", nics=nics)) for at in range(3)]
    wrong = {"NCCL_SOCKET_IFNAME": "ib9", "GLOO_SOCKET_IFNAME": "lo"}
    found = found_on(*nodes, node("h3", inventory(host="h3", nics=nics, env=wrong))).findings
    assert [(one.rule.id, one.nodes) for one in found] == [("FT322", ("h3",)), ("FT320", ("h3",))]
    assert title(found[0]) == (
        "GLOO_SOCKET_IFNAME: lo leads to no other node: Gloo connects no ranks of different nodes"
    )
    assert any("interfaces NCCL uses" in line for line in evidence(found[1]))
