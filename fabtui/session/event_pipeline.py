"""Event pipeline: into the journal first, then into the model, then to the listeners."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from fabtui.errors import InputError
from fabtui.model.events import Event, LogEntry, Measured, PhaseStart, SessionEnd
from fabtui.model.session_model import Model
from fabtui.sanitize import escaped

#: zlib window bits of the gzip format.
_GZIP = 31
#: Level of compression: 40 us per pair of endpoints; the usual level 6 takes 125 us, for files smaller by a seventh.
_COMPRESSION = 2
#: Events that are no evidence: no finding depends on them.
_ASIDES = (LogEntry, PhaseStart, SessionEnd)
#: Number of queued events from which no more messages of nodes are read.
MAX_PENDING = 1000
#: The same, counted in results, which come many in an event.
MAX_RESULTS = 150


class Journal:
    """Recording of a session: JSON lines in a gzip stream that stays readable, however the program ends.

    Each batch is handed to the operating system before `append` returns. The file must not exist, or be empty. A
    missing folder is created, readable by the user only.

    Raises:
        InputError: The file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                # One that `free_path` made.
                if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_size:
                    raise
                self._fd = os.open(path, flags)
        except OSError as error:
            raise InputError(f"cannot record to {path}: {error.strerror}; choose another --record") from None
        # Shows `fabtui resume` that a session is still writing it; not every file system has locks.
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._compressor = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, _GZIP)
        self._closed = False

    def append(self, events: Iterable[Event]) -> None:
        """Write events; readers see them from now on, even if this process is killed.

        Raises:
            OSError: The file cannot be written (disk full).
        """
        packed = bytearray()
        # One at a time: the text of a large batch would be in memory several times.
        for event in events:
            packed += self._compressor.compress(_line(event))
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


def _plain(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _line(event: Event) -> bytes:
    value = event.to_json()
    with contextlib.suppress(UnicodeEncodeError, TypeError):
        line = _encode(value)
        if line.isascii() and b"\x7f" not in line:
            return line + b"\n"
    # Control and invisible characters become escapes, and so do halves of surrogate pairs.
    text = escaped(json.dumps(value, separators=(",", ":"), ensure_ascii=False)) + "\n"
    return text.encode("utf-8", "backslashreplace")


class EventPump:
    """Numbers and stamps events and moves them in batches.

    ``lost`` is called with the reason when the journal can no longer be written (disk full).
    """

    def __init__(self, model: Model, journal: Journal | None, lost: Callable[[str], None] = lambda _: None) -> None:
        self.model = model
        self._journal = journal
        self._lost = lost
        self._pending: list[Event] = []
        self._wake = asyncio.Event()
        self._passing: set[int] = set()  #: Numbers of pending events that are not recorded.
        self._results = 0  #: Number of results in the pending events.
        self._seq = 0
        self._applied = 0
        self.evidence = 0  #: Number of events in the model on which findings depend.
        self._moved = asyncio.Condition()
        self._broken: Exception | None = None  #: A mistake of ours with which `run` ended.
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def take_over(self, events: Iterable[Event]) -> None:
        """Move the events of an earlier part of the session, while `run` runs.

        Raises:
            InputError: They cannot be read, or do not fit each other.
        """
        left = iter(events)
        while batch := await asyncio.to_thread(lambda: list(itertools.islice(left, MAX_PENDING))):
            self._pending += [msgspec.structs.replace(event, seq=self._seq + at) for at, event in enumerate(batch)]
            self._seq += len(batch)
            self._wake.set()
            await self.flush()

    def emit(self, event: Event, *, recorded: bool = True) -> None:
        """Number an event and queue it for the journal, unless it is not to be ``recorded``, and the model."""
        event.seq, event.time = self._seq, round(time.time(), 6)
        self._pending.append(event)
        if isinstance(event, Measured):
            self._results += len(event.measurements)
        if not recorded:
            self._passing.add(self._seq)
        self._seq += 1
        self._wake.set()

    def log(self, level: str, text: str, node: str | None = None) -> None:
        self.emit(LogEntry(level=level, node=node, text=text))

    @property
    def is_full(self) -> bool:
        """True while too many events are queued (a slow disk)."""
        return len(self._pending) > MAX_PENDING or self._results > MAX_RESULTS

    async def room(self) -> None:
        """Wait while too many events are queued; for the readers of the nodes' messages."""
        while self.is_full:
            async with self._moved:
                await self._moved.wait()

    async def run(self) -> None:
        """Move events until cancelled; call `drain` afterwards."""
        try:
            while True:
                await self._wake.wait()
                await self._move()
        except Exception as error:
            # Who waits for the model would wait for ever.
            self._broken = error
            async with self._moved:
                self._moved.notify_all()
            raise

    async def _move(self) -> None:
        self._wake.clear()
        batch, self._pending = self._pending, []
        self._results = 0
        passing, self._passing = self._passing, set()
        if self._journal is not None:
            try:
                # A home folder may be on a slow file server: the event loop never waits for it.
                kept = [one for one in batch if one.seq not in passing] if passing else batch
                await asyncio.shield(asyncio.to_thread(self._journal.append, kept))
            except OSError as error:
                self._journal = None
                self._lost(error.strerror or str(error))
                self.log("error", f"recording stopped: {error.strerror or error}")
            except asyncio.CancelledError:
                self._apply(batch)
                raise
        self._apply(batch)
        async with self._moved:
            self._moved.notify_all()

    def _apply(self, batch: list[Event]) -> None:
        if self._broken is not None:
            # The recording still takes what comes.
            return
        for one in batch:
            self.model.apply(one)
            self.evidence += not isinstance(one, _ASIDES)
        self._applied += len(batch)
        if batch:
            for changed in self._listeners:
                changed()

    async def flush(self) -> None:
        """Wait until all emitted events are in the model."""
        wanted = self._seq
        async with self._moved:
            while self._applied < wanted:
                if self._broken is not None:
                    raise self._broken
                await self._moved.wait()

    async def drain(self) -> None:
        """Move the remaining events and close the journal; `run` must have ended."""
        if self._pending:
            await self._move()
        if self._pending:
            await self._move()
        if self._journal is not None:
            try:
                await asyncio.to_thread(self._journal.close)
            except OSError as error:
                self._lost(error.strerror or str(error))
            self._journal = None
