"""Blocks about a running job: its ranks, the evidence of each source with what that cannot see, and next commands."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.running_job.job_sources import mean_of_known
from fabtui.diagnosis.running_job.job_verdict import JobVerdict, RankRow
from fabtui.diagnosis.running_job.who_is_behind import ranges
from fabtui.report.document import Block, Items, Lines, Paragraph, Table
from fabtui.sanitize import one_line

#: Minimum number of ranks from which those in the same state share a row.
_FOLD_FROM = 33
_HEADINGS = ["rank", "on", "process", "state", "GPU %", "W", "NVLink GB/s", "NIC GB/s", "CPU %", "shown by"]
#: Columns of text.
_LEFT = (0, 1, 3, 9)


def job_blocks(verdict: JobVerdict) -> Iterator[Block]:
    """Yield the sentence about a job, its ranks, the evidence and the next commands."""
    yield Paragraph(one_line(verdict.sentence, 1000))
    yield from evidence_blocks(verdict)


def evidence_blocks(verdict: JobVerdict) -> Iterator[Block]:
    """Yield the ranks of a job, the evidence by source, and the next commands."""
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
    """Return the cells of a rank."""
    return [
        str(row.rank),
        one_line(row.endpoint or row.place.node, 60),
        "" if row.place.pid is None else str(row.place.pid),
        str(row.state),
        _number(row.utilization, 1.0),
        _number(row.power, 1.0),
        _number(row.nvlink, 1e9),
        _number(row.nic, 1e9),
        _number(row.cpu, 0.01),
        one_line(row.why, 120),
    ]


def _number(value: float | None, unit: float) -> str:
    if value is None:
        return ""
    return f"{value / unit:.0f}" if unit in (1.0, 0.01) else f"{value / unit:.3g}"


def _folded(verdict: JobVerdict) -> list[list[str]]:
    """Return a row for each rank that is behind, and one for all others in the same state."""
    late = {place.rank for place in verdict.behind}
    alike: dict[str, list[RankRow]] = {}
    for row in verdict.ranks:
        if row.rank not in late:
            alike.setdefault(str(row.state), []).append(row)
    rows = [_row(row) for row in verdict.ranks if row.rank in late]
    for state, some in alike.items():
        nodes = len({row.place.node for row in some})
        cells = [ranges(row.rank for row in some), f"{nodes} node{'s' if nodes != 1 else ''}", "", state]
        means = [
            mean_of_known([getattr(row, name) for row in some])
            for name in ("utilization", "power", "nvlink", "nic", "cpu")
        ]
        units = (1.0, 1.0, 1e9, 1e9, 0.01)
        cells += [_number(mean, unit) for mean, unit in zip(means, units, strict=True)]
        rows.append([*cells, f"the mean of {len(some)}"])
    return rows


def _without_empty(rows: list[list[str]]) -> Table:
    """Return a table of the columns that have something in them."""
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    left = [place for place, at in enumerate(kept) if at in _LEFT]
    return Table("ranks", [[row[at] for at in kept] for row in rows], left)
