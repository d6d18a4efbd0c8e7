import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import common_domain
from fabtui.screen.grid.axis import Axis, AxisEntry
from fabtui.screen.grid.layout import ENDPOINTS, NUMBER_WIDTH, CellShape, lay_out, scrolled, squeeze
from fabtui.screen.grid.widget import LineRenderer


def axis_of(nodes: int, per_node: int) -> Axis:
    return Axis(
        [
            AxisEntry(f"n{node:03}", f"n{node:03}", str(index), node * per_node + index, index == 0, False)
            for node in range(nodes)
            for index in range(per_node)
        ]
    )


def test_two_nodes_of_eight_show_numbers_on_80_columns() -> None:
    layout = lay_out(axis_of(2, 8), 80, 18)
    assert layout.cell >= NUMBER_WIDTH
    assert len(layout.shown(axis_of(2, 8), 0)) == 16
    assert len([row for row in layout.lines(axis_of(2, 8), 0) if row is not None]) == 16


def test_cells_narrow_before_anything_is_out_of_sight() -> None:
    widths = [lay_out(axis_of(nodes, 8), 120, 40).cell for nodes in (1, 2, 3, 4, 6, 8, 13, 14, 500)]
    assert widths == [14, 7, 4, 3, 2, 1, 1, 1, 2]


@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(10, 250),
    st.integers(5, 70),
    st.integers(0, 400),
    st.sampled_from([CellShape(), ENDPOINTS]),
)
def test_what_is_shown_fits(nodes: int, per_node: int, width: int, height: int, left: int, shape: CellShape) -> None:
    axis = axis_of(nodes, per_node)
    layout = lay_out(axis, width, height, shape=shape)
    left %= axis.size
    columns = layout.shown(axis, left)
    assert all(at + layout.cell <= width for _, at in columns)
    assert [column for column, _ in columns] == list(range(left, left + len(columns)))
    assert all(later - earlier >= layout.cell for (_, earlier), (_, later) in itertools.pairwise(columns))
    lines = layout.lines(axis, 0)
    assert len(lines) <= max(0, height - 2)
    if layout.tall > 1 or any(layout.row_gaps):
        assert lines[-1] == (axis.size - 1, layout.tall - 1), "large rows never scroll"


@pytest.mark.parametrize(
    ("gpus", "width", "height"), [(8, 72, 27), (8, 136, 41), (4, 72, 27), (2, 60, 20), (16, 136, 41)]
)
def test_a_small_fabric_fills_most_of_the_width_of_its_window(gpus: int, width: int, height: int) -> None:
    axis = axis_of(2, gpus // 2)
    layout = lay_out(axis, width, height, shape=ENDPOINTS)
    used = layout.shown(axis, 0)[-1][1] + layout.cell
    wanted = 0.6 if gpus == 2 else 0.8
    assert used >= wanted * width
    assert layout.tall == 2


def test_the_cells_of_a_node_lie_side_by_side_with_a_gap_between_nodes() -> None:
    axis = axis_of(2, 4)
    layout = lay_out(axis, 120, 40, shape=ENDPOINTS)
    assert (layout.column_gaps.cells, layout.row_gaps.cells) == (0, 0)
    assert (layout.column_gaps.nodes, layout.row_gaps.nodes) == (1, 1)


def test_wider_cells_than_fit_scroll_and_narrower_ones_lose_their_lines() -> None:
    axis = axis_of(2, 4)
    widest = lay_out(axis, 72, 27, ENDPOINTS.widest, shape=ENDPOINTS)
    assert widest.cell == ENDPOINTS.widest
    assert len(widest.shown(axis, 0)) < axis.size
    assert [lay_out(axis, 72, 27, cell, shape=ENDPOINTS).tall for cell in (7, 6, 5, 1)] == [2, 2, 1, 1]


@given(st.integers(0, 300), st.integers(0, 299), st.integers(0, 60), st.integers(1, 300))
def test_scrolling_keeps_the_cursor_in_sight_and_moves_little(first: int, cursor: int, fit: int, size: int) -> None:
    cursor %= size
    now = scrolled(first, cursor, fit, size)
    if 0 < fit < size:
        assert now <= cursor < now + fit
    if first <= cursor < first + fit and first + fit <= size:
        assert now == first


def test_what_all_names_end_in_is_left_out() -> None:
    assert common_domain(["a1.rack.example.org", "b1.rack.example.org"]) == ".rack.example.org"
    assert common_domain(["a.x.example.org", "b.y.example.org"]) == ".example.org"
    assert common_domain(["a.example.org", "b"]) == ""
    assert common_domain(["example.org", "a.example.org"]) == ".org"
    assert common_domain([".example.org", "a.example.org"]) == ""
    assert common_domain(["a.example.org"]) == ""
    assert common_domain(["10.0.0.5", "10.1.0.5"]) == "", "an address is shown in full"
    assert common_domain([]) == ""


def test_long_names_keep_their_end() -> None:
    assert squeeze("gpu-node-0123", 6, "~") == "~-0123"
    assert squeeze("n001", 4, "~") == "n001"
    assert squeeze("n001", 2, "~") == "01"


def column_names(axis: Axis, width: int, height: int) -> list[str]:
    """Return what is above each column, read downwards."""
    layout = lay_out(axis, width, height)
    scene = LineRenderer(axis, layout, layout.shown(axis, 0), 0, 0, -1, Glyphs(True))
    lines = ["".join(text for _, text in scene.heading(line)) for line in range(layout.heads)]
    filled, found = [""] * layout.heads, []
    for _, at in scene.columns:
        parts = [line[at : at + layout.cell].strip() for line in lines]
        # A repeated part is above its first column alone.
        filled = [part or before for part, before in zip(parts, filled, strict=True)]
        found.append("".join(filled))
    return found


@pytest.mark.parametrize(("nodes", "width"), [(8, 80), (64, 120), (100, 120), (300, 700), (1001, 1200)])
def test_the_columns_of_different_nodes_look_different(nodes: int, width: int) -> None:
    for axis in (axis_of(nodes, 8).of_nodes(), axis_of(nodes, 1), axis_of(nodes, 2).in_order(range(0, 2 * nodes, 2))):
        names = column_names(axis, width, 40)
        assert len(names) == nodes
        assert len(set(names)) == nodes


def test_headers_take_two_lines_where_these_suffice() -> None:
    assert lay_out(axis_of(100, 8).of_nodes(), 120, 40).heads == 2
    assert lay_out(axis_of(101, 8).of_nodes(), 120, 40).heads == 3
    assert lay_out(axis_of(101, 8).of_nodes(), 120, 10).heads == 2
    assert lay_out(axis_of(101, 8), 900, 40).heads == 2
