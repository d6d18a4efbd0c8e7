"""Session with its diagnosis, computed once for all parts of a report."""

from __future__ import annotations

from typing import NamedTuple, Self

from fabtui.diagnosis.diagnosis import exit_code, findings
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.pairs.tally import Survey, Tally
from fabtui.diagnosis.preflight.rules import Preflight, preflight
from fabtui.model.session_model import Model


class Diagnosed(NamedTuple):
    """A session, the verdicts of its pairs, its findings, its preflight and its exit code."""

    model: Model
    tally: Tally
    findings: list[Finding]
    preflight: Preflight
    code: int

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the diagnosis of a session; of one that only inspected nodes, that of the preflight."""
        tally = Survey(model).finish()
        found, inspected = findings(model, tally), preflight(model)
        code = inspected.exit_code if model.options.get("looks_only") else exit_code(model, found)
        return cls(model, tally, found, inspected, code)
