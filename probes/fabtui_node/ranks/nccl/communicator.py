"""One communicator of GPUs as its member sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Task
from fabtui_node.ranks.controller_channel import StoreTimeout
from fabtui_node.ranks.nccl import log_capture, log_parser
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError, CudaTimeout
from fabtui_node.ranks.nccl.ctypes_nccl import Communicator, NcclTimeout
from fabtui_node.ranks.nccl.log_parser import Line

if TYPE_CHECKING:
    from fabtui_node.ranks.nccl.engine import NcclEndpoint


class Member:
    """This endpoint's part of one communicator, with what NCCL printed about it.

    Attributes:
        ways: NCCL's words for how data goes, by source, destination, and whether the source's end said so.
    """

    def __init__(self, endpoint: NcclEndpoint, task: Task, me: int, size: int) -> None:
        self.endpoint = endpoint
        self.task = task
        self.me, self.size = me, size
        self.comm = Communicator(endpoint.engine.nccl, lambda: task.cancelled)
        self.ways: Dict[Tuple[int, int, bool], Set[str]] = {}
        self._mark = self._surveyed = endpoint.engine.log.mark()
        self._laps: List[str] = []
        self._lap = time.monotonic()

    def lap(self, name: str) -> None:
        """Note that a phase ends here."""
        now = time.monotonic()
        self._laps.append("%s %.3f" % (name, now - self._lap))
        self._lap = now

    def laps(self) -> str:
        """Return the seconds of the phases since the last call, in words."""
        laps, self._laps = self._laps, []
        return "seconds: " + ", ".join(laps)

    def wait(self, end: float) -> None:
        """Wait for the stream, with an eye on the communicator's health."""
        self.endpoint.device.wait(end, self.comm.look)

    def lines(self) -> List[Line]:
        """Return what NCCL printed for this GPU since the communicator was begun."""
        return self.endpoint.engine.log.since(self._mark, self.endpoint.device.ordinal)

    def survey(self) -> None:
        """Read what NCCL has printed about its connections since the last call, into ``ways``."""
        log, since = self.endpoint.engine.log, self._surveyed
        self._surveyed = log.mark()
        for line in log.since(since, self.endpoint.device.ordinal):
            channel = log_parser.parse_channel(line.text)
            if channel is None:
                continue
            for sending in (True, False):
                if channel.direction is None or (channel.direction == "send") == sending:
                    self.ways.setdefault((channel.src, channel.dst, sending), set()).add(channel.via)

    def failed(self, phase: str, what: str, error: Exception, seconds: float) -> Failed:
        """Return a failure in words: what was awaited, what came instead, and what NCCL said about it."""
        late = isinstance(error, (NcclTimeout, CudaTimeout, StoreTimeout))
        lines = self.lines()
        said = log_parser.root(log_parser.warnings(lines))
        if said is None and phase == CONNECT:
            said = self._said_elsewhere()
        text = "%s within %.1f s" % (what, seconds) if late else "%s: %s" % (what, base.tidy(str(error)))
        if said:
            # NCCL's own warning is the reason; its result code would only repeat that there is one.
            text = "%s: %s" % (text if late else what, base.tidy(said))
        notes = "set for this test: " + " ".join(self.endpoint.engine.notes) if self.endpoint.engine.notes else ""
        raw = "\n".join(part for part in (log_capture.summary(lines), notes) if part)
        kind = base.kind_of(error)
        if said and kind is ErrorKind.LIBRARY and log_parser.is_peer_lost(said):
            kind = ErrorKind.PEER_LOST
        return Failed(phase, text, late, raw or None, kind)

    def _said_elsewhere(self) -> Optional[str]:
        """Return NCCL's reason where it was not told of this GPU: before a communicator has one, or once for all."""
        log = self.endpoint.engine.log
        # NCCL sets up its bootstrap once a process; who comes later gets the result without the reason.
        once = [line for line in log.warned(0) if line.text.startswith("Bootstrap")]
        return log_parser.root(log_parser.warnings(log.warned(self._mark))) or log_parser.root(
            log_parser.warnings(once)
        )

    def leave(self, broken: bool) -> None:
        """Let go of the communicator; what a broken one still has on the stream is left behind with the stream."""
        self.endpoint.keep(self.comm, broken)
        if broken:
            try:
                self.endpoint.device.wait(time.monotonic() + 0.2)
            except CudaError:
                self.endpoint.device.renew_stream()
