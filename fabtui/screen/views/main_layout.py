"""Layout of the main screen: which widgets a size and the state of the session allow."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.model.session_model import Model
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import HEADER_LINES, NUMBER_WIDTH, lay_out
from fabtui.screen.grid.widget import GridView
from fabtui.screen.widgets.text_line import PANEL_WIDTH, PANEL_WIDTHS

#: Minimum width for the side panel. A narrower screen has a status line under the grid.
PANEL_FROM = 100
#: Minimum width for a third column, and its width.
COLUMN_FROM, COLUMN_WIDTH = 190, 52
#: Minimum width for a side panel that the user asks for.
PANEL_LEAST = 2 * PANEL_WIDTH
#: Minimum height for the color key, and for a blank line between the layers and the grid.
KEY_FROM, AIRY_FROM = 26, 36
#: Minimum number of lines of the body for findings below a grid that does not leave any, and the maximum of these.
BELOW_FROM = 12
MOST_BELOW = 16
#: Lines of the table of usual values: a blank line, the heading, and one for each class of most fabrics.
USUAL_LINES = 6
#: Minimum number of lines below a grid for one about usual values among them.
FINDINGS_FIRST = 6
#: Maximum size without a grid, where the worst pairs are listed instead; a window of a phone is narrow, but so high
#: that there is a grid with findings below it.
TINY_WIDTH = 60
TINY_HEIGHT = 15
TALL_FROM = 30
#: Minimum height for both large cells and the log.
_ROOMY = 34
#: Minimum size of the terminal.
MIN_WIDTH = 36
MIN_HEIGHT = 6

#: Cell width beyond which the side panel takes the room.
_WIDE_ENOUGH = 10

_BEFORE_TESTS = ("start", "connect", "look")


class LayoutChoices(NamedTuple):
    """Choices of the user."""

    connecting: bool | None = None  #: Show the node states (True) or the grid (False); None to follow the phase.
    log: bool = False  #: Enlarge the event log.
    panel: bool | None = None  #: Show the side panel or not; None if there is room.
    worst: bool = False  #: List the worst pairs instead of the grid.
    map: bool = True  #: Show the map if the grid does not fit.


class MainLayout(NamedTuple):
    """Layout of the main screen."""

    view: str  #: Content of the body: ``connecting``, ``grid`` or ``worst``.
    shown: dict[str, bool]  #: Whether each optional widget is shown, by id.
    log: int  #: Lines of the event log.

    @property
    def lines_around(self) -> int:
        body = ("connecting", "grid", "worst", "panel", "column", "log")
        return self.log + sum(shown for name, shown in self.shown.items() if name not in body)


def has_grid(model: Model) -> bool:
    """Return True if a grid has anything to show: a job, or endpoints, not all of nodes that could not be reached."""
    return (
        bool(model.job)
        or any(kind != "none" for kind, _ in model.kinds)
        or (bool(model.endpoints) and not all(record.state.gone for record in model.nodes.values()))
    )


def only_observes(model: Model) -> bool:
    """Return True if a session has observed a job and tests nothing: the job is there from its first sample."""
    return bool(model.job) and model.options.get("probes") == []


def has_nothing_to_test(model: Model) -> bool:
    """Return True if no pair will be tested: the session has ended, or the GPUs of all pairs are busy."""
    if only_observes(model):
        return True
    if model.phase.name in _BEFORE_TESTS:
        return False
    ends = sum(count for (kind, _), count in model.kinds.items() if kind != "none")
    return model.phase.name in ("done", "watch") or len(model.untested) >= ends * (ends - 1)


def arrange(
    model: Model,
    axis: Axis,
    width: int,
    height: int,
    choices: LayoutChoices,
    *,
    two_nodes: bool = False,
    ranks: bool = False,
) -> MainLayout:
    view = _view(model, width, height, choices, ranks=ranks)
    tests = view in ("grid", "worst")
    panel = view == "grid" and _panel(axis, width, height, choices)
    log = 1 if height < 44 else 2
    if choices.log:
        log = max(3, height // 2)
    if height <= 8 or (two_nodes and not choices.log and height < _ROOMY):
        log = 0
    shown = {
        "connecting": view == "connecting",
        "grid": view == "grid",
        "worst": view == "worst",
        "panel": panel,
        "column": panel and width >= COLUMN_FROM,
        "status": tests and not panel,
        "tabs-row": tests and height > 10,
        "air": tests and height >= AIRY_FROM,
        "color-key": view == "grid" and height >= KEY_FROM,
        "log": log > 0,
        "keys": True,
        "verdict": True,
    }
    return MainLayout(view, shown, log)


def _view(model: Model, width: int, height: int, choices: LayoutChoices, *, ranks: bool) -> str:
    connecting = choices.connecting
    if connecting is None:
        # A further sweep probes the nodes as well.
        connecting = model.phase.name in _BEFORE_TESTS and not model.results.tested and not only_observes(model)
    if connecting or not has_grid(model):
        return "connecting"
    tiny = height <= TINY_HEIGHT or (width <= TINY_WIDTH and height < TALL_FROM)
    return "worst" if choices.worst or (tiny and not ranks) else "grid"


#: Minimum number of lines for findings below a short list of pairs.
LEAST_FINDINGS = 3


def is_too_small(width: int, height: int) -> bool:
    """Return True if nothing fits. A size of 0 is not known yet, and not small."""
    return 0 < width < MIN_WIDTH or 0 < height < MIN_HEIGHT


def grid_fits(axis: Axis, width: int) -> bool:
    layout = lay_out(axis, width, axis.size)
    return len(axis.starts) <= 1 or axis.size + layout.header <= width


class LinesBelow(NamedTuple):
    """Lines of the body below the grid: of usual values, and of findings with the rule above them."""

    usual: int = 0
    findings: int = 0


def lines_below(grid: GridView, width: int, body: int, *, panel: bool, usual: bool, more: bool = False) -> LinesBelow:
    """Return the lines below a grid in a body of lines; ``more``: up to half of it is for what is below.

    They do not depend on findings and values: the cells of the grid stay where they are while these come and go.
    """
    rows = grid.source.rows
    if panel:
        left = body - grid.fitted(width, body).used(rows)
        return LinesBelow(usual=USUAL_LINES if usual and left >= USUAL_LINES else 0)
    left = body - HEADER_LINES - rows.size - (len(rows.starts) - 1)
    few = body // 2 if more else body // 4
    least = few if body >= BELOW_FROM else min(body // 4, max(0, left))
    most = body if more or width <= TINY_WIDTH else MOST_BELOW
    found = min(most, body - grid.fitted(width, body - least).used(rows))
    line = int(usual and found >= FINDINGS_FIRST)
    return LinesBelow(line, found - line)


def _panel(axis: Axis, width: int, height: int, choices: LayoutChoices) -> bool:
    if choices.panel is not None:
        return choices.panel and width >= PANEL_LEAST
    # Numbers in the cells take precedence over the panel.
    beside = lay_out(axis, width - PANEL_WIDTH, height).cell
    return width >= PANEL_FROM and not beside < NUMBER_WIDTH <= lay_out(axis, width, height).cell


def panel_width(axis: Axis, width: int, height: int) -> int:
    """Return the largest width of the side panel that leaves the cells as they are."""
    least = lay_out(axis, width - PANEL_WIDTH, height)
    for wanted in PANEL_WIDTHS:
        found = lay_out(axis, width - wanted, height)
        enough = min(least.cell, _WIDE_ENOUGH), min(least.columns, axis.size)
        if wanted <= 0.33 * width and (found.cell, found.columns) >= enough:
            return wanted
    return PANEL_WIDTH
