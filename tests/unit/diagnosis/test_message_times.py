from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.pairs.tally import notable

Maker = Callable[[], Any]


def times(median: float, p99: float, count: Any = 20) -> dict[str, Any]:
    return {"times": {"count": count, "min": median, "median": median, "p99": p99, "max": p99}}


def session(make_model: Maker, *extras: Any) -> Any:
    maker = make_model().start(["n0"]).endpoints({"n0": len(extras) + 1})
    for number, extra in enumerate(extras, 1):
        maker.measured("p2p", "n0:0", f"n0:{number}", value=2.0, bytes=1024, extra=extra)
    return maker


def test_wide_times_are_notable_and_the_widest_comes_first(make_model: Maker) -> None:
    found = notable(session(make_model, times(1e-3, 3.1e-3), times(1e-3, 3e-3), times(1e-3, 9e-3)).model())
    assert [(one.measurement.dst, round(one.ratio, 3)) for one in found] == [("n0:3", 9.0), ("n0:1", 3.1)]


@pytest.mark.parametrize(
    "extra",
    [
        None,
        {},
        {"times": None},
        {"times": {}},
        {"times": [1]},
        times(0.0, 1.0),
        times(1e-3, 1.0, count=4),
        times(1e-3, 1.0, count="20"),
        {"times": {"count": 20, "median": "1", "p99": 9}},
        {"times": {"count": 20, "median": True, "p99": 9}},
    ],
)
def test_what_is_no_evidence_is_not_notable(make_model: Maker, extra: Any) -> None:
    assert notable(session(make_model, extra).model()) == []


def test_a_failed_pair_is_not_notable(make_model: Maker) -> None:
    maker = session(make_model, None).measured("p2p", "n0:0", "n0:1", "failed", error="x", extra=times(1e-3, 1.0))
    assert notable(maker.model()) == []
