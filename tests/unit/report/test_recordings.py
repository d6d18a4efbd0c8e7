"""List of recordings: newest first, bad pairs where that is cheap, nothing that is not a recording."""

import os
import shutil
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.main import main
from fabtui.errors import InputError
from fabtui.report import recordings

SESSIONS = Path(__file__).parents[2] / "samples" / "sessions"
FAULTS = SESSIONS / "h200x8-lab-2x4-faults.jsonl.gz"
GOOD = SESSIONS / "h200x4-lab-2x2.jsonl.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for age, (source, name) in enumerate([(GOOD, "new.jsonl.gz"), (FAULTS, "old.jsonl.gz")]):
        shutil.copy(source, tmp_path / name)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "damaged.jsonl.gz").write_text("nothing of ours")
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_recordings_are_listed_newest_first_with_bad_pairs(folder: Path) -> None:
    lines = recordings.recordings_text(folder).splitlines()
    assert lines[0] == f"recordings in {folder}"
    assert [line.split()[-1] for line in lines[2:4]] == ["new.jsonl.gz", "old.jsonl.gz"]
    assert "0 of 12" in lines[2]
    assert " 0:32 " in lines[3]
    assert "3 of 56" in lines[3]
    assert "lab 2x4" in lines[3]
    assert lines[-1] == f"newest: fabtui replay {quote(str(folder / 'new.jsonl.gz'))}"
    assert "damaged" not in "".join(lines)


def test_bad_pairs_of_large_recordings_are_not_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "WHOLE_IN_ALL", GOOD.stat().st_size)
    lines = recordings.recordings_text(folder).splitlines()
    assert "0 of 12" in lines[2]
    assert lines[3].split()[5] == "-"


def test_a_folder_without_recordings_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recording in"):
        recordings.recordings_text(tmp_path / "none")


def test_replay_without_a_file_lists_those_of_the_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FABTUI_RECORDING_FOLDER", str(folder))
    assert main(["replay"]) == 0
    assert "new.jsonl.gz" in capsys.readouterr().out
    assert main(["replay", "--text"]) == 2
    assert "--text needs a recording" in capsys.readouterr().err
