"""Probe ``ras``: the report of NCCL's RAS service, asked on the node, as the service listens on localhost only.

Protocol, after ``src/ras/client_support.cc``: lines, protocol 2 in all of 2.24 to 2.30. ``CLIENT PROTOCOL 2`` gets
``SERVER PROTOCOL 2``; ``SET FORMAT json`` gets ``OK``, or an error before 2.28.7; ``VERBOSE STATUS`` gets the report,
after which the service closes the connection. From 2.32 on, ``DIAGNOSTICS`` gets lines of text in its place. The
processes of a node share the port (SO_REUSEPORT). The kernel may therefore hand a connection to a process that is
stopped: it accepts and never answers. Another connection may reach another process.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.probes.network import interfaces
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes

#: Where RAS listens unless NCCL_RAS_ADDR is set.
DEFAULT = "localhost:28028"
#: Connections to one address, and the timeout (s) of the answer to the first line on each. Each one reaches any of the
#: processes that share the port: of two, one of which is stopped, eight connections miss the other in 1 of 256 cases.
ATTEMPTS = 8
FIRST_ANSWER = 2.0
#: Timeout (s) of a report: RAS waits 5 s for each leg of silent processes, and 5 s more.
REPORT = 20.0
#: Maximum length (bytes) of a report and of a line before it.
MOST_BYTES = 32 << 20
MOST_LINE = 4096
#: Characters of a report in one message.
_PART = 512 << 10
#: Maximum number of lines of diagnostics.
_MOST_DIAGNOSED = 50
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45}(?:%\w{1,15})?)\]|([A-Za-z0-9_.-]{1,255})):([0-9]{1,5})")


class NoReport(Exception):
    """Absence of a report; ``kind`` is ``refused``, ``silent``, ``foreign``, ``cut`` or ``large``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class RasAnswer(NamedTuple):
    """Report of the service: ``json`` or ``text``, and where it came from."""

    address: str
    format: str
    text: str


def endpoint(address: str) -> Optional[Tuple[str, int]]:
    """Return host and port of ``host:port`` or ``[::1]:port``, None if it is neither."""
    match = _ADDRESS.fullmatch(address.strip())
    if not match or not 0 < int(match[3]) < 65536:
        return None
    return match[1] or match[2], int(match[3])


