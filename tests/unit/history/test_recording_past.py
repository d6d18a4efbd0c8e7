"""A recording that is replayed: sessions before it are known, later ones are not, and no history is needed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.history.entry import entry_of
from fabtui.history.file import HistoryWriter, history_file
from fabtui.importers.session import replayed
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.findings import evidence, title
from fabtui.report.contents import document
from fabtui.report.markdown import markdown
from fabtui.session.feeds.replay import ReplayFeed

_DAY = 86400.0
_RECORDING = shipped_recordings_folder() / "h200x4-lab-2x2-faults.jsonl.gz"


def test_sessions_before_a_recording_are_known_and_later_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    model, _ = replayed(_RECORDING)
    assert model.past is None
    found = diagnose(model)
    assert not any(one.recurrence for one in found.findings)
    once = entry_of(found, _RECORDING.name, title)
    writer = HistoryWriter(history_file(lab=True))
    writer.add([replace(once, key="later", started=once.started + _DAY, ended=once.ended + _DAY), once])
    model, _ = replayed(_RECORDING)
    assert not any(one.recurrence for one in diagnose(model).findings)
    assert "Earlier sessions" not in markdown(document(diagnose(model), ()))
    before = [replace(once, key=str(day), started=once.started - day * _DAY, ended=once.ended) for day in (14, 5, 2)]
    writer.add(before)
    model, _ = replayed(_RECORDING)
    seen = [evidence(one)[-1] for one in diagnose(model).findings if one.recurrence]
    assert seen
    assert all(line.startswith("first seen 3 sessions ago (") for line in seen)
    assert all(", fourth time in 14 days" in line for line in seen)
    _, _, past = markdown(document(diagnose(model), ())).partition("## Earlier sessions")
    assert past.lstrip().startswith("no component stands out in 3 sessions since ")
    feed = ReplayFeed(_RECORDING)
    asyncio.run(feed.run())
    assert [evidence(one)[-1] for one in diagnose(feed.model).findings if one.recurrence] == seen
