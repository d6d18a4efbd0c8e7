"""Run a session until it ends or a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from fabtui.session.feeds.base import Feed


def interrupted_code(number: signal.Signals) -> int:
    """Print which signal ended the session; return the exit code for it."""
    print(f"fabtui: interrupted by {number.name}; the results above are incomplete", file=sys.stderr)
    return 128 + number.value


async def run_until_signal(feed: Feed, watch: float = 0.0) -> signal.Signals | None:
    """Run the feed, watch for some seconds and close it; return the signal that ended it early, or None."""
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    async def run() -> None:
        await feed.run()
        if watch:
            feed.watch(True)
            # Without nodes there is nothing to watch.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(watch):
                    await feed.all_gone()

    running = asyncio.ensure_future(run())

    def end(number: signal.Signals) -> None:
        caught.append(number)
        running.cancel()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        await running
    except asyncio.CancelledError:
        if not caught:
            raise
    finally:
        # The handlers stay while the nodes are closed: a second Ctrl+C must not leave anything running there.
        await feed.close()
        for number in signals:
            loop.remove_signal_handler(number)
    return caught[0] if caught else None
