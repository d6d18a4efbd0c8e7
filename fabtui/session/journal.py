"""The recording of a session: JSON lines in a gzip stream that is readable at any moment, whatever ends the program."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fabtui.errors import InputError
from fabtui.model.event_schema import check_event

_GZIP = 31
_CHUNK = 1 << 16
#: A line longer than this is not an event of ours.
MAX_LINE = 64 * 1024 * 1024


class DamagedRecording(InputError):
    """A recording holds something, from some place on, that is no event of fabtui; what comes before is good."""


class Journal:
    """Appends events to a new file; each batch is handed to the operating system before `append` returns.

    Args:
        path: The file; it must not exist. Its folder is made when it is missing, for the user alone.

    Raises:
        InputError: The file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"cannot record to {path}: {error.strerror}; choose another --record") from None
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._closed = False

    def append(self, events: Iterable[dict[str, Any]]) -> None:
        """Write events; a reader sees them from now on, also when this process is killed.

        Raises:
            OSError: The file cannot be written (disk full).
        """
        packed = bytearray()
        # One by one: the text of a large batch as a whole would be in memory several times.
        for event in events:
            text = json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n"
            packed += self._packer.compress(text.encode("utf-8", "backslashreplace"))
        self._write(packed + self._packer.flush(zlib.Z_SYNC_FLUSH))

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
            self._write(self._packer.flush(zlib.Z_FINISH))
        finally:
            os.close(self._fd)


def _unpacked(path: Path) -> Iterator[bytes]:
    """Yield what a gzip file holds, up to where it was cut; a file that is not packed is taken as it is."""
    with path.open("rb") as file:
        data = file.read(_CHUNK)
        if data[:2] != b"\x1f\x8b":
            while data:
                yield data
                data = file.read(_CHUNK)
            return
        unpacker = zlib.decompressobj(_GZIP)
        while data:
            try:
                yield unpacker.decompress(data)
            except zlib.error:
                return
            data = file.read(_CHUNK)


def _lines(path: Path) -> Iterator[bytes]:
    rest = b""
    for data in _unpacked(path):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE:
            raise InputError(f"{path}: a line of more than {MAX_LINE >> 20} MiB: not a recording of fabtui")
    # What follows the last line end is an event that was being written when the program was killed.


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a recording, up to the last whole one.

    Raises:
        InputError: The file cannot be read, or is not a recording.
        DamagedRecording: It begins as a recording, and does not go on as one.
    """
    first = True
    number = 0
    try:
        for line in _lines(path):
            number += 1
            event = json.loads(line)
            if not isinstance(event, dict) or "kind" not in event:
                raise ValueError("not an event")
            if first and event["kind"] != "start":
                raise ValueError("does not begin with a start event")
            check_event(event)
            first = False
            yield event
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if first:
            raise InputError(f"{path}, line {number}: not a recording of fabtui ({error})") from None
        raise DamagedRecording(f"{path}, line {number}: not an event of fabtui ({error})") from None
    if first:
        raise InputError(f"{path}: empty, or not a recording of fabtui")
