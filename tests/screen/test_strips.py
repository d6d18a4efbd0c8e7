from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fabtui.presentation.cell_levels import BAD, CellStyle, Glyphs, cell_text
from fabtui.screen.grid.layout import lay_out
from fabtui.screen.grid.widget import LineRenderer, frame
from fabtui.screen.terminal.ansi_strips import Palette, Runs, half_style
from fabtui.screen.themes import ramp_of, theme_names
from tests.screen.ansi import cells_of, strip_codes
from tests.screen.test_gridlayout import axis_of

SYSTEMS = {
    "24": ColorSystem.TRUECOLOR,
    "256": ColorSystem.EIGHT_BIT,
    "16": ColorSystem.STANDARD,
    "none": None,
}
BASE = Style.parse("#dadada on #121212")


def palette_of(count: str, theme: str = "dark") -> Palette:
    return Palette(BASE, ramp_of(theme, True, count), SYSTEMS[count])


def drawn_plainly(strip: Strip, system: ColorSystem | None) -> str:
    """The same line as Textual would write it, from its segments."""
    console = Console(color_system="truecolor" if system is None else None, force_terminal=True)
    console._color_system = system or ColorSystem.TRUECOLOR
    segments = []
    for text, style, _ in strip._segments:
        assert style is not None
        fresh = style.copy()
        # Textual keeps the codes with the style for any number of colours.
        fresh._ansi = None
        segments.append(Segment(text, fresh))
    return Strip(segments, strip.cell_length).render(console)


def renderer_of(width: int, nodes: int, row: int, column: int, plain: bool = False) -> LineRenderer:
    axis = axis_of(nodes, 8)
    layout = lay_out(axis, width, 40)
    return LineRenderer(axis, layout, layout.shown(axis, 0), 0, row, column, Glyphs(plain))


def cells_like(scene: LineRenderer, slots: Iterable[int], number: str = "") -> Runs:
    return [(int(slot), cell_text(slot, number, scene.layout.cell, scene.glyphs)) for slot in slots]


@pytest.mark.parametrize("count", list(SYSTEMS))
@pytest.mark.parametrize(("width", "nodes"), [(120, 2), (80, 2), (120, 4), (120, 8), (60, 40)])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_ready_line_is_what_its_segments_are(count: str, width: int, nodes: int, data: st.DataObject) -> None:
    palette = palette_of(count)
    row = data.draw(st.integers(0, 3))
    scene = renderer_of(width, nodes, 1, data.draw(st.integers(0, 15)))
    slots = bytearray(data.draw(st.lists(st.integers(0, 17), min_size=len(scene.columns), max_size=len(scene.columns))))
    cells = cells_like(scene, slots, data.draw(st.sampled_from(["", "351", "4.5"])))
    strip = palette.strip(scene.cells(row, cells, colored=palette.system is not None), width)
    assert strip.text == strip_codes(strip._render_cache or "")
    assert strip.cell_length == len(strip.text) == width
    assert cells_of(strip._render_cache or "") == cells_of(drawn_plainly(strip, SYSTEMS[count]))


@pytest.mark.parametrize("count", ["24", "256", "16"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_line_of_two_rows_is_what_its_segments_are(count: str, data: st.DataObject) -> None:
    axis = axis_of(60, 1)
    layout = lay_out(axis, 90, 20, 0)
    assert layout.halves
    row, column = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 59))
    scene = LineRenderer(axis, layout, layout.shown(axis, 0), 0, row, column, Glyphs(False))
    cells = st.lists(st.integers(0, 17), min_size=len(scene.columns), max_size=len(scene.columns))
    upper, lower = data.draw(cells), data.draw(st.none() | cells)
    top = row - row % 2 if data.draw(st.booleans()) else 6
    palette = palette_of(count)
    below = None if lower is None else cells_like(scene, lower)
    strip = palette.strip(scene.halves(top, cells_like(scene, upper), below, palette), 90)
    assert strip.text == strip_codes(strip._render_cache or "")
    assert strip.cell_length == len(strip.text) == 90
    assert cells_of(strip._render_cache or "") == cells_of(drawn_plainly(strip, SYSTEMS[count]))


