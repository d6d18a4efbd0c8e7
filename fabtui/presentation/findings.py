"""Text of findings and of their recurrence: titles, evidence and JSON, rendered from rules and facts."""

from __future__ import annotations

import re
import shlex
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.diagnosis.finding import Direction, Domain, Finding, NextStep, Route
from fabtui.diagnosis.knowledge.step_command import needs_shell
from fabtui.diagnosis.mesh.affected_components import ComponentKind
from fabtui.history.components import PartKind, date_of
from fabtui.model.events import PATH_BLAMED
from fabtui.model.measurement import Verdict
from fabtui.model.records import Recurrence
from fabtui.nodeset import count, fold
from fabtui.presentation.numbers import percent_text, reduced_text, share_text, size_text, spoken_texts, value_text
from fabtui.presentation.wording import time_text, verdict_words
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.diagnosis.experiment import ConfirmationFact
    from fabtui.diagnosis.knowledge.error_catalogue import ErrorFact
    from fabtui.diagnosis.mesh.mesh import ScopeFact
    from fabtui.diagnosis.pairs.pair_context import InWorldFact, SlowestFact
    from fabtui.diagnosis.price import Gain, PriceFact

_LONGEST = 300
#: Maximum numbers of pairs that are named in a finding that only counts them, and of its next commands.
_MOST_NAMED, _MOST_COMMANDS = 6, 2
#: Rules whose titles count pairs instead of naming them.
_COUNTED = frozenset({"pairs-same-error", "pairs-slow"})
#: What all commands of a session have in common.
_EVERYWHERE = re.compile(r"(?<!\S)(-F|--ssh-config|--lab-fault) (?:'[^']*'|\S+)(?: --lab-fault (?:'[^']*'|\S+))*")
#: Stage of a test, or code of an error, before what was seen; and note of a lab behind it.
_STAGE = re.compile(r"^(?:connect|transfer|verify|E\d+)[:,] ")
_PLANTED = re.compile(r" \(made by the lab: \w+\)$")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
#: What a shell takes for itself, in a command or in its words.
_SHELL = re.compile(r"[();<>|&]+|.*[$`*?~\n].*", re.DOTALL)
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
#: How parts are called in a sentence, by their kind.
_PARTS = {str(kind): kind.words for kind in PartKind}
#: Longest identity and place in a sentence.
_WIDEST = 60


def title(finding: Finding) -> str:
    """Return the title of a finding on one line, without its nodes where these are listed beside it."""
    return one_line(rendered(finding.rule.message, finding.facts) or finding.rule.title, _LONGEST)


def placed_title(finding: Finding) -> str:
    """Return the title of a finding with the nodes that it is about, which only rules about pairs name in it."""
    text = title(finding)
    if finding.rule.domain is not Domain.NODES or not finding.nodes or text.startswith(finding.nodes[0]):
        return text
    return one_line(f"{fold(finding.nodes)}: {text}", _LONGEST)


def headline(finding: Finding) -> str:
    """Return the title of a finding with its nodes; if it is about one slow pair, with its share of the usual value."""
    slow = finding.facts.get("of_usual")
    return placed_title(finding) + (f" ({percent_text(slow.value / slow.median)} of usual)" if slow is not None else "")


def evidence(finding: Finding) -> tuple[str, ...]:
    """Return the evidence of a finding, one line each: that of its rule, then what rules have in common."""
    lines = _confirmation(finding) + _COMMON["known"](finding.facts.get("known", ()))
    for template in finding.rule.evidence:
        lines += (rendered(template, finding.facts) or "").split("\n")
    for name, render in _COMMON.items():
        # Facts that were found to explain the finding come first, and once.
        if name == "known" or (name == "ports" and "known" in finding.facts):
            continue
        if (value := finding.facts.get(name)) is not None:
            lines += render(value)
    if finding.rivals:
        sure = f"{percent_text(finding.confidence or 0.0)} confidence; " if finding.confidence is not None else ""
        rivals = [" ".join((str(rival.kind).replace("-", " "), rival.name)) for rival in finding.rivals]
        lines.append(f"{sure}the same results fit {', '.join(rivals)}")
    if finding.recurrence is not None:
        lines.append(recurrence_text(finding.recurrence))
    return tuple(line for one in lines if (line := one_line(one, _LONGEST)))


