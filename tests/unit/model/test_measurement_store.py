"""Storage of measurements: nothing is lost, and each takes few bytes."""

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
from fabtui.model.measurement_store import CHUNK_TEXTS, NO_TEXT, NONE, MeasurementStore, TextSpool
from fabtui.model.pair_results import PairIndex
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
    """Return the measurements of one direction of a pair of GPUs, as JSON."""
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
    """Yield the events of directions, two measurements each."""
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


@pytest.mark.slow
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
    # 1,100 as objects of their own. The texts are in a file.
    assert each < 100


def test_what_is_stored_comes_back() -> None:
    sent = [value for one in _events(700) if isinstance(one, Measured) for value in one.measurements]
    model = Model()
    for one in _events(700):
        model.apply(one)
    assert list(model.measurements()) == sent
    assert model.results.tested == len({(m.src, m.dst) for m in sent})


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
    store = MeasurementStore()
    wanted = replace(plain, **fields)
    rows = [store.add(one) for one in (plain, wanted, plain, wanted)]
    pending = [repr(store.get(row)) for row in rows]
    for _ in range(CHUNK_TEXTS):
        store.add(replace(plain, raw="text"))
    for found in (pending, [repr(store.get(row)) for row in rows]):
        assert found == [repr(plain), repr(wanted)] * 2
    kept = store.get(rows[1])
    assert kept.asked_bytes == wanted.asked_bytes
    assert kept.to_json() == wanted.to_json()
    assert repr(replace(kept, arm="x")) == repr(replace(wanted, arm="x"))
    with pytest.raises(AttributeError):
        kept.colour  # type: ignore[attr-defined]  # noqa: B018


def test_removed_rows_are_used_again() -> None:
    one = Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, 0.5, "GB/s", 8, raw="text")
    store = MeasurementStore()
    row, rows = NONE, []
    for number in range(1000):
        row = store.add(replace(one, time=number + 0.5, error=f"attempt {number}", raw=f"text {number}"), row)
        rows.append(row)
    assert list(store.rows()) == [0]
    kept = store.get(rows[1])
    for number in range(600):
        store.remove(rows[number], after=rows[number + 1])
    assert list(store.rows()) == [rows[600]]
    assert store.attempts(row) == rows[:599:-1]
    assert kept.error == "attempt 1"
    with pytest.raises(KeyError):
        store.get(rows[3])
    assert [store.get(r).raw for r in rows[-2:]] == ["text 998", "text 999"]
    new = [store.add(replace(one, error=f"new {number}", raw=None)) for number in range(600)]
    assert sorted(new) == rows[:600]
    assert [store.get(r).error for r in new[:2]] == ["new 0", "new 1"]
    assert [store.get(r).raw for r in (new[0], rows[999])] == [None, "text 999"]
    assert set(store.rows()) == {*new, rows[600]}


def test_an_index_keeps_a_number_for_each_ordered_pair() -> None:
    chance = random.Random(5)
    index, kept = PairIndex[str](), dict[tuple[str, str, str], int]()
    names = [f"n{number}" for number in range(300)]
    for _ in range(5000):
        key = (chance.choice(["p2p", "world"]), chance.choice(names[:6]), chance.choice(names))
        kept[key] = chance.choice([0, 255, 65_536, 4_294_967_294])
        index.set(*key, kept[key])
    assert {(kind, a, b): number for kind, a, b, number in index.items()} == kept
    assert all(index.get(*key) == number for key, number in kept.items())
    assert [index.get("p2p", "n0", "other"), index.get("change", "n0", "n1", 7)] == [-1, 7]


def test_an_index_takes_more_than_65536_names() -> None:
    index = PairIndex[str]()
    for number in range(70_000):
        index.set("p2p", "n0", f"n{number}", number)
    assert [index.get("p2p", "n0", f"n{number}") for number in (1, 65_535, 65_536, 69_999)] == [
        1,
        65_535,
        65_536,
        69_999,
    ]


TEXTS: list[tuple[str | None, dict[str, Any] | None]] = [
    ("one", None),
    ("", {}),
    (None, {"loss": 0.5, "times": {"p99": 1e-3}}),
    ("\ud800\x00\u2028 ä\n", {"whole": 1 << 60}),
    ("x" * 400_000, None),
]


def text_at(number: int) -> tuple[str | None, dict[str, Any] | None]:
    return TEXTS[4] if number % 64 == 63 else TEXTS[number % 4]


def filled(count: int) -> tuple[TextSpool, list[int]]:
    spool = TextSpool()
    places = [spool.add(*TEXTS[number % 4]) for number in range(count)]
    return spool, places


def test_texts_come_back_as_they_were() -> None:
    spool = TextSpool()
    places = [spool.add(*text_at(number)) for number in range(3 * CHUNK_TEXTS + 5)]
    assert [spool.read(place) for place in places] == [text_at(number) for number in range(len(places))]
    assert spool.add(None, None) == NO_TEXT


def test_room_of_unused_chunks_is_given_back() -> None:
    spool, places = filled(10 * CHUNK_TEXTS + 1)
    size = sum(map(len, spool._chunks))
    for place in places[: 8 * CHUNK_TEXTS]:
        spool.drop(place)
    assert sum(map(len, spool._chunks)) < 0.5 * size
    for number in range(8 * CHUNK_TEXTS, len(places)):
        assert spool.read(places[number]) == TEXTS[number % 4]
    assert spool.read(places[0]) == (None, None)
    assert spool.read(spool.add("new", None)) == ("new", None)
