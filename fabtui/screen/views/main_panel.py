"""Content of the side panel, and its order of precedence if there is little room."""

from __future__ import annotations

from fabtui.diagnosis.finding import Finding
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import step_parts
from fabtui.presentation.job_board import (
    JobBoard,
    board_parts,
    rank_parts,
    sentence_line,
    steps_of,
    traffic_of,
)
from fabtui.presentation.preflight_lines import short_lines
from fabtui.presentation.progress_estimate import Pace, sweep_lines
from fabtui.presentation.session_values import SessionValues, column_lines, healthy_lines, session_values, watch_lines
from fabtui.presentation.verdict_line import pair_noun, verdict_sentence
from fabtui.presentation.wording import MUTED, plain
from fabtui.presentation.wrapping import Line, Lines, between, clipped, stacked, whole, wrapped
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.grid.navigation import GridNavigation, block_name, block_parts
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.detail_base import runs_here
from fabtui.screen.widgets.finding_lines import open_place, styled, summary_lines
from fabtui.screen.widgets.pair_text import ends_of, flowed, pair_head, pair_items, pair_name, pair_notes
from fabtui.screen.widgets.sorted_table import Sorting, table_lines
from fabtui.screen.widgets.sparkline import bad_trend, pair_trend
from fabtui.screen.widgets.text_line import ALL_FINDINGS, Headings, TargetLine
from fabtui.screen.widgets.worst_pairs import MAX_PAIRS, NARROW, worst_rows

#: Maximum share of the panel for the findings while there are any.
_FINDINGS_SHARE = 0.7
#: Minimum number of lines for the pair.
_PAIR_LEAST = 5
#: Minimum number of remaining lines for the worst pairs, and the maximum number of pairs.
_WORST_FROM = 6
_MAX_WORST = 12
#: Minimum height for a blank line below the heading of the findings.
_AIRY_FROM = 26
#: Maximum number of findings in the summary of the preflight.
_SUMMARY = 4
#: Maximum number of characters of a sentence about a job.
_LONGEST = 1000
#: Maximum number of lines without the headings of the parts.
_SHORT_PANEL = 12


