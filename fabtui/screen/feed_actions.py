"""Requests to the feed: tests, probes, pause, watch. Refusals and errors become notifications."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import Seat

if TYPE_CHECKING:
    from fabtui.model.events import Experiment
    from fabtui.session.feeds.base import Feed


def testable(context: AppContext, refused: str) -> Feed | None:
    """Return the feed if it can test, else notify the user; ``refused`` is why a read-only session does not do it."""
    if context.feed is not None and context.feed.can_test:
        if not (refused and context.feed.read_only):
            return context.feed
        context.notify(f"this session is read-only (--read-only): {refused}", severity="warning")
        return None
    started = context.feed is not None
    context.notify("a recording cannot be tested again" if started else "the session has not started yet")
    return None


def retest(context: AppContext, pairs: Sequence[tuple[Seat, Seat]]) -> None:
    """Test pairs again."""
    if (feed := testable(context, "no pair is tested")) is None:
        return
    names = context.model.endpoints
    wanted = [
        (str(names[a.number]), str(names[b.number]))
        for a, b in pairs
        if a.number is not None and b.number is not None and a.number != b.number
    ]
    if not wanted:
        context.notify("this cell has no pair to test")
        return
    nodes = dict.fromkeys(seat.node for pair in pairs for seat in pair)
    gone = [f"{one_line(node, 60)} is {record.state}" for node in nodes if (record := context.model.gone(node))]
    if gone:
        context.notify(f"cannot be tested: {', '.join(gone)}; restart fabtui to reconnect", severity="warning")
        return
    context.notify("testing again: " + ", ".join(f"{one_line(a, 40)} > {one_line(b, 40)}" for a, b in wanted))
    context.run_worker(report(context, feed.retest(wanted)), "retest", exit_on_error=False)


def confirm(context: AppContext, experiments: Sequence[Experiment]) -> None:
    """Run experiments about a finding."""
    if (feed := testable(context, "no experiment is run")) is None:
        return
    if context.model.phase.name == "confirm":
        context.notify("experiments are running already")
        return
    trials = [one.env_text or one.trial for one in experiments if not one.problem]
    context.notify("experiments about this finding: " + ", ".join(trials))
    context.run_worker(report(context, feed.confirm(experiments)), "confirm", exit_on_error=False)


def sweep(context: AppContext) -> None:
    """Run the sweep again."""
    if (feed := testable(context, "")) is not None:
        context.notify("running the sweep again")
        context.run_worker(report(context, feed.sweep()), "sweep", exit_on_error=False)


def probe_again(context: AppContext, nodes: Sequence[str]) -> None:
    """Probe nodes again."""
    if (feed := testable(context, "")) is not None:
        context.notify("probing again: " + ", ".join(one_line(node, 60) for node in nodes))
        context.run_worker(report(context, feed.look(nodes)), "look", exit_on_error=False)


def watch(context: AppContext) -> None:
    """Start or stop testing all pairs in the background."""
    if (feed := testable(context, "watching would test pairs")) is not None:
        feed.watch(not context.model.watching)
        context.request_draw()


def pause(context: AppContext) -> None:
    """Pause or resume: a paused session starts no test."""
    if context.feed is not None:
        context.feed.pause(not context.model.paused)
        context.request_draw()


async def report(context: AppContext, request: Coroutine[Any, Any, None]) -> None:
    """Wait for a request, and notify the user if it fails."""
    try:
        await request
    except Exception as error:
        text = one_line(f"{type(error).__name__}: {error}", 200)
        context.notify(f"this failed: {text}", severity="warning")
    context.request_draw()
