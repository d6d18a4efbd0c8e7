"""The Textual application: a feed on one side, screens on the other."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.color import ColorSystem
from textual import events, work
from textual.actions import ActionParseResult
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.notifications import Notify, SeverityLevel
from textual.screen import ModalScreen, Screen

from fabtui.atomic_write import write_bytes
from fabtui.config.file import value_of, write_settings
from fabtui.config.options import OptionSpec
from fabtui.errors import InputError
from fabtui.exit_status import BAD_INPUT, INTERRUPTED, NOT_TESTED
from fabtui.model.layers import Layer, key_layers
from fabtui.model.recording import read_events
from fabtui.paths import user_path
from fabtui.sanitize import clean, one_line
from fabtui.screen.context import ScreenSettings, ViewName, part
from fabtui.screen.keymap import check_keys, commands, explain_key, fresh_settings, key_owners
from fabtui.screen.keys import VIEW_KEYS, shortcut
from fabtui.screen.terminal.internals import (
    LastingNotification,
    discard_output,
    exit_within,
    is_behind,
    notify_terminal,
    suspend_group,
    watch_hangup,
    write_codes,
)
from fabtui.screen.terminal_app import TerminalApp
from fabtui.screen.themes import ramp_of
from fabtui.screen.widgets.connecting import StartScreen

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding
    from fabtui.diagnosis.preflight.checks import Preflight
    from fabtui.model.session_model import Model
    from fabtui.presentation.job_board import JobBoard
    from fabtui.screen.notifier import Notifier
    from fabtui.screen.session_diagnosis import SessionDiagnosis
    from fabtui.screen.views.main import MainScreen
    from fabtui.session.feeds.base import Feed

#: Maximum frame rate (1/s). More would only cost bytes on the way to a distant terminal.
RATE = 15.0
#: Time (s) until the next look at a terminal that has not taken the last frame.
BEHIND = 0.05
#: Maximum time (s) that a slow link is left to the keys.
SLOWEST_FRAME = 1.0
#: Deadline (s) for the feed to end its processes on the nodes.
CLOSE_DEADLINE = 12.0
#: Time (s) after that deadline for writing files when the terminal is gone.
HANGUP_GRACE = 5.0
#: Phases in which no measurement would be lost by leaving.
IDLE_PHASES = ("start", "connect", "look", "done")
#: Maximum number of settings problems shown as notifications; `fabtui config validate` prints all.
MAX_PROBLEMS_SHOWN = 3
PROBLEM_SECONDS = 12.0
#: Lines for all notifications together, as in app.tcss, and the width of the edges of one.
_TOAST_LINES, _TOAST_EDGES = 2, 3

#: Actions before there is a session.
_AT_THE_START = ("quit", "suspend_group")
#: Views of the session, by name, that need nothing but the app.
VIEWS: dict[ViewName, str] = {
    "nodes": "nodes:NodesScreen",
    "preflight": "nodes:NodesScreen",
    "findings": "findings:FindingsScreen",
    "topology": "topology:TopologyScreen",
    "settings": "settings:SettingsScreen",
    "history": "history:HistoryScreen",
    "bisect": "bisection:BisectionScreen",
}
_SYSTEMS = {"24": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "16": ColorSystem.STANDARD}


class FabricApp(TerminalApp[int]):
    """Shows a feed; implements `fabtui.screen.context.AppContext`.

    The first frame is a `StartScreen`, which needs neither the model nor the diagnosis. ``make_feed`` is called once it
    is on the terminal; ``clock`` is monotonic (s).
    """

    TITLE = "fabtui"
    BINDING_GROUP_TITLE = "Everywhere"
    ENABLE_COMMAND_PALETTE = True
    DEFAULT_MODE = "start"
    NOTIFICATION_TIMEOUT = 4
    # Absolute: Textual resolves relative paths next to the module of a subclass.
    CSS_PATH = Path(__file__).with_name("app.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("F", "view('findings')", "app.findings", "show all findings", "findings", bar=("first", "always")),
        shortcut("colon", "command_line", "app.command-line", "type a command", "command"),
        shortcut("e", "csv", "app.csv", "write all results to a CSV file", "CSV"),
        shortcut("E", "report", "app.report", "write a one-page report as HTML"),
        shortcut("S", "screenshot_svg", "app.svg", "write the screen to an SVG file"),
        shortcut("I", "picture", "app.picture", "write the grid to an SVG and a PNG image"),
        shortcut("question_mark,f1", "help", "app.help", "show help and all keys", "help", bar=("always",)),
        shortcut("ctrl+p", "command_palette", "app.commands", "search all commands", priority=True),
        shortcut("exclamation_mark", "login", "app.login", "open your own ssh on the node under the cursor"),
        shortcut("ctrl+o", "jump", "app.jump", "label every target with a letter"),
        shortcut("f2", "view('settings')", "app.settings", "show and change the settings"),
        *VIEW_KEYS,
        shortcut("q", "quit", "app.quit", "end the processes on the nodes, and quit", "quit", bar=("always",)),
        shortcut("ctrl+c", "quit", "app.interrupt", "same as quit", priority=True),
        shortcut(
            "ctrl+z", "suspend_group", "app.suspend", "suspend fabtui; the shell's fg continues it", priority=True
        ),
    ]

    def __init__(
        self, make_feed: Callable[[], Feed], settings: ScreenSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._main: MainScreen | None = None
        super().__init__(settings)
        self._model: Model | None = None
        self._start = StartScreen(settings.title, self.glyphs, _AT_THE_START)
        self.add_mode("start", lambda: self._start)
        self.feed: Feed | None = None
        self.exit_message: str | None = None  #: Line for standard error once the screen is gone.
        self.closing = False  #: True once the user or a signal has ended the session.
        self._hung_up = False
        self._make_feed = make_feed
        self._clock = clock
        self._began = clock()
        self._last_event = clock()
        #: Timer of the next frame, and time of the latest one.
        self._frame: asyncio.TimerHandle | None = None
        self._drawn = float("-inf")
        self._behind = False
        self._draw_timer: asyncio.TimerHandle | None = None
        self._feed_closed = False
        self._error_badge: str | None = None
        self._commands_given: list[str] = []
        self._saved_settings: dict[str, str] = {}
        self.setting_texts: dict[str, str] = {}
        self._replaced: Feed | None = None  #: Feed that was closed for a recording.
        self._notifier: Notifier | None = None
        self._problems = [*settings.problems, *([f"screen.theme: {self.theme_problem}"] if self.theme_problem else [])]
        for layer in key_layers():
            # Layers that were registered after this class was created, as plugins and tests do.
            if layer.spec.key not in self._bindings.key_to_bindings:
                self._bindings.bind(layer.spec.key or "", f"app.layer('{layer}')", show=False)

    def _paint(self, *_: object) -> None:
        count = self.color_count
        self.main.paint_with(ramp_of(self.theme, self.current_theme.dark, count), _SYSTEMS.get(count))

    @property
    def main(self) -> MainScreen:
        assert self._main is not None
        return self._main

    def on_mount(self) -> None:
        # After SIGTSTP, Textual draws again only what has changed.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        for name, handler in ((signal.SIGTERM, self._interrupted), (signal.SIGHUP, self.hung_up)):
            try:
                asyncio.get_running_loop().add_signal_handler(name, handler)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, as in tests.
                break
        watch_hangup(self._driver, asyncio.get_running_loop(), self.hung_up)
        # From the queue of the app, where keys come after it.
        self.call_after_refresh(self.call_later, self._begin)

    @property
    def model(self) -> Model:
        """The session; an empty one before it begins."""
        if self._model is None:
            self._model = part("model.session_model:Model")()
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        self._model = model

    async def _begin(self) -> None:
        """Put the main screen in the place of the first one, and start the feed; keys wait for both."""
        self._main = part("screen.views.main:MainScreen")(self)
        self.add_mode("session", lambda: self.main)
        await self.switch_mode("session")
        await self.remove_mode("start")
        self._paint()
        self.theme_changed_signal.subscribe(self, self._paint)
        self.run_worker(self._run_feed(), name="feed", exit_on_error=False)
        # The feed is made in the first step of its task.
        await asyncio.sleep(0)
        for key in self._start.typed:
            await self.on_event(events.Key(key.key, key.character))

    async def _run_feed(self, *, again: bool = False) -> None:
        part("screen.views.dialogs:fit")(self)
        feed: Feed | None = None
        try:
            feed = self._make_feed()
            self.feed, self.model = feed, feed.model
            feed.listen(self._on_event)
            feed.ask = partial(part("screen.views.dialogs:ask_in_app"), self, plain=self.glyphs.plain)
            self.main.take_model()
            if not again:
                self._use_settings()
                self._use_notifications(self.settings.notify)
                self.set_interval(1.0, self._tick)
            self.request_draw()
            if self.settings.first_view and not again:
                self.open_view(cast("ViewName", self.settings.first_view))
            if self.settings.baseline is not None:
                read = part("session.feeds.baseline:read_baseline")
                self.model.baseline = await asyncio.to_thread(read, self.settings.baseline)
                self.main.draw()
            await feed.run()
        except Exception as error:
            if feed is not None and feed is self._replaced:
                return
            if isinstance(error, InputError):
                self._exit_with(BAD_INPUT, f"fabtui: {one_line(str(error), 1000)}")
                return
            # Results stay on the screen; the error is shown there and printed at the end.
            text = one_line(f"{type(error).__name__}: {error}", 300)
            self.log.error(text)
            self.exit_message = f"fabtui: an error within fabtui ended the session: {text}"
            self._error_badge = f"STOPPED BY AN ERROR: {text}"
            self.request_draw()
        else:
            self.request_draw()
            if self.settings.exit_on_end and feed is not self._replaced:
                self.leave()

    def _use_settings(self) -> None:
        if self.settings.keys:
            usable, wrong = check_keys(self.settings.keys, type(self))
            self.set_keymap(usable)
            self._problems += [f'keys."{name}": {text}' for name, text in wrong]
        for text in self._problems[:MAX_PROBLEMS_SHOWN]:
            self.notify(f"settings: {one_line(text, 300)}", severity="warning", timeout=PROBLEM_SECONDS)
        self.themes.register_all()

    def _use_notifications(self, kind: str) -> None:
        if self._notifier is not None:
            self._notifier.stop()
        show = partial(notify_terminal, self, kind)
        self._notifier = (
            None if kind == "off" else part("screen.notifier:Notifier")(self, show, partial(write_codes, self._driver))
        )

    def change_setting(self, spec: OptionSpec, text: str) -> None:
        value = value_of(spec, text)
        now = spec.key in ("screen.theme", "screen.notify")
        chosen = spec.default if value is None else str(value)
        if spec.key == "screen.theme":
            self.themes.use(None if value is None else chosen)
        elif spec.key == "screen.notify":
            self._use_notifications(chosen)
        self.setting_texts[spec.key] = text
        kept = "w in the settings (F2) keeps it" if now else "from the next start, if w writes it"
        self.notify(f"{spec.key} = {one_line(text, 100)}; {kept}")
        self.request_draw()

    @property
    def unsaved_settings(self) -> dict[str, str]:
        return {key: text for key, text in self.setting_texts.items() if self._saved_settings.get(key) != text}

    @work(name="settings", exclusive=True, exit_on_error=False)
    async def save_settings(self) -> None:
        path, changes = self.settings.config, self.unsaved_settings
        if path is None or not changes:
            self.notify("no setting was changed on the screen: there is nothing to save")
            return
        fresh = partial(fresh_settings, type(self))
        done = f"{', '.join(changes)} written to {one_line(str(path), 300)}"
        write = partial(write_settings, path, changes, fresh)
        if await part("screen.app_actions:write_and_notify")(self, "settings", write, done):
            self._saved_settings |= changes
            self.request_draw()

    @property
    def exit_status(self) -> int:
        if self._error_badge is not None:
            # What it had to test was not tested.
            return NOT_TESTED
        if self.feed is None:
            return INTERRUPTED
        code: int | None = self.model.exit_code
        if code is None:
            # Left before its end: the results so far count. A recording cannot be interrupted.
            outcome = "exit_code_if_left" if self.feed.can_test else "exit_code"
            code = part(f"model.exit_codes:{outcome}")(self.model)
        return code

    async def action_quit(self) -> None:
        confirm = part("screen.views.dialogs:ConfirmScreen") if self.sweeping else None
        if confirm is None or isinstance(self.screen, confirm):
            self.leave()
            return
        question = confirm("A sweep is running. Quit?", self._lost_by_quitting, "quit", "stay", plain=self.glyphs.plain)
        self.push_screen(question, lambda yes: self.leave() if yes else None)

    def _lost_by_quitting(self) -> str:
        ranks = self.model.phase.name == "ranks"
        done = "Ranks are starting. " if ranks else f"{part('presentation.verdict_line:tested_text')(self.model)}. "
        kept = "Results so far are in the recording." if self.settings.recorded else "Nothing is recorded."
        return f"{done}{kept} Processes on the nodes will be ended."

    def action_suspend_group(self) -> None:
        if not suspend_group(self._driver):
            self.notify("fabtui cannot be suspended here: no shell could continue it")

    def leave(self) -> None:
        """End the processes on the nodes, then the app; if called again, exit at once."""
        if self.closing:
            self._exit_with(self.exit_status)
            return
        self.closing = True
        if self.feed is not None and not self._feed_closed:
            while len(self.screen_stack) > 1:
                self.pop_screen()
            self.main.show_closing("closing: ending the processes on the nodes (q again: quit at once)")

        async def close() -> None:
            await self.close_feed()
            self._exit_with(self.exit_status)

        self.run_worker(close(), name="close", exit_on_error=False)

    async def close_feed(self) -> None:
        """Close the feed once, within a deadline; an error is printed after the screen is gone."""
        if self.feed is None or self._feed_closed:
            return
        self._feed_closed = True
        if self._notifier is not None:
            self._notifier.stop()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE):
                await self.feed.close()
        except TimeoutError:
            self.exit_message = f"fabtui: closing the session took more than {CLOSE_DEADLINE:.0f} s and was given up"
        except Exception as error:
            self.exit_message = f"fabtui: closing the session: {one_line(f'{type(error).__name__}: {error}', 300)}"

    def hung_up(self) -> None:
        """End the session when the terminal is gone, without writing to it."""
        if self._hung_up:
            # Both a signal and the terminal report it.
            return
        self._hung_up = True
        discard_output(self._driver)
        exit_within(CLOSE_DEADLINE + HANGUP_GRACE)
        self._interrupted()

    def _interrupted(self) -> None:
        # Nobody is there to answer a question.
        self.call_later(self.leave)

    def _exit_with(self, code: int, message: str | None = None) -> None:
        self.exit_message = message or self.exit_message
        if self.feed is not None:
            self.feed.sentence = self.main.sentence
        self.exit(code, return_code=code)

    def _on_event(self) -> None:
        self._last_event = self._clock()
        if self.feed is not None and self.feed.model is not self.model:
            self._go_back(self.feed.model)
        if self._notifier is not None:
            self._notifier.look()
        self.request_draw()

    def _go_back(self, model: Model) -> None:
        while len(self.screen_stack) > 1 and len(model.endpoints) < len(self.model.endpoints):
            # Its pair or node may not exist yet.
            self.pop_screen()
        model.baseline, self.model = self.model.baseline, model
        self.main.take_model(same=True)

    def request_draw(self) -> None:
        if self._frame is None:
            loop = asyncio.get_running_loop()
            self._frame = loop.call_later(max(0.0, self._drawn + 1 / RATE - loop.time()), self._draw_frame)

    def _draw_frame(self) -> None:
        loop = asyncio.get_running_loop()
        behind, was = is_behind(self._driver), self._behind
        self._behind = behind
        if behind or was:
            # More frames would only wait behind the last one, and keys behind them. A slow link is then left to the
            # keys for as long as that frame took.
            wait = BEHIND if behind else min(SLOWEST_FRAME, loop.time() - self._drawn)
            self._frame = loop.call_later(wait, self._draw_frame)
            return
        self._frame, self._drawn = None, loop.time()
        self.call_later(self._draw)

    def draw_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._draw_timer is not None:
            if loop.time() < self._draw_timer.when() <= when:
                return
            self._draw_timer.cancel()
        self._draw_timer = loop.call_at(when, self.request_draw)

    def _draw(self) -> None:
        if self._main is None or not self.is_running:
            return
        if self.feed is not None and self.feed.seeking:
            # What is on the way is not drawn, only how far it is.
            self._main.tick()
            return
        self.main.draw()
        judged = self.main.findings is not None and self.model.phase.name in ("done", "watch")
        if self._notifier is not None and judged and not self.closing:
            self._notifier.name(self.main.sentence)
        if self.screen is not self.main and hasattr(self.screen, "draw"):
            self.screen.draw()

    def _tick(self) -> None:
        if self.running or (self.feed is not None and self.feed.can_test and self.main.lacks_nodes):
            self.main.tick()

    def on_resize(self) -> None:
        """Cover all views where there is no room for them."""
        if self._main is not None:
            self.call_next(part("screen.views.dialogs:fit"), self)

    async def on_key(self, event: events.Key) -> None:
        """Hand over what is typed while the command line or a prompt opens: it still goes to the view below."""
        takers = [one for one in (self.screen, *self.screen.children) if hasattr(one, "take")]
        if any([await one.take(event) for one in takers]):
            event.prevent_default()
        elif self._main is not None:
            explain_key(self, event, key_owners(type(self)))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.screen is self._main:
            self._main.point_at(event.screen_x, event.screen_y)

    @property
    def running(self) -> bool:
        return self.feed is not None and self.feed.can_test and self.model.exit_code is None and not self.closing

    @property
    def sweeping(self) -> bool:
        return self.running and self.model.phase.total > 0 and self.model.phase.name not in IDLE_PHASES

    def elapsed(self) -> float:
        if self.feed is None:
            return self._clock() - self._began
        if not self.running or not self.model.started:
            return self.model.elapsed
        return self.model.elapsed + self._clock() - self._last_event

    def now(self) -> float:
        live = self.feed is not None and self.feed.can_test and self.model.started
        return self.model.now + (self._clock() - self._last_event if live else 0.0)

    async def run_action(self, action: str | ActionParseResult, *args: Any, **named: Any) -> bool:
        """Run an action; before the session there is nothing to act on, so that its keys can only end or suspend it."""
        name = action if isinstance(action, str) else action[1]
        if self.feed is None and name.removeprefix("app.") not in _AT_THE_START:
            return False
        return await super().run_action(action, *args, **named)

    @property
    def badges(self) -> list[str]:
        badges = [self._error_badge] if self._error_badge else []
        if self.feed is not None:
            badges += self.feed.badges
        if count := len(self._problems):
            badges.append(f"{count} PROBLEM{'S' * (count > 1)} IN SETTINGS: fabtui config validate")
        return badges

    @property
    def findings(self) -> SessionDiagnosis:
        assert self.main.findings is not None
        return self.main.findings

    @property
    def layer(self) -> Layer:
        return self.main.source.layer

    def preflight(self) -> Preflight:
        found, current = self.findings.preflight()
        if not current:
            self.draw_within(self.findings.PREFLIGHT_INTERVAL)
        return found

    def job(self) -> JobBoard | None:
        if self.main.findings is None:
            return None
        found, current = self.findings.job()
        if not current:
            self.draw_within(self.findings.JOB_INTERVAL)
        return found

    def bad_pairs(self) -> tuple[int, bool]:
        return self.main.view_state.index.bad_shown, self.main.view_state.index.complete

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a notification. Markup is never interpreted: messages quote what nodes sent."""
        if any((note.message, note.severity) == (message, severity) for note in self._notifications):
            # It is still on the screen; a second one would add nothing.
            return
        room = max(1, self.size.width - _TOAST_EDGES)
        texts = (message, *(note.message for note in self._notifications))
        if self._notifications and sum(-(-len(text) // room) for text in texts) > _TOAST_LINES:
            # The latest one counts. Textual would leave an empty line for each of the others.
            self.clear_notifications()
            self.screen.query("ToastHolder").remove()
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(LastingNotification(message, title, severity, seconds, markup=False)))

    def copy(self, text: str) -> None:
        # Where it is pasted may be a shell.
        self.copy_to_clipboard(clean(text))
        lines = text.count("\n") + 1
        self.notify(f"{lines} line{'s' if lines != 1 else ''} copied (OSC 52; tmux needs `set-clipboard on`)")

    def return_to(self, screen: Screen[Any]) -> bool:
        """Leave all views above one; return False if it was the current one."""
        moved = False
        while self.screen is not screen and len(self.screen_stack) > 1:
            self.pop_screen()
            moved = True
        return moved

    def open_once(self, screen: Screen[Any]) -> None:
        """Open a view; one of its kind that is open already is closed with the views above it."""
        kinds = [type(view) for view in self.screen_stack]
        if type(screen) in kinds:
            self.return_to(self.screen_stack[kinds.index(type(screen)) - 1])
        self.push_screen(screen)

    def on_main_screen_pair_chosen(self, message: MainScreen.PairChosen) -> None:
        self.open_once(part("screen.views.pair:PairScreen")(message.source, message.target))

    def selected_pair(self) -> tuple[int, int] | None:
        entries = self.main.cursor_entries()
        source, target = (None, None) if entries is None else (entries[0].number, entries[1].number)
        return None if source is None or target is None else (source, target)

    def open_node(self, node: str) -> None:
        self.open_once(part("screen.views.node:NodeScreen")(node))

    def open_view(self, name: ViewName) -> None:
        """Open a view of the session; notify the user if there is nothing to show."""
        if self.feed is None:
            return
        if name in VIEWS:
            self.open_once(part(f"screen.views.{VIEWS[name]}")())
        elif name == "job" and self.job() is not None and not (self.screen is self.main and self.layer is Layer.JOB):
            self.return_to(self.main)
            self.main.action_layer(Layer.JOB)
        elif name != "jobs" and (monitor := self.feed.job_monitor()) is not None:
            self.open_once(part("screen.views.job:JobScreen")(monitor))
        elif self.feed.can_test:
            self.open_once(part("screen.views.job:JobsScreen")())
        else:
            # The jobs of this machine have nothing to do with those of a recording.
            self.notify("this recording has no " + ("logs of a job" if self.job() is not None else "job"))

    def run_step_of(self, finding: Finding) -> None:
        self.open_view("findings")
        if hasattr(self.screen, "run_first_step"):
            self.screen.call_after_refresh(self.screen.run_first_step, finding)

    def open_job(self, job: str) -> None:
        if self.feed is None:
            return
        own = self.feed.job_monitor()
        known = own is not None and own.query.job == job
        self.push_screen(part("screen.views.job:JobScreen")(own if known else part("screen.views.job:job_beside")(job)))

    async def replay(self, file: str) -> Callable[[], object]:
        def checked() -> Path:
            path = user_path(file)
            next(iter(read_events(path)))
            return path

        # Before the session is closed.
        path = await asyncio.to_thread(checked)

        async def play() -> None:
            self._replaced = self.feed
            await self.close_feed()
            self._feed_closed, self._error_badge = False, None
            self.settings = self.settings._replace(title=path.name, baseline=None)
            self._make_feed = lambda: part("session.feeds.replay:ReplayFeed")(path, 1.0)
            self.return_to(self.main)
            await self._run_feed(again=True)

        def start(yes: bool | None = True) -> None:
            if yes:
                self.run_worker(play(), name="feed", exit_on_error=False)

        if self.feed is None or not self.feed.can_test:
            return start
        question = part("screen.views.dialogs:ConfirmScreen")(
            f"Close this session and play {one_line(path.name, 40)}?",
            "Processes on the nodes will be ended.",
            "close and play",
            "stay",
            plain=self.glyphs.plain,
        )
        return lambda: self.push_screen(question, start)

    def action_command_line(self, text: str = "") -> None:
        if not isinstance(self.screen, ModalScreen):
            table = part("screen.views.command_line:CommandTable")(self, self.screen)
            self.push_screen(part("screen.views.command_line:CommandLine")(table, self._commands_given, text))

    def action_view(self, name: ViewName) -> None:
        self.open_view(name)

    def action_layer(self, name: str) -> None:
        self.return_to(self.main)
        self.main.action_layer(name)

    def action_list(self) -> None:
        if not self.return_to(self.main) or self.main.view != "worst":
            self.main.action_list()

    def action_log(self) -> None:
        if not self.return_to(self.main) or not self.main.log_is_large:
            self.main.action_log()

    def action_node(self, end: int) -> None:
        own = getattr(self.screen, "node", None)
        if own is not None and self.screen is not self._main:
            self.open_node(own)
        else:
            self.main.action_node(end)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        here = action == "view" and parameters == ("findings",) and hasattr(self.screen, "run_first_step")
        return False if here else super().check_action(action, parameters)

    def outline(self, label: str, pairs: Collection[tuple[str, str]]) -> None:
        self.main.navigation.outline(label, pairs)
        self.main.draw()

    def show_pair(self, source: int, destination: int) -> bool:
        # A replay may have gone to a time with other endpoints just now.
        self.main.draw()
        position = self.main.source.axis.position
        if source not in position or destination not in position:
            return False
        self.return_to(self.main)
        self.main.go_to((position[source], position[destination]))
        return True

    @work(name="csv", exit_on_error=False)
    async def action_csv(self) -> None:
        if self.screen is self.main and self.layer is Layer.JOB:
            # Results of tests are no evidence about a job.
            self.action_report()
        else:
            await part("screen.app_actions:write_rows")(self)

    def action_report(self) -> None:
        self.write_report(Path(time.strftime("fabtui-%Y%m%dT%H%M%SZ.html", time.gmtime())).absolute())

    @work(name="report", exclusive=True, exit_on_error=False)
    async def write_report(self, path: Path) -> None:
        await part("screen.app_actions:write_report")(self, path)

    @work(name="picture", exit_on_error=False)
    async def action_picture(self) -> None:
        await part("screen.app_actions:write_picture")(self.main)

    def action_screenshot_svg(self) -> None:
        try:
            path = Path(time.strftime("fabtui-%Y%m%dT%H%M%SZ.svg", time.gmtime())).absolute()
            drawn = self.export_screenshot()
            write_bytes(path, drawn.encode())
        except OSError as error:
            self.notify(f"the screenshot could not be written: {one_line(str(error), 300)}", severity="warning")
        else:
            self.notify(f"screenshot written to {path}")

    def action_seek(self, step: int) -> None:
        part("screen.session_actions:seek_by")(self, step)

    def action_seek_turn(self, step: int) -> None:
        part("screen.session_actions:seek_turn")(self, step)

    def action_speed(self, step: int) -> None:
        part("screen.session_actions:change_speed")(self, step)

    def action_help(self) -> None:
        view = part("screen.views.help:HelpScreen")
        if not isinstance(self.screen, view):
            about = part("screen.views.help:views_of")(self.screen)
            self.open_once(view(key_owners(type(self)), about))
        else:
            self.notify("this is the help: / searches it, Esc leaves it")

    def action_login(self) -> None:
        self.run_worker(part("screen.app_actions:login")(self), name="login", group="login", exclusive=True)

    def action_jump(self) -> None:
        if targets := part("screen.views.jump:targets_of")(self.screen):
            self.push_screen(part("screen.views.jump:JumpScreen")(targets))
        else:
            self.notify("there is nothing to jump to here")

    def action_command_palette(self) -> None:
        if hasattr(self.screen, "take"):
            # The command line.
            self.pop_screen()
        if not isinstance(self.screen, ModalScreen):
            self.push_screen(CommandPalette(id="--command-palette"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from commands(self, screen)