class PanelContent:
    """Lines of the side panel, and the diagnosis that they show."""

    def __init__(self, context: AppContext, navigation: GridNavigation, worst_sorting: Sorting) -> None:
        self._context = context
        self._navigation = navigation
        self._worst_sorting = worst_sorting
        self._pace = Pace()
        #: Version of the model and time (s) at which the values were read, and these.
        self._values: tuple[int, float, SessionValues | None] | None = None
        self.diagnosis = SessionDiagnosis(context.model, context.request_draw)

    def preflight_summary(self, width: int) -> Lines:
        lines = styled(short_lines(self._context.preflight(), width, _SUMMARY, self._context.glyphs))
        return [*lines, [(" P: preflight", MUTED)], []] if lines else []

    def sentence(self, width: int | None, job: JobBoard | None = None) -> Line:
        """Return the verdict on the session in one sentence: about its job, unless tests have found worse."""
        glyphs, found = self._context.glyphs, self.diagnosis
        if job is not None and (job.verdict.alerts or not any(found.layers.values())):
            line = sentence_line(job, _LONGEST if width is None else width, glyphs, self._context.now())
            return [(text.strip(), style) for text, style in line]
        return verdict_sentence(found.standing(), width, glyphs)

    def rank_line(self, job: JobBoard, row: AxisEntry, column: AxisEntry) -> Line:
        """Return the rank of an endpoint on one line; of two endpoints their traffic, or why there is none."""
        if row != column:
            return traffic_of(job, *(f"{one.node}:{one.index}" for one in (row, column)))
        found = job.at(row.node, int(row.index)) if row.index.isdecimal() else None
        return [("no rank here", MUTED)] if found is None else rank_parts(job, found, self._context.glyphs)

    def _ends(self, entries: tuple[AxisEntry, AxisEntry] | None) -> tuple[str, str] | None:
        ends = [str(self._context.model.endpoints[entry.number]) for entry in entries or () if entry.number is not None]
        return (ends[0], ends[1]) if len(ends) == 2 else None

    def open_finding(self, entries: tuple[AxisEntry, AxisEntry] | None) -> Finding | None:
        """Return the finding about the cursor's pair, else the first one; None without findings."""
        found = self.diagnosis.found
        return found[open_place(self.diagnosis, self._ends(entries))] if found else None

    def explained_line(self, entries: tuple[AxisEntry, AxisEntry]) -> Line:
        """Return the results of a pair on one line if the finding that is open has its verdict; else nothing."""
        one, pair = self.open_finding(entries), self._ends(entries)
        if one is None or pair not in one.cells:
            return []
        items = pair_items(self._context.model, *entries, self._context.glyphs)
        return [(pair_name(*entries), "bold"), *(part for item in items for part in [("  ", ""), *item])]

    def findings(self, entries: tuple[AxisEntry, AxisEntry] | None, width: int, height: int) -> list[TargetLine]:
        live = self._context.feed is not None and self._context.feed.can_test
        keys = "F: c confirm, a known" if live else ""
        noun = "GPU" if pair_noun(self._context.model) == "GPU pair" else "rank"
        here, glyphs = self._ends(entries), self._context.glyphs
        return summary_lines(self.diagnosis, here, width, height, glyphs, self.runs_here, noun, keys)

    def runs_here(self, step: str) -> bool:
        return runs_here(self._context, step)

    def findings_below(self, entries: tuple[AxisEntry, AxisEntry] | None, width: int, height: int) -> list[TargetLine]:
        if not self.diagnosis.found:
            return []
        rule = [self._rule(width)] if height > 2 else []
        return rule + self.findings(entries, width, height - len(rule))

    def _findings_head(self, entries: tuple[AxisEntry, AxisEntry], width: int) -> TargetLine:
        found, pair = self.diagnosis.found, self._ends(entries)
        here = next((at for at, one in enumerate(found, 1) if pair in one.cells), None)
        number = f"{here} of {len(found)}" if here is not None else f"{len(found)}"
        if known := sum(one.known for one in found):
            number = f"{number}, {known} known" if known < len(found) else f"no new one, {known} known"
        end: Line = [(f"{number}   ", MUTED), ("F", "bold $primary"), (" all", MUTED)]
        title = "WHAT IS WRONG" + self.diagnosis.so_far.upper()
        return between([(title, "bold")], end, width, self._context.glyphs.ellipsis), ALL_FINDINGS

    def lines(
        self, entries: tuple[AxisEntry, AxisEntry], block: tuple[int, int] | None, size: tuple[int, int], usual: Lines
    ) -> list[TargetLine]:
        """Return the lines for a cursor, perhaps on a block of nodes, in a width and height; ``usual``: shown last."""
        context, (width, height) = self._context, size
        self._pace.take(context.model, context.elapsed())
        pair = self._pair_lines(entries, block, width)
        sweep = _plain(sweep_lines(context.model, context.elapsed(), self._pace, context.glyphs, width))
        sweep = [self._rule(width), *sweep] if sweep else []
        found: list[TargetLine] = []
        if self.diagnosis.found:
            room = height - min(len(pair), max(_PAIR_LEAST, round(height * (1 - _FINDINGS_SHARE)))) - len(sweep)
            found = [self._findings_head(entries, width), *([([], None)] if height > _AIRY_FROM else [])]
            found += self.findings(entries, width, max(2, room - len(found) - 1))
            found.append(self._rule(width))
        left = height - len(found) - len(sweep)
        if left < _PAIR_LEAST:
            sweep, left = [], left + len(sweep)
        if not self.diagnosis.found:
            found = self._whole(width)
            left -= len(found)
        lines = [*found, *pair[: max(0, left)], *sweep]
        if usual and len(lines) + len(usual) < height:
            lines += [self._rule(width), *_plain(usual)]
        room = height - len(lines)
        worst = self._worst_lines(width, room - 3) if room > _WORST_FROM else []
        return [*lines, *([self._rule(width), *worst] if worst else [])][:height]

    def values(self) -> SessionValues | None:
        """Return the values of the session, read again at most once a second; None before the first sweep has ended."""
        model, now = self._context.model, self._context.elapsed()
        if model.phase.name not in ("done", "watch") and not model.watching:
            return None
        version = model.version
        if self._values is None or (self._values[0] != version and now - self._values[1] >= 1.0):
            self._values = version, now, session_values(model)
        return self._values[2]

    def _whole(self, width: int) -> list[TargetLine]:
        """Return what the whole session shows while nothing is wrong: what was proven, or how watching goes."""
        model, values, context = self._context.model, self.values(), self._context
        if values is None or not values.pairs:
            return []
        live = context.feed is not None and context.feed.can_test
        lines = healthy_lines(model, values, width, keys=live) if not self.diagnosis.standing().bad else []
        if model.watching:
            lines += watch_lines(model, values, context.now(), width, context.glyphs)
        return [*_plain(lines), self._rule(width)] if lines else []

    def column(self, width: int, height: int) -> list[TargetLine]:
        model, glyphs = self._context.model, self._context.glyphs
        trend = bad_trend(model, glyphs) if model.watching else []
        return _plain(column_lines(model, self.values(), trend, (width, height), glyphs))

    def _rule(self, width: int) -> TargetLine:
        return [(("-" if self._context.glyphs.plain else "─") * width, "$secondary 40%")], None

    def _pair_lines(
        self, entries: tuple[AxisEntry, AxisEntry], block: tuple[int, int] | None, width: int
    ) -> list[TargetLine]:
        view, glyphs, model = self._navigation.view_state, self._context.glyphs, self._context.model
        lines: Lines = []
        if block is not None:
            lines += [[(block_name(view, *block), "bold")]]
            lines += stacked([[(" ", ""), *block_parts(view, *block, glyphs)]], width, 1)
        pair = self._ends(entries)
        explained = any(pair in one.cells for one in self.diagnosis.found)
        title, name = ("WORST PAIR  " if block is not None else "THIS PAIR  "), pair_name(*entries)
        way = pair_head(model, *entries)
        head: Line = [(title, "bold"), (name, "")]
        if len(title) + len(name) + len(plain(way)) + 2 <= width:
            lines.append(between(head, way, width, glyphs.ellipsis))
        else:
            lines += [*wrapped(head, width, 2), *([[(" ", ""), *way]] if way else [])]
        lines += flowed(pair_items(model, *entries, glyphs), width)
        notes = pair_notes(model, *entries, self._context.now(), explained=explained)
        lines += stacked([[(" ", ""), *line] for line in notes], width, 3)
        if (names := ends_of(model, *entries)) is not None:
            lines += [[(" ", ""), *line] for line in pair_trend(model, *names, glyphs)]
        return _plain([clipped(line, width, glyphs.ellipsis) for line in lines])

    def _worst_lines(self, width: int, height: int) -> list[TargetLine]:
        view, glyphs, sorting = self._navigation.view_state, self._context.glyphs, self._worst_sorting
        bad = view.index
        if bad.bad_shown <= len(self.diagnosis.found):
            # Each has a finding, and these are above.
            return []
        plus = "" if bad.complete else "+"
        # As in the first line, a suspect is not bad before it was tested again.
        what = "bad or suspect" if self.diagnosis.standing().rechecked else "bad in this layer"
        head: Line = [(f"{bad.bad_shown}{plus} {what}", "bold"), ("   ] [ next   o sort", MUTED)]
        most = max(0, min(_MAX_WORST, height))
        found = bad.worst(most if sorting == Sorting() else MAX_PAIRS)
        rows = sorting.sorted(
            worst_rows(self._context.model, view.source.axis, found, glyphs, narrow=True, messages=False)
        )[:most]
        table = table_lines(NARROW, rows, sorting, glyphs, edge=0)
        lines: list[TargetLine] = [(head, None), (table.head, Headings(table.spans))]
        lines += [(line, row.name) for line, row in zip(table.rows, rows, strict=True)]
        return [(clipped(line, width, glyphs.ellipsis), target) for line, target in lines]


