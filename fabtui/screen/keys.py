"""Key bindings: what a class declares, how keys are named on the screen, rows for tables of keys."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode

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
