"""GPU ranks over torch's ProcessGroupNCCL, as a training job uses it: one process per GPU.

Slower than NCCL itself and harder to cancel: a hanging call is abandoned, and ends with its process.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any, List, Optional

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.ranks import base
from fabtui_node.ranks.base import Rank
from fabtui_node.ranks.engine import RankEndpoint
from fabtui_node.ranks.nccl import driver_start, log_capture
from fabtui_node.ranks.nccl.ctypes_cuda import Driver, spare_host_memory
from fabtui_node.ranks.torch.endpoint import TorchEndpoint
from fabtui_node.ranks.torch.engine import TorchEngine

# In a job, a timeout ends the process and writes files; in a test neither may happen.
QUIET = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}

SPIN = 2000
"""Polls of a work without a pause, before other threads get the processor."""


class TorchNcclEngine(TorchEngine):
    """ProcessGroupNCCL over one GPU."""

    name = "torch"
    lasting = True

    def load(self) -> str:
        """Import torch and check that it has NCCL."""
        fd = driver_start.memory_file()
        driver_start.set_environment(fd, blocking=True)
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        self._log = log_capture.Log(fd)
        self._mark = 0
        self._ordinal = 0
        self._broken: List[Any] = []
        self._done: List[Any] = []
        version = super().load()
        number = ".".join(str(part) for part in self.torch.cuda.nccl.version())
        return "%s, NCCL %s" % (version, number)

    def open(self) -> None:
        """Check that torch has NCCL and finds a GPU."""
        if not hasattr(self.dist, "ProcessGroupNCCL"):
            raise RuntimeError("torch %s was built without NCCL" % self.torch.__version__)
        if not self.torch.cuda.is_available():
            raise RuntimeError("torch %s finds no GPU" % self.torch.__version__)
        self._type: Any = self.dist.ProcessGroupNCCL

    def attach(self, rank: Rank) -> RankEndpoint:
        """Make the GPU's context."""
        began = time.monotonic()
        driver = Driver()
        self._ordinal = driver.find(rank.index, rank.uuid)
        self.device = "cuda:%d" % self._ordinal
        self.enter()
        self.torch.zeros(1, device=self.device).item()
        if driver.shares_host_memory(self._ordinal):
            self._spare_the_host()
        self.seconds["contexts"] = time.monotonic() - began
        return TorchEndpoint(rank, self)

    def _spare_the_host(self) -> None:
        """Let torch raise an error rather than take the last memory of a host that its GPU has none beside."""
        spare, total = spare_host_memory(), int(self.torch.cuda.mem_get_info(self._ordinal)[1])
        if spare is not None and total > 0:
            self.torch.cuda.set_per_process_memory_fraction(min(1.0, spare / total), self._ordinal)

    def enter(self) -> None:
        """Select the GPU for the calling thread."""
        self.torch.cuda.set_device(self._ordinal)

    def make(
        self, store: Any, rank: int, size: int, seconds: float, address: Optional[str], ctas: Optional[int]
    ) -> Any:
        """Make a process group; its communicators are formed at their first use."""
        self._mark = self._log.mark()
        options = self._type.Options()
        # Waits have deadlines of their own; torch's watchdog is for abandoned ones.
        options._timeout = timedelta(seconds=seconds + 60.0)
        if ctas is not None and hasattr(options, "config"):
            options.config.max_ctas = ctas
        return self._type(store, rank, size, options)

    def joined(self, group: Any, end: float) -> None:
        """Form the communicator of the group: all ranks must do that at once before messages within it."""
        token = self.torch.ones(1, device=self.device)
        self.finish(group.allreduce([token], self.dist.AllreduceOptions()), end)

    def begin(self, group: Any, sending: bool, tensor: Any, other: int, tag: int, inside: bool) -> Any:
        """Begin a message; torch uses a communicator of two ranks unless the message is in a batch."""
        if not inside:
            return super().begin(group, sending, tensor, other, tag, inside)
        group._start_coalescing()
        super().begin(group, sending, tensor, other, tag, inside)
        return group._end_coalescing()

    def exchange(self, group: Any, out: Any, to: int, into: Any, source: int, tag: int) -> List[Any]:
        """Begin both in one batch: one after the other, both ends would wait for each other."""
        group._start_coalescing()
        group.send([out], to, tag)
        group.recv([into], source, tag)
        return [group._end_coalescing()]

    def finish(self, work: Any, end: float) -> None:
        """Wait for the GPU, not only for the queueing, and not past the deadline."""
        turn = 0
        while not work.is_completed():
            turn += 1
            if turn > SPIN:
                time.sleep(0.0001)
            if turn % 64 == 0 and time.monotonic() > end:
                raise TimeoutError("timed out")
        work.wait()

    def _lines(self) -> List[log_lines.NcclLine]:
        return self._log.since(self._mark, self._ordinal)

    def transport_of(self, src: int, dst: int, sending: bool) -> Optional[str]:
        """Return the worst transport that NCCL named."""
        via = log_lines.worst(log_lines.transports(self._lines(), src, dst, sending))
        return None if via is None else log_lines.short_name(via, self._log.nics())

    def transports_of(self, me: int) -> Optional[str]:
        """Return the transports that NCCL named, worst first."""
        channels = [log_lines.parse_channel(line.text) for line in self._lines()]
        found = {c.via for c in channels if c is not None and c.src == me and c.direction != "receive"}
        return log_lines.short_names(found, self._log.nics())

    def algorithm(self) -> Optional[str]:
        """Return NCCL's choice, which only the first rank of a communicator prints."""
        return log_lines.choice(self._lines())

    def discard(self, group: Any, broken: bool) -> None:
        """Keep a group until `release`: a communicator is not destroyed while tests run."""
        (self._broken if broken else self._done).append(group)

    def free_memory(self) -> Optional[int]:
        """Return the free memory of the GPU, and what torch has reserved of it."""
        return int(self.torch.cuda.mem_get_info(self._ordinal)[0]) + int(self.torch.cuda.memory_reserved(self._ordinal))

    def release(self) -> Optional[str]:
        """Abort broken groups and shut down the others, each in a thread that may hang; give torch's memory back."""
        threads = []
        for groups, method in ((self._broken, "abort"), (self._done, "shutdown")):
            for group in groups:
                self._retire(group)
                close = getattr(group, method, None) or getattr(group, "shutdown", None)
                if close is not None:
                    threads.append(threading.Thread(target=self._closed, args=(close,), daemon=True))
            groups.clear()
        for thread in threads:
            thread.start()
        end = time.monotonic() + 10.0
        for thread in threads:
            thread.join(base.remaining(end))
        if any(thread.is_alive() for thread in threads):
            return "torch did not return from closing a process group"
        self.torch.cuda.empty_cache()
        return None

    def _closed(self, close: Any) -> None:
        self.enter()
        close()
