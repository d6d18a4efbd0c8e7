"""Ranks over torch.distributed: one process group per pair, which meets through the controller's store.

torch is imported here and in no other module of the node side, and only in the rank host.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import re
import time
from datetime import timedelta
from typing import Any, Deque, Dict, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Task
from fabtui_node.ranks.controller_channel import Store, StoreError, to_bytes, to_text
from fabtui_node.ranks.engine import Engine

_NOISE = re.compile(r"^\w+(?:Error|Exception): |\[[^\[\]\s]*\.(?:cc|cpp|h):\d+\] ?|\.? ?This is typically caused.*$")

RETIRED = 64
"""Number of stores that are kept after their groups were let go."""

Ends = Tuple[int, int]
"""The numbers of this rank and of its peer."""


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


class TorchEngine(Engine):
    """Common part of the engines over torch.distributed, which differ in making process groups."""

    def __init__(self, address: str, store: Store, library: Optional[str]) -> None:
        super().__init__(address, store, library)
        # A group in C++ keeps only the C++ half of its store alive: the Python half is kept here.
        self._stores: Dict[int, Any] = {}
        # What a group that was let go may still use; no more are known to do that.
        self._retired: Deque[Any] = collections.deque(maxlen=RETIRED)

    def _import(self) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Lines that torch prints about what it raises as well, and plug-ins of further devices.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        began = time.monotonic()
        # Heavy, and only in the rank host: not at the top of the module.
        self.torch: Any = importlib.import_module("torch")
        self.dist: Any = importlib.import_module("torch.distributed")
        self.seconds["import"] = max(self.seconds.get("import", 0.0), time.monotonic() - began)

    def warm(self) -> None:
        with contextlib.suppress(Exception):
            self._import()

    def load(self) -> str:
        """Import torch and check its features."""
        self._import()
        if not self.dist.is_available():
            raise RuntimeError("torch %s was built without torch.distributed" % self.torch.__version__)
        self.torch.set_num_threads(1)
        self.carried = carried_store(self.dist)
        self.open()
        return "torch %s" % self.torch.__version__

    def open(self) -> None:
        """Check that torch has what this engine needs."""

    def make(self, store: Any, rank: int, size: int, seconds: float, address: Optional[str]) -> Any:
        """Return a process group whose member here sends from an address, if given; raises what torch raises."""
        raise NotImplementedError

    def begin(self, group: Any, sending: bool, tensor: Any, other: int, tag: int) -> Any:
        """Begin to send to or receive from a rank of a group, and return the work to wait for."""
        return (group.send if sending else group.recv)([tensor], other, tag)

    def finish(self, work: Any, end: float) -> None:
        """Wait until work is done; raises what torch raises."""
        work.wait(timedelta(seconds=base.remaining(end, 0.001)))

    def exchange(self, group: Any, out: Any, to: int, into: Any, source: int, tag: int) -> List[Any]:
        """Begin to send to one rank and to receive from another at once; return the works to wait for."""
        return [group.recv([into], source, tag), group.send([out], to, tag)]

    def discard(self, group: Any) -> None:
        """Release a process group that is no longer used."""
        self._retired.append(self._stores.pop(id(group), None))

    def renew(self, group: Any, task: Task) -> None:
        """Use a process group for another test."""
        if id(group) in self._stores:
            self._stores[id(group)].renew(task, task.end + task.deadline)

    def group(self, task: Task, prefix: str, rank: int, size: int, end: float, address: Optional[str]) -> Any:
        """Make a process group that is connected by ``end``, as `make` does; raise `Failed` if it is not formed."""
        began = time.monotonic()
        store = self.carried(self.store, task.prefix + prefix, task, end)
        try:
            group = self.make(store, rank, size, base.remaining(end, 0.05), address)
            self._stores[id(group)] = store
            return group
        except Exception as error:
            self._retired.append(store)
            what = "the process group of %d ranks was not formed" % size
            raise failure(CONNECT, what, error, time.monotonic() - began) from None
