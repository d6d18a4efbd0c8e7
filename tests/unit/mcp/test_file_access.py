from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabtui.errors import InputError
from fabtui.mcp import file_access
from fabtui.mcp.file_access import checked_file, checked_files, checked_logs


def test_regular_files_are_read_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("x")
    assert checked_file(str(log), "files") == log
    hidden = tmp_path / ".ssh" / "id"
    hidden.parent.mkdir()
    hidden.write_text("key")
    (tmp_path / "innocent").symlink_to(hidden)
    os.mkfifo(tmp_path / "pipe")
    for name, why in [
        (".ssh/id", "is hidden"),
        ("innocent", "is hidden"),
        ("pipe", "not a regular file"),
        ("", "not a regular file"),
        ("missing", "No such file"),
        ("a\0b", "null"),
        ("x" * 400, "too long"),
    ]:
        with pytest.raises(InputError, match=f"^files: .*{why}"):
            checked_file(str(tmp_path / name), "files")
    with pytest.raises(InputError, match="not a regular file"):
        checked_file("/proc/self/environ", "files")
    for name in (".ssh/*", "innocent"):
        with pytest.raises(InputError, match="is hidden"):
            checked_logs([str(tmp_path / name)], "logs")
    monkeypatch.chdir(tmp_path)
    assert checked_logs([str(tmp_path / "{job}.log"), "../logs/*.out"], "logs")
    monkeypatch.setattr(file_access, "MOST_BYTES", 0)
    with pytest.raises(InputError, match="the maximum is 0 MiB"):
        checked_file(str(log), "files")
    monkeypatch.setattr(file_access, "MOST_BYTES", 1)
    monkeypatch.setattr(file_access, "MOST_TOGETHER", 1)
    assert checked_files([str(log)], "files")
    with pytest.raises(InputError, match="MiB together"):
        checked_files([str(log)] * 2, "files")
    with pytest.raises(InputError, match="65 files; the maximum is 64"):
        checked_files([str(log)] * 65, "files")


def test_the_folder_of_recordings_may_be_in_a_hidden_one(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "recordings"
    recording = folder / "a.jsonl"
    folder.mkdir(parents=True)
    recording.write_text("")
    assert checked_file(str(recording), "file", folder) == recording
    with pytest.raises(InputError, match="is hidden"):
        checked_file(str(recording), "file")
