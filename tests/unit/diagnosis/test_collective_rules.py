"""Collectives over NVLink SHARP: failures of its set-up, values below a ring, and the experiment without it."""

import itertools
from typing import Any

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.experiment import planned
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Experiment, Measured, SessionStart, event_from_json
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title

MIB = 1 << 20
ERROR = "NCCL: unhandled cuda error: transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'"


def all_reduce(
    src: str, dst: str, found: float | str, algorithm: str | None = "NVLS/SIMPLE", **more: Any
) -> Measurement:
    value, error = (None, found) if isinstance(found, str) else (found, None)
    return Measurement(
        Layer.BUSBW,
        src,
        dst,
        Verdict.OK if error is None else Verdict.FAILED,
        value,
        "GB/s",
        256 * MIB,
        3.0,
        error=error,
        extra={"ranks": 4, "algorithm": algorithm},
        **more,
    )


def session(*collectives: Measurement, nodes: str = "ab", options: dict[str, Any] | None = None) -> Model:
    model = Model()
    model.apply(SessionStart(nodes=list(nodes), time=1.0, options=options or {}))
    ends = [
        Endpoint(at * 4 + i, node, i, uuid=f"GPU-{node}{i}", rail=i) for at, node in enumerate(nodes) for i in range(4)
    ]
    model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    rows = []
    for a, b in itertools.permutations(ends, 2):
        inside = a.node == b.node
        path, value = ("P2P/CUMEM", 360.0) if inside else ("NET/IB/0/GDRDMA", 46.0)
        rows.append(Measurement(Layer.P2P, str(a), str(b), Verdict.OK, value, "GB/s", 256 * MIB, 2.0, transport=path))
    model.apply(Measured(measurements=[*rows, *collectives], time=2.0))
    return model


def sharp(model: Model) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.rule.id == "FT046"]


def tried(model: Model, experiments: list[Experiment], *results: Measurement) -> Finding:
    (one,) = experiments
    rows = [all_reduce(m.src, m.dst, m.error or m.value or 0.0, "RING/SIMPLE", arm=one.arm) for m in results]
    model.apply(Measured(measurements=rows, time=4.0))
    model.apply(event_from_json({**one.to_json(), "time": 5.0}))
    (found,) = sharp(model)
    return found


def test_the_node_is_named_on_which_nvlink_sharp_cannot_be_set_up() -> None:
    model = session(all_reduce("a", "a", ERROR), all_reduce("b", "b", 470.0), all_reduce("a", "b", ERROR))
    (one,) = sharp(model)
    assert title(one) == "a: NVLink SHARP (NVLS) cannot be set up"
    assert one.severity is Severity.BAD
    assert one.subject.name == "a", "the pair of nodes has the fault of the node"
    assert evidence(one)[0] == "all_reduce over a fails"
    assert any(line.startswith("means: E80, NVLink SHARP (NVLS) could not be set up") for line in evidence(one))
    assert "Fabric" in one.next[0]
    experiments = planned(model, one)
    assert [(each.env, each.groups, each.pairs) for each in experiments] == [
        ({"NCCL_NVLS_ENABLE": "0"}, [("a", "a")], [])
    ]
    found = tried(model, experiments, all_reduce("a", "a", 339.0))
    assert "confirmed: all_reduce over a passes with NCCL_NVLS_ENABLE=0 (339 GB/s), so NVLink SHARP is at fault" in (
        " ".join(evidence(found))
    )
    (latest,) = (m for m in model.measurements(Layer.BUSBW) if m.src == m.dst == "a")
    assert latest.error == ERROR, "the experiment is not a result of the session"


def test_a_failure_without_it_is_another_one() -> None:
    model = session(all_reduce("a", "a", ERROR))
    found = tried(model, planned(model, *sharp(model)), all_reduce("a", "a", "NCCL: unhandled cuda error"))
    assert "fails with NCCL_NVLS_ENABLE=0 (NCCL: unhandled cuda error), so NVLink SHARP is not the reason" in (
        " ".join(evidence(found))
    )


def test_all_reduce_below_a_ring_is_confirmed_by_what_it_gains() -> None:
    model = session(all_reduce("a", "a", 120.0), all_reduce("b", "b", 470.0))
    (one,) = sharp(model)
    assert title(one) == "a: NVLink SHARP (NVLS) is slower than a ring"
    assert one.severity is Severity.WARN
    assert evidence(one)[0] == ("all_reduce by NVLS/SIMPLE: 120 GB/s; a ring reaches about what the pairs do, 360 GB/s")
    found = tried(model, planned(model, one), all_reduce("a", "a", 338.0))
    assert "all_reduce over a: 338 GB/s with NCCL_NVLS_ENABLE=0, 120 GB/s before, so NVLink SHARP is at fault" in (
        " ".join(evidence(found))
    )


def test_what_is_no_fault_of_nvlink_sharp() -> None:
    assert not sharp(session(all_reduce("a", "a", 470.0), all_reduce("b", "b", 300.0)))
    assert not sharp(session(all_reduce("a", "a", 120.0, "RING/SIMPLE"))), "NVLink SHARP is not used"
    assert not sharp(session(all_reduce("a", "a", 120.0, None))), "the algorithm is unknown"
    assert not sharp(session(all_reduce("a", "b", 60.0))), "a network is between the nodes"
    assert not sharp(session(all_reduce("a", "a", "NCCL: socketPollConnect: Connection refused")))


def test_it_is_not_tried_where_it_is_off() -> None:
    model = session(all_reduce("a", "a", ERROR), options={"env": ["NCCL_NVLS_ENABLE=0"]})
    assert planned(model, *sharp(model)) == []
