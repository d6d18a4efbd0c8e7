"""Contents of packed files, recognised by their first bytes: gzip, xz, bzip2, zstd and zip."""

from __future__ import annotations

import bz2
import importlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, Protocol

from fabtui.errors import InputError

#: Maximum bytes read of one file; a packed one may not grow beyond it either.
MOST_BYTES = 64 * 1024 * 1024
#: Maximum members of an archive that are read.
MOST_MEMBERS = 4096
_CHUNK = 1 << 18
#: Maximum memory for unpacking xz: ``xz -9`` takes 65 MiB, a hostile file asks for 4 GiB.
_XZ_MEMORY = 256 << 20
DAMAGED = "the packed file is damaged"
_READS = "fabtui reads gzip, xz, bzip2, zip and plain text"


class Content(NamedTuple):
    """Bytes of a file, or of a member of an archive."""

    member: str  #: The name of the member; "" for a file.
    data: bytes
    cut: str | None  #: Why not all of it is there, or None.


class _Unpacker(Protocol):
    """The interface of the standard library's decompressors."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _Gunzip:
    """The decompressor for gzip with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _zstd() -> _Unpacker:
    """Return the decompressor of the standard library.

    Raises:
        InputError: This Python has none: it is in Python 3.14.
    """
    try:
        unpacker: _Unpacker = importlib.import_module("compression.zstd").ZstdDecompressor()
    except ImportError:
        raise InputError(f"compressed with zstd; {_READS}: zstd -dc FILE | fabtui explain -") from None
    return unpacker


#: Decompressors by the first bytes of a file.
_UNPACKERS: dict[bytes, Callable[[], _Unpacker]] = {
    b"\x1f\x8b": _Gunzip,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
    b"BZh": bz2.BZ2Decompressor,
    b"\x28\xb5\x2f\xfd": _zstd,
}
#: A zip archive, and an empty one.
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
#: Packed files that are not read, and the command that unpacks one.
_OTHERS = {
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc FILE | fabtui explain -"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x -so FILE | fabtui explain -"),
}
_LONGEST_MARK = 6


def contents(file: IO[bytes]) -> Iterator[Content]:
    """Yield the bytes of a file, unpacked where it is packed; of an archive, those of each member.

    Raises:
        InputError: The format of the packed file is known and cannot be read; the reason begins with a lower-case word.
    """
    first = file.read(_LONGEST_MARK)
    if first.startswith(_ZIP):
        yield from _members(_limited(file, first)[0])
        return
    for mark, (name, command) in _OTHERS.items():
        if first.startswith(mark):
            raise InputError(f"compressed with {name}; {_READS}: {command}")
    yield Content("", *_stream(file, first))


def _stream(file: IO[bytes], first: bytes) -> tuple[bytes, str | None]:
    """Return the bytes of a file that is not an archive, and why not all of them."""
    for mark, unpacker in _UNPACKERS.items():
        # "BZh" may begin a text; a digit and the first block follow in a packed file.
        if first.startswith(mark) and (mark != b"BZh" or first[3:4].isdigit()):
            return _unpacked(file, first, unpacker)
    return _limited(file, first)


def _limited(file: IO[bytes], first: bytes = b"") -> tuple[bytes, str | None]:
    pieces = [first]
    total = len(first)
    while total <= MOST_BYTES and (data := file.read(_CHUNK)):
        pieces.append(data)
        total += len(data)
    return _within(b"".join(pieces))


def _unpacked(file: IO[bytes], first: bytes, begin: Callable[[], _Unpacker]) -> tuple[bytes, str | None]:
    pieces: list[bytes] = []
    total = 0
    unpacker = begin()
    data = first + file.read(_CHUNK)
    try:
        while total <= MOST_BYTES and (data or not unpacker.needs_input):
            piece = unpacker.decompress(data, _CHUNK)
            pieces.append(piece)
            total += len(piece)
            data = b""
            if unpacker.eof:
                # Packed files may be one behind the other.
                data = unpacker.unused_data or file.read(_CHUNK)
                if not any(data.startswith(mark) for mark in _UNPACKERS):
                    return _within(b"".join(pieces))
                unpacker = begin()
            elif unpacker.needs_input:
                data = file.read(_CHUNK)
    except (zlib.error, lzma.LZMAError, OSError, ValueError):
        # OSError is what bzip2 raises; ValueError covers libraries for zstd, whose errors vary.
        return b"".join(pieces)[:MOST_BYTES], DAMAGED
    # A recording of a session that still runs is a gzip stream without an end.
    if total <= MOST_BYTES and not isinstance(unpacker, _Gunzip):
        return b"".join(pieces), "the packed file is cut off"
    return _within(b"".join(pieces))


def _members(archive: bytes) -> Iterator[Content]:
    """Yield the members of a zip archive, of all together at most `MOST_BYTES`."""
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            names = [one for one in packed.infolist() if not one.is_dir()]
            if not names:
                raise InputError("an archive (zip) without files")
            for one in names[:MOST_MEMBERS]:
                if one.flag_bits & 1:
                    raise InputError(f"encrypted; {_READS}: unzip -p FILE | fabtui explain -")
                if left <= 0:
                    return
                with packed.open(one) as file:
                    data, cut = _member(file, left)
                left -= len(data)
                yield Content(one.filename, data, cut)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise InputError(f"a zip archive that cannot be read: {error}") from None


def _member(file: IO[bytes], left: int) -> tuple[bytes, str | None]:
    """Return the bytes of a member, unpacked once more if it is packed itself, and why not all of them."""
    try:
        first = file.read(_LONGEST_MARK)
        if first.startswith((*_ZIP, *_OTHERS)):
            return b"", "a packed file in an archive: unpack it first"
        data, cut = _stream(file, first)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError):
        return b"", DAMAGED
    return (data, cut) if len(data) <= left else (data[:left], "only a part of the archive was read: it is too large")


def _within(data: bytes) -> tuple[bytes, str | None]:
    if len(data) > MOST_BYTES:
        return data[:MOST_BYTES], f"only the first {MOST_BYTES >> 20} MiB were read"
    return data, None
