"""Differences between two sessions: text of ``fabtui diff``, JSON and CSV."""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.session_diff import PairChange, SessionDiff, Status
from fabtui.export.formats import cleaned, head, table_text
from fabtui.export.formats import json_text as text_of
from fabtui.model.layers import all_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import ASCII, UNICODE, Glyphs
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.findings import finding_text, pairs_text, placed_title
from fabtui.presentation.numbers import size_text, spoken_text, value_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import plain, verdict_words
from fabtui.report.document import Block, Items, Lines, Paragraph, Table, takes_unicode
from fabtui.report.preflight import change_lines
from fabtui.report.text import capped, text
from fabtui.sanitize import clean, one_line

#: Maximum number of rows of pairs and of lines of findings.
_MOST_ROWS = 24
_WIDEST = 60
_FILE_WIDTH = 120
#: Heading of changed pairs, and its columns of text.
_HEAD = ["layer", "pairs", "", "then", "now", "now / then"]
_LEFT = (0, 1, 3, 4)
_ORDER = (Status.WORSE, Status.NEW, Status.GONE, Status.BETTER, Status.NOT_COMPARABLE)
_TITLES = {Status.NEW: "no result then", Status.GONE: "no result now"}
_WHERE = "--json has them all"
COLUMNS = (
    *("layer", "arm", "src", "dst", "src_addr", "dst_addr", "bytes", "status"),
    *("verdict_then", "verdict_now", "value_then", "value_now", "unit", "ratio", "error"),
)

#: Texts of the earlier and of the later session.
Pair = tuple[str, str]


class _Row(NamedTuple):
    """Pairs between the same nodes that changed alike: their sources, destinations and changes."""

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    changes: list[PairChange]


def session_text(name: str, model: Model) -> str:
    start = model.started or min((one.time for one in model.measurements() if one.time), default=0.0)
    when = time.strftime("%d %b %Y %H:%M, ", time.localtime(start)) if start else ""
    return f"{one_line(name, 200)} ({when}{count(len(model.nodes), 'node')})"


def diff_text(names: Pair, sessions: Pair, diff: SessionDiff, width: int, glyphs: Glyphs = UNICODE) -> str:
    """Return the text of differences; ``sessions``: see `session_text`; ``width`` limits lines of facts."""
    return clean(text(change_blocks(sessions, names[0], diff, width, glyphs), plain=glyphs.plain))


def change_blocks(sessions: Pair, then: str, diff: SessionDiff, width: int, glyphs: Glyphs) -> Iterator[Block]:
    verdicts = map(sentence_of, diff.sessions)
    named = zip(("then:", "now: "), sessions, verdicts, strict=True)
    heads = [f"{when} {session}: {verdict}" for when, session, verdict in named]
    # What limits the comparison comes first: without it the counts mislead.
    yield Items("", [*difference_lines(diff), change_line(diff), *heads])
    if diff.counts:
        yield _counts(diff)
    yield from _pair_tables([one for one in diff.pairs if one.turned])
    if diff.new:
        lines = [line for one in diff.new for line in _with_evidence(one)]
        yield Lines(f"new findings: {len(diff.new)}", capped(lines, "lines", where=_WHERE, indent="  "))
    yield from _finding_lists(diff.gone, "findings that are gone")
    yield from _pair_tables([one for one in diff.pairs if not one.turned], values=True)
    if diff.facts is None:
        yield Paragraph("facts of nodes are not compared: that takes two recordings or JSON sessions")
    else:
        head, *lines = (plain(line).strip() for line in change_lines(diff.facts, then, width, glyphs))
        yield Items(f"facts {head}", capped(lines, "changes", where=_WHERE), whole=True)
    yield from _finding_lists(diff.still, "findings that are still there")


def _finding_lists(found: Sequence[Finding], what: str) -> Iterator[Items]:
    if found:
        lines = [finding_line(one) for one in found]
        yield Items(f"{what}: {len(found)}", capped(lines, "findings", _MOST_ROWS, _WHERE))