def _confirmation(finding: Finding) -> list[str]:
    fact: ConfirmationFact | None = finding.facts.get("confirmation")
    if fact is None:
        return []
    if fact.after is None or finding.rivals:
        return list(fact.lines)
    before = "" if fact.before is None else f" ({percent_text(fact.before)} before)"
    tried = count(fact.tried, "experiment")
    return [*fact.lines, f"{percent_text(fact.after)} confidence after {tried}{before}"]


def known_text(finding: Finding) -> str:
    if (known := finding.acknowledged) is None:
        return ""
    return f"known since {time.strftime('%Y-%m-%d', time.gmtime(known.since))}: {one_line(known.note, _LONGEST)}"


def pairs_text(finding: Finding) -> str:
    return count(len(finding.cells), "pair") if finding.cells else ""


def step_parts(step: str, most: int = 4000) -> tuple[str, str]:
    """Return a next step as it is shown on one line, and a remark behind it that is not part of the command."""
    if not isinstance(step, NextStep):
        return one_line(step, most), ""
    notes = (f"{step.here}: runs here" if step.here else "", "needs a shell" if needs_shell(step) else "")
    note = ", ".join(filter(None, notes))
    return one_line(step, most), f"({note})" if note else ""


def step_text(step: str, most: int = 500) -> str:
    return " ".join(filter(None, step_parts(step, most)))


def short_step(step: str) -> str:
    """Return a next step to be read, without the files and planted faults that all commands of a session have."""
    return _EVERYWHERE.sub(lambda match: f"{match[1]} ...", one_line(step, 4000))


def brief_title(finding: Finding) -> tuple[str, str]:
    """Return the ends of a pair, or "", and what is wrong with them in few words."""
    route, verdict = finding.facts.get("pair"), finding.facts.get("verdict")
    if not isinstance(route, Route) or verdict not in set(Verdict):
        return "", placed_title(finding)
    slow = finding.facts.get("of_usual")
    words = verdict_words(verdict) if slow is None else f"{percent_text(slow.value / slow.median)} of usual"
    return f"{route.source} {'-' if route.both else '>'} {route.destination}", words


def brief_sentences(finding: Finding, noun: str = "end") -> list[str]:
    """Return cause and evidence in short sentences, the most important first; ``noun``: what ends are called."""
    facts, ends = finding.facts, brief_title(finding)[0].split(" ")
    texts = [
        _brief_conclusion(facts.get("retest") or "", ends, noun),
        facts.get("wrong") or "",
        facts.get("meaning") or "",
    ]
    conclusions = [one_line(line, _LONGEST) for line in _retest(facts.get("retest") or "")]
    texts += [line for line in evidence(finding) if line not in conclusions and not line.startswith("means: ")]
    return list(dict.fromkeys(map(_sentence, filter(None, texts))))


def _brief_conclusion(text: str, ends: Sequence[str], noun: str) -> str:
    if PATH_BLAMED in text:
        return f"Only this path: both {noun}s work with others."
    if text.startswith("no other ") and len(ends) == 3:
        first, second = sorted(f"{noun} {end.rpartition(':')[2]}" for end in (ends[0], ends[2]))
        return f"{first}, {second} or the link between them."
    return _retest(text)[0] if text else ""


def _sentence(text: str) -> str:
    """Return a line of evidence as a sentence, without the stage of a test and codes."""
    text = _STAGE.sub("", _PLANTED.sub("", text))
    begin = text.split(" ")[0]
    text = text[:1].upper() + text[1:] if begin.isalpha() else text
    return text if text.endswith((".", "?")) else f"{text}."


