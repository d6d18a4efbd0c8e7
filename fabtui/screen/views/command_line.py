"""Command line: a command typed at the bottom of any view, with completion."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import ClassVar, Protocol

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input

from fabtui.errors import InputError
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import clipped
from fabtui.sanitize import one_line
from fabtui.screen.context import context_of
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.prompt import EarlyInput
from fabtui.screen.widgets.text_line import TextLine


class _Command(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def argument(self) -> str: ...
    @property
    def prepare(self) -> Callable[[str], Awaitable[Callable[[], object]]]: ...


class Commands(Protocol):
    """Commands of a view."""

    def read(self, text: str) -> tuple[_Command, str]:
        """Return a command and its argument; `InputError` if there is no such command."""

    async def completions(self, text: str) -> list[str]:
        """Return the texts that begin with ``text``."""


class _Completion(Suggester):
    def __init__(self, commands: Commands) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._commands = commands

    async def get_suggestion(self, value: str) -> str | None:
        found = await self._commands.completions(value)
        return found[0] if found else None


class CommandLine(ModalScreen[None]):
    """Takes a command. It stays open, and shows the problem, if the command is not valid."""

    DEFAULT_CSS = """
    CommandLine { background: transparent; align-vertical: bottom; }
    CommandLine TextLine { background: $panel; }
    CommandLine Horizontal { height: 1; background: $panel; }
    CommandLine #command-colon { width: 1; }
    CommandLine Input { height: 1; width: 1fr; border: none; padding: 0; background: $panel; }
    CommandLine Input:focus { border: none; }
    """
    BINDING_GROUP_TITLE = "Command line"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,ctrl+c", "leave", "command.leave", "leave the command line", "back", priority=True),
        shortcut("tab", "complete", "command.complete", "complete the command", priority=True),
        shortcut("up", "recall(-1)", "command.previous", "previous command", priority=True),
        shortcut("down", "recall(1)", "command.next", "next command", priority=True),
    ]

    def __init__(self, commands: Commands, history: list[str]) -> None:
        super().__init__()
        self._commands = commands
        self._history = history
        self._place = len(history)
        self._input = EarlyInput(id="command-input", suggester=_Completion(commands))
        self._hint = TextLine(id="command-hint")

    def compose(self) -> ComposeResult:
        yield self._hint
        with Horizontal():
            yield TextLine(Content.styled(":", "bold $primary"), id="command-colon")
            yield self._input

    async def on_mount(self) -> None:
        self._input.cursor_blink = False
        self._input.focus(scroll_visible=False)
        await self._explain("")

    async def take(self, event: events.Key) -> None:
        """Take a key that was pressed before the input line had the focus."""
        await self._input.take(event)

    async def _explain(self, text: str) -> None:
        """Show the effect of the command, and the possible completions."""
        found = await self._commands.completions(text)
        parts: list[Part] = []
        with contextlib.suppress(InputError):
            command, _ = self._commands.read(text if " " in text or not text or not found else found[0])
            parts += [(f"{command.name} {command.argument}".strip(), "bold"), (f": {command.effect}   ", MUTED)]
        parts += [(f"{one_line(one.rpartition(' ')[2], 40)}  ", "$primary") for one in found]
        if not parts:
            parts = [("no such command", MUTED)]
        self._hint.show(Content.assemble(*clipped(parts, self.app.size.width, context_of(self).glyphs.ellipsis)))

    @on(Input.Changed)
    async def _text_changed(self, event: Input.Changed) -> None:
        event.stop()
        await self._explain(event.value)

    @on(Input.Submitted)
    async def _text_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if not text:
            self.dismiss()
            return
        try:
            command, argument = self._commands.read(text)
            act = await command.prepare(argument)
        except InputError as error:
            self._hint.show(Content.styled(one_line(str(error), 300), "bold $error"))
            return
        self._history.append(text)
        self.dismiss()
        self.app.call_later(act)

    def action_complete(self) -> None:
        if not self._input.value:
            self._hint.show(Content.styled("type the first letters of a command: Tab completes it", MUTED))
            return
        self._input.action_end()
        self._input.action_cursor_right()

    def action_recall(self, step: int) -> None:
        """Put an earlier command into the line."""
        self._place = max(0, min(self._place + step, len(self._history)))
        self._input.value = self._history[self._place] if self._place < len(self._history) else ""
        self._input.action_end()

    def action_leave(self) -> None:
        self.dismiss()
