"""Differences between two sessions."""

from typing import Any

import pytest

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.session_diff import PairChange, SessionDiff, Status, session_diff
from fabtui.model.events import InventoryUpdate, Measured, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from tests.conftest import session_of
from tests.unit.model.cluster import host, inventory, memlock

OK, SLOW, FAILED, TIMEOUT, VAGUE = (Verdict(v) for v in ("ok", "slow", "failed", "timeout", "inconclusive"))
WORSE, BETTER, NEW, GONE, SAME = Status.WORSE, Status.BETTER, Status.NEW, Status.GONE, Status.SAME


def one(verdict: Verdict, value: float | None = None, layer: Layer = Layer.P2P, **more: Any) -> Measurement:
    given: dict[str, Any] = {"unit": layer.spec.unit, "bytes": 1 << 28, "src": "a:0", "dst": "b:0", **more}
    return Measurement(layer, verdict=verdict, value=value, **given)


def session(*measurements: Measurement, probes: dict[str, dict[str, Any]] | None = None) -> Model:
    model = session_of("ab")
    for node, results in (probes or {}).items():
        model.apply(InventoryUpdate(node=node, value=inventory(), time=1.0))
        for probe, value in results.items():
            model.apply(ProbeResult(node=node, probe=probe, value=value, time=1.0))
    model.apply(Measured(measurements=list(measurements), time=2.0))
    return model


def changed(before: list[Measurement], after: list[Measurement]) -> PairChange | None:
    found = session_diff(session(*before), session(*after)).pairs
    return found[0] if found else None


@pytest.mark.parametrize(
    ("before", "after", "status", "bad"),
    [
        (one(OK, 50.0), one(OK, 36.0), SAME, False),
        (one(OK, 50.0), one(OK, 34.0), WORSE, True),
        (one(OK, 50.0), one(OK, 71.0), BETTER, False),
        (one(OK, 50.0), one(OK, 69.0), SAME, False),
        (one(OK, 5.0, Layer.TCP), one(OK, 20.0, Layer.TCP), SAME, False),
        (one(OK, 50.0), one(SLOW, 49.0), WORSE, True),
        (one(SLOW, 50.0), one(FAILED), WORSE, True),
        (one(FAILED), one(TIMEOUT), SAME, False),
        (one(TIMEOUT), one(OK, 50.0), BETTER, False),
        (one(OK, 50.0), one(VAGUE), GONE, False),
        (None, one(OK, 50.0), NEW, False),
        (None, one(FAILED), NEW, True),
        (one(OK, 50.0), None, GONE, False),
        (one(OK, 50.0), one(OK, 5.0, bytes=8), Status.NOT_COMPARABLE, False),
        (one(OK, 10.0, Layer.LATENCY), one(OK, 20.0, Layer.LATENCY), WORSE, True),
        (one(OK, 10.0, Layer.LATENCY), one(OK, 5.0, Layer.LATENCY), BETTER, False),
        (one(OK, 5.0, Layer.UDP), one(OK, 0.0, Layer.UDP), BETTER, False),
        (one(OK, 0.0, Layer.UDP), one(OK, 0.0, Layer.UDP), SAME, False),
        (one(OK, 0.1, Layer.PING), one(OK, 0.9, Layer.PING), SAME, False),
        (one(OK, 0.1, Layer.PING), one(FAILED, None, Layer.PING), WORSE, True),
    ],
)
def test_the_status_of_a_pair(before: Measurement | None, after: Measurement | None, status: Status, bad: bool) -> None:
    found = changed([before] if before else [], [after] if after else [])
    assert (SAME if found is None else found.status) is status
    assert (found is not None and found.bad) is bad


def test_of_several_sizes_the_worst_change_counts() -> None:
    small, large = one(OK, 1.0, bytes=8), one(OK, 50.0)
    found = changed([small, large], [one(OK, 0.5, bytes=8), large])
    assert found is not None
    assert (found.status, found.ratio) == (WORSE, 0.5)
    assert changed([small, large], [large]) is None, "the common size is equal"


def test_a_low_value_in_world_does_not_count_where_the_pair_passes_alone() -> None:
    world = [one(OK, 50.0, Layer.WORLD)], [one(OK, 20.0, Layer.WORLD)]
    found = changed(*world)
    assert found is not None
    assert found.status is WORSE
    assert changed([*world[0], one(OK, 50.0)], [*world[1], one(OK, 50.0)]) is None


def test_the_worst_pairs_come_first_and_each_layer_is_counted() -> None:
    def pairs(*values: Verdict | float) -> Model:
        return session(
            *(
                one(v, src="a:0", dst=f"b:{n}") if isinstance(v, Verdict) else one(OK, v, src="a:0", dst=f"b:{n}")
                for n, v in enumerate(values)
            )
        )

    found = session_diff(pairs(50.0, 50.0, 50.0, 50.0, 10.0), pairs(50.0, 30.0, 5.0, FAILED, 50.0))
    assert [(pair.key.dst, pair.status) for pair in found.pairs] == [
        ("b:3", WORSE),
        ("b:2", WORSE),
        ("b:1", WORSE),
        ("b:4", BETTER),
    ]
    assert found.counts[Layer.P2P] == {WORSE: 3, BETTER: 1, SAME: 1}


def diff_of_probes(then: dict[str, Any], now: dict[str, Any]) -> SessionDiff:
    others = {"b": {"host": host("b")}}
    return session_diff(session(probes={"a": then, **others}), session(probes={"a": now, **others}))


def test_facts_and_findings_that_changed() -> None:
    good, bad = {"host": host("a")}, {"host": memlock("a", 65536)}
    found = diff_of_probes(good, bad)
    assert found.facts is not None
    assert [(change.before, change.now, change.nodes) for change in found.facts.changes] == [
        ("unlimited", "64 KiB", ["a"])
    ]
    assert [one.severity for one in found.new] == [Severity.BAD]
    assert all("a" in one.nodes for one in found.new)
    assert found.worse
    found = diff_of_probes(bad, good)
    assert (found.new, len(found.gone), found.worse) == ([], 1, False)
    found = diff_of_probes(bad, bad)
    assert (found.new, found.gone, len(found.still), found.worse) == ([], [], 1, False)


def test_facts_are_not_compared_where_a_session_has_none() -> None:
    found = session_diff(session(), session(probes={"a": {"host": host("a")}}))
    assert found.facts is None


def test_sessions_of_other_endpoints_sizes_and_engines_are_not_comparable() -> None:
    def of(kind: str, name: str, **about: Any) -> Model:
        model = session_of("ab", kind=kind, name=name)
        model.apply(Measured(measurements=[one(OK, **about)], time=2.0))
        return model

    ranks = of("cpu", "", value=2.0, bytes=4 << 20, how="gloo 2.9")
    found = session_diff(ranks, of("gpu", "NVIDIA H200", value=360.0, how="nccl 2.28"))
    assert found.counts[Layer.P2P] == {Status.NOT_COMPARABLE: 1}
    assert not found.worse
    assert found.pairs[0].reason == "other endpoints: CPU then, GPU now"
    assert [each.what for each in found.differences] == ["endpoints", "message sizes", "engines"]
    same = session_diff(ranks, ranks)
    assert same.counts[Layer.P2P] == {SAME: 1}
    assert not same.differences
