"""The user's own keys: whether they are keys, whether what they are for exists, and where two of them clash."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import pairwise

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key
from textual.screen import ModalScreen, Screen

from fabtui.screen.command_palette import binding_groups, bindings_of

_MODIFIERS = ("ctrl", "shift", "alt", "meta", "super", "hyper")
#: What a terminal sends as another key.
_SAME = {"ctrl+m": "enter", "ctrl+i": "tab", "return": "enter"}


def _names() -> set[str]:
    printable = {_character_to_key(chr(code)) for code in range(33, 127)}
    named = {key.value for key in Keys if key.value.replace("+", "").replace("_", "").isalnum()}
    return printable | {name.rpartition("+")[2] for name in named}


def key_name(text: str) -> str | None:
    """Return a key by the name that Textual has for it, or None when there is no such key."""
    text = text.strip()
    head, _, last = text[:-1].rpartition("+") if text.endswith("+") else text.rpartition("+")
    if text.endswith("+"):
        last = "+"
    modifiers = head.split("+") if head else []
    if any(one not in _MODIFIERS for one in modifiers):
        return None
    name = _character_to_key(last) if len(last) == 1 and last.isprintable() else last
    if name not in _names():
        return None
    whole = "+".join([*modifiers, name])
    return _SAME.get(whole, whole)


def default_keys() -> list[tuple[str, str, str]]:
    """Return id, keys and meaning of every binding that can be given other keys."""
    return [(one.id, one.key, one.tooltip or one.description) for one in _bindings().values() if one.id]


def _bindings() -> dict[str, Binding]:
    return {one.id: one for _, kind in binding_groups() for one in bindings_of(kind) if one.id}


def check_keys(keys: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Check the user's keys.

    Args:
        keys: Keys, separated by commas, by the ids of bindings.

    Returns:
        Those that can be used, and what is wrong, each with the id it is about. Two bindings with one key are told,
        but not left out: the nearer one to the cursor has it, which may be what is wanted.
    """
    known = _bindings()
    usable: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    for name, text in keys.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else "; ? in the app, and fabtui config init, name them all"
            problems.append((name, f"there is no such binding{hint}"))
            continue
        found = [(part, key_name(part)) for part in text.split(",")]
        wrong = [part.strip() for part, key in found if key is None]
        if wrong:
            near = difflib.get_close_matches(wrong[0].rpartition("+")[2].lower(), sorted(_names()), 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else "; expected such as f5, ctrl+r, R or page_down"
            problems.append((name, f"there is no key {wrong[0][:40]!r}{hint}"))
            continue
        usable[name] = ",".join(key for _, key in found if key is not None)
    return usable, problems + _clashes(usable, known)


def _clashes(keys: Mapping[str, str], known: Mapping[str, Binding]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], str] = {}
    for context in _contexts():
        holders: dict[str, list[str]] = {}
        for binding in context:
            for key in keys.get(binding.id or "", binding.key).split(","):
                holders.setdefault(key_name(key) or key, []).append(binding.id or "")
        for key, names in holders.items():
            for one, other in pairwise(names):
                told, against = (one, other) if one in keys else (other, one)
                if told in keys and one != other:
                    found[told, against] = f"{key} is also the key of {against} ({known[against].tooltip})"
    return [(told, text) for (told, _), text in found.items()]


def _contexts() -> Iterable[list[Binding]]:
    """Yield the bindings that are there at the same time, those of the widget first, then of its screen, of the app."""
    kinds = [kind for _, kind in binding_groups()]
    app = next(kind for kind in kinds if not issubclass(kind, Screen) and kind.__name__ == "FabricApp")
    main = next(kind for kind in kinds if kind.__name__ == "MainScreen")
    for kind in kinds:
        if kind is app:
            continue
        own = [base for base in kind.__mro__ if issubclass(base, DOMNode)]
        screen = [] if issubclass(kind, Screen) else [main]
        # A question or the like lets no key through to what lies below.
        below = [] if issubclass(kind, ModalScreen) else [app]
        yield [binding for one in (*own, *screen, *below) for binding in bindings_of(one) if binding.id]
