"""What stands in the side panel, and what goes first where there is little room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.presentation.progress_estimate import sweep_lines
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Line, Lines, between, clipped, stacked
from fabtui.screen.grid.axis import Seat
from fabtui.screen.grid.node_block_text import block_name, block_parts
from fabtui.screen.widgets.findings_list import class_lines, finding_lines
from fabtui.screen.widgets.pair_text import pair_name, panel_lines
from fabtui.screen.widgets.side_panel import worst_lines

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp
    from fabtui.screen.grid.severity import BadCell
    from fabtui.screen.views.main import MainScreen

#: The pair has at most this share of the panel.
_PAIR_SHARE = 0.5
#: Lines that the findings have before the classes and the sweep get any.
_FINDINGS_FIRST = 5
#: From so many lines that are left on, the worst pairs are listed.
_WORST_FROM = 4


def panel_content(
    app: FabricApp,
    main: MainScreen,
    seats: tuple[Seat, Seat],
    worst: tuple[list[BadCell], int, bool],
    width: int,
    height: int,
) -> Lines:
    """Return the lines of the side panel.

    Args:
        app: The app.
        main: What is shown.
        seats: Row and column of the cursor.
        worst: The worst pairs, how many bad ones are known, and whether those are all.
        width: Characters across.
        height: Lines there are.
    """
    model, glyphs = app.model, app.glyphs
    pair: Lines = []
    block = main.cursor_block() if main.view == "grid" else None
    if block is not None:
        pair += [[(block_name(main.scope, *block), "bold $accent")]]
        pair += [*stacked([block_parts(main.scope, *block, glyphs)], width, 0), []]
    name = pair_name(*seats)
    lines = [name] if len(name) <= width else [f"{seats[0].name} >", f"  {seats[1].name}"]
    pair += [[(line, "bold $accent")] for line in lines]
    pair += stacked(panel_lines(model, *seats, glyphs, app.now()), width, 8)
    most = max(6, int(height * _PAIR_SHARE))
    pair, more = pair[:most], pair[most:]
    left = height - len(pair)
    sweep = _part("sweep", sweep_lines(model, app.elapsed(), main.pace, glyphs, width), width, glyphs.plain)
    classes = _part("classes", class_lines(model, main.source.layer, main.findings.bad, width), width, glyphs.plain)
    for part in (classes, sweep):
        if left - len(part) < _FINDINGS_FIRST + 1:
            part.clear()
        left -= len(part)
    names = tuple(str(model.endpoints[seat.number]) for seat in seats if seat.number is not None)
    here = (names[0], names[1]) if len(names) == 2 else None
    told = finding_lines(main.findings, here, width, max(0, left - 1), glyphs)
    findings = _part("findings", told, width, glyphs.plain)[: max(0, left)]
    left -= len(findings)
    listed: Lines = []
    if left > _WORST_FROM:
        bad, known, done = worst
        rows = worst_lines(main.source.axis, bad[: left - 2], known, done, glyphs)
        listed = _part("worst pairs", [clipped(row, width, glyphs.ellipsis) for row in rows], width, glyphs.plain)[
            :left
        ]
    below = [*findings, *classes, *sweep, *listed]
    # What nothing else needs is the pair's again.
    return [*pair, *more[: max(0, height - len(pair) - len(below))], *below]


def _part(title: str, lines: Lines, width: int, plain: bool) -> Lines:
    """Return lines under a title; nothing for none."""
    if not lines:
        return []
    rule = "-" if plain else "─"
    heading: Line = between([(f"{rule} {title} ", MUTED)], [], width, "")
    text = heading[0][0]
    return [[(text + rule * max(0, width - len(text)), MUTED)], *lines]
