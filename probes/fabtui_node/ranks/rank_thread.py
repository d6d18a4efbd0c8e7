"""One endpoint of a rank host and the thread that does all its work."""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any, Callable, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Rank, Task, describe
from fabtui_node.ranks.controller_channel import Message
from fabtui_node.ranks.measure import collective as collecting
from fabtui_node.ranks.measure.p2p import Meeting, Site
from fabtui_node.ranks.measure.world import World


class Host:
    """What an endpoint's thread asks of the rank host it belongs to."""

    site: Site

    def send(self, message: Message) -> None:
        """Send a message to the controller."""
        raise NotImplementedError

    def begin(self, number: int, deadline: float) -> Task:
        """Make the task of a pair or group at one endpoint; its clock starts now."""
        raise NotImplementedError

    def finish(self, task: Task, rank: int) -> None:
        """Forget a task and tell the controller that the endpoint is free."""
        raise NotImplementedError


class EndpointThread:
    """One rank and the thread that does all its work, in the order in which it was asked for."""

    def __init__(self, host: Host, engine: base.Engine, rank: Rank) -> None:
        self._host = host
        self._engine = engine
        self._rank = rank
        self._endpoint: Optional[base.Endpoint] = None
        self._error: Optional[str] = None
        self._kind = ErrorKind.FAILED
        self._attached = threading.Event()
        self._queue: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._loop, name="rank-%d" % rank.rank, daemon=True).start()

    def attached(self, end: float) -> Optional[Tuple[str, ErrorKind]]:
        """Wait until the rank is ready; return its error and the kind of that, if it has one."""
        if not self._attached.wait(base.remaining(end)):
            return "not ready at the start deadline", ErrorKind.TIMEOUT
        return None if self._error is None else (self._error, self._kind)

    def submit(self, number: int, deadline: float, work: Callable[[Task], None]) -> None:
        """Queue a piece of work."""
        self._queue.put((number, deadline, work))

    def _loop(self) -> None:
        try:
            self._endpoint = self._engine.attach(self._rank)
        except BaseException as error:
            self._error, self._kind = describe(error), base.kind_of(error)
        self._attached.set()
        while True:
            number, deadline, work = self._queue.get()
            task = self._host.begin(number, deadline)
            try:
                work(task)
            except BaseException as error:  # the methods below report by themselves; this is the last net
                print("fabtui rank host: %s" % describe(error), file=sys.stderr, flush=True)
            self._host.finish(task, self._rank.rank)

    def rest(self, whole: bool, task: Task) -> None:
        """Let go of what tests have left, or of what is broken of it."""
        error: Optional[str] = None
        kind: Optional[ErrorKind] = None
        try:
            error = self._endpoint.rest(whole) if self._endpoint is not None else None
            kind = ErrorKind.LIBRARY if error is not None else None
        except Exception as failed:
            error, kind = describe(failed), base.kind_of(failed)
        report = {"op": "rested", "id": task.id, "rank": self._rank.rank, "error": error, "error_kind": kind}
        self._host.send(report)

    def pair(self, op: Message, task: Task) -> None:
        """Test both directions of a pair and report them."""
        endpoint = self._endpoint or base.Endpoint(self._rank)
        meeting = Meeting(endpoint, self._host.site, task, op, self._host.send)
        if self._endpoint is None:
            text = "rank %d is not ready: %s" % (self._rank.rank, self._error)
            meeting.decline(Failed(CONNECT, text, kind=ErrorKind.NOT_READY))
            return
        meeting.run()

    def collective(self, op: Message, task: Task) -> None:
        """Measure a collective of several sizes and report each."""
        collecting.collect(op, self._endpoint, self._rank.rank, self._error, self._host.send, task)

    def world(self, op: Message, task: Task) -> None:
        """Take part in the world layer and report it."""
        World(op, self._endpoint, self._rank.rank, self._error, task).run(self._host.send)
