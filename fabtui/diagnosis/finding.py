"""A finding: a named cause with the nodes it is about, its evidence, and the next command."""

from __future__ import annotations

from typing import NamedTuple

#: The verdicts of findings, the worst first.
VERDICTS = ("bad", "warn", "note")


class Finding(NamedTuple):
    """Something that was found out.

    Attributes:
        verdict: ``bad`` (a test will fail or be slow), ``warn`` (likely) or ``note`` (worth knowing).
        subject: One word, such as ``memlock``: findings of the same subject are about the same thing.
        text: What is wrong, on one line, without the nodes.
        nodes: The nodes it is about.
        evidence: What says so, a line each.
        next: The next command to type or thing to do, or "".
    """

    verdict: str
    subject: str
    text: str
    nodes: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    next: str = ""

    @property
    def rank(self) -> int:
        """Its place among findings: the worst first."""
        return VERDICTS.index(self.verdict) if self.verdict in VERDICTS else len(VERDICTS)
