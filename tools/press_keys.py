"""Presses every key in every view, in a real terminal: ``python tools/press_keys.py [--only WORD] [RECORDING]``.

tmux runs the app at three sizes, each with 24-bit colour, 16 colours, NO_COLOR and ASCII: one app for each of these
combinations. In each view, the keys that its classes declare are sent, and the screens before and after each key are
compared. Reported are an app that has ended, keys that change nothing, escape codes of more colours than chosen, and
characters beyond ASCII. Keys that only move a cursor may change nothing at an edge, unless the key bar names them.
"""

import argparse
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

from textual.keys import _character_to_key

from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import key_owners
from fabtui.screen.keys import KEY_NAMES, bindings_of

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
SIZES = ((80, 24), (120, 40), (200, 50))
MODES = {
    "24-bit": ("COLORTERM=truecolor", ""),
    "16 colours": ("", "--colors 16"),
    "NO_COLOR": ("NO_COLOR=1 COLORTERM=truecolor", ""),
    "ASCII": ("COLORTERM=truecolor", "--ascii"),
}
#: How to come to each view from the grid, a pattern that shows that one is there, and the classes whose keys it has.
#: The grid comes last, as its keys lead to other times of the recording.
VIEWS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "pair": (("]", "Enter"), r"/ n00\d:\d > n00", ("PairScreen", "DetailScreen", "SteppedScreen", "FabricApp")),
    "node": (("n",), "/ n00", ("NodeScreen", "DetailScreen", "SteppedScreen", "FabricApp")),
    "findings": (("F",), r"/ \d findings", ("FindingsScreen", "DetailScreen", "FabricApp")),
    "nodes": (("t",), "/ nodes", ("NodesScreen", "NodesTable", "SteppedScreen", "FabricApp")),
    "history": (("H",), "/ history", ("HistoryScreen", "DetailScreen", "TitledScreen", "FabricApp")),
    "topology": (("T",), "/ topology", ("TopologyScreen", "TopologyTree", "FabricApp")),
    "settings": (("F2",), "/ settings", ("SettingsScreen", "SettingsTable", "FabricApp")),
    "help": (("?",), "/ help", ("HelpScreen", "DetailScreen", "FabricApp")),
    "command line": ((":",), "(?m)^:", ("CommandLine",)),
    "palette": (("C-p",), "Change the theme", ()),
    "log": (("L",), "event log", ("EventLog",)),
    "list": (("v",), r"(?m)^.{0,14}\bpair\b.* value\b.* class\b|no bad pair", ("MainScreen", "WorstPairs")),
    "grid": ((), r"(?m)^n00\d ", ("MainScreen", "GridView", "FabricApp")),
}
#: What the end of the recording shows.
READY = "GPU pairs? (is|are) bad"
NAMED = {"up": "Up", "down": "Down", "left": "Left", "right": "Right", "enter": "Enter", "tab": "Tab", "home": "Home"}
NAMED |= {"end": "End", "pageup": "PPage", "pagedown": "NPage", "escape": "Escape", "space": "Space"}
NAMED |= {"shift+tab": "BTab", "backspace": "BSpace", "f1": "F1", "f2": "F2"}
CHARACTERS = {_character_to_key(chr(code)): chr(code) for code in range(33, 127)}
#: Keys that leave the app or hand the terminal to another program; tests of the command line press them.
LEFT_OUT = {"q", "ctrl+c", "ctrl+z", "exclamation_mark"}
#: Keys of the grid, and one of nothing: where a view does not have them, an answer states it.
DEAD = ("z", "w", "b", "m", "r", "]")
#: Views whose input line takes all keys.
TYPED = ("command line", "palette")
#: Parts of the ids of keys that move within a view: at an edge they have nothing to do.
MOVES = re.compile(
    r"^(grid|worst|nodes|topology|tree|detail|log|command)\.|\.(up|down|first|last|page-\w+|next|previous|layer-\w+|go-\d|steps?\b.*)$"
)
#: Starts the app with numbered notifications that stay: the same answer to the next key changes the screen, too.
_APP = """
import itertools, sys
from fabtui.__main__ import main
from fabtui.screen import launch
prepare, numbers = launch.prepare, itertools.count()
def prepare_and_number(settings):
    prepare(settings)
    from fabtui.screen.app import FabricApp
    notify = FabricApp.notify
    def numbered(app, message, **options):
        notify(app, f"{next(numbers)} {message}", **{**options, "timeout": 3600})
    FabricApp.notify = numbered
launch.prepare = prepare_and_number
sys.exit(main())
"""
#: Silence (s) after which a screen counts as complete.
_QUIET = 0.08
#: Text that runs by itself.
CLOCK = re.compile(r"\d+:\d\d")


class Sent(NamedTuple):
    """A key as tmux names it, as the key bar shows it, and the id of its binding."""

    key: str
    shown: str
    id: str


