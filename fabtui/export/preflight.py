"""Preflight as JSON and CSV, and reading of an earlier one."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from fabtui.diagnosis.preflight.changes import Earlier, earlier_of
from fabtui.diagnosis.preflight.rules import Preflight, preflight
from fabtui.errors import InputError
from fabtui.export.csv import escaped
from fabtui.export.snapshot_rows import when
from fabtui.model.event_schema import APPLY_ERRORS
from fabtui.model.facts.node_view import Value
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json as finding_json

KIND = "fabtui preflight"
#: 2: findings have rules, facts and lists of commands; ``severity`` was ``verdict``.
FORMAT = 2
#: Maximum size (bytes) of a preflight file.
LARGEST = 256 * 1024 * 1024
COLUMNS = ("node", "hardware", "fact", "title", "value", "unit", "verdict")


def as_json(model: Model, found: Preflight) -> dict[str, Any]:
    """Return a preflight as a JSON object: findings, facts, and the value of each fact on each node."""
    table = found.table
    return {
        "kind": KIND,
        "format": FORMAT,
        "software": f"fabtui {model.software}",
        "started": when(model.started),
        "exit": found.exit_code,
        "lab": model.lab,
        "findings": [finding_json(finding) for finding in found.findings],
        "missing": found.missing,
        "facts": [
            {"name": fact.name, "title": fact.title, "unit": fact.unit, "compare": str(fact.compare)}
            for fact in table.facts
        ],
        "nodes": [
            {
                "name": node,
                "hardware": str(table.kinds[node]),
                "differs_in": sorted(table.differing(node)),
                "facts": {fact.name: table.values[fact.name][node] for fact in table.facts},
            }
            for node in table.nodes
        ],
    }


def json_text(model: Model, found: Preflight) -> str:
    """Return a preflight as the text of a JSON file."""
    return json.dumps(as_json(model, found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(found: Preflight) -> str:
    """Return a preflight as the text of a CSV file: a row for each fact of each node; unknown values are empty."""
    table = found.table
    roles = {(odd.fact.name, node): odd.fact.verdict for odd in table.odd for node in odd.values}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for node in table.nodes:
        for fact in table.facts:
            value = table.values[fact.name][node]
            cell = escaped(value) if isinstance(value, str) else "" if value is None else value
            verdict = roles.get((fact.name, node), "")
            writer.writerow([escaped(node), str(table.kinds[node]), fact.name, fact.title, cell, fact.unit, verdict])
    return out.getvalue()


def read_earlier(path: Path) -> Earlier:
    """Return the values of an earlier preflight, from its JSON or from a recording of any session.

    Raises:
        InputError: The file cannot be read, or is neither.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"--baseline: cannot read {path}: {error.strerror}") from None
    if len(data) > LARGEST:
        raise InputError(f"--baseline: {path} is larger than {LARGEST >> 20} MiB: not a preflight")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _recorded(path)
    if not isinstance(value, dict) or value.get("kind") == "start":
        return _recorded(path)
    if value.get("kind") != KIND:
        raise InputError(f"--baseline: {path} is JSON, but not of fabtui preflight; make one with --json FILE")
    return _values(value, path)


def _values(value: dict[str, Any], path: Path) -> Earlier:
    found: dict[str, dict[str, Value]] = {}
    try:
        for node in value["nodes"]:
            facts = node["facts"].items()
            found[str(node["name"])] = {
                str(name): fact for name, fact in facts if isinstance(fact, (str, int, float, bool))
            }
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"--baseline: {path} is incomplete: a node has no name or no facts") from None
    return found


def _recorded(path: Path) -> Earlier:
    model = Model()
    try:
        for event in read_events(path):
            model.apply(event)
    except InputError as error:
        raise InputError(f"--baseline: {error}") from None
    except APPLY_ERRORS as error:
        raise InputError(f"--baseline: {path} is a recording that cannot be used ({error})") from None
    found = earlier_of(preflight(model).table)
    if not found:
        raise InputError(f"--baseline: there are no probe results in the recording {path}")
    return found
