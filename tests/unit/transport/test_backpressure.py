"""A node that sends faster than it is read is slowed down: by every byte of its frames, and by a slow disk."""

import asyncio

import pytest

from fabtui.model.events import Event, LogEntry
from fabtui.model.session_model import Model
from fabtui.session import event_pipeline
from fabtui.session.event_pipeline import EventPump
from fabtui.transport.framed_link import Limits
from fabtui.transport.link import LinkLost
from fabtui_node import protocol
from tests.unit.transport.test_cargo import SlowPipe, start

MIB = 1 << 20


class Flood(SlowPipe):
    """A node that sends frames of 4 MiB for as long as somebody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0
        frame = protocol.encode({"t": "log", "text": "x" * (4 * MIB - 100)})
        self._pieces = [frame[at : at + 65536] for at in range(0, len(frame), 65536)]
        self._next = 0

    async def read(self) -> bytes:
        if not self.reported.empty():
            return self.reported.get_nowait()
        await asyncio.sleep(0)
        data = self._pieces[self._next % len(self._pieces)]
        self._next += 1
        self.read_bytes += len(data)
        return data


async def test_every_byte_of_a_large_frame_counts() -> None:
    pipe = Flood()
    link = await start(pipe, Limits(heartbeat=600, queue=8 * MIB))
    for _ in range(3000):
        await asyncio.sleep(0)
    assert 8 * MIB <= pipe.read_bytes <= 13 * MIB
    await link.receive()
    await link.receive()
    for _ in range(3000):
        await asyncio.sleep(0)
    assert 16 * MIB <= pipe.read_bytes <= 21 * MIB
    await link.close()


async def test_a_frame_is_read_when_it_is_fetched_and_a_broken_one_ends_the_link() -> None:
    pipe = SlowPipe()
    link = await start(pipe, Limits(heartbeat=600))
    good = protocol.encode({"t": "log", "text": "good" * 20})
    bad = b"not a message: " + b"x" * 100
    pipe.reported.put_nowait(good + len(bad).to_bytes(4, "big") + bad + good)
    await link.arrival()
    assert (await link.receive())["t"] == "log"
    with pytest.raises(LinkLost, match="not a frame"):
        await link.receive()
    # What follows a broken frame is not trusted.
    with pytest.raises(LinkLost, match="not a frame"):
        await link.receive()
    await link.close()


class SlowJournal:
    def __init__(self) -> None:
        self.written: list[Event] = []

    def append(self, events: list[Event]) -> None:
        self.written += events

    def close(self) -> None:
        return


async def test_no_more_messages_are_read_while_the_disk_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pipeline, "MAX_PENDING", 10)
    pump = EventPump(Model(), SlowJournal())  # type: ignore[arg-type]

    async def reader() -> int:
        for number in range(100):
            pump.emit(LogEntry(level="info", text=str(number)))
            await pump.room()
        return 100

    reading = asyncio.create_task(reader())
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(pump._pending) == 11
    moving = asyncio.create_task(pump.run())
    async with asyncio.timeout(20):
        assert await reading == 100
        await pump.flush()
    moving.cancel()
