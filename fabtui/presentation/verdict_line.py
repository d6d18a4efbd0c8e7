"""The verdict sentence: how many pairs are bad, and what is wrong, worst first.

    2 of 56 GPU pairs are bad: n000:1 > n001:2 timed out (path), n000:3 > n001:0 1.0 % of usual (path)
    All 56 GPU pairs are ok.

The screen, texts, reports and exports state the verdict on a session with it, and in no other words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fabtui.diagnosis.finding import Domain, Finding, Route, Severity
from fabtui.exit_status import BAD
from fabtui.model.events import NodeState
from fabtui.model.layers import Layer
from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import UNICODE, Glyphs
from fabtui.presentation.findings import placed_title
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.preflight_lines import cut, head_line
from fabtui.presentation.wording import MUTED, Part, plain, verdict_style, verdict_words, without_domain
from fabtui.presentation.wrapping import Line
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.diagnosis.diagnosis import Diagnosis
    from fabtui.diagnosis.pairs.tally import Tally
    from fabtui.model.session_model import Model

#: Verdicts that are counted beside the bad ones.
_NOTABLE = (Verdict.INCONCLUSIVE, Verdict.SKIPPED)
#: Maximum number of faults of a sentence of a given width, and of any other.
_MOST_FAULTS, _FEW_FAULTS = 12, 3
#: Maximum number of characters of a fault, of a sentence about a job, and of a reason.
_LONGEST, _LONGEST_LEAD, _LONGEST_REASON = 160, 1000, 200
#: Minimum room for a fault that is cut.
_NARROWEST = 14
#: Mark of a fault that the user knows about.
_KNOWN = " (known)"
#: A fault of a pair without its details: how much data is wrong, and what is at fault.
_BRIEF = re.compile(r"\S+ [->] \S+ [^,(]+(?=,| \()")
#: Later items of a set of nodes.
_LATER = re.compile(r"(?<=[\w.])[-,][\w.,-]+(?=\])")
_STYLES = {Severity.BAD: "", Severity.WARN: "$warning", Severity.NOTE: MUTED}
#: Words about a lost node by its state.
_GONE: dict[str, str] = {NodeState.LOST: "{node} is lost", NodeState.FAILED: "{node} failed: {reason}"}
#: Style of a sentence without a bad pair that claims less than that all are ok.
_PARTLY = "bold $warning"


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything that a verdict sentence is made of."""

    counts: Mapping[Verdict, int] = field(default_factory=dict)  #: Number of pairs with each verdict.
    findings: Sequence[Finding] = ()  #: Findings, worst first.
    noun: str = "pair"  #: What is counted: ``GPU pair``, ``pair`` or ``address pair``.
    total: int = 0  #: Number of pairs to be tested while tests run; 0 if unknown.
    untested: int = 0  #: Number of pairs that could not be tested.
    rechecked: int = 0  #: Number of suspects that are being tested again, which ``counts`` leaves out.
    measured: int = 0  #: Number of pairs with a result, judged or not.
    running: bool = False  #: Whether more pairs will be tested.
    judging: bool = False  #: Whether results are still being judged, or the causes searched.
    complete: bool = True  #: Whether everything wanted was tested, and no node is lost.
    failing: bool = False  #: Whether the exit code is one of a bad result.
    reason: str = ""  #: What could not be tested, and why.
    beside: int = 0  #: Number of pairs that are slow alongside other traffic only.
    others: str = ""  #: Bad measurements of other things than pairs, in words.
    lead: str = ""  #: Sentence about a job, which comes first.
    healed: str = ""  #: How long ago the last bad pair became good, and what is being watched.
    domain: str = ""  #: DNS domain that all nodes share, which is not shown.

    @property
    def bad(self) -> int:
        return sum(number for verdict, number in self.counts.items() if verdict.bad)

    @property
    def tested(self) -> int:
        return sum(self.counts.values())


