"""Command line: a command typed at the bottom of any view, with completion.

The commands are the keys of the view, of the main screen and of the app by name; some take arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widgets import Input

from fabtui.atomic_write import check_writable
from fabtui.config.file import DEFAULT, setting_named
from fabtui.errors import InputError
from fabtui.paths import user_path
from fabtui.presentation.legends import layers_of
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import clipped
from fabtui.report.document import check_suffix
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import job_ids, own_jobs
from fabtui.screen.context import context_of
from fabtui.screen.grid.cells import RowOrder
from fabtui.screen.grid.prompts import CLASSES, GOTO_HINT, TRANSPORT_WORDS, VERDICTS, read_place
from fabtui.screen.keys import bindings_of, shortcut
from fabtui.screen.views.main import MainScreen
from fabtui.screen.widgets.prompt import EarlyInput
from fabtui.screen.widgets.text_line import TextLine


class _Completion(Suggester):
    def __init__(self, commands: CommandTable) -> None:
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

    def __init__(self, commands: CommandTable, history: list[str], text: str = "") -> None:
        super().__init__()
        self._text = text
        self._commands = commands
        self._history = history
        self._place = len(history)
        self._input = EarlyInput(text, id="command-input", suggester=_Completion(commands))
        self._hint = TextLine(id="command-hint")

    def compose(self) -> ComposeResult:
        yield self._hint
        with Horizontal():
            yield TextLine(Content.styled(":", "bold $primary"), id="command-colon")
            yield self._input

    async def on_mount(self) -> None:
        self._input.cursor_blink = False
        self._input.focus(scroll_visible=False)
        await self._explain(self._text)

    async def take(self, event: events.Key) -> bool:
        return await self._input.take(event)

    async def _explain(self, text: str) -> None:
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
        self._place = max(0, min(self._place + step, len(self._history)))
        self._input.value = self._history[self._place] if self._place < len(self._history) else ""
        self._input.action_end()

    def action_leave(self) -> None:
        self.dismiss()


#: Bindings whose commands take an argument instead, or which are the command line itself.
_LEFT_OUT = ("app.command-line", "app.interrupt", "main.filter", "main.jump", "main.sort", "main.blame", "main.node")
#: Maximum number of files that the completion offers.
_MAX_FILES = 50

#: Parts of the ids of keys that only move the cursor.
_MOVES = ("grid.", "worst.", "detail.", "main.layer-", "findings.go-")

Act = Callable[[], object]
#: Returns the completions of a word.
Offer = Callable[[str], Awaitable[Iterable[str]]]


async def _nothing(_: str) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command; ``prepare`` checks its argument (`InputError`) and returns what is to be done."""

    name: str
    effect: str
    prepare: Callable[[str], Awaitable[Act]]
    argument: str = ""  #: Word for the argument, or "".
    offer: Offer = _nothing  #: Completions of a word of the argument.


def command_rows() -> list[tuple[str, str]]:
    return [(f":{name} {argument}", effect) for name, argument, effect in _EFFECTS]


_EFFECTS = (
    ("layer", "LAYER", "show a layer"),
    ("filter", "WORDS", "show only matching cells; without words, all cells"),
    ("go", "PLACE", f"go to an endpoint, a node or a pair: {GOTO_HINT}"),
    ("node", "NODE", "show a node"),
    ("pair", "PAIR", "show a pair in both directions"),
    ("sort", "ORDER", "sort the rows"),
    ("order", "ORDER", "sort the rows, or group rows and columns by NVLink domain, leaf switch or rail"),
    ("theme", "THEME", "change the colors of the screen"),
    ("replay", "FILE", "play a recording in place of this session"),
    ("report", "FILE", "write a one-page report, to a file that ends in .html or .md"),
    ("job", "ID", "show a job of Slurm; without an id, your jobs"),
)


