"""Ranks of a running job as a picture: a row per node, a cell per GPU with its rank, state and numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.pictures.heatmap import Room
from fabtui.pictures.scene import LINE, Box, Item, Scene, Text, ink_on, label
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.job_board import JobBoard
from fabtui.sanitize import one_line

#: Width of a character on a page; smallest and largest width of a cell with text; size of one without; space around it.
_CHARACTER, _LEAST, _MOST, _SMALL, _GAP = 7.4, 48, 104, 16, 3
#: Maximum number of nodes that are drawn, those with a rank at fault first.
_MOST_NODES = 64


def ranks_scene(board: JobBoard, room: Room) -> Scene:
    behind = {node for node, _ in board.bad}
    chosen = {*sorted(board.nodes, key=lambda node: node not in behind)[:_MOST_NODES]}
    nodes = [node for node in board.nodes if node in chosen]
    left = round(_CHARACTER * max(len(label(name)) for name in (*nodes, *board.line_names, ""))) + 8
    wide = min(_MOST, (room.width - left) // max(1, board.columns))
    named = wide >= _LEAST
    wide, high = (wide, LINE * (1 + len(board.line_names)) + 8) if named else (min(_SMALL, max(2, wide)),) * 2
    scene = Scene(room.width, 0, one_line(board.verdict.sentence, 300))
    for column in range(board.columns) if wide >= _SMALL else ():
        scene.items.append(Text(left + (column + 0.5) * wide, LINE - 4, str(column), "muted", "middle"))
    y = LINE
    for node in nodes:
        scene.items.append(Text(left - 6, y + LINE, label(node), anchor="end", bold=node in behind))
        names = enumerate(board.line_names if named else (), 2)
        scene.items += [Text(left - 6, y + LINE * at, name, "muted", "end") for at, name in names]
        for column in range(board.columns):
            scene.items += _cell(board, node, column, (left + column * wide, y, wide - _GAP, high - _GAP))
        y += high
    scene.height = round(_legend(scene, board, len(board.nodes) - len(nodes), y + 6)) + 20
    return scene


def _cell(board: JobBoard, node: str, column: int, box: tuple[float, float, float, float]) -> Iterator[Item]:
    if (row := board.at(node, column)) is None:
        return
    x, y, width, height = box
    style = board.style_of(row).key
    words = f"rank {row.rank}, {row.endpoint or node}: {row.state}, {row.why}"
    yield Box(x, y, width, height, style, one_line(words, 200))
    lines = board.cell_lines(row, round(width / _CHARACTER), UNICODE) if width >= _LEAST - _GAP else []
    for at, text in enumerate(lines):
        yield Text(x + width / 2, y + LINE * (at + 1), text, ink_on(style), "middle", bold=not at)


def _legend(scene: Scene, board: JobBoard, left_out: int, y: float) -> float:
    """Add the meanings of the colours from a height on; return the height of the last line."""
    states, x = len({row.state for row in board.verdict.ranks}), 0.0
    words = [(style.key, f"{glyph} {meaning}") for style, glyph, meaning in board.legend(UNICODE)[:states]]
    for color, text in [*words, *([("", f"and {left_out} more nodes")] if left_out else [])]:
        if x and x + 18 + _CHARACTER * len(text) > scene.width:
            x, y = 0.0, y + 20
        scene.items += [Box(x, y, 12, 12, color)] if color else []
        scene.items.append(Text(x + 18, y + 10, text))
        x += 36 + _CHARACTER * len(text)
    return y
