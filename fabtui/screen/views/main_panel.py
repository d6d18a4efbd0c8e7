"""Content of the side panel, and its order of precedence if there is little room."""

from __future__ import annotations

import itertools

from fabtui.diagnosis.finding import Severity
from fabtui.nodeset import count
from fabtui.presentation.findings import headline
from fabtui.presentation.job_board import JobBoard, board_text, rank_parts, sentence_line, traffic_of
from fabtui.presentation.preflight_lines import short_lines
from fabtui.presentation.progress_estimate import Pace, sweep_lines
from fabtui.presentation.verdict_line import verdict_line
from fabtui.presentation.wording import MUTED, plain, without_domain
from fabtui.presentation.wrapping import Line, Lines, between, clipped, stacked
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.grid.navigation import GridNavigation, block_name, block_parts
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.widgets.finding_lines import class_lines, styled, summary_lines
from fabtui.screen.widgets.job_panel import job_panel
from fabtui.screen.widgets.pair_text import pair_name, panel_lines
from fabtui.screen.widgets.sorted_table import Sorting, table_lines
from fabtui.screen.widgets.sparkline import LABEL
from fabtui.screen.widgets.text_line import Headings, TargetLine
from fabtui.screen.widgets.worst_pairs import MAX_PAIRS, NARROW, worst_rows

#: Maximum share of the panel for the pair while other parts need room.
_PAIR_SHARE = 0.45
#: Minimum number of lines for the findings before the sweep gets any.
_FINDINGS_FIRST = 5
#: Minimum number of remaining lines for the worst pairs, and the maximum number of pairs.
_WORST_FROM = 4
_MAX_WORST = 12
#: Maximum number of findings that the verdict names.
_MAX_IN_VERDICT = 12
#: Minimum width for the number of findings in words beside the verdict about a job.
_WORDS_FROM = 90
#: Maximum number of findings in the summary of the preflight.
_SUMMARY = 4
_VERDICT_STYLES = {Severity.BAD: "", Severity.WARN: "$warning", Severity.NOTE: MUTED}


