"""The driver on a pseudo-terminal: what is pasted may be anything, and the terminal may go."""

import asyncio
import contextlib
import errno
import os
import pty
import signal
import sys
import threading
import tty
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual import events
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from fabtui.screen.terminal.internals import TerminalDriver, discard_output


@pytest.fixture
def ends() -> Iterator[tuple[int, Any]]:
    outer, inner = pty.openpty()
    tty.setraw(inner)
    with os.fdopen(inner, "w", encoding="utf-8") as file:
        yield outer, file
    with contextlib.suppress(OSError):
        os.close(outer)


class App:
    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.panics: list[object] = []

    def post_message(self, message: Message) -> bool:
        self.taken.append(message)
        return True

    def call_later(self, *what: object) -> None:
        self.panics.append(what)

    def panic(self) -> None: ...

    async def _post_message(self, message: Message) -> bool:
        return self.post_message(message)

    @property
    def keys(self) -> list[str]:
        return [one.key for one in self.taken if isinstance(one, events.Key)]


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def driven(ends: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    outer, file = ends
    for name in ("__stdin__", "__stderr__"):
        monkeypatch.setattr(sys, name, file)
    kept = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)}
    yield outer
    for number, handler in kept.items():
        signal.signal(number, handler)


async def test_what_is_pasted_need_not_be_utf_8(driven: int) -> None:
    app: Any = App()
    driver = TerminalDriver(app)
    driver.start_application_mode()  # type: ignore[no-untyped-call]
    os.write(driven, b"j\x1b[200~a\xff" + "é".encode()[:1])
    os.write(driven, "é".encode()[1:] + b"\x1b[201~k")
    await until(lambda: app.keys[-1:] == ["k"])
    assert app.keys == ["j", "k"]
    assert [one.text for one in app.taken if isinstance(one, events.Paste)] == ["a\ufffdé"]
    driver.stop_application_mode()
    driver.close()


async def test_the_end_of_a_terminal_is_no_error(driven: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: LinuxDriver) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(LinuxDriver, "run_input_thread", gone)
    app: Any = App()
    TerminalDriver(app)._run_input_thread()
    assert not app.panics


async def test_a_write_that_waits_for_a_terminal_that_is_gone_returns(driven: int) -> None:
    driver: Any = TerminalDriver(App())  # type: ignore[arg-type]
    # The thread does not run, as after an error.
    writer = driver._writer_thread = WriterThread(driver._file)
    while not writer._queue.full():
        driver.write("x")
    waiting = threading.Thread(target=driver.write, args=("y",), daemon=True)
    waiting.start()
    discard_output(driver)
    waiting.join(20)
    assert not waiting.is_alive()
