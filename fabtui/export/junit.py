"""Session as JUnit XML, for the pages of CI systems.

Test cases: the verdict, each rule, each class of pairs, addresses and collectives in each layer, and each reason for
which something could not be tested. The elements and attributes are those that Jenkins, GitLab and GitHub read
(testsuites, testsuite, testcase).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree  # nosec B405

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import RULES, Domain, Finding, Severity
from fabtui.exit_status import BAD, NOT_TESTED
from fabtui.export.formats import when
from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.presentation.acceptance import ItemOutcome, JudgedItem
from fabtui.presentation.findings import evidence, headline, known_text, step_text
from fabtui.presentation.numbers import size_text, spoken_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import verdict_words
from fabtui.sanitize import clean, one_line

#: Maximum number of bad measurements listed in a test case.
MOST_LISTED = 50
#: Domains of the rules that judge a session.
_DOMAINS = (Domain.PAIRS, Domain.LINKS, Domain.MESH, Domain.NODES, Domain.RUNNING, Domain.HISTORY)
_BAD = tuple(verdict for verdict in Verdict if verdict.bad)
#: What XML 1.0 cannot hold, even as a reference; `clean` leaves only these of it.
_NOT_XML = re.compile("[\ufffe\uffff]")


class Case(NamedTuple):
    """A test case: what it is about, and why it failed or was skipped; ``output`` is what else is worth knowing."""

    suite: str
    name: str
    failure: str = ""
    skipped: str = ""
    text: str = ""
    output: str = ""


def junit_text(found: Diagnosis, more: Iterable[Case] = ()) -> str:
    """Return the JUnit XML of a diagnosis; ``more`` cases come first."""
    model, suites = found.model, dict[str, list[Case]]()
    left_out = (Case("not-tested", one_line(line, 200), skipped=line) for line in found.not_examined)
    for case in (*more, _verdict(found), *_rules(found), *_classes(model), *left_out):
        suites.setdefault(case.suite, []).append(case)
    seconds = f"{model.elapsed:.3f}"
    every = [case for cases in suites.values() for case in cases]
    root = ElementTree.Element("testsuites", {"name": "fabtui", "time": seconds, **_counted(every)})
    for name, cases in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": f"fabtui.{name}", **_counted(cases)})
        suite.set("skipped", str(sum(bool(case.skipped) for case in cases)))
        if started := when(model.started):
            suite.set("timestamp", started[:19])
        for case in cases:
            _add(suite, case)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def acceptance_cases(judged: Iterable[JudgedItem]) -> Iterator[Case]:
    for one in judged:
        name, text = f"{one.item.id}: {one.item.title}", "\n".join(one.evidence)
        case = Case("acceptance", name, text=text, output=text)
        if one.outcome is ItemOutcome.FAIL:
            case = case._replace(failure=one.evidence[0])
        yield (
            case
            if one.outcome in (ItemOutcome.PASS, ItemOutcome.FAIL)
            else case._replace(skipped=f"{one.outcome}: {text}")
        )


def _verdict(found: Diagnosis) -> Case:
    case, sentence = Case("verdict", "verdict"), sentence_of(found)
    if found.code == BAD:
        return case._replace(failure=sentence, text=sentence)
    return case._replace(skipped=sentence) if found.code == NOT_TESTED else case._replace(output=sentence)


def _counted(cases: Iterable[Case]) -> dict[str, str]:
    known = list(cases)
    return {"tests": str(len(known)), "failures": str(sum(bool(case.failure) for case in known)), "errors": "0"}


def _add(suite: ElementTree.Element, case: Case) -> None:
    made = ElementTree.SubElement(suite, "testcase", classname=f"fabtui.{case.suite}", name=_fit(case.name))
    if case.skipped:
        ElementTree.SubElement(made, "skipped", message=_fit(one_line(case.skipped, 300)))
    if case.failure:
        failure = ElementTree.SubElement(made, "failure", message=_fit(one_line(case.failure, 300)), type="bad")
        failure.text = _fit(case.text)
    if case.output:
        ElementTree.SubElement(made, "system-out").text = _fit(case.output)


def _fit(text: str) -> str:
    """Return a text without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", clean(text))


