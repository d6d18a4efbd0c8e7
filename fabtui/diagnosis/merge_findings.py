"""One list of findings: consequences are folded under their cause, and facts under what they explain."""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
from collections.abc import Iterable, Sequence

from fabtui.diagnosis.finding import Domain, Finding, Kind, Pair, Role, Severity, Steps, Subject
from fabtui.diagnosis.knowledge.next_commands import in_order_of_blame
from fabtui.model.endpoints import node_of
from fabtui.model.session_model import Model

#: Share of the cells of the smaller of two findings from which both are about the same.
_SAME = 0.7
_MOST_COMMANDS = 5
#: Loss (%) that breaks connections.
_MUCH_LOSS = 10.0
#: Rules about devices of a node whose findings are parts of those of a rule that compares nodes.
_PARTS = {"FT123": "FT124"}
#: Errors of calls that follow from the addresses and interfaces of their own node.
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
#: The rule about packets that are sent again: all tests that fail cause them.
_REPEATED = "FT162"
#: The rules about limits of memory, and about processes that were killed for lack of it; the error of such processes.
_MEMORY, _KILLED_FOR_MEMORY = ("FT141", "FT142"), "E51"
#: Subjects from which the pairs of a finding do not follow.
_VAGUE = (Kind.FABRIC, Kind.PAIRS)


def joined(
    model: Model, results: Sequence[Finding], facts: Sequence[Finding]
) -> Steps[tuple[list[Finding], list[Finding]]]:
    """Return findings about results with what explains them, and the facts that explain none of them.

    Results are about pairs and addresses, the components to blame first; facts are about ports, links and nodes.
    """
    findings: list[Finding] = []
    for one in results:
        if (one.rule.role is Role.CONNECTION and one.facts.get("protocols") != "UDP") or one.facts.get("equal_paths"):
            findings = [*_without_consequences(findings, one), one]
            continue
        at = _of_same_cells(findings, one)
        if at is None:
            findings.append(one)
        else:
            findings[at] = _folded(findings[at], one)
        yield
    findings = _without_followers(model, findings)
    left: list[Finding] = []
    # What a node sends damaged is the cause of all that fails with it, and its lack of memory that of ended ranks.
    causes = [fact for fact in facts if fact.facts.get("damages") or fact.rule.id in _MEMORY]
    for fact in sorted(causes, key=lambda fact: fact.rule.id):
        pairs = [(one, _node_pairs(one)) for one in findings if one.severity is Severity.BAD and _may_cause(fact, one)]
        if mine := [one for one, of in pairs if of and all(fact.nodes[0] in pair for pair in of)]:
            findings = [functools.reduce(_with_consequence, mine, fact), *(one for one in findings if one not in mine)]
            findings = _without_followers(model, findings)
            facts = [one for one in facts if one is not fact]
    # What is about several devices first: what is about one of them alone is a part of it.
    # Counters show what happens, the others why.
    for fact in sorted(
        facts,
        key=lambda one: (one.rule.role is Role.COUNTER, one.rule.id not in _PARTS.values(), -len(_devices_of(one))),
    ):
        at = next((at for at, one in enumerate(findings) if _explains(model, fact, one)), None)
        if at is None and fact.rule.id == _REPEATED:
            at = next((at for at, one in enumerate(findings) if _fails_with(one, fact.nodes[0])), None)
            if at is not None:
                # It follows from what fails, and decides nothing.
                findings[at] = _with_fact(findings[at], fact.replace(severity=Severity.NOTE))
                continue
        if at is None:
            at = next((at for at, one in enumerate(left) if _same_device(fact, one)), None)
            if at is None:
                left.append(fact)
            else:
                left[at] = _with_fact(left[at], fact)
        else:
            findings[at] = _with_fact(findings[at], fact)
        yield
    return findings, left


def _may_cause(fact: Finding, one: Finding) -> bool:
    return fact.rule.id not in _MEMORY or one.code == _KILLED_FOR_MEMORY


def _without_followers(model: Model, found: Sequence[Finding]) -> list[Finding]:
    """Return findings without the ones that follow from a different one, which gets them."""
    left = list(found)
    for one in found:
        cause = next((other for other in left if other is not one and _follows(model, one, other)), None)
        if cause is not None:
            left.remove(one)
            left[left.index(cause)] = _with_consequence(cause, one)
    return left


def _follows(model: Model, one: Finding, cause: Finding) -> bool:
    """Return True if a finding follows from a different one, by what their rules report."""
    inside = set(one.nodes) <= set(cause.nodes)
    if one.facts.get("code") in _UNREACHABLE and cause.rule.role in (Role.SETTING, Role.REPORTED):
        return inside
    match one.rule.role, cause.rule.role:
        case Role.SLOW, Role.REASON:
            return one.subject == cause.subject
        case Role.DEAD, Role.CONNECTION:
            same = cause.subject.kind is Kind.NODE and cause.subject.node == one.subject.node
            return same and bool(cause.cells & one.cells)
        case Role.PAST, Role.CONNECTION:
            return inside and cause.severity is Severity.BAD
        case Role.CONSEQUENCE, Role.REPORTED:
            return bool(pairs := _node_pairs(one)) and all(cause.subject.node in pair for pair in pairs)
        case Role.CONSEQUENCE, _:
            return _is_about(cause, one.subject.node)
        case Role.RESULT | Role.SLOW | Role.DEAD, Role.REPORTED:
            ends = {subject.name for subject in _next_to(model, cause.subject)}
            way = [node_of(src) != node_of(dst) and not ends.isdisjoint((src, dst)) for src, dst in one.cells]
            return bool(way) and all(way) and one.severity is not Severity.NOTE
    return False


