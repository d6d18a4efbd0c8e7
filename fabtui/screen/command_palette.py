"""The keys of the app as lists: for the key bar, the help screen and the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

KEY_NAMES = {
    "enter": "enter",
    "escape": "esc",
    "up": "up",
    "down": "down",
    "left": "left",
    "right": "right",
    "backspace": "backspace",
    "pageup": "page up",
    "pagedown": "page down",
}

#: What stands first in the key bar of the main screen, which has room for few.
_FIRST = (
    "main.pair",
    "main.zoom-in",
    "main.next-bad",
    "main.retest",
    "main.sweep",
    "main.watch",
    "main.pause",
    "main.filter",
    "main.jump",
    "main.sort",
)

_TESTING = frozenset({"main.retest", "main.sweep", "main.watch"})

#: What only moves about is found when it is searched for.
_MOVES = ("grid.", "worst.", "detail.", ".layer-")


def bindings_of(kind: type[DOMNode]) -> Iterable[Binding]:
    """Yield the bindings that a class itself has."""
    for binding in kind.__dict__.get("BINDINGS", []):
        if isinstance(binding, Binding):
            yield binding


def keys_of(app: FabricApp, binding: Binding) -> list[str]:
    """Return the names of the keys of a binding, those of the user's keymap where it has some."""
    keys = app._keymap.get(binding.id or "", binding.key).split(",")
    return [app.get_key_display(binding.with_key(key.strip())) for key in keys]


def binding_groups() -> list[tuple[str, type[DOMNode]]]:
    """Return the classes that have bindings, with their titles."""
    from fabtui.screen.app import FabricApp
    from fabtui.screen.grid.widget import GridView
    from fabtui.screen.views.confirm import ConfirmScreen
    from fabtui.screen.views.detail_base import DetailScreen
    from fabtui.screen.views.findings import FindingsScreen
    from fabtui.screen.views.jump import JumpScreen
    from fabtui.screen.views.main import MainScreen
    from fabtui.screen.views.main_zoom import ZoomingScreen
    from fabtui.screen.views.node.screen import NodeScreen
    from fabtui.screen.views.nodes import NodesScreen, NodesTable
    from fabtui.screen.views.pair.screen import PairScreen
    from fabtui.screen.views.preflight import PreflightScreen
    from fabtui.screen.widgets.event_log import LogView
    from fabtui.screen.widgets.prompt import Prompt
    from fabtui.screen.widgets.worst_pairs import WorstList

    return [
        ("everywhere", FabricApp),
        ("main screen", MainScreen),
        ("zoom and find", ZoomingScreen),
        ("grid", GridView),
        ("worst pairs", WorstList),
        ("event log", LogView),
        ("pair", PairScreen),
        ("node", NodeScreen),
        ("preflight", PreflightScreen),
        ("findings", FindingsScreen),
        ("nodes", NodesScreen),
        ("table of nodes", NodesTable),
        ("pair, node and help", DetailScreen),
        ("questions", ConfirmScreen),
        ("jump", JumpScreen),
        ("filter and go to", Prompt),
    ]


def shown_keys(app: FabricApp, screen: Screen[None]) -> list[tuple[str, str, str]]:
    """Return key, description and action of what the key bar of a screen shows, the most important first."""
    found: dict[str, tuple[str, str, str]] = {}
    kinds = [kind for kind in type(screen).__mro__ if issubclass(kind, DOMNode)]
    for kind in [*kinds, type(app), *type(app).__mro__]:
        if not issubclass(kind, DOMNode):
            continue
        own = issubclass(type(screen), kind)
        for binding in bindings_of(kind):
            action = binding.action if own else f"app.{binding.action}"
            if not binding.show or not binding.id or any(known == action for _, _, known in found.values()):
                continue
            word = _now(app, binding)
            found[binding.id] = (keys_of(app, binding)[0], word, action)
    if screen is not app.main:
        return list(found.values())
    if app.feed is not None and not app.feed.can_test:
        # They would only say that a recording cannot be tested.
        found = {name: one for name, one in found.items() if name not in _TESTING}
    if "main.zoom-in" in found and "main.zoom-out" in found:
        key, _, action = found["main.zoom-in"]
        found["main.zoom-in"] = (f"{key} {found.pop('main.zoom-out')[0]}", "zoom", action)
    first = [found.pop(name) for name in _FIRST if name in found]
    return [*first, *found.values(), ("arrows", "move", "")]


def _now(app: FabricApp, binding: Binding) -> str:
    """Return what a binding does as things stand."""
    if binding.action == "pause" and app.model.paused:
        return "go on"
    if binding.action == "watch" and app.model.watching:
        return "stop watching"
    return binding.description


def commands(app: FabricApp, screen: Screen[object]) -> Iterable[SystemCommand]:
    """Yield a command for everything that has a key where the palette was opened, and for the themes."""
    for title, kind in binding_groups():
        node = _node_of(app, screen, kind)
        if node is None:
            continue
        for binding in bindings_of(kind):
            if binding.action == "command_palette" or binding.id == "app.interrupt":
                continue
            words = binding.tooltip or binding.description
            yield SystemCommand(
                f"{words[:1].upper()}{words[1:]}",
                f"{title}: {', '.join(keys_of(app, binding))}",
                _doing(app, binding.action, node),
                discover=not any(part in (binding.id or "") for part in _MOVES),
            )
    yield SystemCommand("Change the theme", "the colours of the screen", app.action_change_theme)


def _node_of(app: FabricApp, screen: Screen[object], kind: type[DOMNode]) -> DOMNode | None:
    """Return what a class's actions are to be done by, or None where they are of no use."""
    if isinstance(app, kind):
        return app
    if isinstance(screen, kind):
        return screen
    # The widget that had the keys when the palette was opened.
    focused = screen.focused
    return focused if isinstance(focused, kind) else None


def _doing(app: FabricApp, action: str, node: DOMNode) -> Callable[[], None]:
    def do() -> None:
        app.call_later(app.run_action, action, node)

    return do
