"""Output to the terminal that does not wait for another thread."""

from __future__ import annotations

import os
from io import TextIOBase
from queue import Queue
from typing import IO

from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread


class TerminalWriter(WriterThread):
    """Writes what the terminal takes at once in the thread that draws, and the rest in a thread of its own.

    A thread that only writes gets the interpreter when a frame and all that follows it are done, 0.5 ms later.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._encoding = file.encoding if isinstance(file, TextIOBase) else "utf-8"
        #: Bytes for the thread; texts would be split where the terminal took a part.
        self._left: Queue[bytes | None] = Queue(MAX_QUEUED_WRITES)
        self._descriptor = _opened_again(file.fileno())

    def write(self, text: str) -> None:
        """Write a text, or what the terminal does not take now as soon as it does."""
        data = text.encode(self._encoding, "replace")
        if self._descriptor is not None and not self._left.unfinished_tasks:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                pass
            except OSError:
                # The terminal is gone, which its watch reports.
                return
        if data:
            self._left.put(data)

    def run(self) -> None:
        """Write what the terminal did not take at once."""
        descriptor = self._file.fileno()
        while (data := self._left.get()) is not None:
            try:
                while data:
                    data = data[os.write(descriptor, data) :]
            except OSError:
                # As above; the thread takes what comes, so that nobody waits for it.
                pass
            self._left.task_done()

    def stop(self) -> None:
        """Wait until everything is written, and end the thread."""
        descriptor, self._descriptor = self._descriptor, None
        self._left.put(None)
        self.join()
        if descriptor is not None:
            os.close(descriptor)


def _opened_again(descriptor: int) -> int | None:
    """Open a terminal once more, without blocking; None if it cannot be.

    A flag of the descriptor itself would hold for the shell as well, which shares it.
    """
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
