"""The view one starts with: a line a node, how far it is, what failed and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.content import Content

from fabtui.model.events import NodeState
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, state_style
from fabtui.presentation.wrapping import wrapped
from fabtui.sanitize import one_line
from fabtui.screen.widgets.text_line import TextLine

if TYPE_CHECKING:
    from fabtui.screen.views.preflight import LatestPreflight

_STATE_GLYPHS = {
    NodeState.WAITING: ("·", "."),
    NodeState.CONNECTING: ("…", "~"),
    NodeState.CONNECTED: ("…", "~"),
    NodeState.LOOKING: ("…", "~"),
    NodeState.READY: ("•", "o"),
    NodeState.FAILED: ("x", "x"),
    NodeState.LOST: ("x", "x"),
}


def inventory_words(record: NodeRecord) -> str:
    """Return what a node has, in a few words, from its inventory; "" when it is not known."""
    value = record.inventory
    if value is None:
        return ""
    words = []
    gpus = value.get("gpus")
    if isinstance(gpus, list) and gpus:
        names = [gpu.get("name") for gpu in gpus if isinstance(gpu, dict)]
        name = one_line(str(names[0]), 40).removeprefix("NVIDIA ") if names and names[0] else "GPU"
        words.append(f"{len(gpus)} x {name}")
    elif isinstance(gpus, list):
        words.append("no GPU")
    for key, singular, plural in (("data_addresses", "data address", "data addresses"), ("ib", "IB port", "IB ports")):
        found = value.get(key)
        if isinstance(found, list) and found:
            words.append(f"{len(found)} {singular if len(found) == 1 else plural}")
    if value.get("driver"):
        words.append(f"driver {one_line(str(value['driver']), 24)}")
    return ", ".join(words)


def node_lines(model: Model, record: NodeRecord, glyphs: Glyphs, name_width: int) -> list[list[Part]]:
    """Return a node's lines: its state, what it has or what went wrong, and what to do about that."""
    glyph = _STATE_GLYPHS[record.state][glyphs.plain]
    style = state_style(record.state)
    took = f"{record.since - model.started:6.1f} s" if record.since and record.since >= model.started else " " * 8
    said = one_line(record.text, 400)
    line: list[Part] = [
        (f" {glyph} ", style),
        (f"{one_line(record.name, 64):<{name_width}}  ", "bold"),
        (f"{record.state:<11}", style),
        (f"{took}  ", MUTED),
        (said or inventory_words(record), style if record.state.gone else ""),
    ]
    if record.backend and not record.state.gone:
        line.append((f"  ({one_line(record.backend, 20)})", MUTED))
    lines = [line]
    if record.hint:
        lines.append([(" " * (name_width + 5), ""), (f"next: {one_line(record.hint, 400)}", "$accent")])
    if record.note:
        lines.append([(" " * (name_width + 5), ""), (one_line(record.note, 400), "$warning")])
    return lines


class ConnectingView(VerticalScroll):
    """All nodes with their states."""

    DEFAULT_CSS = """
    ConnectingView { height: 1fr; width: 1fr; padding: 1 0 0 0; scrollbar-size-vertical: 1; }
    ConnectingView TextLine { height: auto; text-wrap: wrap; }
    """
    can_focus = True

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        self._text = TextLine()
        super().__init__(self._text, id=id)
        self._glyphs = glyphs
        self._latest: LatestPreflight | None = None
        #: What is shown, and the width that it is laid out for.
        self._shown: tuple[Model, str] | None = None
        self._width = 0

    @property
    def latest(self) -> LatestPreflight:
        """The preflight; made when it is first asked for, as it is much to import."""
        from fabtui.screen.views.preflight import LatestPreflight

        self._latest = self._latest or LatestPreflight()
        return self._latest

    def put(self, model: Model | None, title: str) -> None:
        """Show the nodes of a model."""
        if model is None or not model.nodes:
            self._text.show(Content.assemble((f" starting {one_line(title, 60)}", MUTED)), layout=True)
            return
        self._shown, self._width = (model, title), self.size.width
        width = max(len(one_line(name, 64)) for name in model.nodes)
        from fabtui.screen.views.preflight import short

        found, current = self.latest.of(model)
        if not current:
            self._draw_again()
        findings = short(found, max(40, self.size.width - 2), self._glyphs.plain)
        contents = [Content.assemble(*line) for line in findings]
        # What is too long goes on under what is said of its node, not under the node's name.
        indent, room = width + 5, max(30, self.size.width - 2)
        contents += [
            Content.assemble(*piece)
            for record in model.nodes.values()
            for line in node_lines(model, record, self._glyphs, width)
            for piece in wrapped(line, room, indent)
        ]
        self._text.show(Content("\n").join(contents), layout=True)

    def on_resize(self) -> None:
        """Lay out anew; what was hidden had no width until now."""
        if self._shown is not None and self.size.width != self._width:
            self.put(*self._shown)

    def _draw_again(self) -> None:
        from fabtui.screen.app import FabricApp
        from fabtui.screen.views.preflight import LEAST_REST

        if isinstance(self.app, FabricApp):
            self.app.draw_again(LEAST_REST)