def pair_noun(model: Model) -> str:
    """Return what the pairs of a session are called: ``GPU pair``, or ``pair`` for CPU ranks."""
    return "GPU pair" if {end.kind for end in model.endpoints} - {"none"} == {"gpu"} else "pair"


def standing_of(one: Diagnosis) -> Standing:
    model, counts, noun = one.model, dict(one.tally.counts), pair_noun(one.model)
    if not counts and not model.results.tested and (counts := address_counts(model)):
        noun = "address pair"
    reasons, alone = one.not_examined, not any(verdict.bad for verdict in counts)
    more = f", and {count(len(reasons) - 1, 'more reason')}" if len(reasons) > 1 else ""
    return Standing(
        counts,
        # The sentence about a job states what the findings about it do.
        [found for found in one.findings if one.job is None or found.rule.domain is not Domain.RUNNING],
        noun,
        untested=len(model.untested),
        complete=not reasons and not any(map(model.gone, model.nodes)),
        failing=one.code == BAD,
        reason=one_line(reasons[0], _LONGEST_REASON) + more if reasons else "",
        beside=slow_beside(one.tally),
        others=other_measurements(model.counts()) if alone else "",
        lead="" if one.job is None else one_line(one.job.sentence, _LONGEST_LEAD),
    )


def slow_beside(tally: Tally) -> int:
    """Return the number of pairs that are slow alongside other traffic, if no pair is bad."""
    inside: Mapping[Verdict, int] = tally.layers.get(Layer.WORLD, {})
    return 0 if any(verdict.bad for verdict in tally.counts) else inside.get(Verdict.SLOW, 0)


def address_counts(model: Model) -> dict[Verdict, int]:
    found: dict[tuple[str | None, ...], Verdict] = {}
    for m in model.addresses.everything():
        key = (m.src, m.dst, m.src_addr, m.dst_addr)
        found[key] = worst([found.get(key, Verdict.UNTESTED), model.verdict(m)])
    verdicts = list(found.values())
    return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}


def other_measurements(found: Mapping[Verdict, int]) -> str:
    """Return the number of bad measurements of other things: ``2 other measurements are bad (1 failed, 1 slow)``."""
    counts = {verdict: number for verdict, number in found.items() if verdict.bad}
    if not (number := sum(counts.values())):
        return ""
    are = "is" if number == 1 else "are"
    named = ", ".join(f"{counts[one]} {verdict_words(one)}" for one in reversed(SEVERITY) if counts.get(one))
    return f"{count(number, 'other measurement')} {are} bad ({named})"


def sentence_of(one: Diagnosis) -> str:
    if one.model.options.get("looks_only") and one.job is None:
        return plain(head_line(one.preflight))
    return sentence_text(standing_of(one))


def sentence_text(standing: Standing, width: int | None = None, glyphs: Glyphs = UNICODE) -> str:
    return plain(verdict_sentence(standing, width, glyphs))


def verdict_sentence(standing: Standing, width: int | None = None, glyphs: Glyphs = UNICODE) -> Line:
    """Return the verdict in one sentence: numbers first, then what is wrong, worst first.

    A width (characters) shortens the list of faults, and never the numbers; without one, it has few faults.
    """
    link, faults = _faults(standing)
    if standing.lead:
        return _after_lead(standing, width, glyphs)
    if width is None:
        head, shown = _head(standing), _listed(faults, None, glyphs)
        return [*head, (link, ""), *shown] if shown else [*head, (".", head[-1][1])]
    heads = _head(standing), _head(standing, brief=True)
    for head in heads:
        room = width - len(plain(head))
        shown = _listed(faults, room - len(link), glyphs)
        if room >= 0 and (shown or not faults):
            return [*head, (link, ""), *shown] if shown else head
    # Numbers come first: the faults are one key away.
    head = next((head for head in heads if len(plain(head)) <= width), heads[-1])
    return [(cut(plain(head), width, glyphs), head[0][1])]


