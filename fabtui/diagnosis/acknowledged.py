"""Findings with the notes of the user: which finding a note is about, and the order of findings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fabtui.diagnosis.finding import Domain, Finding, Kind
from fabtui.model.session_model import Model

#: Subjects from which the pairs of a finding do not follow.
_VAGUE = (Kind.FABRIC, Kind.PAIRS)


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
    """Return findings with their notes: those without one first, the worst and largest first."""
    noted = [one.replace(acknowledged=model.acknowledgements.about(finding_key(one))) for one in found]
    return sorted(noted, key=lambda one: (one.known, one.severity.rank, -len(one.cells) - one.weight))