def change_line(diff: SessionDiff) -> str:
    turned = [one for one in diff.pairs if one.turned]
    broken = sum(one.now.bad for one in turned)
    repaired = len(turned) - broken
    lower = sum(one.bad and not one.turned for one in diff.pairs)
    parts = [
        f"{count(broken, 'pair')} broke" if broken else "",
        f"{count(lower, 'pair has a worse result', 'pairs have worse results')}" if lower else "",
        f"{count(repaired, 'pair was', 'pairs were')} repaired" if repaired else "",
        f"{count(len(diff.new), 'finding is', 'findings are')} new" if diff.new else "",
        f"{count(len(diff.gone), 'finding is', 'findings are')} gone" if diff.gone else "",
    ]
    outcome = "Something is worse" if diff.worse else "Nothing is worse"
    return f"{': '.join(filter(None, (outcome, ', '.join(filter(None, parts)))))}."


def print_diff(names: Pair, models: tuple[Model, Model], diff: SessionDiff) -> None:
    width = shutil.get_terminal_size((_FILE_WIDTH, 24)).columns if sys.stdout.isatty() else _FILE_WIDTH
    sessions = (session_text(names[0], models[0]), session_text(names[1], models[1]))
    glyphs = UNICODE if takes_unicode(sys.stdout) else ASCII
    sys.stdout.write(diff_text(names, sessions, diff, width, glyphs))


def difference_lines(diff: SessionDiff) -> list[str]:
    """Return one line about other endpoints, message sizes and engines, none where these are the same."""
    sides = []
    for one in diff.differences:
        then, now = (
            ", ".join(size_text(each) if isinstance(each, int) else one_line(each, 60) for each in side[:4])
            for side in (one.then, one.now)
        )
        sides.append(f"other {one.what} ({then} then, {now} now)")
    first, second = (one.model.started for one in diff.sessions)
    order = ["The first file is the later session: swap them to see what changed since."] if first > second > 0 else []
    return [*order, *([f"Values are hardly comparable: {'; '.join(sides)}."] if sides else [])]


def _counts(diff: SessionDiff) -> Table | Paragraph:
    found_any = any(found[Status.NOT_COMPARABLE] for found in diff.counts.values())
    statuses = [one for one in Status if one is not Status.NOT_COMPARABLE or found_any]
    rows, same = [["pairs", *map(str, statuses)]], []
    for layer in all_layers():
        if (found := diff.counts.get(layer)) is not None and found.total() > found[Status.SAME]:
            rows.append([str(layer), *(str(found[status]) for status in statuses)])
        elif found is not None:
            same.append(f"{layer} ({found[Status.SAME]})")
    note = f"{'all' if len(rows) == 1 else 'others'} the same: {', '.join(same)}"
    return Table("", rows, notes=[note] if same else []) if len(rows) > 1 else Paragraph(f"pairs: {note}")


def _pair_tables(pairs: Sequence[PairChange], *, values: bool = False) -> Iterator[Table]:
    """Yield a table for each status; ``values``: only the values of these pairs changed."""
    for status in _ORDER:
        changes = [one for one in pairs if one.status is status]
        if rows := _pair_rows(changes):
            left = len(rows) - _MOST_ROWS
            note = " values" if values and status in (Status.WORSE, Status.BETTER) else ""
            note = f" ({_TITLES[status]})" if status in _TITLES else note
            if status is Status.NOT_COMPARABLE:
                note = f" ({Counter(one.reason for one in changes).most_common(1)[0][0]})"
            more = [f"and {left} more rows; --csv and --json have them all"] if left > 0 else []
            title = f"{status}{note}: {count(len(changes), 'pair')}"
            yield Table(title, [_HEAD, *rows[:_MOST_ROWS]], _LEFT, more)


def _pair_rows(changes: Sequence[PairChange]) -> list[list[str]]:
    groups: dict[tuple[object, ...], list[PairChange]] = {}
    for one in changes:
        # Values that changed by about the same factor are listed together.
        factor = 0 if one.gain is None else math.frexp(one.gain)[1]
        groups.setdefault((one.key.layer, one.key.arm, one.then, one.now, factor), []).append(one)
    return [_cells(row) for group in groups.values() for row in _rows(group)]


def _rows(changes: Sequence[PairChange]) -> list[_Row]:
    """Fold changes by the nodes of their ends, by source or by destination: the way that gives fewer rows."""
    cells: dict[tuple[str, str], list[PairChange]] = {}
    for one in changes:
        cells.setdefault((_place(one.key.src), _place(one.key.dst)), []).append(one)
    inside = [place for place in cells if place[0] == place[1]]
    across = [place for place in cells if place[0] != place[1]]
    folded = []
    if inside:
        places = tuple(source for source, _ in inside)
        folded.append(_Row(places, places, [one for place in inside for one in cells[place]]))
    folds = []
    for side in (0, 1):
        others: dict[str, list[str]] = {}
        for place in across:
            others.setdefault(place[side], []).append(place[1 - side])
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, partners in others.items():
            alike.setdefault(tuple(sorted(partners)), []).append(name)
        folds.append([(tuple(names), partners) for partners, names in alike.items()])
    pairs = folds[0] if len(folds[0]) <= len(folds[1]) else [(s, d) for d, s in folds[1]]
    folded += [_Row(s, d, [one for a in s for b in d for one in cells[a, b]]) for s, d in pairs]
    return sorted(folded, key=lambda row: -len(row.changes))


