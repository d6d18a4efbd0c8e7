"""A path is blamed for a slow pair only if that is slow once more, after its ends were as fast as usual with others."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Measured, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.session.measure.retest import retest


@pytest.mark.parametrize("again", [1.0, 10.0])
def test_the_path_of_a_slow_pair_is_blamed_after_one_more_test(again: float) -> None:
    model = Model()
    model.apply(SessionStart(nodes=list("abcde"), time=1.0))
    ends = [Endpoint(at, node, 0, kind="cpu", rail=0, address=f"10.0.0.{at + 1}") for at, node in enumerate("abcde")]
    model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    tested: list[list[tuple[int, int]]] = []

    def measured(pairs: list[tuple[int, int]], value: float) -> None:
        rows = [
            Measurement(Layer.P2P, str(ends[a]), str(ends[b]), Verdict.OK, value, "GB/s", 1 << 20, float(len(tested)))
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]
        model.apply(Measured(measurements=rows, time=float(len(tested))))

    async def run(pairs: list[tuple[int, int]]) -> None:
        tested.append(pairs)
        measured(pairs, again if pairs == [(0, 1)] else 10.0)

    async def flush() -> None: ...

    measured(list(itertools.combinations(range(5), 2)), 10.0)
    measured([(0, 1)], 1.0)
    lines = asyncio.run(retest(model, [(0, 1)], {}, set(), run, flush))
    assert tested[-1] == [(0, 1)]
    assert len(tested) == 2
    assert [why.startswith("the path between them is at fault") for *_, why in lines] == [True, True] * (again < 10.0)
