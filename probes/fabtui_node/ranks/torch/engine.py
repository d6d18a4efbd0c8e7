"""Ranks over torch.distributed: a process group a pair, meeting through the carried store.

Torch is imported here and in no other module of the node side, and only inside the rank host.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import threading
import time
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Rank, Task
from fabtui_node.ranks.controller_channel import Store, StoreError
from fabtui_node.ranks.torch.store import carried_store

OVERTIME = 1.0
"""Seconds past its deadline after which a wait in torch is left behind."""

_NOISE = re.compile(r"^\w+(?:Error|Exception): |\[[^\]\s]*\.(?:cc|cpp|h):\d+\] ?|\.? ?This is typically caused.*$")


def leavable(task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
    """Return what ``work`` returns, or leave it behind when the task is called off or hangs past its end.

    Torch's waits happen in C++ and cannot be called off, so the work runs in a thread of its own (about 50 us each).
    """
    box: List[Any] = []
    done = threading.Event()

    def body() -> None:
        try:
            box.append((work(), None))
        except BaseException as error:
            box.append((None, error))
        done.set()

    threading.Thread(target=body, daemon=True).start()
    while not done.wait(0.05):
        if task.cancelled:
            raise Failed(phase, "called off: a peer is gone", kind=ErrorKind.CANCELLED)
        if time.monotonic() > end + OVERTIME:
            raise Failed(phase, "torch still waits %.0f s after the deadline" % OVERTIME, timeout=True)
    value, error = box[0]
    if error is not None:
        raise error
    return value


def failure(phase: str, what: str, error: Exception, seconds: Optional[float] = None) -> Failed:
    """Return a failure in words, torch's own behind it where they tell more than that time ran out."""
    said = base.describe(error)
    late = isinstance(error, StoreError) or "imed out" in said or "imeout" in said
    if late and seconds is not None:
        text = "%s within %.1f s" % (what, seconds)
    else:
        text = "%s: %s" % (what, base.tidy(_NOISE.sub("", said)))
    if isinstance(error, StoreError):
        kind = error.kind
    elif "onnection closed" in said or "onnection reset" in said:
        kind = ErrorKind.PEER_LOST
    else:
        kind = ErrorKind.TIMEOUT if late else ErrorKind.LIBRARY
    return Failed(phase, text, late, said, kind)


class TorchEngine(base.Engine):
    """What the engines over torch.distributed have in common; the rest is how they make and wait for process groups."""

    way: Optional[str] = None
    """How the data goes, where all of it goes the same way."""

    device = "cpu"
    """Where the messages lie."""

    lasting = False
    """Whether process groups ask the store for something after they were made."""

    def __init__(self, address: str, store: Store, library: Optional[str]) -> None:
        super().__init__(address, store, library)
        # A group in C++ keeps only the C++ half of its store: the half in Python must be kept by somebody.
        self._stores: List[Any] = []

    def warm(self) -> None:
        """Import torch."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        began = time.monotonic()
        with contextlib.suppress(Exception):
            importlib.import_module("torch.distributed")
        self.seconds["import"] = time.monotonic() - began

    def load(self) -> str:
        """Import torch."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        began = time.monotonic()
        import torch
        import torch.distributed as dist

        self.seconds["import"] = max(self.seconds.get("import", 0.0), time.monotonic() - began)
        if not dist.is_available():
            raise RuntimeError("torch %s was built without torch.distributed" % torch.__version__)
        torch.set_num_threads(1)
        self.torch: Any = torch
        self.dist: Any = dist
        self.carried = carried_store(dist)
        self.open()
        return "torch %s" % torch.__version__

    def open(self) -> None:
        """Look whether torch has what this engine needs."""

    def enter(self) -> None:
        """Prepare the calling thread."""

    def make(self, store: Any, rank: int, size: int, seconds: float) -> Any:
        """Return a process group; raises what torch raises."""
        raise NotImplementedError

    def begin(self, group: Any, sending: bool, tensor: Any, other: int, tag: int, inside: bool) -> Any:
        """Begin to send to or receive from a rank of a group, and return the work to wait for.

        ``inside``: in the communicator of the whole group, where the library would make one for two ranks otherwise.
        """
        return (group.send if sending else group.recv)([tensor], other, tag)

    def finish(self, work: Any, end: float) -> None:
        """Wait until work is done; raises what torch raises."""
        work.wait(timedelta(seconds=base.remaining(end, 0.001)))

    def exchange(self, group: Any, out: Any, to: int, into: Any, source: int, tag: int) -> List[Any]:
        """Begin to send to one rank and to receive from another at once; return the works to wait for."""
        return [group.recv([into], source, tag), group.send([out], to, tag)]

    def joined(self, group: Any, end: float) -> None:
        """Have a group of many connect, where making it does not do that yet; raises what torch raises."""

    def way_of(self, src: int, dst: int, sending: bool) -> Optional[str]:
        """Return how data goes from one rank of the last group to another, as the sending or receiving end tells."""
        return self.way

    def ways_out(self, me: int) -> Optional[str]:
        """Return the ways out of a rank of the last group, in words."""
        return self.way

    def algorithm(self) -> Optional[str]:
        """Return what the library chose for the last collective, where it says so."""
        return None

    def discard(self, group: Any, broken: bool) -> None:
        """Let go of a process group that is of no use any more."""

    def rest(self, whole: bool) -> Optional[str]:
        """Let go of what `discard` kept, or of what is broken of it; nothing is under way."""
        if whole:
            self._stores.clear()
        return None

    def attach(self, rank: Rank) -> base.Endpoint:
        """Return a rank."""
        return TorchEndpoint(rank, self)

    def group(self, task: Task, prefix: str, rank: int, size: int, end: float) -> Any:
        """Make a process group that stands by ``end``.

        Raises:
            Failed: It does not.
        """
        began = time.monotonic()
        until = task.end + task.deadline if self.lasting else end
        store = self.carried(self.store, task.prefix + prefix, task, until)
        self._stores.append(store)
        try:
            return self.make(store, rank, size, base.remaining(end, 0.05))
        except Exception as error:
            what = "no process group of %d ranks came about" % size
            raise failure(CONNECT, what, error, time.monotonic() - began) from None


class TorchEndpoint(base.Endpoint):
    """A rank in a process of its own, or in a thread."""

    def __init__(self, rank: Rank, engine: TorchEngine) -> None:
        super().__init__(rank)
        self.engine = engine

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase so that it can be left behind."""

        def body() -> Any:
            self.engine.enter()
            return work()

        return leavable(task, body, phase, end)

    def rest(self, whole: bool) -> Optional[str]:
        """Let go of process groups."""
        return self.engine.rest(whole)

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> base.Link:
        """Make a process group of two."""
        from fabtui_node.ranks.torch.transfer import TorchLink

        me = self.rank.rank
        indices = (0, 1) if me < peer else (1, 0)
        group = self.engine.group(task, "link%d/" % attempt, indices[0], 2, end)
        return TorchLink(self.engine, group, (me, peer), indices, peer_address)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> base.Group:
        """Make a process group of many."""
        from fabtui_node.ranks.torch.collectives import TorchGroup

        began = time.monotonic()
        group = self.engine.group(task, "group/", ranks.index(self.rank.rank), len(ranks), end)
        try:
            self.engine.joined(group, end)
        except Exception as error:
            self.engine.discard(group, True)
            what = "no communicator of %d ranks came about" % len(ranks)
            raise failure(CONNECT, what, error, time.monotonic() - began) from None
        return TorchGroup(self.engine, group, self.rank.rank, ranks)


Ends = Tuple[int, int]
"""The numbers of this rank and of its peer."""
