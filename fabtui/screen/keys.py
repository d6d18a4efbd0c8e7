"""Key bindings: what a class declares, how keys are named on the screen, rows for tables of keys."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode

from fabtui.model.layers import Layer, key_layers

#: Names of keys on the screen, where Textual would draw an arrow.
KEY_NAMES = {name: name for name in ("enter", "up", "down", "left", "right", "backspace")}
KEY_NAMES |= {"escape": "esc", "pageup": "page up", "pagedown": "page down"}
#: Key of the main screen that runs the next step of the open finding.
RUN_KEY = "i"


class KeyRow(NamedTuple):
    """One key binding, for tables: ``id`` in the settings file, default keys, effect, class and its title in help."""

    id: str
    keys: str
    description: str
    owner: str
    group: str


@dataclass(frozen=True)
class Shortcut(Binding):
    """A binding with what the key bar and the main screen know about it."""

    #: What it needs to do anything: ``grid`` (in view), ``test`` (a session that can test), ``replay``.
    needs: tuple[Literal["grid", "test", "replay"], ...] = ()
    #: How the key bar treats it: ``first`` before all others, ``always`` on the narrowest terminal too. The rest stand
    #: in the order of their declaration.
    bar: tuple[Literal["first", "always"], ...] = ()


def shortcut(keys: str, action: str, name: str, effect: str, label: str = "", **options: Any) -> Shortcut:
    """Return a binding with its name in the settings file and its effect for the help; the key bar shows its label.

    ``options``: ``priority`` and ``group`` of `Binding`, and the attributes of `Shortcut`.
    """
    return Shortcut(keys, action, label, show=bool(label), id=name, tooltip=effect, **options)


def bindings_of(owner: type) -> list[Shortcut]:
    found = (binding for binding in owner.__dict__.get("BINDINGS", []) if isinstance(binding, Binding))
    return [
        one
        if isinstance(one, Shortcut)
        else Shortcut(**{field.name: getattr(one, field.name) for field in fields(one)})
        for one in found
    ]


def group_title(owner: type[DOMNode]) -> str:
    return owner.BINDING_GROUP_TITLE or owner.__name__


def keys_of(app: App[Any], binding: Binding) -> list[str]:
    """Return a binding's keys: from the user's keymap, else the defaults."""
    return [key.strip() for key in app._keymap.get(binding.id or "", binding.key).split(",")]


def current_keys(app: App[Any], binding: Binding) -> list[str]:
    return [app.get_key_display(binding.with_key(key)) for key in keys_of(app, binding)]


def layer_binding(layer: Layer) -> Binding:
    return shortcut(layer.spec.key or "", f"app.layer('{layer}')", f"main.layer-{layer}", f"show layer {layer}")


#: Keys of the views, in all views that have no other use for them.
VIEW_KEYS = (
    shortcut("g", "app.command_line('go ')", "main.jump", "go to an endpoint, a node or a pair by name", "go to"),
    shortcut("t", "app.view('nodes')", "main.nodes", "show all nodes with their problems in a table", "nodes"),
    shortcut("c", "app.view('nodes')", "main.connecting", "same as the key of the nodes table"),
    shortcut("P", "app.view('preflight')", "main.preflight", "show node problems and differences"),
    shortcut("n", "app.node(0)", "main.node", "show the node of the row", "node"),
    shortcut("N", "app.node(1)", "main.column-node", "show the node of the column"),
    shortcut("T", "app.view('topology')", "main.topology", "show domains, leaf switches, rails and nodes as a tree"),
    shortcut("H", "app.view('history')", "main.history", "show what earlier sessions saw of each component"),
    shortcut("B", "app.view('bisect')", "main.bisect", "search by halves for what makes a collective slow"),
    shortcut("J", "app.view('job')", "main.job", "show the job whose nodes these are"),
    shortcut("v", "app.list", "main.list", "switch between the list of worst pairs and the grid", "list"),
    shortcut("L", "app.log", "main.log", "enlarge or shrink the event log", "log"),
    *map(layer_binding, key_layers()),
)
