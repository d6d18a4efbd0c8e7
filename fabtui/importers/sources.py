"""Texts from files, folders, standard input, and packed files: gzip, xz, bzip2, zstd and zip by their first bytes."""

from __future__ import annotations

import bz2
import importlib
import io
import lzma
import os
import select
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, Protocol

from fabtui.diagnosis.job.plain_pickle import READER, NotPlain, is_pickle, json_of
from fabtui.errors import InputError
from fabtui.importers.formats.pair_benchmarks import FILE
from fabtui.paths import open_unblocked, user_path

#: How many files of a folder are read.
MOST_FILES = 4096
#: How long (s) a pipe may stay empty.
PIPE_PATIENCE = 30.0
#: Maximum bytes read of one file; a packed one may not grow beyond it either.
MOST_BYTES = 64 * 1024 * 1024
#: Maximum lines of a text: each takes some 60 bytes more than its characters.
MOST_LINES = 1_500_000
#: Maximum bytes of a text that keeps all characters; in longer ones "?" replaces those beyond ASCII.
_LONGEST_WIDE = 16 << 20
_ASCII = bytes(range(0x80)) + b"?" * 0x80
#: Maximum members of an archive that are read.
MOST_MEMBERS = 4096
_CHUNK = 1 << 18
#: Maximum memory for unpacking xz: ``xz -9`` takes 65 MiB, a hostile file asks for 4 GiB.
_XZ_MEMORY = 256 << 20
DAMAGED = "the packed file is damaged"
_READS = "fabtui reads gzip, xz, bzip2, zip and plain text"


class Source(NamedTuple):
    """A text and where it is from."""

    name: str  #: What users call it: a path, or ``-``.
    text: str  #: What it holds, bytes that are not UTF-8 shown as U+FFFD.
    cut: str | None = None  #: Why not all of it is there, or None.


