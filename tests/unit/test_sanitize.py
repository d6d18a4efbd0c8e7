"""The last places before a terminal and a file: nothing passes that a terminal would act on."""

import gzip
import io
import json
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.cli.main import clean_standard_files, main
from fabtui.model.events import LogEntry, event_from_json
from fabtui.paths import shipped_recordings_folder
from fabtui.sanitize import clean, drawable, escaped, last_line, one_line, printable
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


SPELLS = "\x1b]52;c;cm0=\x07\x1b[2J\x9b31m\u202e\u200d\ufeff\u2066\u061c\x7fok"


def test_escapes_and_direction_marks_are_gone() -> None:
    assert clean(SPELLS) == "]52;c;cm0=[2J31mok"


def test_newlines_and_tabs_stay_and_line_ends_are_one_kind() -> None:
    assert clean("a\tb\r\nc\rd\u2028e") == "a\tb\nc\nd\ne"


def test_bytes_that_are_not_text_are_shown() -> None:
    assert clean(b"link \xff down") == "link \\xff down"


def test_one_line_and_last_line() -> None:
    assert one_line("  a\n\n b\t c ") == "a b c"
    assert last_line("first\nsecond \n \n") == "second"
    assert last_line("\n\n") == ""


def test_the_limit_counts_the_ellipsis() -> None:
    assert clean("abcdef", limit=4) == "abc\u2026"
    assert clean("abcd", limit=4) == "abcd"
    assert clean("abcd", limit=0) == ""


@given(st.text(alphabet=st.characters(), max_size=200), st.one_of(st.none(), st.integers(0, 50)))
def test_nothing_unfit_comes_through(text: str, limit: int | None) -> None:
    result = clean(text, limit)
    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"} for c in result)
    assert not set(result) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\ufeff")
    result.encode("utf-8")
    if limit is not None:
        assert len(result) <= limit
    assert clean(clean(text)) == clean(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    assert "\n" not in one_line(data)
    assert "\x1b" not in clean(data)


@given(st.text(alphabet="abc XYZ-_.:/[]{}\u00e9\u4e2d\n\t", max_size=100))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text
