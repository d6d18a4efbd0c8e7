"""The rank host's connection to the controller, and the key-value store that is carried over it."""

from __future__ import annotations

import base64
import binascii
import json
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind

GRACE = 2.0
"""Seconds past a request's own timeout after which the store stops waiting for an answer."""

Message = Dict[str, Any]


class StoreError(Exception):
    """The store could not answer."""

    kind = ErrorKind.FAILED


class StoreTimeout(StoreError):
    """No rank set the key within the deadline."""

    kind = ErrorKind.TIMEOUT


class Cancelled(StoreError):
    """The controller cancelled this pair or group: a peer of it is gone."""

    kind = ErrorKind.CANCELLED


class Channel:
    """A connected stream socket that carries protocol frames; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._decoder = protocol.Decoder()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            protocol.ProtocolError: The message cannot be encoded.
            OSError: The connection is closed.
        """
        frame = protocol.encode(message)
        with self._lock:
            self._socket.sendall(frame)

    def messages(self) -> Iterator[Message]:
        """Yield messages until the other end closes.

        Raises:
            protocol.ProtocolError: The other end does not speak the protocol.
        """
        while True:
            try:
                data = self._socket.recv(262144)
            except InterruptedError:
                continue
            except OSError:
                return
            if not data:
                return
            for message in self._decoder.feed(data):
                yield message


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
        self._next = 0
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

    def _request(
        self,
        cmd: str,
        key: Union[str, List[str], None],
        timeout: float,
        owner: object = None,
        value: Union[str, int, None] = None,
        expected: Optional[str] = None,
    ) -> Any:
        timeout = max(0.0, timeout)
        waiter = _Waiter(owner)
        with self._lock:
            self._next += 1
            q = self._next
            self._waiters[q] = waiter
        self._send(q, cmd, key, timeout, value, expected)
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

    def _send(
        self,
        q: int,
        cmd: str,
        key: Union[str, List[str], None],
        timeout: float,
        value: Union[str, int, None],
        expected: Optional[str],
    ) -> None:
        request = {"op": "store", "q": q, "cmd": cmd, "key": key, "value": value, "expected": expected}
        self._channel.send({**request, "timeout": timeout})

    def post(self, key: str, value: bytes) -> None:
        """Set a key without waiting for the answer."""
        with self._lock:
            self._next += 1
            q = self._next
        self._send(q, "set", key, 0.0, _text(value), None)

    def get(self, key: str, timeout: float, owner: object = None) -> bytes:
        """Return a key's value, waiting until it is set.

        Raises:
            StoreTimeout: It was not set in time.
            Cancelled: The owner was cancelled.
        """
        return _bytes(self._request("get", key, timeout, owner))

    def wait(self, keys: List[str], timeout: float, owner: object = None) -> None:
        """Wait until all keys are set."""
        self._request("wait", keys, timeout, owner)

    def check(self, keys: List[str], timeout: float, owner: object = None) -> bool:
        """Return True if all keys are set, without waiting."""
        return bool(self._request("check", keys, timeout, owner))

    def add(self, key: str, amount: int, timeout: float, owner: object = None) -> int:
        """Add to a counter and return its new value."""
        return int(self._request("add", key, timeout, owner, amount))

    def compare_set(self, key: str, expected: bytes, value: bytes, timeout: float, owner: object = None) -> bytes:
        """Set a key if it has the expected value; return its value afterwards."""
        return _bytes(self._request("compare_set", key, timeout, owner, _text(value), _text(expected)))

    def delete(self, key: str, timeout: float, owner: object = None) -> bool:
        """Delete a key; return True if it existed."""
        return bool(self._request("delete", key, timeout, owner))

    def num_keys(self, timeout: float, owner: object = None) -> int:
        """Return the number of keys."""
        return int(self._request("num_keys", None, timeout, owner))


class Board:
    """The store of one pair or group: JSON objects under one prefix, each written once by one side."""

    def __init__(self, store: Store, prefix: str, owner: object = None) -> None:
        self.store = store
        self.prefix = prefix
        self.owner = owner

    def put(self, key: str, value: Message) -> None:
        """Write an object for the other sides."""
        self.store.post(self.prefix + key, json.dumps(value, allow_nan=False).encode("utf-8"))

    def take(self, key: str, end: float) -> Message:
        """Return the object that another side writes under the key, waiting until ``end`` (monotonic seconds).

        Raises:
            StoreTimeout: It was not written in time.
            Cancelled: The pair or group was cancelled.
            StoreError: The value is not an object.
        """
        raw = self.store.get(self.prefix + key, max(0.0, end - time.monotonic()), self.owner)
        try:
            return protocol.decode(raw)
        except protocol.ProtocolError as error:
            raise StoreError("%s: %s" % (key, error)) from None


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise StoreError("the store answered %s, not text" % type(value).__name__)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise StoreError("the store's answer is not base64: %s" % error) from None
