"""Raw texts and extras of measurements, compressed in chunks in an unlinked temporary file.

They are read when one pair is inspected, and would be most of the memory of a session. A recording in gzip cannot be
read at an offset, so they are not read back from there. The file has no name: nothing remains of it,
even after kill -9.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from array import array
from typing import IO, Any

#: Place of a measurement that has neither raw text nor extras.
NO_TEXT = 0xFFFFFFFF
_BITS = 8
#: Maximum number of texts in a chunk.
CHUNK_TEXTS = 1 << _BITS
#: Maximum number of characters in a chunk, unless a single text is longer.
CHUNK_CHARACTERS = 1 << 16
#: Up to this many bytes of chunks stay in memory: small sessions need no file.
IN_MEMORY = 1 << 18
#: Minimum file size at which unused chunks are worth removing.
COMPACT_FROM = 1 << 24
#: Decompressed chunks that are cached: the grid and the diagnosis read neighbouring rows.
_CACHED = 4

Text = tuple[str | None, dict[str, Any] | None]


class TextSpool:
    """Stores raw text and extras, and returns the place to read them from."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._characters = 0
        #: Offset and length of each chunk in the file; length 0: in memory or unused.
        self._offsets = array("Q")
        self._lengths = array("I")
        #: Count of texts in use of each chunk.
        self._in_use = array("H")
        self._pending_in_use = 0
        self._memory: dict[int, bytes] = {}
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._unused = 0
        self._cache: dict[int, list[Text]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to be copied, with the chunks of the file."""
        kept = {number: self._data(number) for number, length in enumerate(self._lengths) if length}
        return {**vars(self), "_file": None, "_cache": {}, "_kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state.pop("_kept")
        vars(self).update(state)
        self._end = self._unused = 0
        for number, data in kept.items():
            self._lengths[number] = 0
            self._store(number, data)

    def add(self, raw: str | None, extra: dict[str, Any] | None) -> int:
        """Store a text with extras, and return its place."""
        if raw is None and extra is None:
            return NO_TEXT
        if len(self._pending) == CHUNK_TEXTS or self._characters >= CHUNK_CHARACTERS:
            self._close_chunk()
        text = json.dumps((raw, extra), separators=(",", ":"))
        self._pending.append(text)
        self._pending_in_use += 1
        self._characters += len(text)
        return len(self._offsets) << _BITS | len(self._pending) - 1

    def read(self, place: int) -> Text:
        """Return raw text and extras of a place; both None if they cannot be read any more."""
        number, at = place >> _BITS, place & (CHUNK_TEXTS - 1)
        if number == len(self._offsets):
            raw, extra = json.loads(self._pending[at])
            return raw, extra
        texts = self._cache.get(number)
        if texts is None:
            data = self._data(number)
            if not data:
                return None, None
            texts = json.loads(zlib.decompress(data))
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = texts
        raw, extra = texts[at]
        return raw, extra

    def drop(self, place: int) -> None:
        """Forget the text of a place; the room is reused when its whole chunk is unused."""
        number = place >> _BITS
        if place == NO_TEXT:
            return
        if number == len(self._offsets):
            self._pending_in_use -= 1
            return
        self._in_use[number] -= 1
        if not self._in_use[number]:
            self._discard(number)

    def _discard(self, number: int) -> None:
        self._cache.pop(number, None)
        self._memory_bytes -= len(self._memory.pop(number, b""))
        self._unused += self._lengths[number]
        self._lengths[number] = 0
        if self._end >= COMPACT_FROM and 2 * self._unused > self._end:
            self._compact()

    def _close_chunk(self) -> None:
        data = zlib.compress(f"[{','.join(self._pending)}]".encode(), 1)
        number = len(self._offsets)
        self._offsets.append(0)
        self._lengths.append(0)
        self._in_use.append(self._pending_in_use)
        self._store(number, data)
        if not self._pending_in_use:
            self._discard(number)
        self._pending.clear()
        self._characters = self._pending_in_use = 0

    def _store(self, number: int, data: bytes) -> None:
        """Write a chunk; it stays in memory while there is little, and where the disk does not take it."""
        if self._file is not None or self._memory_bytes + len(data) > IN_MEMORY:
            try:
                self._write(number, data)
            except OSError:
                pass
            else:
                return
        self._memory[number] = data
        self._memory_bytes += len(data)

    def _write(self, number: int, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fabtui-")  # noqa: SIM115 - lives as long as the spool
        view, at = memoryview(data), self._end
        while view:
            written = os.pwrite(self._file.fileno(), view, at)
            view, at = view[written:], at + written
        self._offsets[number], self._lengths[number] = self._end, len(data)
        self._end = at

    def _data(self, number: int) -> bytes:
        if number in self._memory:
            return self._memory[number]
        if self._file is None or not self._lengths[number]:
            return b""
        return os.pread(self._file.fileno(), self._lengths[number], self._offsets[number])

    def _compact(self) -> None:
        """Move the chunks in use to the beginning of the file; each moves towards it, so none is overwritten."""
        chunks = sorted((self._offsets[number], number) for number, length in enumerate(self._lengths) if length)
        self._end = self._unused = 0
        for _, number in chunks:
            self._write(number, self._data(number))
        assert self._file is not None
        self._file.truncate(self._end)
