"""The driver on a pseudo-terminal: keys are read in the event loop, and output does not wait for a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import signal
import sys
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.message import Message

from fabtui.screen.terminal.terminal_driver import TerminalDriver, TerminalWriter


@pytest.fixture
def ends() -> Iterator[tuple[int, Any]]:
    """Return the outer end of a terminal and a file on the inner one."""
    outer, inner = pty.openpty()
    tty.setraw(inner)
    with os.fdopen(inner, "w", encoding="utf-8") as file:
        yield outer, file
    with contextlib.suppress(OSError):
        os.close(outer)


def shown(outer: int, most: int, seconds: float = 20.0) -> bytes:
    found = b""
    while len(found) < most and select.select([outer], [], [], seconds)[0]:
        found += os.read(outer, 1 << 16)
    return found


def test_what_the_terminal_takes_is_written_at_once_and_the_rest_in_order(ends: tuple[int, Any]) -> None:
    outer, file = ends
    writer = TerminalWriter(file)
    # Its thread does not run yet: it is not needed.
    writer.write("é1")
    assert shown(outer, 3) == "é1".encode()
    text = "".join(f"{number}é " for number in range(20_000))
    writer.start()
    for at in range(0, len(text), 40_000):
        writer.write(text[at : at + 40_000])
    writer.write("end")
    assert shown(outer, len(text.encode()) + 3) == text.encode() + b"end"
    writer.stop()
    assert not writer.is_alive()


def test_a_terminal_that_is_gone_raises_nothing(ends: tuple[int, Any]) -> None:
    outer, file = ends
    writer = TerminalWriter(file)
    writer.start()
    os.close(outer)
    for _ in range(50):
        writer.write("x" * 1000)
    writer.stop()


class App:
    """The part of the app that the driver knows."""

    def __init__(self) -> None:
        self.taken: list[Message] = []

    def post_message(self, message: Message) -> bool:
        self.taken.append(message)
        return True

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


def switches(thread: threading.Thread) -> str:
    """Return how often a thread went to sleep."""
    return Path(f"/proc/self/task/{thread.native_id}/status").read_text().partition("voluntary_ctxt_switches")[2]


async def sleeps(thread: threading.Thread) -> bool:
    """Return whether a thread does not wake for a while. On a busy machine it is late to fall asleep."""
    for _ in range(40):
        before = switches(thread)
        await asyncio.sleep(0.25)
        if switches(thread) == before:
            return True
    return False


async def test_keys_are_read_without_a_thread_that_wakes_for_them(driven: int) -> None:
    app: Any = App()
    driver = TerminalDriver(app)
    driver.start_application_mode()
    os.write(driven, b"j\xff" + "é".encode()[:1])
    await until(lambda: len(app.keys) >= 2)
    os.write(driven, "é".encode()[1:] + b"\x1b[A\x1b")
    await until(lambda: app.keys[-1:] == ["escape"])
    assert [app.keys[0], *app.keys[-3:]] == ["j", "é", "up", "escape"]
    reader = next(one for one in threading.enumerate() if one.name == "textual-input")
    assert await sleeps(reader), "it wakes an idle machine"
    driver.stop_application_mode()
    driver.close()
    assert not reader.is_alive()
    os.write(driven, b"k")
    await asyncio.sleep(0.02)
    assert app.keys[-1] == "escape", "the next program has the keys"
    assert b"\x1b[?1049l" in shown(driven, 1 << 16, 0.05)


async def test_where_the_loop_cannot_watch_a_terminal_a_thread_reads_it(
    driven: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refused)
    app: Any = App()
    driver = TerminalDriver(app)
    driver.start_application_mode()
    os.write(driven, b"j")
    await until(lambda: app.keys == ["j"])
    driver.stop_application_mode()
    driver.close()


async def test_the_end_of_a_terminal_is_read_once(driven: int) -> None:
    app: Any = App()
    driver = TerminalDriver(app)
    driver.start_application_mode()
    shown(driven, 1 << 16, 0.05)
    os.close(driven)
    watched: Any = asyncio.get_running_loop()
    await until(lambda: driver.fileno not in {key.fd for key in watched._selector.get_map().values()})
    driver.stop_application_mode()
    driver.close()
