import itertools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    Event,
    LogEntry,
    Measured,
    NodeState,
    NodeUpdate,
    PhaseStart,
    SessionEnd,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.paths import free_path, recording_name
from fabtui.report.summary import summary
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds.replay import ReplayFeed

EVENTS: list[Event] = [SessionStart(["n000"], seq=0, time=1.0), LogEntry("info", "x", seq=1, time=2.0)]
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


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl"])
def test_a_recording_that_is_cut_at_any_byte_replays_up_to_the_last_whole_event(tmp_path: Path, suffix: str) -> None:
    path, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    ends = [Endpoint(at, f"n{at}", 0, name="H200") for at in range(3)]
    measured = [
        Measurement(Layer.P2P, str(a), str(b), Verdict.OK, value=45.5, unit="GB/s", time=4.0)
        for a, b in itertools.permutations(ends, 2)
    ]
    events: list[Event] = [*EVENTS, READY, EndpointsAdded(ends, time=3.5), PhaseStart("p2p", 6, time=3.6)]
    events += [Measured([one], time=4.0 + at) for at, one in enumerate(measured)]
    events += [
        PhaseStart("done", 0, time=19.0),
        LogEntry("warning", "caf\u00e9 \U0001f525", time=20.0),
        SessionEnd(0, "all ok", time=21.0),
    ]
    journal = Journal(path)
    for event in events:
        journal.append([event])
    journal.close()
    whole, data = list(read_events(path)), path.read_bytes()
    assert [event.to_json() for event in whole] == [event.to_json() for event in events]
    longest = 0
    for length in range(len(data) + 1):
        cut.write_bytes(data[:length])
        try:
            read = list(read_events(cut))
        except InputError:
            assert longest == 0, "only what has no whole event yet is refused"
            continue
        assert read == whole[: len(read)]
        assert len(read) >= longest, "more bytes never show less"
        longest = len(read)
        model = Model()
        for event in read:
            model.apply(event)
        if length % 16 == 0:
            unfinished = "the session was not finished" in summary(diagnose(model), plain=True)
            assert unfinished == (len(read) < len(events) - 2)
    assert longest == len(events)


def test_sessions_that_start_in_the_same_second_have_a_recording_each(tmp_path: Path) -> None:
    name = tmp_path / recording_name(("n1", "n2"), 1.7e9)
    paths = [free_path(name) for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths[:2]:
        journal = Journal(path)
        journal.append(EVENTS)
        journal.close()
        assert list(read_events(path)) == EVENTS
        with pytest.raises(InputError, match="--record"):
            Journal(path)


def test_a_recording_that_was_never_begun_leaves_no_file(tmp_path: Path) -> None:
    program = "import sys, pathlib; from fabtui.paths import free_path; free_path(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.jsonl.gz")], check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    argv = [sys.executable, "-m", "fabtui", "run", "--nodes", "n1"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "file")}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 2
    assert f"cannot use {tmp_path}/file/fabtui" in done.stderr
    assert "for the recording: Not a directory; use --record FILE or --no-record" in done.stderr
