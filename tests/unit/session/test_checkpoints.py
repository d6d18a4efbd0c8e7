"""Checkpoints of a replay: a seek from one shows what playing from the start shows."""

from __future__ import annotations

import asyncio
import functools
import gzip
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.json import as_json
from fabtui.model.recording import START, EventReader, RecordingPlace, apply_recorded, read_events
from fabtui.model.session_model import Model
from fabtui.session.feeds import replay
from fabtui.session.feeds.replay import Checkpoints, ReplayFeed

RECORDING = Path(__file__).parents[3] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"


def state(model: Model) -> dict[str, Any]:
    """Everything that the session exports, with the raw texts and the log."""
    texts = [(one.raw, one.extra) for one in model.measurements()]
    log = [(line.time, line.text) for line in model.log]
    flapping = {str(key): turned for key, turned in model.results.flapping.items()}
    return {
        **as_json(diagnose(model)),
        "texts": texts,
        "log": log,
        "flapping": flapping,
        "done": model.done,
        "now": model.now,
    }


@functools.cache
def played_to(target: float) -> dict[str, Any]:
    """State that playing from the start shows; where its texts are kept does not count."""
    model = Model()
    for event in read_events(RECORDING):
        if event.time > target:
            break
        apply_recorded(model, event, RECORDING)
    return state(model)


@pytest.mark.parametrize("packed", [True, False])
async def test_a_seek_from_a_checkpoint_shows_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(replay, "SPACING", 1 << 15)
    monkeypatch.setattr("fabtui.model.measurement_store.CHUNK_TEXTS", 8)
    path = RECORDING
    if not packed:
        path = tmp_path / "plain.jsonl"
        path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    feed = ReplayFeed(path)
    await feed.run()
    feed.pause(True)
    assert feed.playback is not None
    assert feed.playback.length is not None
    begun = feed.model.started
    restored: list[RecordingPlace] = []

    def load(self: Checkpoints, target: float) -> tuple[RecordingPlace, Model]:
        place, model = original(self, target)
        restored.append(place)
        return place, model

    original = Checkpoints.load
    monkeypatch.setattr(Checkpoints, "load", load)
    for share in (0.9, 0.2, 0.95, 0.4, 1.0):
        target = begun + share * feed.playback.length
        feed.seek(share * feed.playback.length)
        async with asyncio.timeout(20):
            while feed._target is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert state(feed.model) == played_to(target)
    await feed.close()
    assert sum(place != START for place in restored) >= 3


def test_there_are_never_more_than_a_few_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SPACING", 1)
    monkeypatch.setattr(replay, "MOST", 4)
    kept, model, reader = Checkpoints(), Model(), EventReader(RECORDING)
    times = []
    for event in reader:
        apply_recorded(model, event, RECORDING)
        kept.note(reader, model)
        assert len(kept._kept) <= 4
        times.append(model.now)
    assert kept.latest(times[-1]) >= times[len(times) // 2]
    assert kept.latest(times[0] - 1) == 0.0


def test_a_reader_continues_where_another_one_was() -> None:
    whole = [event.seq for event in read_events(RECORDING)]
    reader = EventReader(RECORDING)
    places = [reader.place for _ in reader]
    for at in range(0, len(whole), 7):
        assert [event.seq for event in EventReader(RECORDING, places[at])] == whole[at + 1 :]
