"""The last places before a terminal and a file: nothing passes that a terminal would act on."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from fabtui.cli.main import clean_standard_files, main
from fabtui.model.events import LogEntry, event_from_json
from fabtui.paths import shipped_recordings_folder
from fabtui.sanitize import drawable, escaped, printable
from fabtui.session.event_pipeline import Journal

HOSTILE = "a\x1b]52;c;QUFB\x07b\x9b2J\u202ec\u200b\u2028d\x00\U000e0041"
SAFE = "a]52;c;QUFBb2Jcd"


def test_texts_lose_what_a_terminal_acts_on() -> None:
    assert drawable(HOSTILE) == SAFE
    assert printable(HOSTILE) == SAFE
    assert printable("\r\x1b[K\x1b[1;34mgood\x1b[0m\tx\n") == "\r\x1b[K\x1b[1;34mgood\x1b[0m\tx\n"


def test_standard_output_of_the_program_is_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8"))
    clean_standard_files()
    print(HOSTILE)
    sys.stdout.writelines([HOSTILE])
    print(HOSTILE, file=sys.stderr, flush=True)
    sys.stdout.flush()
    assert raw.getvalue().decode().count(SAFE) == 3
    assert not any(control in raw.getvalue() for control in (b"\x1b", b"\x07", b"\xc2\x9b"))


def test_recordings_have_escapes_for_control_and_invisible_characters(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl.gz")
    journal.append([LogEntry(level="info", text=HOSTILE)])
    journal.close()
    text = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode()
    assert text.rstrip("\n").isprintable()
    event = event_from_json(json.loads(text))
    assert isinstance(event, LogEntry)
    assert event.text == HOSTILE
    assert escaped('{"é": "日本"}') == '{"é": "日本"}'


def test_a_unit_of_a_recording_is_one_of_those_that_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = next(shipped_recordings_folder().glob("*faults*.gz"))
    hostile = tmp_path / "unit.jsonl"
    changed = gzip.decompress(recorded.read_bytes()).decode().replace('"GB/s"', json.dumps(HOSTILE))
    hostile.write_text(changed)
    assert main(["replay", "--text", str(hostile)]) == 2
    printed = capsys.readouterr()
    assert "52;c" not in printed.out + printed.err
    assert "unknown unit" in printed.err
