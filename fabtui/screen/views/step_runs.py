"""Next steps that run on a node, after a question unless they are known to change nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.screen import Screen

from fabtui.diagnosis.knowledge.step_command import CannotRunError, StepCommand, step_command
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext, context_of
from fabtui.screen.keys import shortcut
from fabtui.screen.views.dialogs import Question

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed


class RunScreen(Question):
    """Question before a command that may change something: Enter, which opened it, does not answer yes."""

    BINDING_GROUP_TITLE = "Question before a command"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("y", "answer(True)", "run.yes", "run the command", "run", priority=True),
        shortcut("n,escape,enter,q", "answer(False)", "run.no", "do not run it", "no", priority=True),
    ]


def _possible(context: AppContext, text: str) -> tuple[Feed, StepCommand]:
    """Return what runs a next step, and its command; CannotRunError if it cannot be run now."""
    if (feed := context.feed) is None or not feed.can_test:
        raise CannotRunError("Nothing runs on the nodes of a recording.")
    command = step_command(context.model, text)
    if (record := context.model.gone(command.node)) is not None:
        raise CannotRunError(f"{command.node} is {record.state}: no connection is open.")
    if feed.read_only and not command.read_only:
        raise CannotRunError("This session is read-only, and this is not on the list of commands that only read.")
    if (run := context.model.commands.latest(text)) is not None and run.end is None:
        raise CannotRunError(f"It is still running on {command.node}.")
    return feed, command


def enter_text(context: AppContext, text: str) -> str:
    """Return what Enter does to a next step, for its hint."""
    try:
        _, command = _possible(context, text)
    except CannotRunError as error:
        return f"{one_line(str(error), 300)} y copies it."
    node = one_line(command.node, 60)
    return f"enter runs it on {node}" if command.read_only else f"enter asks, then runs it on {node}"


def run_step(screen: Screen[None], text: str) -> None:
    """Run a next step that the user has chosen; ask first unless it only reads, or report why it cannot be run."""
    context = context_of(screen)
    try:
        feed, command = _possible(context, text)
    except CannotRunError as error:
        context.notify(f"{one_line(str(error), 300)} y copies it.", severity="warning")
        return
    if command.read_only:
        _start(context, feed, command)
        return
    question = RunScreen(
        f"Run this on {one_line(command.node, 100)}?",
        f"{one_line(shlex.join(command.argv), 1000)}\n\nIt may change the node: it is not on the list of commands that "
        "only read. It runs as your user, without a shell.",
        "run it",
        "do not run it",
        plain=context.glyphs.plain,
    )
    screen.app.push_screen(question, lambda yes: _start(context, feed, command) if yes else None)


def _start(context: AppContext, feed: Feed, command: StepCommand) -> None:
    context.run_worker(_report(context, feed, command), "step", exit_on_error=False)


async def _report(context: AppContext, feed: Feed, command: StepCommand) -> None:
    try:
        await feed.run_step(command)
    except Exception as error:
        context.notify(f"the command failed: {one_line(f'{type(error).__name__}: {error}', 200)}", severity="warning")
    context.request_draw()
