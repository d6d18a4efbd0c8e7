import gc
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
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from types import MappingProxyType

import pytest

from fabtui.screen.context import ScreenSettings
from fabtui.screen.launch import NoScreen, check_terminal, prepare
from fabtui.screen.terminal.internals import NullWriter, discard_output
from tests.screen import show

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
    """The app on a pseudo-terminal: a fork of this process, which has imported what it needs, or below a shell."""

    def __init__(
        self,
        *arguments: str,
        shell: str = "",
        files: Mapping[int, Path] = MappingProxyType({}),
        size: tuple[int, int] = (80, 24),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                self.resize(size, 0)
                os.chdir(ROOT)
                for number, path in files.items():
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                environment = {**ENVIRONMENT, "TERM": "xterm-256color", **environment}
                if shell:
                    command = [sys.executable, "-m", "tests.screen.show", *arguments]
                    os.execve("/bin/sh", ["sh", "-mc", f'"$@" {shell}', "sh", *command], environment)
                os._exit(_show(arguments, environment))
            except BaseException:
                traceback.print_exc(file=open(2, "w", closefd=False))  # noqa: SIM115
            finally:
                os._exit(127)
        self.seen = b""

    def resize(self, size: tuple[int, int], fd: int | None = None) -> None:
        ioctl(self.fd if fd is None else fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

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


def _show(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Make this fork what a started process is, and return the exit code of the app."""
    gc.freeze()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code = show.main()
    sys.stdout.flush()
    return code


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


def test_it_starts_moves_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """Standard error in a file does not hide the screen, and nothing is written there."""
    log = tmp_path / "log"
    terminal = Terminal("two", files={2: log})
    terminal.until("12.4▾")
    before = termios.tcgetattr(terminal.fd)
    terminal.press("\x1b[B\x1b[C")
    terminal.until("n000:1 > n000:2")
    terminal.press("q")
    assert terminal.end() == 1
    assert b"\x1b[?1049l" in terminal.seen
    assert b"\x1b[?25h" in terminal.seen
    assert not before[3] & termios.ICANON
    assert log.read_text() == ""


def test_standard_output_in_a_file_keeps_the_size_and_ctrl_c_quits(tmp_path: Path) -> None:
    terminal = Terminal("two", files={1: tmp_path / "out"}, size=(132, 30))
    terminal.until("12.4▾")
    terminal.until("n000:0 > n000:1")
    terminal.press("\x03")
    assert terminal.end() == 1


def test_ctrl_z_suspends_it_and_fg_draws_the_screen_again() -> None:
    terminal = Terminal("two", shell="; echo SUSPENDED; fg")
    terminal.until("12.4▾")
    terminal.press("\x1a")
    terminal.until("SUSPENDED")
    terminal.seen = b""
    terminal.until("12.4▾")
    terminal.press("q")
    assert terminal.end() == 1


def test_an_idle_screen_writes_nothing_and_sigterm_ends_it_in_an_orderly_way() -> None:
    terminal = Terminal("two")
    terminal.until("12.4▾")
    while terminal.read(1.5):
        pass
    assert terminal.read(3.0) == b""
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 1
    assert b"\x1b[?1049l" in terminal.seen


def test_a_dumb_terminal_gets_a_line_and_no_escape_sequences() -> None:
    terminal = Terminal("two", environment={"TERM": "dumb"})
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


#: Escape sequences: a colour of the terminal's 16 as a background, and any of them.
_BLUE = r"\x1b\[(?:[0-9;]*;)?44[;m]"
_ANY_OF_16 = r"\x1b\[(?:[0-9;]*;)?(?:[349]|10)[0-7](?:;[0-9;]*)?m"


@pytest.mark.parametrize(
    ("environment", "arguments", "has", "lacks"),
    [
        ({"COLORTERM": "truecolor"}, "", r"[34]8;2;", None),
        ({}, "", r"[34]8;5;", r"[34]8;2;"),
        ({}, "--colors 16", _BLUE, r"[34]8;[25];"),
        ({}, "--colors 256", r"[34]8;5;", r"[34]8;2;"),
        ({"NO_COLOR": "1"}, "", r"\x1b\[(?:0;)?1;7m", rf"[34]8;[25];|{_ANY_OF_16}"),
        ({}, "--colors none --ascii", r"\x1b\[(?:0;)?1;7m", r"[34]8;[25];|[^\x00-\x7f]"),
    ],
)
def test_a_terminal_gets_the_colours_it_has(
    environment: dict[str, str], arguments: str, has: str, lacks: str | None
) -> None:
    """Output as a terminal gets it. Headless tests of Textual skip its escape sequences."""
    terminal = Terminal("two", *arguments.split(), environment=environment)
    terminal.until("12.4!" if "--ascii" in arguments else "12.4▾")
    terminal.press("q")
    assert terminal.end() == 1
    shown = terminal.seen.decode()
    assert re.search(has, shown)
    assert lacks is None or not re.search(lacks, shown)


def test_tmux_shows_the_colours_it_has(tmux: list[str]) -> None:
    """Output read back from a terminal."""
    keep = " ".join(f"-u {name}" for name in ("COLORTERM", "NO_COLOR", "COLUMNS", "LINES"))
    command = f"env {keep} PYTHONPATH={ROOT} TERM=screen {sys.executable} -m tests.screen.show two"
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), command], check=True)
    end = time.monotonic() + 30
    shown = ""
    while "12.4▾" not in shown and time.monotonic() < end:
        time.sleep(0.2)
        shown = subprocess.run([*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=False).stdout
    assert "12.4▾" in shown
    assert "x" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert re.search(r"\x1b\[44m", shown)
    assert not re.search(r"[34]8;[25];", shown)


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
