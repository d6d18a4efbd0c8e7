"""Reading of recordings: the events of a session, from JSON lines in a gzip stream or plain file."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from fabtui.errors import InputError
from fabtui.model.events import APPLY_ERRORS, Event, SessionStart, event_from_json
from fabtui.model.session_model import Model

#: zlib window bits of the gzip format.
_GZIP = 31
_CHUNK = 1 << 16
#: Maximum length of a line in bytes; longer lines are not events.
MAX_LINE = 64 * 1024 * 1024


class DamagedRecording(InputError):
    """A recording holds invalid data from some place on; what comes before is valid."""


def _decompressed(path: Path) -> Iterator[bytes]:
    """Yield the content of a gzip file up to where it is cut off; a plain file is read unchanged."""
    with path.open("rb") as file:
        data = file.read(_CHUNK)
        if data[:2] != b"\x1f\x8b":
            while data:
                yield data
                data = file.read(_CHUNK)
            return
        decompressor = zlib.decompressobj(_GZIP)
        while data:
            try:
                yield decompressor.decompress(data)
            except zlib.error:
                return
            data = file.read(_CHUNK)


def _lines(path: Path) -> Iterator[bytes]:
    rest = b""
    for data in _decompressed(path):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE:
            raise InputError(f"{path}: a line of more than {MAX_LINE >> 20} MiB: not a recording of fabtui")
    # The rest after the last line end is an event that was being written when the program was killed.


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a recording, up to the last complete one.

    Raises:
        InputError: The file cannot be read, or is not a recording.
        DamagedRecording: The file begins as a recording and continues with something else.
    """
    first = True
    number = 0
    try:
        for line in _lines(path):
            number += 1
            event = event_from_json(json.loads(line))
            if first and not isinstance(event, SessionStart):
                raise ValueError("does not begin with a start event")
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


def last_time(path: Path) -> float | None:
    """Return the time (epoch seconds) of the last complete event of a recording, or None; events are not validated."""
    last = b""
    with contextlib.suppress(OSError, ValueError, RecursionError, InputError):
        for line in _lines(path):
            last = line
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
