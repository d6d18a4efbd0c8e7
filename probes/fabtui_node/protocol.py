"""Framing of messages on a link: a 4-byte big-endian length and a JSON object in UTF-8; kinds of errors.

A length with its highest bit set, accepted only by a node, precedes a piece of further modules: a byte that is 1 for
the last piece, and part of a compressed JSON object of source texts by dotted name.

Messages are untrusted: frames are bounded, and only plain JSON objects pass. NaN, infinities, numbers beyond any
quantity and deep nesting are refused. The sender refuses them as well, so that a bad value costs a probe and not the
link.
"""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import struct
from enum import Enum
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

VERSION = 1
MAX_FRAME = 4 * 1024 * 1024
MAX_DEPTH = 24
MAX_BANNER = 1024 * 1024
_PIECE = 0x80000000
#: Maximum magnitude: JSON has integers of any length and ``1e999``, which would overflow in later arithmetic.
MAX_NUMBER = 1e100

Message = Dict[str, Any]

#: Numbers that may be out of range, each digit as 0: with an exponent of two digits, or very long.
_MAY_BE_HUGE = (b"0e00", b"0e+00", b"0E00", b"0E+00", b"0" * 90)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)


#: Errors with which a call on a socket itself ends for a reason of its own node.
OF_CALLER = frozenset([errno.EPERM, errno.EACCES, errno.ENOMEM, errno.EINVAL, errno.ENFILE, errno.EMFILE]) | frozenset(
    [errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.ENOBUFS]
)


class ErrorKind(str, Enum):
    """Machine-readable reason of an error, sent as ``error_kind`` (probe results: ``error.kind``) beside the text."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> ErrorKind:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.meaning = meaning
        return kind

    # Tests between ranks
    CANCELLED = "cancelled", "the controller cancelled the test, because a peer is gone"
    PEER_LOST = "peer_lost", "the peer went away, or its connection closed, during the test"
    PEER_MISSING = "peer_missing", "a peer did not join within the deadline"
    SETUP_MISSING = "setup_missing", "a peer joined but never sent its setup message"
    NOT_READY = "not_ready", "the rank could not be started, so it takes part in no test"
    VERIFY = "verify", "the data that arrived is not the data that was sent"
    STALE = "stale", "the data in the buffer is of an earlier test, or of another rank: the test failed, not a GPU"
    BLANK = "blank", "the transfer ended, and nothing had arrived in the buffer"
    # Resources and libraries
    OUT_OF_MEMORY = "out_of_memory", "not enough free GPU memory"
    NO_LIBRARY = "no_library", "a library (NCCL, CUDA, PyTorch) is missing, too old or cannot be loaded"
    LIBRARY = "library", "NCCL, CUDA or PyTorch reported an error; the text is theirs"
    # Network
    CONNECTION_REFUSED = "connection_refused", "nothing listens at the address, or a firewall rejects"
    UNREACHABLE = "unreachable", "no route to the address"
    CALLER = "caller", "the call itself failed on its node: no free port, no route, a limit, or its own firewall"
    # Anything
    TIMEOUT = "timeout", "the deadline passed"
    PROTOCOL = "protocol", "the peer sent something out of bounds or not part of the protocol"
    REFUSED = "refused", "the node refused the request: out of bounds, or too many at once"
    FAILED = "failed", "any other failure, described by the text"
    # Probes
    UNKNOWN_PROBE = "unknown_probe", "the node has no probe of this name"
    BAD_VALUE = "bad_value", "the value of a probe cannot be encoded"
    WORKER_DIED = "worker_died", "the process that runs the probes ended"
    # Only on the login node, which stands in for a rank host that cannot report
    NO_REPORT = "no_report", "a rank ended its test without a report"
    EXITED = "exited", "the rank host exited"
    KILLED = "killed", "the rank host was ended by a signal"
    FROZEN = "frozen", "the rank host does not answer: stopped, or stuck in the kernel"
    NODE_LOST = "node_lost", "the connection to the node was lost"

    @classmethod
    def of(cls, value: object) -> Optional[ErrorKind]:
        """Return the kind of a value from the wire; None for none, FAILED for one that is not known here."""
        if value is None or value == "":
            return None
        try:
            return cls(value)  # type: ignore[call-arg, arg-type]
        except ValueError:
            return cls.FAILED

    @classmethod
    def of_socket(cls, error: OSError) -> ErrorKind:
        if isinstance(error, socket.timeout) or error.errno == errno.ETIMEDOUT:
            return cls.TIMEOUT
        if error.errno == errno.ECONNREFUSED:
            return cls.CONNECTION_REFUSED
        unreachable = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
        return cls.UNREACHABLE if unreachable else cls.FAILED


#: Kinds of errors that only follow from what the other side of the test reports.
CONSEQUENCES = (ErrorKind.CANCELLED, ErrorKind.PEER_LOST, ErrorKind.NO_REPORT)


class ProtocolError(Exception):
    """The other end violates the protocol; the link is unusable."""


def digest(value: Any) -> str:
    """Return a text that equal values have in common; raise ValueError or TypeError for a value that is not JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def marker(nonce: str) -> bytes:
    """Return the bytes between a shell's banner and the first frame."""
    return b"\x00\x01fabtui-" + nonce.encode("ascii") + b"\x02\n"


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the frame of a message; raise if it is over ``MAX_FRAME`` or contains a value that `decode` refuses.

    It ends with a newline, which JSON allows: launchers such as srun pass on whole lines only.
    """
    try:
        _check(message)
        body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError("cannot encode: %s" % error) from None
    if len(body) > MAX_FRAME:
        raise ProtocolError("frame of %d bytes is over the limit of %d" % (len(body), MAX_FRAME))
    return struct.pack(">I", len(body)) + body


def encode_piece(data: bytes, last: bool) -> bytes:
    """Return the frame of a piece of modules; a decoder gives ``{"t": "modules", "piece": bytes, "last": bool}``."""
    return struct.pack(">I?", _PIECE | (len(data) + 1), last) + data


def _refuse_constant(name: str) -> None:
    raise ValueError("%s is not a number" % name)


def _check(value: Any) -> None:
    """Raise ProtocolError if values are nested too deep or a number is out of range."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below = []  # type: List[Any]
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
            elif isinstance(item, (int, float)) and not -MAX_NUMBER <= item <= MAX_NUMBER:
                raise ProtocolError("a number out of range")
        if not below:
            return
        level = below
    raise ProtocolError("nested deeper than %d" % MAX_DEPTH)


