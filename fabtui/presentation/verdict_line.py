"""Verdict on one line: how many pairs are bad, with which verdicts, and the worst findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs, style_of
from fabtui.presentation.wording import MUTED, Part, plain, verdict_style
from fabtui.presentation.wrapping import Line, between

#: Verdicts that are counted even if no pair is bad, beside the bad ones.
_NOTABLE = (Verdict.INCONCLUSIVE, Verdict.SKIPPED)
#: Minimum width for the words between the numbers.
_WORDS_FROM = 60


def count_parts(counts: Mapping[Verdict, int], glyphs: Glyphs, *, named: bool = False) -> list[Part]:
    """Return the numbers of pairs by bad or notable verdict, worst first: ``1x 2T`` or ``1 failed, 2 timeout``."""
    parts: list[Part] = []
    for verdict in reversed(SEVERITY):
        if counts.get(verdict) and (verdict.bad or verdict in _NOTABLE):
            name = f" {verdict}" if named else glyphs.of_style[style_of(verdict, None)]
            parts += [(f"{counts[verdict]}{name}", verdict_style(verdict)), (", " if named else " ", MUTED)]
    return parts[:-1]


def numbers_line(
    counts: Mapping[Verdict, int],
    untested: int,
    glyphs: Glyphs,
    *,
    final: bool,
    whole: bool,
    wide: bool,
    named: bool,
    measured: int,
) -> Line:
    """Return the numbers of a verdict, which are never left out; arguments as for `verdict_line`."""
    bad = sum(number for verdict, number in counts.items() if verdict.bad)
    tested = sum(counts.values())
    of = "pair" if final else "tested pair"
    if not tested:
        none = "no pair tested" if final else "no pair tested yet"
        # Results come before their verdicts.
        head: Line = [(f"{count(measured, 'pair')} tested so far" if measured else none, MUTED)]
    elif bad:
        words = f"{bad} of {count(tested, of)} bad" if wide else f"{bad} of {tested} bad"
        head = [(words, verdict_style(worst([verdict for verdict, number in counts.items() if number])))]
    elif final and whole and not untested and counts.get(Verdict.OK) == tested:
        head = [(f"all {count(tested, 'pair')} ok", verdict_style(Verdict.OK))]
    else:
        head = [(f"no bad pair among {count(tested, of)}" if wide else f"0 of {tested} bad", "bold")]
    if chips := count_parts(counts, glyphs, named=named):
        head += [("  ", ""), *chips]
    return [*head, (f"  {untested} not tested", "$warning")] if untested else head


def verdict_line(
    counts: Mapping[Verdict, int],
    found: Sequence[Part],
    width: int,
    glyphs: Glyphs,
    *,
    count_of: int,
    known: int = 0,
    so_far: str = "",
    final: bool,
    untested: int = 0,
    measured: int = 0,
    whole: bool = True,
    note: str = "",
    key: str = "F",
) -> Line:
    """Return the verdict on a session in at most ``width`` characters: numbers first, then findings, worst first.

    The verdicts are words where these take no finding's room, and glyphs otherwise.

    Args:
        counts: Number of pairs with each verdict.
        found: Short titles of the findings with their styles, worst first.
        width: Maximum number of characters.
        glyphs: Characters of the screen.
        count_of: Number of all findings, without those that the user knows about.
        known: Number of those that the user knows about.
        so_far: Text after the number of findings while more may follow.
        final: Whether all wanted pairs have been tested and counted.
        untested: Number of pairs that could not be tested.
        measured: Number of pairs with a result, counted or not.
        whole: Whether no node is lost, whose pairs nobody can test.
        note: Text in place of the findings if there are none.
        key: Key that shows all findings.
    """
    number = count(count_of, "finding") if found else "no new finding" if known else "findings"
    number += (so_far if found else "") + (f", {known} known" if known else "")
    ends = [(key, "bold $primary"), (f" {number}", MUTED)], [(key, "bold $primary")]
    wide = width >= _WORDS_FROM
    lines = []
    for named in (False, True):
        head = numbers_line(
            counts, untested, glyphs, final=final, whole=whole, wide=wide, named=named, measured=measured
        )
        end: Line = next((one for one in ends if len(plain(head)) + len(plain(one)) + 2 <= width), [])
        room = width - len(plain(head)) - len(plain(end)) - 1
        shown = _those_that_fit(found, count_of, room, glyphs)
        if not found and note:
            shown = [("  ", ""), (note, MUTED)] if len(note) + 2 <= room else []
        lines.append((head, shown, end))
    short, worded = lines[0], lines[1]
    fits = len(plain([*worded[0], *worded[1], *worded[2]])) < width
    head, shown, end = worded if fits and worded[1:] == short[1:] else short
    return between([*head, *shown], end, width, glyphs.ellipsis) if end else [*head]


def _those_that_fit(found: Sequence[Part], count_of: int, room: int, glyphs: Glyphs) -> Line:
    """Return as many findings as fit; the last one is cut only if it is the first as well."""
    shown: Line = []
    more, gap = "", " | " if glyphs.plain else " · "
    for at, (text, style) in enumerate(found):
        before = gap if at else "  "
        left = count_of - at - 1
        more = f"{gap}{left} more" if left else ""
        if len(plain(shown)) + len(before) + len(text) + len(more) > room and at:
            last = f"{gap}{left + 1} more"
            return [*shown, (last, MUTED)] if len(plain(shown)) + len(last) <= room else shown
        shown += [(before, MUTED), (text, style)]
    return [*shown, (more, MUTED)] if more else shown
