"""Replay: seek in both directions, next and previous change of a verdict, speed, pause."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fabtui.errors import InputError
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Event, LogEntry, Measured, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import last_time
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds.replay import ReplayFeed

START = 1_700_000_000.0
#: A pair fails at 30 s and passes again at 60 s.
RESULTS = {10: Verdict.OK, 30: Verdict.FAILED, 60: Verdict.OK, 80: Verdict.OK}


def events() -> list[Event]:
    """A session of 100 s with a line of the log in each second."""
    found: list[Event] = [
        SessionStart(format=1, version="1", nodes=["n000", "n001"], seq=0, time=START),
        EndpointsAdded(endpoints=[Endpoint(0, "n000", 0), Endpoint(1, "n001", 0)], seq=1, time=START),
    ]
    for second in range(1, 101):
        now = START + second
        found.append(LogEntry(level="info", text=f"second {second}", seq=len(found), time=now))
        if (verdict := RESULTS.get(second)) is not None:
            value = 40.0 if verdict is Verdict.OK else None
            one = Measurement(Layer.P2P, "n000:0", "n001:0", verdict, value, "GB/s", 4096, now)
            found.append(Measured(measurements=(one,), seq=len(found), time=now))
    return found


@asynccontextmanager
async def playing(path: Path, speed: float | None) -> AsyncIterator[ReplayFeed]:
    journal = Journal(path)
    journal.append(events())
    journal.close()
    feed = ReplayFeed(path, speed)
    run = asyncio.create_task(feed.run())
    try:
        await until(lambda: feed.playback is not None and feed.playback.length is not None)
        yield feed
    finally:
        await feed.close()
        await run


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def seconds(feed: ReplayFeed) -> int:
    return sum(entry.text.startswith("second ") for entry in feed.model.log)


async def test_seek_forward_and_back(tmp_path: Path) -> None:
    # So slow that nothing happens by itself.
    async with playing(tmp_path / "a.jsonl.gz", 0.01) as feed:
        assert feed.playback is not None
        assert feed.playback.length == 100.0
        first = feed.model
        feed.seek(50.0)
        await until(lambda: seconds(feed) == 50)
        assert feed.model is first
        feed.seek(20.5)
        assert seconds(feed) == 50, "the earlier state stays until the new one is complete"
        await until(lambda: feed.model is not first)
        assert seconds(feed) == 20
        assert [line.text for line in feed.model.log][-1] == "second 20"
        assert feed.playback.position == pytest.approx(20.5, abs=0.2)
        feed.seek(1000.0)
        await until(lambda: seconds(feed) == 100)


async def test_seeks_in_quick_succession_end_at_the_last_place(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", 0.01) as feed:
        feed.seek(90.0)
        await until(lambda: seconds(feed) == 90)
        for place in (70.0, 30.0, 60.0, 40.0, 42.0):
            feed.seek(place)
        await until(lambda: seconds(feed) != 90)
        assert seconds(feed) == 42


async def test_turns_are_found_in_both_directions(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", 0.01) as feed:
        found = [await feed.seek_turn(1) for _ in range(3)]
        assert [turn and (turn.before, turn.after) for turn in found] == [
            (Verdict.OK, Verdict.FAILED),
            (Verdict.FAILED, Verdict.OK),
            None,
        ]
        assert seconds(feed) == 100, "without a further change it goes to the end"
        back = [await feed.seek_turn(-1) for _ in range(3)]
        assert [turn and turn.time - START for turn in back] == [60.0, 30.0, None]
        assert seconds(feed) == 30


async def test_a_seek_back_from_the_end_at_full_speed_stays_there(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", None) as feed:
        await until(lambda: seconds(feed) == 100)
        feed.seek(10.0)
        await until(lambda: seconds(feed) < 100)
        assert seconds(feed) == 10
        assert feed.playback is not None
        assert feed.playback.speed == 1.0


async def test_a_paused_replay_can_be_moved_and_stays_paused(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", 1000.0) as feed:
        feed.pause(True)
        feed.seek(100.0)
        await until(lambda: seconds(feed) == 100)
        feed.seek(50.0)
        await until(lambda: seconds(feed) == 50)
        assert feed.model.paused
        await asyncio.sleep(0.05)
        assert seconds(feed) == 50
        feed.pause(False)
        await until(lambda: seconds(feed) == 100)
        assert not feed.model.paused


async def test_speed_changes_while_it_waits(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", 0.001) as feed:
        feed.play_at(10_000.0)
        await until(lambda: seconds(feed) == 100)


async def test_a_long_seek_leaves_time_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.feeds.replay._STEP", 0.0)
    async with playing(tmp_path / "a.jsonl.gz", 0.01) as feed:
        feed.seek(100.0)
        turns, shown = 0, []
        feed.listen(lambda: shown.append(feed.seeking))
        assert feed.seeking
        while seconds(feed) < 100:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 100, "the event loop runs between two events"
        await until(lambda: not feed.seeking)
        assert len(shown) < 20, "what is on the way is not drawn"
        assert shown[-1] is False


async def test_a_recording_that_is_gone_is_reported_and_stays_on_the_screen(tmp_path: Path) -> None:
    async with playing(tmp_path / "a.jsonl.gz", None) as feed:
        await until(lambda: seconds(feed) == 100)
        (tmp_path / "a.jsonl.gz").unlink()
        feed.seek(10.0)
        await until(lambda: "DAMAGED, SHOWN IN PART" in feed.badges)
        assert "cannot read" in feed.model.log[-1].text
        assert seconds(feed) == 100


async def test_what_is_no_recording_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("hello\n")
    assert last_time(path) is None
    with pytest.raises(InputError, match="not a recording of fabtui; for the log of a job: fabtui explain ") as refused:
        await ReplayFeed(path).run()
    assert "char 0" not in str(refused.value)
    path.write_bytes(b"\xff\xff\n")
    with pytest.raises(InputError, match=r"line \d: not a recording of fabtui \(it is not text\)$"):
        await ReplayFeed(path).run()


async def test_a_seek_shows_how_far_it_is(tmp_path: Path) -> None:
    async with playing(tmp_path / "r.jsonl.gz", 1.0) as feed:
        await until(lambda: feed.playback is not None)
        feed.seek(90.0)
        assert (state := feed.playback) is not None
        assert (state.position, state.reached) == (90.0, 0.0)
        await until(lambda: feed.playback is not None and feed.playback.reached is None)
