"""Reading of recordings: the events of a session, from JSON lines in a gzip stream or plain file."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fabtui.errors import InputError
from fabtui.model.events import APPLY_ERRORS, Event, SessionStart, event_from_json, event_from_line
from fabtui.paths import open_unblocked

if TYPE_CHECKING:
    from fabtui.model.session_model import Model

#: zlib window bits of the gzip format.
_GZIP = 31
_CHUNK = 1 << 16
#: A packed file is read in smaller parts, because 1 KiB of it may be 1 MiB of text.
_PACKED_CHUNK = 1 << 12
#: Maximum length of a line in bytes; longer lines are not events.
MAX_LINE = 32 * 1024 * 1024
#: Maximum number of values in a line, which take fifty times their room as objects; counted in long lines.
MAX_VALUES = 2_000_000
_LONG_LINE = 1 << 20
#: Maximum bytes of text of a recording: ten days of watching at 20 pairs per second.
MAX_TEXT = 4 << 30
#: Maximum bytes of text for each packed byte, and besides: recordings have 10 to 20. A small file that stands for
#: millions of events would keep its reader busy for minutes.
MAX_RATIO, _MORE_TEXT = 64, 64 << 20
#: Maximum number of nodes of a recording.
MAX_NODES = 20_000


class DamagedRecording(InputError):
    """A recording holds invalid data from some place on; what comes before is valid."""


def _open(path: Path) -> BinaryIO:
    """Open a recording; only a regular file can be one, and nothing else may block here."""
    descriptor = open_unblocked(path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path}: not a regular file, so not a recording of fabtui")
    return os.fdopen(descriptor, "rb")


def _blocks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the offset of each block and its complete lines; a gzip file is read up to where it is cut off."""
    with _open(path) as file:
        unpacker = zlib.decompressobj(_GZIP) if file.read(2) == b"\x1f\x8b" else None
        file.seek(0)
        rest: list[bytes] = []
        length = 0
        while data := file.read(_CHUNK if unpacker is None else _PACKED_CHUNK):
            offset = file.tell() - len(data)
            if unpacker is not None:
                try:
                    data = unpacker.decompress(data)
                except zlib.error:
                    return
            first, *others = data.split(b"\n")
            rest.append(first)
            length += len(first)
            whole: list[bytes] = []
            if others:
                # Joined once: a long line comes in thousands of pieces.
                whole, rest = [b"".join(rest), *others[:-1]], [others[-1]]
                length = len(others[-1])
            yield offset, whole
            if length > MAX_LINE:
                raise InputError(f"{path}: a line of more than {MAX_LINE >> 20} MiB: not a recording of fabtui")
    # The rest after the last line end is an event that was being written when the program was killed.


class EventReader:
    """Reads the events of a recording, up to the last complete one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self.offset = 0  #: Bytes of the file before the block of the latest event.
        self.size = 0  #: Bytes of text read so far.

    def __iter__(self) -> Iterator[Event]:
        """Yield the events.

        Raises:
            InputError: The file cannot be read, or is not a recording.
            DamagedRecording: The file begins as a recording and continues with something else.
        """
        path, first = self._path, True
        try:
            for line in self.lines():
                if len(line) > _LONG_LINE and line.count(b",") > MAX_VALUES:
                    raise ValueError(f"more than {MAX_VALUES} values")
                # The first by itself: a decoder of all kinds takes 20 ms, before the first frame of a replay.
                event = event_from_json(json.loads(line)) if first else event_from_line(line)
                if first and not isinstance(event, SessionStart):
                    raise ValueError("does not begin with a start event")
                if isinstance(event, SessionStart) and len(event.nodes) > MAX_NODES:
                    raise ValueError(f"more than {MAX_NODES} nodes")
                if self.size > MAX_TEXT:
                    raise ValueError(f"more than {MAX_TEXT >> 30} GiB of text")
                if self.size > _MORE_TEXT + MAX_RATIO * (self.offset + _PACKED_CHUNK):
                    raise ValueError(f"it unpacks to more than {MAX_RATIO} times its size")
                first = False
                yield event
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            if first:
                # The error of the JSON parser helps nobody who gave another kind of file.
                other = f"; for the log of a job: fabtui explain {shlex.quote(str(path))}"
                text = "it is not text" if isinstance(error, UnicodeDecodeError) else error
                reason = other if isinstance(error, json.JSONDecodeError) else f" ({text})"
                raise InputError(f"{path}, line {self._number}: not a recording of fabtui{reason}") from None
            raise DamagedRecording(f"{path}, line {self._number}: not an event of fabtui ({error})") from None
        if first:
            raise InputError(f"{path}: empty, or not a recording of fabtui")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines as they are written; see `_blocks` for what it raises."""
        for offset, lines in _blocks(self._path):
            self.offset = offset
            for line in lines:
                self._number += 1
                self.size += len(line)
                yield line


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a recording; see `EventReader`.

    Raises:
        InputError: The file cannot be read, or is not a recording.
        DamagedRecording: The file begins as a recording and continues with something else.
    """
    return iter(EventReader(path))


def check_recording(path: Path) -> None:
    """Check that a file is a recording.

    Raises:
        InputError: It is not; it is a `DamagedRecording` if it was one.
    """
    next(iter(read_events(path)))


def last_time(path: Path) -> float | None:
    """Return the time (epoch seconds) of the last complete event of a recording, or None; events are not validated."""
    last = b""
    with contextlib.suppress(OSError, ValueError, RecursionError, InputError):
        for _, lines in _blocks(path):
            last = lines[-1] if lines else last
        value = json.loads(last)
        if isinstance(value, dict) and isinstance(value.get("time"), int | float):
            return float(value["time"])
    return None


def apply_recorded(model: Model, event: Event, path: Path) -> None:
    """Apply an event of a recording to a model.

    Raises:
        DamagedRecording: The event does not fit the state of the model.
    """
    try:
        model.apply(event)
    except APPLY_ERRORS as error:
        raise DamagedRecording(f"{path}: event {event.seq} cannot be used ({error})") from None
