"""Worker process: runs probes, one thread per probe, and answers the supervisor over one socket.

A thread that hangs costs only its own probe: the supervisor answers for it after the deadline.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
from typing import Any, Dict

from fabtui_node.protocol import Decoder, ErrorKind, Message, ProtocolError, encode
from fabtui_node.runtime import bootloader


class Worker:
    """Runs probes that arrive on a blocking socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve until the supervisor closes the socket."""
        decoder = Decoder()
        while True:
            data = self._end.recv(65536)
            if not data:
                return
            for message in decoder.feed(data):
                name = "probe-%s-%s" % (message.get("name"), message.get("id"))
                try:
                    threading.Thread(target=self._probe, args=(message,), name=name, daemon=True).start()
                except RuntimeError as error:
                    self._fail(message, ErrorKind.FAILED, "cannot start a thread: %s%s" % (error, _limits()))

    def _send(self, message: Message) -> None:
        frame = encode(message)
        with self._lock:
            self._end.sendall(frame)

    def _fail(self, message: Message, kind: ErrorKind, text: str) -> None:
        error = {"kind": kind, "text": text[:4000]}
        self._send({"t": "result", "id": message["id"], "ok": False, "error": error})

    def _probe(self, message: Message) -> None:
        number = message["id"]

        def emit(value: Dict[str, Any]) -> None:
            self._send({"t": "part", "id": number, "value": value})

        try:
            registry = importlib.import_module("fabtui_node.registry")
            probe = registry.PROBES.get(message["name"])
            if probe is None:
                self._fail(message, ErrorKind.UNKNOWN_PROBE, "no probe is called %s" % message["name"])
                return
            value = probe.run(message["args"], emit, message["deadline"])
            self._send({"t": "result", "id": number, "ok": True, "value": value})
        except ProtocolError as error:
            self._fail(message, ErrorKind.BAD_VALUE, str(error))
        except BaseException as error:
            bootloader.print_traceback()
            # When the supervisor has ended, the main thread notices and ends the process.
            with contextlib.suppress(OSError):
                self._fail(message, ErrorKind.FAILED, "%s: %s%s" % (type(error).__name__, error, _limits()))


def _limits() -> str:
    """Return the limits that may be the reason of an error, or ""."""
    try:
        return str(importlib.import_module("fabtui_node.system.limits").explain())
    except Exception:
        # The first error is the one to report.
        return ""


def serve(end: socket.socket) -> None:
    """Run probes from a socket until it closes, then end this process without waiting for its threads."""
    end.setblocking(True)
    with contextlib.suppress(OSError, ProtocolError):
        Worker(end).run()
    os._exit(0)
