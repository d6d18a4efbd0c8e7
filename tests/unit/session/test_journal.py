from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabtui.errors import InputError
from fabtui.session.feeds.replay import ReplayFeed
from fabtui.session.journal import Journal, read_events

EVENTS = [{"kind": "start", "seq": 0, "time": 1.0, "nodes": ["n000"]}, {"kind": "log", "seq": 1, "time": 2.0}]


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
        "from fabtui.session.journal import Journal\n"
        "j = Journal(pathlib.Path(sys.argv[1]))\n"
        "j.append([{'kind': 'start', 'nodes': []}])\n"
        "for n in range(500): j.append([{'kind': 'log', 'n': n}])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert [e.get("n") for e in read_events(path)] == [None, *range(500)]


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
def test_what_is_no_recording_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError) as told:
        list(read_events(path))
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("mine")
    with pytest.raises(InputError, match="--record"):
        Journal(path)
    assert path.read_text() == "mine"


async def test_replay_builds_the_model(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    journal = Journal(path)
    journal.append([EVENTS[0], {"kind": "node", "node": "n000", "state": "ready", "time": 3.0}])
    feed = ReplayFeed(path)
    told = []
    feed.listen(lambda: told.append(feed.model.version))
    await feed.run()
    assert feed.model.nodes["n000"].state == "ready"
    assert told


@pytest.mark.parametrize(
    ("broken", "why"), [({"kind": "node"}, "cannot be used"), ({"kind": "node", "node": 3}, "line 3: not an event")]
)
async def test_a_damaged_recording_is_shown_up_to_the_damage(broken: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    good = {"kind": "node", "node": "n000", "state": "ready", "time": 3.0}
    Journal(path).append([EVENTS[0], good, broken, {**good, "state": "lost"}])
    feed = ReplayFeed(path)
    await feed.run()
    assert feed.model.nodes["n000"].state == "ready"
    assert "DAMAGED" in feed.badges[-1]
    assert why in list(feed.model.log)[-1].text
