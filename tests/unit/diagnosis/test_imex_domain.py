"""IMEX: nodes that are not ready, connections that are missing, and versions that differ."""

from functools import partial
from typing import Any

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.preflight.imex_domain import ImexNotReady, ImexVersion
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui_node.parsers.nvidia import imex_ctl
from tests.unit.model.cluster import inventory, node
from tests.unit.probes.places import sample

DRIVER = "580.105.08"
TRAYS = ["n000", "n001", "n002", "n003"]


def domain(states: dict[int, str] | None = None, version: str = DRIVER, **of: Any) -> dict[str, Any]:
    """Return a domain of four trays as each of them sees it; `apart` are missing connections, `versions` others."""
    versions = of.get("versions", {})
    nodes = [
        {
            **{"node": at, "host": f"192.0.2.{at}", "hostname": None, "state": (states or {}).get(at, "READY")},
            **{"version": versions.get(at, version), "own": None, "connected": 3},
        }
        for at in range(4)
    ]
    apart = [{"from": one, "to": other, "state": why} for one, other, why in of.get("apart", ())]
    return {"domain": "UP", "nodes": nodes, "apart": apart}


def _is(number: int, one: dict[str, Any]) -> bool:
    return bool(one["node"] == number)


def trays(seen: dict[str, Any], count: int = 4, gpu: str = "NVIDIA GB200", answers: bool = True) -> list[ProbedNode]:
    found = []
    for at, name in enumerate(TRAYS[:count]):
        value = imex_ctl.seen_by(seen, partial(_is, at))
        if not answers and value["state"] == "UNAVAILABLE":
            value = {"nodes": [], "apart": [], "state": None, "version": None}
        address = [{"address": f"192.0.2.{at}", "dev": "eth0"}]
        own = inventory(gpu, 4, host=name, driver=DRIVER, data_addresses=address)
        found.append(node(name, own, imex={"installed": True, "error": None, **value}))
    return found


def findings(nodes: list[ProbedNode]) -> list[Finding]:
    context = NodeContext(Model(), nodes)
    return [*ImexNotReady().findings(context), *ImexVersion().findings(context)]


def reported(nodes: list[ProbedNode]) -> list[str]:
    return [f"{one.rule.id} {','.join(one.nodes)}: {title(one)}" for one in findings(nodes)]


def test_a_domain_that_is_ready_is_silent() -> None:
    assert findings(trays(domain())) == []


def test_one_tray_is_down_and_the_others_are_its_evidence() -> None:
    seen = domain({2: "UNAVAILABLE"}, apart=[(at, 2, "disconnected") for at in (0, 1, 3)])
    for answers in (True, False):
        (found,) = findings(trays(seen, answers=answers))
        assert (found.rule.id, found.nodes, found.severity) == ("FT127", ("n002",), Severity.BAD)
        assert "IMEX is UNAVAILABLE" in title(found)
        assert found.next[0] == "ssh n002 nvidia-imex-ctl -N -H"
    assert "n[000-001,003] report it" in evidence(found)


def test_trays_that_wait_are_evidence_for_the_one_that_they_wait_for() -> None:
    (found,) = findings(trays(domain({0: "WAITING_FOR_PEERS", 1: "WAITING_FOR_PEERS", 2: "UNAVAILABLE"})))
    assert found.nodes == ("n002",)
    assert "n[000-001] wait for it" in evidence(found)


def test_where_it_runs_nowhere_it_may_start_with_a_job() -> None:
    (found,) = findings(trays(domain(dict.fromkeys(range(4), "UNAVAILABLE"))))
    assert (found.severity, len(found.nodes)) == (Severity.WARN, 4)


def test_a_tray_outside_the_session_is_worth_a_note() -> None:
    (found,) = findings(trays(domain({3: "UNAVAILABLE"}, apart=[(0, 3, "disconnected")]), count=3))
    assert found.severity is Severity.NOTE
    assert "IMEX of 192.0.2.3 is UNAVAILABLE" in title(found)
    assert "not in this session" in evidence(found)


def test_a_list_of_nodes_that_differs_names_the_tray() -> None:
    apart = [(at, 1, "node map mismatch") for at in (0, 2, 3)] + [(1, at, "node map mismatch") for at in (0, 2, 3)]
    assert reported(trays(domain(apart=apart))) == [
        "FT127 n001: IMEX has no connection to n[000,002-003]: node map mismatch"
    ]


def test_a_version_that_does_not_fit_the_driver() -> None:
    assert reported(trays(domain(versions={1: "580.95.05"}))) == [
        f"FT128 n001: IMEX 580.95.05 does not fit driver {DRIVER}"
    ]
    # Older versions of IMEX show two parts of theirs.
    assert reported(trays(domain(version="580.105"))) == []
    assert reported(trays(domain(version="NO_GPU"))) == []


def test_versions_of_a_domain_in_the_output_of_a_command() -> None:
    values = imex_ctl.parse(sample("imex/N-map-mismatch.txt")).values
    nodes = [ProbedNode("n", {}, {"imex": imex_ctl.seen_by(values, lambda _: False)})]
    assert reported(nodes) == [
        "FT127 n: IMEX has no connection to 192.0.2.10: node map mismatch",
        "FT128 n: IMEX 570.133 of 192.0.2.12, 570.172 on the other nodes",
    ]


def test_a_machine_without_nvlink_between_nodes_needs_no_imex() -> None:
    assert findings(trays(domain({2: "UNAVAILABLE"}), gpu="NVIDIA H100 80GB HBM3")) == []


def test_values_of_any_shape() -> None:
    for value in ({"nodes": [{"node": []}], "apart": [{"from": {}, "to": None}]}, {"nodes": 3, "state": 7}):
        findings([node("n000", inventory("NVIDIA GB200"), imex=value)])