def copied_step(step: str) -> str:
    """Return what to paste in order to run a next step: nodes that are this machine need no login."""
    return one_line(step.there if isinstance(step, NextStep) and step.here else step, 4000)


def step_json(step: str) -> dict[str, Any]:
    """Return the node and the words of a next step; a command that needs a shell has one as its first word."""
    node, command = (step.node, step.there) if isinstance(step, NextStep) else (None, str(step))
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        words = ["|"]
    return {"node": node, "argv": ["sh", "-c", command] if any(map(_SHELL.fullmatch, words)) else words}


class FindingText(NamedTuple):
    """Text of a finding: its title with its number of pairs, its evidence, and its next commands."""

    title: str
    evidence: list[str]
    next: list[str]


def finding_text(finding: Finding) -> FindingText:
    pairs = f" ({pairs_text(finding)})" if finding.cells and finding.rule.domain is Domain.PAIRS else ""
    lines = [line for line in (known_text(finding), *evidence(finding)) if line]
    # Without a subject, the title only counts the pairs.
    if finding.rule.name in _COUNTED and finding.cells:
        names = [f"{src} > {dst}" for src, dst in sorted(finding.cells)]
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines.append(one_line(", ".join(names[:_MOST_NAMED]) + more, _LONGEST))
    commands = [step_text(command) for command in finding.next[:_MOST_COMMANDS]]
    return FindingText(f"{placed_title(finding)}{pairs}", lines, commands)


