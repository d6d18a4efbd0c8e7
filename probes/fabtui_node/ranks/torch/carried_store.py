"""A store of torch.distributed whose keys live with the controller, and the failures that torch reports."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import Failed, Store, StoreError, Task, to_bytes, to_text

_NOISE = re.compile(r"^\w+(?:Error|Exception): |\[[^\[\]\s]*\.(?:cc|cpp|h):\d+\] ?|\.? ?This is typically caused.*$")


def failure(
    phase: str, what: str, error: Exception, seconds: Optional[float] = None, late: Optional[ErrorKind] = None
) -> Failed:
    """Return the failure ``what`` with torch's message, unless that only reports a timeout after ``seconds``.

    ``late`` is the kind of the failure if a deadline passed.
    """
    raw = "%s: %s" % (type(error).__name__, " ".join(str(error).split()))
    timeout = isinstance(error, StoreError) or "imed out" in raw or "imeout" in raw
    if timeout and seconds is not None:
        text = "%s within %.1f s" % (what, seconds) if seconds >= 0.05 else "%s: no time was left for it" % what
    else:
        text = "%s: %s" % (what, base.one_line(_NOISE.sub("", raw)))
    if isinstance(error, StoreError):
        kind = error.kind
    elif "onnection closed" in raw or "onnection reset" in raw:
        kind = ErrorKind.PEER_LOST
    else:
        kind = (late or ErrorKind.TIMEOUT) if timeout else ErrorKind.LIBRARY
    return Failed(phase, text, timeout, raw, kind)


def _encoded(value: Any) -> bytes:
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def carried_store(dist: Any) -> Any:
    """Return the class of a torch store whose keys live with the controller: groups meet without a port of ours.

    Made by a function, because torch is not loaded at import time.
    """

    class CarriedStore(dist.Store):  # type: ignore[misc]
        def __init__(self, store: Store, prefix: str, task: Task, end: float) -> None:
            super().__init__()
            self._store, self._prefix = store, prefix
            # C++ keeps only its half of a clone alive: the Python half is kept here.
            self._clones: List[Any] = []
            self.renew(task, end)

        def renew(self, task: Task, end: float) -> None:
            self._task, self._end = task, end
            for clone in self._clones:
                clone.renew(task, end)

        def _left(self) -> float:
            return base.remaining(self._end, 0.05)

        def _ask(self, cmd: str, key: Any, value: Any = None, expected: Optional[str] = None) -> Any:
            return self._store.ask(cmd, key, self._left(), self._task, value=value, expected=expected)

        def set(self, key: str, value: Any) -> None:
            self._store.post(self._prefix + key, _encoded(value))

        def get(self, key: str) -> bytes:
            return self._store.get(self._prefix + key, self._left(), self._task)

        def add(self, key: str, amount: int) -> int:
            return int(self._ask("add", self._prefix + key, amount))

        def check(self, keys: List[str]) -> bool:
            return bool(self._ask("check", [self._prefix + key for key in keys]))

        def wait(self, keys: List[str], timeout: Optional[timedelta] = None) -> None:
            # gloo passes its own timeout, a fifth of ours, which is too short for a peer that starts late.
            self._ask("wait", [self._prefix + key for key in keys])

        def compare_set(self, key: str, expected: Any, value: Any) -> bytes:
            texts = to_text(_encoded(value)), to_text(_encoded(expected))
            return to_bytes(self._ask("compare_set", self._prefix + key, *texts))

        def delete_key(self, key: str) -> bool:
            return bool(self._ask("delete", self._prefix + key))

        def num_keys(self) -> int:
            return int(self._ask("num_keys", None))

        def clone(self) -> Any:
            clone = CarriedStore(self._store, self._prefix, self._task, self._end)
            self._clones.append(clone)
            return clone

        def set_timeout(self, timeout: timedelta) -> None:
            """Ignore the group's own timeout: the deadline of the pair or group applies."""

        @property
        def timeout(self) -> timedelta:
            return timedelta(seconds=self._left())

    return CarriedStore
