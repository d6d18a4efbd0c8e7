"""A torch store whose keys live with the controller, so that process groups meet without a port of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, List, Optional

from fabtui_node.ranks import base
from fabtui_node.ranks.base import Task
from fabtui_node.ranks.controller_channel import Store


def carried_store(dist: Any) -> Any:
    """Return the class of a torch store whose keys live with the controller (torch is not loaded at import time)."""
    clones: List[Any] = []

    class CarriedStore(dist.Store):  # type: ignore[misc]
        def __init__(self, store: Store, prefix: str, task: Task, end: float) -> None:
            super().__init__()
            self._store, self._prefix, self._task, self._end = store, prefix, task, end

        def _left(self) -> float:
            return base.remaining(self._end, 0.05)

        def set(self, key: str, value: Any) -> None:
            self._store.post(self._prefix + key, value.encode("utf-8") if isinstance(value, str) else bytes(value))

        def get(self, key: str) -> bytes:
            return self._store.get(self._prefix + key, self._left(), self._task)

        def add(self, key: str, amount: int) -> int:
            return self._store.add(self._prefix + key, amount, self._left(), self._task)

        def check(self, keys: List[str]) -> bool:
            return self._store.check([self._prefix + key for key in keys], self._left(), self._task)

        def wait(self, keys: List[str], timeout: Optional[timedelta] = None) -> None:
            # gloo passes its own timeout, a fifth of ours, which is too short for a peer that starts late.
            self._store.wait([self._prefix + key for key in keys], self._left(), self._task)

        def compare_set(self, key: str, expected: Any, value: Any) -> bytes:
            sides = [v.encode("utf-8") if isinstance(v, str) else bytes(v) for v in (expected, value)]
            return self._store.compare_set(self._prefix + key, sides[0], sides[1], self._left(), self._task)

        def delete_key(self, key: str) -> bool:
            return self._store.delete(self._prefix + key, self._left(), self._task)

        def num_keys(self) -> int:
            return self._store.num_keys(self._left(), self._task)

        def clone(self) -> Any:
            # C++ keeps only its half alive: the Python half is kept here.
            clone = CarriedStore(self._store, self._prefix, self._task, self._end)
            clones.append(clone)
            return clone

        def set_timeout(self, timeout: timedelta) -> None:
            """Ignore the group's own timeout: the deadline of the pair or group applies."""

        @property
        def timeout(self) -> timedelta:
            return timedelta(seconds=self._left())

    return CarriedStore
