"""Notes about findings in the state folder, one file per site."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fabtui.atomic_write import write_bytes
from fabtui.model.events import Acknowledged
from fabtui.paths import open_strictly, private_folder, site_name, state_folder, wait_for_lock
from fabtui.sanitize import one_line

#: Maximum number of notes of a site; the oldest are dropped.
MOST_NOTES = 1000
#: Maximum number of characters of a note, of a title and of a key.
LONGEST_NOTE, _LONGEST_TITLE, _LONGEST_KEY = 200, 300, 2000
_LARGEST_FILE = 4 * 1024 * 1024
#: Time (s) that another session gets to write the file.
_LOCK_PATIENCE = 2.0
#: Seconds that the clock of another login host may be ahead.
_DAY = 86400.0


def file_of_site(lab: bool) -> Path:
    """Return the file for this site; all labs are one site, as their nodes have the names of others' nodes."""
    return state_folder() / "acknowledged" / ("lab.json" if lab else f"{site_name()}.json")


class AcknowledgementFile:
    """Notes of a site. An unreadable file is kept, and a new one is begun beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[list[Acknowledged], str]:
        """Return the notes, and what is wrong with the file or ""."""
        try:
            return [_event(key, value) for key, value in self._notes().items()], ""
        except FileNotFoundError:
            return [], ""
        except (OSError, ValueError, RecursionError) as error:
            return [], f"notes about known findings cannot be read from {self.path}: {_reason(error)}"

    def write(self, event: Acknowledged) -> str:
        """Add or remove a note; return what was wrong or ""."""
        problem = ""
        try:
            private_folder(self.path.parent)
            with _locked(self.path):
                try:
                    notes = self._notes()
                except FileNotFoundError:
                    notes = {}
                except (ValueError, RecursionError):
                    aside = self.path.with_suffix(f".unreadable-{time.time_ns()}.json")
                    os.rename(self.path, aside)
                    notes, problem = {}, f"{self.path} was not readable and is kept as {aside}"
                notes.pop(event.finding, None)
                if event.note:
                    notes[event.finding] = {"note": event.note, "title": event.title, "since": round(time.time(), 3)}
                text = json.dumps({"format": 1, "notes": dict(list(notes.items())[-MOST_NOTES:])}, indent=1) + "\n"
                write_bytes(self.path, text.encode())
        except OSError as error:
            return f"the note is in this session alone, not in {self.path}: {_reason(error)}"
        return problem

    def _notes(self) -> dict[str, dict[str, Any]]:
        """Return the notes in the file.

        Raises:
            OSError: It cannot be read, or somebody else can change it.
            ValueError: It is not a file of notes.
        """
        with open(open_strictly(self.path), "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise ValueError("it is too large")
        value = json.loads(data)
        notes = value.get("notes") if isinstance(value, dict) else None
        if not isinstance(notes, dict) or not all(map(_is_note, notes.values())):
            raise ValueError("it is not a file of notes")
        return notes


def _is_note(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("note"), str)


def _event(finding: str, value: Mapping[str, Any]) -> Acknowledged:
    since = value.get("since")
    known = isinstance(since, (int, float)) and 0 < since < time.time() + _DAY
    return Acknowledged(
        finding=finding[:_LONGEST_KEY],
        title=one_line(str(value.get("title") or ""), _LONGEST_TITLE),
        note=one_line(value["note"], LONGEST_NOTE) or "known",
        since=float(since) if since is not None and known else 1.0,
    )


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, so that the notes of two sessions at a time are both kept.

    Raises:
        OSError: Another session has not released it in time.
    """
    with path.with_suffix(".lock").open("a") as file:
        try:
            wait_for_lock(file.fileno(), _LOCK_PATIENCE)
        except TimeoutError:
            raise OSError("another session is writing it") from None
        yield
