"""Verdict and findings of a session."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Finding
from fabtui.model.exit_codes import ALL_OK, BAD
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.preflight_lines import head_line, nodes_text
from fabtui.presentation.verdict_line import numbers_line
from fabtui.presentation.wording import plain
from fabtui.report.document import Block, Entry, Items, Paragraph
from fabtui.report.healthy import what_to_do
from fabtui.report.summary import (
    FindingText,
    finding_text,
    finding_texts,
    findings_head,
    not_in_findings,
    not_tested_lines,
    outcome_text,
    verdicts_line,
)

#: Maximum width of the nodes of a finding.
_WIDEST = 100


def state_of(code: int) -> str:
    """Return the state of a verdict by the exit code of its session."""
    return {ALL_OK: "ok", BAD: "bad"}.get(code, "unknown")


def verdict(one: Diagnosis) -> tuple[str, list[str]]:
    """Return the verdict of a session in one sentence, and its numbers."""
    model = one.model
    if model.options.get("looks_only"):
        return plain(head_line(one.preflight)), []
    whole = not any(map(model.gone, model.nodes))
    numbers = numbers_line(
        one.tally.counts,
        len(model.untested),
        UNICODE,
        final=True,
        whole=whole,
        wide=True,
        named=True,
        measured=0,
    )
    # Two blanks separate the parts of a line on the screen.
    return outcome_text(one.code), [
        plain(numbers).replace("  ", "; "),
        verdicts_line(model),
        findings_head(one.findings),
    ]


def entries(one: Diagnosis) -> Iterator[Block]:
    """Yield the findings, in the order and with the numbers of the app."""
    texts = finding_texts(one.model, one.findings)
    for number, (finding, text) in enumerate(zip(one.findings, texts, strict=True), 1):
        yield entry(number, finding, text)
    if not one.findings:
        yield Paragraph("no findings")


def entry(number: int, finding: Finding, text: FindingText | None = None) -> Entry:
    """Return a finding with its evidence, its confidence, its next steps and the meaning of its rule."""
    text = text or finding_text(finding)
    labels = [
        f"{finding.rule.id} {finding.rule.name}",
        *([nodes_text(finding.nodes, _WIDEST, UNICODE)] if finding.nodes else []),
    ]
    if finding.confidence is not None:
        labels.append(f"confidence {percent_text(finding.confidence)}")
    about = [finding.rule.description, *([finding.rule.next_step] if finding.rule.next_step else [])]
    return Entry(number, str(finding.severity), text.title, labels, text.evidence, text.next, about)


def further(one: Diagnosis) -> list[Block]:
    """Return what is not ok and in no finding, what was not tested, and what to do now."""
    parts = [what_to_do(one)]
    parts += [*not_in_findings(one, UNICODE), not_tested_lines(one)]
    return [listed(lines) for lines in parts if lines]


def listed(lines: list[str]) -> Items:
    """Return lines of the summary, the first of which is their heading."""
    return Items(lines[0], [line.strip() for line in lines[1:]])
