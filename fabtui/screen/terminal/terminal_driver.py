"""Textual driver for terminals that reads keys where they are handled, and sleeps until there are some."""

from __future__ import annotations

import asyncio
import os
from codecs import getincrementaldecoder
from collections.abc import Iterable
from io import TextIOBase
from queue import Queue
from typing import IO

from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message


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


#: Maximum number of bytes that are read at once.
_CHUNK = 4096


class TerminalDriver(LinuxDriver):
    """Driver whose event loop reads the keys.

    The thread in which Textual reads them wakes ten times a second to see whether it is to end: half of what an idle
    app costs. It also wakes the event loop for each key.
    """

    #: Whether the event loop reads the terminal; not every system lets it.
    _in_loop = False
    #: Wait for what follows an escape character.
    _wait: asyncio.TimerHandle | None = None

    def start_application_mode(self) -> None:
        """Take the terminal: read its keys, and write to it without waiting."""
        self._parser = XTermParser(self._debug)
        # What is not UTF-8 may be pasted, and is no reason to end.
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        try:
            self._loop.add_reader(self.fileno, self._read)
            self._in_loop = True
        except (NotImplementedError, OSError):
            self._in_loop = False
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if (first := self._writer_thread) is not None and first.is_alive():
            first.stop()
            self._writer_thread = TerminalWriter(first._file)
            self._writer_thread.start()

    def run_input_thread(self) -> None:
        """Wait for the end of the input, or read it where the event loop cannot."""
        if self._in_loop:
            self.exit_event.wait()
        else:
            super().run_input_thread()

    def disable_input(self) -> None:
        """Leave the keys to other programs."""
        if self._in_loop:
            self._loop.remove_reader(self.fileno)
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        super().disable_input()

    def send_message(self, message: Message) -> None:
        """Hand a message to the app."""
        if self._in_loop:
            self._app.post_message(message)
        else:
            super().send_message(message)

    def _read(self) -> None:
        try:
            data = os.read(self.fileno, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            # The terminal is gone, which its watch reports; its end would be read again and again.
            self._loop.remove_reader(self.fileno)
        elif text := self._decode(data):
            self._take(self._parser.feed(text))

    def _take(self, messages: Iterable[Message]) -> None:
        """Process what was typed; an escape character alone is a key once nothing has followed it for some time."""
        for message in messages:
            self.process_message(message)
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        if (until := self._parser._timeout_time) is not None:
            self._wait = self._loop.call_later(max(0.0, until - get_time()), lambda: self._take(self._parser.tick()))
