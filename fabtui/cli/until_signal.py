"""Run a session until it ends or a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator

from fabtui.session.feeds.base import Feed

Ended = asyncio.Future[signal.Signals]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupted_code(number: signal.Signals) -> int:
    """Print which signal ended the session; return the exit code for it."""
    print(f"fabtui: interrupted by {number.name}; the results above are incomplete", file=sys.stderr)
    return 128 + number.value


@contextlib.contextmanager
def caught_signals() -> Iterator[Ended]:
    """Yield what will hold the first signal that would end this process; it is not ended by one meanwhile."""
    loop = asyncio.get_running_loop()
    ended: Ended = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, note, number)
    try:
        yield ended
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def run_until_signal(feed: Feed, watch: float = 0.0) -> signal.Signals | None:
    """Run the feed, watch for some seconds and close it; return the signal that ended it early, or None."""
    with caught_signals() as ended:
        return await run_until(ended, feed, watch=watch)


async def run_until(
    ended: Ended, feed: Feed, *, watch: float = 0.0, budget: float | None = None
) -> signal.Signals | None:
    """Do the same with signals that the caller catches; signals are caught while the nodes are closed, too.

    Raises:
        TimeoutError: The first sweep took longer than ``budget`` seconds.
    """

    async def run() -> None:
        async with asyncio.timeout(budget):
            await feed.run()
        if watch:
            feed.watch(True)
            # Without nodes there is nothing to watch.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(watch):
                    await feed.all_gone()

    running = asyncio.ensure_future(run())
    ended.add_done_callback(lambda _: running.cancel())
    try:
        await running
    except asyncio.CancelledError:
        if not ended.done():
            raise
    finally:
        # A second Ctrl+C must not leave anything running there.
        await feed.close()
    return ended.result() if ended.done() else None


async def sleep_until(ended: Ended, seconds: float) -> signal.Signals | None:
    """Wait; return the signal that ended it early, or None."""
    await asyncio.wait({ended}, timeout=max(0.0, seconds))
    return ended.result() if ended.done() else None
