"""All key bindings of the screen, checks of the keys in the user's settings, and commands of the palette."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import pairwise
from typing import Any

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key
from textual.screen import ModalScreen, Screen

from fabtui.config.file import template
from fabtui.sanitize import one_line
from fabtui.screen.context import part
from fabtui.screen.keys import KEY_NAMES, KeyRow, bindings_of, current_keys, group_title, keys_of
from fabtui.screen.terminal.internals import has_effect

#: Classes with bindings, except the app, in the order of the help.
_OWNERS = (
    *("views.main:MainScreen", "grid.widget:GridView", "widgets.worst_pairs:WorstPairs"),
    *("widgets.event_log:EventLog", "views.pair:PairScreen", "views.node:NodeScreen"),
    *("views.detail_base:SteppedScreen", "views.findings:FindingsScreen", "views.nodes:NodesScreen"),
    *("views.nodes:NodesTable", "views.history:HistoryScreen", "views.history:HistoryTable"),
    "views.bisection:BisectionScreen",
    *("views.topology:TopologyScreen", "views.topology:TopologyTree", "views.help:HelpScreen"),
    *("views.detail_base:TitledScreen", "views.settings:SettingsScreen", "views.settings:SettingsTable"),
    *("views.detail_base:DetailScreen", "views.dialogs:ConfirmScreen", "views.dialogs:LoginQuestionScreen"),
    *("views.job:JobScreen", "views.job:JobsScreen", "views.job:JobsTable"),
    *("views.job:JobTable", "views.job:JobLogScreen", "views.detail_base:RunScreen", "views.jump:JumpScreen"),
    *("views.command_line:CommandLine", "widgets.prompt:Prompt", "start_app:StartApp"),
)
_MODIFIERS = ("ctrl", "shift", "alt", "meta", "super", "hyper")
#: Keys that terminals send as another key.
_SAME = {"ctrl+m": "enter", "ctrl+i": "tab", "return": "enter"}
#: Present ids of bindings by former ones, which settings files may still have.
_RENAMED = {"preflight.copy": "nodes.copy"}

AppClass = type[App[Any]]


def key_owners(app: AppClass) -> list[type[DOMNode]]:
    """Return all classes that declare bindings, in the order of the help."""
    return [app, *(part(f"screen.{name}") for name in _OWNERS)]


def key_rows(app: AppClass) -> list[KeyRow]:
    return [
        KeyRow(one.id or "", one.key, one.tooltip or one.description, owner.__name__, group_title(owner))
        for owner in key_owners(app)
        for one in bindings_of(owner)
    ]


def fresh_settings(app: AppClass) -> str:
    return template([(row.id, row.keys, row.description) for row in key_rows(app)])


@cache
def _names() -> set[str]:
    printable = {_character_to_key(chr(code)) for code in range(33, 127)}
    named = {key.value for key in Keys if key.value.replace("+", "").replace("_", "").isalnum()}
    return printable | {name.rpartition("+")[2] for name in named}


def key_name(text: str) -> str | None:
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
    combined = "+".join([*modifiers, name])
    return _SAME.get(combined, combined)


def check_keys(keys: Mapping[str, str], app: AppClass) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Check the user's keys (by binding id, separated by commas); return the usable ones, and problems with their ids.

    Two bindings with one key are reported but kept: the one nearer to the cursor has the key, which may be intended.
    """
    known = {binding.id: binding for owner in key_owners(app) for binding in bindings_of(owner) if binding.id}
    usable: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    for former, text in keys.items():
        name = _RENAMED.get(former, former)
        if name != former and name in keys:
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else "; the help (?) and `fabtui config init` list all names"
            problems.append((former, f"there is no such binding{hint}"))
            continue
        found = [(part, key_name(part)) for part in text.split(",")]
        wrong = [part.strip() for part, key in found if key is None]
        if wrong:
            near = difflib.get_close_matches(wrong[0].rpartition("+")[2].lower(), sorted(_names()), 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else "; expected for example f5, ctrl+r, R or page_down"
            problems.append((former, f"there is no key {wrong[0][:40]!r}{hint}"))
            continue
        usable[name] = ",".join(key for _, key in found if key is not None)
    return usable, problems + _clashes(usable, known, app)


def _clashes(keys: Mapping[str, str], known: Mapping[str, Binding], app: AppClass) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], str] = {}
    # Without keys of the user, there is nothing to look for.
    for context in _contexts(app) if keys else ():
        holders: dict[str, list[str]] = {}
        for binding in context:
            for key in keys.get(binding.id or "", binding.key).split(","):
                holders.setdefault(key_name(key) or key, []).append(binding.id or "")
        for key, names in holders.items():
            for one, other in pairwise(names):
                name, against = (one, other) if one in keys else (other, one)
                by_default = all(key in known[name].key.split(",") for name in (one, other))
                if name in keys and one != other and not by_default:
                    found[name, against] = f"{key} is also the key of {against} ({known[against].tooltip})"
    return [(name, text) for (name, _), text in found.items()]


