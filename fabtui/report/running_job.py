"""Blocks about a running job: its ranks, the evidence of each source with what that cannot see, and next commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabtui.diagnosis.running_job.job_verdict import JobVerdict, RankRow
from fabtui.nodeset import count, ranges
from fabtui.presentation.job_board import QUANTITIES, JobBoard, joined
from fabtui.report.document import Block, Items, Lines, Paragraph, Table
from fabtui.sanitize import one_line

#: Minimum number of ranks from which those in the same state share a row.
_FOLD_FROM = 33
_HEADINGS = ["rank", "on", "process", "state", *(one.heading for one in QUANTITIES), "shown by"]
#: Columns of text.
_LEFT = (0, 1, 3, len(_HEADINGS) - 1)


def job_blocks(verdict: JobVerdict) -> Iterator[Block]:
    """Yield the sentence about a job, its ranks, the evidence and the next commands."""
    yield Paragraph(one_line(verdict.sentence, 1000))
    yield from evidence_blocks(verdict)


def evidence_blocks(verdict: JobVerdict) -> Iterator[Block]:
    if verdict.ranks:
        rows = _folded(verdict) if len(verdict.ranks) >= _FOLD_FROM else [_row(row) for row in verdict.ranks]
        yield _without_empty([_HEADINGS, *rows])
    lines = []
    for source in verdict.sources:
        blind = f"; but {source.blind}" if source.blind else ""
        lines.append(one_line(f"{source.name}: {source.text or 'nothing'}{blind}", 1000))
    if verdict.fabric and not any(verdict.fabric in source.text for source in verdict.sources):
        lines.append(one_line(f"fabric: {verdict.fabric}", 1000))
    if lines:
        yield Items("evidence", lines)
    if verdict.next:
        yield Lines("next", [f"  {one_line(command, 1000)}" for command in verdict.next])


def _row(row: RankRow) -> list[str]:
    on, pid = one_line(row.endpoint or row.place.node, 60), "" if row.place.pid is None else str(row.place.pid)
    return [str(row.rank), on, pid, str(row.state), *_numbers([row]), one_line(row.why, 120)]


def _numbers(rows: Sequence[RankRow]) -> list[str]:
    return [one.span(rows) for one in QUANTITIES]


def _folded(verdict: JobVerdict) -> list[list[str]]:
    late = {place.rank for place in verdict.behind}
    rows = [_row(row) for row in verdict.ranks if row.rank in late]
    for group in joined(JobBoard(verdict)):
        rest = [row for row in group.rows if row.rank not in late]
        if rest:
            nodes = count(len({row.place.node for row in rest}), "node")
            cells = [ranges(row.rank for row in rest), nodes, "", str(group.state)]
            rows.append([*cells, *_numbers(rest), count(len(rest), "rank")])
    return rows


def _without_empty(rows: list[list[str]]) -> Table:
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    left = [place for place, at in enumerate(kept) if at in _LEFT]
    return Table("ranks", [[row[at] for at in kept] for row in rows], left)
