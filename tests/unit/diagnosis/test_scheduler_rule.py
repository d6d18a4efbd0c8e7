"""Nodes that Slurm has taken out of service, and leaf switches of its topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title


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