def _after_lead(standing: Standing, width: int | None, glyphs: Glyphs) -> Line:
    lead = [(standing.lead if width is None else cut(standing.lead, width, glyphs), "bold")]
    room = None if width is None else width - len(standing.lead) - 2
    # Busy GPUs are not tested, which is not a statement about the job.
    worth = [one for one in standing.findings if standing.tested or one.severity is Severity.BAD]
    rest = replace(standing, findings=worth, lead="", reason="")
    alone = not (standing.bad or _faults(rest)[1] or (standing.tested and standing.complete))
    if alone or (room is not None and room < _NARROWEST):
        return lead
    if not standing.tested:
        return [*lead, ("; but ", ""), *_listed(_faults(rest)[1], None if room is None else room - 4, glyphs)]
    (first, style), *others = verdict_sentence(rest, room, glyphs)
    lowered = first[0].lower() + first[1:] if first.startswith(("All ", "No ", "The ")) else first
    return [*lead, ("; ", ""), (lowered, style), *others]


def _head(standing: Standing, *, brief: bool = False) -> Line:
    """Return the numbers of a verdict, which are never left out; ``brief``: in as few words as possible."""
    bad, tested, noun = standing.bad, standing.tested, standing.noun
    partly = standing.running or standing.untested or not standing.complete
    rest: Line = []
    if standing.rechecked:
        rest.append((f", {standing.rechecked} being rechecked", MUTED))
    if standing.untested:
        rest.append((f", {standing.untested} not tested", "$warning"))
    rest += [(f", {standing.counts[one]} {one}", MUTED) for one in _NOTABLE if standing.counts.get(one)]
    if bad:
        style = verdict_style(worst([verdict for verdict, number in standing.counts.items() if number]))
        which = f"tested {noun}" if partly else noun
        # Slow pairs that the load of their cores explains do not count.
        word = "bad" if standing.failing or standing.running or bad > standing.counts.get(Verdict.SLOW, 0) else "slow"
        text = f"{bad} of {count(tested, which)} {'is' if bad == 1 else 'are'} {word}"
        if brief or tested == 1:
            text = f"{bad} of {tested} {word}" if brief else f"The only {which} is {word}"
        if standing.judging and not standing.findings:
            rest.append((", looking for causes", MUTED))
        return [(text, style), *rest]
    if standing.judging and not tested and standing.measured:
        return [(f"{count(standing.measured, noun)} tested, being judged", MUTED), *rest]
    if standing.running or standing.judging:
        return _running_head(standing, rest, brief=brief)
    if not tested:
        return [(f"No {noun} was tested", _PARTLY), *rest]
    if standing.counts.get(Verdict.OK) == tested:
        which = f"tested {noun}" if partly else noun
        text = f"The only {which} is ok" if tested == 1 else f"All {count(tested, which)} are ok"
        if standing.beside:
            rest.insert(0, (f" alone; {standing.beside} slow alongside other traffic", "$warning"))
        if brief:
            text = f"{tested} of {tested} ok"
        return [(text, verdict_style(Verdict.OK) if not partly and not standing.failing else _PARTLY), *rest]
    return [(f"0 of {tested} bad" if brief else f"No bad pair among {count(tested, noun)}", _PARTLY), *rest]


def _running_head(standing: Standing, rest: Line, *, brief: bool) -> Line:
    tested = max(standing.tested, standing.measured)
    if not tested and not standing.rechecked:
        return [(f"No {standing.noun} tested yet", MUTED), *rest]
    of = f"{tested} of {count(standing.total, standing.noun)}" if standing.total else count(tested, standing.noun)
    return [(f"0 of {tested} bad" if brief else f"No problem so far; {of} tested", "bold"), *rest]


