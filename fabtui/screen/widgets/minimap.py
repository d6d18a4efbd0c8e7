"""Map of a grid that does not fit (the visible part and the bad cells), and the key of its colours."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from fabtui.model.cell_level import Level
from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import STYLES, CellStyle, Glyphs
from fabtui.presentation.job_board import JobBoard
from fabtui.presentation.legends import meanings
from fabtui.presentation.numbers import percent_text
from fabtui.screen.grid.navigation import ViewState
from fabtui.screen.grid.severity_index import FEW_TILE
from fabtui.screen.terminal.ansi_strips import PaintedWidget, Runs, half_style

#: Maximum number of tiles in each direction: with the panel, without it.
_MAX_TILES = 44
_MAX_TILES_ALONE = 18
#: Minimum time (s) between two frames of the map.
_INTERVAL = 0.5
#: Characters of tiles of one cell where they differ from the grid.
_TEXTS = {CellStyle.GOOD: "o", CellStyle.PARTLY: "_", CellStyle.SKIPPED: "."}


def _slot(level: int, visible: bool, whole: bool) -> CellStyle:
    """Return the style of a tile; of one that is ``whole``, a single cell, also whether it was tested."""
    if level >= Level.SLOW:
        return CellStyle.FEW if level == FEW_TILE else STYLES[level]
    # Where few pairs are tested, their places mean nothing about the fabric: only what is bad is.
    tested = level > Level.UNTESTED or not whole
    if visible:
        return CellStyle.GOOD if tested else CellStyle.PARTLY
    return CellStyle.SKIPPED if tested else CellStyle.PAD


class Minimap(PaintedWidget):
    """Map of the grid with its visible part highlighted; a click moves the cursor."""

    DEFAULT_CSS = "Minimap { width: 20; height: 10; }"

    @dataclass
    class Pointed(Message):
        """The map was clicked, at a share of its height and width."""

        down: float
        right: float

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._tiles: list[bytes] = []
        self._visible = (range(0), range(0))
        self._key: tuple[object, ...] = ()
        self._drawn_at = 0.0
        self._title = ""
        self._whole = True  #: Whether each tile is one cell.

    @property
    def halves(self) -> bool:
        """True if a line shows two rows of tiles."""
        return not self.glyphs.plain and self.palette.halves

    def draw_scope(
        self, view: ViewState, window: tuple[range, range], panel_width: int | None, screen_height: int
    ) -> float:
        """Show the cells of a scope, below a side panel if it has a width; return when (s) to draw again, or 0."""
        source = view.shown()
        most = _MAX_TILES_ALONE if panel_width is None else _MAX_TILES
        most = min(most, 2 * max(4, screen_height // 4))
        per_line = 2 if self.halves else 1
        across = min(most, source.columns.size)
        down = min(most if per_line == 2 else most // 2, source.rows.size)
        self.styles.width = across + 2 if panel_width is None else panel_width
        self.styles.height = -(-down // per_line) + 1
        shown = (source, source.row_at, source.column_at, across, down)
        key = (view.index.version, view.index.complete, *shown)
        now = time.monotonic()
        tiles_shown, wait = self._tiles, 0.0
        if key != self._key:
            if now - self._drawn_at < _INTERVAL and self._key[2:] == shown:
                wait = _INTERVAL
            else:
                self._key, self._drawn_at = key, now
                tiles_shown = view.map_tiles(down, across)
        visible = (_tile_range(window[0], source.rows.size, down), _tile_range(window[1], source.columns.size, across))
        self._whole = across == source.columns.size and down == source.rows.size
        title = self._title_of(view, across, down)
        if (title, tiles_shown, visible) != (self._title, self._tiles, self._visible):
            self._title, self._tiles, self._visible = title, tiles_shown, visible
            self.refresh()
        return wait

    def _title_of(self, view: ViewState, across: int, down: int) -> str:
        source = view.shown()
        if across < 16 or self._whole:
            return "map" if across < 16 else "map: visible part highlighted"
        rows, columns = -(-source.rows.size // down), -(-source.columns.size // across)
        what = "nodes" if source.axis.of_nodes_alone else "GPUs"
        share = float(view.index.tested.sum()) / max(1, view.index.size * (view.index.size - 1))
        tested = "" if share > 0.99 else f", {percent_text(share)} tested"
        return f"map: {rows} {self.glyphs.times} {columns} {what} each{tested}"

    def _lines(self) -> list[Runs]:
        rows, columns = self._visible
        slots = [
            [_slot(rank, row in rows and column in columns, self._whole) for column, rank in enumerate(line)]
            for row, line in enumerate(self._tiles)
        ]
        if not self.halves:
            return [[(slot, _TEXTS.get(slot, self.glyphs.of_style[slot])) for slot in line] for line in slots]
        blank = [CellStyle.PAD] * (len(slots[0]) if slots else 0)
        pairs = zip(slots[::2], [*slots[1::2], blank], strict=False)
        codes = [map(half_style, upper, lower) for upper, lower in pairs]
        return [[(code, self.palette.half_text(code)) for code in line] for line in codes]

    def render_lines(self, crop: Region) -> list[Strip]:
        width, height = self.size
        lines: list[Runs] = [[(CellStyle.HEADER, f" {self._title}"[:width].ljust(width))]]
        for runs in self._lines():
            lines.append([(CellStyle.PAD, " "), *runs, (CellStyle.PAD, " " * (width - 1 - len(runs)))])
        lines += [[(CellStyle.PAD, " " * width)]] * (height - len(lines))
        return [self.palette.strip(runs, width).crop(crop.x, crop.right) for runs in lines[crop.y : crop.bottom]]

    def on_click(self, event: events.Click) -> None:
        down = 2 * (event.y - 1) + 0.5 if self.halves else event.y - 1
        right = event.x - 1
        if self._tiles and 0 <= down < len(self._tiles) and 0 <= right < len(self._tiles[0]):
            self.post_message(self.Pointed(down / len(self._tiles), right / len(self._tiles[0])))


def _tile_range(part: range, size: int, tile_count: int) -> range:
    """Return the tiles that a range of rows or columns touches."""
    if not size:
        return range(0)
    first = part.start * tile_count // size
    return range(first, max(first + 1, -(-part.stop * tile_count // size)))


class ColorKey(PaintedWidget):
    """Colors and glyphs with their meanings on one line, drawn with the ramp of the grid."""

    DEFAULT_CSS = "ColorKey { height: 1; width: 1fr; }"
    _entries: tuple[tuple[CellStyle, str, str], ...] = ()  #: Style, glyph and meaning of each kind of cell.

    def explain(self, layer: Layer, shown: Collection[int], *, job: JobBoard | None = None) -> None:
        if layer is Layer.JOB and job is not None:
            entries = job.legend(self.glyphs)
        else:
            found = [*meanings(layer), (CellStyle.PARTLY, "not all tested"), (CellStyle.FEW, "few pairs bad")]
            entries = tuple((slot, self.glyphs.of_style[slot], meaning) for slot, meaning in found if slot in shown)
        if entries != self._entries:
            self._entries = entries
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        runs: Runs = []
        left = width
        for slot, glyph, meaning in self._entries:
            text = f" {meaning}  "
            if 3 + len(text.rstrip()) > left:
                break
            runs += [(slot, f" {glyph} "), (CellStyle.PAD, text[: left - 3])]
            left -= 3 + len(runs[-1][1])
        runs.append((CellStyle.PAD, " " * max(0, left)))
        return [self.palette.strip(runs, width).crop(crop.x, crop.right)] * min(1, crop.height)
