"""Recording of a session: JSON lines in a gzip stream that stays readable, however the program ends."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from fabtui.errors import InputError
from fabtui.model.events import Event

#: zlib window bits of the gzip format.
_GZIP = 31


class Journal:
    """Appends events to a new file; each batch is handed to the operating system before `append` returns.

    Args:
        path: The file; it must not exist. A missing folder is created, readable by the user only.

    Raises:
        InputError: The file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"cannot record to {path}: {error.strerror}; choose another --record") from None
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._closed = False

    def append(self, events: Iterable[Event]) -> None:
        """Write events; readers see them from now on, even if this process is killed.

        Raises:
            OSError: The file cannot be written (disk full).
        """
        packed = bytearray()
        # One at a time: the text of a large batch would be in memory several times.
        for event in events:
            text = json.dumps(event.to_json(), separators=(",", ":"), ensure_ascii=False) + "\n"
            packed += self._compressor.compress(text.encode("utf-8", "backslashreplace"))
        self._write(packed + self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        """End the gzip stream and close the file; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._write(self._compressor.flush(zlib.Z_FINISH))
        finally:
            os.close(self._fd)
