"""Start-up time of fabtui: CPU and wall time, against their bars and against a bare interpreter.

    python bench/startup.py [ROUNDS]

The first frame is the first one that Textual draws in a pseudo-terminal of 120x40: its time ends at the line of keys,
when the app takes them. The first connection is the first one that a listening socket gets from ``fabtui run``. The
rows take turns, and each figure is the best of several rounds, because other work on the machine only adds to it;
times are in milliseconds. Modules are compiled, as after an installation by pip. The bar of first frames is against an
app of Textual that shows one word, by their CPU.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bars import MISSED, held
from terminal import Terminal

#: Bars as multiples of ``python3 -c pass`` in the same run, so that they hold on fast and slow machines.
BAR_VERSION, BAR_HELP = 6.0, 10.0
BAR_CONNECTION = 25.0
#: As a multiple of Textual alone.
BAR_FRAME = 1.8
_DEADLINE = 30.0
RECORDING = Path(__file__).parents[1] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
TEXTUAL = "frame of Textual alone"
#: The least that an app of Textual does until its first frame.
_TEXTUAL = """
import gc
gc.disable()
from textual.app import App
from textual.widgets import Static
class Alone(App):
    def compose(self):
        yield Static("starting")
Alone().run()
"""


class Times(NamedTuple):
    cpu: float
    wall: float


def of_command(argv: list[str]) -> Times:
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"{' '.join(argv)} failed")
    return Times((usage.ru_utime + usage.ru_stime) * 1000, wall * 1000)


def of_first_frame(arguments: list[str], text: bytes = b"starting") -> Times:
    """Run an app until its first frame, then end it."""
    terminal = Terminal(arguments)
    try:
        wall = terminal.until(text, _DEADLINE)
        return Times(terminal.cpu * 1000, wall * 1000)
    finally:
        os.kill(terminal.pid, signal.SIGTERM)
        terminal.end()


def of_first_connection(fabtui: str, folder: str) -> Times:
    """Run a session on a node of this machine until it connects there, then end it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = os.path.join(folder, "ssh_config")
        with open(config, "w", encoding="ascii") as file:
            file.write(f"Host n1\n  HostName 127.0.0.1\n  Port {server.getsockname()[1]}\n")
        argv = [fabtui, "run", "--nodes", "n1", "--ssh-config", config, "--no-record"]
        began = time.perf_counter()
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                if not select.select([server], [], [], _DEADLINE)[0]:
                    raise SystemExit(f"no connection within {_DEADLINE:.0f} s")
                # The times in /proc/PID/stat have a resolution of 10 ms.
                threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
                cpu = sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6
                return Times(cpu, (time.perf_counter() - began) * 1000)
            finally:
                process.kill()


class Row(NamedTuple):
    name: str
    measure: Callable[[], Times]
    #: What is held against the same of a bare interpreter: commands by their CPU, the others by what a user waits.
    held: str = "cpu"
    bar: float | None = None
    #: Whether the bar is for the CPU against that of Textual alone.
    is_frame: bool = False


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    python = sys.executable
    fabtui = os.path.join(os.path.dirname(python), "fabtui")
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        # Programs that are started keep what they compile, where the environment forbids it.
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(state, "compiled")
        app = [fabtui, "--lab", "1x2", "--no-record"]
        replay = [fabtui, "replay", str(RECORDING)]
        rows = [
            Row("python3 -c pass", lambda: of_command([python, "-c", "pass"])),
            *(
                Row(f"fabtui {option}", partial(of_command, [fabtui, option]), "cpu", bar)
                for option, bar in (("--version", BAR_VERSION), ("--help", BAR_HELP))
            ),
            Row(TEXTUAL, lambda: of_first_frame(["-c", _TEXTUAL]), "wall"),
            Row("first frame", lambda: of_first_frame(app, b"quit"), "wall", BAR_FRAME, is_frame=True),
            Row("first frame of start", lambda: of_first_frame([fabtui], b"quit"), "wall", BAR_FRAME, is_frame=True),
            Row("first frame of replay", lambda: of_first_frame(replay, b"quit"), "wall", BAR_FRAME, is_frame=True),
            Row("first connection", lambda: of_first_connection(fabtui, state), "wall", BAR_CONNECTION),
        ]
        # The first turn compiles what was not compiled yet.
        turns = [[row.measure() for row in rows] for _ in range(rounds + 1)][1:]
    best = [Times(*map(min, zip(*times, strict=True))) for times in zip(*turns, strict=True)]
    alone = next(times for row, times in zip(rows, best, strict=True) if row.name == TEXTUAL)
    print(f"{'':22} {'CPU ms':>8} {'wall ms':>8} {'x python':>9} {'x Textual':>10} {'bar':>7}")
    missed = 0
    for row, times in zip(rows, best, strict=True):
        ratio = getattr(times, row.held) / getattr(best[0], row.held)
        beside = times.cpu / alone.cpu
        verdict = "" if row.bar is None else held(beside if row.is_frame else ratio, row.bar)
        missed += verdict == MISSED
        shown = "" if row.bar is None else f"{row.bar:g}"
        frame = f"{beside:.2f}" if row.is_frame else ""
        print(f"{row.name:22} {times.cpu:8.1f} {times.wall:8.1f} {ratio:9.2f} {frame:>10} {shown:>7} {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
