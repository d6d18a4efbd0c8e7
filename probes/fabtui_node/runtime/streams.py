"""Byte streams between the processes of a node: frames without blocking, descriptors, output of child processes."""

from __future__ import annotations

import array
import os
import socket
import threading
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from fabtui_node.protocol import Decoder, Message, ProtocolError, encode

CHUNK = 65536

LINES_PER_SECOND = 200
BYTES_PER_SECOND = 4 * 1024 * 1024
LONGEST_LINE = 2048
TAIL = 4096
CUT = " [cut]"


class Channel:
    """A connected stream socket that carries protocol frames; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._decoder = Decoder()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; raise ProtocolError if it cannot be encoded, OSError if the connection is closed."""
        frame = encode(message)
        with self._lock:
            self._socket.sendall(frame)

    def messages(self) -> Iterator[Message]:
        """Yield messages until the other end closes; raise ProtocolError if it does not speak the protocol."""
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except InterruptedError:
                continue
            except OSError:
                return
            if not data:
                return
            yield from self._decoder.feed(data)


class Outgoing:
    """Bytes waiting to be written to a non-blocking descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes) -> None:
        """Queue bytes; they leave with the next ``flush``."""
        self._waiting += data

    def drop(self) -> None:
        self._waiting.clear()

    def flush(self) -> None:
        """Write as much as the descriptor takes now; raise OSError if the other end is closed."""
        while self._waiting:
            try:
                written = os.write(self.fd, self._waiting[:CHUNK])
            except BlockingIOError:
                return
            del self._waiting[:written]


class FrameSocket:
    """One end of a socket pair that carries frames both ways, without ever blocking.

    ``open``: the peer has not closed its end, and speaks frames.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.out = Outgoing(end.fileno())
        self._decoder = Decoder()
        self.open = True
        self._empty = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Message) -> None:
        """Queue a message and write what the socket takes; ``receive`` notices a peer that has ended."""
        self.out.put(encode(message))
        self.flush()

    def flush(self) -> None:
        try:
            self.out.flush()
        except OSError:
            self.out.drop()

    def receive(self) -> List[Message]:
        """Return the messages that have arrived; clear ``open`` at the end of the stream or of the frames."""
        self._empty = False
        try:
            data = self.socket.recv(CHUNK)
            self.open = bool(data)
            return self._decoder.feed(data)
        except BlockingIOError:
            self._empty = True
        except (OSError, ProtocolError):
            self.open = False
        return []

    def drain(self) -> List[Message]:
        """Return all messages that have arrived, without waiting for more, and close this end."""
        messages: List[Message] = []
        self._empty = False
        while self.open and not self._empty:
            messages += self.receive()
        self.close()
        return messages

    def close(self) -> None:
        self.open = False
        self.socket.close()


def send_with_descriptors(end: socket.socket, frame: bytes, descriptors: Sequence[int]) -> None:
    """Write one frame with descriptors; raise OSError if the other end is closed, or the socket's timeout passes."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = end.sendmsg([frame], ancillary)
    end.sendall(frame[sent:])


def receive_with_descriptors(end: socket.socket, most: int = 8) -> Tuple[bytes, List[int]]:
    """Read bytes and the descriptors attached to them; b"" at the end of the stream.

    Descriptors never arrive later than the first byte of the message that they were sent with.
    """
    fds = array.array("i")
    size = most * fds.itemsize
    data, ancillary, _, _ = end.recvmsg(CHUNK, socket.CMSG_SPACE(size))
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, list(fds)


def text_of(data: bytes) -> str:
    r"""Decode untrusted bytes; invalid UTF-8 becomes ``\xNN``."""
    return data.decode("utf-8", "backslashreplace")


class LineLimit:
    """Limit of lines per second; counts those above it."""

    def __init__(self, per_second: int = LINES_PER_SECOND) -> None:
        self._per_second = per_second
        self._window = -1
        self._admitted = 0
        self._dropped = 0

    def note(self, now: float) -> Optional[str]:
        """Return the line with the number of lines dropped in the second before; None without any."""
        if int(now) == self._window:
            return None
        dropped, self._window, self._admitted, self._dropped = self._dropped, int(now), 0, 0
        if not dropped:
            return None
        return "[%d more lines were printed and not shown]" % dropped

    def admit(self) -> bool:
        """Return True if a line may pass in the second of the last call of ``note``."""
        if self._admitted >= self._per_second:
            self._dropped += 1
            return False
        self._admitted += 1
        return True


class LogPipe:
    """The reading end of a child's standard output and error."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.open = True
        self._line = bytearray()
        self._tail = bytearray()

    def fileno(self) -> int:
        return self.fd

    def read(self, most: int = 65536) -> int:
        """Read available output and return the number of bytes; clear ``open`` at the end of the stream."""
        try:
            data = os.read(self.fd, most)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.open = False
        self._line += data
        self._tail += data
        del self._tail[:-TAIL]
        return len(data)

    def lines(self, rest: bool = False) -> List[str]:
        """Return the complete lines read so far; with ``rest`` also the text after the last line end."""
        pieces = bytes(self._line).split(b"\n")
        self._line = bytearray(pieces.pop())
        if rest:
            if self._line:
                pieces.append(bytes(self._line))
            self._line = bytearray()
        elif len(self._line) > 2 * LONGEST_LINE:
            # A child may print without ever ending a line: keep only as much as shows that the line is too long.
            del self._line[2 * LONGEST_LINE :]
        return [self._cut(piece) for piece in pieces]

    @staticmethod
    def _cut(piece: bytes) -> str:
        piece = piece.rstrip(b"\r")
        if len(piece) > LONGEST_LINE:
            return text_of(piece[: LONGEST_LINE - len(CUT)]) + CUT
        return text_of(piece)

    def tail(self) -> str:
        return text_of(bytes(self._tail))[-TAIL:]

    def close(self) -> None:
        self.open = False
        os.close(self.fd)
