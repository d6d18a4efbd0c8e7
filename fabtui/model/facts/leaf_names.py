"""Names of leaf switches."""

from __future__ import annotations

from collections.abc import Iterable

from fabtui.model.facts.node_view import dicts, field, text
from fabtui.model.records import NodeRecord


def leaf_names(nodes: Iterable[NodeRecord]) -> dict[str, str]:
    """Return the names of leaf switches by GUID, as the probe ``ibfabric`` of any node reports them."""
    found: dict[str, str] = {}
    for record in nodes:
        for port in dicts(field(record.probe_results.get("ibfabric"), "ports")):
            guid, name = (text(field(port, "leaf", key)) for key in ("guid", "name"))
            if guid is not None and name is not None:
                found[guid] = name
    return found
