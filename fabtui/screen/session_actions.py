"""Requests to the feed: tests, probes, pause, watch, control of a replay. Errors become notifications."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from textual.binding import Binding

from fabtui.errors import InputError
from fabtui.model.events import Experiment
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.keys import shortcut
from fabtui.session.feeds.base import Feed, Playback


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


def retest(context: AppContext, pairs: Sequence[tuple[AxisEntry, AxisEntry]]) -> None:
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
    nodes = dict.fromkeys(entry.node for pair in pairs for entry in pair)
    gone = [f"{one_line(node, 60)} is {record.state}" for node in nodes if (record := context.model.gone(node))]
    if gone:
        context.notify(f"cannot be tested: {', '.join(gone)}; restart fabtui to reconnect", severity="warning")
        return
    context.notify("testing again: " + ", ".join(f"{one_line(a, 40)} > {one_line(b, 40)}" for a, b in wanted))
    context.run_worker(report(context, feed.retest(wanted)), "retest", exit_on_error=False)


def confirm(context: AppContext, experiments: Sequence[Experiment]) -> None:
    if (feed := testable(context, "no experiment is run")) is None:
        return
    if context.model.phase.name == "confirm":
        context.notify("experiments are running already")
        return
    named = [one.env_text or one.trial for one in experiments if not one.problem]
    context.notify("testing this finding: " + ", then ".join(named))
    context.run_worker(report(context, feed.confirm(experiments)), "confirm", exit_on_error=False)


def bisect(context: AppContext) -> None:
    if (feed := testable(context, "nothing is searched")) is None:
        return
    if context.model.phase.name != "done":
        context.notify("a search can start when this sweep is over")
        return
    context.run_worker(report(context, feed.bisect()), "bisect", exit_on_error=False)


def sweep(context: AppContext) -> None:
    if (feed := testable(context, "")) is not None:
        context.notify("running the sweep again")
        context.run_worker(report(context, feed.sweep()), "sweep", exit_on_error=False)


def probe_again(context: AppContext, nodes: Sequence[str]) -> None:
    if (feed := testable(context, "")) is not None:
        context.notify("probing again: " + ", ".join(one_line(node, 60) for node in nodes))
        context.run_worker(report(context, feed.look(nodes)), "look", exit_on_error=False)


async def ask_job(context: AppContext) -> None:
    """Ask the nodes for what is not read each second: stacks, dumps, kernel reports; the verdict then includes it."""
    if context.feed is None or not context.feed.can_test:
        context.notify("the nodes of a recording cannot be asked", severity="warning")
        return
    context.notify("asking the nodes for stacks, dumps and kernel reports")
    await report(context, context.feed.ask_job())


def watch(context: AppContext) -> None:
    if (feed := testable(context, "watching would test pairs")) is not None:
        feed.watch(not context.model.watching)
        context.request_draw()


def pause(context: AppContext) -> None:
    """Pause or resume: a paused session starts no test."""
    if context.feed is not None:
        context.feed.pause(not context.model.paused)
        context.request_draw()


async def report(context: AppContext, request: Coroutine[Any, Any, None]) -> None:
    try:
        await request
    except Exception as error:
        text = one_line(f"{type(error).__name__}: {error}", 200)
        context.notify(f"this failed: {text}", severity="warning")
    context.request_draw()


#: Share of the recording that one key press goes over, and seconds while its length is not known.
_STEP, _STEP_SECONDS = 0.05, 10.0
#: Range of speeds of the keys.
_SLOWEST, _FASTEST = 1 / 8, 1024.0
_TIME = re.compile(r"([+-]?)(?:(\d{1,4}):)?(?:(\d{1,4}):)?(\d{1,8})(%?)")
SEEK_HINT = "a percentage (50 or 50%), a time (1:30), or seconds from here (+30, -0:10)"
_SEEK = Binding.Group("seek")
_key = partial(shortcut, needs=("replay",))

#: Keys of a replay.
BINDINGS = (
    _key("comma", "app.seek(-1)", "replay.back", "replay: back by 5 %", "back", group=_SEEK),
    _key("full_stop", "app.seek(1)", "replay.forward", "replay: forward by 5 %", "forward", group=_SEEK),
    _key(
        "right_parenthesis", "app.seek_turn(1)", "replay.next-change", "replay: next change of a verdict", "next change"
    ),
    _key("left_parenthesis", "app.seek_turn(-1)", "replay.previous-change", "replay: previous change of a verdict"),
    _key("percent_sign", "seek_to", "replay.seek", "replay: go to a percentage or a time"),
    _key("right_curly_bracket", "app.speed(1)", "replay.faster", "replay: twice the speed"),
    _key("left_curly_bracket", "app.speed(-1)", "replay.slower", "replay: half the speed"),
)


def replay_of(context: AppContext) -> tuple[Feed, Playback] | None:
    feed = context.feed
    if feed is not None and (state := feed.playback) is not None:
        return feed, state
    context.notify("only a replay can go back and forth in time")
    return None


def seek_by(context: AppContext, steps: int) -> None:
    if (found := replay_of(context)) is not None:
        feed, state = found
        step = state.length * _STEP if state.length else _STEP_SECONDS
        feed.seek(max(0.0, state.position + steps * step))


def seek_to(context: AppContext, text: str) -> None:
    """Go to the place that a user has typed; `InputError` if it is not one in a recording."""
    match = _TIME.fullmatch(text.replace(" ", ""))
    found = replay_of(context)
    share = match is not None and not match[1] and not match[2]
    if match is None or found is None or (match[5] and not share) or (share and int(match[4]) > 100):
        raise InputError(f"{one_line(text, 40)!r} is not a place in a recording; expected {SEEK_HINT}")
    feed, state = found
    value = float(match[4])
    if share:
        feed.seek(value / 100 * (state.length or 0.0))
        return
    first, second = (int(part) for part in (match[2] or 0, match[3] or 0))
    value += 60 * (first * 60 + second if match[3] else first)
    feed.seek(max(0.0, state.position + value * (-1 if match[1] == "-" else 1)) if match[1] else value)


def seek_turn(context: AppContext, step: int) -> None:
    if (found := replay_of(context)) is not None:
        context.run_worker(_show_turn(context, found[0], step), "turn", exit_on_error=False)


async def _show_turn(context: AppContext, feed: Feed, step: int) -> None:
    turn = await feed.seek_turn(step)
    if turn is None:
        context.notify(f"no {'later' if step > 0 else 'earlier'} change of a verdict in this recording")
        return
    ends = [feed.model.table.number(name) for name in (turn.src, turn.dst)]
    if None not in ends:
        context.show_pair(*(end for end in ends if end is not None))
    context.notify(one_line(turn.text, 200))


def change_speed(context: AppContext, step: int) -> None:
    if (found := replay_of(context)) is not None:
        feed, state = found
        speed = _FASTEST if state.speed is None else state.speed * 2.0**step
        feed.play_at(min(_FASTEST, max(_SLOWEST, speed)))
