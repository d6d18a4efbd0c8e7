"""A job's report as lines with styles, for the text front end and for the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.job.job_verdict import JobState
from fabtui.diagnosis.job.logs.iteration_times import IterationTimes
from fabtui.diagnosis.job.logs.job_logs import LogFile, Stream
from fabtui.diagnosis.job.logs.report import JobReport, NodeRow, Verdict
from fabtui.diagnosis.job.logs.settings import NAMES
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import step_parts
from fabtui.presentation.wording import MUTED, clock_text, plain
from fabtui.presentation.wrapping import HEADING, Line, Lines, aligned, clipped, wrapped
from fabtui.sanitize import one_line

_VERDICT_STYLES: dict[Verdict, str] = {
    **{"healthy": "bold $primary", "ended": "bold $primary", "waiting": "bold $accent", "unknown": "bold $accent"},
    **{"suspect": "bold $warning", "hangs": "bold $error", "failed": "bold $error"},
}
_SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": MUTED}
STREAM_NAMES: dict[Stream, str] = {"out": "stdout", "err": "stderr", "gpu": "GPUs"}
#: Lines at the end of each log that the text shows, as many as there are GPUs for those of GPUs.
TAIL_LINES: dict[Stream, int] = {"out": 3, "err": 1, "gpu": 0}
#: Nodes from which those that are alike share a line, and iterations that are listed.
_FOLD_FROM = 9
_ITERATIONS = 5
_SPARK = 24
_GIB = 1 << 30
#: Headings of the table of nodes, those that a narrow screen leaves out last.
HEADINGS = ("node", "state", "last output", "in", "iteration", "GPUs busy", "memory GiB", "power W", "ranks", "errors")
_LEAVE_OUT = ("power W", "in", "memory GiB", "ranks")
#: Headings above numbers.
RIGHT = frozenset(HEADINGS[2:]) - {"in"}
#: Settings of the summary line: label and meaning.
_SHORT = (("TP", "tensor"), ("DP", "data"), ("PP", "pipeline"), ("CP", "context"))


class JobCells(NamedTuple):
    """A line of the table of nodes: the nodes (one, or those that are alike), texts by heading, and the state."""

    nodes: tuple[str, ...]
    texts: dict[str, str]
    state: str


def title_line(report: JobReport) -> Line:
    status = report.status
    name = f"job {status.job}" if status.job else "logs"
    parts: Line = [(f" {one_line(name, 40)}", "bold"), ("  ", ""), (report.verdict, _VERDICT_STYLES[report.verdict])]
    if status.state:
        parts.append((f"  {one_line(status.state, 20)}", ""))
    if status.elapsed is not None and status.stage != "waiting":
        of = f" of {clock_text(status.limit)}" if status.limit is not None else ""
        parts.append((f" {clock_text(status.elapsed)}{of}", MUTED))
    if report.rows:
        gpus = sum(len(row.sample.gpus) for row in report.rows if row.sample)
        parts.append((f"  {count(len(report.rows), 'node')}" + (f", {count(gpus, 'GPU')}" if gpus else ""), ""))
    return [*parts, (f"  {one_line(status.name, 40)}", MUTED)] if status.name else parts


def finding_lines(finding: Finding, width: int, glyphs: Glyphs, *, with_next: bool = True) -> Lines:
    mark = glyphs.of_severity(finding.severity)
    head = f" {mark} {finding.rule.id} ", _SEVERITY_STYLES[finding.severity]
    lines = wrapped([head, (one_line(finding.facts["text"], 600), "")], width, 7)
    for command in finding.next if with_next else ():
        text, note = step_parts(command, 400)
        lines += wrapped([("       next: ", MUTED), (text, ""), (f" {note}" if note else "", MUTED)], width, 13)
    return lines


def node_cells(report: JobReport, *, folded: bool = True) -> list[JobCells]:
    groups: dict[object, list[NodeRow]] = {}
    for row in report.rows:
        sample = row.sample
        gpus = (sample.busy, len(sample.gpus)) if sample is not None else None
        alone = not folded or len(report.rows) < _FOLD_FROM or row.state == "suspect" or row.iteration
        key = row.node if alone else (row.state, gpus, row.errors, row.ranks)
        groups.setdefault(key, []).append(row)
    return [_cells(rows) for rows in groups.values()]


def _cells(rows: list[NodeRow]) -> JobCells:
    first = rows[0]
    quiet = max((row.quiet for row in rows if row.quiet is not None), default=None)
    samples = [row.sample for row in rows if row.sample is not None]
    gpus = [gpu for sample in samples for gpu in sample.gpus]
    used = [gpu.used for gpu in gpus if gpu.used is not None]
    total = [gpu.total for gpu in gpus if gpu.total is not None]
    power = [gpu.power for gpu in gpus if gpu.power is not None]
    share = len(samples) or 1
    old = max((row.sample_age or 0.0 for row in rows), default=0.0)
    busy = f"{sum(sample.busy for sample in samples) // share}/{len(gpus) // share}" if gpus else ""
    names = first.node if len(rows) == 1 else f"{fold(row.node for row in rows)}, {len(rows)} alike"
    texts = {
        "node": one_line(names, 60),
        "state": first.state,
        "last output": "" if quiet is None else f"{clock_text(quiet)} ago",
        "in": STREAM_NAMES[first.stream] if first.stream else "",
        "iteration": first.iteration,
        "GPUs busy": busy + (f", {clock_text(old)} ago" if busy and old > 60 else ""),
        "memory GiB": f"{sum(used) / _GIB / share:.1f}/{sum(total) / _GIB / share:.1f}" if used and total else "",
        "power W": f"{sum(power) / share:.0f}" if power else "",
        "ranks": "" if first.ranks is None else str(first.ranks),
        "errors": str(first.errors) if first.errors else "",
    }
    return JobCells(tuple(row.node for row in rows), texts, first.state)


def headings_for(rows: Sequence[JobCells], width: int) -> list[str]:
    shown = [name for name in HEADINGS if name in ("node", "state") or any(row.texts[name] for row in rows)]
    widths = {name: max([len(name), *(len(row.texts[name]) for row in rows)]) for name in shown}
    for name in _LEAVE_OUT:
        if sum(widths[heading] + 2 for heading in shown) <= width:
            break
        shown = [heading for heading in shown if heading != name]
    return shown


def table_lines(report: JobReport, width: int, glyphs: Glyphs) -> Lines:
    rows = node_cells(report)
    shown = headings_for(rows, width)
    left = [at for at, name in enumerate(shown) if name not in RIGHT]
    cells = [[row.texts[name] or "-" for name in shown] for row in rows]
    head, *texts = aligned([shown, *cells], left, indent=" ")
    lines: Lines = [[(head, MUTED)]]
    for row, text in zip(rows, texts, strict=True):
        lines.append(clipped([(text, state_style(row.state))], width, glyphs.ellipsis))
    return lines if rows else []


def state_style(state: str) -> str:
    return {"suspect": "bold $warning", "no logs": MUTED}.get(state, "")


def iteration_line(report: JobReport, glyphs: Glyphs) -> Line:
    times = report.facts.logs.iterations
    latest, median = times.latest, times.median
    if latest is None:
        return []
    parts: Line = [(" iteration ", MUTED), (f"{latest.number}/{latest.total}", "bold")]
    timed = [one for one in times.all if one.seconds is not None]
    if median is not None:
        shown = [one for one in timed if one is not times.warm_up][-_ITERATIONS:]
        parts += [("  ", ""), (" ".join(f"{one.seconds:.4g}" for one in shown if one.seconds is not None) + " s", "")]
        parts += [(f" {_spark(times, glyphs)}", "$accent"), (f"  median {median:.4g} s", "bold")]
    if (first := times.warm_up) is not None:
        parts.append((f"  first {first.seconds:.4g} s (warm-up)", MUTED))
    slow = len(times.slow)
    parts += [(f"  {slow} slow", "bold $warning")] if slow else []
    parts += [(f"  loss {one_line(latest.loss, 20)}", MUTED)] if latest.loss else []
    parts += [(f"  {count(times.restarts, 'restart')}", "$warning")] if times.restarts else []
    return parts


def _spark(times: IterationTimes, glyphs: Glyphs) -> str:
    blocks = glyphs.blocks
    values = [one.seconds for one in times.all if one.seconds is not None and not one.first][-_SPARK:]
    most = max([*values, 2 * (times.median or 0.0)], default=0.0)
    return "".join(blocks[min(len(blocks) - 1, int(value / most * len(blocks)))] for value in values) if most else ""


def setting_lines(report: JobReport, width: int) -> Lines:
    settings = report.facts.logs.settings
    values = settings.usual()
    if not values:
        return []
    texts = [f"{label} {value}" for label, name in _SHORT if (value := _of(values, name))]
    world = _of(values, "world")
    line = [f"WORLD_SIZE {world}" + (f" = {' x '.join(texts)}" if texts else "")] if world else texts
    named = {name for names in NAMES.values() for name in names}
    for label, meaning in (("NNODES", "nodes"), ("GBS", "global_batch"), ("MBS", "micro_batch")):
        line += [f"{label} {value}"] if (value := _of(values, meaning)) else []
    layers, stages = _of(values, "layers"), _of(values, "partition")
    line += [f"layers {layers}" + (f" = {stages}" if stages else "")] if layers or stages else []
    line += [f"MASTER_ADDR {master}"] if (master := _of(values, "master")) else []
    line += [f"{name} {value}" for name, value in values.items() if name not in named][:8]
    wrong = {finding.rule.id for finding in report.findings} & {"J06", "J08", "J11"}
    agree = "see the findings" if wrong else f"{count(len(settings.of), 'node')} agree" if len(settings.of) > 1 else ""
    text = one_line(", ".join(line), 1000)
    return wrapped([(" settings  ", MUTED), (text, ""), (f"  {agree}" if agree else "", MUTED)], width, 11)


def _of(values: dict[str, str], meaning: str) -> str:
    return next((values[name] for name in NAMES[meaning] if name in values), "")


def tail_files(report: JobReport, node: str, stream: Stream) -> list[LogFile]:
    """Return the files of a node and a kind; those of the whole job where a node has none."""
    logs = report.facts.logs
    return logs.of(node, stream) or logs.of("", stream)


def tail_of(file: LogFile, number: int, width: int, ellipsis: str) -> Lines:
    lines = [one_line(line, 2000) for line in file.tail(number)]
    return [clipped([(f" {line}", "")], width, ellipsis) for line in lines]


def tail_lines(report: JobReport, width: int, glyphs: Glyphs) -> Lines:
    lines: Lines = []
    for stream, name in STREAM_NAMES.items():
        ends: dict[tuple[str, ...], list[LogFile]] = {}
        files = [file for file in report.facts.logs.files.values() if file.stream == stream]
        for file in sorted(files, key=lambda file: (file.node, file.path)):
            ends.setdefault(tuple(file.tail(_number(file, report))), []).append(file)
        total, exact = report.facts.logs.lines(stream)
        if files:
            number = f"  {count(total, 'line')}{'' if exact else ' and more'} in {count(len(files), 'file')}"
            lines += [[], [(name, HEADING), (number, MUTED)]]
        for group in ends.values():
            named = [file.node for file in group if file.node]
            title = fold(dict.fromkeys(named)) if named else group[0].path.rpartition("/")[2]
            empty = "" if any(group[0].tail(1)) else "  empty"
            lines.append([(f" {one_line(title, width - 4)}", "bold"), (empty, MUTED)])
            ends_of_group = tail_of(group[0], _number(group[0], report), width - 2, glyphs.ellipsis)
            lines += [[("  ", ""), *line] for line in ends_of_group]
    return lines


def _number(file: LogFile, report: JobReport) -> int:
    gpus = report.facts.logs.gpus.get(file.node)
    return TAIL_LINES[file.stream] or (len(gpus.latest.gpus) if gpus is not None and gpus.latest else 1)


def job_text(report: JobReport, width: int, *, ascii_only: bool) -> str:
    glyphs = Glyphs(ascii_only)
    lines: Lines = wrapped(title_line(report), width, 2)
    if (running := report.running) is not None and running.state is not JobState.UNKNOWN:
        lines += wrapped([(f" {one_line(running.sentence, 1000)}", "")], width, 3)
    for finding in report.findings:
        lines += finding_lines(finding, width, glyphs)
    table = table_lines(report, width, glyphs)
    lines += [[], *table] if table else []
    iterations = iteration_line(report, glyphs)
    lines += [[], *wrapped(iterations, width, 11)] if iterations else []
    lines += setting_lines(report, width)
    lines += tail_lines(report, width, glyphs)
    unread = [wrapped([(" could not be read: ", ""), (text, "")], width, 4) for text in report.unread]
    lines += [[]] if unread else []
    lines += [line for found in unread for line in found]
    text = "\n".join(plain(line).removeprefix(" ").rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if ascii_only else text