def test_two_rows_a_line_show_both_colours() -> None:
    palette = palette_of("24")
    upper, lower = (CellStyle.FAILED, CellStyle.GOOD, CellStyle.PAD), (CellStyle.GOOD, CellStyle.GOOD, CellStyle.SLOW)
    slots = list(map(half_style, upper, lower))
    failed, good, slow = cells_of(palette.ready([(slot, palette.half_text(slot)) for slot in slots]))
    fills = {key: style.split()[-1] for key, style in ramp_of("dark", True, "24").items() if style}
    assert (failed.character, failed.foreground, failed.background) == ("▀", fills["failed"], fills["good"])
    assert (good.character, good.background) == (" ", fills["good"])
    assert (slow.character, slow.foreground) == ("▄", fills["slow"])


@pytest.mark.parametrize("theme", theme_names())
@pytest.mark.parametrize("count", list(SYSTEMS))
def test_every_change_of_style_is_complete(theme: str, count: str) -> None:
    palette = palette_of(count, theme)
    for before in CellStyle:
        for after in CellStyle:
            line = palette.strip([(before, "a"), (after, "b")], 2)
            assert cells_of(line._render_cache or "") == cells_of(drawn_plainly(line, SYSTEMS[count])), (before, after)


def test_no_colour_is_no_colour() -> None:
    palette = palette_of("none")
    for slot in CellStyle:
        cell = cells_of(palette.ready([(slot, "x")]))[0]
        assert (cell.foreground, cell.background) == ("default", "default")


def test_a_strip_can_be_cut_like_any_other() -> None:
    runs = [(int(CellStyle.HEADER), "n000 "), (int(CellStyle.GOOD), "351 "), (int(CellStyle.SLOW), "212!")]
    line = palette_of("24").strip(runs, 13)
    assert line.divide([13]) == [line]
    assert [part.text for part in line.divide([5, 13])] == ["n000 ", "351 212!"]
    assert line.crop(2, 8).text == "00 351"
    assert Strip.join([line, line]).text == "n000 351 212!" * 2


def test_a_healthy_frame_fits_a_slow_line() -> None:
    """120 x 40 of good cells in 24-bit colour is at most 16 KB, moves of the cursor not counted."""
    palette = palette_of("24")
    axis = axis_of(100, 8)
    layout = lay_out(axis, 120, 40)
    scene = LineRenderer(axis, layout, layout.shown(axis, 0), 0, 0, 1, Glyphs(False))
    cells = cells_like(scene, [CellStyle.GOOD] * len(scene.columns))
    lines = [palette.ready(scene.cells(row, cells)) for row in range(40)]
    assert sum(len(line.encode()) for line in lines) <= 16384 - 40 * 9


@pytest.mark.parametrize("count", list(SYSTEMS))
def test_cells_share_characters_only_if_colors_differ(count: str) -> None:
    assert palette_of(count).halves is (count != "none")
    assert palette_of(count, "high-contrast").halves is (count != "none")
    assert not palette_of(count, "mono").halves


