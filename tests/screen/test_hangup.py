"""A terminal that goes away takes the app with it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

from fabtui.screen.terminal.internals import NullWriter, discard_output

RECORDING = Path(__file__).parents[2] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4.jsonl.gz"


def test_the_app_ends_when_its_terminal_is_gone() -> None:
    master, slave = pty.openpty()
    # A session leader whose controlling terminal is ours gets the hangup, as a shell's job does.
    argv = [sys.executable, "-c", "import fcntl, sys, termios, runpy\n"]
    argv[2] += "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    argv[2] += f"sys.argv = ['fabtui', 'replay', '--speed', '1', {str(RECORDING)!r}]\n"
    argv[2] += "runpy.run_module('fabtui', run_name='__main__')\n"
    environ = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environ)
    os.close(slave)
    try:
        seen = b""
        until = time.monotonic() + 30
        while b"health" not in seen and time.monotonic() < until:
            seen += os.read(master, 65536)
        assert b"health" in seen
        os.close(master)
        assert process.wait(timeout=25) is not None
    finally:
        process.kill()
        process.wait()


def test_a_driver_that_writes_nowhere_never_blocks() -> None:
    class Driver:
        _writer_thread: object = object()

    driver = Driver()
    discard_output(driver)
    assert isinstance(driver._writer_thread, NullWriter)
    for _ in range(1000):
        driver._writer_thread.write("x" * 1000)
    driver._writer_thread.flush()
    driver._writer_thread.stop()
    assert not driver._writer_thread.isatty()
    discard_output(object())
