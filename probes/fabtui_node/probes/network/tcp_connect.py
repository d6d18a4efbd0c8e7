"""TCP connections to many addresses at the same time."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from typing import Any, Dict, List, Tuple

from fabtui_node.system.socket_errors import error_kind

_AT_ONCE = 256

Row = Dict[str, Any]


def connect(rows: List[Row], end: float) -> None:
    """Try a connection for each row.

    Sets ``connected`` (ms), or ``connect_error`` and ``connect_error_kind``.

    Args:
        rows: With ``src``, ``dst`` and ``tcp``, the port.
        end: When to give up on those that do not answer, by the monotonic clock; those that wait have as long.
    """
    patience = max(0.1, end - time.monotonic())
    for start in range(0, len(rows), _AT_ONCE):
        _connect_some(rows[start : start + _AT_ONCE], time.monotonic() + patience)


def _connect_some(rows: List[Row], end: float) -> None:
    waiting: Dict[int, Tuple[socket.socket, Row, float]] = {}
    poll = select.poll()

    def harvest(patience: float) -> None:
        for number, _ in poll.poll(int(1000 * patience)):
            sock, row, began = waiting.pop(number)
            poll.unregister(number)
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                _fail(row, OSError(failed, os.strerror(failed)))
            else:
                row["connected"] = round(1000 * (time.monotonic() - began), 3)
            sock.close()

    try:
        for row in rows:
            began = time.monotonic()
            try:
                sock = _start(row["src"], row["dst"], row["tcp"])
            except OSError as problem:
                _fail(row, problem)
                continue
            waiting[sock.fileno()] = (sock, row, began)
            poll.register(sock.fileno(), select.POLLOUT)
            # At once, so that the time is that of the connection and not of starting all the others.
            harvest(0.0)
        while waiting and time.monotonic() < end:
            harvest(max(0.001, end - time.monotonic()))
    finally:
        for sock, row, began in waiting.values():
            _fail(row, socket.timeout("no answer in %.1f s" % (time.monotonic() - began)))
            sock.close()


def _fail(row: Row, error: OSError) -> None:
    row["connect_error"] = error.strerror or str(error)
    row["connect_error_kind"] = error_kind(error)


def _start(src: str, dst: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in dst else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind((src, 0))
        failed = sock.connect_ex((dst, port))
        if failed not in (0, errno.EINPROGRESS):
            raise OSError(failed, os.strerror(failed))
    except OSError:
        sock.close()
        raise
    return sock