class _Connection:
    """A connection whose every wait ends at the deadline."""

    def __init__(self, end: socket.socket, address: str) -> None:
        self._end = end
        self._address = address
        self._data = bytearray()

    def _receive(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        self._end.settimeout(left)
        try:
            return self._end.recv(65536)
        except socket.timeout:
            raise
        except OSError as error:
            raise NoReport("cut", "%s ends the connection: %s" % (self._address, error.strerror or error)) from None

    def say(self, line: str) -> None:
        self._end.sendall(line.encode() + b"\n")

    def line(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._data:
            if len(self._data) > MOST_LINE:
                raise NoReport("foreign", "%s is not a RAS service: it sends no lines" % self._address)
            data = self._receive(deadline)
            if not data:
                raise NoReport("foreign", "%s closes the connection without an answer" % self._address)
            self._data += data
        line, _, rest = bytes(self._data).partition(b"\n")
        self._data = bytearray(rest)
        return line.decode("utf-8", "replace").strip()

    def rest(self, seconds: float) -> str:
        """Return everything until the service closes the connection."""
        deadline = time.monotonic() + seconds
        while len(self._data) <= MOST_BYTES:
            data = self._receive(deadline)
            if not data:
                return self._data.decode("utf-8", "replace")
            self._data += data
        raise NoReport("large", "the report of %s is over %d MiB" % (self._address, MOST_BYTES >> 20))


def ask(address: str, attempts: int = ATTEMPTS, first: float = FIRST_ANSWER, whole: float = REPORT) -> RasAnswer:
    """Return the report of the service at an address; JSON, or text before NCCL 2.28.7.

    Raises:
        NoReport: Nothing listens there, what does is not a RAS service or does not answer, or the report is cut off.
    """
    place = endpoint(address)
    if place is None:
        raise NoReport("foreign", "%r is not HOST:PORT" % address[:100])
    for attempt in range(attempts):
        try:
            with contextlib.closing(socket.create_connection(place, first)) as end:
                return _report(_Connection(end, address), address, first, whole)
        except socket.timeout:
            # Stopped processes answer nobody; the next connection may reach another process.
            continue
        except ConnectionRefusedError:
            raise NoReport("refused", "no RAS service listens on %s" % address) from None
        except OSError as error:
            if attempt + 1 == attempts:
                raise NoReport("refused", "%s: %s" % (address, error.strerror or error)) from None
    text = (
        "%s accepts connections and does not answer (%d attempts): the process that listens there is stopped or hangs"
    )
    raise NoReport("silent", text % (address, attempts))


def _report(connection: _Connection, address: str, first: float, whole: float) -> RasAnswer:
    connection.say("CLIENT PROTOCOL 2")
    greeting = connection.line(first)
    if not greeting.upper().startswith("SERVER PROTOCOL "):
        raise NoReport("foreign", "%s is not a RAS service: it answers %r" % (address, greeting[:100]))
    connection.say("SET FORMAT json")
    kind = "json" if connection.line(first) == "OK" else "text"
    connection.say("VERBOSE STATUS")
    try:
        text = connection.rest(whole)
    except socket.timeout:
        raise NoReport("cut", "%s has not finished its report within %g s" % (address, whole)) from None
    if not text.strip():
        raise NoReport("cut", "%s closed the connection without a report" % address)
    return RasAnswer(address, kind, text)


def diagnose(address: str, first: float = FIRST_ANSWER, whole: float = REPORT) -> List[str]:
    """Return what the diagnostics of the service found, a line each; none where it offers none (before NCCL 2.32).

    The service asks all ranks once, which takes some ms, and answers in text only.
    """
    place = endpoint(address)
    try:
        if place is None:
            return []
        with contextlib.closing(socket.create_connection(place, first)) as end:
            connection = _Connection(end, address)
            connection.say("CLIENT PROTOCOL 2")
            connection.line(first)
            connection.say("DIAGNOSTICS")
            if connection.line(whole).startswith(("ERROR", "BUSY")):
                return []
            lines = connection.rest(whole).splitlines()
    except (OSError, NoReport):
        return []
    return [line[:MOST_LINE] for line in lines if " NCCL DIAG [INFO] " in line[:400]][:_MOST_DIAGNOSED]


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc") -> Value:
    """Ask at the addresses of the jobs on this node.

    The report comes as parts: ``report`` (0), ``format``, ``address`` and a piece of ``text``. The value has
    ``problems`` (``address``, ``kind``, ``text``), ``processes`` (`job_processes`), ``addresses`` of the node and
    ``diagnosed``: what the service's own diagnostics found, where ``diagnostics`` are asked for.
    """
    processes = job_processes.find(proc, str(args.get("job") or ""))
    named = [str(one["ras"]) for one in processes if one["ras"]]
    problems: List[Dict[str, str]] = []
    reports = 0
    diagnosed: List[str] = []
    for address in list(dict.fromkeys([*named, DEFAULT]))[:8]:
        try:
            answer = ask(address)
            for start in range(0, len(answer.text), _PART):
                piece = answer.text[start : start + _PART]
                emit({"report": 0, "format": answer.format, "address": answer.address, "text": piece})
            reports = 1
            diagnosed = diagnose(address) if args.get("diagnostics") else []
            break
        except NoReport as failed:
            problems.append({"address": address, "kind": failed.kind, "text": failed.text[:500]})
    listed = [dict(one, ras=None) for one in processes]
    return {
        "reports": reports,
        "problems": problems,
        "processes": listed,
        "addresses": addresses(),
        "diagnosed": diagnosed,
    }


def addresses() -> List[str]:
    nics = interfaces.read([])
    return sorted({entry["address"] for nic in nics for entry in nic["addresses"]})


PROBE = ProbeSpec(
    name="ras",
    title="report of NCCL's RAS service about a running job",
    phase="job",
    passive=True,
    needs="a process of a job with NCCL 2.24 or later",
    gives="launched collectives of each rank, silent processes",
    run=run,
)
