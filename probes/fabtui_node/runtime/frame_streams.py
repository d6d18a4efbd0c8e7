"""Non-blocking frame streams, and transfer of file descriptors between the processes of a node."""

from __future__ import annotations

import array
import os
import socket
from typing import List, Sequence, Tuple

from fabtui_node.protocol import Decoder, Message, encode

CHUNK = 65536


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
        """Discard what is waiting."""
        self._waiting.clear()

    def flush(self) -> None:
        """Write as much as the descriptor takes now.

        Raises:
            OSError: The other end is closed.
        """
        while self._waiting:
            try:
                written = os.write(self.fd, self._waiting[:CHUNK])
            except BlockingIOError:
                return
            del self._waiting[:written]


class FrameSocket:
    """One end of a socket pair that carries frames both ways, without ever blocking.

    Attributes:
        out: Bytes to be written.
        open: The peer has not closed its end.
        empty: The last ``receive`` found nothing to read.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.out = Outgoing(end.fileno())
        self._decoder = Decoder()
        self.open = True
        self.empty = False

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self.socket.fileno()

    def send(self, message: Message) -> None:
        """Queue a message and write what the socket takes; ``receive`` notices a peer that has ended."""
        self.out.put(encode(message))
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes now."""
        try:
            self.out.flush()
        except OSError:
            self.out.drop()

    def receive(self) -> List[Message]:
        """Return the messages that have arrived; clear ``open`` at the end of the stream.

        Raises:
            ProtocolError: The peer does not speak frames.
        """
        self.empty = False
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            self.empty = True
            return []
        except OSError:
            data = b""
        if not data:
            self.open = False
        return self._decoder.feed(data)

    def drain(self) -> List[Message]:
        """Return all messages that have arrived, without waiting for more; for a peer that has ended.

        Raises:
            ProtocolError: The peer does not speak frames.
        """
        messages: List[Message] = []
        while self.open:
            messages += self.receive()
            if self.empty:
                break
        return messages

    def close(self) -> None:
        """Close this end."""
        self.open = False
        self.socket.close()


def send_with_descriptors(end: socket.socket, message: Message, descriptors: Sequence[int]) -> None:
    """Write one message with descriptors attached; waits until all is written, or for the socket's timeout.

    Raises:
        OSError: The other end is closed, or does not read.
    """
    frame = encode(message)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = end.sendmsg([frame], ancillary)
    end.sendall(frame[sent:])


def receive_with_descriptors(end: socket.socket, most: int = 8) -> Tuple[bytes, List[int]]:
    """Read bytes and the descriptors attached to them; b"" at the end of the stream.

    Descriptors never arrive later than the first byte of the message that they were sent with.
    """
    found = array.array("i")
    size = most * found.itemsize
    data, ancillary, _, _ = end.recvmsg(CHUNK, socket.CMSG_SPACE(size))
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(payload[: len(payload) - len(payload) % found.itemsize])
    return data, list(found)
