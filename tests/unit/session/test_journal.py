from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabtui.errors import InputError
from fabtui.model.events import Event, LogEntry, NodeState, NodeUpdate, SessionStart
from fabtui.model.recording import read_events
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds.replay import ReplayFeed

EVENTS: list[Event] = [SessionStart(("n000",), seq=0, time=1.0), LogEntry("info", "x", seq=1, time=2.0)]
READY = NodeUpdate("n000", NodeState.READY, time=3.0)


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.jsonl.gz"
    journal = Journal(path)
    journal.append(EVENTS)
    assert list(read_events(path)) == EVENTS, "readable before it is closed"
    journal.close()
    journal.close()
    assert list(read_events(path)) == EVENTS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert subprocess.run(["gzip", "-t", str(path)], check=False).returncode == 0


def test_a_killed_writer_leaves_what_it_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    program = (
        "import os, signal, sys, pathlib\n"
        "from fabtui.model.events import LogEntry, SessionStart\n"
        "from fabtui.session.event_pipeline import Journal\n"
        "j = Journal(pathlib.Path(sys.argv[1]))\n"
        "j.append([SessionStart(())])\n"
        "for n in range(500): j.append([LogEntry('info', str(n))])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert [e.text for e in read_events(path) if isinstance(e, LogEntry)] == [str(n) for n in range(500)]


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_cut_file_is_read_up_to_the_last_whole_event(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    journal = Journal(path)
    for event in EVENTS:
        journal.append([event])
    os.truncate(path, path.stat().st_size - cut)
    assert next(iter(read_events(path))) == EVENTS[0]


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"[1]\n", b'{"kind":"log"}\n', b"\x1f\x8bgarbage", b'{"kind":"start"}\nnope\n']
)
def test_what_is_no_recording_is_reported_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError) as reported:
        list(read_events(path))
    assert str(path) in str(reported.value)
    assert "\n" not in str(reported.value)


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("mine")
    with pytest.raises(InputError, match="--record"):
        Journal(path)
    assert path.read_text() == "mine"


async def test_replay_builds_the_model(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    journal = Journal(path)
    journal.append([EVENTS[0], READY])
    feed = ReplayFeed(path)
    reported = []
    feed.listen(lambda: reported.append(feed.model.version))
    await feed.run()
    assert feed.model.nodes["n000"].state == "ready"
    assert reported


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"kind": "node"}, "line 3: not an event"),
        ({"kind": "node", "node": 3}, "line 3: not an event"),
        ({"kind": "endpoints", "endpoints": [{"number": 7, "node": "n000", "index": 0}]}, "cannot be used"),
    ],
)
async def test_a_damaged_recording_is_shown_up_to_the_damage(broken: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lost = replace(READY, state=NodeState.LOST)
    values = [EVENTS[0].to_json(), READY.to_json(), broken, lost.to_json()]
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    feed = ReplayFeed(path)
    await feed.run()
    assert feed.model.nodes["n000"].state == "ready"
    assert "DAMAGED" in feed.badges[-1]
    assert why in list(feed.model.log)[-1].text
