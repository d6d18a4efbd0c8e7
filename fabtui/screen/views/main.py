"""The main screen: the connecting view, then the grid with everything around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.color import ColorSystem
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content

from fabtui.model.layers import Layer, key_layers
from fabtui.model.measurement import Verdict
from fabtui.presentation.legends import layers_of, legend
from fabtui.presentation.progress_estimate import Pace
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import clipped
from fabtui.screen import feed_actions
from fabtui.screen.command_palette import shown_keys
from fabtui.screen.grid.cells_by_endpoint import EndpointCells
from fabtui.screen.grid.node_block_text import block_name, block_parts
from fabtui.screen.grid.updates import GridUpdater
from fabtui.screen.grid.view_state import ViewState, Zoom
from fabtui.screen.grid.widget import GridView
from fabtui.screen.views import view
from fabtui.screen.views.connecting import ConnectingView
from fabtui.screen.views.main_layout import Arrangement, Wishes, arrange, panel_width, too_small
from fabtui.screen.views.main_panel import panel_content
from fabtui.screen.views.main_prompts import PromptingScreen
from fabtui.screen.views.mainkeys import KEYS
from fabtui.screen.widgets.event_log import LogView
from fabtui.screen.widgets.findings_list import Findings
from fabtui.screen.widgets.pair_text import status_parts, summary_text
from fabtui.screen.widgets.side_panel import PANEL_EDGES, ColorKey, KeyBar, SidePanel
from fabtui.screen.widgets.text_line import TextLine
from fabtui.screen.widgets.title_bar import LayerTabs, badges, title_content
from fabtui.screen.widgets.worst_pairs import MOST, WorstList

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

_PANEL_WORST = 12


class MainScreen(PromptingScreen):
    """Shows a model as it grows."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; overflow: hidden; }
    MainScreen #title { background: $panel; }
    /* What the first frame does not show; the rest comes and goes with the arrangement. */
    MainScreen #badges, MainScreen #tabs-row, MainScreen #legend-right, MainScreen #legend-below, MainScreen #grid,
    MainScreen #worst, MainScreen #panel, MainScreen #minimap, MainScreen #chips, MainScreen #small,
    MainScreen #status, MainScreen #color-key, MainScreen #log { display: none; }
    MainScreen #tabs-row { height: 1; }
    MainScreen #legend-right { padding: 0 0 0 2; }
    MainScreen #body { height: 1fr; }
    MainScreen #side { width: auto; height: 100%; align-vertical: bottom; }
    MainScreen #panel { height: 1fr; }
    MainScreen #small { height: 1fr; text-wrap: wrap; }
    MainScreen #keys { background: $panel; }
    MainScreen #log { color: $foreground 85%; }
    """
    # What is behind the widgets is one colour, which need not be drawn anew with each of them.
    BLANK = True
    BINDING_GROUP_TITLE = "Main"
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(self, app: FabricApp) -> None:
        super().__init__(app)
        for layer in key_layers():
            # Layers registered after this class was made, as plugins and tests do.
            if layer.spec.key not in self._bindings.key_to_bindings:
                self._bindings.bind(layer.spec.key or "", f"layer('{layer}')", show=False)
        self.title_line = TextLine(id="title")
        self.badge_line = TextLine(id="badges")
        self.tabs = LayerTabs(id="tabs")
        self.legend_right = TextLine(id="legend-right")
        self.legend_below = TextLine(id="legend-below")
        self.chip_line = TextLine(id="chips")
        self.small_line = TextLine(id="small")
        self.nodes_view = ConnectingView(app.glyphs, id="connecting")
        self.grid = GridView(self.source, app.glyphs, id="grid")
        self.worst_list = WorstList(app.glyphs, id="worst")
        self.panel = SidePanel(id="panel", classes="-plain" if app.glyphs.plain else None)
        self.status_line = TextLine(id="status")
        self.color_key = ColorKey(app.glyphs, id="color-key")
        self.log_view = LogView(id="log")
        self.key_bar = KeyBar(id="keys")
        self.wishes = Wishes()
        self._arrangement = Arrangement("connecting", {}, 0)
        self._counts: tuple[int, dict[Verdict, int]] = (-1, {})
        self._updater = GridUpdater(self.grid, app.draw_again)
        self._ending = False
        self._composed = False
        self.findings = Findings(app.model)
        self.pace = Pace()

    @property
    def source(self) -> EndpointCells:
        """The cells of all endpoints."""
        return self.scope.source

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield self.title_line
        yield self.badge_line
        with Horizontal(id="tabs-row"):
            yield self.tabs
            yield self.legend_right
        yield self.legend_below
        yield self.chip_line
        yield self.small_line
        with Horizontal(id="body"):
            yield self.nodes_view
            yield self.grid
            yield self.worst_list
            with Vertical(id="side"):
                yield self.panel
                yield self.minimap
        yield self.status_line
        yield self.color_key
        yield self.log_view
        yield self.key_bar

    def on_mount(self) -> None:
        """Show what is known, so that it is in the first frame."""
        self._composed = True
        self.draw()

    def on_resize(self) -> None:
        """Lay out anew for another size."""
        self.draw()

    # -- layout -------------------------------------------------------------------------------------------------------

    @property
    def view(self) -> str:
        """What the body shows: ``connecting``, ``grid`` or ``worst``."""
        return self._arrangement.view

    def fit(self) -> None:
        """Show the widgets that fit the size and the session, and hide the others."""
        width, height = self.size
        if not width or not self._composed:
            return
        arranged = arrange(self.model, self.source.axis, width, height, self.wishes, near=self.scope.zoom is Zoom.NODES)
        if arranged == self._arrangement:
            return
        self._arrangement = arranged
        for name, on in arranged.shown.items():
            widget = self.query_one(f"#{name}")
            if widget.display != on:
                widget.display = on
        self.log_view.styles.height = arranged.log
        focus = self.query_one(f"#{arranged.view}")
        if self.focused is not focus and not (self.wishes.log and self.focused is self.log_view):
            self.set_focus(focus if focus.can_focus else None, scroll_visible=False)
        if arranged.view == "small":
            self.small_line.show(Content(too_small(width, height)))
        self.across = panel_width(self.source.axis, width, height)
        self.panel.styles.width = self.across
        self.fit_zoom(width - (self.across if self.panel.display else 0))

    def _legend(self) -> list[Part]:
        unit, size = self.source.unit()
        return legend(self.model, self.source.layer, unit, size)

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Draw cells with a ramp and a number of colours from now on."""
        self.grid.paint_with(ramp, system)
        self.color_key.paint_with(ramp, system)
        self.minimap.paint_with(ramp, system)

    # -- drawing ------------------------------------------------------------------------------------------------------

    def take_model(self) -> None:
        """Show another model from now on."""
        self.scope = ViewState(self.model, self.source.layer, self._glyphs)
        self.findings.stop()
        self.findings = Findings(self.model, self._fabric_app.beat)
        self.grid.show(self.scope.shown())
        self.draw()

    def draw(self) -> None:
        """Bring everything up to date that shows something else now. Costs what has changed."""
        if not self._composed or not self.size.width:
            return
        self.note_cursor()
        self._updater.update(self.scope)
        self.search()
        self.keep_order()
        self.fit()
        self.draw_title()
        self._draw_badges()
        if self.view == "connecting":
            self.nodes_view.put(self.model, self._fabric_app.settings.title)
        else:
            self.findings.follow()
            self._draw_around()
        width = self.size.width
        large = self.wishes.log
        self.log_view.put(self.model, self._arrangement.log, width, self._glyphs.ellipsis, large=large)
        self._draw_keys()

    def _draw_badges(self) -> None:
        """Bring the lasting warnings up to date."""
        app = self._fabric_app
        warnings = clipped(badges(self.model, app.badges, app.now()), self.size.width, self._glyphs.ellipsis)
        self.badge_line.show(Content.assemble(*warnings))
        if self.badge_line.display != bool(warnings):
            self.badge_line.display = bool(warnings)

    def tick(self) -> None:
        """Bring up to date what goes with the clock."""
        self.draw_title()
        self._draw_badges()
        if self.view != "connecting" and self.panel.display:
            self.draw_cursor()

    def draw_title(self) -> None:
        """Bring the first line up to date."""
        if self._ending:
            return
        app = self._fabric_app
        model = self.model
        if model.exit_code is not None and self._counts[0] != model.version:
            self._counts = (model.version, model.counts())
        line = title_content(model, app.settings.title, app.elapsed(), self._glyphs, self.size.width, self._counts[1])
        self.title_line.show(line)

    def _draw_around(self) -> None:
        """Bring up to date what stands around the grid."""
        self.tabs.choose(self.source.layer, layers_of(self.model), self.size.width)
        parts = self._legend()
        right, below = self.legend_right, self.legend_below
        target = right if right.display else below
        room = self.size.width - (self.tabs.width + 2 if target is right else 0)
        where = self.grid.scrolled_text if self.view == "grid" else ""
        parts = clipped(parts, room - len(where) - 2 if where else room, self._glyphs.ellipsis)
        if where:
            parts.append(("  " + where, "bold"))
        target.show(Content.assemble(*parts))
        chips = clipped(self.chips(), self.size.width, self._glyphs.ellipsis)
        self.chip_line.show(Content.assemble(*chips))
        if self.chip_line.display != bool(chips):
            self.chip_line.display = bool(chips)
        self.draw_map(self.panel.display)
        self.color_key.show_blocks(self.scope.zoom is Zoom.FABRIC)
        self.color_key.explain(self.source.layer)
        self.draw_cursor()

    def draw_cursor(self) -> None:
        """Bring up to date what is said of the cursor's pair, and the worst pairs."""
        done = self.scope.index.complete
        if self.view == "worst":
            bad = self.scope.index.worst(MOST)
            nothing = f"no bad pair in layer {self.source.layer}" if done else "looking for bad pairs"
            self.worst_list.put(self.source.axis, bad, nothing)
        seats = self.cursor_seats()
        if seats is None:
            return
        source, target = seats
        block = self.cursor_block() if self.view == "grid" else None
        panel = self.panel
        if panel.display:
            worst = self.scope.index.worst(_PANEL_WORST), self.scope.index.bad_shown, done
            app = self._fabric_app
            self.pace.take(self.model, app.elapsed())
            panel.put(
                panel_content(app, self, (source, target), worst, self.across - PANEL_EDGES, max(1, panel.size.height))
            )
        else:
            parts = status_parts(self.model, self.source.layer, source, target, self._glyphs)
            if block is not None:
                parts = [(f"{block_name(self.scope, *block)}  ", "bold"), *self._block_status(block), *parts]
            self.status_line.show(Content.assemble(*clipped(parts, self.size.width, self._glyphs.ellipsis)))

    def _block_status(self, block: tuple[int, int]) -> list[Part]:
        return [*block_parts(self.scope, *block, self._glyphs), ("; ", MUTED)]

    def _draw_keys(self) -> None:
        self.key_bar.put(shown_keys(self._fabric_app, self), self.size.width)

    def show_closing(self, text: str) -> None:
        """Say that the app is about to end."""
        self._ending = True
        self.title_line.show(Content.assemble((f" {text} ", "bold reverse")))

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def on_grid_view_moved(self) -> None:
        """Follow the cursor."""
        self.note_cursor()
        self._draw_around()

    def on_worst_list_moved(self, message: WorstList.Moved) -> None:
        """Take the grid's cursor along with the list's."""
        self.go_to((message.row, message.column))

    def on_grid_view_chosen(self) -> None:
        """Look into the pair."""
        self.action_pair()

    def on_layer_tabs_chosen(self, message: LayerTabs.Chosen) -> None:
        """Show the layer."""
        self.action_layer(message.layer)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        """Do what a clicked key does."""
        self.call_later(self.run_action, message.action)

    # -- actions ------------------------------------------------------------------------------------------------------

    def action_layer(self, name: str) -> None:
        """Show a layer."""
        layer = Layer(name)
        if layer not in layers_of(self.model):
            self._fabric_app.tell("there is no earlier session to compare with: start with --baseline FILE")
            return
        if self.view == "connecting" and self.model.endpoints:
            self.wishes = replace(self.wishes, connecting=False)
        if layer is not self.source.layer:
            self.note_cursor()
            self.scope.take_layer(layer)
            self.grid.reread()
        self.draw()

    def action_node(self, which: int) -> None:
        """Look at the node of the cursor's row or column."""
        seats = self.cursor_seats()
        if seats is not None:
            self._fabric_app.open_node(seats[which].node)
        elif self.model.nodes:
            self._fabric_app.open_node(next(iter(self.model.nodes)))

    def action_retest(self) -> None:
        """Test the cursor's pair again."""
        seats = self.cursor_seats()
        if seats is not None:
            feed_actions.retest(self._fabric_app, [seats])

    def action_sweep(self) -> None:
        """Run the whole sweep again."""
        feed_actions.sweep(self._fabric_app)

    def action_pause(self) -> None:
        """Start no new test, or go on."""
        feed_actions.pause(self._fabric_app)
        self._draw_keys()

    def action_watch(self) -> None:
        """Test pairs again in the background, or stop that."""
        feed_actions.watch(self._fabric_app)

    def action_copy(self) -> None:
        """Copy what is known of the cursor's pair."""
        seats = self.cursor_seats()
        if seats is not None:
            self._fabric_app.copy(summary_text(self.model, *seats))

    def action_connecting(self) -> None:
        """Go to the nodes' states, or back to the grid."""
        if self.view == "connecting" and not self.model.endpoints:
            self._fabric_app.tell("no node has anything to test yet")
            return
        self.wishes = replace(self.wishes, connecting=self.view != "connecting")
        self.draw()

    def action_panel(self) -> None:
        """Show or hide the side panel."""
        self.wishes = replace(self.wishes, panel=not self.panel.display)
        self.draw()

    def action_view(self, name: str) -> None:
        """Show another view: ``nodes``, ``preflight`` or ``findings``."""
        self._fabric_app.push_screen(view(name, self))

    def action_log(self) -> None:
        """Make the event log large or small."""
        self.wishes = replace(self.wishes, log=not self.wishes.log)
        self.draw()
        self.set_focus(self.log_view if self.wishes.log else self.query_one(f"#{self.view}"), scroll_visible=False)

    def on_log_view_left(self) -> None:
        """Make the event log small again."""
        if self.wishes.log:
            self.action_log()
