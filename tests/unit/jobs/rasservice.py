"""A RAS service that answers with recorded reports, in pieces of any size, or misbehaves."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Self

_ERROR = b"ERROR: Unknown command %s\n"


class RasService:
    """Service on a free port of a loopback address.

    Args:
        text: The report of ``STATUS``.
        document: The report in JSON; "" for NCCL before 2.28.7, which does not know the format.
        piece: Number of bytes sent at a time; 0 for all at once.
        deaf: How many connections are accepted and never answered, as by a stopped process; -1 for all.
        host: Loopback address.
    """

    def __init__(self, text: str, document: str = "", piece: int = 0, deaf: int = 0, host: str = "127.0.0.1") -> None:
        self.text = [text]
        self.document = document
        self.piece = piece
        self.deaf = deaf
        self.lines: list[str] = []
        self._kept: list[socket.socket] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._end = socket.create_server((host, 0), family=family)
        port = self._end.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        for end in self._kept:
            end.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self._end.accept()
            except OSError:
                return
            if self.deaf:
                self.deaf -= 1
                self._kept.append(end)
                continue
            with end, contextlib.suppress(OSError):
                self._answer(end)

    def _answer(self, end: socket.socket) -> None:
        report = self.text.pop(0) if len(self.text) > 1 else self.text[0]
        for line in self._received(end):
            self.lines.append(line)
            word = line.lower()
            if word.startswith("client protocol "):
                self._send(end, b"SERVER PROTOCOL 2\n")
            elif word.startswith("timeout ") or (word == "set format json" and self.document):
                report = self.document if word.startswith("set") else report
                self._send(end, b"OK\n")
            elif word.endswith("status"):
                self._send(end, report.encode())
                return
            else:
                self._send(end, _ERROR % line.encode())

    def _received(self, end: socket.socket) -> Iterator[str]:
        with end.makefile("rb") as file:
            for line in file:
                yield line.decode().strip()

    def _send(self, end: socket.socket, data: bytes) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), self.piece or max(len(data), 1)):
            end.sendall(data[start : start + (self.piece or len(data))])
            if self.piece:
                # Gives the client the processor, so that it receives piece by piece.
                time.sleep(0)


def body(answer: str) -> str:
    """Return a recorded answer without the lines before the report."""
    lines = answer.splitlines(keepends=True)
    return "".join(
        lines[next(at for at, line in enumerate(lines) if line.strip() not in ("SERVER PROTOCOL 2", "OK")) :]
    )
