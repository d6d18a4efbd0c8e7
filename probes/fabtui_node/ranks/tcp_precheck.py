"""TCP check between rank hosts, before slower tests are tried."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from fabtui_node.protocol import ErrorKind

GREETING = b"fabtui-rank "
MAX_GREETING = 256


def family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def endpoint(address: str, port: int) -> str:
    """Return ``address:port`` or ``[address]:port``."""
    return "[%s]:%d" % (address, port) if ":" in address else "%s:%d" % (address, port)


class Listener:
    """A TCP port on this node's data address that sends a greeting and closes the connection."""

    def __init__(self, address: str, epoch: str) -> None:
        self._greeting = GREETING + epoch.encode("utf-8", "replace")[: MAX_GREETING - 32] + b"\n"
        self._socket = socket.socket(family(address), socket.SOCK_STREAM)
        self._closed = socket.socket(family(address), socket.SOCK_STREAM)
        try:
            self._socket.bind((address, 0))
            self._socket.listen(512)
            self._closed.bind((address, 0))
        except BaseException:
            self._socket.close()
            self._closed.close()
            raise
        self.port = int(self._socket.getsockname()[1])  #: The port that answers.
        #: A port of the same address that is bound and refuses, for faults injected by the lab.
        self.closed_port = int(self._closed.getsockname()[1])
        threading.Thread(target=self._serve, name="reach-listener", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):
                    return
                # Out of descriptors, or a connection that died in the queue: the next one may succeed.
                time.sleep(0.05)
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(1.0)
                connection.sendall(self._greeting)


def connect(address: str, port: int, source: str, timeout: float) -> socket.socket:
    """Open a TCP connection from a given local address, or raise OSError: ``socket.timeout`` without an answer."""
    sock = socket.socket(family(address), socket.SOCK_STREAM)
    try:
        sock.settimeout(max(0.001, timeout))
        if family(source) == family(address):
            sock.bind((source, 0))
        sock.connect((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def reason(error: OSError, address: str, port: int, seconds: float) -> str:
    where = endpoint(address, port)
    if isinstance(error, socket.timeout):
        return "connect to %s: no answer within %.1f s" % (where, seconds)
    text = os.strerror(error.errno) if error.errno else str(error)
    return "connect to %s: %s" % (where, text)


def check(address: str, port: int, source: str, timeout: float) -> Tuple[Optional[ErrorKind], Optional[str]]:
    """Read the greeting of another rank host's listener; return the error's kind and text, None and None without."""
    end = time.monotonic() + timeout
    try:
        sock = connect(address, port, source, timeout)
    except OSError as error:
        return ErrorKind.of_socket(error), reason(error, address, port, timeout)
    got = b""
    try:
        while not got.endswith(b"\n") and len(got) < MAX_GREETING:
            sock.settimeout(max(0.001, end - time.monotonic()))
            more = sock.recv(MAX_GREETING)
            if not more:
                break
            got += more
    except socket.timeout:
        return ErrorKind.TIMEOUT, "connected to %s, but no greeting within %.1f s" % (endpoint(address, port), timeout)
    except OSError as error:
        return ErrorKind.PEER_LOST, "connected to %s, then: %s" % (endpoint(address, port), error.strerror or error)
    finally:
        sock.close()
    if not got.startswith(GREETING):
        return ErrorKind.PROTOCOL, "the program that answers at %s is not a rank host" % endpoint(address, port)
    return None, None


def check_all(
    peers: List[Dict[str, Any]], source: str, timeout: float, report: Callable[[Mapping[str, Any]], None]
) -> None:
    """Check all peers at once and report each result as it arrives; return after the last one."""

    def check_peer(peer: Dict[str, Any]) -> None:
        began = time.monotonic()
        try:
            kind, error = check(str(peer["address"]), int(peer["port"]), source, timeout)
        except Exception as problem:  # a malformed peer must not silence the others
            kind, error = ErrorKind.FAILED, "%s: %s" % (type(problem).__name__, problem)
        verdict = {"ok": kind is None, "timeout": kind is ErrorKind.TIMEOUT, "error": error, "error_kind": kind}
        report({"op": "reach", "node": str(peer.get("node")), "seconds": time.monotonic() - began, **verdict})

    threads = [threading.Thread(target=check_peer, args=(peer,), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout + 5.0)
