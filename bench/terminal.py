"""A program on a pseudo-terminal, watched from the other end of it."""

import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

WIDTH, HEIGHT = 120, 40


class Terminal:
    """A process on a pseudo-terminal, and all it writes.

    Args:
        arguments: The program to run with Python and its arguments.
        size: Characters across and lines.
        rate: Bytes per second that the other end takes, as over a slow link; 0: all at once.
    """

    def __init__(self, arguments: list[str], size: tuple[int, int] = (WIDTH, HEIGHT), rate: float = 0.0) -> None:
        self._rate = rate
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(sys.executable, [sys.executable, *arguments])

    @property
    def cpu(self) -> float:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def read(self, timeout: float) -> bytes:
        """Return what is written within ``timeout`` seconds, at once when something comes; b"" for nothing."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return b""
        try:
            if not self._rate:
                return os.read(self.fd, 1 << 20)
            taken = os.read(self.fd, 512)
            time.sleep(len(taken) / self._rate)
            return taken
        except OSError:
            return b""

    def until(self, what: bytes, timeout: float) -> float:
        """Return the seconds since the start at which some bytes were seen."""
        seen = b""
        end = time.perf_counter() + timeout
        while time.perf_counter() < end:
            seen += self.read(0.2)
            if what in seen:
                return time.perf_counter() - self.began
        raise TimeoutError(f"{what!r} was not seen; the last was {seen[-300:]!r}")

    def quiet(self, seconds: float) -> int:
        """Return how many bytes come in some seconds."""
        end = time.perf_counter() + seconds
        count = 0
        while (left := end - time.perf_counter()) > 0:
            count += len(self.read(left))
        return count

    def settle(self, seconds: float = 0.4) -> None:
        """Wait until nothing was written for some time."""
        while self.read(seconds):
            pass

    def end(self) -> None:
        """Wait for the process, ending it if it does not end."""
        deadline = time.perf_counter() + 5
        while time.perf_counter() < deadline:
            self.read(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self.fd)
                return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
