"""The checks of vendors' catalogues: each finds its fault, and nothing on a node that is healthy or unknown."""

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import RULES, diagnose
from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.preflight.checks import ProbeJudgement, latest_preflight, preflight
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.events import InventoryUpdate, PhaseStart, ProbeResult, SessionStart
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from tests.unit.model.broken_nodes import BROKEN, HEALTHY, Results, blank, gpu, gpus

CHECKS = [rule for rule in RULES if isinstance(rule, ProbeJudgement) and rule.check_name]


def fired(results: Results) -> list[str]:
    context = NodeContext(Model(), [ProbedNode("n0", {}, results)])
    return [found.rule.id for rule in CHECKS for found in rule.check(context)]


def test_every_check_is_a_rule_and_has_a_fault() -> None:
    assert [rule.id for rule in CHECKS] == [row["id"] for row in load("node_checks")["check"]] == list(BROKEN)
    assert all("Source: " in rule.description and rule.next_step for rule in CHECKS)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_check_finds_its_fault_alone(rule: str) -> None:
    assert fired({**HEALTHY, **BROKEN[rule]}) == [rule]


def test_a_healthy_node_has_none() -> None:
    assert fired(HEALTHY) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_what_is_unknown_is_no_fault(rule: str) -> None:
    assert fired(blank(BROKEN[rule])) == []


def test_a_little_work_in_a_low_state_is_no_fault() -> None:
    assert fired(gpus(gpu(busy=True, utilization=2, perf="P8"))) == []


def test_cpus_that_smt_leaves_out_are_no_fault() -> None:
    results = {"host": {"processors": {**BROKEN["FT134"]["host"]["processors"], "smt": "off"}}}
    assert fired(results) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_a_check_is_at_most_as_severe_as_it_declares(rule: str) -> None:
    context = NodeContext(Model(), [ProbedNode("n0", {}, {**HEALTHY, **BROKEN[rule]})])
    (found,) = (found for one in CHECKS for found in one.check(context))
    assert found.severity.rank >= found.rule.severity.rank


@pytest.mark.parametrize("rule", BROKEN)
def test_a_bad_finding_about_a_node_counts_in_the_exit_code(rule: str) -> None:
    model = Model()
    model.apply(SessionStart(nodes=["n0"], options={"probes": ["host"]}, time=1.0))
    model.apply(InventoryUpdate(node="n0", value={"kernel": "x"}, time=1.0))
    for probe, value in {**HEALTHY, **BROKEN[rule]}.items():
        model.apply(ProbeResult(node="n0", probe=probe, value=value, time=1.0))
    model.apply(PhaseStart(name="done", total=0, time=1.0))
    (found,) = (one for one in latest_preflight(model).findings if one.rule.id == rule)
    assert diagnose(model).code == (1 if found.severity is Severity.BAD else 0)


def test_a_drained_node_is_a_finding_with_its_reason(make_model: Callable[[], Any]) -> None:
    maker = make_model().start(["n060", "n061", "n062"]).endpoints({"n060": 1, "n061": 1, "n062": 1})
    maker.add("look", node="n060", probe="slurm", value={"state": "mixed"})
    maker.add("look", node="n061", probe="slurm", value={"state": "drained", "reason": "link flaps\x1b[31m"})
    maker.add("look", node="n062", probe="slurm", value={"state": "down", "reason": "fell off the bus"})
    found = [one for one in preflight(maker.model()).findings if one.rule.id == "FT330"]
    assert [(one.nodes, one.severity, title(one)) for one in found] == [
        (("n062",), Severity.BAD, "down in Slurm: fell off the bus"),
        (("n061",), Severity.WARN, "drained in Slurm: link flaps[31m"),
    ]
    assert found[0].next == ("scontrol show node n062",)


def test_leaves_of_slurm_place_endpoints_whose_fabric_is_unknown(make_model: Callable[[], Any]) -> None:
    maker = make_model().start(["n060", "n061"])
    maker.add("look", node="n060", probe="slurm", value={"state": "idle", "leaf": "leaf1"})
    maker.endpoints({"n060": 2, "n061": 2})
    maker.add("look", node="n061", probe="slurm", value={"state": "idle", "leaf": "leaf2"})
    model: Model = maker.model()
    assert model.table.leaves == {0: "leaf1", 1: "leaf1", 2: "leaf2", 3: "leaf2"}
    assert model.table.class_between("n060:0", "n061:0") == "cross-leaf"
