"""Preflight as JSON and CSV, and reading of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fabtui.diagnosis.preflight.checks import Preflight, preflight
from fabtui.errors import InputError
from fabtui.export.formats import FORMATS, JsonObject, address, members, table_text, when
from fabtui.export.formats import json_text as text_of
from fabtui.model.events import APPLY_ERRORS
from fabtui.model.facts.compare import Earlier, earlier_of
from fabtui.model.facts.node_view import Value
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json as finding_json

KIND = "fabtui preflight"
#: Maximum size (bytes) of a preflight file.
LARGEST = 256 * 1024 * 1024
COLUMNS = ("node", "hardware", "fact", "title", "value", "unit", "verdict")


def json_text(model: Model, found: Preflight) -> str:
    table = found.table
    value = {
        "kind": KIND,
        "format": FORMATS["preflight"],
        "software": f"fabtui {model.software}",
        "$schema": address("preflight"),
        "started": when(model.started),
        "exit": found.exit_code,
        "lab": model.lab,
        "findings": [finding_json(finding) for finding in found.findings],
        "missing": [line for _, line in found.missing],
        "verdicts": [{"node": node, **found.verdict(node)._asdict()} for node in model.nodes],
        "facts": [{**members(fact, "name", "title", "unit"), "compare": str(fact.compare)} for fact in table.facts],
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
    return text_of(value)


def fact_rows(found: Preflight) -> Iterator[JsonObject]:
    """Yield the cells of `COLUMNS` of each fact of each node; ``verdict``: that of a node that differs, else None."""
    table = found.table
    roles = {(odd.fact.name, node): odd.fact.verdict for odd in table.odd for node in odd.values}
    for node in table.nodes:
        for fact in table.facts:
            cells = [node, str(table.kinds[node]), fact.name, fact.title, table.values[fact.name][node], fact.unit]
            yield dict(zip(COLUMNS, (*cells, roles.get((fact.name, node))), strict=True))


def csv_text(found: Preflight) -> str:
    return table_text(COLUMNS, (row.values() for row in fact_rows(found)))


def read_earlier(path: Path) -> Earlier:
    """Return the values of an earlier preflight, from its JSON or from a recording of any session, or InputError."""
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
    found: dict[str, dict[str, Value]] = {}
    try:
        for node in value["nodes"]:
            facts = node["facts"].items()
            found[str(node["name"])] = {str(name): fact for name, fact in facts if isinstance(fact, (str, int, float))}
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
    earlier = earlier_of(preflight(model).table)
    if not earlier:
        raise InputError(f"--baseline: there are no probe results in the recording {path}")
    return earlier
