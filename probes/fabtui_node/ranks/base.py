"""Tasks and failures, common to engines and tests, and the controller's key-value store, through which ranks meet."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import os
import signal
import statistics
import threading
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind, Message
from fabtui_node.runtime.streams import Channel

CONNECT, TRANSFER, VERIFY = "connect", "transfer", "verify"
MAX_TEXT = 4000
#: Seconds past a request's own timeout after which the store stops waiting for an answer.
GRACE = 2.0


class Failed(Exception):
    """A phase of a test failed."""

    def __init__(
        self, phase: str, text: str, timeout: bool = False, raw: Optional[str] = None, kind: Optional[ErrorKind] = None
    ) -> None:
        super().__init__(text)
        self.phase = phase  #: ``connect``, ``transfer`` or ``verify``.
        self.text = text[:MAX_TEXT]
        self.timeout = timeout  #: True if a deadline passed and nothing else is known.
        self.raw = raw  #: Output of the library, if any.
        self.kind = kind or (ErrorKind.TIMEOUT if timeout else ErrorKind.FAILED)

    @classmethod
    def from_error(cls, phase: str, error: Exception, prefix: str = "") -> Failed:
        """Return the failure of a phase that an exception ended; a `Failed` is returned unchanged."""
        if isinstance(error, Failed):
            return error
        kind = kind_of(error)
        return cls(phase, prefix + describe(error), kind is ErrorKind.TIMEOUT, kind=kind)


Fault = NamedTuple("Fault", [("src", int), ("dst", int), ("kind", str), ("rate", Optional[float])])

#: A rank: its number, index on the node, UUID of its GPU, and data address if it differs from the rank host's.
Rank = NamedTuple("Rank", [("rank", int), ("index", int), ("uuid", Optional[str]), ("address", Optional[str])])


def verdict(failed: Optional[Failed]) -> Message:
    """Return the verdict in every report on a test; None: it passed."""
    if failed is None:
        return {"ok": True, "timeout": False, "phase": TRANSFER, "error": None, "error_kind": None, "raw": None}
    return {
        "ok": False,
        "timeout": failed.timeout,
        "phase": failed.phase,
        "error": failed.text,
        "error_kind": failed.kind,
        "raw": failed.raw,
    }


class PairJob(NamedTuple):
    """Parameters of one direction."""

    bytes: int  #: Size of one message.
    iters: int  #: Maximum number of timed messages.
    warmup: int  #: Number of messages before them.
    latency_iters: int  #: Number of round trips of a small message; 0 skips the latency.
    rate: Optional[float] = None  #: Bytes per second to throttle the source to (injected by the lab).
    fault: Optional[str] = None  #: ``corrupt``, ``kill`` or ``stop`` at the source (injected by the lab).
    shares: int = 1  #: Number of transfers, this one included, for which the time until the deadline has to do.


class StoreError(Exception):
    """The store could not answer."""

    kind = ErrorKind.FAILED


class StoreTimeout(StoreError):
    """No rank set the key within the deadline."""

    kind = ErrorKind.TIMEOUT


class Cancelled(StoreError):
    """The controller cancelled this pair or group: a peer of it is gone."""

    kind = ErrorKind.CANCELLED


class _Waiter:
    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.done = threading.Event()
        self.reply: Optional[Message] = None


class Store:
    """The controller's key-value store, asked over the channel.

    Keys are absolute (``epoch/id/...``). ``owner`` ties a request to a pair or group, so that cancelling that one
    ends its requests.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiters: Dict[int, _Waiter] = {}

    def answer(self, message: Message) -> None:
        """Deliver the controller's answer to the waiting request; any other answer is dropped."""
        with self._lock:
            waiter = self._waiters.pop(message.get("q"), None)  # type: ignore[arg-type]
        if waiter is not None:
            waiter.reply = message
            waiter.done.set()

    def cancel(self, owner: object) -> None:
        """End all requests of an owner with ``Cancelled``."""
        with self._lock:
            mine = [q for q, waiter in self._waiters.items() if waiter.owner is owner]
            waiters = [self._waiters.pop(q) for q in mine]
        for waiter in waiters:
            waiter.done.set()

    def ask(self, cmd: str, key: Any, timeout: float, owner: object, **more: Any) -> Any:
        """Return the answer to a command of the store (docs/architecture.md, "The rank host").

        ``more`` are further fields of the request; values of keys are texts in base64.

        Raises:
            StoreTimeout: A key was not set in time.
            Cancelled: The owner was cancelled.
        """
        timeout = max(0.0, timeout)
        q, waiter = next(self._numbers), _Waiter(owner)
        with self._lock:
            self._waiters[q] = waiter
        self._channel.send({"op": "store", "q": q, "cmd": cmd, "key": key, "timeout": timeout, **more})
        # The owner may have been cancelled before the entry above was made.
        if getattr(owner, "cancelled", False):
            self.cancel(owner)
        if not waiter.done.wait(timeout + GRACE):
            with self._lock:
                self._waiters.pop(q, None)
            raise StoreTimeout("the controller did not answer %s %s within %.1f s" % (cmd, key, timeout + GRACE))
        if waiter.reply is None:
            raise Cancelled("cancelled by the controller")
        error = waiter.reply.get("error")
        if error == "timeout":
            raise StoreTimeout("%s was not set within %.1f s" % (key, timeout))
        if error is not None:
            raise StoreError("store %s %s: %s" % (cmd, key, str(error)[:500]))
        return waiter.reply.get("value")

    def post(self, key: str, value: bytes) -> None:
        self._channel.send({"op": "store", "cmd": "set", "key": key, "value": to_text(value)})

    def swap(self, key: str, value: bytes, peer: str, timeout: float, owner: object) -> bytes:
        """Set a key, and return the value of the peer's key, waiting until it is set; raises what `ask` raises."""
        return to_bytes(self.ask("swap", key, timeout, owner, value=to_text(value), peer=peer))

    def get(self, key: str, timeout: float, owner: object) -> bytes:
        """Return a key's value, waiting until it is set; raises what `ask` raises."""
        return to_bytes(self.ask("get", key, timeout, owner))


