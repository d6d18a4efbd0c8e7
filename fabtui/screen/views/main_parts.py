"""Parts of the main screen that its first frame does not need: the grid, its panel, and what is worded from the model.

The main screen imports this module once the first frame is on the terminal, and reads all names from here.
"""

# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

from fabtui.model.measurement import Verdict
from fabtui.presentation.legends import layers_of, legend, usual_line, usual_lines
from fabtui.presentation.progress_estimate import layer_to_show
from fabtui.screen.grid.cells import RowOrder
from fabtui.screen.grid.navigation import GridNavigation, Zoom, block_name, block_parts
from fabtui.screen.grid.prompts import FILTER_HINT
from fabtui.screen.grid.second_layer import SecondLayer, can_compare
from fabtui.screen.grid.updates import GridUpdater
from fabtui.screen.grid.widget import GridView
from fabtui.screen.views.main_layout import (
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
from fabtui.screen.views.main_panel import PanelContent
from fabtui.screen.widgets.main_head import (
    MIN_TABS,
    LayerTabs,
    QuietFact,
    connecting_line,
    head_line,
    quiet_facts,
    replay_text,
    seek_line,
)
from fabtui.screen.widgets.minimap import ColorKey, Minimap
from fabtui.screen.widgets.pair_text import status_parts, summary_text
from fabtui.screen.widgets.worst_pairs import MAX_PAIRS, WorstPairs
