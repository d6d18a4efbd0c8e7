"""The controller's key-value store, carried over the rank host's connection to it."""

from __future__ import annotations

import base64
import binascii
import itertools
import threading
from typing import Any, Dict, Optional

from fabtui_node.protocol import ErrorKind, Message
from fabtui_node.runtime.streams import Channel

#: Seconds past a request's own timeout after which the store stops waiting for an answer.
GRACE = 2.0


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
