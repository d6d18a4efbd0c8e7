"""Keys that lead from any view to any other, and the answer to a key that has no effect in the current view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.binding import Binding
from textual.screen import ModalScreen, Screen

from fabtui.model.layers import Layer, key_layers
from fabtui.sanitize import one_line
from fabtui.screen.keys import KEY_NAMES, bindings_of, group_title, keys_of, shortcut
from fabtui.screen.terminal.internals import has_effect

if TYPE_CHECKING:
    from textual import events
    from textual.dom import DOMNode

    from fabtui.screen.views.main import MainScreen

#: Maximum number of views that the answer to a key without effect lists.
_MOST_PLACES = 2


def layer_binding(layer: Layer) -> Binding:
    return shortcut(layer.spec.key or "", f"app.layer('{layer}')", f"main.layer-{layer}", f"show layer {layer}")


#: Keys of the views, in all views that have no other use for them.
BINDINGS = (
    shortcut("g", "app.command_line('go ')", "main.jump", "go to an endpoint, a node or a pair by name", "go to"),
    shortcut("t", "app.view('nodes')", "main.nodes", "show all nodes with their problems in a table", "nodes"),
    shortcut("c", "app.view('nodes')", "main.connecting", "same as the key of the nodes table"),
    shortcut("P", "app.view('preflight')", "main.preflight", "show node problems and differences"),
    shortcut("n", "app.node(0)", "main.node", "show the node of the row", "node"),
    shortcut("N", "app.node(1)", "main.column-node", "show the node of the column"),
    shortcut("T", "app.view('topology')", "main.topology", "show domains, leaf switches, rails and nodes as a tree"),
    shortcut("H", "app.view('history')", "main.history", "show what earlier sessions saw of each component"),
    shortcut("J", "app.view('job')", "main.job", "show the job whose nodes these are"),
    shortcut("v", "app.list", "main.list", "switch between the list of worst pairs and the grid", "list"),
    shortcut("L", "app.log", "main.log", "enlarge or shrink the event log", "log"),
    *map(layer_binding, key_layers()),
)


def return_to(app: App[Any], screen: Screen[Any]) -> bool:
    """Leave all views above one; return False if it was the current one."""
    moved = False
    while app.screen is not screen and len(app.screen_stack) > 1:
        app.pop_screen()
        moved = True
    return moved


def open_once(app: App[Any], screen: Screen[Any]) -> None:
    """Open a view; one of its kind that is open already is closed with the views above it."""
    for number, one in enumerate(app.screen_stack):
        if type(one) is type(screen):
            return_to(app, app.screen_stack[number - 1])
            break
    app.push_screen(screen)


def show_list(app: App[Any], main: MainScreen) -> None:
    """Show the worst pairs; on the main screen, switch between them and the grid."""
    if not return_to(app, main) or main.view != "worst":
        main.action_list()


def show_log(app: App[Any], main: MainScreen) -> None:
    """Enlarge the event log; on the main screen, enlarge or shrink it."""
    if not return_to(app, main) or not main.log_is_large:
        main.action_log()


def explain_key(app: App[Any], event: events.Key, owners: list[type[DOMNode]]) -> None:
    """Notify the user that a key has no effect here, and of its effect in other views."""
    if isinstance(app.screen, ModalScreen) or has_effect(app, event.key):
        return
    places = [
        f"{group_title(owner).lower()}: {binding.tooltip}"
        for owner in owners
        if not issubclass(owner, ModalScreen)
        for binding in bindings_of(owner)
        if event.key in keys_of(app, binding)
    ]
    name = KEY_NAMES.get(event.key) or (event.character if event.is_printable else event.key) or event.key
    name = one_line(name, 20)
    if places:
        app.notify(f"{name} has no effect here. {'; '.join(places[:_MOST_PLACES])}")
    elif event.is_printable:
        app.notify(f"{name} has no effect: ? shows all keys")