def _faults(standing: Standing) -> tuple[str, list[Part]]:
    """Return what is wrong, worst first, and the text between it and the numbers."""
    parts = {
        severity: [
            (without_domain(standing.domain, fault_text(one)) + (_KNOWN if one.known else ""), _STYLES[severity])
            for one in standing.findings
            if one.severity is severity
        ]
        for severity in (Severity.BAD, Severity.WARN)
    }
    bad, likely = parts[Severity.BAD], parts[Severity.WARN]
    if standing.healed and not standing.bad and not bad:
        # One steady sentence, until what was bad has been good for long.
        return "; ", [(standing.healed, MUTED)]
    if standing.bad:
        # What is over explains no pair that is bad now.
        warnings = [one for one in standing.findings if one.severity is Severity.WARN]
        order = sorted(range(len(likely)), key=lambda at: "past" in warnings[at].facts)
        return ": ", bad or [likely[at] for at in order]
    if bad or (standing.failing and likely):
        return (", but " if standing.tested else ": "), bad or likely
    if standing.failing and standing.others:
        return (", but " if standing.tested else ": "), [(standing.others, "")]
    if standing.reason:
        named = not standing.tested or standing.untested
        return (": " if named else "; not tested: "), [(standing.reason, "$warning")]
    return f"; {'warning' if len(likely) == 1 else 'warnings'}: ", likely


def fault_text(finding: Finding) -> str:
    """Return what is wrong in few words: ``n000:1 > n001:2 timed out (path)``, or the title of the finding."""
    route, slow, verdict = (finding.facts.get(name) for name in ("pair", "of_usual", "verdict"))
    if finding.rule.name == "node-lost" and finding.facts.get("state") in _GONE:
        return one_line(_GONE[finding.facts["state"]].format_map(finding.facts), _LONGEST)
    if not isinstance(route, Route) or verdict not in set(Verdict):
        return one_line(placed_title(finding), _LONGEST)
    words = f"{percent_text(slow.value / slow.median)} of usual" if slow is not None else verdict_words(verdict)
    words += f", {finding.facts['wrong']}" if finding.facts.get("wrong") else ""
    ends = f"{route.source} {'-' if route.both else '>'} {route.destination}"
    place = f" ({finding.facts['at_fault']})" if finding.facts.get("at_fault") else ""
    return one_line(f"{ends} {words}{place}", _LONGEST)


def _listed(faults: Sequence[Part], room: int | None, glyphs: Glyphs) -> Line:
    """Return as many faults as fit, and the number of the others; only the first one is ever cut."""
    most = _FEW_FAULTS if room is None else _MOST_FAULTS
    gap = "; " if any(mark in text for text, _ in faults[:most] for mark in (", ", ": ", "; ")) else ", "
    for number in range(min(most, len(faults)), 0, -1):
        left = len(faults) - number
        more = f"{gap}and {left} more" if left else ""
        if room is None or len(gap.join(text for text, _ in faults[:number])) + len(more) <= room:
            shown = [part for fault in faults[:number] for part in ((gap, MUTED), fault)][1:]
            return [*shown, (more, MUTED)] if more else shown
    if not faults or room is None:
        return []
    text, style = faults[0]
    short = _shortened(text, room, glyphs)
    return [(short, style)] if short else []


def _shortened(text: str, room: int, glyphs: Glyphs) -> str:
    """Return a fault in a room: its last set of nodes shortened first, then without details; "" if that is too small.

    Whether the user knows about it is never cut.
    """
    if text.endswith(_KNOWN) and len(text) > room >= _NARROWEST + len(_KNOWN):
        return _shortened(text.removesuffix(_KNOWN), room - len(_KNOWN), glyphs) + _KNOWN
    for found in [*_LATER.finditer(text)][::-1]:
        if len(text) <= room:
            break
        text = text[: found.start()] + glyphs.ellipsis + text[found.end() :]
    if len(text) > room and (brief := _BRIEF.match(text)):
        text = brief.group()
    if len(text) <= room or room < _NARROWEST:
        return text if len(text) <= room else ""
    # After a word, if that leaves half of the room.
    end = text.rfind(" ", room // 2, room - 1)
    return f"{text[:end].rstrip(':;,')} {glyphs.ellipsis}" if end > 0 else cut(text, room, glyphs)