class PanelContent:
    """Lines of the side panel, and the diagnosis that they show."""

    def __init__(self, context: AppContext, navigation: GridNavigation, worst_sorting: Sorting) -> None:
        self._context = context
        self._navigation = navigation
        self._worst_sorting = worst_sorting
        self._pace = Pace()
        self.diagnosis = SessionDiagnosis(context.model, context.request_draw)
        self._verdict: tuple[tuple[object, ...], Line] = ((), [])

    def preflight_summary(self, width: int) -> Lines:
        """Return the most severe findings of the preflight."""
        lines = styled(short_lines(self._context.preflight(), width, _SUMMARY, self._context.glyphs))
        return [*lines, [(" P: preflight", MUTED)], []] if lines else []

    def verdict(self, width: int, job: JobBoard | None = None) -> Line:
        """Return the verdict on the session on one line: about its job, unless tests have found worse."""
        if job is not None and (job.verdict.alerts or not any(self.diagnosis.layers.values())):
            return self._job_verdict(job, width)
        found, untested = self.diagnosis, len(self._context.model.untested)
        # The tally and the list of findings are replaced when they change.
        measured = 0 if sum(found.tally.counts.values()) else self._context.model.results.tested
        whole = not any(record.state.gone for record in self._context.model.nodes.values())
        key = (
            *(found.tally.counts, found.found, found.final, found.none_text, found.so_far),
            *(untested, width, measured, whole),
        )
        if self._verdict[0] != key:
            shown = [
                (without_domain(found.domain, headline(one)).replace(" > ", ">"), _VERDICT_STYLES[one.severity])
                for one in itertools.islice((one for one in found.found if not one.known), _MAX_IN_VERDICT)
            ]
            known = sum(one.known for one in found.found)
            note = "" if found.known and found.final else found.none_text
            line = verdict_line(
                found.tally.counts,
                shown,
                width,
                self._context.glyphs,
                count_of=len(found.found) - known,
                known=known,
                so_far=found.so_far,
                final=found.final,
                untested=untested,
                measured=measured,
                whole=whole,
                note=note,
            )
            self._verdict = key, line
        return self._verdict[1]

    def _job_verdict(self, job: JobBoard, width: int) -> Line:
        number = count(len(self.diagnosis.found), "finding")
        end: Line = (
            [("F", "bold $primary"), (f" {number}", MUTED)] if width >= _WORDS_FROM else [("F", "bold $primary")]
        )
        room = width - len(plain(end)) - 1
        return between(
            sentence_line(job, room, self._context.glyphs, self._context.now()),
            end,
            width,
            self._context.glyphs.ellipsis,
        )

    def job_lines(self, job: JobBoard, size: tuple[int, int], rank: Line | None = None) -> list[TargetLine]:
        """Return the lines about a running job; ``rank``: the rank under the cursor, None if it stands elsewhere."""
        return job_panel(job, rank, size, self._context.glyphs)

    def rank_line(self, job: JobBoard, row: AxisEntry, column: AxisEntry) -> Line:
        """Return the rank of an endpoint on one line; of two endpoints their traffic, or why there is none."""
        if row != column:
            return traffic_of(job, *(f"{one.node}:{one.index}" for one in (row, column)))
        found = job.at(row.node, int(row.index)) if row.index.isdecimal() else None
        return [("no rank here", MUTED)] if found is None else rank_parts(job, found, self._context.glyphs)

    def job_text(self, job: JobBoard) -> str:
        """Return all about a running job as text."""
        return board_text(job, 120, self._context.glyphs)

    def findings(self, entries: tuple[AxisEntry, AxisEntry] | None, width: int, height: int) -> list[TargetLine]:
        """Return the findings in at most ``height`` lines; the one about the cursor's pair is marked."""
        ends = [str(self._context.model.endpoints[entry.number]) for entry in entries or () if entry.number is not None]
        here = (ends[0], ends[1]) if len(ends) == 2 else None
        return summary_lines(self.diagnosis, here, width, height, self._context.glyphs)

    def lines(
        self, entries: tuple[AxisEntry, AxisEntry], block: tuple[int, int] | None, size: tuple[int, int]
    ) -> list[TargetLine]:
        """Return the lines for a cursor; ``block``: its nodes if the grid shows blocks.

        The findings get all the lines they need before classes and worst pairs get any.
        """
        context, view = self._context, self._navigation.view_state
        model, glyphs = context.model, context.glyphs
        width, height = size
        self._pace.take(model, context.elapsed())

        def part(title: str, lines: list[TargetLine]) -> list[TargetLine]:
            rule = "-" if glyphs.plain else "─"
            return [([(f"{rule} {title} ".ljust(width, rule)[:width], MUTED)], None), *lines] if lines else []

        pair = _plain(self._pair_lines(entries, block, width))
        most = max(6, int(height * _PAIR_SHARE))
        pair, rest = pair[:most], pair[most:]
        room = height - len(pair)
        sweep = part("sweep", _plain(sweep_lines(model, context.elapsed(), self._pace, glyphs, width)))
        if room - len(sweep) <= _FINDINGS_FIRST:
            sweep = []
        room -= len(sweep)
        findings = part(f"findings{self.diagnosis.so_far}", self.findings(entries, width, max(0, room - 1)))[
            : max(0, room)
        ]
        room -= len(findings)
        tested = self.diagnosis.tally.of_class
        classes = part("classes", _plain(class_lines(model, view.source.layer, self.diagnosis.bad, tested, width)))
        if room < len(classes):
            classes = []
        room -= len(classes)
        worst = part("worst pairs", self._worst_lines(width, room - 3))[:room] if room > _WORST_FROM else []
        below = [*findings, *classes, *sweep, *worst]
        # The pair gets the lines that no other part needs.
        return [*pair, *rest[: max(0, height - len(pair) - len(below))], *below]

    def _pair_lines(self, entries: tuple[AxisEntry, AxisEntry], block: tuple[int, int] | None, width: int) -> Lines:
        view, glyphs = self._navigation.view_state, self._context.glyphs
        lines: Lines = []
        if block is not None:
            lines += [[(block_name(view, *block), "bold $accent")]]
            lines += [*stacked([block_parts(view, *block, glyphs)], width, 0), []]
        name = pair_name(*entries)
        names = [name] if len(name) <= width else [f"{entries[0].name} >", f"  {entries[1].name}"]
        lines += [[(line, "bold $accent")] for line in names]
        return lines + stacked(panel_lines(self._context.model, *entries, glyphs, self._context.now()), width, LABEL)

    def _worst_lines(self, width: int, height: int) -> list[TargetLine]:
        """Return the worst pairs under a line with the number of bad pairs and the headings."""
        view, glyphs, sorting = self._navigation.view_state, self._context.glyphs, self._worst_sorting
        bad = view.index
        if not bad.bad_shown:
            return [([("no bad pair in this layer" if bad.complete else "searching for bad pairs", MUTED)], None)]
        plus = "" if bad.complete else "+"
        head: Line = [(f"{bad.bad_shown}{plus} bad in this layer", "bold"), ("   ] [ next   o sort", MUTED)]
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
