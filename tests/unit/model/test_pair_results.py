"""Attempts at pairs: the one that counts, and its verdict."""

import math
import random
from array import array
from typing import Any

import numpy as np
import pytest

from fabtui.model.address_log import AddressLog
from fabtui.model.class_statistics import ATTEMPTS, flapping, lasting, reference_of
from fabtui.model.endpoints import PairClass
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import SEVERITY, Measurement, Verdict
from fabtui.model.pair_results import MOST_ATTEMPTS
from fabtui.model.session_model import Model
from tests.conftest import session_of

OK, SLOW, FAILED = Verdict.OK, Verdict.SLOW, Verdict.FAILED
LARGE = 1 << 28


def session(*rows: Measurement) -> Model:
    """Four nodes of one endpoint; pairs other than a and b have 45 GB/s."""
    model = session_of("abcd")
    usual = [one(45.0, src=f"{s}:0", dst=f"{d}:0") for s in "abcd" for d in "cd" if s != d]
    for row in (*usual, *rows):
        model.apply(Measured(measurements=[row], time=row.time))
    return model


def one(value: float | None, **more: Any) -> Measurement:
    verdict = more.pop("verdict", OK if value is not None else FAILED)
    given: dict[str, Any] = {"src": "a:0", "dst": "b:0", "unit": "GB/s", "bytes": LARGE, "time": 2.0, **more}
    return Measurement(given.pop("layer", Layer.P2P), given.pop("src"), given.pop("dst"), verdict, value, **given)


def verdict(model: Model, layer: Layer = Layer.P2P) -> Verdict:
    found = model.latest(layer, "a:0", "b:0")
    assert found is not None
    return model.verdict(found)


@pytest.mark.parametrize(("value", "expected"), [(31.0, SLOW), (32.0, OK)])
def test_seven_tenths_of_the_usual_value_are_enough_by_default(value: float, expected: Verdict) -> None:
    model = session(one(value))
    assert verdict(model) is expected
    assert model.counts().get(SLOW, 0) == (expected is SLOW)


def test_the_latest_attempt_counts() -> None:
    model = session(one(10.0), one(45.0, time=3.0))
    assert verdict(model) is OK
    assert len(model.history(Layer.P2P, "a:0", "b:0")) == 2
    assert list(model.retested()) == [(True, True)]
    assert list(session(one(10.0), one(11.0, time=3.0)).retested()) == [(True, False)]
    assert list(session(one(45.0), one(11.0, time=3.0)).retested()) == [(False, False)]
    assert list(session(one(10.0)).retested()) == []


def test_of_several_sizes_the_largest_counts_until_it_is_tested_again() -> None:
    model = session(one(45.0), one(0.1, bytes=8, time=3.0))
    assert verdict(model) is OK
    assert model.latest(Layer.P2P, "a:0", "b:0") == one(45.0)
    found = [m for m in model.measurements() if (m.src, m.dst) == ("a:0", "b:0")]
    assert [(m.bytes, model.verdict(m)) for m in found] == [(LARGE, OK), (8, OK)], "small messages are not judged"
    model.apply(Measured([one(10.0, time=4.0)], time=4.0))
    assert verdict(model) is SLOW
    assert sum(model.counts().values()) == len(list(model.measurements()))


def test_a_failure_before_any_message_holds_for_all_sizes() -> None:
    model = session(one(45.0), one(0.1, bytes=8, time=3.0), one(None, bytes=None, time=4.0))
    assert verdict(model) is FAILED
    assert [m.verdict for m in model.measurements() if (m.src, m.dst) == ("a:0", "b:0")] == [FAILED]


def test_a_value_that_is_replaced_no_longer_counts_for_its_class() -> None:
    model = session(*(one(90.0, time=2.0 + at, src="b:0", dst="a:0") for at in range(3)))
    assert model.median(Layer.P2P, PairClass.SAME_RAIL) == 45.0
    values = sorted(m.value or 0 for m in model.measurements())
    assert values[-1] == 90.0
    model.apply(Measured([one(None, src="b:0", dst="a:0", time=9.0)], time=9.0))
    (kind,) = {model.table.class_between("a:0", "b:0")}
    assert model.median(Layer.P2P, kind) == 45.0


