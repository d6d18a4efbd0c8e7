"""Content of the side panel, and its order of precedence if there is little room."""

from __future__ import annotations

from fabtui.diagnosis.finding import Severity
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import headline
from fabtui.presentation.progress_estimate import Pace, sweep_lines
from fabtui.presentation.verdict_line import verdict_line
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Line, Lines, clipped, stacked
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import Seat, without
from fabtui.screen.grid.view_state import ViewState, block_name, block_parts
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.main_navigation import GridNavigation
from fabtui.screen.widgets.finding_lines import class_lines, finding_lines
from fabtui.screen.widgets.pair_text import pair_name, panel_lines
from fabtui.screen.widgets.worst_pairs import bad_pair_parts

#: Maximum share of the panel for the pair while other parts need room.
_PAIR_SHARE = 0.5
#: Lines reserved for the findings before classes and sweep get any.
_FINDINGS_FIRST = 5
#: Minimum number of remaining lines for the worst pairs, and the maximum number of pairs.
_WORST_FROM = 4
_MAX_WORST = 12
#: Maximum number of findings that the verdict names.
_MAX_IN_VERDICT = 12
_SEVERITY_STYLES = {Severity.BAD: "", Severity.WARN: "$warning", Severity.NOTE: MUTED}


class PanelContent:
    """Lines of the side panel, and the diagnosis that they show."""

    def __init__(self, context: AppContext, navigation: GridNavigation) -> None:
        self._context = context
        self._navigation = navigation
        self._pace = Pace()
        self.diagnosis = SessionDiagnosis(context.model, context.request_draw)

    def verdict(self, width: int) -> Line:
        """Return the verdict on the session on one line."""
        found, model = self.diagnosis, self._context.model
        shown = [
            (without(found.domain, headline(one)).replace(" > ", ">"), _SEVERITY_STYLES[one.severity])
            for one in found.found[:_MAX_IN_VERDICT]
        ]
        return verdict_line(
            found.tally.counts,
            shown,
            width,
            self._context.glyphs,
            count_of=len(found.found),
            final=found.final,
            untested=len(model.untested),
            note="" if found.known and found.final else found.none_text,
        )

    def lines(self, seats: tuple[Seat, Seat], block: tuple[int, int] | None, size: tuple[int, int]) -> Lines:
        """Return the lines for a cursor, most important first; ``block``: its nodes if the grid shows blocks."""
        context, scope = self._context, self._navigation.scope
        model, glyphs = context.model, context.glyphs
        width, height = size
        self._pace.take(model, context.elapsed())

        def part(title: str, lines: Lines) -> Lines:
            rule = "-" if glyphs.plain else "─"
            return [[(f"{rule} {title} ".ljust(width, rule)[:width], MUTED)], *lines] if lines else []

        pair = self._pair_lines(seats, block, width)
        most = max(6, int(height * _PAIR_SHARE))
        pair, rest = pair[:most], pair[most:]
        room = height - len(pair)
        sweep = part("sweep", sweep_lines(model, context.elapsed(), self._pace, glyphs, width))
        found = self.diagnosis
        classes = part("classes", class_lines(model, scope.source.layer, found.bad, found.tally.of_class, width))
        for lines in (classes, sweep):
            if room - len(lines) < _FINDINGS_FIRST + 1:
                lines.clear()
            room -= len(lines)
        ends = [str(model.endpoints[seat.number]) for seat in seats if seat.number is not None]
        here = (ends[0], ends[1]) if len(ends) == 2 else None
        findings = part("findings", finding_lines(self.diagnosis, here, width, max(0, room - 1), glyphs))
        findings = findings[: max(0, room)]
        room -= len(findings)
        worst = part("worst pairs", _worst_lines(scope, width, room - 2, glyphs))[:room] if room > _WORST_FROM else []
        below = [*findings, *classes, *sweep, *worst]
        # The pair gets the lines that no other part needs.
        return [*pair, *rest[: max(0, height - len(pair) - len(below))], *below]

    def _pair_lines(self, seats: tuple[Seat, Seat], block: tuple[int, int] | None, width: int) -> Lines:
        scope, glyphs = self._navigation.scope, self._context.glyphs
        lines: Lines = []
        if block is not None:
            lines += [[(block_name(scope, *block), "bold $accent")]]
            lines += [*stacked([block_parts(scope, *block, glyphs)], width, 0), []]
        name = pair_name(*seats)
        names = [name] if len(name) <= width else [f"{seats[0].name} >", f"  {seats[1].name}"]
        lines += [[(line, "bold $accent")] for line in names]
        return lines + stacked(panel_lines(self._context.model, *seats, glyphs, self._context.now()), width, 8)


def _worst_lines(scope: ViewState, width: int, height: int, glyphs: Glyphs) -> Lines:
    """Return the worst pairs under a line with the number of bad pairs."""
    bad = scope.index
    if not bad.bad_shown:
        return [[("no bad pair in this layer" if bad.complete else "searching for bad pairs", MUTED)]]
    plus = "" if bad.complete else "+"
    lines: Lines = [[(f"{bad.bad_shown}{plus} bad in this layer", "bold"), ("   ] [ next, previous", MUTED)]]
    lines += [bad_pair_parts(scope.source.axis, one, glyphs) for one in bad.worst(min(_MAX_WORST, height))]
    return [clipped(line, width, glyphs.ellipsis) for line in lines]
