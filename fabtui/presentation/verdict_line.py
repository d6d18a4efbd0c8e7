"""Verdict on one line: how many pairs are bad, with which verdicts, and the worst findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fabtui.model.measurement import SEVERITY, Verdict
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs, slot_of
from fabtui.presentation.wording import MUTED, Part, plain, verdict_style
from fabtui.presentation.wrapping import Line, between

#: Verdicts that are counted even if no pair is bad, beside the bad ones.
_NOTABLE = (Verdict.INCONCLUSIVE, Verdict.SKIPPED)
_DEAD = (Verdict.FAILED, Verdict.TIMEOUT)
#: Minimum width for the words between the numbers.
_WORDS_FROM = 60


def count_parts(counts: Mapping[Verdict, int], glyphs: Glyphs) -> list[Part]:
    """Return the number of pairs with each bad or notable verdict before its glyph, worst first: ``1x 2T 1!``."""
    parts: list[Part] = []
    for verdict in reversed(SEVERITY):
        if counts.get(verdict) and (verdict.bad or verdict in _NOTABLE):
            parts += [(f"{counts[verdict]}{glyphs.of_slot[slot_of(verdict, None)]}", verdict_style(verdict)), (" ", "")]
    return parts[:-1]


def _head(counts: Mapping[Verdict, int], untested: int, glyphs: Glyphs, *, final: bool, wide: bool) -> Line:
    """Return the numbers, which are never left out."""
    bad = sum(number for verdict, number in counts.items() if verdict.bad)
    tested = sum(counts.values())
    of = "pair" if final else "tested pair"
    if not tested:
        head: Line = [("no pair tested" if final else "no pair tested yet", MUTED)]
    elif bad:
        words = f"{bad} of {count(tested, of)} bad" if wide else f"{bad} of {tested} bad"
        head = [(words, f"bold {'$error' if any(map(counts.get, _DEAD)) else '$warning'}")]
    elif final and counts.get(Verdict.OK) == tested:
        head = [(f"all {count(tested, 'pair')} ok", "bold $primary")]
    else:
        head = [(f"no bad pair among {count(tested, of)}" if wide else f"0 of {tested} bad", "bold")]
    if chips := count_parts(counts, glyphs):
        head += [("  ", ""), *chips]
    return [*head, (f"  {untested} not tested", "$warning")] if untested else head


def verdict_line(
    counts: Mapping[Verdict, int],
    found: Sequence[Part],
    width: int,
    glyphs: Glyphs,
    *,
    count_of: int,
    final: bool,
    untested: int = 0,
    note: str = "",
    key: str = "F",
) -> Line:
    """Return the verdict on a session in at most ``width`` characters: numbers first, then findings, worst first.

    Args:
        counts: Number of pairs with each verdict.
        found: Short titles of the findings with their styles, worst first.
        width: Maximum number of characters.
        glyphs: Characters of the screen.
        count_of: Number of all findings.
        final: Whether all wanted pairs have been tested and counted.
        untested: Number of pairs that could not be tested.
        note: Text in place of the findings if there are none.
        key: Key that shows all findings.
    """
    head = _head(counts, untested, glyphs, final=final, wide=width >= _WORDS_FROM)
    number = count(count_of, "finding") if found else "findings"
    ends: Iterable[Line] = ([(key, "bold $primary"), (f" {number}", MUTED)], [(key, "bold $primary")], [])
    end = next(one for one in ends if not one or len(plain(head)) + len(plain(one)) + 2 <= width)
    room = width - len(plain(end)) - 1
    shown, more = _those_that_fit(found, count_of, room - len(plain(head)), glyphs)
    if not found and note:
        shown = [("  ", ""), (note, MUTED)] if len(plain(head)) + len(note) + 2 <= room else []
    return between([*head, *shown, *more], end, width, glyphs.ellipsis) if end else [*head]


def _those_that_fit(found: Sequence[Part], count_of: int, room: int, glyphs: Glyphs) -> tuple[Line, Line]:
    """Return as many findings as fit; the last one is cut only if it is the first as well."""
    shown: Line = []
    more, gap = "", " | " if glyphs.plain else " · "
    for at, (text, style) in enumerate(found):
        before = gap if at else "  "
        left = count_of - at - 1
        more = f"{gap}{left} more" if left else ""
        if len(plain(shown)) + len(before) + len(text) + len(more) > room and at:
            last = f"{gap}{left + 1} more"
            return shown, [(last, MUTED)] if len(plain(shown)) + len(last) <= room else []
        shown += [(before, MUTED), (text, style)]
    return shown, [(more, MUTED)] if found else []
