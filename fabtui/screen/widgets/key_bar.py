"""Key bar: the active key bindings on one line: what acts here at the left, what leads elsewhere at the right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode

from fabtui.presentation.wording import MUTED, Part
from fabtui.screen.keys import Shortcut, bindings_of
from fabtui.screen.widgets.text_line import TextLine

#: Share of the line for the left group before the right one gets its room.
_LEFT_SHARE = 0.75


@dataclass(slots=True)
class _Entry:
    keys: str
    label: str
    press: str
    always: bool  #: Shown on the narrowest terminal too. Textual's Footer would scroll it out of view.
    right: bool = False  #: Shown at the right end of the line.

    @property
    def width(self) -> int:
        return len(self.keys) + len(self.label) + 3


class KeyBar(TextLine):
    """Active bindings that fit, in the order of their declarations; a click presses the key.

    ``label`` returns the current label of a binding, or "" to leave it out; ``hint`` is shown last.
    """

    DEFAULT_CSS = "KeyBar { background: $panel; }"

    def __init__(
        self, label: Callable[[Shortcut], str] | None = None, hint: tuple[str, str] | None = None, **place: Any
    ) -> None:
        super().__init__(**place)
        self._label = label or (lambda binding: binding.description)
        self._hint = hint
        self._spans: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Follow the bindings, which change with the focus and with the user's keymap."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.draw())
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        # A blank at the right end.
        width = self.screen.size.width - 1
        entries = self._entries()
        reserved = sum(entry.width for entry in entries if entry.always)
        used, kept = 0, set[int]()
        # The left group may have more than its share once the right one is there.
        for share, right in ((_LEFT_SHARE, False), (1.0, True), (1.0, False)):
            for at, entry in enumerate(entries):
                if entry.right is not right or at in kept:
                    continue
                # The two blanks after the last entry need no room.
                after, others = used + entry.width - 2, reserved - entry.width * entry.always
                if after > share * width or after + others > width:
                    continue
                kept.add(at)
                used += entry.width
                reserved -= entry.width * entry.always
        shown = [entry for at, entry in enumerate(entries) if at in kept]
        groups = [[one for one in shown if not one.right], [one for one in shown if one.right]]
        parts: list[Part] = []
        self._spans = []
        at = 0
        for place, group in enumerate(groups):
            if place:
                gap = max(0, width - used + 2)
                parts.append((" " * gap, ""))
                at += gap
            for entry in group:
                parts += [(entry.keys, "bold $primary"), (f" {entry.label}  ", MUTED)]
                self._spans.append((at, at + entry.width - 2, entry.press))
                at += entry.width
        self.show(Content.assemble(*parts))

    def _entries(self) -> list[_Entry]:
        active: dict[str, Binding] = {}
        nodes: list[DOMNode] = []
        for one in self.screen.active_bindings.values():
            active.setdefault(one.binding.id or "", one.binding)
            if one.node not in nodes:
                nodes.append(one.node)
        entries: dict[str, _Entry] = {}
        first: list[str] = []
        classes = [owner for node in nodes for owner in type(node).__mro__]
        for owner, declared in ((one, binding) for one in classes for binding in bindings_of(one)):
            binding = active.pop(declared.id or "", None)
            if binding is None or not binding.show or not (label := self._label(declared)):
                continue
            keys = self.app.get_key_display(binding)
            name = binding.group.description if binding.group is not None else binding.id or ""
            if name in entries:
                entries[name].keys += f" {keys}"
            else:
                label = binding.group.description if binding.group is not None else label
                leads = issubclass(owner, App) and "first" not in declared.bar
                entries[name] = _Entry(keys, label, binding.key, "always" in declared.bar, leads)
                first += [name] if "first" in declared.bar else []
        # Those of the app before those of the view.
        return [
            *(entries.pop(name) for name in reversed(first)),
            *entries.values(),
            *([_Entry(*self._hint, "", False)] if self._hint else []),
        ]

    def on_click(self, event: events.Click) -> None:
        for start, end, key in self._spans:
            if start <= event.x < end and key:
                self.app.simulate_key(key)