def test_arms_are_not_judged_and_do_not_count() -> None:
    model = session(one(45.0), one(10.0, arm="NCCL_P2P_DISABLE=1", time=3.0))
    assert verdict(model) is OK
    (arm,) = model.results.arms()
    assert model.verdict(arm) is OK
    model.apply(Measured([one(12.0, arm="NCCL_P2P_DISABLE=1", time=4.0)], time=4.0))
    assert [m.value for m in model.results.arms()] == [12.0]


@pytest.mark.parametrize(
    ("times", "stalls"),
    [
        ({"count": 20, "median": 1.0, "p99": 3.1}, 1),
        ({"count": 20, "median": 1.0, "p99": 3.0}, 0),
        ({"count": 20, "median": 1.0}, 0),
        (None, 0),
    ],
)
def test_a_pair_stalls_if_some_messages_take_three_times_as_long(times: Any, stalls: int) -> None:
    model = session(one(45.0, extra={"times": times}))
    assert len(model.with_stalls()) == stalls
    assert session(one(None, extra={"times": times})).with_stalls() == []
    assert session(one(45.0, extra={"times": times}, layer=Layer.WORLD)).with_stalls() == []
    model.apply(Measured([one(45.0, time=5.0)], time=5.0))
    assert model.with_stalls() == [], "the latest attempt counts"


def test_a_table_has_logarithms_of_shares_and_limits_of_their_classes() -> None:
    rows = [one(value, src="b:0", dst="a:0", time=3.0 + at) for at, value in enumerate((15.0, 22.5))]
    *_, table = session(*rows, one(None)).pair_tables(Layer.P2P)
    assert table is not None
    found = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(table.source, table.target, strict=True))}
    slow, dead, good = found[1, 0], found[0, 1], found[0, 2]
    assert (len(table), table.share[good], table.share[slow]) == (8, 0.0, pytest.approx(math.log(0.5)))
    assert math.isnan(table.share[dead])
    assert table.limit.tolist() == pytest.approx([math.log(0.7)] * 8)
    assert set(table.spread.tolist()) == {np.float32(reference_of(array("d", [22.5, *[45.0] * 6]), False).spread)}
    assert [SEVERITY[table.verdict[at]] for at in (slow, dead, good)] == [SLOW, FAILED, OK]
    assert table.kind.tolist() == [1] * 8


def test_flapping_counts_the_verdicts_that_each_attempt_has() -> None:
    chance = random.Random(5)
    values = [None, 10.0, 45.0]
    rows = [one(chance.choice(values), bytes=chance.choice((LARGE, 1 << 20)), time=3.0 + at) for at in range(60)]
    for count in range(3, len(rows)):
        model = session(*rows[:count])
        attempts = model.history(Layer.P2P, "a:0", "b:0")
        assert model.history(Layer.P2P, "a:0", "b:0", most=2) == attempts[-2:]
        verdicts = [model.verdict(attempt) for attempt in attempts[-ATTEMPTS:]]
        model.results.settle()
        assert model.results.turning.get((Layer.P2P, "a:0", "b:0"), 0) == flapping(verdicts)
        assert model.results.flapping.get((Layer.P2P, "a:0", "b:0"), 0) == flapping(lasting(verdicts))


def test_of_a_pair_of_addresses_the_latest_attempts_are_kept() -> None:
    log = AddressLog()
    for attempt in range(2 * MOST_ATTEMPTS):
        ends: dict[str, Any] = {"src_addr": "10.0.0.1", "dst_addr": "10.0.0.2"}
        before = log.take(Measurement(Layer.PING, "a", "b", Verdict.TIMEOUT, None, "ms", None, float(attempt), **ends))
        assert before is None or before.time == attempt - 1
    assert [m.time for m in log.attempts(Layer.PING, "a", "b")] == [MOST_ATTEMPTS + n for n in range(MOST_ATTEMPTS)]
