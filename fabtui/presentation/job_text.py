"""A job's report as text."""

from __future__ import annotations

from fabtui.jobs.monitor.report import JobReport
from fabtui.presentation import job_lines
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Lines, wrapped


def job_text(report: JobReport, width: int, *, ascii_only: bool) -> str:
    """Return state, findings, nodes, iteration times, settings, ends of the logs, and what could not be read."""
    glyphs = Glyphs(ascii_only)
    lines: Lines = wrapped(job_lines.title_line(report), width, 2)
    for finding in report.findings:
        lines += job_lines.finding_lines(finding, width, glyphs)
    table = job_lines.table_lines(report, width, glyphs)
    lines += [[], *table] if table else []
    iterations = job_lines.iteration_line(report, glyphs)
    lines += [[], *wrapped(iterations, width, 11)] if iterations else []
    lines += job_lines.setting_lines(report, width)
    lines += job_lines.tail_lines(report, width, glyphs)
    unread = [wrapped([(" could not be read: ", ""), (text, "")], width, 4) for text in report.unread]
    lines += [[]] if unread else []
    lines += [line for found in unread for line in found]
    text = "\n".join(plain(line).removeprefix(" ").rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if ascii_only else text
