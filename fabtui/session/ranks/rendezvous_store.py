"""The store through which ranks meet: the controller answers their requests, so that the nodes open no port for it."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Maximum size of all keys and values together; a node that fills it gets errors, the controller lives on.
MAX_TOTAL = 32 * 1024 * 1024
#: Cost of a key besides its text.
_A_KEY = 100
#: Maximum number of waiting requests of one node; each of its ranks waits for one key at a time.
MAX_WAITING = 4096
#: ``add`` counts ranks.
_MAX_COUNT = 1 << 53
MAX_WAIT = 600.0
#: Minimum time (s) between two searches for requests whose time is over.
_TICK = 0.02

Answer = Callable[[dict[str, Any]], object]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for keys, the last one of which it waits for now."""

    node: str
    number: Any
    answer: Answer
    keys: list[str]
    returns_value: bool
    deadline: float


class StoreServer:
    """Keys and values of all ranks; values are opaque base64 texts, or integers made by ``add``."""

    def __init__(self) -> None:
        self._values: dict[str, str | int] = {}
        self._size = 0
        self._waiting: dict[str, list[_Waiting]] = {}
        # The keys of each pair or group: there are thousands of keys when many pairs run at once.
        self._groups: dict[str, set[str]] = {}
        self._asking: Counter[str] = Counter()
        #: One timer for all waiting requests, and when it is due: there are thousands of them a second.
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def handle(self, node: str, request: dict[str, Any], answer: Answer) -> None:
        """Answer a ``store`` message of a node, now or when the key it waits for is there.

        A ``set`` without a number gets no answer.
        """
        number = request.get("q")
        try:
            command = request["cmd"]
            if command in ("swap", "get", "wait"):
                if command == "swap":
                    self._set(str(request["key"]), request["value"])
                    keys = [str(request["peer"])]
                else:
                    given = request["key"]
                    keys = [str(one) for one in (given if isinstance(given, list) and command == "wait" else [given])]
                # The first one last.
                if missing := [key for key in reversed(keys) if key not in self._values]:
                    # Without an answer, the rank that asks runs into its own deadline.
                    if self._asking[node] < MAX_WAITING:
                        deadline = asyncio.get_running_loop().time() + _seconds(request.get("timeout"))
                        self._wait(_Waiting(node, number, answer, missing, command != "wait", deadline))
                    return
                value = True if command == "wait" else self._values[keys[0]]
            else:
                value = self._do(command, request)
        except (KeyError, ValueError, TypeError) as error:
            answer(_reply(number, error=f"bad request: {error}"))
            return
        if number is not None:
            answer(_reply(number, value))

    def _do(self, command: str, request: dict[str, Any]) -> Any:
        given = request.get("key")
        key = str(given)
        if command == "set":
            self._set(key, request["value"])
            return True
        if command == "check":
            return all(str(one) in self._values for one in (given if isinstance(given, list) else [given]))
        if command == "num_keys":
            return len(self._values)
        if command == "add":
            before = self._values.get(key, 0)
            total = int(before) + int(request["value"])
            if abs(total) > _MAX_COUNT:
                raise ValueError("a count out of range")
            self._set(key, total)
            return total
        if command == "compare_set":
            expected = request.get("expected")
            if (key not in self._values and not expected) or self._values.get(key) == expected:
                self._set(key, request["value"])
            return self._values.get(key, expected or "")
        if command == "delete":
            return self._delete(key)
        raise ValueError(f"unknown command {command!r:.40}")

    def _set(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            size = _A_KEY + len(key) + len(value)
        elif isinstance(value, int):
            size = _A_KEY + len(key)
        else:
            raise ValueError("a value is a text or an integer")
        if self._size + size > MAX_TOTAL:
            raise ValueError("the store is full")
        if key in self._values:
            self._delete(key)
        self._values[key] = value
        self._size += size
        end = key.find("/", key.find("/") + 1)
        # A key without a prefix is a group by itself.
        group = key if end < 0 else key[: end + 1]
        if (keys := self._groups.get(group)) is None:
            self._groups[group] = {key}
        else:
            keys.add(key)
        if key not in self._waiting:
            return
        for waiting in self._waiting.pop(key):
            self._wake(waiting)

    def _delete(self, key: str) -> bool:
        value = self._values.pop(key, None)
        if value is None:
            return False
        self._size -= _A_KEY + len(key) + (len(value) if isinstance(value, str) else 0)
        return True

    def _wait(self, waiting: _Waiting) -> None:
        self._asking[waiting.node] += 1
        self._waiting.setdefault(waiting.keys[-1], []).append(waiting)
        if waiting.deadline < self._due:
            self._set_timer(waiting.deadline)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = None if due == math.inf else asyncio.get_running_loop().call_at(due, self._expire)

    def _wake(self, waiting: _Waiting) -> None:
        """Answer a request whose key is there, or let it wait for the next missing one."""
        key = waiting.keys.pop()
        while waiting.keys and waiting.keys[-1] in self._values:
            key = waiting.keys.pop()
        if waiting.keys:
            self._waiting.setdefault(waiting.keys[-1], []).append(waiting)
            return
        self._asking[waiting.node] -= 1
        waiting.answer(_reply(waiting.number, self._values[key] if waiting.returns_value else True))

    def _expire(self) -> None:
        """Answer the requests whose time is over."""
        now = asyncio.get_running_loop().time()
        left: dict[str, list[_Waiting]] = {}
        over: list[_Waiting] = []
        for key, some in self._waiting.items():
            for waiting in some:
                if waiting.deadline <= now:
                    over.append(waiting)
                else:
                    left.setdefault(key, []).append(waiting)
        self._waiting = left
        earliest = min((waiting.deadline for some in left.values() for waiting in some), default=math.inf)
        self._set_timer(max(earliest, now + _TICK))
        for waiting in over:
            self._asking[waiting.node] -= 1
            waiting.answer(_reply(waiting.number, error="timeout"))

    def forget(self, prefix: str) -> None:
        """Drop all keys that begin with a prefix ``epoch/id/``: their pair or group has ended."""
        for key in self._groups.pop(prefix, ()):
            self._delete(key)

    def close(self) -> None:
        """Stop all waits."""
        self._waiting.clear()
        self._asking.clear()
        self._set_timer(math.inf)


def _seconds(timeout: Any) -> float:
    # NaN is not greater than 0; it would put the timers of the loop out of order.
    return float(min(timeout, MAX_WAIT)) if isinstance(timeout, (int, float)) and timeout > 0 else 0.0


def _reply(number: Any, value: Any = None, error: str | None = None) -> dict[str, Any]:
    return {"op": "store", "q": number, "value": value, "error": error}
