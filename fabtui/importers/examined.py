"""Diagnosis of outputs: findings about the facts and measurements that they hold, and causes of the errors in logs."""

from __future__ import annotations

from fabtui.diagnosis.diagnosis import Diagnosis, Evidence, diagnose
from fabtui.diagnosis.knowledge.log_causes import Causes, LogReader
from fabtui.importers.catalogue import formats
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import convertible, model
from fabtui.model.session_model import Model


def errors_in(result: Result) -> Causes:
    """Return the errors in an output that may have lines of a log."""
    reader = LogReader()
    if result.known and formats()[result.kind].errors:
        reader.add(result.source.text)
    return reader.result()


def examined(result: Result, errors: Causes | None = None) -> Diagnosis:
    """Return the diagnosis of an output; nothing is found in one whose format is unknown.

    Args:
        result: The output.
        errors: Errors in its lines that are evidence, too.
    """
    judged = result.known and (convertible(result.kind) or formats()[result.kind].facts is not None)
    return diagnose(Evidence(model([result]) if judged else Model(), errors))
