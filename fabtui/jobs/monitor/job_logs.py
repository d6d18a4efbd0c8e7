"""All logs of a job together: what was read so far, by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabtui.jobs.monitor.gpu_history import GpuHistory
from fabtui.jobs.monitor.iteration_times import IterationTimes
from fabtui.jobs.monitor.log_file import LogFile, Stream, node_of, stream_of
from fabtui.jobs.monitor.settings import FIRST_LINES, Settings
from fabtui_node.system.log_files import Known


class FileClock:
    """Compares modification times with each other, and with our clock only as far as growth was seen.

    A file that has just grown shows how far the server's clock is from ours, up to the time between two readings.
    """

    def __init__(self) -> None:
        self._newest = float("-inf")
        self._ahead: float | None = None

    def see(self, modified: float, now: float, *, grew: bool) -> None:
        """Take the modification time of a file that was read at ``now``, by the reader's clock."""
        self._newest = max(self._newest, modified)
        if grew:
            self._ahead = now - modified if self._ahead is None else min(self._ahead, now - modified)

    def age(self, modified: float, now: float) -> float:
        """Return how long ago (s) a file was written."""
        # Until a file has grown, a server that is ahead shows by times in the future.
        server = now - self._ahead if self._ahead is not None else max(now, self._newest)
        return max(0.0, server - modified)


#: Maximum number of files of a job.
_MOST_FILES = 32_768
#: Where files are read: "" is this machine, else a node.
Reader = str


class JobLogs:
    """Log files of a job, and the content of their lines. Takes parts of files as they are read, from any reader.

    Attributes:
        files: By reader and path.
        iterations: Iteration times of the training.
        settings: Settings that the nodes have printed.
        gpus: Use of the GPUs, by node.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self.files: dict[tuple[Reader, str], LogFile] = {}
        self.iterations = IterationTimes()
        self.settings = Settings()
        self.gpus: dict[str, GpuHistory] = {}
        self._by_node: dict[str, list[LogFile]] = {}
        self._clocks: dict[Reader, FileClock] = {}
        self._now: dict[Reader, float] = {}

    def known(self, reader: Reader) -> dict[str, Known]:
        """Return how far a reader's files are known."""
        return {path: file.known for (who, path), file in self.files.items() if who == reader and file.known}

    def take(self, reader: Reader, parts: Iterable[Mapping[str, Any]], now: float) -> None:
        """Take parts of files that a reader has read at ``now``, by its clock."""
        clock = self._clocks.setdefault(reader, FileClock())
        self._now[reader] = now
        for part in parts:
            path = str(part["path"])
            file = self.files.get((reader, path))
            if file is None:
                if len(self.files) >= _MOST_FILES:
                    continue
                node = reader or node_of(path, self.nodes)
                file = self.files[reader, path] = LogFile(path, node, stream_of(path), reader)
                self._by_node.setdefault(node, []).append(file)
            before, first = file.modified, file.known is None
            new = file.take(part, now)
            grew = not first and file.grown == now
            clock.see(file.modified or now, now, grew=grew and file.modified != before)
            self._take_lines(file, [*new.head, *new.lines], None if first else now)

    def take_gpus(self, node: str, rows: Iterable[Mapping[str, Any]], now: float) -> None:
        """Take the GPUs of a node as NVML shows them."""
        self.gpus.setdefault(node, GpuHistory()).take(rows, now)

    def _take_lines(self, file: LogFile, lines: list[str], seen: float | None) -> None:
        if file.stream == "gpu":
            history = self.gpus.setdefault(file.node, GpuHistory())
            for line in lines:
                history.take_line(line)
            return
        early = file.lines - len(lines) < FIRST_LINES
        for line in lines:
            if self.iterations.take(line, seen) is None:
                file.errors.take(line, seen)
                if early:
                    self.settings.take(file.node, line)

    def of(self, node: str, *streams: Stream) -> list[LogFile]:
        """Return the files of a node ("": those of the whole job), those written last at the end."""
        found = [file for file in self._by_node.get(node, []) if not streams or file.stream in streams]
        return sorted(found, key=lambda file: file.modified or 0.0)

    def at(self, path: str) -> list[LogFile]:
        """Return the files with a path, of all readers."""
        return [file for (_, name), file in self.files.items() if name == path]

    def age(self, file: LogFile) -> float | None:
        """Return how long (s) a file has not grown: by what was seen, else by its modification time."""
        now = self._now.get(file.reader)
        if now is None or file.modified is None:
            return None
        if file.grown is not None:
            return max(0.0, now - file.grown)
        return self._clocks[file.reader].age(file.modified, now)

    def quiet(self, node: str | None = None) -> float | None:
        """Return how long (s) no output of a node, or of the whole job, has grown; None if there is none."""
        files = self.files.values() if node is None else self._by_node.get(node, [])
        ages = [age for one in files if one.stream != "gpu" and one.size and (age := self.age(one)) is not None]
        return min(ages, default=None)

    def lines(self, stream: Stream) -> tuple[int, bool]:
        """Return the number of lines of a kind, and False if parts were left out so that it is a lower bound."""
        files = [file for file in self.files.values() if file.stream == stream]
        return sum(file.lines for file in files), not any(file.skipped for file in files)
