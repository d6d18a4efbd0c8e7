from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from fabtui.screen.context import ScreenSettings
from fabtui.screen.launch import NoScreen, check_terminal, prepare

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {
    **{
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLORTERM", "TERM", "COLUMNS", "LINES")
    },
    "TZ": "UTC",
    "PYTHONPATH": str(ROOT),
}


class Terminal:
    """The app on a pseudo-terminal."""

    def __init__(
        self, *arguments: str, shell: str = "", jobs: bool = False, size: tuple[int, int] = (80, 24), **environment: str
    ) -> None:
        command = [sys.executable, "-m", "tests.screen.show", *arguments]
        if shell:
            command = ["sh", "-mc" if jobs else "-c", f'"$@" {shell}', "sh", *command]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
                os.chdir(ROOT)
                os.execve(
                    shutil.which(command[0]) or command[0],
                    command,
                    {**ENVIRONMENT, "TERM": "xterm-256color", **environment},
                )
            finally:
                os._exit(127)
        self.seen = b""

    def read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            found = os.read(self.fd, 1 << 16) if ready else b""
        except OSError:
            found = b""
        self.seen += found
        return found

    def until(self, what: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while what.encode() not in self.seen:
            assert time.monotonic() < end, f"{what!r} was not seen in {self.seen[-2000:]!r}"
            self.read(0.2)

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def end(self, seconds: float = 20.0) -> int:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                while self.read(0.1):
                    pass
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"it did not end: {self.seen[-2000:]!r}")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_show_a_screen_is_reported(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    with pytest.raises(NoScreen, match=r"TERM is .* cannot show a screen"):
        check_terminal()


def test_no_keys_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from fabtui.screen.launch import check_terminal; check_terminal()"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "TERM": "xterm"},
        check=False,
    )
    assert "standard input is not a terminal" in done.stderr


def test_settings_can_be_had_without_textual() -> None:
    code = (
        "import sys, fabtui.screen.launch, fabtui.screen.context;"
        "print([name for name in sys.modules if name.split('.')[0] in ('textual', 'rich', 'asyncssh', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("colors", "system"), [("24", "truecolor"), ("256", "256"), ("16", "standard")])
def test_textual_gets_the_number_of_colours(monkeypatch: pytest.MonkeyPatch, colors: str, system: str) -> None:
    for name in ("TEXTUAL_COLOR_SYSTEM", "TEXTUAL_ANIMATIONS", "TEXTUAL_SMOOTH_SCROLL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    prepare(ScreenSettings(colors=colors))
    assert os.environ["TEXTUAL_COLOR_SYSTEM"] == system
    assert os.environ["TEXTUAL_ANIMATIONS"] == "none"
    assert "NO_COLOR" not in os.environ
    prepare(ScreenSettings(colors="none"))
    assert os.environ["NO_COLOR"] == "1"


def test_it_starts_moves_and_leaves_the_terminal_as_it_was() -> None:
    terminal = Terminal("two")
    terminal.until("12.4▾")
    before = termios.tcgetattr(terminal.fd)
    terminal.press("\x1b[B\x1b[C")
    terminal.until("n000:1 > n000:2")
    terminal.press("q")
    assert terminal.end() == 1
    assert b"\x1b[?1049l" in terminal.seen
    assert b"\x1b[?25h" in terminal.seen
    assert not before[3] & termios.ICANON


def test_ctrl_c_quits() -> None:
    terminal = Terminal("two")
    terminal.until("12.4▾")
    terminal.press("\x03")
    assert terminal.end() == 1


def test_ctrl_z_suspends_it_and_fg_draws_the_screen_again() -> None:
    terminal = Terminal("two", shell="; echo SUSPENDED; fg", jobs=True)
    terminal.until("12.4▾")
    terminal.press("\x1a")
    terminal.until("SUSPENDED")
    terminal.seen = b""
    terminal.until("12.4▾")
    terminal.press("q")
    assert terminal.end() == 1


def test_sigterm_ends_it_in_an_orderly_way() -> None:
    terminal = Terminal("two")
    terminal.until("12.4▾")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 1
    assert b"\x1b[?1049l" in terminal.seen


def test_an_idle_screen_writes_nothing() -> None:
    terminal = Terminal("two")
    terminal.until("12.4▾")
    while terminal.read(1.5):
        pass
    assert terminal.read(3.0) == b""
    terminal.press("q")
    terminal.end()


def test_standard_error_in_a_file_does_not_hide_the_screen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    terminal = Terminal("two", shell=f"2>{log}")
    terminal.until("12.4▾")
    terminal.press("q")
    terminal.end()
    assert log.read_text() == ""


def test_standard_output_in_a_file_keeps_the_size(tmp_path: Path) -> None:
    terminal = Terminal("two", shell=f">{tmp_path / 'out'}", size=(132, 30))
    terminal.until("12.4▾")
    terminal.until("n000:0 > n000:1")
    terminal.press("q")
    terminal.end()


def test_a_dumb_terminal_gets_a_line_and_no_escape_sequences() -> None:
    terminal = Terminal("two", TERM="dumb")
    terminal.end()
    assert b"TERM is dumb, which cannot show a screen" in terminal.seen
    assert b"\x1b[" not in terminal.seen


@pytest.fixture
def tmux() -> Iterator[list[str]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-L", f"fabtui-test-{uuid.uuid4().hex[:12]}", "-f", "/dev/null"]
    yield command
    subprocess.run([*command, "kill-server"], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("environment", "arguments", "has", "lacks"),
    [
        ("TERM=xterm-256color COLORTERM=truecolor", "", r"[34]8;2;", None),
        ("TERM=xterm-256color", "", r"[34]8;5;", r"[34]8;2;"),
        ("TERM=screen", "", r"\x1b\[44m", r"[34]8;[25];"),
        ("TERM=xterm-256color", "--colors 16", r"\x1b\[44m", r"[34]8;[25];"),
        ("TERM=xterm-256color", "--colors 256", r"[34]8;5;", r"[34]8;2;"),
        ("TERM=xterm-256color NO_COLOR=1", "", r"\x1b\[1;7m", r"[34]8;[25];|\x1b\[(?:[0-9;]*;)?(?:[349]|10)[0-7]m"),
        ("TERM=xterm-256color", "--colors none --ascii", r"\x1b\[1;7m", r"[34]8;[25];|[^\x00-\x7f]"),
    ],
)
def test_a_terminal_gets_the_colours_it_has(
    tmux: list[str], environment: str, arguments: str, has: str, lacks: str | None
) -> None:
    """Output read back from a terminal. Headless tests of Textual skip its escape sequences."""
    keep = " ".join(f"-u {name}" for name in ("COLORTERM", "NO_COLOR", "COLUMNS", "LINES"))
    command = f"env {keep} PYTHONPATH={ROOT} {environment} {sys.executable} -m tests.screen.show two {arguments}"
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), command], check=True)
    end = time.monotonic() + 30
    shown = ""
    slow = "12.4!" if "--ascii" in arguments else "12.4▾"
    while slow not in shown and time.monotonic() < end:
        time.sleep(0.2)
        shown = subprocess.run([*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=False).stdout
    assert slow in shown
    assert "x" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert re.search(has, shown)
    assert lacks is None or not re.search(lacks, shown)
