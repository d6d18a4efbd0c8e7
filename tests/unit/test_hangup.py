"""A terminal that is lost without a signal is noticed."""

import asyncio
import os
import pty
import threading
from types import SimpleNamespace

import pytest

from fabtui.cli.commands.run import caught_signals
from fabtui.hangup import watch_terminal
from fabtui.screen.terminal.internals import NullWriter, watch_hangup


@pytest.fixture
def terminal() -> tuple[int, int]:
    ours, theirs = pty.openpty()
    return theirs, ours


def test_a_terminal_that_is_lost(terminal: tuple[int, int]) -> None:
    there, master = terminal
    gone = threading.Event()
    watch_terminal(there, gone.set)
    os.write(master, b"keys are no hang-up\n")
    assert not gone.wait(0.05)
    os.close(master)
    assert gone.wait(10)
    os.close(there)


def test_an_ended_watch_and_a_pipe_report_nothing(terminal: tuple[int, int]) -> None:
    there, master = terminal
    gone = threading.Event()
    watch_terminal(there, gone.set)()
    os.close(master)
    ours, theirs = os.pipe()
    watch_terminal(ours, gone.set)
    os.close(theirs)
    assert not gone.wait(0.05)
    os.close(ours)
    os.close(there)


async def test_the_app_hangs_up_and_neither_writes_nor_reads_any_more(terminal: tuple[int, int]) -> None:
    there, master = terminal
    driver = SimpleNamespace(fileno=there, exit_event=threading.Event(), _writer_thread=object())
    gone = asyncio.Event()
    watch_hangup(driver, asyncio.get_running_loop(), gone.set)
    os.close(master)
    async with asyncio.timeout(10):
        await gone.wait()
    assert isinstance(driver._writer_thread, NullWriter)
    assert driver.exit_event.is_set()
    os.close(there)


async def test_a_session_without_the_screen_ends_as_after_a_signal(terminal: tuple[int, int]) -> None:
    there, master = terminal
    kept = os.dup(2)
    os.dup2(there, 2)
    try:
        with caught_signals() as ended:
            os.close(master)
            async with asyncio.timeout(10):
                assert (await ended).name == "SIGHUP"
            # It would fail at the terminal.
            os.write(2, b"fabtui: interrupted by SIGHUP\n")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(there)
