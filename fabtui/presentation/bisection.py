"""Search by halves as lines with styles: its sentence, a map of the units, and a table of the rounds."""

from __future__ import annotations

from fabtui.diagnosis.pairs.bisection_rules import outcome_sentence
from fabtui.model.events import BisectGroup, BisectRound
from fabtui.model.session_logs import PURPOSES
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import spoken_text
from fabtui.presentation.wording import MUTED, Part, verdict_words
from fabtui.presentation.wrapping import HEADING, Line, Lines, padded, section
from fabtui.sanitize import one_line

#: Units in a line of the map, and between two gaps.
_LONGEST, _BLOCK = 64, 8
#: Letters of the groups of a round, of their suspects and of their fill-ins.
_LETTERS = ("Aa", "Bb", "Cc", "Dd")
_STYLES = {"": "bold $accent", "ok": "$primary", "slow": "bold $warning"}


def bisection_lines(model: Model, width: int, glyphs: Glyphs) -> Lines:
    """Return the search of a session, the map first; none without a search."""
    log = model.bisection
    if log.start is None:
        return []
    lines: Lines = [[], [(outcome_sentence(model), "bold")]]
    if (shown := log.last) is not None:
        lines += _map(model, shown, width, glyphs)
        lines += _table(model, width, glyphs)
    return lines


def _marks(entry: BisectRound, total: int, glyphs: Glyphs) -> list[Part]:
    """Return the mark of each unit in a round."""
    left, cleared = set(entry.left), set(entry.cleared)
    marks: list[Part] = [
        ("?", "$warning") if unit in left else (glyphs.dot, "$primary") if unit in cleared else ("-", MUTED)
        for unit in range(total)
    ]
    for letters, group in zip(_LETTERS, entry.groups, strict=False):
        style = _STYLES.get(group.verdict, "bold $error")
        for letter, numbers in zip(letters, (group.suspects, group.fill), strict=True):
            for unit in numbers:
                marks[unit] = (letter, style if letter.isupper() else MUTED)
    for unit in (unit for culprit in entry.culprits for unit in culprit):
        marks[unit] = ("X", "bold $error")
    return marks


def _map(model: Model, entry: BisectRound, width: int, glyphs: Glyphs) -> Lines:
    start = model.bisection.start
    assert start is not None
    marks = _marks(entry, len(start.units), glyphs)
    names = [one_line(name, 20) for name in start.units]
    label = max(map(len, names), default=0)
    each = next((n for n in (_LONGEST, 32, 16) if label + 4 + n + n // _BLOCK <= width), _BLOCK)
    lines = section(f"round {entry.number}", PURPOSES.get(entry.purpose, one_line(entry.purpose, 20)))
    for first in range(0, len(marks), each):
        line: Line = [(f"  {names[first]:<{label}}  ", MUTED)]
        for at, mark in enumerate(marks[first : first + each]):
            line += [(" ", "")] if at and not at % _BLOCK else []
            line.append(mark)
        lines.append(line)
    shown = {mark for mark, _ in marks}
    words = (
        ("A", "B", f"A B tested side by side{' (a b: cleared fill-ins)' if shown & set('ab') else ''}"),
        ("?", "?", f"? left ({len(entry.left)})"),
        (glyphs.dot, glyphs.dot, f"{glyphs.dot} cleared ({len(entry.cleared)})"),
        ("X", "X", "X found"),
    )
    return [*lines, [("  " + "   ".join(text for one, other, text in words if shown & {one, other}), MUTED)]]


def _table(model: Model, width: int, glyphs: Glyphs) -> Lines:
    rows, styles = [["round", "for", "group", "", "busbw", "suspects"]], [HEADING]
    for entry in model.bisection.rounds.values():
        for letters, group in zip(_LETTERS, entry.groups, strict=False):
            rows.append([*_cells(entry, letters[0], group), _suspects(model, group)])
            styles.append(MUTED if group.verdict == "ok" else _STYLES.get(group.verdict, "bold $error"))
    if len(rows) == 1:
        return []
    lines: Lines = [[]]
    for cells, style in zip(padded(rows, (1, 2, 3, 5)), styles, strict=True):
        text = "  " + "  ".join(cells).rstrip()
        lines.append([(text if len(text) <= width else text[: width - 1] + glyphs.ellipsis, style)])
    # The latest round first, below the headings.
    return [*lines[:2], *reversed(lines[2:])]


def _cells(entry: BisectRound, letter: str, group: BisectGroup) -> list[str]:
    value = "" if group.value is None else spoken_text(group.value, "GB/s")
    purpose = PURPOSES.get(entry.purpose, one_line(entry.purpose, 20))
    return [str(entry.number), purpose, letter, verdict_words(group.verdict) if group.verdict else "runs", value]


def _suspects(model: Model, group: BisectGroup) -> str:
    suspects = fold(model.bisection.names(group.suspects)) if group.suspects else "none"
    return suspects + (f" + {count(len(group.fill), 'fill-in')}" if group.fill else "")
