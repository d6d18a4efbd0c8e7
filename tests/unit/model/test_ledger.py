"""What a model keeps of measurements: all of it, in few bytes."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Event, Measured, SessionStart, event_from_json
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.measurement_store import NONE, PAGE, Ledger
from fabtui.model.pair_index import PairList, Ways
from fabtui.model.session_model import Model

RAW = (
    "[{end}]\nNCCL INFO Channel 00/1 : {a}[{x}] -> {b}[{y}] [send] via NET/IB/{x}/GDRDMA\n"
    "NCCL_SOCKET_RETRY_CNT=5 NCCL_IB_TIMEOUT=17\n"
    "seconds: meet 0.00{x}, init 0.{init:03d}, first byte 0.034, data 0.{data:03d}, ping 0.0{y}"
)
HOW = "NCCL 2.28.9, CUDA driver 13.0, one way, data verified"


def _names(rank: int) -> str:
    return f"n{rank // 8:03d}:{rank % 8}"


def _direction(a: int, b: int, when: float, chance: random.Random) -> list[Measurement]:
    """What a session tells of one direction of a pair of GPUs, as JSON."""
    raw = "\n".join(
        RAW.format(end=_names(end), a=a, b=b, x=a % 8, y=b % 8, init=chance.randrange(100), data=chance.randrange(999))
        for end in (a, b)
    )
    least, median, most = sorted(chance.gauss(5e-3, 1e-4) for _ in range(3))
    times = {"count": 20.0, "min": least, "median": median, "p99": most, "max": most}
    bandwidth = Measurement(
        Layer.P2P, _names(a), _names(b), Verdict.OK, chance.gauss(45, 1), "GB/s", 1 << 28, when, HOW, "NET/IB/0/GDRDMA",
        f"10.0.{a // 8}.1", f"10.0.{b // 8}.1", raw=raw, extra={"times": times},
    )  # fmt: skip
    latency = replace(
        bandwidth, layer=Layer.LATENCY, value=chance.gauss(10, 1), unit="us", bytes=8, raw=None, extra=None,
        how=f"{HOW}; half of the median round trip of 8 bytes",
    )  # fmt: skip
    return [bandwidth, latency]


def _events(count: int) -> Iterator[Event]:
    """Events with so many directions, each two measurements, as a recording has them."""
    chance = random.Random(7)
    ranks = math.isqrt(count) + 8 & ~7
    yield SessionStart(nodes=[f"n{node:03d}" for node in range(ranks // 8)])
    ends = [Endpoint(n, f"n{n // 8:03d}", n % 8, rail=n % 8) for n in range(ranks)]
    yield EndpointsAdded(endpoints=ends)
    when = 1.7e9
    for at in range(count):
        a, b = divmod(at, ranks - 1)
        when += chance.random() * 1e-3
        yield Measured(measurements=_direction(a, b + (b >= a), when, chance))


def test_a_measurement_takes_few_bytes_of_a_model() -> None:
    lines = [json.dumps(one.to_json()) for one in _events(5000)]
    tracemalloc.start()
    try:
        model = Model()
        before = 0
        for number, line in enumerate(lines):
            if number == 2:
                before = tracemalloc.get_traced_memory()[0]
            model.apply(event_from_json(json.loads(line)))
        each = (tracemalloc.get_traced_memory()[0] - before) / 10_000
    finally:
        tracemalloc.stop()
    assert sum(model.counts().values()) == 10_000
    # 75 when this was written, 1,100 as objects of their own.
    assert each < 150


def test_what_is_kept_is_what_was_told() -> None:
    told = [value for one in _events(700) if isinstance(one, Measured) for value in one.measurements]
    model = Model()
    for one in _events(700):
        model.apply(one)
    assert list(model.measurements()) == told
    assert model.tested[:2] == [(Layer.P2P, "n000:0", "n000:1"), (Layer.P2P, "n000:0", "n000:2")]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"value": None, "verdict": Verdict.TIMEOUT, "error": "connect: timed out", "attempts": 3, "made": True},
        {"value": 3, "time": 7, "attempts": 70_000},
        {"value": 0.0, "time": -0.0, "extra": {"loss": 0.0, "other": -0.0, "whole": 0, "said": False, "none": None}},
        {"value": 1023.0, "extra": {"a": 1023, "b": 1024, "c": 1 << 53, "d": -(1 << 70), "e": 1e300, "f": True}},
        {"value": float("inf"), "extra": {"a": [0.1, 0.2, 0.1, [], {}]}},
        {"extra": {"b": {"c": {"d": {"e": {"f": {"g": {"h": [1.5, {"i": 0.1}]}}}}}}}},
        {"arm": "NCCL_P2P_DISABLE=1", "src_addr": None, "raw": "\x00\ud800 ä\n\u2028", "transport": None},
        {"extra": {}, "raw": "", "bytes": None, "unit": ""},
        {"extra": {"asked_bytes": 1 << 28}, "bytes": 1 << 20},
    ],
)  # fmt: skip
def test_whatever_a_measurement_holds_comes_back(fields: dict[str, Any]) -> None:
    plain = Measurement(
        Layer.P2P, "a:0", "b:0", Verdict.OK, 1 / 3, "GB/s", 8, 1.7e9 + 1 / 7, "gloo", "TCP", "10.0.0.1", "10.0.0.2"
    )
    ledger = Ledger()
    wanted = replace(plain, **fields)
    rows = [ledger.add(one) for one in (plain, wanted, plain, wanted)]
    open_page = [repr(ledger.get(row)) for row in rows]
    for _ in range(PAGE):
        ledger.add(plain)
    for found in (open_page, [repr(ledger.get(row)) for row in rows]):
        assert found == [repr(plain), repr(wanted)] * 2
    kept = ledger.get(rows[1])
    assert kept.asked_bytes == wanted.asked_bytes
    assert kept.to_json() == wanted.to_json()
    assert repr(replace(kept, arm="x")) == repr(replace(wanted, arm="x"))
    with pytest.raises(AttributeError):
        kept.colour  # type: ignore[attr-defined]  # noqa: B018


def test_pages_go_with_the_last_of_their_rows_and_texts_before() -> None:
    one = Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, 0.5, "GB/s", 8, raw="text")
    ledger = Ledger()
    row, rows = NONE, []
    for number in range(3 * PAGE):
        row = ledger.add(replace(one, time=number + 0.5), row)
        rows.append(row)
    assert list(ledger.rows()) == [0]
    ledger.drop_raw(rows[5])
    assert ledger.get(rows[5]).raw is None
    assert ledger.get(rows[6]).raw == "text"
    for number in range(PAGE):
        ledger.remove(rows[number], after=rows[number + 1])
    assert list(ledger.rows()) == [rows[PAGE]]
    assert ledger.attempts(row) == rows[: PAGE - 1 : -1]
    with pytest.raises(KeyError):
        ledger.get(rows[3])
    assert [ledger.get(r).time for r in rows[-2:]] == [3 * PAGE - 1.5, 3 * PAGE - 0.5]


def test_texts_that_are_long_fill_a_page_sooner() -> None:
    ledger = Ledger()
    one = Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK)
    texts = [chr(97 + number) * 16_000 for number in range(20)]
    rows = [ledger.add(replace(one, raw=text)) for text in texts]
    assert rows[-1] > PAGE
    assert [ledger.get(row).raw for row in rows] == texts


def test_ways_keep_a_number_for_each_ordered_pair() -> None:
    ways = Ways()
    pairs = [(5, 9), (5, 2), (0, 70_000), (0, 3), (5, 9), (9, 5)]
    for number, pair in enumerate(pairs):
        ways.set(*pair, number)
    assert list(ways) == [(0, 3, 3), (0, 70_000, 2), (5, 2, 1), (5, 9, 4), (9, 5, 5)]
    assert [ways.get(5, 9), ways.get(5, 3), ways.get(7, 1), ways.get(99, 1, 0)] == [4, -1, -1, 0]


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_ways_keep_all_numbers_in_whatever_order_they_come(order: str, share: float) -> None:
    chance = random.Random(5)
    pairs = [(a, b) for a in range(6) for b in range(300) if chance.random() < share]
    if order != "up":
        pairs = pairs[::-1] if order == "down" else chance.sample(pairs, len(pairs))
    ways, kept = Ways(), dict[tuple[int, int], int]()
    # The last ones are far from the others, and widen what lies at the second numbers.
    for pair in [*pairs, (0, 70_000), (1, 301), (2, 1000), *pairs[:50]]:
        number = chance.choice([0, 254, 255, 256, 65_534, 65_535, 4_294_967_294])
        ways.set(*pair, number)
        kept[pair] = number
    assert {(a, b): number for a, b, number in ways} == kept
    assert list(ways) == sorted(ways)
    assert all(ways.get(a, b) == kept.get((a, b), -1) for a in range(8) for b in [*range(1002), 70_000, 70_001])


def test_ways_take_little_room_whether_many_or_few_pairs_are_kept() -> None:
    def room(pairs: list[tuple[int, int]]) -> float:
        tracemalloc.start()
        try:
            ways = Ways()
            for number, pair in enumerate(pairs):
                ways.set(*pair, 70_000 + number)
            return tracemalloc.get_traced_memory()[0] / len(pairs)
        finally:
            tracemalloc.stop()

    chance = random.Random(5)
    full = [(a, b) for a in range(40) for b in range(2000)]
    assert room(full) < 5
    assert room(chance.sample(full, len(full))) < 5
    assert room(chance.sample(full, len(full) // 20)) < 9
    assert room([(a, 1 << at) for a in range(400) for at in range(15)]) < 40


def test_a_pair_list_is_read_in_parts() -> None:
    pairs = PairList()
    keys = [(Layer.P2P, "a:0", "b:0"), (Layer.WORLD, "b:0", "a:0"), (Layer.P2P, "a:0", "a:1")]
    for key in keys:
        pairs.append(key)
    assert (len(pairs), pairs[0], pairs[-1], pairs[1:9], list(pairs)) == (3, keys[0], keys[2], keys[1:], keys)
    many = [(Layer.P2P, f"a:{number}", f"b:{number}") for number in range(50_000)]
    for key in many:
        pairs.append(key)
    assert pairs[3:] == many
