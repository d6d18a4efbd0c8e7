"""Files that are made to exhaust memory or to be waited for are refused in one line."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.cli.main import main
from fabtui.model import recording
from fabtui.model.events import Event
from fabtui.model.recording import read_events

START = json.dumps({"seq": 0, "time": 1, "kind": "start", "nodes": ["a"]}).encode() + b"\n"
MIB = 1 << 20
#: What reading a bomb may add to the memory of a process that has imported all that it needs.
MOST_ADDED = 300 * MIB
#: Functions that make them, and the problems: hundreds of megabytes are made by the tests alone.
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "newlines": (lambda: b"\n" * (256 * MIB), "not a recording"),
    "a line": (lambda: START + b"x" * (256 * MIB), "a line of more than 32 MiB"),
    "values": (lambda: START + b'{"kind":"log","x":[' + b"[]," * (9 * MIB) + b"1]}\n", "more than 2000000 values"),
    "nodes": (
        lambda: START[:-2].replace(b'["a"]', b"[" + b'"node",' * 1_500_000 + b'"a"]') + b"}\n",
        "more than 20000 nodes",
    ),
}
READ = """
import json, resource, sys
from pathlib import Path
from fabtui.errors import InputError
from fabtui.model.events import Event
from fabtui.model.recording import read_events
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
text = ""
try:
    for event in read_events(Path(sys.argv[1])):
        pass
except InputError as error:
    text = str(error)
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, text]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_bomb_is_refused_within_bounded_memory(name: str, packed: bool, tmp_path: Path) -> None:
    made, problem = BOMBS[name]
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(gzip.compress(made(), 1) if packed else made())
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, check=True, timeout=100)
    added, text = json.loads(done.stdout)
    assert problem in text
    assert added * 1024 < MOST_ADDED


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (str(fifo), "/dev/zero", str(tmp_path)):
        assert main(["replay", "--text", path]) == 2
        assert "not a regular file" in capsys.readouterr().err


def test_a_long_recording_is_refused_where_it_gets_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_TEXT", 3000)
    path = tmp_path / "long.jsonl"
    path.write_bytes(START + b'{"time":2,"kind":"log","level":"info","text":"x"}\n' * 1000)
    read: list[Event] = []
    with pytest.raises(recording.DamagedRecording, match="of text"):
        read.extend(read_events(path))
    assert 50 < len(read) < 70


def test_lines_in_many_pieces_are_joined(tmp_path: Path) -> None:
    text = os.urandom(600_000).hex()
    line = json.dumps({"time": 2, "kind": "log", "level": "info", "text": text}).encode() + b"\n"
    for packed in (True, False):
        path = tmp_path / f"{packed}.jsonl"
        path.write_bytes(gzip.compress(START + line * 2) if packed else START + line * 2)
        _, first, second = read_events(path)
        assert first == second
        assert getattr(second, "text", "") == text


def test_a_small_file_of_millions_of_events_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MORE_TEXT", 100_000)
    line = b'{"seq":1,"time":2,"kind":"log","level":"info","node":null,"text":"x"}\n'
    path, plain = tmp_path / "bomb.jsonl.gz", tmp_path / "plain.jsonl"
    path.write_bytes(gzip.compress(START + line * 20_000))
    plain.write_bytes(START + line * 20_000)
    read = read_events(path)
    with pytest.raises(recording.DamagedRecording, match="unpacks to more than 64 times its size"):
        list(read)
    assert len(list(read_events(plain))) == 20_001
