"""Presses every key in every view, in a real terminal: ``python tools/press_keys.py [--only WORD] [RECORDING]``.

tmux runs the app at three sizes, each with 24-bit colour, 16 colours, NO_COLOR and ASCII. In each view, the keys that
its classes declare are sent, and the screens before and after each key are compared. Reported are an app that has
ended, keys that change nothing, escape codes of more colours than chosen, and characters beyond ASCII. Keys that only
move a cursor may change nothing at an edge, unless the key bar names them.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
VIEWS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "grid": ((), "GPU pairs? (is|are) bad", ("MainScreen", "GridView", "FabricApp")),
    "list": (("v",), "verdict ▾|verdict v|no bad pair in layer", ("MainScreen", "WorstPairs")),
    "log": (("L",), "event log", ("EventLog",)),
    "pair": (("]", "Enter"), r"/ n00\d:\d > n00", ("PairScreen", "DetailScreen", "SteppedScreen", "FabricApp")),
    "node": (("n",), "/ n00", ("NodeScreen", "DetailScreen", "SteppedScreen", "FabricApp")),
    "findings": (("F",), r"/ \d findings", ("FindingsScreen", "DetailScreen", "FabricApp")),
    "nodes": (("t",), "/ nodes", ("NodesScreen", "NodesTable", "SteppedScreen", "FabricApp")),
    "topology": (("T",), "/ topology", ("TopologyScreen", "TopologyTree", "FabricApp")),
    "settings": (("F2",), "/ settings", ("SettingsScreen", "SettingsTable", "FabricApp")),
    "help": (("?",), "/ help", ("HelpScreen", "DetailScreen", "FabricApp")),
    "command line": ((":",), "(?m)^:", ("CommandLine",)),
    "palette": (("C-p",), "Change the theme", ()),
}
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
    r"^(grid|worst|nodes|topology|tree|detail|log|command)\.|\.(up|down|first|last|next|previous|layer-\w+|go-\d|steps?\b.*)$"
)
#: Time (s) for which notifications are shown, and a little.
_NOTIFIED = 5.0
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
    """The app in a tmux session of its own."""

    def __init__(self, size: tuple[int, int], environment: str, options: str, recording: Path, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(folder / "socket"), "-f", "/dev/null"]
        python = shlex.quote(sys.executable)
        app = f"{python} -m fabtui replay --speed max {options} {shlex.quote(str(recording))}"
        state = f"XDG_STATE_HOME={shlex.quote(str(folder))} XDG_CONFIG_HOME={shlex.quote(str(folder))}"
        clean = "env -u COLORTERM -u NO_COLOR TERM=xterm-256color"
        command = f"{clean} {state} {environment} {app}; echo ENDED; exec sleep 1000"
        width, height = map(str, size)
        self._run("new-session", "-d", "-x", width, "-y", height, "-c", str(folder), command)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=False).stdout

    def screen(self, *, codes: bool = False) -> str:
        """Return what is shown, with ``codes`` for colours or without."""
        return self._run("capture-pane", "-p", *(["-e"] if codes else []))

    def send(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        for key in keys:
            self._run("send-keys", *(["-l"] if len(key) == 1 else []), key if key != ";" else "\\;")

    def until(self, what: Callable[[str], bool], seconds: float) -> bool:
        """Wait until the screen is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what(self.screen()):
                return True
            time.sleep(0.03)
        return False

    def rest(self) -> str:
        """Return the screen with its codes once it does not change any more."""
        before = ""
        for _ in range(100):
            now = CLOCK.sub("", self.screen(codes=True))
            if now == before:
                return now
            before = now
            time.sleep(0.15)
        return before

    def changed_by(self, key: str, seconds: float) -> bool:
        """Press a key; return whether the screen changes."""
        before = self.rest()
        self.send(key)
        return self.until(lambda _: CLOCK.sub("", self.screen(codes=True)) != before, seconds)

    def to_grid(self) -> None:
        """Leave all views and lines that are open over the grid."""
        for _ in range(6):
            # Sent at once, Escape and what follows would be one key with Alt.
            self.send("Escape")
            time.sleep(0.15)
            self.rest()
            lines = self.screen().rstrip().split("\n")
            if "/ " not in lines[0] and not lines[-1].startswith(":"):
                return

    def close(self) -> None:
        """End the app and its session."""
        self._run("kill-server")


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
    """Press every key of a view; yield what is wrong."""
    way, sign, classes = VIEWS[view]
    keys = list(keys_of(classes, aliases=mode == "24-bit"))
    declared = {sent.key for sent in keys_of(classes, aliases=True)}
    keys += [Sent(key, key, "no key of this view") for key in DEAD if key not in declared and view not in TYPED]
    for sent in keys:
        terminal.to_grid()
        # The list stays where it was opened.
        for key in way if not re.search(sign, terminal.screen()) else ():
            terminal.send(key)
            terminal.rest()
        if not terminal.until(lambda text: re.search(sign, text) is not None, 5.0):
            yield f"{view}: {' '.join(way)} does not show it before {sent.shown} ({sent.id})"
            return
        before = terminal.rest()
        named = re.sub(r"\x1b\[[\d;]*m", "", before).rstrip().rpartition("\n")[2]
        changed = terminal.changed_by(sent.key, seconds)
        if not changed:
            # The notification that it gives may have been there already.
            time.sleep(_NOTIFIED)
            changed = terminal.changed_by(sent.key, seconds)
        after = terminal.rest() if changed else before
        if "Traceback" in after or "ENDED" in after:
            yield f"{view}: {sent.shown} ({sent.id}) ended the app"
            return
        if wrong := colours_beyond(mode, after):
            yield f"{view}: {sent.shown} ({sent.id}) shows {wrong}"
        in_bar = re.search(rf"(^|\s){re.escape(sent.shown)} [a-z]", named, re.I) is not None
        if not changed and (in_bar or not MOVES.search(sent.id)):
            yield f"{view}: {sent.shown} ({sent.id}) changes nothing"


def main() -> int:
    """Run the app in each way; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, default=RECORDING)
    parser.add_argument("--only", default="", help="only runs whose name has this word: 80x24, ASCII")
    parser.add_argument("--views", default=",".join(VIEWS), help="views, separated by commas")
    parser.add_argument("--wait", type=float, default=2.0, help="seconds until a key counts as silent (2)")
    given = parser.parse_args()
    problems = 0
    for size in SIZES:
        for mode, (environment, options) in MODES.items():
            name = f"{size[0]}x{size[1]} {mode}"
            if given.only not in name:
                continue
            found: list[str] = []
            for view in given.views.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    terminal = Terminal(size, environment, options, given.recording.resolve(), Path(folder))
                    try:
                        ready = terminal.until(lambda text: "bad" in text and "so far" not in text, 60)
                        here = list(press_all(terminal, mode, view, given.wait)) if ready else ["nothing was shown"]
                        print(f"{name} {view}: {len(here)} problems", *here, sep="\n  ", flush=True)
                        found += here
                    finally:
                        terminal.close()
            print(f"{name}: {len(found)} problems", flush=True)
            problems += len(found)
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.pop("TMUX", None)
    sys.exit(main())