def _suggestion(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(word.lower(), names, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; expected {', '.join(names[:12])}" if names else ""


class CommandTable:
    """Commands of a view, with their completion."""

    def __init__(self, app: App[int], screen: Screen[Any]) -> None:
        self._app = app
        main = app.screen_stack[0]
        assert isinstance(main, MainScreen)
        self._main, self._context = main, context_of(main)
        self.commands: dict[str, Command] = {}
        self._add_arguments()
        owners: list[DOMNode] = [*([screen.focused] if screen.focused is not None else []), screen, main, app]
        for owner in owners:
            self._add_keys(owner, on_main=owner is main)

    def _add_keys(self, owner: DOMNode, *, on_main: bool) -> None:
        for binding in (one for kind in type(owner).__mro__ for one in bindings_of(kind)):
            name = (binding.id or "").partition(".")[2]
            if binding.id in _LEFT_OUT or (binding.id or "").startswith(_MOVES):
                continue
            if name and name not in self.commands:
                run = partial(self._app.run_action, binding.action, owner)
                act: Act = partial(self._on_main, run) if on_main else partial(self._app.call_later, run)
                self.commands[name] = Command(name, binding.tooltip or binding.description, partial(self._plain, act))

    def _add_arguments(self) -> None:
        prepares: dict[str, tuple[Callable[[str], Awaitable[Act]], Offer]] = {
            "layer": (self._layer, self._offered(self._layers)),
            "filter": (self._filter, self._offered(lambda: [*VERDICTS, *CLASSES, *TRANSPORT_WORDS, *self._nodes()])),
            "go": (self._go, self._offer_places),
            "node": (self._node, self._offered(self._nodes)),
            "pair": (self._pair, self._offer_places),
            "sort": (self._sort, self._offered(lambda: map(str, RowOrder))),
            "order": (self._sort, self._offered(lambda: map(str, RowOrder))),
            "theme": (self._theme, self._offered(lambda: self._app.available_themes)),
            "replay": (self._replay, _files),
            "report": (self._report, _nothing),
            "job": (self._job, self._offer_jobs),
        }
        for name, argument, effect in _EFFECTS:
            prepare, offer = prepares[name]
            self.commands[name] = Command(name, effect, prepare, argument, offer)

    def read(self, text: str) -> tuple[Command, str]:
        name, _, argument = text.strip().removeprefix(":").partition(" ")
        command = self.commands.get(name)
        if command is None:
            begun = [one for one in self.commands if name and one.startswith(name)]
            if len(begun) != 1:
                near = f"; did you mean {', '.join(begun[:6])}?" if begun else _suggestion(name, self.commands)
                raise InputError(f"there is no command {name[:40]!r}{near}")
            command = self.commands[begun[0]]
        if argument.strip() and not command.argument:
            raise InputError(f"{command.name} takes no argument")
        return command, argument.strip()

    async def completions(self, text: str) -> list[str]:
        """Return the texts that begin with ``text`` and are a command, or one with a word of its argument."""
        name, blank, argument = text.partition(" ")
        if not blank:
            return sorted(one for one in self.commands if one.startswith(name))
        command = self.commands.get(name)
        if command is None:
            return []
        before, gap, word = argument.rpartition(" ")
        head = f"{name} {before}{gap}"
        return [head + one for one in await command.offer(word) if one.startswith(word) and one != word]

    def _on_main(self, act: Callable[[], Any]) -> None:
        while len(self._app.screen_stack) > 1:
            self._app.pop_screen()
        self._app.call_later(act)

    @staticmethod
    async def _plain(act: Act, _: str) -> Act:
        return act

    @staticmethod
    def _offered(words: Callable[[], Iterable[str]]) -> Offer:
        async def offer(_: str) -> Iterable[str]:
            return words()

        return offer

    def _layers(self) -> list[str]:
        return [str(layer) for layer in layers_of(self._context.model)]

    def _nodes(self) -> list[str]:
        return list(self._context.model.nodes)

    async def _offer_places(self, word: str) -> Iterable[str]:
        head, arrow, _ = word.rpartition(">")
        return [f"{head}{arrow}{entry.name}" for entry in self._main.source.axis.entries]

    async def _layer(self, text: str) -> Act:
        if text not in self._layers():
            raise InputError(f"there is no layer {text[:40]!r}{_suggestion(text, self._layers())}")
        return partial(self._on_main, partial(self._main.action_layer, text))

    def _check_grid(self) -> None:
        if not self._main.source.axis.size:
            raise InputError("no node has reported endpoints yet")

    async def _filter(self, text: str) -> Act:
        self._check_grid()
        self._main.navigation.note_cursor()
        await self._main.navigation.set_filter(text)
        return partial(self._on_main, self._main.draw)

    async def _go(self, text: str) -> Act:
        self._check_grid()
        self._main.navigation.note_cursor()
        self._main.navigation.go_to_text(text)
        return partial(self._on_main, self._main.draw)

    async def _node(self, text: str) -> Act:
        labels = {entry.label: entry.node for entry in self._main.source.axis.entries}
        name = labels.get(text, text) if text else next(iter(self._nodes()), "")
        if name not in self._nodes():
            raise InputError(f"there is no node {text[:60]!r}{_suggestion(text, self._nodes())}")
        return partial(self._on_main, partial(self._context.open_node, name))

    async def _pair(self, text: str) -> Act:
        axis = self._main.source.axis
        row, column = read_place(text, axis)
        if row is None or column is None:
            raise InputError("expected a pair, for example n060:3>n061:5")
        chosen = MainScreen.PairChosen(axis.entries[row], axis.entries[column])
        return partial(self._on_main, partial(self._main.post_message, chosen))

    async def _sort(self, text: str) -> Act:
        try:
            order = RowOrder(text)
        except ValueError:
            raise InputError(f"there is no order {text[:40]!r}{_suggestion(text, map(str, RowOrder))}") from None
        if order is (current := self._main.view_state.order):
            return partial(self._on_main, self._main.draw)
        # Choosing the current order again restores the given one.
        chosen = current if order is RowOrder.GIVEN else order
        return partial(self._on_main, partial(self._main.action_order, str(chosen)))

    async def _theme(self, text: str) -> Act:
        known = [*sorted(self._app.available_themes), DEFAULT]
        if text not in known:
            raise InputError(f"there is no theme {text[:40]!r}{_suggestion(text, known)}")
        return partial(self._context.change_setting, setting_named("screen.theme"), text)

    async def _offer_jobs(self, _: str) -> Iterable[str]:
        jobs, _problem = await asyncio.to_thread(own_jobs)
        return [one.job for one in jobs]

    async def _job(self, text: str) -> Act:
        if not text:
            return partial(self._context.open_view, "jobs")
        job, *more = job_ids(text, "job")
        if more:
            raise InputError("expected one job; each has a view of its own")
        return partial(self._context.open_job, job)

    async def _report(self, text: str) -> Act:
        if not text:
            return partial(self._app.run_action, "report")
        path = user_path(text).absolute()
        check_suffix(path, "report")
        check_writable(path, "report")
        return partial(self._context.write_report, path)

    async def _replay(self, text: str) -> Act:
        return await self._context.replay(text)


async def _files(word: str) -> Iterable[str]:
    def names() -> list[str]:
        folder, slash, begun = word.rpartition("/")
        place = user_path(folder + slash or ".")
        try:
            entries = sorted(one for one in place.iterdir() if one.name.startswith(begun))
            found = [(one.name, one.is_dir()) for one in entries]
        except OSError:
            return []
        return [
            f"{folder}{slash}{name}{'/' * is_folder}"
            for name, is_folder in found
            if is_folder or name.endswith((".jsonl", ".jsonl.gz"))
        ][:_MAX_FILES]

    return await asyncio.to_thread(names)
