"""The store through which ranks meet: the controller answers their requests, so that no port of ours is opened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

#: What all keys and values together may take; a node that fills it gets errors, the controller lives on.
MAX_TOTAL = 32 * 1024 * 1024
#: What a key costs besides its text.
_A_KEY = 100
#: The most requests of one node that may wait at once; each of its ranks waits for one thing at a time.
MAX_WAITING = 4096
#: ``add`` counts ranks.
_MAX_COUNT = 1 << 53
MAX_WAIT = 600.0

Answer = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class _Awaited:
    """A key that requests wait for: how many do, and what wakes them."""

    count: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class StoreServer:
    """Keys and values of all ranks; values are opaque base64 texts, or integers made by ``add``."""

    def __init__(self) -> None:
        self._values: dict[str, str | int] = {}
        self._size = 0
        self._awaited: dict[str, _Awaited] = {}
        # The keys of each pair or group, kept or waited for: there are thousands of keys when many pairs run at once.
        self._groups: dict[str, set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: Counter[str] = Counter()

    def handle(self, node: str, request: dict[str, Any], answer: Answer) -> None:
        """Answer a ``store`` message of a node, now or when the key it waits for is there."""
        if self._asking[node] >= MAX_WAITING:
            # Left without an answer, the rank that asks runs into its own deadline.
            return

        def answered(task: asyncio.Task[None]) -> None:
            self._asking[node] -= 1
            self._tasks.discard(task)

        task = asyncio.ensure_future(self._answer(request, answer))
        self._asking[node] += 1
        self._tasks.add(task)
        task.add_done_callback(answered)

    async def _answer(self, request: dict[str, Any], answer: Answer) -> None:
        reply: dict[str, Any] = {"op": "store", "q": request.get("q"), "value": None, "error": None}
        try:
            reply["value"] = await self._do(request)
        except TimeoutError:
            reply["error"] = "timeout"
        except (KeyError, ValueError, TypeError) as error:
            reply["error"] = f"bad request: {error}"
        await answer(reply)

    async def _do(self, request: dict[str, Any]) -> Any:
        command = request["cmd"]
        timeout = request.get("timeout")
        wait = min(float(timeout), MAX_WAIT) if isinstance(timeout, (int, float)) else 0.0
        given = request.get("key")
        keys = [str(one) for one in (given if isinstance(given, list) else [given])]
        if command == "wait":
            await self._wait(keys, wait)
            return True
        if command == "check":
            return all(key in self._values for key in keys)
        if command == "num_keys":
            return len(self._values)
        key = str(given)
        if command == "set":
            self._set(key, request["value"])
            return True
        if command == "get":
            await self._wait([key], wait)
            return self._values[key]
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
        if not isinstance(value, (str, int)):
            raise ValueError("a value is a text or an integer")
        size = _cost(key, value)
        if self._size + size > MAX_TOTAL:
            raise ValueError("the store is full")
        self._delete(key)
        self._values[key] = value
        self._groups.setdefault(_group(key), set()).add(key)
        self._size += size
        if (awaited := self._awaited.pop(key, None)) is not None:
            awaited.changed.set()

    def _delete(self, key: str) -> bool:
        value = self._values.pop(key, None)
        if value is None:
            return False
        self._size -= _cost(key, value)
        return True

    async def _wait(self, keys: list[str], seconds: float) -> None:
        if all(key in self._values for key in keys):
            return
        async with asyncio.timeout(seconds):
            for key in keys:
                while key not in self._values:
                    await self._wait_for(key)

    async def _wait_for(self, key: str) -> None:
        """Wait until a key is set; a key that nobody waits for any more leaves nothing behind."""
        self._groups.setdefault(_group(key), set()).add(key)
        awaited = self._awaited.setdefault(key, _Awaited())
        awaited.count += 1
        try:
            await awaited.changed.wait()
        finally:
            awaited.count -= 1
            if not awaited.count and self._awaited.get(key) is awaited:
                del self._awaited[key]
                group = self._groups.get(_group(key), set())
                group.discard(key)
                if not group:
                    self._groups.pop(_group(key), None)

    def forget(self, prefix: str) -> None:
        """Drop all keys that begin with a prefix ``epoch/id/``: their pair or group has ended."""
        for key in self._groups.pop(prefix, ()):
            self._delete(key)
            self._awaited.pop(key, None)

    async def close(self) -> None:
        """Stop all waits."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _cost(key: str, value: str | int) -> int:
    return _A_KEY + len(key) + (len(value) if isinstance(value, str) else 0)


def _group(key: str) -> str:
    """Return the prefix of a pair or group that a key begins with: ``epoch/id/``, or all of a key without one."""
    end = key.find("/", key.find("/") + 1)
    return key if end < 0 else key[: end + 1]
