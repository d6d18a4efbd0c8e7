"""The verdict sentence: how many pairs are bad, and what is wrong, worst first.

    n001 is lost: 10 of 12 GPU pairs could not be tested, 2 are ok
    2 of 56 GPU pairs are bad: n000:1 > n001:2 timed out (path), n000:3 > n001:0 1.0 % of usual (path)
    4 suspects, 12 of 12 GPU pairs tested: n001:0 > n000:0 failed, and 3 more
    All 56 GPU pairs are ok.

Nodes that are gone come first, then wrong data, what is confirmed, suspects, and at last what is ok. The screen, texts,
reports and exports state the verdict on a session with it, and in no other words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fabtui.diagnosis.finding import Domain, Finding, Pair, Severity
from fabtui.exit_status import BAD
from fabtui.model.events import NodeState
from fabtui.model.layers import Layer, pair_layers
from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import UNICODE, Glyphs
from fabtui.presentation.findings import brief_title
from fabtui.presentation.preflight_lines import cut, head_line
from fabtui.presentation.wording import (
    CELL,
    MUTED,
    TONE,
    Part,
    plain,
    verdict_style,
    verdict_tone,
    verdict_words,
    without_domain,
)
from fabtui.presentation.wrapping import Line
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.diagnosis.diagnosis import Diagnosis
    from fabtui.diagnosis.pairs.tally import LayerCounts, Tally
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
    suspect: tuple[Pair, Verdict] | None = None  #: The worst of them.
    worst: tuple[Pair, Verdict] | None = None  #: The worst of the bad pairs.
    measured: int = 0  #: Number of pairs with a result, judged or not, suspects included.
    gone: str = ""  #: Nodes that are gone, in words.
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
        """Number of pairs with a result, which never falls within a sweep."""
        return max(sum(self.counts.values()), self.measured)


def pair_noun(model: Model) -> str:
    """Return what the pairs of a session are called: ``GPU pair``, or ``pair`` for CPU ranks."""
    return "GPU pair" if {end.kind for end in model.endpoints} - {"none"} == {"gpu"} else "pair"


def planned(model: Model) -> int:
    """Return the number of pairs that the running layer tests; 0 if no layer of pairs is running."""
    sizes = len(model.asked("sizes")) if model.phase.name == Layer.P2P else 1
    total = model.phase.total // max(1, sizes) if model.phase.name in pair_layers() else 0
    return max(total, model.results.tested) if total else 0


def tested_text(model: Model) -> str:
    """Return how many pairs have a result: ``14 of 56 GPU pairs tested``."""
    return f"{_of(model.results.tested, planned(model), pair_noun(model))} tested"


def _of(tested: int, total: int, noun: str) -> str:
    return f"{tested} of {count(total, noun)}" if total else count(tested, noun)


def standing(model: Model, tally: Tally, findings: Sequence[Finding], **more: Any) -> Standing:
    """Return what a verdict sentence is made of; ``more``: the values that depend on who asks."""
    states: dict[NodeState, list[str]] = {}
    known = {one.topic for one in findings if one.known and one.rule.name == "node-lost"}
    for record in model.nodes.values():
        if record.state.gone and record.name not in known:
            states.setdefault(record.state, []).append(one_line(record.name, 80))
    words = [
        f"{fold(names)} {'failed' if state is NodeState.FAILED else 'is lost' if len(names) == 1 else 'are lost'}"
        for state, names in sorted(states.items(), reverse=True)
    ]
    own = {
        "counts": tally.counts,
        "noun": pair_noun(model),
        "total": planned(model),
        "untested": max(len(model.untested), tally.unreached),
        "rechecked": tally.rechecked,
        "suspect": tally.suspect,
        "worst": tally.worst,
        "measured": model.results.tested,
        "gone": ", ".join(words),
        "beside": slow_beside(tally),
    }
    return Standing(findings=findings, **{**own, **more})


def standing_of(one: Diagnosis) -> Standing:
    model, reasons = one.model, one.not_examined
    more: dict[str, Any] = {}
    if not one.tally.counts and not model.results.tested and (counts := address_counts(model)):
        more = {"counts": counts, "noun": "address pair"}
    alone = not any(verdict.bad for verdict in more.get("counts", one.tally.counts))
    others = f", and {count(len(reasons) - 1, 'more reason')}" if len(reasons) > 1 else ""
    return standing(
        model,
        one.tally,
        # The sentence about a job states what the findings about it do.
        [found for found in one.findings if one.job is None or found.rule.domain is not Domain.RUNNING],
        complete=not reasons and not any(map(model.gone, model.nodes)),
        failing=one.code == BAD,
        reason=one_line(reasons[0], _LONGEST_REASON) + others if reasons else "",
        others=other_measurements(one.bad_layers) if alone else "",
        lead="" if one.job is None else one_line(one.job.sentence, _LONGEST_LEAD),
        total=0,
        **more,
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


def other_measurements(layers: LayerCounts) -> str:
    """Return the numbers of bad results of other things than pairs, by layer: ``ping: 12 timed out, 1 slow``."""
    return "; ".join(
        f"{layer}: " + ", ".join(f"{counts[one]} {verdict_words(one)}" for one in reversed(SEVERITY) if counts.get(one))
        for layer, counts in layers.items()
    )


def sentence_of(one: Diagnosis) -> str:
    if one.model.options.get("looks_only") and one.job is None:
        return plain(head_line(one.preflight))
    return sentence_text(standing_of(one))


def sentence_text(standing: Standing, width: int | None = None, glyphs: Glyphs = UNICODE) -> str:
    return plain(verdict_sentence(standing, width, glyphs))


def verdict_sentence(standing: Standing, width: int | None = None, glyphs: Glyphs = UNICODE) -> Line:
    """Return the verdict in one sentence, worst first; a width shortens the list of faults, never the numbers."""
    if standing.lead:
        return _after_lead(standing, width, glyphs)
    link, faults = _faults(standing)
    first = _first(standing, faults)
    heads = [[*first, *_lowered(head)] if first else head for head in (_head(standing), _head(standing, brief=True))]
    faults = faults[1:] if first and not standing.gone else faults
    if width is None:
        shown = _listed(faults, None, glyphs)
        return [*heads[0], (link, ""), *shown] if shown else [*heads[0], (".", heads[0][-1][1])]
    lines: list[Line] = []
    bare: list[Line] = []
    for head in heads:
        room = width - len(plain(head))
        shown = _listed(faults, room - len(link), glyphs)
        if room >= 0 and (shown or not faults or first):
            (lines if shown else bare).append([*head, (link, ""), *shown] if shown else head)
    if lines or bare:
        # A fault in full goes before all words about the numbers.
        whole = [line for line in lines if not plain(line).endswith(glyphs.ellipsis)]
        return [*whole, *lines[::-1], *bare][0]
    # Numbers come first: the faults are one key away.
    if first:
        numbers = _lowered(_head(standing, brief=True))
        name = _shortened(first[0][0], width - len(plain(numbers)) - len(first[1][0]), glyphs)
        if name:
            return [(name, first[0][1]), first[1], *numbers]
    head = first or next((head for head in heads if len(plain(head)) <= width), heads[-1])
    return [(cut(plain(head).rstrip(":; "), width, glyphs), head[0][1])]


def _first(standing: Standing, faults: Sequence[Part]) -> Line:
    """Return what comes before the numbers: what leaves pairs untested, or is bad where no pair is."""
    if standing.gone:
        return [(without_domain(standing.domain, standing.gone), verdict_style(Verdict.FAILED)), (": ", "")]
    bad = next((one for one in standing.findings if one.severity is Severity.BAD), None)
    cuts = bad is not None and bad.rule.domain is Domain.MESH and (standing.running or standing.untested)
    if not faults or (standing.bad and not cuts) or not (bad or standing.failing):
        return []
    return [(faults[0][0], verdict_style(Verdict.FAILED) if bad else _PARTLY), ("; ", "")]


def _lowered(line: Line) -> Line:
    """Return a sentence as it follows another part, without a fill."""
    (text, style), *others = line
    lowered = text[0].lower() + text[1:] if text.startswith(("All ", "No ", "The ")) else text
    return [(lowered, style.replace(CELL, TONE)), *others]


def _after_lead(standing: Standing, width: int | None, glyphs: Glyphs) -> Line:
    lead = [(standing.lead if width is None else cut(standing.lead, width, glyphs), "bold")]
    room = None if width is None else width - len(standing.lead) - 2
    # Busy GPUs are not tested, which is not a statement about the job.
    worth = [one for one in standing.findings if standing.tested or one.severity is Severity.BAD]
    rest = replace(standing, findings=worth, lead="", reason="")
    faults = ([(standing.gone, "")] if standing.gone else []) + _faults(rest)[1]
    alone = not (standing.bad or faults or (standing.tested and standing.complete))
    if alone or (room is not None and room < _NARROWEST):
        return lead
    if not standing.tested:
        return [*lead, ("; but ", ""), *_listed(faults, None if room is None else room - 4, glyphs)]
    return [*lead, ("; ", ""), *_lowered(verdict_sentence(rest, room, glyphs))]


def _head(standing: Standing, *, brief: bool = False) -> Line:
    """Return the numbers of a verdict, which are never left out; ``brief``: in as few words as possible."""
    bad, tested, noun = standing.bad, standing.tested, standing.noun
    partly = standing.running or standing.untested or not standing.complete
    suspects = count(standing.rechecked, "suspect")
    rest: Line = [(f", {suspects}", "")] if standing.rechecked and bad else []
    if standing.untested and (bad or not standing.gone):
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
    of = _of(tested, standing.total, noun)
    if standing.rechecked:
        number = f", {tested} of {standing.total}" if brief and standing.total else f", {of} tested"
        tone = verdict_tone(standing.suspect[1] if standing.suspect else Verdict.SLOW)
        return [(suspects, tone), (number, ""), *rest]
    if standing.running or standing.judging:
        if not tested:
            return [(f"No {noun} tested yet", MUTED), *rest]
        if not standing.counts:
            return [(f"{of} measured, being judged", MUTED), *rest]
        calm = all(one.severity is Severity.NOTE for one in standing.findings)
        calm = calm and not (standing.gone or standing.others)
        text = f"0 of {tested} bad" if brief else f"No problem so far; {of} tested" if calm else f"{of} tested"
        return [(text, "bold"), *rest]
    if not tested:
        return [(f"No {noun} was tested", _PARTLY), *rest]
    if standing.counts.get(Verdict.OK) == tested:
        if standing.gone:
            missing = f"{standing.untested} of {count(standing.untested + tested, noun)}"
            whose = f"{missing} could not be tested" if standing.untested else f"No {noun} with it was tested"
            return [(f"{whose}, {tested} {'is' if tested == 1 else 'are'} ok", _PARTLY), *rest]
        which = f"tested {noun}" if partly else noun
        text = f"The only {which} is ok" if tested == 1 else f"All {count(tested, which)} are ok"
        if standing.beside:
            rest.insert(0, (f" alone; {standing.beside} slow alongside other traffic", "$warning"))
        if brief:
            text = f"{tested} of {tested} ok"
        return [(text, verdict_style(Verdict.OK) if not partly and not standing.failing else _PARTLY), *rest]
    return [(f"0 of {tested} bad" if brief else f"No bad pair among {count(tested, noun)}", _PARTLY), *rest]


def _faults(standing: Standing) -> tuple[str, list[Part]]:
    """Return what is wrong, worst first, and the text between it and the numbers."""
    parts = {
        severity: [
            (without_domain(standing.domain, text) + (_KNOWN if one.known else ""), _STYLES[severity])
            for one in standing.findings
            if one.severity is severity and (text := _rest(standing, one))
        ]
        for severity in (Severity.BAD, Severity.WARN)
    }
    bad, likely = parts[Severity.BAD], parts[Severity.WARN]
    if standing.healed and not standing.bad and not bad:
        # One steady sentence, until what was bad has been good for long.
        return "; ", [(standing.healed, MUTED)]
    again = _unexplained(standing, standing.suspect, standing.rechecked)
    if standing.bad:
        # What is over explains no pair that is bad now.
        warnings = [one for one in standing.findings if one.severity is Severity.WARN]
        order = sorted(range(len(likely)), key=lambda at: "past" in warnings[at].facts)
        first = _unexplained(standing, standing.worst, 1)
        return ": ", [*first, *(bad or [likely[at] for at in order]), *again]
    if standing.rechecked:
        return ": ", bad + again
    if bad or (standing.failing and (likely or standing.others)):
        return "; ", bad or likely or [(standing.others, "")]
    if standing.reason and not standing.gone:
        named = not standing.tested or standing.untested
        return (": " if named else "; not tested: "), [(standing.reason, "$warning")]
    return f"; {'warning' if len(likely) == 1 else 'warnings'}: ", likely


def _rest(standing: Standing, finding: Finding) -> str:
    if (
        not standing.gone
        or finding.known
        or finding.rule.name != "node-lost"
        or finding.facts.get("state") not in _GONE
    ):
        return fault_text(finding)
    # It is no reason for what else is bad.
    alone = finding.facts["state"] == NodeState.FAILED and not (standing.bad or standing.rechecked)
    return one_line(finding.facts["reason"], _LONGEST) if alone else ""


def _unexplained(standing: Standing, pair: tuple[Pair, Verdict] | None, number: int) -> list[Part]:
    """Return the worst of some pairs in words if no finding is about it yet; slow ones of busy cores have none."""
    if pair is None or (pair[1] is Verdict.SLOW and not (standing.judging or standing.rechecked)):
        return []
    if any(pair[0] in one.cells for one in standing.findings):
        return []
    ends = without_domain(standing.domain, " > ".join(pair[0]))
    more = f" and {number - 1} more" if number > 1 else ""
    return [(one_line(f"{ends} {verdict_words(pair[1])}{more}", _LONGEST), "")]


def fault_text(finding: Finding) -> str:
    """Return what is wrong in few words: ``n000:1 > n001:2 timed out (path)``, or the title of the finding."""
    if finding.rule.name == "node-lost" and finding.facts.get("state") in _GONE:
        return one_line(_GONE[finding.facts["state"]].format_map(finding.facts), _LONGEST)
    ends, words = brief_title(finding)
    wrong, place = (finding.facts.get(name) for name in ("wrong", "at_fault"))
    words = f"{ends} {words}{f', {wrong}' if wrong else ''}{f' ({place})' if place else ''}" if ends else words
    return one_line(words, _LONGEST)


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
    more = f"{gap}and {len(faults) - 1} more" if len(faults) > 1 else ""
    short = _shortened(text, room - len(more), glyphs)
    if not short or short.endswith(glyphs.ellipsis):
        short, more = _shortened(text, room, glyphs), ""
    return [(short, style), *([(more, MUTED)] if more else [])] if short else []


def _shortened(text: str, room: int, glyphs: Glyphs) -> str:
    """Return a fault in a room: fewer nodes, then fewer details, never without being known; "" in too small a room."""
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
