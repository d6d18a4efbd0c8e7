"""Main screen: node states while connecting, then the grid with its panel, log and keys."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from rich.color import ColorSystem
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from fabtui.diagnosis.finding import Finding
from fabtui.errors import InputError
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.job_board import JobBoard, board_text, rate_lines, steps_of
from fabtui.presentation.legends import layers_of, legend, usual_line, usual_lines
from fabtui.presentation.progress_estimate import layer_to_show
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import Line, Lines, between, clipped, in_clauses
from fabtui.sanitize import one_line
from fabtui.screen import session_actions
from fabtui.screen.context import AppContext, ViewName
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.grid.cells import EndpointCells, RowOrder
from fabtui.screen.grid.navigation import GridNavigation, ViewState, Zoom, block_name, block_parts
from fabtui.screen.grid.prompts import FILTER_HINT
from fabtui.screen.grid.updates import GridUpdater
from fabtui.screen.grid.widget import GridView
from fabtui.screen.keys import RUN_KEY, Shortcut, shortcut
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.detail_base import run_step
from fabtui.screen.views.main_layout import (
    COLUMN_WIDTH,
    LEAST_FINDINGS,
    PANEL_LEAST,
    LayoutChoices,
    LinesBelow,
    MainLayout,
    arrange,
    grid_fits,
    has_grid,
    has_nothing_to_test,
    lines_below,
    panel_width,
)
from fabtui.screen.views.main_panel import PanelContent, job_panel
from fabtui.screen.widgets.connecting import ConnectingView
from fabtui.screen.widgets.event_log import EventLog
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.main_head import (
    MIN_TABS,
    LayerTabs,
    QuietFact,
    connecting_line,
    head_line,
    lost_nodes,
    quiet_facts,
    replay_text,
    seek_line,
)
from fabtui.screen.widgets.minimap import ColorKey, Minimap
from fabtui.screen.widgets.pair_text import status_parts, summary_text
from fabtui.screen.widgets.prompt import Prompt
from fabtui.screen.widgets.text_line import (
    ALL_FINDINGS,
    PANEL_EDGES,
    PANEL_WIDTH,
    CellTooltip,
    SidePanel,
    TargetLine,
    TargetLines,
    TextLine,
)
from fabtui.screen.widgets.worst_pairs import MAX_PAIRS, WorstPairs

_ZOOM = Binding.Group("zoom")
#: Labels of keys over the ranks of a job; "" leaves them out.
_OF_RANKS = {
    **{"main.pair": "run", "main.next-bad": "next behind", "main.retest": "ask nodes", "main.sort": "stacks"},
    **{"app.csv": "save evidence", "main.job": "logs", "main.run": "", "main.filter": "", "main.jump": ""},
}
#: Keys for the grid or the list, which the node states cover, and keys that start tests.
_grid_key, _test_key = partial(shortcut, needs=("grid",)), partial(shortcut, needs=("test",))
_pair_key = partial(shortcut, needs=("grid", "test"))

#: Purpose of the prompt for the filter of the event log.
_LOG_FILTER = "filter the log"


class MainScreen(Screen[None]):
    """The grid of all pairs with the state of the session; before the first test, the states of the nodes."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; overflow: hidden; }
    MainScreen #tabs-row { height: 1; }
    MainScreen #unit { padding: 0 1 0 1; }
    MainScreen #body { height: 1fr; }
    MainScreen #left { width: 1fr; height: 100%; }
    MainScreen #grids { height: 1fr; }
    MainScreen #side { width: auto; height: 100%; align-vertical: bottom; }
    MainScreen #panel { height: 1fr; }
    MainScreen #column { width: 52; height: 100%; padding: 0 1; border-left: vkey $secondary 60%; overflow: hidden; }
    """
    # One color behind the widgets, which need not be drawn again with each of them.
    BLANK = True
    BINDING_GROUP_TITLE = "Main screen"
    # The key bar shows them in this order, as many as fit.
    BINDINGS: ClassVar[list[BindingType]] = [
        _grid_key("enter", "pair", "main.pair", "show the pair under the cursor, both directions", "open"),
        _grid_key("right_square_bracket", "next_bad(1)", "main.next-bad", "next bad cell", "next bad"),
        _grid_key("left_square_bracket", "next_bad(-1)", "main.previous-bad", "previous bad cell"),
        _pair_key(RUN_KEY, "run", "main.run", "run the next step of the finding that is open", "run"),
        _pair_key(
            "r",
            "retest",
            "main.retest",
            "test the pair under the cursor again, alone; ask the nodes of a job",
            "retest",
        ),
        shortcut("space", "pause", "main.pause", "pause or resume: a paused session starts no test", "pause"),
        _test_key("R", "sweep", "main.sweep", "run the sweep of all pairs again", "sweep"),
        _test_key("w", "watch", "main.watch", "start or stop testing all pairs in the background", "watch"),
        *session_actions.BINDINGS,
        _grid_key("slash,f", "filter", "main.filter", "filter cells by verdict, class, node or transport", "filter"),
        _grid_key(
            "plus,equals_sign", "zoom(1)", "main.zoom-in", "zoom in: endpoints, two nodes, a pair", "in", group=_ZOOM
        ),
        _grid_key(
            "minus", "zoom(-1)", "main.zoom-out", "zoom out: two nodes, endpoints, blocks of nodes", "out", group=_ZOOM
        ),
        _grid_key("u", "unfilter", "main.unfilter", "show all cells again"),
        _grid_key(
            "s",
            "order('badness')",
            "main.sort",
            "sort rows by bad cells, or restore the order; unfold the stacks of a job",
            "sort",
        ),
        _grid_key("b", "order('blame')", "main.blame", "sort rows and columns by blame, or restore the order"),
        _grid_key("O", "grouping", "main.grouping", "order rows and columns by domain, leaf switch, rail, or as given"),
        shortcut("o", "sort_worst", "main.sort-worst", "sort the worst pairs of the side panel by the next column"),
        _grid_key("y", "copy", "main.copy", "copy the results of the pair under the cursor", "copy"),
        _grid_key("x", "other_direction", "main.other-way", "opposite direction of the pair"),
        _grid_key("m", "map", "main.map", "show or hide the map of a grid that does not fit"),
        _grid_key("p", "panel", "main.panel", "show or hide the side panel"),
        shortcut("escape", "back", "main.back", "go back: grid, previous zoom, or all cells"),
    ]

    #: Actions on the grid or the list, which the node states cover.
    _grid_actions = frozenset(
        one.action.partition("(")[0] for one in BINDINGS if isinstance(one, Shortcut) and "grid" in one.needs
    )

    @dataclass
    class PairChosen(Message):
        """The user wants to see a pair."""

        source: AxisEntry
        target: AxisEntry

    def __init__(self, context: AppContext) -> None:
        super().__init__()
        self._app_context = context
        self._glyphs = context.glyphs
        self.verdict_bar = TargetLines(id="verdict")
        self.node_states = ConnectingView(self._glyphs, id="connecting")
        self.event_log = EventLog(id="log")
        self.key_bar = KeyBar(self._key_label, ("arrows", "move"), id="keys")
        self._panel_content: PanelContent | None = None
        self._key_state = (False, False, False, False, False)
        self._has_findings = False
        self._prompt: Prompt | None = None
        self._ending = False
        self._job: JobBoard | None = None  #: The running job as it is shown.
        self._stacks_unfolded = False
        self._aimed_for: list[Finding] | None = None  #: Final findings for which the cursor was put on the worst pair.
        self._composed = False
        glyphs = self._glyphs
        self.navigation = GridNavigation(context, lambda view: GridView(view.source, glyphs, id="grid"))
        self.grid = self.navigation.grid
        self.tabs = LayerTabs(id="tabs")
        lines = (TextLine(id=name) for name in ("unit", "notice", "air", "status"))
        self.unit_line, self.notice_line, self._air, self.status_line = lines
        #: Usual values below the grid, or in the side panel if the grid leaves no room.
        self.usual = TargetLines(id="usual")
        self._usual_in_panel: Lines = []
        #: Rows and columns in view, if the line above the grid has no room for them.
        self._where_below = ""
        self.worst_pairs = WorstPairs(glyphs, id="worst")
        self.panel = SidePanel(glyphs, id="panel")
        self.minimap = Minimap(glyphs, id="minimap")
        self.minimap.display = False
        self.findings_below = TargetLines(id="findings-below")
        self.color_key = ColorKey(glyphs, id="color-key")
        self.tooltip_line = CellTooltip(id="hover")
        self.panel_width = PANEL_WIDTH  #: Width of the side panel.
        self._choices = LayoutChoices()
        self._layout_state = MainLayout("connecting", {}, 0)
        self._updater = GridUpdater(self.grid, context.draw_within)
        #: Layer that is shown because it is tested; None once the user has chosen one.
        self._followed: Layer | None = self.source.layer
        self._tabs_row = Horizontal(self.tabs, self.unit_line, id="tabs-row")
        self._grids = Horizontal(self.grid, self.worst_pairs, id="grids")
        self._left = Vertical(self._grids, self.usual, id="left")
        self._side = Vertical(self.panel, self.minimap, id="side")
        #: Slowest pairs, trend and log of a wide screen.
        self.column = TargetLines(id="column")
        self._body = Horizontal(self.node_states, self._left, self._side, self.column, id="body")
        self._optional = self._optional_widgets()

    def _optional_widgets(self) -> dict[str, Widget]:
        return {
            "connecting": self.node_states,
            "grid": self.grid,
            "worst": self.worst_pairs,
            "panel": self.panel,
            "column": self.column,
            "status": self.status_line,
            "tabs-row": self._tabs_row,
            "air": self._air,
            "color-key": self.color_key,
            "log": self.event_log,
            "keys": self.key_bar,
            "verdict": self.verdict_bar,
        }

    @property
    def model(self) -> Model:
        return self._app_context.model

    @property
    def sentence(self) -> str:
        content = self._panel_content
        return "" if content is None or self.view == "connecting" else plain(content.sentence(None, self._job))

    @property
    def findings(self) -> SessionDiagnosis | None:
        return self._panel_content.diagnosis if self._panel_content is not None else None

    @property
    def view_state(self) -> ViewState:
        return self.navigation.view_state

    @property
    def source(self) -> EndpointCells:
        return self.view_state.source

    @property
    def view(self) -> str:
        """Content of the body: ``connecting``, ``grid`` or ``worst``."""
        return self._layout_state.view

    def compose(self) -> ComposeResult:
        yield from (self.verdict_bar, self._tabs_row, self.notice_line, self._air, self._body)
        yield from (self.findings_below, self.status_line, self.color_key, self.event_log, self.key_bar)
        yield self.tooltip_line

    def on_mount(self) -> None:
        self._composed = True
        self.event_log.styles.height = 1
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def take_model(self, *, same: bool = False) -> None:
        """Show the model of the feed, which has just been opened; ``same``: it is of the same session."""
        if self.findings is not None:
            self.findings.stop()
        self._job = None
        self.navigation.take_model(same=same)
        self._panel_content = PanelContent(self._app_context, self.navigation, self.worst_pairs.sorting)
        self.draw()

    def _fit(self) -> None:
        width, height = self.size
        axis = self.source.axis
        two_nodes = self.view_state.zoom is Zoom.NODES
        ranks = self.view_state.shows_ranks
        layout = arrange(self.model, axis, width, height, self._choices, two_nodes=two_nodes, ranks=ranks)
        if layout == self._layout_state:
            return
        if layout.view != self._layout_state.view:
            # Other keys are active.
            self.call_later(self.refresh_bindings)
        self._layout_state = layout
        for name, shown in layout.shown.items():
            self._optional[name].display = shown
        self._left.display = layout.view != "connecting"
        self.event_log.styles.height = layout.log
        focus = self._optional[layout.view]
        if self.focused is not focus and not (self._choices.log and self.focused is self.event_log):
            self.set_focus(focus if focus.can_focus else None, scroll_visible=False)
        self.panel_width = panel_width(axis, width, height)
        self.panel.styles.width = self.panel_width
        self.navigation.fit_zoom(grid_fits(axis, width - (self.panel_width if self.panel.display else 0)))

    def _choose(self, **choices: bool) -> None:
        self._choices = self._choices._replace(**choices)
        self.draw()

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        for widget in (self.grid, self.color_key, self.minimap):
            widget.paint_with(ramp, system)

    def draw(self) -> None:
        if not self._composed or not self.size.width:
            return
        navigation = self.navigation
        navigation.note_cursor()
        self._take_job()
        self._follow_sweep()
        self._updater.update(self.view_state)
        navigation.search()
        navigation.keep_order()
        self._fit()
        self._show_if_any(self.notice_line, self._notices())
        if self.view != "connecting" and self._panel_content is not None:
            self._panel_content.diagnosis.follow()
            self._start_at_the_worst()
        self._draw_below()
        if self.view == "connecting":
            content, width = self._panel_content, max(40, self.size.width - 2)
            summary = content.preflight_summary(width) if content is not None and self.model.nodes else []
            self.node_states.put(self.model, self._app_context.settings.title, summary)
        else:
            self._draw_around()
        self._draw_verdict()
        log = self.event_log
        log.put(self.model, self._layout_state.log, self.size.width, self._glyphs.ellipsis, large=self._choices.log)
        self._draw_keys()
        if self.tooltip_line.display:
            self._draw_tooltip()

    def _take_job(self) -> None:
        """Show the latest verdict about the running job; its layer opens by itself while nothing can be tested."""
        board = self._app_context.job()
        if board is None:
            return
        if board is not self._job:
            self._job = board
            self.navigation.take_board(board)
        # The last verdict may come before it is known that nothing can be tested.
        opens = self._followed and self.source.layer is not Layer.JOB and not self.model.results.tested
        if opens and has_nothing_to_test(self.model):
            self._show_layer(Layer.JOB)

    def _follow_sweep(self) -> None:
        if self._followed is not self.source.layer or self.findings is None:
            return
        bad = self.findings.layers
        if self.model.watching or (bad.get(self._followed) and self.model.phase.name != "done"):
            # The first bad cell stays in view, and while watching nothing of the sweep is left to follow.
            return
        layer = layer_to_show(self.model, bad)
        if layer is Layer.BUSBW and layer not in self.model.layers:
            # It would be empty beside the findings.
            return
        if layer is not None and layer is not self._followed:
            self._followed = layer
            self.navigation.take_layer(layer)

    def tick(self) -> None:
        self._draw_verdict()
        if self._app_context.feed is not None and self._app_context.feed.seeking:
            return
        if self.view != "connecting" and self.panel.display:
            self._draw_cursor()

    def _draw_verdict(self) -> None:
        if self._ending:
            return
        model, context, content = self.model, self._app_context, self._panel_content
        replay = ""
        if context.feed is not None and (state := context.feed.playback) is not None:
            if state.reached is not None:
                # The state on the way is shown once it is complete.
                self.verdict_bar.put([(seek_line(state, self._glyphs), ALL_FINDINGS)])
                return
            replay = replay_text(state, room=self.size.width >= 100)
        domain = "" if content is None else content.diagnosis.domain
        facts = quiet_facts(model, context.elapsed(), context.now(), replay, self._glyphs, domain)
        if replay and (title := context.settings.title):
            # The name of the recording.
            facts.insert(0, QuietFact(0, [(one_line(title, 40), MUTED)]))
        if self.view == "connecting" or content is None:
            before: Line = connecting_line(model) if model.nodes else [("fabtui", "bold $primary")]
            line = head_line(lambda _: before, facts, self.size.width, self._glyphs)
        else:
            sentence = partial(content.sentence, job=self._job)
            line = head_line(sentence, facts, self.size.width, self._glyphs)
        self.verdict_bar.put([(clipped(line, self.size.width, self._glyphs.ellipsis), ALL_FINDINGS)])

    def _notices(self) -> list[Part]:
        parts: list[Part] = []
        for warning in self._app_context.badges:
            parts += [(f" {one_line(warning, 200)} ", "bold $warning reverse"), ("  ", "")]
        return parts + (self.navigation.chips() if self.view != "connecting" else [])

    def _start_at_the_worst(self) -> None:
        found, view, navigation = self.findings, self.view_state, self.navigation
        if self.model.phase.name != "done":
            self._aimed_for = None
            return
        elsewhere = self.view != "grid" or view.shows_ranks or view.zoom is Zoom.NODES
        if found is None or elsewhere or navigation.moved or self.model.watching:
            return
        place = None
        if found.final:
            if found.found is self._aimed_for:
                return
            self._aimed_for = found.found
            place = next(filter(None, map(navigation.place_of_finding, found.found)), None)
        elif self._aimed_for is not None or view.index.busy:
            return
        # The levels of the cells are known before the findings are, and `enter` may be pressed at once.
        place = place or next(((one.row, one.column) for one in view.index.worst(1)), None)
        if place is not None:
            navigation.put_cursor(*place)

    def _show_if_any(self, line: TextLine, parts: list[tuple[str, str]]) -> None:
        line.show(Content.assemble(*clipped(parts, self.size.width, self._glyphs.ellipsis)))
        line.display = bool(parts)

    def _draw_around(self) -> None:
        bad = dict(self.findings.layers) if self.findings is not None else {}
        if self._job is not None and self._job.verdict.alerts:
            hangs = self._job.style is CellStyle.FAILED
            worst = Verdict.FAILED if hangs else Verdict.SLOW
            bad[Layer.JOB] = Counter({worst: max(1, len(self._job.verdict.behind))})
        self.tabs.choose(self.source.layer, layers_of(self.model), self.size.width, bad)
        where = self.grid.scrolled_text if self.view == "grid" else ""
        room = self.size.width - max(self.tabs.width, MIN_TABS) - 2
        parts = legend(self.model, self.source.layer, *self.source.unit(), room - len(where) - 2, self._glyphs)
        # Rows and columns in view, if the unit leaves room for them.
        above = len(plain(parts)) + len(where) + 2 <= room
        parts += [("  " + where, "bold")] if where and above else []
        self._where_below = "" if above else where
        parts = clipped(parts, room, self._glyphs.ellipsis)
        self.unit_line.show(Content.assemble(" " * (room - len(plain(parts))), *parts))
        self._show_if_any(self.notice_line, self._notices())
        self._draw_map()
        shown = set(self.grid.styles_in_view()) if self.color_key.display and self.grid.display else set()
        self.color_key.explain(self.source.layer, shown, job=self._job)
        self._draw_cursor()

    def _draw_cursor(self) -> None:
        if self.view == "worst":
            index, none = self.view_state.index, f"no bad pair in layer {self.source.layer}"
            none = none if index.complete else "searching for bad pairs"
            self.worst_pairs.list_pairs(self.model, self.source.axis, index.worst(MAX_PAIRS), none)
        entries = self.cursor_entries()
        job = self._job if self.view_state.source.layer is Layer.JOB else None
        if job is not None and self.panel.display:
            # Files may show a job without its ranks.
            size = self.panel_width - PANEL_EDGES, max(1, self.panel.size.height)
            self.panel.put(self._job_lines(job, self._rank_line(job) or None, size, rates=not self.usual.display))
        if entries is None:
            return
        if self.column.display and self._panel_content is not None:
            self.column.put(self._panel_content.column(COLUMN_WIDTH - PANEL_EDGES, max(1, self.column.size.height)))
        if self.panel.display and self._panel_content is not None:
            size = self.panel_width - PANEL_EDGES, max(1, self.panel.size.height)
            if job is None:
                self.panel.put(self._panel_content.lines(entries, self.cursor_block(), size, self._usual_in_panel))
            return
        parts = [] if job is None else self._rank_line(job)
        if not parts and self.findings_below.display and self._panel_content is not None:
            parts = self._panel_content.explained_line(entries)
        parts = parts or status_parts(self.model, self.source.layer, *entries, self._glyphs)
        if (block := self.cursor_block()) is not None:
            name = (f"{block_name(self.view_state, *block)}  ", "bold")
            parts = [name, *block_parts(self.view_state, *block, self._glyphs), ("; ", MUTED), *parts]
        if (where := self._where_below) and len(plain(parts)) + len(where) + 2 <= self.size.width:
            parts = between(parts, [(where, "bold")], self.size.width, self._glyphs.ellipsis)
        self.status_line.show(Content.assemble(*in_clauses(parts, self.size.width, self._glyphs.ellipsis)))

    def _rank_line(self, job: JobBoard) -> Line:
        entries = self.cursor_entries()
        return [] if entries is None or self._panel_content is None else self._panel_content.rank_line(job, *entries)

    def _job_lines(self, job: JobBoard, rank: Line | None, size: tuple[int, int], *, rates: bool) -> list[TargetLine]:
        return job_panel(
            job, rank, size, self._glyphs, unfolded=self._stacks_unfolded and bool(job.verdict.stacks), rates=rates
        )

    def _draw_below(self) -> None:
        content, width, lines = self._panel_content, self.size.width, LinesBelow()
        job = self._job if self.view_state.shows_ranks else None
        panel = self.panel.display
        beside = width - (self.panel_width if panel else 0)
        usual = usual_lines(self.model, self.source.layer) if job is None else rate_lines(job, beside - 2, self._glyphs)
        body = self.size.height - self._layout_state.lines_around - self.notice_line.display
        if self.view == "worst":
            # A short list leaves room for the causes.
            left = body - self.view_state.index.bad_shown - 2
            lines = LinesBelow(findings=left if left >= LEAST_FINDINGS else 0)
        elif self.view == "grid" and content is not None:
            judged = self.source.layer.spec.better is not None and self.source.layer is not Layer.CHANGE
            judged = judged or (job is not None and panel and bool(usual))
            lines = lines_below(self.grid, beside, body, panel=panel, usual=judged, more=job is not None)
            of_rows = self.grid.fitted(beside, body - lines.usual).used(self.grid.source.rows)
            # The table is right below the rows.
            self._grids.styles.height = of_rows if panel and lines.usual else "1fr"
        found: list[TargetLine] = []
        if content is not None and lines.findings:
            if job is not None:
                found = self._job_lines(job, None, (width, lines.findings), rates=not panel)
            else:
                found = content.findings_below(self.cursor_entries(), width, lines.findings)
        self._usual_in_panel = usual if panel and not lines.usual else []
        if not panel and not found and lines.findings > len(usual):
            # The table takes the lines that no finding needs.
            found, usual = [(line, None) for line in ([], *usual)], [[]]
        elif not panel and job is None:
            usual = [usual_line(self.model, self.source.layer, self._glyphs)]
        else:
            usual = [[], *([(" ", ""), *line] for line in usual)]
        for widget, room, shown in (
            (self.usual, lines.usual, [(line, None) for line in usual]),
            (self.findings_below, lines.findings, found),
        ):
            widget.styles.height, widget.display = room, room > 0
            widget.put(shown)

    def _draw_map(self) -> None:
        window = self.grid.window if self.view == "grid" and self._choices.map else None
        no_map = self.view_state.zoom is Zoom.NODES or self.view_state.shows_ranks
        shown = window is not None and not no_map and self.size.width >= 60
        if self.minimap.display != shown:
            self.minimap.display = shown
            # The width of the grid changes, and with it the cells in view.
            self._app_context.draw_within(0.01)
        if shown and window is not None:
            width = self.panel_width if self.panel.display else None
            wait = self.minimap.draw_scope(self.view_state, window, width, self.size.height)
            if wait:
                self._app_context.draw_within(wait)

    def _draw_keys(self) -> None:
        feed = self._app_context.feed
        replay = feed is not None and feed.playback is not None
        untestable = feed is not None and not feed.can_test
        state = (self.model.paused, self.model.watching, untestable, replay, self.view_state.shows_ranks)
        found = self.findings is not None and bool(self.findings.found)
        if (state, found) != (self._key_state, self._has_findings):
            self._key_state, self._has_findings = state, found
            self.key_bar.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.view == "connecting" and action in self._grid_actions:
            return False
        return super().check_action(action, parameters)

    def on_key(self, event: events.Key) -> None:
        """Report why a key of the grid does nothing over the node states."""
        actions = [one.action.partition("(")[0] for one in self._bindings.key_to_bindings.get(event.key, ())]
        if self.view == "connecting" and any(action in self._grid_actions for action in actions):
            event.stop()
            self._app_context.notify("this key is for the grid, and no pair can be tested yet")

    def _key_label(self, binding: Shortcut) -> str:
        """Return the label of a key in the current state; "" leaves it out."""
        if self._prompt is not None and binding.id != "prompt.close":
            # The prompt takes the keys.
            return ""
        paused, watching, untestable, replay, ranks = self._key_state
        if untestable and "test" in binding.needs:
            return ""
        if not replay and "replay" in binding.needs:
            return ""
        if binding.id == "main.run" and (self.findings is None or not self.findings.found):
            return ""
        if ranks and binding.id in _OF_RANKS:
            return _OF_RANKS[binding.id or ""]
        if binding.id == "main.pause" and paused:
            return "resume"
        if binding.id == "main.watch" and watching:
            return "stop watch"
        return binding.description

    def show_closing(self, text: str) -> None:
        self._ending = True
        self.verdict_bar.put([([(f" {text} ", "bold reverse")], None)])

    def point_at(self, x: int, y: int) -> None:
        self.tooltip_line.at = (x, y)
        self._draw_tooltip()

    def _draw_tooltip(self) -> None:
        grid, region = self.grid, self.grid.region
        x, y = self.tooltip_line.at
        at = grid.cell_at(x - region.x, y - region.y) if grid.display else None
        rows, columns = grid.source.rows.entries, grid.source.columns.entries
        if at is None or at[0] >= len(rows) or at[1] >= len(columns):
            self.tooltip_line.display = False
            return
        row, column = rows[at[0]], columns[at[1]]
        view = self.view_state
        if view.shows_ranks:
            here = view.entry_of(row, column)
            content, job = self._panel_content, self._job
            parts = [] if content is None or job is None else content.rank_line(job, here, here)
        elif view.zoom is not Zoom.FABRIC:
            parts = status_parts(self.model, self.source.layer, row, column, self._glyphs)
        else:
            a, b = view.blocks.axis.find(row), view.blocks.axis.find(column)
            if a is None or b is None:
                return
            parts = [(f"{block_name(view, a, b)}  ", "bold"), *block_parts(view, a, b, self._glyphs)]
        self.tooltip_line.put(clipped([(" ", ""), *parts, (" ", "")], region.width, self._glyphs.ellipsis), region)

    def cursor_entries(self) -> tuple[AxisEntry, AxisEntry] | None:
        if self.view == "worst" and (chosen := self.worst_pairs.chosen) is not None:
            entries = self.source.axis.entries
            return entries[chosen[0]], entries[chosen[1]]
        return self.navigation.entries()

    @property
    def node(self) -> str | None:
        entries = self.cursor_entries()
        return None if entries is None else entries[0].node

    @property
    def lacks_nodes(self) -> bool:
        return bool(lost_nodes(self.model))

    def cursor_block(self) -> tuple[int, int] | None:
        return self.navigation.block() if self.view == "grid" else None

    def go_to(self, position: tuple[int, int]) -> None:
        self.navigation.go_to(*position)
        self.draw()

    @on(SidePanel.Resized)
    def _fill_panel(self) -> None:
        self._draw_cursor()

    def on_grid_view_moved(self) -> None:
        self.navigation.note_cursor()
        if self.findings_below.display:
            self._draw_below()
        self._draw_around()

    def on_sorted_table_moved(self) -> None:
        if self.view == "worst" and (chosen := self.worst_pairs.chosen) is not None:
            self.go_to(chosen)

    @on(TargetLines.Sorted)
    def _worst_pairs_sorted(self, message: TargetLines.Sorted) -> None:
        self.worst_pairs.sort_by(message.column)
        self._draw_cursor()

    def on_minimap_pointed(self, message: Minimap.Pointed) -> None:
        rows, columns = self.grid.source.rows.size, self.grid.source.columns.size
        self.grid.move_to(int(message.down * rows), int(message.right * columns))

    @on(TargetLines.Pointed)
    def _line_clicked(self, message: TargetLines.Pointed) -> None:
        if isinstance(message.target, tuple):
            self.go_to(message.target)
        elif (found := self.findings) is not None:
            listed = message.target < len(found.found)
            place = self.navigation.place_of_finding(found.found[message.target]) if listed else None
            if place is not None:
                self.navigation.go_to(*place)
            else:
                self.action_view("findings")
        self.draw()

    def on_layer_tabs_chosen(self, message: LayerTabs.Chosen) -> None:
        self.action_layer(message.layer)

    @on(GridView.Chosen)
    @on(WorstPairs.Chosen)
    def action_pair(self) -> None:
        entries = self.cursor_entries()
        if entries is None or self.view == "connecting":
            return
        if self.view_state.shows_ranks:
            steps = [] if self._job is None else steps_of(self._job)
            if steps:
                run_step(self, steps[0])
            else:
                self._app_context.notify("there is no next step")
        elif self.cursor_block() is not None:
            self.navigation.choose_zoom(Zoom.NODES)
            self.draw()
        else:
            self.post_message(self.PairChosen(*entries))

    def action_zoom(self, step: int) -> None:
        if self.view == "connecting" or not self.source.axis.size:
            return
        zoom, axis = self.view_state.zoom + step, self.source.axis
        entries = self.cursor_entries()
        if step > 0 and (self.view == "worst" or zoom > Zoom.NODES):
            if entries is not None:
                self.post_message(self.PairChosen(*entries))
        elif self.view == "worst":
            self._app_context.notify("a list has no zoom; v shows the grid")
        elif zoom < Zoom.FABRIC or (step < 0 and self.view_state.shows_ranks):
            self._app_context.notify("this is the widest zoom")
        elif zoom is Zoom.FABRIC and len(axis.starts) <= 2 and grid_fits(axis, self.size.width):
            self._app_context.notify("this is the widest zoom: blocks of nodes need three nodes")
        else:
            self.navigation.choose_zoom(Zoom(zoom), entries)
            self.draw()

    def action_back(self) -> None:
        if self.view == "worst" and self._choices.worst:
            self.action_list()
        elif self.navigation.back():
            self.draw()
        else:
            self._app_context.notify("there is nothing to go back to: q quits")

    def action_next_bad(self, step: int) -> None:
        if self.view == "worst":
            self.worst_pairs.action_turn(step)
        elif self.navigation.next_bad(step):
            self.draw()
        else:
            hidden = " that the filter shows" if self.view_state.filter is not None else ""
            self._app_context.notify(f"no bad cell in layer {self.source.layer}{hidden}")

    def action_other_direction(self) -> None:
        entries = self.cursor_entries()
        place = self.view_state.place_of((entries[1], entries[0])) if entries is not None else None
        if entries is not None and entries[0] == entries[1]:
            self._app_context.notify("this cell has no pair to reverse")
        elif place is not None and self.view == "worst" and place not in self.worst_pairs.pairs:
            self._app_context.notify("the opposite direction is not in this list: v shows the grid")
        elif place is not None:
            self.go_to(place)

    def action_list(self) -> None:
        if self.view == "connecting":
            self._app_context.notify("there are no pairs to list yet")
        elif self.view == "worst" and not self._choices.worst:
            self._app_context.notify("the terminal is too small for the grid")
        else:
            self.navigation.note_cursor()
            self._choose(worst=not self._choices.worst)

    def action_sort_worst(self) -> None:
        shown = self.panel.headings if self.view == "grid" and self.panel.display else None
        if self.view != "worst" and shown is None:
            self._app_context.notify("no worst pairs are listed here: v lists them")
            return
        self.worst_pairs.action_sort(1, None if shown is None else shown.spans)
        self._draw_cursor()

    def action_map(self) -> None:
        no_map = self.view_state.zoom is Zoom.NODES or self.view_state.shows_ranks
        if self.view != "grid" or self.grid.window is None or no_map:
            self._app_context.notify("there is no map: it is for grids that do not fit")
        else:
            self._choose(map=not self._choices.map)

    def action_panel(self) -> None:
        if self.view == "worst":
            self._app_context.notify("the side panel is beside the grid: v shows the grid")
        elif (width := self.size.width) < (least := PANEL_LEAST):
            self._app_context.notify(f"the side panel needs {least} columns; this terminal has {width}")
        else:
            self._choose(panel=not self.panel.display)

    def action_order(self, name: str) -> None:
        if self.view_state.shows_ranks:
            # Ranks have one order; the same key folds their stacks.
            if self._job is None or not self._job.verdict.stacks:
                self._app_context.notify("no stacks have been read: r asks the nodes for them")
            self._stacks_unfolded = not self._stacks_unfolded
            return self.draw()
        self.navigation.toggle_order(RowOrder(name))
        self.draw()

    def action_grouping(self) -> None:
        self.navigation.next_grouping()
        self.draw()

    def action_layer(self, name: str) -> None:
        layer = Layer(name)
        if layer not in layers_of(self.model):
            feed = self._app_context.feed
            again = "sweep again (R), or " if feed is None or feed.can_test else ""
            none = f"nothing to compare with: {again}start with --baseline FILE"
            self._app_context.notify("no job runs on these nodes" if layer is Layer.JOB else none)
            return
        self._followed = None
        self._show_layer(layer)

    def _show_layer(self, layer: Layer) -> None:
        if self.view == "connecting" and has_grid(self.model):
            self._choices = self._choices._replace(connecting=False)
        if layer is not self.source.layer:
            self.navigation.take_layer(layer)
        self.draw()

    @property
    def log_is_large(self) -> bool:
        return self._choices.log

    def action_log(self) -> None:
        self._choose(log=not self._choices.log)
        self.set_focus(self.event_log if self._choices.log else self._optional[self.view], scroll_visible=False)

    @on(EventLog.Filtering)
    async def _filter_log(self) -> None:
        await self._ask(_LOG_FILTER, "words that a line of the log must have", self.event_log.filter)

    @on(EventLog.Left)
    def _log_left(self) -> None:
        if self._choices.log:
            self.action_log()

    def action_node(self, end: int) -> None:
        entries = self.cursor_entries()
        if entries is not None:
            self._app_context.open_node(entries[end].node)
        elif self.model.nodes:
            self._app_context.open_node(next(iter(self.model.nodes)))

    def action_view(self, name: str) -> None:
        self._app_context.open_view(cast("ViewName", name))

    async def action_filter(self) -> None:
        await self._ask(
            "filter", FILTER_HINT, self.view_state.filter.text if self.view_state.filter is not None else ""
        )

    def action_unfilter(self) -> None:
        if self.view_state.filter is None:
            self._app_context.notify("no filter is set: all cells are shown")
        self.navigation.clear_filter()
        self.draw()

    async def action_seek_to(self) -> None:
        if session_actions.replay_of(self._app_context) is not None:
            await self._ask("seek", session_actions.SEEK_HINT)

    async def _ask(self, purpose: str, hint: str, text: str = "") -> None:
        if (self.view == "connecting" and purpose == "filter") or self._prompt is not None:
            return
        self.navigation.note_cursor()
        self._prompt = Prompt(purpose, hint, text, id="prompt")
        await self.mount(self._prompt)

    @on(Prompt.Given)
    async def _prompt_given(self, message: Prompt.Given) -> None:
        try:
            if message.purpose == "filter":
                await self.navigation.set_filter(message.text)
            elif message.purpose == _LOG_FILTER:
                self.event_log.filter = message.text.strip()
            else:
                session_actions.seek_to(self._app_context, message.text)
        except InputError as error:
            if self._prompt is not None:
                self._prompt.complain(one_line(str(error), 300))
        else:
            self._close_prompt()
            self.draw()

    @on(Prompt.Closed)
    def _close_prompt(self) -> None:
        prompt, self._prompt = self._prompt, None
        if prompt is not None:
            log = prompt.purpose == _LOG_FILTER and self._choices.log
            self.set_focus(self.event_log if log else self._optional[self.view], scroll_visible=False)
            prompt.remove()

    def action_retest(self) -> None:
        entries = self.cursor_entries()
        if self.view_state.shows_ranks:
            self.run_worker(session_actions.ask_job(self._app_context), name="ask", exit_on_error=False)
        elif entries is not None:
            session_actions.retest(self._app_context, [entries])

    def action_run(self) -> None:
        panel = self._panel_content
        finding = None if panel is None else panel.open_finding(self.cursor_entries())
        if panel is None or finding is None:
            self._app_context.notify("there is no finding whose next step could be run")
        elif not any(map(panel.runs_here, finding.next)):
            self._app_context.notify("the finding that is open has no step that only reads and runs here: F shows all")
        else:
            self._app_context.run_step_of(finding)

    def action_sweep(self) -> None:
        session_actions.sweep(self._app_context)

    def action_pause(self) -> None:
        session_actions.pause(self._app_context)
        self._draw_keys()

    def action_watch(self) -> None:
        session_actions.watch(self._app_context)

    def action_copy(self) -> None:
        entries = self.cursor_entries()
        if self.view_state.shows_ranks and self._job is not None:
            self._app_context.copy(board_text(self._job, 120, self._glyphs))
        elif entries is not None:
            self._app_context.copy(summary_text(self.model, *entries))