def loads(body: bytes) -> Any:
    """Return the value of a JSON text; raise ValueError or RecursionError, also for NaN and infinities."""
    return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)


def decode(body: bytes, parse: Callable[[bytes], Any] = loads) -> Message:
    """Return the message of a frame; raise if it is not a JSON object, nests too deep or has a number out of range.

    ``parse`` parses JSON; it raises ValueError or RecursionError, also for NaN and infinities.
    """
    try:
        value = parse(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not a frame: %s" % str(error)[:200]) from None
    if not isinstance(value, dict):
        raise ProtocolError("not an object: %s" % type(value).__name__)
    _check(value)
    return value


class Decoder:
    """Splits a byte stream into messages, and with ``pieces`` pieces of modules; ``parse`` parses JSON."""

    __slots__ = ("_buffer", "_parse", "_pieces")

    def __init__(self, pieces: bool = False, parse: Callable[[bytes], Any] = loads) -> None:
        self._buffer = bytearray()
        self._pieces = pieces
        self._parse = parse

    def split(self, data: bytes) -> List[Tuple[bytes, bool]]:
        """Add bytes and return the frames they complete, and whether each is a piece; raise if one is too large."""
        self._buffer += data
        frames = []  # type: List[Tuple[bytes, bool]]
        start = 0
        while len(self._buffer) >= start + 4:
            (length,) = struct.unpack_from(">I", self._buffer, start)
            piece = self._pieces and length > _PIECE
            length -= _PIECE if piece else 0
            if length > MAX_FRAME:
                raise ProtocolError("frame of %d bytes is over the limit of %d" % (length, MAX_FRAME))
            if len(self._buffer) < start + 4 + length:
                break
            frames.append((bytes(self._buffer[start + 4 : start + 4 + length]), piece))
            start += 4 + length
        del self._buffer[:start]
        return frames

    def feed(self, data: bytes) -> List[Message]:
        """Add bytes and return the messages they complete; raise if a frame is too large or not a message."""
        return [
            {"t": "modules", "piece": body[1:], "last": body[:1] != b"\0"} if piece else decode(body, self._parse)
            for body, piece in self.split(data)
        ]