def _place(end: str) -> str:
    """Return the node of an endpoint; a node, a rail or ``all`` itself."""
    node, _, index = end.rpartition(":")
    return node if node and index.isdecimal() else end


def _cells(row: _Row) -> list[str]:
    keys = [one.key for one in row.changes]
    first = row.changes[0]
    source = _ends((key.src for key in keys), row.sources)
    destination = _ends((key.dst for key in keys), row.destinations)
    text = f"{source} > {destination}"
    if source == destination:
        text = source if all(key.src == key.dst for key in keys) else f"within {source}"
    if len(keys) == 1 and first.key.src_addr:
        text += f" ({first.key.src_addr} > {first.key.dst_addr})"
    layer = f"{first.key.layer}@{first.key.arm}" if first.key.arm else str(first.key.layer)
    ratios = [one.ratio for one in row.changes if one.ratio is not None]
    number = "" if len(keys) == 1 else count(len(keys), "pair")
    then = _side(first.then, (one.before for one in row.changes))
    now = _side(first.now, (one.after for one in row.changes))
    ratio = f"{value_text(statistics.median(ratios))} x" if ratios else ""
    return [one_line(layer, _WIDEST), one_line(text, _WIDEST), number, then, now, ratio]


def _ends(names: Iterable[str], places: Iterable[str]) -> str:
    ends = set(names)
    return one_line(ends.pop()) if len(ends) == 1 else fold(places)


def _side(verdict: Verdict, measurements: Iterable[Measurement | None]) -> str:
    known = [one for one in measurements if one is not None and one.value is not None]
    word = "" if verdict is Verdict.OK and known else "-" if verdict is Verdict.UNTESTED else verdict_words(verdict)
    value = spoken_text(statistics.median(one.value or 0.0 for one in known), known[0].unit) if known else ""
    return one_line(f"{word} {value}")


def finding_line(finding: Finding) -> str:
    pairs = f" ({pairs_text(finding)})" if finding.cells else ""
    return f"{finding.rule.id}  {finding.severity:<4}  {placed_title(finding)}{pairs}"


def _with_evidence(finding: Finding) -> list[str]:
    text = finding_text(finding)
    lines = [*text.evidence, *(f"next: {command}" for command in text.next)]
    return [f"  {finding_line(finding)}", *(f"      {line}" for line in lines)]


def json_text(names: Pair, diff: SessionDiff) -> str:
    facts = diff.facts
    value = {
        **head("diff"),
        "then": names[0],
        "now": names[1],
        "worse": diff.worse,
        "differences": [one._asdict() for one in diff.differences],
        "layers": {str(layer): {str(status): n for status, n in found.items()} for layer, found in diff.counts.items()},
        "pairs": [dict(zip(COLUMNS, _pair_row(one), strict=True)) for one in diff.pairs],
        "facts": None if facts is None else [change._asdict() for change in facts.changes],
        "nodes": None if facts is None else {"new": facts.new, "gone": facts.gone},
        "findings": {name: list(map(finding_json, getattr(diff, name))) for name in ("new", "gone", "still")},
    }
    return text_of(cleaned(value))


def csv_text(diff: SessionDiff) -> str:
    rows = ([one_line(cell) if isinstance(cell, str) else cell for cell in _pair_row(one)] for one in diff.pairs)
    return table_text(COLUMNS, rows)


def _pair_row(one: PairChange) -> list[Any]:
    key, latest = one.key, one.after or one.before
    assert latest is not None
    ends = [key.src, key.dst, key.src_addr or None, key.dst_addr or None]
    values = [None if m is None or m.value is None else float(m.value) for m in (one.before, one.after)]
    verdicts = [str(one.status), str(one.then), str(one.now)]
    rest = [latest.unit or None, one.ratio, latest.error]
    return [str(key.layer), key.arm or None, *ends, latest.bytes, *verdicts, *values, *rest]