def _is_about(one: Finding, node: str | None) -> bool:
    """Return True if a finding blames a node, or something on it, for bad results."""
    return one.subject.node == node and one.severity is Severity.BAD and bool(one.cells or one.measurements)


def _without_consequences(found: Iterable[Finding], cause: Finding) -> list[Finding]:
    """Return findings without those whose pairs of endpoints cannot connect, for a cause that is known."""
    return [
        one
        for one in found
        if not one.cells or len(one.cells & cause.cells) < _SAME * len(one.cells) or one.severity is Severity.NOTE
    ]


def _same_device(fact: Finding, one: Finding) -> bool:
    """Return True if a fact is about GPUs or NICs that another is about: several probes report one problem."""
    if _PARTS.get(fact.rule.id) == one.rule.id and set(fact.nodes) <= set(one.nodes):
        return True
    devices = _devices_of(fact)
    return bool(devices) and devices <= _devices_of(one)


def _devices_of(fact: Finding) -> set[Subject]:
    """Return the GPUs and NICs that a fact is about; none if it is about anything else, too."""
    about = set(fact.about or (fact.subject,))
    return about if all(part.kind in (Kind.GPU, Kind.NIC) for part in about) else set()


def _of_same_cells(found: Sequence[Finding], one: Finding) -> int | None:
    """Return the place of the finding that explains the same cells, or None."""
    best: tuple[float, int] | None = None
    if one.facts.get("protocols") == "UDP":
        # What blocks datagrams alone does not block a job.
        return None
    for at, other in enumerate(found):
        both = len(other.cells & one.cells)
        least = min(len(other.cells), len(one.cells))
        if least and both >= _SAME * least and Severity.NOTE not in (one.severity, other.severity):
            share = both / max(len(other.cells), len(one.cells))
            best = max(best or (share, at), (share, at))
    return None if best is None else best[1]


def _beyond(cause: Finding, cut_off: Finding) -> Finding:
    """Return a finding that blames a NIC, with its switch port instead if its node reports that the NIC is up."""
    ends = cause.facts.get("sharing") or cause.facts.get("no_nic")
    if cut_off.rule.id != "FT201" or not cut_off.facts.get("beyond") or not ends:
        return cause
    kept = {name: value for name, value in cause.facts.items() if name not in ("sharing", "no_nic", "nic")}
    facts = {**kept, "beyond": ends, "interface": cut_off.facts["interface"], "reporter": cut_off.facts["node"]}
    return cause.replace(facts=facts, next=(*cut_off.next, *cause.next))


def _folded(cause: Finding, consequence: Finding) -> Finding:
    cause = _beyond(cause, consequence)
    if consequence.rule.role is Role.SETTING:
        cause, consequence = consequence, cause
    elif _names_cause(consequence, cause) or len(consequence.cells) > 1.5 * len(cause.cells):
        # A node with two GPUs has only one pair.
        larger = len(consequence.cells) > 1.5 * len(cause.cells) or cause.subject.kind is Kind.PAIR
        blamed = consequence if larger else cause
        merged = consequence.replace(
            blames=blamed.subject, tested=blamed.tested, confidence=blamed.confidence, rivals=blamed.rivals
        )
        cause, consequence = merged, cause
    return _with_consequence(cause, consequence)


def _names_cause(one: Finding, other: Finding) -> bool:
    """Return True if a finding names the reason of another about the same cells."""
    if one.rule.id == "FT207":
        # A few percent of loss slow what they do not break.
        slow = other.rule.role is Role.SLOW and other.subject == one.subject and one.subject.node is not None
        return slow or max(one.facts.get("loss", (0.0,))) >= _MUCH_LOSS
    if one.rule.id == "FT201":
        return bool(one.facts.get("beyond"))
    return one.rule.role in (Role.CAUSE, Role.REPORTED)


def _with_consequence(cause: Finding, consequence: Finding) -> Finding:
    related = (*cause.facts.get("related", ()), consequence)
    return cause.replace(
        cells=cause.cells | consequence.cells,
        measurements=cause.measurements | consequence.measurements,
        severity=min(cause.severity, consequence.severity, key=lambda one: one.rank),
        facts={**cause.facts, "related": related},
        next=tuple(dict.fromkeys((*cause.next, *consequence.next)))[:_MOST_COMMANDS],
        weight=max(cause.weight, consequence.weight),
    )