def as_json(finding: Finding) -> dict[str, Any]:
    known = finding.acknowledged
    since = "" if known is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(known.since))
    return {
        "id": finding.rule.id,
        "rule": finding.rule.name,
        "severity": str(finding.severity),
        "topic": finding.topic,
        "subject": finding.subject._asdict(),
        "title": title(finding),
        "nodes": list(finding.nodes),
        "pairs": sorted(map(list, finding.cells)),
        "share": finding.share,
        "confidence": None if finding.confidence is None else round(finding.confidence, 3),
        "rivals": [one._asdict() for one in finding.rivals],
        "measurements": len(finding.measurements),
        "facts": {name: _plain(value) for name, value in finding.facts.items() if value is not None},
        "evidence": list(evidence(finding)),
        "next": list(map(str, finding.next)),
        "steps": list(map(step_json, finding.next)),
        "acknowledged": None if known is None else {"note": known.note, "since": since},
        **({} if finding.recurrence is None else {"recurrence": recurrence_json(finding.recurrence)}),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Finding):
        return {"id": value.rule.id, "nodes": list(value.nodes), "title": title(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (int, float, bool)) or value is None else str(value)


class _MissingFactError(LookupError):
    """A template needs a fact that a finding does not have."""


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = kwargs.get(str(key))
        if value is None:
            raise _MissingFactError(key)
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        name, _, argument = format_spec.partition("_")
        if format_spec in _SPECS:
            return _SPECS[format_spec](value)
        if name == "count":
            return count(value, argument)
        if isinstance(value, Route):
            return _between(str(value.source), str(value.destination), value.both)
        if isinstance(value, Verdict):
            return verdict_words(value)
        if isinstance(value, tuple) and not format_spec:
            return ", ".join(map(str, value))
        return str(super().format_field(value, format_spec))


def rendered(template: str, facts: Mapping[str, Any]) -> str | None:
    """Return a template filled in, or None if a fact is missing outside of its optional sections."""
    parts: list[str] = []
    # Sections are rendered one by one: text from nodes must not be taken for a template.
    for at, section in enumerate(_OPTIONAL.split(template)):
        try:
            parts.append(_Formatter().vformat(section, (), facts))
        except _MissingFactError:
            if not at % 2:
                return None
    return "".join(parts)


def _flag(value: object) -> str:
    if not value:
        raise _MissingFactError
    return ""


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _between(source: str, destination: str, both: bool) -> str:
    return f"between {source} and {destination}" if both else f"from {source} to {destination}"


def _rails_between(route: Route) -> str:
    if route.both:
        return f"between rails {route.source} and {route.destination}"
    return f"from rail {route.source} to rail {route.destination}"


def _percent_range(ends: tuple[float, float]) -> str:
    few, many = ends
    return f"{few:.0f} to {many:.0f} %" if many - few >= 1 else f"{many:.0f} %"


def _error(error: ErrorFact) -> list[str]:
    if error.pairs is None:
        return [error.text]
    return [f"{error.text} ({count(error.pairs, 'pair')}; {count(error.others, 'other error')})"]


def _in_world(found: InWorldFact) -> list[str]:
    run = ": collective jobs can run" if found.collectives_run else ""
    return [f"{found.passed} of {count(found.pairs, 'pair')} pass in the world communicator{run}"]


def _related(related: Iterable[Finding]) -> list[str]:
    titles = dict.fromkeys((one.nodes, title(one)) for one in related)
    own = [not nodes or (len(nodes) == 1 and text.startswith(nodes[0])) for nodes, text in titles]
    named = (text if named else f"{fold(nodes)}: {text}" for named, (nodes, text) in zip(own, titles, strict=True))
    return list(dict.fromkeys(named))


def _retest(text: str) -> list[str]:
    what, _, with_whom = text.partition(" (")
    return [what, f"passed: {with_whom[:-1]}"] if with_whom.endswith(")") else [text]


def _price_lines(fact: PriceFact) -> list[str]:
    what = f"{fact.collective} of {size_text(fact.bytes)} over these {count(fact.nodes, 'node')}"
    others = count(fact.compared, "other measured collective")
    off = percent_text(fact.error)
    if not fact.fits:
        known = others if fact.compared else "the measured collective"
        return [f"price unknown: for {what}, the cost model is {off} off in {known}"]
    changes = []
    if fact.without is not None and fact.node is not None:
        changes.append(f"without {one_line(fact.node, 80)}: {_change(fact.busbw, fact.without)}")
    if fact.fixed is not None:
        changes.append(f"with its slow links as usual: {_change(fact.busbw, fact.fixed)}")
    if not changes:
        return [f"price unknown: a bandwidth on the path of {what} is unknown"]
    lines = [f"{what}: {'; '.join(changes)}"]
    if fact.share is not None:
        lines.append(f"one such {fact.collective} takes {percent_text(fact.share)} of an iteration of the job")
    alone = f"{off} off what was measured, without another collective to compare with"
    return [*lines, f"by the cost model: {f'error {off} in {others}' if fact.compared else alone}"]


def _change(before: float, gain: Gain) -> str:
    percent = 100 * (gain.ratio - 1)
    first, second = spoken_texts([before, gain.busbw], "GB/s")
    # A smaller change does not count.
    return f"{first} -> {second} ({'no change' if abs(percent) < 0.5 else f'{percent:+.0f} %'})"


def _slowest(one: SlowestFact) -> str:
    return share_text(one.value, one.median, one.unit) + (f" ({reduced_text(one.reduced)})" if one.reduced else "")


_COMMON: dict[str, Callable[[Any], list[str]]] = {
    "known": _related,
    "bad_of_tested": lambda counts: (
        [f"{counts[0]} of its {count(counts[1], 'pair')} bad"] if counts[0] < counts[1] else []
    ),
    # The conclusion first: where room is short, it is the only line.
    "retest": _retest,
    "error": _error,
    "slowest": lambda one: [f"{one.source} > {one.destination}: {_slowest(one)}"],
    "of_usual": lambda one: [_slowest(one)],
    "in_world": _in_world,
    "price": _price_lines,
    "meaning": lambda text: [f"means: {text}"],
    "ports": list,
    "counted": list,
    "by_node": lambda rows: [f"{fold(nodes)}: {text}" for nodes, text in rows],
    "related": _related,
    "grown": _related,
    "differs": list,
}


def _where(scope: ScopeFact) -> str:
    """Return the name of a scope; for two nodes the rails alone, with a space before them."""
    if scope.kind is ComponentKind.NODE:
        return scope.nodes[0]
    if scope.kind is ComponentKind.ADDRESS:
        rail = f" rail {scope.rails[0]}" if scope.rails else ""
        return f"{scope.nodes[0]}{rail} ({scope.interface})"
    if scope.kind is ComponentKind.RAIL:
        return f"rail {scope.rails[0]}"
    if scope.kind is ComponentKind.SPLIT:
        *first, last = scope.groups
        rails = f" on {'rails' if len(scope.rails) > 1 else 'rail'} {', '.join(map(str, scope.rails))}"
        where = " on every rail" if scope.every_rail else rails
        return _between(", ".join(first), last, scope.direction == "both") + where
    if scope.kind is ComponentKind.ACROSS:
        return _across(scope)
    if scope.kind is ComponentKind.MANY:
        return f"{scope.node_pairs} pairs of nodes that have nothing in common"
    return _on_rails(scope) if scope.kind is ComponentKind.PAIR else "all nodes"


def _across(scope: ScopeFact) -> str:
    if len(scope.rails) == 1:
        (rail,) = scope.rails
        forms = {"both": f"between rail {rail} and the others", "out": f"from rail {rail} to the others"}
        return forms.get(scope.direction, f"from the other rails to rail {rail}")
    if len(scope.rails) == 2:
        return _rails_between(Route(*scope.rails, scope.direction == "both"))
    return "between rails"


def _on_rails(scope: ScopeFact) -> str:
    if scope.every_rail:
        return " on every rail"
    ends = [(link.source_rail, link.destination_rail) for link in scope.links]
    same = [source for source, destination in ends if source is not None and source == destination]
    if len(scope.links) == 1:
        (link,) = scope.links
        addresses = f"({link.source} > {link.destination})"
        if link.source_rail is None or link.destination_rail is None:
            return f" {addresses}"
        rails = f"rail {link.source_rail}" if same else f"rail {link.source_rail} > rail {link.destination_rail}"
        return f" on {rails} {addresses}"
    if len(same) == len(scope.links):
        return " on rails " + ", ".join(map(str, sorted(set(same))))
    return f" ({_some([f'{link.source} > {link.destination}' for link in scope.links])})"


def _subject(scope: ScopeFact) -> str:
    if scope.kind in (ComponentKind.NODE, ComponentKind.ADDRESS):
        return _where(scope) + {"both": "", "out": ", outgoing", "in": ", incoming"}[scope.direction]
    if scope.kind is ComponentKind.PAIR:
        a, b = scope.nodes
        return f"{a} and {b}{_where(scope)}" if scope.direction == "both" else f"{a} > {b}{_where(scope)}"
    return f"between {_where(scope)}" if scope.kind is ComponentKind.EVERYTHING else _where(scope)


def _location(scope: ScopeFact) -> str:
    """Return a scope as a location: ``between n0 and n1 on rail 2``."""
    if scope.kind in (ComponentKind.NODE, ComponentKind.ADDRESS):
        forms = {"both": "at", "out": "for traffic from", "in": "for traffic to"}
        return f"{forms[scope.direction]} {_where(scope)}"
    if scope.kind is ComponentKind.RAIL:
        return f"on {_where(scope)}"
    if scope.kind is ComponentKind.PAIR:
        return _between(scope.nodes[0], scope.nodes[1], scope.direction == "both") + _where(scope)
    return _where(scope) if scope.kind in (ComponentKind.ACROSS, ComponentKind.SPLIT) else f"between {_where(scope)}"


def _senders(scope: ScopeFact) -> str:
    if scope.kind is ComponentKind.ADDRESS:
        return f"any node to {scope.interface}"
    return "any node" if scope.kind is ComponentKind.NODE else f"{scope.nodes[0]}{_where(scope)}"


def _unreachable(scope: ScopeFact) -> str:
    where, direction = _where(scope), scope.direction
    if scope.kind in (ComponentKind.NODE, ComponentKind.ADDRESS):
        on, on_any = (" on every rail", " on any rail") if scope.kind is ComponentKind.NODE else ("", "")
        does, other = ("sends", "receives") if direction == "out" else ("receives", "sends")
        but = f", but {other}" if scope.reverse_passes else f"; whether it {other} was not measured"
        return f"{where} is cut off{on}" if direction == "both" else f"{where} {does} nothing{on_any}{but}"
    if scope.kind is ComponentKind.RAIL:
        return f"{where} is cut off on all {len(scope.nodes)} nodes"
    if scope.kind is ComponentKind.PAIR:
        a, b = scope.nodes
        if direction == "both":
            known = ", in either direction" if scope.one_way_known else ""
            return f"no traffic between {a} and {b}{where}{known}"
        return f"one-way loss: {a} > {b}{where}; reverse " + ("passes" if scope.reverse_passes else "not measured")
    wide = {ComponentKind.EVERYTHING: "between any two nodes", ComponentKind.MANY: f"between addresses of {where}"}
    return f"no traffic {wide.get(scope.kind, where)}"


def _usual_cause(scope: ScopeFact) -> str:
    if scope.kind is ComponentKind.MANY:
        return "usual cause: a full neighbour table (net.ipv4.neigh.default.gc_thresh3; see the kernel log)"
    if scope.kind is ComponentKind.ACROSS:
        return "usual cause: no router, or hosts that drop replies on another interface (rp_filter)"
    raise _MissingFactError


_ONE_WAY = {"": "", Direction.SENDS: " as sender (receiving works)", Direction.RECEIVES: " as receiver (sending works)"}
_SPECS: dict[str, Callable[[Any], str]] = {
    "flag": _flag,
    "one_way": lambda direction: _ONE_WAY[direction],
    "percent": percent_text,
    "value": value_text,
    "reduced": reduced_text,
    "devices": _some,
    "rails": _rails_between,
    "arrow": lambda route: f"{route.source} {'-' if route.both else '>'} {route.destination}",
    "percent_range": _percent_range,
    "clock": time_text,
    "us": lambda seconds: f"{value_text(seconds * 1e6)} us",
    "lines": "\n".join,
    "subject": _subject,
    "between": _location,
    "where": _where,
    "senders": _senders,
    "unreachable": _unreachable,
    "usual_cause": _usual_cause,
}


def recurrence_text(past: Recurrence) -> str:
    """Return when, how often (from the third time on) and with what part a finding was seen before."""
    parts = [f"first seen {count(past.sessions_ago, 'session')} ago ({date_of(past.first)})"]
    if past.times > 2:
        parts.append(f"{ordinal(past.times)} time in {span_text(past.days)}")
    if past.moved_from:
        part = _PARTS.get(past.moved, past.moved) or "component"
        parts.append(f"moved with the {one_line(part, 20)} from {one_line(past.moved_from, _WIDEST)}")
    return ", ".join(parts)


def recurrence_json(past: Recurrence) -> dict[str, Any]:
    times = {"first": _stamp(past.first), "last": _stamp(past.last), "days": round(past.days, 3)}
    return {**asdict(past), **times, "text": recurrence_text(past)}


def ordinal(number: int) -> str:
    """Return an ordinal number: ``third``, ``12th``."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def span_text(days: float) -> str:
    """Return a time in whole days, of less than a day in hours: ``14 days``, ``5 hours``."""
    if days >= 1:
        return count(round(days), "day")
    return count(max(1, round(24 * days)), "hour")


def _stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
