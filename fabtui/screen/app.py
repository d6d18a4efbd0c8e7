"""The app: a feed on one side, screens on the other."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.color import ColorSystem
from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import NoColor
from textual.screen import Screen

from fabtui.errors import InputError
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.sanitize import one_line
from fabtui.screen import shutdown
from fabtui.screen.command_palette import KEY_NAMES, binding_groups, commands
from fabtui.screen.grid.axis import Seat
from fabtui.screen.refresh_throttle import Pulse
from fabtui.screen.settings import ScreenSettings
from fabtui.screen.settings_loader import UserSettings
from fabtui.screen.shutdown import Leaving
from fabtui.screen.terminal.hangup import leave_within, write_no_more
from fabtui.screen.themes.ramps import RAMP_OF_SYSTEM, ramp_of
from fabtui.screen.views import view
from fabtui.screen.views.main import MainScreen
from fabtui.screen.views.main_layout import is_too_small
from fabtui.screen.widgets.title_bar import lost_nodes

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.notifications import SeverityLevel

    from fabtui.diagnosis.preflight.rules import Preflight
    from fabtui.screen.context import ViewName
    from fabtui.screen.widgets.findings_list import Findings
    from fabtui.session.feeds.base import Feed

#: Seconds after that in which outputs are written, when the terminal is gone.
HANGUP_GRACE = 5.0
#: The phases in which nothing is measured that would be lost.
NO_SWEEP = ("start", "connect", "look", "done")
BAD_INPUT = 2
BROKEN = 3

_SYSTEMS = {"24": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "16": ColorSystem.STANDARD}


class FabricApp(App[int]):
    """Shows a feed.

    Args:
        make_feed: Makes the feed; called after the first frame is painted, as it imports much.
        settings: What the user chose for the screen.
        clock: Seconds that pass at the pace of the wall clock.
    """

    TITLE = "fabtui"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Toast { max-width: 76; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "csv", "CSV", id="app.csv", tooltip="write a CSV snapshot of what was measured"),
        Binding("S", "screenshot_svg", "SVG", id="app.svg", show=False, tooltip="write the screen as an SVG picture"),
        Binding("question_mark", "help", "help", id="app.help", tooltip="what every key does"),
        Binding(
            "ctrl+p",
            "command_palette",
            "commands",
            id="app.commands",
            priority=True,
            tooltip="every command, to be searched",
        ),
        Binding("ctrl+o", "jump", "jump", id="app.jump", show=False, tooltip="letters on the places one can go to"),
        Binding("q", "quit", "quit", id="app.quit", tooltip="end what runs on the nodes, and leave"),
        Binding("ctrl+c", "quit", id="app.interrupt", show=False, priority=True, tooltip="the same as quit"),
    ]

    def __init__(
        self,
        make_feed: Callable[[], Feed],
        settings: ScreenSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.glyphs = Glyphs(settings.ascii)
        self.model = Model()
        self.feed: Feed | None = None
        self.last_words: str | None = None
        self._make_feed = make_feed
        self._clock = clock
        self._began = clock()
        self._heard = clock()
        self._pulse = Pulse(self._soon)
        self._again: asyncio.TimerHandle | None = None
        self.leaving = Leaving(self)
        self._hovering = False
        self._trouble_badge: str | None = None
        self._main: MainScreen | None = None
        self._own = UserSettings(self)
        if self.color_count == "none":
            # Textual alone would leave shades of grey.
            self._filters = [NoColor()]

    def get_driver_class(self) -> type[Driver]:
        """Return what draws on the terminal, in as few bytes as may be; for browsers it is another one."""
        kind = super().get_driver_class()
        from fabtui.screen.terminal.driver import CompactDriver

        return CompactDriver if issubclass(CompactDriver, kind) else kind

    # -- colours ------------------------------------------------------------------------------------------------------

    @property
    def color_count(self) -> str:
        """How many colours are drawn with: ``24`` (bits), ``256``, ``16`` or ``none``."""
        if self.settings.colors != "auto":
            return self.settings.colors
        if self.no_color:
            return "none"
        return RAMP_OF_SYSTEM.get(self.console.color_system or "truecolor", "24")

    def _paint(self, *_: object) -> None:
        count = self.color_count
        ramp = ramp_of(self.theme, self.current_theme.dark, count)
        self.main.paint_with(ramp, _SYSTEMS.get(count))

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def main(self) -> MainScreen:
        """The main screen."""
        assert self._main is not None
        return self._main

    def get_default_screen(self) -> Screen[None]:
        """Return the main screen."""
        self._main = MainScreen(self)
        return self._main

    def on_mount(self) -> None:
        """Paint, and once that is on the terminal, start the feed."""
        self._paint()
        self.theme_changed_signal.subscribe(self, self._paint)
        for name, handler in ((signal.SIGTERM, self._interrupted), (signal.SIGHUP, self.hung_up)):
            try:
                asyncio.get_running_loop().add_signal_handler(name, handler)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, as in tests.
                break
        self.call_after_refresh(self._start)

    def on_resize(self) -> None:
        """Cover everything where there is no room for it."""
        if is_too_small(*self.size) or len(self.screen_stack) > 1:
            from fabtui.screen.views.too_small import fit

            self.call_next(fit, self)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show the value of the cell under the mouse."""
        from fabtui.screen.widgets.cell_tooltip import show_value

        self._hovering = True
        show_value(self, event)

    def hung_up(self) -> None:
        """End what runs on the nodes, and leave without a word to the terminal, which is gone."""
        write_no_more(self._driver)
        leave_within(shutdown.CLOSE_DEADLINE + HANGUP_GRACE)
        self._interrupted()

    def _interrupted(self) -> None:
        # Whoever sends a signal is not there to answer a question.
        self.call_later(self.leaving.leave)

    def _start(self) -> None:
        self.run_worker(self._run_feed(), name="feed", exit_on_error=False)

    async def _run_feed(self) -> None:
        # The first frame is on its way to the terminal in another thread: it must not wait for imports.
        await asyncio.sleep(0.02)
        # What the first frame does not need is brought in now, so that no key has to wait for it.
        from fabtui.screen.terminal.driver import write_compactly

        binding_groups()
        write_compactly(self._driver)
        try:
            feed = self._make_feed()
            self.feed, self.model = feed, feed.model
            feed.listen(self._heard_something)
            self.main.take_model()
            self._own.use()
            self._pulse.beat()
            self.set_interval(1.0, self._tick)
            if self.settings.baseline is not None:
                from fabtui.screen.compare import take_baseline

                await take_baseline(self, self.settings.baseline)
            await feed.run()
        except InputError as error:
            self.leave_with(BAD_INPUT, f"fabtui: {one_line(str(error), 1000)}")
        except Exception as error:
            # What is known stays on the screen; what broke is told there and once more at the end.
            self._broke(error)
        else:
            self._pulse.beat()
            if self.settings.exit_on_end:
                self.leaving.leave()

    def _broke(self, error: Exception) -> None:
        text = one_line(f"{type(error).__name__}: {error}", 300)
        self.log.error(text)
        self.last_words = f"fabtui: an error within fabtui ended the session: {text}"
        self._trouble_badge = f"STOPPED BY AN ERROR: {text}"
        self._pulse.beat()

    def leave_with(self, code: int, words: str | None = None) -> None:
        """Leave with an exit code, and a line that is printed when the screen is gone."""
        self.last_words = words or self.last_words
        self.exit(code, return_code=code)

    @property
    def exit_status(self) -> int:
        """The exit code of the session as it stands."""
        if self._trouble_badge is not None:
            return BROKEN
        return self.model.exit_code or 0

    async def action_quit(self) -> None:
        """Quit; while a sweep runs, only after a question."""
        self.leaving.ask()

    async def close_feed(self) -> None:
        """Close the feed, once, within a deadline; what goes wrong is told after the screen is gone."""
        await self.leaving.close_feed()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _heard_something(self) -> None:
        self._heard = self._clock()
        self._pulse.beat()

    def _soon(self) -> None:
        self.call_later(self._draw)

    def draw_within(self, seconds: float) -> None:
        """Schedule a frame at most some seconds from now."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._again is not None and loop.time() < self._again.when() <= when:
            return
        if self._again is not None:
            self._again.cancel()
        self._again = loop.call_at(when, self._pulse.beat)

    draw_again = draw_within

    def _draw(self) -> None:
        if self._main is None or not self.is_running:
            return
        self._main.draw()
        if self._hovering:
            from fabtui.screen.widgets.cell_tooltip import show_again

            show_again(self)
        top = self.screen
        if top is not self._main and hasattr(top, "draw"):
            top.draw()

    def _tick(self) -> None:
        if self._main is None:
            return
        gone = self.feed is not None and self.feed.can_test and lost_nodes(self.model)
        if self.running or gone:
            self._main.tick()

    @property
    def running(self) -> bool:
        """Whether the session is doing something, so that its clock goes."""
        return self.feed is not None and self.feed.can_test and self.model.exit_code is None and not self.leaving.begun

    @property
    def sweeping(self) -> bool:
        """Whether tests are under way that would be lost."""
        phase = self.model.phase
        return self.running and phase.total > 0 and phase.name not in NO_SWEEP

    def elapsed(self) -> float:
        """Return the seconds since the session began."""
        if self.feed is None:
            return self._clock() - self._began
        if not self.running or not self.model.started:
            return self.model.elapsed
        return self.model.elapsed + self._clock() - self._heard

    def now(self) -> float:
        """Return the time, seconds since the epoch; in a replay that of the recording."""
        live = self.feed is not None and self.feed.can_test and self.model.started
        return self.model.now + (self._clock() - self._heard if live else 0.0)

    @property
    def badges(self) -> list[str]:
        """Lasting warnings."""
        badges = list(self.feed.badges) if self.feed is not None else []
        badges += self._own.badges
        return [self._trouble_badge, *badges] if self._trouble_badge else badges

    def request_draw(self) -> None:
        """Schedule the next frame; cheap enough to be called for every event."""
        self._pulse.beat()

    beat = request_draw

    # -- context of views and widgets (`fabtui.screen.context.AppContext`) ---------------------------------------------

    @property
    def findings(self) -> Findings:
        """Findings of the session."""
        return self.main.findings

    def preflight(self) -> tuple[Preflight, bool]:
        """Return the preflight, and True if it includes the latest probe results."""
        return self.main.nodes_view.latest.of(self.model)

    def bad_pairs(self) -> tuple[int, bool]:
        """Return the number of bad pairs found so far, and True if every pair has been checked."""
        return self.main.trouble.known, self.main.trouble.complete

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = 4,
        markup: bool = False,
    ) -> None:
        """Show a notification. Markup is never interpreted: messages quote what nodes sent."""
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=False)

    def tell(self, text: str, *, bad: bool = False, seconds: float = 4) -> None:
        """Say something for a moment."""
        self.notify(text, severity="warning" if bad else "information", timeout=seconds)

    def show_pair(self, source: int, destination: int) -> bool:
        """Move the cursor of the grid to a pair, by endpoint numbers; return False if the grid lacks it."""
        position = self.main.source.axis.position
        if source not in position or destination not in position:
            return False
        self.main.go_to((position[source], position[destination]))
        return True

    def open_view(self, name: ViewName) -> None:
        """Open a view of the whole session."""
        self.push_screen(view(name, self.main))

    def copy(self, text: str) -> None:
        """Copy a text to the terminal's clipboard."""
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        self.tell(f"{lines} line{'s' if lines != 1 else ''} copied (OSC 52; tmux needs `set-clipboard on`)")

    def open_pair(self, source: Seat, target: Seat) -> None:
        """Show a pair."""
        from fabtui.screen.views.pair.screen import PairScreen

        self.push_screen(PairScreen(source, target))

    def open_node(self, node: str) -> None:
        """Show a node."""
        from fabtui.screen.views.node.screen import NodeScreen

        self.push_screen(NodeScreen(node))

    # -- files --------------------------------------------------------------------------------------------------------

    async def action_csv(self) -> None:
        """Write a CSV snapshot."""
        from fabtui.screen.outputs import write_snapshot

        self.run_worker(write_snapshot(self), name="csv", exit_on_error=False)

    def action_screenshot_svg(self) -> None:
        """Write the screen as it is as an SVG picture."""
        from fabtui.screen.outputs import write_picture

        write_picture(self)

    def get_key_display(self, binding: Binding) -> str:
        """Return what a key is called on the screen, in words where Textual would draw an arrow."""
        return KEY_NAMES.get(binding.key) or super().get_key_display(binding)

    def action_help(self) -> None:
        """Show what this view is, and what every key does."""
        from fabtui.screen.views.help import HelpScreen, views_of

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(binding_groups(), views_of(self)))

    def action_jump(self) -> None:
        """Show letters on the places one can go to."""
        from fabtui.screen.views.jump import JumpScreen, targets_of

        targets = targets_of(self, self.screen)
        if targets:
            self.push_screen(JumpScreen(targets))
        else:
            self.tell("there is nowhere to jump to here")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield a command for everything that has a key, and for the themes."""
        yield from commands(self, screen)
