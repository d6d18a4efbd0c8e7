"""One endpoint of a rank host and the thread that does all its work."""

from __future__ import annotations

import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Rank, Task, describe, kind_of
from fabtui_node.ranks.controller_channel import Message
from fabtui_node.ranks.measure import collective
from fabtui_node.ranks.measure.p2p import HostInfo, PairTest
from fabtui_node.ranks.measure.world import World

if TYPE_CHECKING:
    from fabtui_node.messages import RankState


class Host:
    """The part of a rank host that its rank threads use."""

    info: HostInfo

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the controller."""
        raise NotImplementedError

    def begin(self, number: int, deadline: float) -> Task:
        """Return the task of a pair or group at one endpoint; its clock starts now."""
        raise NotImplementedError

    def finish(self, task: Task, rank: int) -> None:
        """Remove a task and notify the controller that the endpoint is free."""
        raise NotImplementedError


class RankThread:
    """One rank and the thread that does all its work, in the order of the requests."""

    def __init__(self, host: Host, engine: base.Engine, rank: Rank) -> None:
        self._host = host
        self._engine = engine
        self._rank = rank
        self._endpoint: Optional[base.Endpoint] = None
        self._error: Optional[Tuple[str, ErrorKind]] = None
        self._attached = threading.Event()
        self._queue: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._loop, name="rank-%d" % rank.rank, daemon=True).start()

    def state(self, end: float) -> RankState:
        """Wait until the rank is ready, at most until ``end``; return its state."""
        ready = self._attached.wait(base.remaining(end))
        error = self._error if ready else ("not ready at the start deadline", ErrorKind.TIMEOUT)
        text, kind = error or (None, None)
        return {"rank": self._rank.rank, "ok": error is None, "error": text, "error_kind": kind}

    def submit(self, number: int, deadline: float, work: Callable[[Task], None]) -> None:
        """Queue a piece of work."""
        self._queue.put((number, deadline, work))

    def _loop(self) -> None:
        try:
            self._endpoint = self._engine.attach(self._rank)
        except BaseException as error:
            self._error = describe(error), kind_of(error)
        self._attached.set()
        while True:
            number, deadline, work = self._queue.get()
            task = self._host.begin(number, deadline)
            try:
                work(task)
            except BaseException as error:  # the methods below report errors themselves; this is the last resort
                print("fabtui rank host: %s" % describe(error), file=sys.stderr, flush=True)
            self._host.finish(task, self._rank.rank)

    @property
    def _reason(self) -> Optional[str]:
        return None if self._error is None else self._error[0]

    def release(self, everything: bool, task: Task) -> None:
        """Release what tests left, or only the broken part of it."""
        error: Optional[str] = None
        kind: Optional[ErrorKind] = None
        try:
            error = self._endpoint.release(everything) if self._endpoint is not None else None
            kind = ErrorKind.LIBRARY if error is not None else None
        except Exception as problem:
            error, kind = describe(problem), kind_of(problem)
        report = {"op": "rested", "id": task.id, "rank": self._rank.rank, "error": error, "error_kind": kind}
        self._host.send(report)

    def pair(self, op: Message, task: Task) -> None:
        """Test both directions of a pair and report them."""
        test = PairTest(self._endpoint or base.Endpoint(self._rank), self._host.info, task, op, self._host.send)
        if self._endpoint is None:
            text = "rank %d is not ready: %s" % (self._rank.rank, self._reason)
            test.decline(Failed(CONNECT, text, kind=ErrorKind.NOT_READY))
            return
        test.run()

    def collective(self, op: Message, task: Task) -> None:
        """Measure a collective of several sizes and report each."""
        collective.run(op, self._endpoint, self._rank.rank, self._reason, self._host.send, task)

    def world(self, op: Message, task: Task) -> None:
        """Take part in the world layer and report it."""
        World(op, self._endpoint, self._rank.rank, self._reason, task).run(self._host.send)
