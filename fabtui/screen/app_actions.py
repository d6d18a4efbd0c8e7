"""Actions of the app in any view: views by name, keys that lead to them, a login on a node, the grid as pictures."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App, SuspendNotSupported
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen

from fabtui.atomic_write import write_bytes
from fabtui.diagnosis.knowledge.next_commands import login_words
from fabtui.errors import InputError
from fabtui.model.layers import Layer, key_layers
from fabtui.pictures.drawing import png, svg
from fabtui.pictures.heatmap import matrix_scene
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext, ViewName, context_of
from fabtui.screen.keys import KEY_NAMES, bindings_of, group_title, keys_of, shortcut
from fabtui.screen.terminal.internals import has_effect
from fabtui.screen.views.findings import FindingsScreen
from fabtui.screen.views.history import HistoryScreen
from fabtui.screen.views.job import JobScreen, JobsScreen, RanksScreen
from fabtui.screen.views.main import MainScreen
from fabtui.screen.views.node import NodeScreen
from fabtui.screen.views.nodes import NodesScreen
from fabtui.screen.views.pair import PairScreen
from fabtui.screen.views.settings import SettingsScreen
from fabtui.screen.views.topology import TopologyScreen
from fabtui.session.feeds.base import Feed

#: Views of the session, by name, that need nothing but the app.
VIEWS: dict[ViewName, type[Screen[None]]] = {
    "nodes": NodesScreen,
    "preflight": NodesScreen,
    "findings": FindingsScreen,
    "topology": TopologyScreen,
    "settings": SettingsScreen,
    "history": HistoryScreen,
}
#: Exit status of ssh for its own errors; any other is the status of the last command in the login.
_SSH_FAILED = 255


def view_named(context: AppContext, feed: Feed, name: ViewName) -> Screen[None] | None:
    """Return a view of the session; None, with a notification, if there is nothing to show."""
    if name == "job" and context.job() is not None:
        return RanksScreen()
    if name not in ("job", "logs", "jobs"):
        return VIEWS[name]()
    if name != "jobs" and (monitor := feed.job_monitor()) is not None:
        return JobScreen(monitor)
    if feed.can_test:
        return JobsScreen()
    # The jobs of this machine have nothing to do with those of a recording.
    context.notify("this recording has no job" if name == "job" else "this recording has no logs of a job")
    return None


def node_under_cursor(screen: Screen[Any]) -> str | None:
    """Return the node that a view is about: of a pair the one that sends."""
    match screen:
        case MainScreen():
            entries = screen.cursor_entries()
            return None if entries is None else entries[0].node
        case PairScreen():
            return screen.source.node
        case NodeScreen():
            return screen.node
        case NodesScreen():
            return screen.table.chosen
        case FindingsScreen() | HistoryScreen():
            return screen.node
    return None


async def login(app: App[int]) -> None:
    """Open a login on the node under the cursor, and return to the app when it ends."""
    context = context_of(app.screen)
    if context.feed is None or not context.feed.can_test:
        context.notify("the nodes of a recording may no longer exist: no login", severity="warning")
        return
    node = node_under_cursor(app.screen)
    if node is None or node not in context.model.nodes:
        context.notify("there is no node under the cursor")
        return
    words = login_words(context.model, node) or [os.environ.get("SHELL") or "/bin/sh"]
    try:
        status = await _without_app(app, words)
    except SuspendNotSupported:
        why = "a browser has no terminal for a login" if app.is_web else "this terminal cannot be handed to a login"
        context.notify(f"{why}; type elsewhere: {one_line(shlex.join(words), 300)}")
    except OSError as error:
        context.notify(f"{words[0]} cannot be run: {one_line(str(error), 200)}", severity="warning")
    else:
        if status == _SSH_FAILED:
            context.notify(f"{one_line(shlex.join(words), 200)} ended with status {status}", severity="warning")


async def _without_app(app: App[int], words: list[str]) -> int:
    """Run a program in the terminal of the suspended app; the event loop and the links to the nodes keep running."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    # Frames would fill the queue of a driver that does not write.
    with app.batch_update(), app.suspend():
        # Ctrl+C before ssh has the terminal is meant for ssh.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        try:
            sys.stderr.write(
                f"{one_line(shlex.join(words), 300)}    (fabtui keeps running; its screen returns at the end)\n"
            )
            sys.stderr.flush()
            process = await asyncio.create_subprocess_exec(*words, cwd=Path.home())
            return await process.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)


async def write_picture(main: MainScreen) -> None:
    """Write the layer that the grid shows, with the endpoints and in the order of its columns, and report the files."""
    context, layer = context_of(main), main.source.layer
    shown = main.view_state.shown()
    entries = dict.fromkeys(entry.number for axis in (shown.columns, shown.rows) for entry in axis.entries)
    numbers = [number for number in entries if number is not None]
    if not numbers:
        context.notify("no node has reported endpoints yet: there is no grid to draw", severity="warning")
        return
    stem = time.strftime(f"fabtui-%Y%m%dT%H%M%SZ-{layer}", time.gmtime())
    whole = shown.axis.of_nodes_alone

    def write() -> None:
        scene = matrix_scene(
            context.model, layer, "value" if layer.spec.better else "verdict", None if whole else numbers
        )
        for suffix, data in ((".svg", svg(scene).encode()), (".png", png(scene))):
            write_bytes(Path(stem + suffix), data)

    await write_and_notify(context, "picture", write, f"pictures written to {stem}.svg and .png")


async def write_and_notify(context: AppContext, what: str, write: Callable[[], object], done: str) -> bool:
    """Write a file in a thread, and notify the user of the outcome; return True if it was written."""
    try:
        await asyncio.to_thread(write)
    except (InputError, OSError) as error:
        context.notify(f"the {what} could not be written: {one_line(str(error), 300)}", severity="warning")
    except RuntimeError:
        # A dictionary grew while the other thread went through it.
        context.notify(f"results came in while fabtui wrote the {what}; try again, or pause first", severity="warning")
    else:
        context.notify(done)
        return True
    return False


#: Maximum number of views that the answer to a key without effect lists.
_MOST_PLACES = 2


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
    shortcut("J", "app.view('job')", "main.job", "show the job whose nodes these are"),
    shortcut("v", "app.list", "main.list", "switch between the list of worst pairs and the grid", "list"),
    shortcut("L", "app.log", "main.log", "enlarge or shrink the event log", "log"),
    *map(layer_binding, key_layers()),
)


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
