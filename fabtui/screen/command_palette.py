"""Commands of the palette, derived from the key bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen

from fabtui.screen.keymap import key_owners
from fabtui.screen.keys import bindings_of, current_keys, group_title

#: Bindings without a command: the palette itself and a second key for quit.
_WITHOUT_COMMAND = ("app.commands", "app.interrupt")
#: Parts of the ids of keys that only move the cursor: their commands appear only in search results.
_MOVES = ("grid.", "worst.", "detail.", ".layer-")


def commands(app: App[int], screen: Screen[object]) -> Iterable[SystemCommand]:
    """Yield a command for each key that works where the palette was opened, and one for the themes."""
    for owner in key_owners(type(app)):
        node = _instance(app, screen, owner)
        if node is None:
            continue
        for binding in bindings_of(owner):
            if binding.id in _WITHOUT_COMMAND:
                continue
            text = binding.tooltip or binding.description
            yield SystemCommand(
                f"{text[:1].upper()}{text[1:]}",
                f"{group_title(owner)}: {', '.join(current_keys(app, binding))}",
                _runner(app, binding.action, node),
                discover=not any(part in (binding.id or "") for part in _MOVES),
            )
    yield SystemCommand("Change the theme", "colors of the screen", app.action_change_theme)


def _instance(app: App[int], screen: Screen[object], owner: type[DOMNode]) -> DOMNode | None:
    """Return the node that performs the actions of a class, or None if there is none here."""
    # The focused widget is the one that had the focus when the palette was opened.
    return next((node for node in (app, screen, screen.focused) if isinstance(node, owner)), None)


def _runner(app: App[int], action: str, node: DOMNode) -> Callable[[], None]:
    def run() -> None:
        app.call_later(app.run_action, action, node)

    return run
