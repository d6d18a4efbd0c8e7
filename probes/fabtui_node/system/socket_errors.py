"""Kinds of socket errors."""

from __future__ import annotations

import errno
import socket

from fabtui_node.protocol import ErrorKind

_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)


def error_kind(error: OSError) -> ErrorKind:
    """Return the kind of a failed attempt to connect."""
    if isinstance(error, socket.timeout) or error.errno == errno.ETIMEDOUT:
        return ErrorKind.TIMEOUT
    if error.errno == errno.ECONNREFUSED:
        return ErrorKind.CONNECTION_REFUSED
    return ErrorKind.UNREACHABLE if error.errno in _UNREACHABLE else ErrorKind.FAILED
