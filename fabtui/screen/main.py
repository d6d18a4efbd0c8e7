"""The main screen: the connecting view, then the grid with everything around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.color import ColorSystem
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from fabtui.fabric.measurement import Layer, Verdict
from fabtui.fabric.model import Model
from fabtui.screen.arrangement import Arrangement, Wishes, arrange
from fabtui.screen.axis import Seat
from fabtui.screen.cellnews import CellNews
from fabtui.screen.commands import shown_keys
from fabtui.screen.connecting import ConnectingView
from fabtui.screen.findings import Findings
from fabtui.screen.grid import GridView
from fabtui.screen.legends import layers_of, legend
from fabtui.screen.pace import Pace
from fabtui.screen.pairwords import status_parts, summary_text
from fabtui.screen.panel import PANEL_TEXT, ColorKey, KeyBar, LogView, SidePanel
from fabtui.screen.panelwords import panel_content
from fabtui.screen.preflight import PreflightScreen
from fabtui.screen.source import ModelSource
from fabtui.screen.textline import TextLine
from fabtui.screen.title import LayerTabs, badges, title_content
from fabtui.screen.trouble import Trouble
from fabtui.screen.words import LAYERS, Part
from fabtui.screen.worst import MOST, WorstList
from fabtui.screen.wrapping import clipped

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: Seconds a frame may spend on looking for bad cells.
_SEARCH = 0.004
_PANEL_WORST = 12


class MainScreen(Screen[None]):
    """Shows a model as it grows."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; overflow: hidden; }
    MainScreen #title { background: $panel; }
    /* What the first frame does not show; the rest comes and goes with the arrangement. */
    MainScreen #badges, MainScreen #tabs-row, MainScreen #legend-right, MainScreen #legend-below, MainScreen #grid,
    MainScreen #worst, MainScreen #panel, MainScreen #status, MainScreen #color-key, MainScreen #log { display: none; }
    MainScreen #tabs-row { height: 1; }
    MainScreen #legend-right { padding: 0 0 0 2; }
    MainScreen #body { height: 1fr; }
    MainScreen #keys { background: $panel; }
    MainScreen #log { color: $foreground 85%; }
    """
    # What is behind the widgets is one colour, which need not be drawn anew with each of them.
    BLANK = True
    BINDING_GROUP_TITLE = "Main"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pair", "pair", id="main.pair", tooltip="look into the cursor's pair, both ways"),
        Binding("n", "node(0)", "node", id="main.node", tooltip="look at the node of the cursor's row"),
        Binding("N", "node(1)", id="main.column-node", show=False, tooltip="look at the node of the cursor's column"),
        Binding(
            "right_square_bracket", "next_bad(1)", "next bad", id="main.next-bad", tooltip="go to the next bad cell"
        ),
        Binding(
            "left_square_bracket", "next_bad(-1)", id="main.previous-bad", show=False, tooltip="the previous bad cell"
        ),
        Binding("r", "retest", "re-test", id="main.retest", tooltip="test the cursor's pair again, alone"),
        Binding("R", "sweep", "sweep", id="main.sweep", tooltip="run the whole sweep again"),
        Binding("w", "watch", "watch", id="main.watch", tooltip="test all again in the background, or stop that"),
        Binding("space", "pause", "pause", id="main.pause", tooltip="start no new test, or go on"),
        *(
            Binding(
                str(number), f"layer('{layer}')", id=f"main.layer-{layer}", show=False, tooltip=f"show layer {layer}"
            )
            for number, layer in enumerate(LAYERS, 1)
        ),
        Binding("y", "copy", "copy", id="main.copy", tooltip="copy what is known of the cursor's pair"),
        Binding("c", "connecting", "nodes", id="main.connecting", tooltip="the nodes' states, and back to the grid"),
        Binding("P", "preflight", "preflight", id="main.preflight", tooltip="what is wrong with nodes, what differs"),
        Binding("L", "log", "log", id="main.log", tooltip="make the event log large or small"),
        Binding("F", "findings", "findings", id="main.findings", tooltip="all that is wrong, and what to type next"),
        Binding("p", "panel", id="main.panel", show=False, tooltip="show or hide the side panel"),
    ]

    def __init__(self, app: FabricApp) -> None:
        super().__init__()
        self._fabric_app = app
        self._glyphs = app.glyphs
        self.source = ModelSource(app.model, Layer.P2P, app.glyphs)
        self.trouble = Trouble(self.source)
        self.title_line = TextLine(id="title")
        self.badge_line = TextLine(id="badges")
        self.tabs = LayerTabs(id="tabs")
        self.legend_right = TextLine(id="legend-right")
        self.legend_below = TextLine(id="legend-below")
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
        self._news = CellNews(self.grid, app.draw_again)
        self._ending = False
        self.findings = Findings(app.model)
        self.pace = Pace()

    @property
    def model(self) -> Model:
        """What is known so far."""
        return self._fabric_app.model

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield self.title_line
        yield self.badge_line
        with Horizontal(id="tabs-row"):
            yield self.tabs
            yield self.legend_right
        yield self.legend_below
        with Horizontal(id="body"):
            yield self.nodes_view
            yield self.grid
            yield self.worst_list
            yield self.panel
        yield self.status_line
        yield self.color_key
        yield self.log_view
        yield self.key_bar

    def on_mount(self) -> None:
        """Show what is known."""
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
        if not width or not self.is_mounted:
            return
        arranged = arrange(self.model, self.source.axis, width, height, self.wishes)
        if arranged == self._arrangement:
            return
        self._arrangement = arranged
        for name, on in arranged.shown.items():
            widget = self.query_one(f"#{name}")
            if widget.display != on:
                widget.display = on
        self.log_view.styles.height = arranged.log
        focus = self.query_one(f"#{arranged.view}")
        if self.focused is not focus:
            self.set_focus(focus, scroll_visible=False)

    def _legend(self) -> list[Part]:
        unit, size = self.source.unit()
        return legend(self.model, self.source.layer, unit, size)

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Draw cells with a ramp and a number of colours from now on."""
        self.grid.paint_with(ramp, system)
        self.color_key.paint_with(ramp, system)

    # -- drawing ------------------------------------------------------------------------------------------------------

    def take_model(self) -> None:
        """Show another model from now on."""
        self.source = ModelSource(self.model, self.source.layer, self._glyphs)
        self.trouble = Trouble(self.source)
        self.findings = Findings(self.model)
        self.grid.show(self.source)
        self.draw()

    def draw(self) -> None:
        """Bring everything up to date that shows something else now. Costs what has changed."""
        if not self.is_mounted or not self.size.width:
            return
        self._news.draw(self.source, self.trouble)
        self.fit()
        self.draw_title()
        warnings = clipped(badges(self.model, self._fabric_app.badges), self.size.width, self._glyphs.ellipsis)
        self.badge_line.show(Content.assemble(*warnings))
        if self.badge_line.display != bool(warnings):
            self.badge_line.display = bool(warnings)
        if self.view == "connecting":
            self.nodes_view.put(self.model, self._fabric_app.settings.title)
        else:
            searching = not self.trouble.step(_SEARCH)
            if self.findings.step(_SEARCH) or searching:
                self._fabric_app.draw_again(0.05)
            self._draw_around()
        width = self.size.width
        self.log_view.put(self.model, self._arrangement.log, width, self._glyphs.ellipsis)
        self._draw_keys()

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
        self.color_key.explain(self.source.layer)
        self.draw_cursor()

    def draw_cursor(self) -> None:
        """Bring up to date what is said of the cursor's pair, and the worst pairs."""
        done = self.trouble.complete
        if self.view == "worst":
            bad = self.trouble.worst(MOST)
            nothing = f"no bad pair in layer {self.source.layer}" if done else "looking for bad pairs"
            self.worst_list.put(self.source.axis, bad, nothing)
        seats = self.cursor_seats()
        if seats is None:
            return
        source, target = seats
        panel = self.panel
        if panel.display:
            worst = self.trouble.worst(_PANEL_WORST), self.trouble.known, done
            app = self._fabric_app
            self.pace.take(self.model, app.elapsed())
            panel.put(panel_content(app, self, (source, target), worst, PANEL_TEXT, max(1, panel.size.height)))
        else:
            parts = status_parts(self.model, self.source.layer, source, target, self._glyphs)
            self.status_line.show(Content.assemble(*clipped(parts, self.size.width, self._glyphs.ellipsis)))

    def _draw_keys(self) -> None:
        self.key_bar.put(shown_keys(self._fabric_app, self), self.size.width)

    def show_closing(self, text: str) -> None:
        """Say that the app is about to end."""
        self._ending = True
        self.title_line.show(Content.assemble((f" {text} ", "bold reverse")))

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def cursor_seats(self) -> tuple[Seat, Seat] | None:
        """Return row and column of the cursor, or None when there is nothing to be on."""
        seats = self.source.axis.seats
        grid = self.grid
        if self.view == "worst" and (bad := self.worst_list.chosen) is not None:
            return seats[bad.row], seats[bad.column]
        if grid.row >= len(seats) or grid.column >= len(seats):
            return None
        return seats[grid.row], seats[grid.column]

    def on_grid_view_moved(self) -> None:
        """Follow the cursor."""
        self._draw_around()

    def on_worst_list_moved(self, message: WorstList.Moved) -> None:
        """Take the grid's cursor along with the list's."""
        self.grid.move_to(message.row, message.column)
        self.draw_cursor()

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
            self.source.show(layer)
            self.trouble.forget()
            self.grid.reread()
        self.draw()

    def action_pair(self) -> None:
        """Look into the cursor's pair."""
        seats = self.cursor_seats()
        if seats is not None and self.view != "connecting":
            self._fabric_app.open_pair(*seats)

    def action_node(self, which: int) -> None:
        """Look at the node of the cursor's row or column."""
        seats = self.cursor_seats()
        if seats is not None:
            self._fabric_app.open_node(seats[which].node)
        elif self.model.nodes:
            self._fabric_app.open_node(next(iter(self.model.nodes)))

    def action_preflight(self) -> None:
        """Look at what the nodes were found to be."""
        self._fabric_app.push_screen(PreflightScreen(self.nodes_view.latest))

    def action_next_bad(self, step: int) -> None:
        """Go to the next or the previous bad cell."""
        if not self.source.axis.size:
            return
        if self.view == "worst":
            self.worst_list.action_move(step)
            return
        found = self.trouble.following(self.grid.row, self.grid.column, step)
        if found is None:
            self._fabric_app.tell(f"no bad cell in layer {self.source.layer}")
        else:
            self.grid.move_to(*found)

    def action_retest(self) -> None:
        """Test the cursor's pair again."""
        seats = self.cursor_seats()
        if seats is not None:
            self._fabric_app.retest([seats])

    def action_sweep(self) -> None:
        """Run the whole sweep again."""
        self._fabric_app.sweep()

    def action_pause(self) -> None:
        """Start no new test, or go on."""
        self._fabric_app.pause()
        self._draw_keys()

    def action_watch(self) -> None:
        """Test pairs again in the background, or stop that."""
        self._fabric_app.toggle_watch()

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

    def action_findings(self) -> None:
        """Show all findings."""
        from fabtui.screen.findingsview import FindingsScreen

        self._fabric_app.push_screen(FindingsScreen())

    def action_log(self) -> None:
        """Make the event log large or small."""
        self.wishes = replace(self.wishes, log=not self.wishes.log)
        self.draw()