def to_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def to_bytes(value: Any) -> bytes:
    """Return a value that the store answered; raise StoreError if it is not base64."""
    if not isinstance(value, str):
        raise StoreError("the store answered %s, not text" % type(value).__name__)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise StoreError("the store's answer is not base64: %s" % error) from None


class Task:
    """A pair or group in progress at one endpoint: deadline, cancellation, and messages between its ranks.

    The messages are JSON objects under a prefix of the controller's store, each written once by one rank.
    """

    def __init__(self, number: int, prefix: str, deadline: float, store: Store) -> None:
        self.id = number
        self.prefix = prefix
        self.deadline = deadline
        self.began = time.monotonic()
        self.end = self.began + deadline
        self.cancelled = False
        self.store = store

    def cancel(self) -> None:
        """Stop waiting for peers; thread-safe."""
        self.cancelled = True
        self.store.cancel(self)

    def put(self, key: str, value: Message) -> None:
        self.store.post(self.prefix + key, _packed(value))

    def swap(self, key: str, value: Message, peer: str, end: float) -> Message:
        """Write an object and return the one that another rank writes under ``peer``; raises what `take` raises."""
        return _unpacked(
            peer, self.store.swap(self.prefix + key, _packed(value), self.prefix + peer, remaining(end), self)
        )

    def take(self, key: str, end: float) -> Message:
        """Return the object that another rank writes under the key, waiting until ``end`` (monotonic seconds).

        Raises what `Store.ask` raises; StoreError also if the value is not an object.
        """
        return _unpacked(key, self.store.get(self.prefix + key, remaining(end), self))

    def first(self, take: Callable[[], Message], missing: Callable[[], str], cancelled: str) -> Message:
        """Return what ``take`` returns, the first message of others; raise `Failed` if they decline or do not come.

        ``missing`` returns the names of those that did not come in time; ``cancelled`` is who is gone if the controller
        cancels the task.
        """
        try:
            message = take()
        except StoreTimeout:
            text = "%s did not come within %.1f s" % (missing(), time.monotonic() - self.began)
            raise Failed(CONNECT, text, timeout=True, kind=ErrorKind.PEER_MISSING) from None
        except Cancelled as error:
            raise Failed(CONNECT, "cancelled: " + cancelled, kind=error.kind) from None
        except StoreError as error:
            raise Failed.from_error(CONNECT, error) from None
        if message.get("declined") is not None:
            raise Failed(CONNECT, one_line(str(message["declined"])), kind=ErrorKind.of(message.get("error_kind")))
        return message


def _packed(value: Message) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("utf-8")


def _unpacked(key: str, raw: bytes) -> Message:
    try:
        return protocol.decode(raw)
    except protocol.ProtocolError as error:
        raise StoreError("%s: %s" % (key, error)) from None


def remaining(end: float, minimum: float = 0.0) -> float:
    """Return the seconds until a monotonic time, at least ``minimum``."""
    return max(minimum, end - time.monotonic())


def repetitions(seconds_each: float, budget: float, maximum: int) -> int:
    """Return how many repetitions fit into a budget (s): at least 1, at most ``maximum``."""
    if seconds_each <= 0:
        return max(1, maximum)
    return max(1, min(maximum, int(budget / seconds_each)))


def kind_of(error: BaseException) -> ErrorKind:
    """Return the kind that an exception class declares as ``kind``, FAILED for any other."""
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, ErrorKind) else ErrorKind.FAILED


def describe(error: BaseException) -> str:
    """Return an error on one line: its type and message; the message alone if the class declares a ``kind``."""
    text, name = " ".join(str(error).split()), type(error).__name__
    if not text or not isinstance(getattr(error, "kind", None), ErrorKind):
        text = "%s: %s" % (name, text) if text else name
    return text[:MAX_TEXT]


def one_line(text: str, maximum: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= maximum else line[: maximum - 3] + "..."


def summarize(times: Sequence[float]) -> Optional[Message]:
    """Return count, minimum, median, 99th percentile and maximum of durations (s); None without any."""
    if not times:
        return None
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, (99 * len(ordered) + 99) // 100 - 1)],
        "max": ordered[-1],
    }


def signal_self(fault: str) -> None:
    """Kill or stop this process (injected by the lab)."""
    os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def max_float32_sums(ranks: int, count: int) -> int:
    """Return how many in-place float32 sums over ``ranks`` can run in a row without overflow, at most ``count``."""
    bits = (ranks - 1).bit_length()
    return max(1, min(count, 100 // max(1, bits)))