@pytest.mark.parametrize("theme", theme_names())
@pytest.mark.parametrize("count", list(SYSTEMS))
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("slot", sorted({*BAD, CellStyle.GOOD, CellStyle.UNTESTED}))
def test_the_cursor_is_two_brackets_in_the_colors_of_its_cell(
    theme: str, count: str, plain: bool, slot: CellStyle
) -> None:
    palette = palette_of(count, theme)
    for width in (150, 120, 60, 46):
        scene = renderer_of(width, 2, 1, 2, plain)
        cells, colored = cells_like(scene, [slot] * len(scene.columns)), palette.system is not None
        rows = [cells_of(palette.ready(scene.cells(row, cells, colored=colored))) for row in (1, 2)]
        here, there = ("".join(one.character for one in row).rstrip() for row in rows)
        left, right, _ = scene.glyphs.cursor
        begin, cell = dict(scene.columns)[2], scene.layout.cell
        assert cell > 1
        assert here.count(left) + here.count(right) == 2
        assert here[begin - 1 : begin + 1].count(left) == here[begin + cell - 1 : begin + cell + 1].count(right) == 1
        sign = scene.glyphs.of_style[slot]
        assert here.count(sign) == there.count(sign) or sign == " "
        colors = [[(one.foreground, one.background) for one in row if one.character != " "] for row in rows]
        # The colour of the cell stays, and no other comes.
        assert {*colors[0][6:]} <= {*colors[1][6:], *colors[0][:6]} or slot is CellStyle.UNTESTED


@pytest.mark.parametrize("count", list(SYSTEMS))
def test_a_cell_of_one_character_shows_the_cursor_in_its_colors(count: str) -> None:
    palette = palette_of(count)
    axis = axis_of(60, 1)
    layout = lay_out(axis, 90, 70)
    assert layout.cell == 1
    scene = LineRenderer(axis, layout, layout.shown(axis, 0), 0, 1, 2, Glyphs(False))
    cells = cells_like(scene, [CellStyle.GOOD] * len(scene.columns))
    row = cells_of(palette.ready(scene.cells(1, cells, colored=palette.system is not None)))
    here, there = (row[dict(scene.columns)[column]] for column in (2, 3))
    if palette.system is None:
        assert (here.character, there.character) == (".", ".")
        assert here != there
    else:
        assert here.character == Glyphs(False).cursor[2]
        assert (here.foreground, here.background) == (there.foreground, there.background)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("bad", sorted(BAD))
def test_the_cursor_on_half_a_character_has_the_color_of_the_verdict(lower: bool, bad: CellStyle) -> None:
    axis = axis_of(60, 1)
    layout = lay_out(axis, 90, 20, 0)
    scene = LineRenderer(axis, layout, layout.shown(axis, 0), 0, int(lower), 0, Glyphs(False))
    good, mixed = (cells_like(scene, [slot] * len(scene.columns)) for slot in (CellStyle.GOOD, bad))
    palette = palette_of("24")
    strip = palette.strip(scene.halves(0, good if lower else mixed, mixed if lower else good, palette), 90)
    cell = cells_of(strip._render_cache or "")[scene.columns[0][1]]
    assert cell.character == Glyphs(False).cursor[2]
    (wanted,) = cells_of(palette.ready([(bad, cell.character)]))
    assert cell == wanted
    assert cells_of(strip._render_cache or "") == cells_of(drawn_plainly(strip, SYSTEMS["24"]))


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["  360  ", " 1.96▾ ", "  359  "], ["  360  ", "⟦1.96▾⟧", "  359  "]),
        # A full cell has its brackets in the blanks of its neighbours.
        ([" 360 ", "1.96▾", " 359 "], [" 360⟦", "1.96▾", "⟧359 "]),
        ([" 360 ", "12.5 ", " 359 "], [" 360⟦", "12.5⟧", " 359 "]),
        # And one of them at least where there are none.
        (["1.96▾", "1.96▾", "1.96▾"], ["1.96▾", "⟦.96▾", "1.96▾"]),
        ([" x", " x", " x"], [" x", "⟦x", "⟧x"]),
        ([".", ".", "."], [".", "□", "."]),
    ],
)
def test_brackets_stand_where_there_is_room(texts: list[str], shown: list[str]) -> None:
    runs = [(int(CellStyle.GOOD), text) for text in texts]
    frame(runs, 1, Glyphs(False))
    assert [text for _, text in runs] == shown
    assert {slot for slot, _ in runs} == {CellStyle.GOOD}
