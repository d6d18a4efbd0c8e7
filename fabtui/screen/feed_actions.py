"""What screens ask the feed for: tests, looks, a pause, watching. What cannot be done is told to the user."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import Seat

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp
    from fabtui.session.feeds.base import Feed

_NO_TEST = "what comes from a file cannot be tested again"


def testable(app: FabricApp) -> Feed | None:
    """Return the feed when it can test, and tell the user when it cannot."""
    if app.feed is None:
        app.tell("the session has not begun")
    elif not app.feed.can_test:
        app.tell(_NO_TEST)
    else:
        return app.feed
    return None


def retest(app: FabricApp, pairs: Sequence[tuple[Seat, Seat]]) -> None:
    """Test pairs again."""
    feed = testable(app)
    if feed is None:
        return
    names = app.model.endpoints
    wanted = [
        (str(names[a.number]), str(names[b.number]))
        for a, b in pairs
        if a.number is not None and b.number is not None and a.number != b.number
    ]
    if not wanted:
        app.tell("there is nothing to test between these two")
        return
    nodes = dict.fromkeys(seat.node for pair in pairs for seat in pair)
    gone = [f"{one_line(node, 60)} is {record.state}" for node in nodes if (record := app.model.gone(node)) is not None]
    if gone:
        app.tell(f"cannot be tested: {', '.join(gone)}; a node is reached again by starting fabtui again", bad=True)
        return
    app.tell("testing again: " + ", ".join(f"{one_line(a, 40)} > {one_line(b, 40)}" for a, b in wanted))
    _run(app, feed.retest(wanted), "retest")


def sweep(app: FabricApp) -> None:
    """Run the whole sweep again."""
    if (feed := testable(app)) is not None:
        app.tell("sweeping again")
        _run(app, feed.sweep(), "sweep")


def look_again(app: FabricApp, nodes: Sequence[str]) -> None:
    """Look at nodes again."""
    if (feed := testable(app)) is not None:
        app.tell("looking again: " + ", ".join(one_line(node, 60) for node in nodes))
        _run(app, feed.look(nodes), "look")


def watch(app: FabricApp) -> None:
    """Test pairs again in the background, or stop that."""
    if (feed := testable(app)) is not None:
        feed.watch(not app.model.watching)
        app.beat()


def pause(app: FabricApp) -> None:
    """Start no new test, or go on."""
    if app.feed is not None:
        app.feed.pause(not app.model.paused)
        app.beat()


def _run(app: FabricApp, asked: Awaitable[None], name: str) -> None:
    app.run_worker(_ended(app, asked), name=name, exit_on_error=False)


async def _ended(app: FabricApp, asked: Awaitable[None]) -> None:
    try:
        await asked
    except Exception as error:
        app.tell(f"the test ended with an error: {one_line(f'{type(error).__name__}: {error}', 200)}", bad=True)
    app.beat()