def sources(names: Sequence[str]) -> Iterator[Source]:
    """Yield the text of each file; a folder gives its files, and a set of ``p2p-test-S-R-JOB.out`` is one text.

    Raises:
        InputError: A file cannot be read, or a folder has none.
    """
    if names.count("-") > 1:
        raise InputError("standard input (-) can be read only once")
    paths: list[Path | None] = []
    for name in names:
        if name == "-":
            paths.append(None)
            continue
        path = user_path(name)
        paths += list(_files_in(path)) if _is_folder(path) else [path]
    runs: dict[Path, list[Path]] = {}
    for path in filter(None, paths):
        if FILE.fullmatch(path.name):
            runs.setdefault(path.parent, []).append(path)
    for each in paths:
        if each is None:
            yield from _texts("-", sys.stdin.buffer)
        elif not FILE.fullmatch(each.name):
            yield from _read(each)
        elif together := runs.pop(each.parent, []):
            yield _joined(together, str(each if len(together) == 1 else each.parent))


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and the folders in it, by name, without hidden ones and without following links."""
    paths: list[Path] = []
    try:
        for root, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(root, name)
                if not name.startswith(".") and path.is_file():
                    paths.append(path)
            if len(paths) > MOST_FILES:
                raise InputError(f"{folder}: more than {MOST_FILES} files; name the ones to read")
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    if not paths:
        raise InputError(f"{folder}: no files in it")
    yield from paths


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        # Errors of the name are reported when it is opened.
        return False


def _raise(error: OSError) -> None:
    raise error


def _read(path: Path) -> Iterator[Source]:
    try:
        mode = path.stat().st_mode
        # A pipe made by the shell, <(ssh n060 ibstat), is as good as a file.
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise InputError(f"{path}: not a file")
        descriptor = open_unblocked(path)
        with os.fdopen(descriptor, "rb") as file:
            _wait_for_data(path, descriptor)
            yield from _texts(str(path), file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {path}: {reason}") from None


def _texts(name: str, file: BinaryIO) -> Iterator[Source]:
    try:
        for content in contents(file):
            source = Source(f"{name}/{content.member}" if content.member else name, *_decoded(content))
            # Its bytes are not kept while the text is read.
            del content
            yield source
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _wait_for_data(path: Path, descriptor: int) -> None:
    """Wait for the first data of a pipe; the rest of it is waited for as long as it takes."""
    os.set_blocking(descriptor, True)
    if not select.select([descriptor], [], [], PIPE_PATIENCE)[0]:
        raise InputError(f"{path}: nothing was written to this pipe for {PIPE_PATIENCE:.0f} s")


def _joined(paths: list[Path], name: str) -> Source:
    """Return several files as one text, each with its name before it; ``.err`` files lie beside them."""
    every = sorted({*paths, *(beside for path in paths if (beside := path.with_suffix(".err")).is_file())})
    pieces = []
    cut = None
    for path in every:
        for source in _read(path):
            cut = cut or source.cut
            pieces.append(f"==> {path.name} <==\n{source.text}\n")
    return Source(name, "".join(pieces), cut)


def _decoded(content: Content) -> tuple[str, str | None]:
    """Return the text of some bytes, and why not all of it: its memory is bounded as well as their number."""
    data, cut = content.data, content.cut
    if is_pickle(data):
        try:
            # Plain values alone, so that JSON can hold them.
            return _json_of_pickle(data), cut
        except NotPlain as error:
            # Its bytes are not lines: what looks like words there is no log.
            return "", cut or str(error)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        if len(data) > _LONGEST_WIDE and not data.isascii():
            # One character beyond U+FFFF makes each take 4 bytes.
            data = data.translate(_ASCII, bytes(range(0x80, 0xC0)))
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if text.count("\n") <= MOST_LINES:
        return text, cut
    at = lines = 0
    while (lines := lines + text.count("\n", at, at + _CHUNK)) <= MOST_LINES:
        at += _CHUNK
    return text[: text.rindex("\n", 0, at) + 1], cut or f"only the first {MOST_LINES} lines were read"


def _json_of_pickle(data: bytes) -> str:
    """Return the value of a pickle as JSON text; raise `NotPlain` if it holds more or takes too much."""
    done = subprocess.run(READER, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return json_of(done.stdout, done.returncode)


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


class _Inflate:
    """Decompresses deflate as the others do theirs; ``bits`` as in `zlib.decompressobj`, 31 for gzip."""

    def __init__(self, bits: int = 31) -> None:
        self._inner = zlib.decompressobj(bits)

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
    b"\x1f\x8b": _Inflate,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
    b"BZh": bz2.BZ2Decompressor,
    b"\x28\xb5\x2f\xfd": _zstd,
}
#: Decompressors of the members of a zip archive, by method.
_METHODS: dict[int, Callable[[], _Unpacker]] = {
    zipfile.ZIP_DEFLATED: lambda: _Inflate(-15),
    zipfile.ZIP_BZIP2: bz2.BZ2Decompressor,
    zipfile.ZIP_LZMA: lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_XZ_MEMORY),
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
    if total <= MOST_BYTES and not isinstance(unpacker, _Inflate):
        return b"".join(pieces), "the packed file is cut off"
    return _within(b"".join(pieces))


def _members(archive: bytes) -> Iterator[Content]:
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            members = [member for member in packed.infolist() if not member.filename.endswith("/")]
            if not members:
                raise InputError("an archive (zip) without files")
            for member in members[:MOST_MEMBERS]:
                if member.compress_type not in (zipfile.ZIP_STORED, *_METHODS):
                    raise NotImplementedError(f"compression method {member.compress_type} is not known")
                if member.flag_bits & 1:
                    raise InputError(f"encrypted; {_READS}: unzip -p FILE | fabtui explain -")
                if left <= 0:
                    return
                read = [_member(archive, member, left)]
                left -= len(read[0][0])
                # Not kept here while its text is read.
                yield Content(member.filename, *read.pop())
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise InputError(f"a zip archive that cannot be read: {error}") from None


def _member(archive: bytes, member: zipfile.ZipInfo, left: int) -> tuple[bytes, str | None]:
    """Return the bytes of a member, unpacked once more if it is packed itself, and why not all of them.

    `zipfile` bounds what it unpacks for deflate alone: with bzip2 and LZMA all that a piece stands for comes at once.
    """
    try:
        data, cut = _raw_member(archive, member)
        if data.startswith((*_ZIP, *_OTHERS)):
            return b"", "a packed file in an archive: unpack it first"
        if cut is None:
            file = io.BytesIO(data)
            data, cut = _stream(file, file.read(_LONGEST_MARK))
    except (struct.error, zlib.error, lzma.LZMAError, EOFError, OSError):
        return b"", DAMAGED
    return (data, cut) if len(data) <= left else (data[:left], "only a part of the archive was read: it is too large")


def _raw_member(archive: bytes, member: zipfile.ZipInfo) -> tuple[bytes, str | None]:
    """Return the bytes of a member as its method unpacks them, at most `MOST_BYTES`, and why not all of them.

    The local header (APPNOTE.TXT 4.3.7) has 30 bytes; the lengths of the name and of the extra field are its last.
    """
    mark, name, extra = struct.unpack_from("<4s22xHH", archive, member.header_offset)
    start = member.header_offset + 30 + name + extra
    packed = archive[start : start + member.compress_size]
    if mark != _ZIP[0] or len(packed) < member.compress_size:
        return b"", DAMAGED
    if member.compress_type == zipfile.ZIP_STORED:
        data, cut = _within(packed)
    else:
        if member.compress_type == zipfile.ZIP_LZMA:
            packed = _lzma_alone(packed, member)
        data, cut = _unpacked(io.BytesIO(packed), b"", _METHODS[member.compress_type])
    return (data, cut) if cut or zlib.crc32(data) == member.CRC else (b"", DAMAGED)


def _lzma_alone(packed: bytes, member: zipfile.ZipInfo) -> bytes:
    """Return an LZMA member with the header of an ``.lzma`` file, which the standard library reads with a limit.

    In a zip archive two numbers precede the properties (APPNOTE.TXT 5.8.8); the size of the data does not.
    """
    (length,) = struct.unpack_from("<2xH", packed)
    properties, data = packed[4 : 4 + length], packed[4 + length :]
    has_end = member.flag_bits & 2
    return properties + struct.pack("<q", -1 if has_end else member.file_size) + data


def _within(data: bytes) -> tuple[bytes, str | None]:
    if len(data) > MOST_BYTES:
        return data[:MOST_BYTES], f"only the first {MOST_BYTES >> 20} MiB were read"
    return data, None
