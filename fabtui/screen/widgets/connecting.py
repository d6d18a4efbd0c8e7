"""The first frame, and the initial view: the state of each node, what failed and the next step."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen

from fabtui.model.events import NodeState
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, state_style, time_text
from fabtui.presentation.wrapping import Lines, wrapped
from fabtui.sanitize import one_line
from fabtui.screen.context import context_of
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.text_line import TextLine, content_of

if TYPE_CHECKING:
    from fabtui.model.session_model import Model, NodeRecord

#: In all other states a node is being connected.
_STATE_GLYPHS = {NodeState.WAITING: "·.", NodeState.READY: "•o", NodeState.FAILED: "xx", NodeState.LOST: "xx"}


def inventory_text(record: NodeRecord) -> str:
    value = record.inventory
    if value is None:
        return ""
    parts = []
    gpus = value.get("gpus")
    if isinstance(gpus, list):
        names = [gpu.get("name") for gpu in gpus if isinstance(gpu, dict)]
        name = one_line(str(names[0]), 40).removeprefix("NVIDIA ") if names and names[0] else "GPU"
        parts.append(f"{len(gpus)} x {name}" if gpus else "no GPU")
    for key, singular, plural in (("data_addresses", "data address", "data addresses"), ("ib", "IB port", "IB ports")):
        found = value.get(key)
        if isinstance(found, list) and found:
            parts.append(f"{len(found)} {singular if len(found) == 1 else plural}")
    if value.get("driver"):
        parts.append(f"driver {one_line(str(value['driver']), 24)}")
    return ", ".join(parts)


def node_lines(model: Model, record: NodeRecord, glyphs: Glyphs, name_width: int) -> Lines:
    glyph = _STATE_GLYPHS.get(record.state, "…~")[glyphs.plain]
    style = state_style(record.state)
    took = f"{record.since - model.started:6.1f} s" if record.since and record.since >= model.started else " " * 8
    message = one_line(record.text, 400)
    if record.state.gone and record.retry is not None:
        message += f"; next try at {time_text(record.retry)}"
    line: list[Part] = [
        (f" {glyph} ", style),
        (f"{one_line(record.name, 64):<{name_width}}  ", "bold"),
        (f"{record.state:<11}", style),
        (f"{took}  ", MUTED),
        (message or inventory_text(record), style if record.state.gone else ""),
    ]
    if record.backend and not record.state.gone:
        line.append((f"  ({one_line(record.backend, 20)})", MUTED))
    lines: Lines = [line]
    indent = (" " * (name_width + 5), "")
    if record.hint:
        lines.append([indent, (f"next: {one_line(record.hint, 400)}", "$primary")])
    if record.note:
        lines.append([indent, (one_line(record.note, 400), "$warning")])
    return lines


class ConnectingView(VerticalScroll):
    """All nodes with their states."""

    DEFAULT_CSS = """
    ConnectingView { height: 1fr; width: 1fr; padding: 1 0 0 0; scrollbar-size-vertical: 1; }
    ConnectingView TextLine { height: auto; }
    """
    can_focus = True

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        self._text = TextLine()
        super().__init__(self._text, id=id)
        self._glyphs = glyphs

    def start(self, title: str) -> None:
        self._text.show(Content.assemble((f" starting {one_line(title, 60)}", MUTED)), layout=True)

    def put(self, model: Model, title: str, summary: Lines) -> None:
        """Show the nodes of a model below a summary of the preflight; ``title`` is shown until there are any."""
        if not model.nodes:
            self.start(title)
            return
        name_width = max(len(one_line(name, 64)) for name in model.nodes)
        # Continuation lines start below the text of a node, not below its name.
        indent, room = name_width + 5, max(30, self.size.width - 2)
        gone = sum(record.state.gone for record in model.nodes.values())
        if gone == len(model.nodes):
            none = f" No node could be reached: {gone} node{'s' * (gone != 1)} failed. The next steps follow."
            summary = [*wrapped([(none, "bold $error")], room, 1), [], *summary]
        lines = summary + [
            piece
            for record in model.nodes.values()
            for line in node_lines(model, record, self._glyphs, name_width)
            for piece in wrapped(line, room, indent)
        ]
        self._text.show(content_of(lines), layout=True)

    def on_resize(self) -> None:
        context_of(self).request_draw()


class StartScreen(Screen[None]):
    """The first frame: what starts, and the keys of the actions that need no session; the others are kept."""

    def __init__(self, title: str, glyphs: Glyphs, actions: Collection[str]) -> None:
        super().__init__()
        self._title, self._glyphs, self._actions = title, glyphs, actions
        self.typed: list[events.Key] = []

    def compose(self) -> ComposeResult:
        yield TextLine(Content.styled(" fabtui", "bold $primary"))
        states = ConnectingView(self._glyphs)
        states.start(self._title)
        yield states
        yield KeyBar(lambda binding: binding.description if binding.action in self._actions else "")

    def on_key(self, event: events.Key) -> None:
        active = self.active_bindings.get(event.key)
        if active is None or active.binding.action not in self._actions:
            event.stop()
            self.typed.append(event)
