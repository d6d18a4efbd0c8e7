import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import Measured
from fabtui.model.schedule import PairArray
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.earlier_evidence import DeadPath
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.measurement_runner import MeasurementRunner
from fabtui.session.options import SessionOptions


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


def test_a_pair_that_the_tcp_check_found_dead_has_the_time_of_that() -> None:
    context = _context()
    context.endpoints = [Endpoint(at, name, 0, address=f"10.0.0.{at}") for at, name in enumerate("ab")]
    hosts = {
        end.node: SimpleNamespace(address=end.address, engine=SimpleNamespace(name="gloo")) for end in context.endpoints
    }
    context.hosts = cast(Any, hosts)
    before = time.time()
    runner = MeasurementRunner(SessionOptions(hosts=("a", "b")), context)
    assert not runner._without_dead(PairArray([(0, 1)]), {("a", "b"): DeadPath("refused", timeout=False)})
    found = [one for event in context.pump._pending if isinstance(event, Measured) for one in event.measurements]
    assert [(one.src, one.dst) for one in found] == [("a:0", "b:0"), ("b:0", "a:0")]
    assert all(before <= one.time <= time.time() for one in found)
