"""Which widgets the main screen shows, by its size and by how far the session is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fabtui.model.session_model import Model
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import NUMBER_WIDTH, lay_out
from fabtui.screen.widgets.side_panel import PANEL_WIDTH, PANEL_WIDTHS

#: From this width on the cursor's pair stands beside the grid, below it in a line under it.
PANEL_FROM = 100
#: From this width on the legend stands beside the layers, below it under them.
LEGEND_RIGHT_FROM = 150
#: From this height on the colours are explained.
KEY_FROM = 26
#: Up to this size there is no room for a grid: the worst pairs are listed.
TINY_WIDTH = 60
TINY_HEIGHT = 15

#: From this height on big cells and the log have room beside each other.
_ROOMY = 34
#: With less than this nothing can be shown.
LEAST_WIDTH = 36
LEAST_HEIGHT = 6

_COMING_AND_GOING = (
    "connecting",
    "grid",
    "worst",
    "panel",
    "status",
    "tabs-row",
    "legend-below",
    "legend-right",
    "color-key",
    "log",
    "keys",
    "title",
    "small",
)
_BEFORE_TESTS = ("start", "connect", "look")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for.

    Attributes:
        connecting: Show the nodes' states, or the grid; None: whatever fits the phase.
        log: Show much of the event log.
        panel: Show the side panel, or not; None: where there is room.
        worst: List the worst pairs in place of the grid.
        map: Show the map where the grid does not fit.
    """

    connecting: bool | None = None
    log: bool = False
    panel: bool | None = None
    worst: bool = False
    map: bool = True


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What the main screen shows.

    Attributes:
        view: What its body shows: ``connecting``, ``grid``, ``worst``, or ``small`` where there is no room for any.
        shown: The ids of the widgets that come and go, and whether each is shown.
        log: How many lines of the event log there are.
    """

    view: str
    shown: dict[str, bool]
    log: int


def arrange(model: Model, axis: Axis, width: int, height: int, wishes: Wishes, *, near: bool = False) -> Arrangement:
    """Return what the main screen shows; ``near``: cells are big, and lines are worth more to them than to the log."""
    view = _view(model, width, height, wishes)
    if view == "small":
        return Arrangement(view, {name: name == view for name in _COMING_AND_GOING}, 0)
    tests = view != "connecting"
    panel = view == "grid" and _panel(axis, width, height, wishes)
    log = 0 if near and not wishes.log and height < _ROOMY else _log(model, height, wishes)
    return Arrangement(
        view,
        {
            "connecting": not tests,
            "grid": view == "grid",
            "worst": view == "worst",
            "panel": panel,
            "status": tests and not panel,
            "tabs-row": tests and height > 10,
            "legend-below": tests and height > TINY_HEIGHT and width < LEGEND_RIGHT_FROM,
            "legend-right": width >= LEGEND_RIGHT_FROM,
            "color-key": view == "grid" and height >= KEY_FROM,
            "log": log > 0,
            "keys": True,
            "title": True,
            "small": False,
        },
        log,
    )


def _view(model: Model, width: int, height: int, wishes: Wishes) -> str:
    if is_too_small(width, height):
        return "small"
    connecting = wishes.connecting
    if connecting is None:
        connecting = not model.endpoints or model.phase.name in _BEFORE_TESTS
    if connecting:
        return "connecting"
    return "worst" if wishes.worst or width <= TINY_WIDTH or height <= TINY_HEIGHT else "grid"


def is_too_small(width: int, height: int) -> bool:
    """Say whether there is no room for the app; a size that is not known yet, 0, is not small."""
    return 0 < width < LEAST_WIDTH or 0 < height < LEAST_HEIGHT


def too_small(width: int, height: int) -> str:
    """Return what is said where there is no room for anything else."""
    return f"fabtui needs {LEAST_WIDTH}x{LEAST_HEIGHT}; this is {width}x{height}. q quits"


def too_big(axis: Axis, width: int) -> bool:
    """Say whether not even cells of one character fit side by side."""
    layout = lay_out(axis, width, axis.size)
    return len(axis.starts) > 1 and axis.size + layout.header > width


def _panel(axis: Axis, width: int, height: int, wishes: Wishes) -> bool:
    if wishes.panel is not None:
        return wishes.panel and width >= 2 * PANEL_WIDTH
    # Numbers in the cells are worth more than the panel.
    beside = lay_out(axis, width - PANEL_WIDTH, height).cell
    return width >= PANEL_FROM and not beside < NUMBER_WIDTH <= lay_out(axis, width, height).cell


def panel_width(axis: Axis, width: int, height: int) -> int:
    """Return how wide the side panel is: as wide as it can be without taking anything from the cells of the grid."""
    least = lay_out(axis, width - PANEL_WIDTH, height)
    for wanted in PANEL_WIDTHS:
        found = lay_out(axis, width - wanted, height)
        if wanted <= 0.33 * width and (found.cell, found.columns) >= (least.cell, min(least.columns, axis.size)):
            return wanted
    return PANEL_WIDTH


def _log(model: Model, height: int, wishes: Wishes) -> int:
    if height <= 8:
        return 0
    if wishes.log:
        return max(3, height // 2)
    return min(len(model.log), 1 if height < 28 else 2 if height < 36 else 4)