def _plain(lines: Lines) -> list[TargetLine]:
    return [(line, None) for line in lines]


def job_panel(
    board: JobBoard, rank: Line | None, size: tuple[int, int], glyphs: Glyphs, *, unfolded: bool, rates: bool
) -> list[TargetLine]:
    """Return the lines of the panel about a job, with the ``rank`` under the cursor, in a width and height.

    ``unfolded``: the stacks with all their functions, and nothing else. ``rates``: whether the rates are shown.
    """
    width, height = size
    steps: Lines = [
        [("  next  " if not at else " " * 8, MUTED), (text, "$primary"), (f" {note}" if note else "", MUTED)]
        for at, (text, note) in enumerate(map(step_parts, steps_of(board)))
    ]
    parts = board_parts(board, width, glyphs, stacked(steps, width, 8), blind=height > 40, whole=unfolded)
    parts = [one for one in parts if (one[0] == "stacks" if unfolded else rates or one[0] != "rates")]
    if rank is not None and not unfolded:
        parts.insert(-1, ("under the cursor", stacked([rank], width, 2)))
    shown: list[Lines] = []
    used = 0
    for title, own in parts:
        head: Lines = [[(title.upper(), "bold")]] if height > _SHORT_PANEL else []
        least = min(3 if head else 1, len(own))
        if own and (not shown or used + len(head) + least <= height):
            shown.append([*head, *own])
            used += len(shown[-1])
    airy = used + len(shown) <= height
    lines = [line for at, part in enumerate(shown) for line in ([[], *part] if airy and at else part)]
    return [(line, None) for line in whole(lines, height)]
