"""Session that was asked about last: assistants ask several questions about one, and large ones take 20 s to read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.importers.session import is_recording, read_session, replayed


class ReadSession(NamedTuple):
    """A session as it was read."""

    diagnosis: Diagnosis  #: Its diagnosis.
    problems: tuple[str, ...]  #: Why it is not whole.


class LatestSession:
    """Keeps one session, as long as its file does not change."""

    def __init__(self) -> None:
        # Two calls at once about one file read it once.
        self._lock = threading.Lock()
        self._key: tuple[Path, int, int] | None = None
        self._found: ReadSession | None = None

    def read(self, path: Path, progress: Callable[[float], object]) -> ReadSession:
        """Return the session of a file; blocks.

        Args:
            path: The file.
            progress: Called with the share of the file that was read; what it raises ends the reading.

        Raises:
            InputError: It holds no session.
        """
        while not self._lock.acquire(timeout=1.0):
            progress(0.0)
        try:
            about = path.stat()
            key = (path, about.st_mtime_ns, about.st_size)
            if self._found is None or self._key != key:
                # Not two large ones at a time.
                self._key = self._found = None
                self._found = _read(path, progress)
                self._key = key
            return self._found
        finally:
            self._lock.release()


def _read(path: Path, progress: Callable[[float], object]) -> ReadSession:
    if not is_recording(path):
        return ReadSession(diagnose(read_session(str(path), progress)), ())
    model, damage = replayed(path, progress)
    problems = () if damage is None else (f"{damage}; the part before it was examined, the rest was not",)
    return ReadSession(diagnose(model), problems)