def keys_of(classes: tuple[str, ...], *, aliases: bool) -> Iterator[Sent]:
    """Yield the keys that some classes declare, with or without second keys; those that leave the view come last."""
    owners = {owner.__name__: owner for owner in key_owners(FabricApp)}
    found = [one for name in classes if name in owners for one in bindings_of(owners[name])]
    for one in sorted(found, key=lambda one: "escape" in one.key or "leave" in (one.id or "")):
        keys = [key for key in one.key.split(",") if key not in LEFT_OUT]
        for key in keys if aliases else keys[:1]:
            yield Sent(_tmux_name(key), CHARACTERS.get(key, KEY_NAMES.get(key, key)), one.id or "")


def _tmux_name(key: str) -> str:
    if key.startswith("ctrl+"):
        last = key.removeprefix("ctrl+")
        return f"C-{NAMED.get(last, last)}"
    return NAMED.get(key) or CHARACTERS.get(key, key)


class Terminal:
    """The app in a tmux session of its own, which is asked and reports in tmux's control mode."""

    def __init__(self, size: tuple[int, int], environment: str, options: str, recording: Path, folder: Path) -> None:
        run = shlex.join([sys.executable, "-c", _APP])
        app = f"{run} replay --speed max {options} {shlex.quote(str(recording))}"
        state = f"XDG_STATE_HOME={shlex.quote(str(folder))} XDG_CONFIG_HOME={shlex.quote(str(folder))}"
        clean = "env -u COLORTERM -u NO_COLOR TERM=xterm-256color ESCDELAY=20"
        command = f"{clean} {state} {environment} {app}; echo ENDED; exec sleep 1000"
        width, height = map(str, size)
        tmux = ["tmux", "-S", str(folder / "socket"), "-f", "/dev/null", "-C", "new-session"]
        words = [*tmux, "-x", width, "-y", height, "-c", str(folder), command]
        # The app ends with this tool.
        words += [";", "set-option", "destroy-unattached", "on"]
        self._client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._requests, self._reports = self._client.stdin, self._client.stdout.fileno()
        self._unread = b""
        #: True if the app has written since this was last asked.
        self._written = False
        self._reply()

    def _line(self, seconds: float) -> str | None:
        """Return the next line of tmux, or None if there is none within some time."""
        end = time.monotonic() + seconds
        while b"\n" not in self._unread:
            if not select.select([self._reports], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            if not (more := os.read(self._reports, 65536)):
                raise SystemExit("tmux has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        if line.startswith(b"%output"):
            self._written = True
        return line.decode(errors="replace")

    def _reply(self) -> str:
        lines: list[str] | None = None
        while (line := self._line(10.0)) is not None:
            if line.startswith(("%end ", "%error ")):
                return "\n".join(lines or ())
            if lines is not None:
                lines.append(line)
            elif line.startswith("%begin "):
                lines = []
        raise SystemExit("tmux does not answer")

    def _ask(self, *words: str) -> str:
        self._requests.write(f"{shlex.join(words)}\n".encode())
        self._requests.flush()
        return self._reply()

    def _wrote_within(self, seconds: float) -> bool:
        """Return True as soon as the app writes, or has written since the last call."""
        end = time.monotonic() + seconds
        while not self._written and self._line(max(0.0, end - time.monotonic())) is not None:
            pass
        written, self._written = self._written, False
        return written

    def screen(self) -> str:
        return self._ask("capture-pane", "-p")

    def coded(self) -> str:
        """Return what is shown with the codes of its colours, without times."""
        return CLOCK.sub("", self._ask("capture-pane", "-p", "-e"))

    def send(self, key: str) -> None:
        """Press a key, by its name in tmux."""
        self._ask("send-keys", *(["-H", f"{ord(key):x}"] if len(key) == 1 else [key]))

    def until(self, what: Callable[[str], bool], seconds: float) -> bool:
        """Wait until the screen is so."""
        end = time.monotonic() + seconds
        while not (found := what(self.screen())) and time.monotonic() < end:
            self._wrote_within(0.2)
        return found

    def rest(self) -> str:
        end = time.monotonic() + 5.0
        while self._wrote_within(_QUIET) and time.monotonic() < end:
            pass
        return self.coded()

    def rest_after(self, seconds: float) -> str:
        """Return the screen with its codes once the app, which may need some time to begin, is silent."""
        self._written = self._wrote_within(seconds)
        return self.rest()

    def changed_by(self, key: str, seconds: float) -> bool:
        """Press a key; return whether the screen changes."""
        before = self.rest()
        self.send(key)
        end = time.monotonic() + seconds
        while self._wrote_within(max(0.0, end - time.monotonic())):
            if self.coded() != before:
                return True
        return False

    def to_grid(self) -> None:
        for _ in range(6):
            # Sent at once, Escape and what follows would be one key with Alt.
            self.send("Escape")
            self.rest_after(0.3)
            lines = self.screen().rstrip().split("\n")
            if "/ " not in lines[0] and not lines[-1].startswith(":"):
                return

    def close(self) -> None:
        self._requests.close()
        self._client.wait(10)


def colours_beyond(mode: str, codes: str) -> str:
    """Return what a screen shows that its mode does not allow, or ""."""
    if mode == "ASCII" and not codes.isascii():
        return f"beyond ASCII: {sorted({c for c in codes if not c.isascii()})[:5]}"
    if mode == "NO_COLOR" and re.search(r"\x1b\[[\d;]*\b(3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])\b[\d;]*m", codes):
        return "a colour"
    if mode == "16 colours" and re.search(r"\x1b\[[\d;]*[34]8;", codes):
        return "more than 16 colours"
    return ""


def press_all(terminal: Terminal, mode: str, view: str, seconds: float) -> Iterator[str]:
    """Press every key of a view; yield a line for each, empty if nothing is wrong."""
    way, sign, classes = VIEWS[view]
    keys = list(keys_of(classes, aliases=mode == "24-bit"))
    declared = {sent.key for sent in keys_of(classes, aliases=True)}
    keys += [Sent(key, key, "no key of this view") for key in DEAD if key not in declared and view not in TYPED]
    stays = False
    for sent in keys:
        problem = ""
        # Where the machine is busy, a key that follows Escape may be read as one key with it.
        for attempt in range(3):
            if not _reach(terminal, way, sign, leave=not stays or attempt > 0):
                problem = f"{' '.join(way)} does not show it before the key"
                continue
            problem, stays = _press(terminal, mode, sent, seconds * (1 + attempt))
            if not problem or problem.startswith("shows"):
                break
        yield f"{view}: {sent.shown} ({sent.id}) {problem}" if problem else ""
        if problem.startswith("ends"):
            return


def _reach(terminal: Terminal, way: tuple[str, ...], sign: str, *, leave: bool) -> bool:
    """Go to a view, from the grid if so wanted; return whether it is shown."""
    if leave:
        terminal.to_grid()
    # The list stays where it was opened.
    for key in way if not re.search(sign, terminal.screen()) else ():
        terminal.send(key)
        terminal.rest_after(0.5)
    return terminal.until(lambda text: re.search(sign, text) is not None, 3.0)


def _press(terminal: Terminal, mode: str, sent: Sent, seconds: float) -> tuple[str, bool]:
    """Press a key of the view that is shown; return what is wrong, or "", and whether the view is still the same."""
    before = terminal.rest()
    bar = _last_line(before)
    # G is not the key of "g go to".
    flags = re.I if len(sent.shown) > 1 else 0
    offered = re.search(rf"(^|\s){re.escape(sent.shown)} [a-z]", bar, flags) is not None
    must_change = offered or not MOVES.search(sent.id)
    changed = terminal.changed_by(sent.key, seconds)
    after = terminal.rest() if changed else before
    stays = _last_line(after) == bar
    if "Traceback" in after or "ENDED" in after:
        return "ends the app", False
    if wrong := colours_beyond(mode, after):
        return f"shows {wrong}", stays
    return "" if changed or not must_change else "changes nothing", stays


def _last_line(screen: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", screen).rstrip().rpartition("\n")[2]


def press_views(size: tuple[int, int], mode: str, views: list[str], recording: Path, seconds: float) -> int:
    """Press the keys of some views in one app; print and count what is wrong."""
    environment, options = MODES[mode]
    name = f"{size[0]}x{size[1]} {mode}"
    # An app that is being killed may still write its state.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        terminal = Terminal(size, environment, options, recording, Path(folder))
        try:
            if not terminal.until(lambda text: re.search(READY, text) is not None, 120):
                print(f"{name}: nothing was shown", flush=True)
                return 1
            pressed = [line for view in views for line in press_all(terminal, mode, view, seconds)]
        finally:
            terminal.close()
    problems = [line for line in pressed if line]
    print(f"{name}: {len(pressed)} keys, {len(problems)} problems", *problems, sep="\n  ", flush=True)
    return len(problems)


def main() -> int:
    """Run the app in each way; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, default=RECORDING)
    parser.add_argument("--only", default="", help="only runs whose name has this word: 80x24, ASCII")
    parser.add_argument("--views", default=",".join(VIEWS), help="views, separated by commas")
    parser.add_argument("--wait", type=float, default=0.7, help="seconds until a key counts as silent (0.7)")
    parser.add_argument("--jobs", type=int, default=2, help="apps that run at once (2)")
    given = parser.parse_args()
    chosen = [(size, mode) for size, mode in product(SIZES, MODES) if given.only in f"{size[0]}x{size[1]} {mode}"]
    views, recording = given.views.split(","), given.recording.resolve()
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = [pool.submit(press_views, size, mode, views, recording, given.wait) for size, mode in chosen]
        problems = sum(run.result() for run in runs)
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.pop("TMUX", None)
    sys.exit(main())
