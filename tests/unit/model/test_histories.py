"""Histories that a session keeps while it watches: each is bounded, and all of them together are small."""

import gc
import itertools
import tracemalloc
from typing import Any

import pytest

from fabtui.model.events import CounterDeltas, LogEntry, Measured, PhaseStart, Watching
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from tests.conftest import session_of

NODES, RAILS = 4, 2
#: Maximum size of all histories of such a session (bytes).
MOST = 3.5e6


class Watched:
    def __init__(self) -> None:
        self.names, self.now = [f"n{number}" for number in range(NODES)], 1.0
        about: dict[str, Any] = {"kind": "cpu", "nic": "eth{index}", "address": "10.{index}.0.{host}"}
        self.model = session_of(self.names, RAILS, rails=True, options={"probes": ["p2p"]}, **about)
        self.pairs = list(itertools.permutations(map(str, self.model.endpoints), 2))

    def measure(self, attempt: int) -> None:
        """Test all pairs; of three, one fails each time."""
        for number, (src, dst) in enumerate(self.pairs):
            self.now += 0.01
            bad = (number + attempt) % 3 == 0
            value = None if bad else 1.0 + attempt / 100
            verdict, error = (Verdict.FAILED, f"closed by peer {attempt % 50}") if bad else (Verdict.OK, None)
            found = [
                Measurement(layer, src, dst, verdict, value, layer.spec.unit, 1 << 20, time=self.now, error=error)
                for layer in (Layer.P2P, Layer.LATENCY)
            ]
            self.model.apply(Measured(measurements=found, time=self.now))

    def count(self, number: int) -> None:
        names = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
        for name in self.names:
            self.now += 0.1
            deltas = {"net": {f"eth{rail}": dict.fromkeys(names, number * 1000 + rail) for rail in range(RAILS)}}
            self.model.apply(CounterDeltas(node=name, since=self.now - 1, until=self.now, deltas=deltas, time=self.now))

    def log(self, number: int) -> None:
        text = f"n{number % NODES} was lost: no heartbeat for 10 s; try {number} to reach it again follows now"
        self.model.apply(LogEntry(level="warning", node=self.names[number % NODES], text=text, time=self.now))


@pytest.mark.slow
def test_histories_are_bounded_and_small() -> None:
    watched = Watched()
    watched.model.apply(PhaseStart(name="watch", total=0, time=1.0))
    watched.model.apply(Watching(on=True, time=1.0))
    steps = ((watched.measure, 150), (watched.count, 601), (watched.log, 2001))
    for step, _ in steps:
        # The second one imports what compares the first with it.
        step(0)
        step(1)
    gc.collect()
    tracemalloc.start()
    try:
        for step, times in steps:
            for number in range(2, times + 1):
                step(number)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        assert len(watched.model.turns.latest) == 2000
        for step, _ in steps:
            for number in range(5000, 5020):
                step(number)
        gc.collect()
        more = tracemalloc.get_traced_memory()[0] - held
    finally:
        tracemalloc.stop()
    assert held < MOST
    assert more < MOST / 50, "nothing grows after that"
