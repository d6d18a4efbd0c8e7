"""Silences of a node that its link outlives: how long they were, and whether the node side ran meanwhile."""

import asyncio

import pytest

from fabtui.transport import framed_link
from fabtui.transport.framed_link import Limits
from fabtui_node import protocol
from tests.unit.transport.test_cargo import SlowPipe, start


@pytest.mark.parametrize("stood", [None, 7.5, "x"])
async def test_a_silence_is_reported_when_the_node_is_heard_again(
    monkeypatch: pytest.MonkeyPatch, stood: object
) -> None:
    monkeypatch.setattr(framed_link, "LEAST_SILENCE", 0.2)
    pipe, heard = SlowPipe(), list[tuple[float, float]]()
    link = await start(pipe, Limits(heartbeat=600))
    link.on_silence = lambda seconds, stood: heard.append((seconds, stood))
    answer = {"t": "hb", "n": 1, "rank": False} | ({} if stood is None else {"stood": stood})
    for pause in (0.0, 0.3, 0.0):
        await asyncio.sleep(pause)
        pipe.reported.put_nowait(protocol.encode(answer))
        await asyncio.sleep(0.02)
        answer = {"t": "hb", "n": 2, "rank": False} | ({} if stood is None or heard else {"stood": stood})
    await link.close()
    ((seconds, ran_not),) = heard
    assert seconds >= 0.3
    assert ran_not == (7.5 if stood == 7.5 else 0.0)


async def test_a_standstill_of_this_process_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_link, "LEAST_SILENCE", 0.2)
    pipe, heard = SlowPipe(), list[float]()
    link = await start(pipe, Limits(heartbeat=0.05))
    link.on_silence = lambda seconds, stood: heard.append(seconds)
    pipe.reported.put_nowait(protocol.encode({"t": "hb", "n": 1, "rank": False}))
    await asyncio.sleep(0.02)
    # As if the loop had slept: its last tick and what it heard are as old.
    link._ticked -= 5.0
    link._heard -= 5.0
    pipe.reported.put_nowait(protocol.encode({"t": "hb", "n": 2, "rank": False}))
    await asyncio.sleep(0.02)
    await link.close()
    assert heard == []
