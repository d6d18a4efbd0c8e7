from __future__ import annotations

import asyncio
import tracemalloc

from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.measurement_context import MeasurementContext


def _context() -> MeasurementContext:
    return MeasurementContext(EventPump(Model(), None), asyncio.Event())


def test_attempts_are_counted_for_each_thing_and_arm() -> None:
    context = _context()
    assert [context.attempt("p2p", "a:0", "b:0") for _ in range(3)] == [1, 2, 3]
    assert context.attempt("p2p", "b:0", "a:0") == 1
    assert context.attempt("world", "a:0", "b:0") == 1
    assert [context.attempt("all_reduce", "a", "b", size) for size in ("8", "16", "8")] == [1, 1, 2]
    context.arm = "NCCL_P2P_DISABLE=1"
    assert context.attempt("p2p", "a:0", "b:0") == 1


def test_counting_attempts_takes_few_bytes_a_pair() -> None:
    context = _context()
    names = [f"n{number // 8:03d}:{number % 8}" for number in range(128)]
    tracemalloc.start()
    try:
        for src in names:
            for dst in names:
                context.attempt("p2p", src, dst)
        each = tracemalloc.get_traced_memory()[0] / len(names) ** 2
    finally:
        tracemalloc.stop()
    # 9 when this was written, 120 as keys of a dict.
    assert each < 18
