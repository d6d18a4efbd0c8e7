"""Base of a session for front ends, live or replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fabtui.model.events import Experiment
from fabtui.model.session_model import Model
from fabtui.model.verdict_changes import VerdictChange

if TYPE_CHECKING:
    from fabtui.diagnosis.knowledge.step_command import StepCommand
    from fabtui.session.running_job.monitor import JobMonitor
    from fabtui.transport.login_answers import Ask


class Playback(NamedTuple):
    """State of a replay: position and length (s; None: not known yet), and speed (None: as fast as possible).

    ``reached`` is how far a seek to the position has come; None without one.
    """

    position: float
    length: float | None
    speed: float | None
    reached: float | None = None


class Feed:
    """Source of events, with the model they build. Methods that only nodes can fulfil do nothing here."""

    model: Model  #: State of the session. Only the feed changes it, in the event loop that runs the feed.
    can_test: bool  #: Whether `retest` and `sweep` have an effect (a replay cannot test).
    read_only: bool = False  #: Whether it refuses everything that is not passive.
    ask: Ask | None = None  #: Asks the user what servers want to know at a login; set before `run`.
    seeking: bool = False  #: Whether the model is on its way to another place of a recording.
    sentence: str = ""  #: The verdict that the screen showed at its end, so that it need not be found again.
    badges: list[str]  #: Short permanent warnings for the status bar, for example ``HOST KEYS NOT CHECKED``.

    async def run(self) -> None:
        """Connect, probe and sweep; return after the first sweep. Nodes stay connected until `close`."""

    async def close(self) -> None:
        """End everything on the nodes and close the journal; bounded in time, safe to call twice and at any moment."""

    def listen(self, changed: Callable[[], None]) -> None:
        """Register a callback, called in the event loop after each batch of events."""

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Test ordered pairs of endpoints (``n060:3``) again, alone; return when they are done."""

    async def confirm(self, experiments: Sequence[Experiment]) -> None:
        """Run experiments about findings after the running tests; return when they are done."""

    async def bisect(self) -> None:
        """Search by halves for what makes a collective over all ranks slow; return when it is done."""

    async def sweep(self) -> None:
        """Repeat the sweep over the remaining nodes."""

    async def all_gone(self) -> None:
        """Wait until no node is left. A replay has none."""

    async def look(self, nodes: Sequence[str]) -> None:
        """Probe nodes again beside the tests, and return when that is done. A replay does nothing."""

    async def run_step(self, step: StepCommand) -> None:
        """Run a command that the user asked for on its node, and return when it has ended. A replay does nothing."""

    async def acknowledge(self, finding: str, title: str, note: str) -> None:
        """Keep a note about a finding by its key, or remove it if the note is empty. A replay does nothing."""

    async def ask_job(self) -> None:
        """Ask the nodes of a running job for stacks, dumps and kernel reports; return when they have answered."""

    def job_monitor(self) -> JobMonitor | None:
        """Return the monitor of the job whose nodes these are, always the same; None without a job or in a replay."""
        return None

    def watch(self, on: bool) -> None:
        """Test pairs again in the background, bad and oldest results first; a replay does nothing."""

    def pause(self, on: bool) -> None:
        """Start no new test while ``on``; running tests end normally. A replay stops its clock."""

    @property
    def playback(self) -> Playback | None:
        """State of a replay; None in a live session."""
        return None

    def seek(self, position: float) -> None:
        """Go to a time (s after the start) of a recording. `model` is another object after a seek back."""

    async def seek_turn(self, step: int) -> VerdictChange | None:
        """Go to the next (1) or previous (-1) change of a verdict; return the change, or None."""
        return None

    def play_at(self, speed: float) -> None:
        """Set the speed of a replay (recorded seconds per second)."""
