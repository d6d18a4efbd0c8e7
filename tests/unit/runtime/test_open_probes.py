from typing import Any

import pytest

from fabtui_node.protocol import ErrorKind
from fabtui_node.runtime.supervisor import MAX_OPEN_PROBES, PROBE_GRACE, OpenProbes


def probe(number: Any = 1, deadline: Any = 5, **more: Any) -> dict[str, Any]:
    return {"t": "probe", "id": number, "name": "ping", "args": {}, "deadline": deadline, **more}


def test_a_probe_gets_one_result() -> None:
    probes = OpenProbes()
    assert probes.open(probe(), 100.0) is None
    assert probes.passes({"t": "part", "id": 1, "value": {}})
    assert probes.passes({"t": "result", "id": 1, "ok": True, "value": {}})
    assert not probes.passes({"t": "result", "id": 1, "ok": True, "value": {}})
    assert not probes.passes({"t": "part", "id": 1, "value": {}})
    assert not probes.overdue(1e9)


def test_an_overdue_probe_is_answered_once_and_late_values_are_dropped() -> None:
    probes = OpenProbes()
    probes.open(probe(deadline=5), 100.0)
    assert probes.overdue(105.0 + PROBE_GRACE) == []
    (result,) = probes.overdue(105.1 + PROBE_GRACE)
    assert (result["id"], result["ok"], result["error"]["kind"]) == (1, False, "timeout")
    assert probes.stuck
    assert probes.overdue(1e9) == []
    assert not probes.passes({"t": "result", "id": 1, "ok": True, "value": {}})


def test_all_fail_with_the_worker() -> None:
    probes = OpenProbes()
    for number in (1, 2):
        probes.open(probe(number), 0.0)
    results = probes.fail_all(ErrorKind.WORKER_DIED, "signal 9")
    assert [(r["id"], r["error"]["kind"]) for r in results] == [(1, "worker_died"), (2, "worker_died")]
    assert len(probes) == 0


@pytest.mark.parametrize("deadline", [0, -1, 1e9, float("inf"), float("nan")])
def test_a_deadline_out_of_bounds_is_refused_with_a_result(deadline: float) -> None:
    result = OpenProbes().open(probe(deadline=deadline), 0.0)
    assert result is not None
    assert result["error"]["kind"] == "refused"


def test_too_many_are_refused() -> None:
    probes = OpenProbes()
    for number in range(MAX_OPEN_PROBES):
        assert probes.open(probe(number), 0.0) is None
    refused = probes.open(probe(MAX_OPEN_PROBES), 0.0)
    assert refused is not None
    assert refused["error"]["kind"] == "refused"


@pytest.mark.parametrize(
    "message",
    [
        {},
        probe("1"),
        probe(True),
        probe(deadline="x"),
        probe(deadline=None),
        probe(name=3),
        probe(args=[]),
        {"t": "probe", "id": 1},
    ],
)
def test_what_is_not_a_probe_raises(message: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        OpenProbes().open(message, 0.0)


def test_an_open_number_cannot_be_used_again() -> None:
    probes = OpenProbes()
    probes.open(probe(), 0.0)
    with pytest.raises(ValueError, match="open already"):
        probes.open(probe(), 0.0)
