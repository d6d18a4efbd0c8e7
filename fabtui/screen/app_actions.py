"""Actions of the app in any view: a login on a node, results as CSV, a report, the grid as pictures."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from textual.app import App, SuspendNotSupported

from fabtui.atomic_write import write_bytes, write_text
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.knowledge.next_commands import login_words
from fabtui.errors import InputError
from fabtui.export.csv import write_csv
from fabtui.pictures.drawing import png, svg
from fabtui.pictures.heatmap import matrix_scene
from fabtui.report.contents import document
from fabtui.report.markdown import document_text
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext, context_of
from fabtui.screen.views.main import MainScreen

#: Exit status of ssh for its own errors; any other is the status of the last command in the login.
_SSH_FAILED = 255


async def login(app: App[int]) -> None:
    context = context_of(app.screen)
    if context.feed is None or not context.feed.can_test:
        context.notify("the nodes of a recording may no longer exist: no login", severity="warning")
        return
    node = getattr(app.screen, "node", None)
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


async def write_rows(context: AppContext) -> None:
    path = context.settings.csv or Path(time.strftime("fabtui-%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    try:
        rows = await asyncio.to_thread(write_csv, context.model, path)
    except (InputError, OSError) as error:
        context.notify(f"the CSV could not be written: {one_line(str(error), 300)}", severity="warning")
    else:
        context.notify(f"{rows} rows written to {one_line(str(path), 300)}")


async def write_report(context: AppContext, path: Path) -> None:
    context.notify("writing the report ...")
    done = f"report written to {one_line(str(path), 300)}"

    def write() -> None:
        write_text(path, document_text(document(diagnose(context.model), ()), path))

    await write_and_notify(context, "report", write, done)


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