def _contexts(app: AppClass) -> Iterable[list[Binding]]:
    """Yield the bindings that are active together: first of a widget, then of its screen, then of the app."""
    owners = key_owners(app)[1:]
    for owner in owners:
        classes = [*owner.__mro__, *([] if issubclass(owner, (Screen, App)) else owners[:1])]
        # A modal screen passes no key on, and the start screen is an app.
        classes += [] if issubclass(owner, (ModalScreen, App)) else [app]
        yield [binding for one in classes for binding in bindings_of(one) if binding.id]


#: Bindings without a command: the palette itself, and second keys for quit and for the nodes.
_WITHOUT_COMMAND = ("app.commands", "app.interrupt", "main.connecting", "main.preflight")
#: Parts of the ids of keys that only move the cursor: their commands appear only in search results.
_MOVES = ("grid.", "worst.", "detail.", ".layer-")


def commands(app: App[int], screen: Screen[object]) -> Iterable[SystemCommand]:
    for owner in key_owners(type(app)):
        # The focused widget is the one that had the focus when the palette was opened.
        node = next((node for node in (app, screen, screen.focused) if isinstance(node, owner)), None)
        if node is None:
            continue
        for binding in bindings_of(owner):
            needs, feed = getattr(binding, "needs", ()), getattr(app, "feed", None)
            idle = feed is not None and ("replay" if feed.can_test else "test") in needs
            if binding.id in _WITHOUT_COMMAND or idle:
                continue
            text = binding.tooltip or binding.description
            yield SystemCommand(
                f"{text[:1].upper()}{text[1:]}  ({', '.join(current_keys(app, binding))})",
                # A second line.
                "",
                partial(app.call_later, app.run_action, binding.action, node),
                discover=not any(part in (binding.id or "") for part in _MOVES),
            )
    yield SystemCommand("Change the theme", "", app.action_change_theme)


#: Maximum number of views that the answer to a key without effect lists.
_MOST_PLACES = 2


def explain_key(app: App[Any], event: events.Key, owners: list[type[DOMNode]]) -> None:
    """Notify the user that a key has no effect here, and of its effect in other views."""
    if isinstance(app.screen, ModalScreen) or has_effect(app, event.key):
        return
    places = [
        f"{group_title(owner).lower()}: {binding.tooltip}"
        for owner in owners
        if not issubclass(owner, (ModalScreen, App))
        for binding in bindings_of(owner)
        if event.key in keys_of(app, binding)
    ]
    name = KEY_NAMES.get(event.key) or (event.character if event.is_printable else event.key) or event.key
    name = one_line(name, 20)
    if places:
        app.notify(f"{name} has no effect here. {'; '.join(places[:_MOST_PLACES])}")
    elif event.is_printable:
        app.notify(f"{name} has no effect: ? shows all keys")
