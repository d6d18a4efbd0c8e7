"""Experiments about findings: what is planned, and what outcomes do to confidence, evidence and rivals."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.experiment import EXPERIMENTS, ConfirmationFact, confirmed, first_planned, planned
from fabtui.diagnosis.finding import RULES, ExperimentKind, Finding, Kind, Subject
from fabtui.model.events import (
    EXPERIMENT_ARM,
    Experiment,
    InventoryUpdate,
    Measured,
    NodeState,
    NodeUpdate,
    event_from_json,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json, evidence
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

Pair = tuple[str, str]


def played(
    model: Model, experiments: list[Experiment], result: Callable[[Experiment, Pair], float | str | None]
) -> None:
    """Apply experiments with the results of their pairs: a value, an error or a transport, or None for no result."""
    for one in experiments:
        for pair in () if one.problem else (*one.pairs, *one.controls):
            found = result(one, pair)
            verdict = Verdict.FAILED if isinstance(found, str) and "/" not in found else Verdict.OK
            dead, text = verdict is Verdict.FAILED, isinstance(found, str)
            changes: dict[str, Any] = {"value": None if dead else 45.0 if text else found}
            if text:
                changes["error" if dead else "transport"] = found
            if found is not None:
                row = Measurement(Layer.P2P, *pair, verdict, unit="GB/s", bytes=8, time=3.0, arm=one.arm, **changes)
                model.apply(Measured(measurements=[row], time=3.0))
        model.apply(event_from_json({**one.to_json(), "time": 4.0}))


def fact(finding: Finding) -> ConfirmationFact:
    found = finding.facts["confirmation"]
    assert isinstance(found, ConfirmationFact)
    return found


def by_trial(experiments: list[Experiment]) -> dict[str, Experiment]:
    return {one.trial: one for one in experiments}


def dead_pair(kind: str = "gpu") -> Model:
    return fabric("ab", 4, dead_if(lambda s, d: (s, d) == ("a:1", "b:2")), kind=kind)


def with_hcas(model: Model, layer: str = "InfiniBand", gids: Mapping[str, list[int]] | None = None) -> Model:
    for at, node in enumerate(list(model.nodes)):
        ports = [
            {
                "ca": f"mlx5_{index}",
                "state": "Active",
                "link_layer": layer,
                "gids": [
                    {"index": number, "gid": f"::ffff:10.0.{index}.{at + 1}", "type": "RoCE v2"}
                    for number in (gids or {}).get(node, [])
                ],
            }
            for index in range(4)
        ]
        model.apply(InventoryUpdate(node=node, value={"ib": ports}, time=2.0))
    return model


def test_every_declared_trial_is_defined_and_used() -> None:
    assert set(EXPERIMENTS) == set(ExperimentKind)
    assert {trial for rule in RULES for trial in rule.experiments} == set(ExperimentKind)


def test_a_dead_pair_is_tested_alone_with_partners_and_over_tcp() -> None:
    model = dead_pair()
    (one,) = diagnose(model).findings
    plan = by_trial(planned(model, one))
    assert list(plan) == ["alone", "other-partners", "sockets"]
    assert all(len((*each.pairs, *each.controls)) <= 8 for each in plan.values())
    assert plan["alone"].pairs == [("a:1", "b:2")]
    assert plan["alone"].env == {}
    ends = plan["other-partners"].pairs
    assert ends[0][0] == "a:1"
    assert ends[1][1] == "b:2"
    assert ("a:1", "b:2") not in ends
    assert plan["sockets"].env == {"NCCL_NET": "Socket"}
    assert plan["sockets"].arm == f"{EXPERIMENT_ARM}NCCL_NET=Socket"
    assert plan["sockets"].controls
    assert not {"a:1", "b:2"} & {end for pair in plan["sockets"].controls for end in pair}


def test_cpu_ranks_have_no_experiments_of_nccl_and_say_so() -> None:
    model = dead_pair("cpu")
    (one,) = diagnose(model).findings
    plan = by_trial(planned(model, one))
    assert [trial for trial, each in plan.items() if each.problem] == ["sockets"]
    played(model, list(plan.values()), lambda each, pair: "gone" if pair == ("a:1", "b:2") else 45.0)
    assert evidence(diagnose(model).findings[0])[2] == (
        "not tried: NCCL_NET=Socket needs ranks of NCCL; these are CPU ranks"
    )


def test_a_dead_pair_that_passes_over_tcp_blames_rdma() -> None:
    model = dead_pair()
    (before,) = diagnose(model).findings

    def result(one: Experiment, pair: Pair) -> float | str:
        return "gone" if pair == ("a:1", "b:2") and not one.env else 45.0

    played(model, planned(model, before), result)
    (after,) = diagnose(model).findings
    assert after.cells == before.cells, "the grid is as before"
    assert model.latest(Layer.P2P, "a:1", "b:2") is not None
    assert list(model.results.arms()) == []
    lines = evidence(after)
    assert lines[0] == "confirmed: a:1 > b:2 fails alone, so other traffic is not the reason"
    assert lines[1].endswith("with other partners, so the endpoints work, and the path does not")
    assert lines[2] == (
        "confirmed: a:1 > b:2 passes with NCCL_NET=Socket (45 GB/s), so RDMA is at fault, and the GPUs and IP are not"
    )
    assert lines[3] == "98 % confidence after 3 experiments"
    assert after.confidence == pytest.approx(64 / 65)
    assert as_json(after)["facts"]["confirmation"]["after"] == after.confidence


def test_a_pair_that_passes_alone_is_refuted() -> None:
    model = dead_pair()
    (one,) = diagnose(model).findings
    alone = [each for each in planned(model, one) if each.trial == ExperimentKind.ALONE]
    played(model, alone, lambda each, pair: 45.0)
    (after,) = diagnose(model).findings
    assert fact(after).lines == (
        "refuted: a:1 > b:2 passes alone, so only other traffic, or chance, makes it look bad",
    )
    assert after.confidence == pytest.approx(0.2)


def test_controls_that_fail_as_well_allow_no_conclusion() -> None:
    model = dead_pair()
    (one,) = diagnose(model).findings
    tcp = [each for each in planned(model, one) if each.trial == ExperimentKind.SOCKET]
    played(model, tcp, lambda each, pair: "no interface")
    (after,) = diagnose(model).findings
    assert fact(after).lines[0].startswith("tested: a:1 > b:2 fails with NCCL_NET=Socket (no interface), and so do ")
    assert fact(after).after is None
    assert after.confidence == one.confidence


def test_another_hca_separates_a_gpu_from_its_nic() -> None:
    def slow(src: str, dst: str) -> float:
        return 0.4 if "a:1" in (src, dst) and src[0] != dst[0] else 1.0

    model = with_hcas(fabric("abc", 4, slow))
    (one,) = diagnose(model).findings
    assert one.subject == Subject(Kind.NIC, "a mlx5_1")
    gpu = Subject(Kind.GPU, "a:1")
    one = one.replace(rivals=(gpu,), confidence=0.6)
    plan = by_trial(planned(model, one))
    assert plan["other-hca"].env == {"NCCL_IB_HCA": "^=mlx5_1"}
    assert all(pair[0][0] != pair[1][0] for pair in plan["other-hca"].pairs)
    played(model, [plan["other-hca"]], lambda each, pair: 18.0 if "a:1" in pair else 45.0)
    after = confirmed(model, one)
    assert (after.subject, after.rivals) == (gpu, (one.subject,))
    assert fact(after).lines[0].startswith("refuted: ")
    assert fact(after).lines[1] == "GPU a:1 is likelier than NIC mlx5_1 of a"
    assert fact(after).before == 0.6
    played(model, [plan["other-hca"]], lambda each, pair: 44.0)
    again = confirmed(model, one)
    assert again.subject == one.subject
    assert again.confidence is not None
    assert again.confidence > 0.9
    assert again.rivals == ()


def test_a_rival_is_separated_by_pairs_that_it_does_not_carry() -> None:
    model = fabric("abc", 2, lambda s, d: 0.3 if s == "a:1" and d[0] != "a" else 1.0)
    (one,) = diagnose(model).findings
    node, gpu = Subject(Kind.NODE, "a"), Subject(Kind.GPU, "a:1")
    one = one.replace(blames=node, rivals=(gpu,), confidence=0.55)
    plan = by_trial(planned(model, one))["other-partners"]
    assert {pair[0] for pair in plan.pairs} == {"a:0"}
    played(model, [plan], lambda each, pair: 45.0)
    after = confirmed(model, one)
    assert after.subject == gpu
    assert fact(after).lines[1] == "GPU a:1 is likelier than node a"
    played(model, [plan], lambda each, pair: 13.0 if "a:0" in pair else 45.0)
    assert confirmed(model, one).subject == node


def test_a_slow_pair_is_compared_with_controls_of_the_same_environment() -> None:
    model = fabric("abc", 4, lambda s, d: 0.4 if (s, d) == ("a:1", "b:1") else 1.0)
    (one,) = diagnose(model).findings
    tcp = by_trial(planned(model, one))["sockets"]
    assert len(tcp.controls) == 2
    played(model, [tcp], lambda each, pair: 3.0)
    assert fact(diagnose(model).findings[0]).lines[0].startswith("confirmed: a:1 > b:1 passes with NCCL_NET=Socket")
    played(model, [tcp], lambda each, pair: 1.0 if pair == ("a:1", "b:1") else 3.0)
    assert fact(diagnose(model).findings[0]).lines[0] == (
        "tested: a:1 > b:1 stays slow with NCCL_NET=Socket (1 GB/s), so it is not RDMA alone"
    )
    played(model, [tcp], lambda each, pair: None)
    assert fact(diagnose(model).findings[0]).lines[0] == "tested: no result with NCCL_NET=Socket: no conclusion"


def test_a_gid_index_is_tried_where_all_ports_share_another_one() -> None:
    model = with_hcas(dead_pair(), "Ethernet", {"a": [3, 5], "b": [5, 7]})
    (one,) = [each for each in diagnose(model).findings if each.cells]
    assert by_trial(planned(model, one))["gid-index"].env == {"NCCL_IB_GID_INDEX": "5"}
    none = with_hcas(dead_pair(), "Ethernet", {"a": [3], "b": [7]})
    (one,) = [each for each in diagnose(none).findings if each.cells]
    assert "gid-index" not in by_trial(planned(none, one))


def test_transport_rules_are_judged_by_the_transport() -> None:
    rule = next(rule for rule in RULES if rule.name == "no-peer-to-peer")
    model = fabric("a", 4, lambda s, d: 1.0)
    finding = rule.finding("a", cells=[("a:0", "a:1")], blames=Subject(Kind.NODE, "a"))
    (plan,) = planned(model, finding)
    assert plan.env == {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"}
    played(model, [plan], lambda each, pair: "P2P/CUMEM")
    assert "the hardware allows P2P" in fact(confirmed(model, finding)).lines[0]
    played(model, [plan], lambda each, pair: "SHM/direct")
    line = fact(confirmed(model, finding)).lines[0]
    assert line.startswith(
        "confirmed: a:0 > a:1 takes another path with NCCL_P2P_DISABLE=0 NCCL_P2P_LEVEL=SYS (45 GB/s "
    )
    assert "over SHM/direct), so it is not a variable" in line


def test_lost_nodes_and_earlier_sweeps_count_for_nothing() -> None:
    model = dead_pair()
    (one,) = diagnose(model).findings
    plan = planned(model, one)
    played(model, plan, lambda each, pair: 45.0)
    model.sweep_since = 5.0
    assert "confirmation" not in diagnose(model).findings[0].facts
    model.apply(NodeUpdate(node="b", state=NodeState.LOST, text="Connection lost", time=6.0))
    assert planned(model, one) == []


def test_experiments_of_a_later_version_are_left_out() -> None:
    model = dead_pair()
    (one,) = diagnose(model).findings
    (alone, *_) = planned(model, one)
    model.apply(event_from_json({**alone.to_json(), "trial": "unheard-of", "pairs": [["x", "y"]], "time": 4.0}))
    assert diagnose(model).findings == [one]


def test_the_first_findings_that_have_experiments_are_confirmed() -> None:
    model = fabric("abcd", 4, dead_if(lambda s, d: s[0] < d[0] and s[2] == d[2] == str("abcd".index(s[0]))))
    found = diagnose(model).findings
    assert {one.rule for one in first_planned(model, found)} <= {one.rule.id for one in found}
    assert len({tuple(one.subject) for one in first_planned(model, found)}) <= 5


NIC = Subject(Kind.NIC, "a mlx5_1")
IB, GDR, SOCKET, P2P, SHM = "NET/IB/0", "NET/IB/0/GDRDMA", "NET/Socket/eth0", "P2P/CUMEM", "SHM/direct"


def about(
    trial: ExperimentKind, pair: Pair, value: float | None, path: str, blames: Subject = NIC
) -> tuple[Model, Finding]:
    """Return a finding that has an experiment, about a pair that is dead or has a value (GB/s) over a transport."""
    model = with_hcas(fabric("ab", 4, dead_if(lambda s, d: False)), "Ethernet", {"a": [3], "b": [3]})
    verdict = Verdict.FAILED if value is None else Verdict.OK
    model.apply(Measured([Measurement(Layer.P2P, *pair, verdict, value, "GB/s", 8, 3.0, transport=path)], time=3.0))
    rule = next(rule for rule in RULES if trial in rule.experiments)
    return model, rule.finding("", cells=[pair], blames=blames)


@pytest.mark.parametrize(
    ("trial", "inside", "dead", "path", "tried"),
    [
        *((ExperimentKind.SOCKET, False, dead, IB, True) for dead in (True, False)),
        *((ExperimentKind.SOCKET, False, dead, SOCKET, False) for dead in (True, False)),
        (ExperimentKind.SOCKET, True, True, P2P, False),
        *((ExperimentKind.GID, False, dead, IB, dead) for dead in (True, False)),
        *((ExperimentKind.GID, *where, False) for where in ((True, True, P2P), (False, True, SOCKET))),
        *((ExperimentKind.ONE_RAIL, False, dead, IB, dead) for dead in (True, False)),
        (ExperimentKind.ONE_RAIL, True, True, P2P, False),
        *((ExperimentKind.NO_P2P, True, dead, P2P, dead) for dead in (True, False)),
        *((ExperimentKind.NO_P2P, True, True, path, False) for path in (SHM, SOCKET, IB, GDR)),
        (ExperimentKind.NO_P2P, False, True, "", False),
        *((ExperimentKind.OTHER_HCA, False, dead, GDR, True) for dead in (True, False)),
        *((ExperimentKind.OTHER_HCA, *where, False) for where in ((True, False, P2P), (False, False, SOCKET))),
        *((ExperimentKind.P2P, inside, False, SHM, inside) for inside in (True, False)),
        *((ExperimentKind.RDMA, inside, False, SOCKET, not inside) for inside in (True, False)),
        *((ExperimentKind.GPUDIRECT, inside, False, IB, not inside) for inside in (True, False)),
    ],
)
def test_only_what_may_change_a_pair_is_tried(
    trial: ExperimentKind, inside: bool, dead: bool, path: str, tried: bool
) -> None:
    pair = ("a:1", "a:2") if inside else ("a:1", "b:1")
    usual = 350.0 if inside else 45.0
    model, finding = about(trial, pair, None if dead else 0.4 * usual, path)
    assert (trial in by_trial(planned(model, finding))) is tried


@pytest.mark.parametrize(
    ("trial", "path", "works"),
    [
        *((ExperimentKind.P2P, path, path == P2P) for path in (P2P, SHM, SOCKET)),
        *((ExperimentKind.RDMA, path, path != SOCKET) for path in (IB, GDR, SOCKET)),
        *((ExperimentKind.GPUDIRECT, path, path == GDR) for path in (IB, GDR, SOCKET)),
    ],
)
def test_an_experiment_with_a_faster_path_works_if_the_pair_takes_it(
    trial: ExperimentKind, path: str, works: bool
) -> None:
    model, finding = about(trial, ("a:1", "a:2") if trial is ExperimentKind.P2P else ("a:1", "b:1"), 18.0, SOCKET)
    plan = by_trial(planned(model, finding))[trial]
    played(model, [plan], lambda each, pair: path)
    outcome = EXPERIMENTS[trial].works if works else EXPERIMENTS[trial].fails
    assert fact(confirmed(model, finding)).lines[0].endswith(outcome.text)


@pytest.mark.parametrize(
    ("fails", "rivals", "text"),
    [
        (True, [], "so GPU b:2 is at fault with any partner"),
        (False, [], "so not all of GPU b:2 is at fault"),
        (True, [Subject(Kind.GPU, "a:1")], "so GPU b:2 is at fault, not GPU a:1"),
        (True, [Subject(Kind.NODE, "b")], "so GPU b:2 is at fault with any partner"),
    ],
)
def test_a_component_at_fault_fails_with_any_partner(fails: bool, rivals: list[Subject], text: str) -> None:
    model, finding = about(ExperimentKind.PARTNERS, ("a:1", "b:2"), None, IB, blames=Subject(Kind.GPU, "b:2"))
    plan = by_trial(planned(model, finding))[ExperimentKind.PARTNERS]
    assert all("b:2" in pair and "a:1" not in pair for pair in plan.pairs)
    finding = finding.replace(rivals=tuple(rivals), confidence=0.6 if rivals else None)
    played(model, [plan], lambda each, pair: "gone" if fails and "b:2" in pair else 45.0)
    line = fact(confirmed(model, finding)).lines[0]
    assert line.startswith("confirmed: " if fails else "refuted: ")
    assert line.endswith(text)


def test_an_hca_is_excluded_where_each_node_has_a_second_one() -> None:
    model, finding = about(ExperimentKind.OTHER_HCA, ("a:1", "b:1"), None, IB)
    assert ExperimentKind.OTHER_HCA in by_trial(planned(model, finding))
    for other in (Subject(Kind.NODE, "a"), Subject(Kind.NIC, "a mlx5_9")):
        assert ExperimentKind.OTHER_HCA not in by_trial(planned(model, finding.replace(blames=other)))
    model.apply(InventoryUpdate("b", {"ib": [{"ca": "mlx5_1", "state": "Active"}]}, time=3.0))
    assert ExperimentKind.OTHER_HCA not in by_trial(planned(model, finding)), "b has no other"


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        ({}, True),
        ({"link_layer": "InfiniBand"}, False),
        ({"gids": [{"index": 3, "gid": "::ffff:10.0.1.1", "type": "IB/RoCE v1"}]}, False),
        ({"gids": [{"index": 3, "gid": "fe80::1", "type": "RoCE v2"}]}, False),
        ({"gids": [{"index": "3", "gid": "::ffff:10.0.1.1", "type": "RoCE v2"}]}, False),
        ({"gids": []}, False),
    ],
)
def test_a_gid_index_is_that_of_roce_v2_over_ipv4_on_all_active_ports(change: dict[str, Any], tried: bool) -> None:
    model, finding = about(ExperimentKind.GID, ("a:1", "b:1"), None, IB)
    record = model.nodes["b"].inventory
    assert record is not None
    record["ib"][2].update(change)
    assert (ExperimentKind.GID in by_trial(planned(model, finding))) is tried
    record["ib"][2]["state"] = "Down"
    assert ExperimentKind.GID in by_trial(planned(model, finding))
