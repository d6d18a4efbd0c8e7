"""The start screen: nodes to test, jobs, recordings, films and labs, each of which leads to a command."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from fabtui.errors import InputError
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Line, clipped
from fabtui.sanitize import one_line
from fabtui.screen.context import ScreenSettings, StartChoice, StartSection
from fabtui.screen.keymap import check_keys
from fabtui.screen.keys import shortcut
from fabtui.screen.terminal.internals import watch_hangup
from fabtui.screen.terminal_app import TerminalApp
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.text_line import TargetLine, TargetLines, TextLine
from fabtui.version import __version__

#: Width of the names of sections, and of the first column of choices.
_NAME, _LABEL = 12, 32
#: Maximum number of characters of a text.
_LONGEST = 300
_HINT = "n060,n061 or @group: enter tests, esc leaves"


class StartApp(TerminalApp[list[str]]):
    """Returns the words of the command that was chosen; none if the user has left."""

    TITLE = "fabtui"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("app.tcss")
    DEFAULT_CSS = """
    StartApp #line { height: 1; }
    StartApp #line TextLine { width: 16; }
    StartApp Input { height: 1; width: 1fr; border: none; padding: 0; background: $panel; }
    StartApp Input:focus { border: none; }
    StartApp #choices { height: 1fr; }
    """
    BINDING_GROUP_TITLE = "Start screen"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("n", "nodes", "start.nodes", "type the nodes to test", "nodes"),
        shortcut("up", "move(-1)", "start.up", "previous line"),
        shortcut("down", "move(1)", "start.down", "next line"),
        shortcut("enter", "open", "start.open", "open what the cursor is on", "open"),
        shortcut("escape", "list", "start.list", "leave the line of nodes"),
        *(
            shortcut(key, f"section('{key}')", f"start.{name}", f"go to {name}", name)
            for key, name in (("j", "jobs"), ("r", "recordings"), ("h", "history"), ("d", "demo"), ("l", "lab"))
        ),
        shortcut("q", "quit", "start.quit", "quit", "quit", bar=("always",)),
        shortcut("ctrl+c", "quit", "start.interrupt", "quit", priority=True),
    ]

    def __init__(
        self,
        settings: ScreenSettings,
        sections: Sequence[StartSection],
        check: Callable[[str], object],
        nodes: str = "",
    ) -> None:
        super().__init__(settings)
        self._sections = sections
        self._check = check
        #: What was read of each section; None while it is being read.
        self._read: list[list[StartChoice] | str | None] = [None] * len(sections)
        self._cursor: tuple[int, int] | None = None  #: StartSection and line of the cursor; None until it was moved.
        self._column = 0  #: Width of the first column of choices.
        self._filled_in = nodes
        self._line = Input(select_on_focus=False)
        self._hint = TextLine(id="hint")
        self._choices = TargetLines(id="choices")
        self._choices.can_focus = True

    def compose(self) -> ComposeResult:
        about = "which GPU cannot reach which, and why"
        yield TextLine(Content.assemble((" fabtui ", "bold $primary"), (f"{__version__}   {about}", MUTED)))
        yield TextLine()
        with Horizontal(id="line"):
            yield TextLine(Content.assemble((" n ", "bold $primary"), "test nodes  "))
            yield self._line
        yield self._hint
        yield self._choices
        yield KeyBar(hint=("arrows", "move"))

    def on_mount(self) -> None:
        self.set_keymap(check_keys(self.settings.keys, type(self))[0] if self.settings.keys else {})
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGHUP):
            # Not the main thread, as in tests.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(name, self.exit, [])
        watch_hangup(self._driver, loop, lambda: self.exit([]))
        self._line.cursor_blink = False
        self._line.value = self._filled_in
        self._line.cursor_position = len(self._filled_in)
        self.set_focus(self._line if self._line.value else self._choices)
        problems = [f"settings: {one}" for one in (*self.settings.problems, self.theme_problem) if one]
        self._show_hint(problems[0] if problems else _HINT, "$warning" if problems else MUTED)
        self.call_after_refresh(self._begin)

    def on_resize(self) -> None:
        self._draw()

    def _begin(self) -> None:
        for at in range(len(self._sections)):
            self._in_thread(self._sections[at].read, partial(self._take, at))

    def _in_thread(self, work: Callable[[], object], done: Callable[[object], object]) -> None:
        """Work in a thread that does not keep the process alive; an error of the input counts as a text."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            try:
                found = work()
            except Exception as error:
                found = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done, found)

        threading.Thread(target=run, daemon=True).start()

    def _take(self, at: int, found: object) -> None:
        self._read[at] = found if isinstance(found, str) else list(found)  # type: ignore[call-overload]
        self._draw()

    def _show_hint(self, text: str, style: str) -> None:
        self._hint.show(Content.assemble((" " * 16, ""), (one_line(text, _LONGEST), style)))

    @property
    def _places(self) -> list[tuple[int, int]]:
        return [
            (at, line) for at, found in enumerate(self._read) if isinstance(found, list) for line in range(len(found))
        ]

    @property
    def _here(self) -> tuple[int, int] | None:
        places = self._places
        return self._cursor if self._cursor in places else next(iter(places), None)

    def _draw(self) -> None:
        rows: list[TargetLine] = []
        here, shown = self._here, 0
        width, places = self.size.width, self._places
        labels = [choice.label for found in self._read if isinstance(found, list) for choice in found]
        self._column = min(_LABEL, max(map(len, labels), default=0), max(0, width // 3))
        for at, (section, found) in enumerate(zip(self._sections, self._read, strict=True)):
            lines = found if isinstance(found, list) else [StartChoice("", found or "reading")]
            for line, choice in enumerate(lines):
                chosen = (at, line) == here and self.focused is self._choices
                shown = len(rows) if (at, line) == here else shown
                parts = self._row(section if not line else None, choice, chosen)
                target = places.index((at, line)) if (at, line) in places else None
                rows.append((clipped(parts, width, self.glyphs.ellipsis), target))
        height = max(1, self._choices.size.height)
        first = max(0, min(shown - height // 2, len(rows) - height))
        self._choices.put(rows[first : first + height])

    def _row(self, section: StartSection | None, choice: StartChoice, chosen: bool) -> Line:
        mark = (">" if self.glyphs.plain else "▸") if chosen else " "
        key, name = ("", "") if section is None else section[:2]
        label, note = (one_line(text, _LONGEST) for text in (choice.label, choice.note))
        texts = f"{label:<{self._column if note and label else 0}}", f"{'  ' if label and note else ''}{note}"
        head: Line = [(mark, "bold"), (f"{key:<2}", "bold $primary"), (f"{name:<{_NAME}} ", "")]
        return [*head, (texts[0], "bold reverse" if chosen else ""), (texts[1], MUTED)]

    def on_descendant_focus(self) -> None:
        self._draw()

    def action_nodes(self) -> None:
        self.set_focus(self._line)

    def action_list(self) -> None:
        self.set_focus(self._choices)

    def action_move(self, step: int) -> None:
        places, here = self._places, self._here
        if self.focused is self._line:
            if step > 0:
                self.set_focus(self._choices)
            return
        at = places.index(here) + step if here is not None else -1
        if at < 0:
            self.set_focus(self._line)
            return
        self._cursor = places[min(at, len(places) - 1)]
        self._draw()

    def action_section(self, key: str) -> None:
        at = next(at for at, section in enumerate(self._sections) if section.key == key)
        self.set_focus(self._choices)
        if (at, 0) in self._places:
            self._cursor = at, 0
        else:
            found = self._read[at]
            self._show_hint(found if isinstance(found, str) else "still reading", MUTED)
        self._draw()

    @on(TargetLines.Pointed)
    def _clicked(self, message: TargetLines.Pointed) -> None:
        if isinstance(message.target, int) and message.target < len(self._places):
            self._cursor = self._places[message.target]
            self.action_open()

    def action_open(self) -> None:
        here = self._here
        found = None if here is None else self._read[here[0]]
        if here is None or not isinstance(found, list):
            return
        choice = found[here[1]]
        if not choice.fill:
            self.exit([*choice.words])
            return
        old = self._line.value.strip().rstrip(",")
        self._line.value = f"{old},{choice.fill}" if old else choice.fill
        self.set_focus(self._line)
        self._line.cursor_position = len(self._line.value)

    @on(Input.Submitted)
    def _test(self) -> None:
        text = self._line.value.strip()
        self._show_hint("reading the node set", MUTED)

        def done(problem: object) -> None:
            if isinstance(problem, str):
                self._show_hint(problem, "bold $error")
            else:
                self.exit(["--nodes", text])

        self._in_thread(partial(self._check, text), done)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._show_hint(_HINT, MUTED)

    async def action_quit(self) -> None:
        self.exit([])