def _rules(diagnosis: Diagnosis) -> Iterator[Case]:
    """Yield a case for each rule; it fails if one of its findings is bad, and is skipped without anything to judge."""
    of_rule: dict[str, list[Finding]] = {}
    for one in diagnosis.all_findings:
        of_rule.setdefault(one.rule.id, []).append(one)
    why = _without_data(diagnosis.model)
    for rule in sorted((rule for rule in RULES if rule.domain in _DOMAINS), key=lambda rule: rule.id):
        findings = of_rule.get(rule.id, [])
        bad = [one for one in findings if one.severity is Severity.BAD]
        case = Case("rules", f"{rule.id} {rule.name}: {rule.title}")
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            case = case._replace(failure=f"{headline(bad[0])}{more}", text="\n\n".join(map(_finding_text, bad)))
        elif not findings and rule.domain in why:
            case = case._replace(skipped=why[rule.domain])
        others = [one for one in findings if one not in bad]
        yield case._replace(output="\n\n".join(map(_finding_text, others)))


def _without_data(model: Model) -> dict[Domain, str]:
    layers = model.layers
    tested = any(layer.spec.per is not Per.ADDRESS_PAIR for layer in layers)
    probed = any(look.keys() != {"error"} for node in model.nodes.values() for look in node.probe_results.values())
    has = {
        Domain.PAIRS: (tested, "no pair of endpoints was tested"),
        Domain.MESH: (any(layer.spec.by_address for layer in layers), "no pair of addresses was tested"),
        Domain.LINKS: (tested or probed, "no node was probed"),
        Domain.NODES: (probed, "no node was probed"),
        Domain.RUNNING: (bool(model.job), "no running job was observed"),
        Domain.HISTORY: (model.past is not None, "no earlier session is known"),
    }
    return {domain: reason for domain, (there, reason) in has.items() if not there}


def _finding_text(finding: Finding) -> str:
    named = finding.nodes and finding.rule.domain is not Domain.NODES
    nodes = f"{one_line(fold(finding.nodes), 300)}: " if named else ""
    lines = [f"{finding.severity}: {nodes}{headline(finding)}", *evidence(finding)]
    lines += [text for text in (known_text(finding), finding.rule.next_step) if text]
    return "\n".join([*lines, *(f"next: {step_text(command, 1000)}" for command in finding.next)])


def _classes(model: Model) -> Iterator[Case]:
    found: dict[tuple[Layer, str], list[Measurement]] = {}
    for m in model.measurements():
        found.setdefault((m.layer, str(model.key_of(m).kind)), []).append(m)
    for (layer, kind), rows in found.items():
        counts = Counter(map(model.verdict, rows))
        tested = sum(number for verdict, number in counts.items() if verdict in (Verdict.OK, *_BAD))
        title = f"bus bandwidth of {layer.spec.collective}" if layer.spec.collective else layer.spec.title
        case = Case(f"layers.{layer}", f"{kind}: {title}")
        if bad := [m for m in rows if model.verdict(m).bad]:
            parts = ", ".join(f"{counts[verdict]} {verdict_words(verdict)}" for verdict in _BAD if counts[verdict])
            lines = [_measured_text(model, m) for m in bad[:MOST_LISTED]]
            lines += [f"and {len(bad) - MOST_LISTED} more"] if len(bad) > MOST_LISTED else []
            case = case._replace(failure=f"{parts} of {count(tested, 'measurement')}", text="\n".join(lines))
        elif not tested:
            why = next((m.error for m in rows if m.error), None)
            named = ", ".join(f"{number} {verdict_words(verdict)}" for verdict, number in counts.items())
            case = case._replace(skipped=why or named)
        yield case


def _measured_text(model: Model, m: Measurement) -> str:
    addresses = f" ({m.src_addr} > {m.dst_addr})" if m.src_addr and m.dst_addr else ""
    size = f" at {size_text(m.bytes)}" if m.bytes is not None else ""
    value = f", {spoken_text(m.value, m.unit)}{size}" if m.value is not None else ""
    usual = model.usual(m) if m.value is not None else None
    return one_line(
        f"{m.src} > {m.dst}{addresses}: {verdict_words(model.verdict(m))}{value}"
        + (f", usual {spoken_text(usual, m.unit)}" if usual else "")
        + (f": {m.error}" if m.error else ""),
        500,
    )
