"""Feeds without nodes: imported files all at once, and a recording at any speed."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from fabtui.errors import InputError
from fabtui.history.query import past_of
from fabtui.model.events import Event, LogEntry, SessionResumed, SessionStart
from fabtui.model.recording import apply_recorded, last_time, read_events
from fabtui.model.records import FindingPast
from fabtui.model.session_model import Model
from fabtui.model.verdict_changes import VerdictChange
from fabtui.session.feeds.base import Feed, Playback

#: Maximum distance (s of replay time) of events that are applied together.
_TICK = 0.03
#: Time (s) after which a step of a seek ends, and the pause (s) after it, in which keys are taken.
_STEP, _PAUSE = 0.004, 0.001
#: Maximum time (s) between two notifications while no event is due, and minimum time between those of a seek.
_POSITION_INTERVAL = 0.5


class StillFeed(Feed):
    """Feed that applies all events at once; each one fits the model. The badges name their origin."""

    can_test = False

    def __init__(self, events: Iterable[Event], *badges: str) -> None:
        self.model = Model()
        self.badges = list(badges)
        self._events = events
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def run(self) -> None:
        for event in self._events:
            self.model.apply(event)
        self._notify()

    def _notify(self) -> None:
        for changed in self._listeners:
            changed()


class ReplayFeed(StillFeed):
    """Feed that plays a recording; ``speed`` in recorded seconds per second, None: as fast as possible.

    A seek forward applies the events up to a time at once. A seek back builds a new model from the start, in
    short steps. It replaces `model` once it has reached the time.
    """

    def __init__(self, path: Path, speed: float | None = None) -> None:
        # Position and name of the recording are on the screen as well.
        super().__init__(())
        self._path = path
        self._speed = speed
        self._paused = self._closed = False
        #: Set when a wait for the next event has to be thought over.
        self._wake = asyncio.Event()
        #: Time (epoch seconds) up to which events are applied at once, and the number of turns that ends this sooner.
        self._target: float | None = None
        self._turns: float = math.inf
        #: Model that events are applied to: `model`, or its successor after a seek back.
        self._building = self.model
        #: Sessions of the site before the recorded one; None until the first event, and without any.
        self._past: FindingPast | None = None
        self._restart = False
        self._playing: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        #: Recorded time at a time of the event loop, and recorded time of the event that comes next.
        self._anchor = (0.0, 0.0)
        self._next = 0.0
        self._end: float | None = None
        #: When a step ended, and when the screen was notified of one.
        self._rested = self._shown = 0.0

    @property
    def playback(self) -> Playback | None:
        started = self._building.started
        if not started:
            return None
        length = None if self._end is None else self._end - started
        reached = None if self._target is None else self._building.now - started
        return Playback(self._now() - started, length, self._speed, reached)

    def _now(self) -> float:
        """Return the recorded time that is shown; during a seek the time that it goes to."""
        if self._target is not None:
            return self._target if math.isfinite(self._target) else self._building.now
        recorded, at = self._anchor
        if self._paused or self._speed is None:
            return max(recorded, self._building.now)
        return min(recorded + (asyncio.get_running_loop().time() - at) * self._speed, self._next)

    def _hold(self, recorded: float) -> None:
        self._anchor = (recorded, asyncio.get_running_loop().time())
        self._wake.set()

    def pause(self, on: bool) -> None:
        self._hold(self._now())
        self.model.paused = self._paused = on
        self._notify()

    def play_at(self, speed: float) -> None:
        self._hold(self._now())
        self._speed = speed
        self._notify()

    def seek(self, position: float) -> None:
        started = self._building.started
        if started:
            target = started + max(0.0, position)
            self._go_to(target if self._end is None else min(target, self._end))

    async def seek_turn(self, step: int) -> VerdictChange | None:
        turns = self._building.turns
        if step < 0:
            # While it plays, the latest change is soon a moment ago.
            before = self._now() - (0.0 if self._paused or self._ended else self._speed or 0.0)
            earlier = next((turn.time for turn in reversed(turns.latest) if turn.time < before), None)
            if earlier is None:
                return None
            self._go_to(earlier)
        elif self._ended:
            return None
        else:
            known = turns.total
            self._go_to(math.inf, known + 1)
        await self._arrived.wait()
        turns = self.model.turns
        return turns.latest[-1] if turns.latest and (step < 0 or turns.total > known) else None

    @property
    def _ended(self) -> bool:
        return self._playing is None or self._playing.done()

    def _go_to(self, target: float, turns: float = math.inf) -> None:
        self._target, self._turns, self.seeking = target, turns, True
        self._arrived.clear()
        # At full speed it would be at the end again at once.
        self._speed = self._speed or 1.0
        back = target < self._building.now
        self._restart = self._restart or back
        if self._ended:
            if not back:
                self._arrive()
                return
            self._playing = asyncio.create_task(self._play_all())
        self._wake.set()
        self._notify()

    def _arrive(self) -> None:
        """Show the model that a seek has built, and continue at the normal pace."""
        position = min(self._now(), self._end or math.inf)
        self._target, self.seeking = None, False
        self._building.paused = self._paused
        self.model = self._building
        self._hold(position)
        self._arrived.set()
        self._notify()

    async def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def run(self) -> None:
        """Play to the end, or to the damaged place of the recording, and report the damage.

        Raises:
            InputError: The file is not a recording.
        """
        measuring = asyncio.create_task(self._measure())
        self._playing = asyncio.create_task(self._play_all())
        try:
            await self._playing
        finally:
            await measuring

    async def _measure(self) -> None:
        self._end = await asyncio.to_thread(last_time, self._path)
        self._notify()

    async def _play_all(self) -> None:
        """Play to the end, from the start again after each seek back."""
        while not self._closed:
            if self._restart:
                self._restart = False
                self._building = Model()
            try:
                await self._play()
            except InputError as damage:
                if not self.model.started:
                    raise
                if not self._building.started:
                    # It could be read before, so the file is gone.
                    self._building = self.model
                self.badges[:] = ["DAMAGED, SHOWN IN PART"]
                text = f"{damage}; what follows is left out"
                self._building.apply(LogEntry(level="error", text=text, time=self._building.now))
            if not self._restart:
                break
        # Nobody retests a suspect after that.
        self._building.broken_off = self._building.exit_code is None
        self._target = self._building.now
        self._arrive()

    async def _play(self) -> None:
        self._building.past = self._past
        for event in read_events(self._path):
            self._next = event.time
            # Nobody wants to wait for as long as a session was interrupted.
            if not self._building.started or isinstance(event, SessionResumed):
                self._hold(event.time)
            if not await self._is_due(event.time):
                return
            apply_recorded(self._building, event, self._path)
            if isinstance(event, SessionStart) and self._past is None:
                # What is later than the recording is not known in it.
                self._building.past = self._past = await asyncio.to_thread(past_of, self._building)
            # The recorded session's pause is not the replay's.
            self._building.paused = self._paused

    async def _is_due(self, time: float) -> bool:
        """Wait until an event is due; return False if it is no longer wanted."""
        while not (self._closed or self._restart):
            self._wake.clear()
            if self._target is not None:
                if time <= self._target and self._building.turns.total < self._turns:
                    return await self._rest()
                self._arrive()
            elif self._paused:
                await self._wake.wait()
            elif self._speed is None:
                return await self._rest()
            else:
                recorded, at = self._anchor
                wait = at + (time - recorded) / self._speed - asyncio.get_running_loop().time()
                if wait <= _TICK:
                    return await self._rest()
                self._notify()
                with contextlib.suppress(TimeoutError):
                    # The position is shown during long waits, too.
                    await asyncio.wait_for(self._wake.wait(), min(wait, _POSITION_INTERVAL))
        return False

    async def _rest(self) -> bool:
        """Let the screen draw and take keys, if it has waited for a step; return False if the event is not wanted."""
        loop = asyncio.get_running_loop()
        if (now := loop.time()) - self._rested > _STEP:
            # A seek shows how far it has come now and then, not each step on its way.
            if self._target is None or now - self._shown > _POSITION_INTERVAL:
                self._shown = now
                self._notify()
            await asyncio.sleep(_PAUSE)
            self._rested = loop.time()
        return not (self._closed or self._restart)