def _with_fact(one: Finding, fact: Finding) -> Finding:
    """Return a finding with a fact about what it blames; a fact about a rival decides between the two."""
    about = set(fact.about or (fact.subject,))
    subject, rivals, confidence = one.subject, one.rivals, one.confidence
    if (
        subject not in about
        and fact.severity is not Severity.NOTE
        and (named := next((rival for rival in rivals if rival in about), None)) is not None
    ):
        rivals = (subject, *(rival for rival in rivals if rival != named))
        subject, confidence = named, None
    # What was counted comes after what shows why.
    name = "grown" if fact.rule.role is Role.COUNTER else "known"
    facts = {**one.facts, name: (*one.facts.get(name, ()), fact)}
    # How to leave out an interface is not a remedy for its fault.
    first = () if one.rule.role is Role.REPORTED and fact.rule.domain is Domain.NODES else fact.next
    if fact.rule.role is Role.COUNTER and one.rule.role is not Role.SLOW and one.next:
        first = ()
    steps = (*one.next, *first) if fact.severity is Severity.NOTE else (*first, *one.next)
    commands = tuple(dict.fromkeys(steps))[:_MOST_COMMANDS]
    return one.replace(facts=facts, next=commands, blames=subject, rivals=rivals, confidence=confidence)


def _explains(model: Model, fact: Finding, one: Finding) -> bool:
    """Return True if a fact is about the component that a finding blames, or about a rival of it."""
    if one.severity is Severity.NOTE:
        return False
    if not (one.cells or one.measurements or one.rivals) and one.rule.role is not Role.CONSEQUENCE:
        return one.rule.role is Role.REPORTED and _same_device(fact, one)
    suspects = {one.subject, *one.rivals}
    if fact.rule.role is Role.COUNTER and fact.nodes[0] in {suspect.node for suspect in suspects}:
        return True
    if fact.rule.role is Role.COUNTER and one.rule.role is Role.SETTING:
        return fact.nodes[0] in one.nodes
    return any(_touches(model, subject, suspects) for subject in fact.about or (fact.subject,))


def _fails_with(one: Finding, node: str) -> bool:
    """Return True if tests with a node are bad because of what a finding names: the node repeats what is lost."""
    return one.severity is Severity.BAD and any(node in pair for pair in _node_pairs(one))


def _node_pairs(one: Finding) -> set[Pair]:
    """Return the pairs of nodes whose bad results a finding explains."""
    pairs = {(node_of(src), node_of(dst)) for src, dst in one.cells}
    pairs |= {(path.src, path.dst) for _, path in one.measurements}
    if not pairs and one.subject.kind is Kind.NODE_PAIR:
        # Findings before it may explain its results as well.
        pairs = set(itertools.pairwise(one.nodes))
    return pairs


def _touches(model: Model, subject: Subject, suspects: Iterable[Subject]) -> bool:
    """Return True if a component is one of some suspects, or a part of one, or next to one."""
    near = {subject, *_next_to(model, subject)}
    return any(
        one in near
        or (one.kind in (Kind.NODE, Kind.HALVES) and one.name == subject.node)
        or (one.kind is Kind.PAIR and subject.kind is Kind.GPU and subject.name in one.name.split())
        for one in suspects
    )


def _next_to(model: Model, subject: Subject) -> list[Subject]:
    """Return the GPUs that send over a NIC, or the NIC of a GPU."""
    if subject.kind is Kind.GPU:
        number = model.table.number(subject.name)
        end = None if number is None else model.endpoints[number]
        return [Subject(Kind.NIC, f"{end.node} {end.port_name}")] if end is not None else []
    if subject.kind is Kind.NIC:
        node, _, nic = subject.name.partition(" ")
        return [Subject(Kind.GPU, str(end)) for end in model.table.of_node(node) if end.port_name == nic]
    return []


def finding_key(finding: Finding) -> str:
    """Return what identifies a finding in later sessions: rule, topic and component.

    If these do not name all that it is about, a digest of the rest is added: other pairs are another finding.
    """
    subject = finding.subject
    parts = [finding.rule.id, finding.topic, str(subject.kind), subject.name]
    rest: list[str] = []
    if subject.kind in _VAGUE:
        rest += [f"{src} > {dst}" for src, dst in sorted(finding.cells)]
    if finding.rule.domain is Domain.SUMMARY:
        rest += [finding_key(one) for one in finding.facts.get("related", ())]
        rest += [str(finding.facts.get(name)) for name in ("bad", "warnings")]
    if rest:
        parts.append(hashlib.sha256("\n".join(rest).encode()).hexdigest()[:16])
    return "|".join(parts)


def in_order(model: Model, found: Iterable[Finding]) -> list[Finding]:
    """Return findings with their notes, their past and their commands in order of blame.

    Those without a note are first, the worst and largest first.
    """
    notes, past = model.acknowledgements, model.past
    noted = [
        one.replace(
            next=in_order_of_blame(model, one),
            acknowledged=notes.about(finding_key(one)),
            recurrence=None if past is None else past.about(model, one),
        )
        for one in found
    ]
    return sorted(noted, key=lambda one: (one.known, one.severity.rank, -len(one.cells) - one.weight))
