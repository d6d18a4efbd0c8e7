"""States of nodes and leaf switches as Slurm knows them, from ``sinfo`` and ``scontrol show topology``.

Neither needs rights. ``sinfo -R`` would cut reasons at 20 characters.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Sequence
from typing import Any

from fabtui.scheduler.slurm_topology import leaves, records
from fabtui.scheduler.tool import ask

#: Signs after a state, such as ``*`` of a node that does not answer.
_SIGNS = "*~#!%$@^-+"
#: Texts that stand for nothing.
_NOTHING = ("", "none", "(null)", "N/A")


def node_values(nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what Slurm knows about nodes: ``state``, ``responds``, ``reason``, ``gres`` and ``leaf``; blocks.

    Empty where Slurm is not installed, or does not answer, and without the nodes that it does not know.
    """
    if shutil.which("sinfo") is None:
        return {}
    values: dict[str, dict[str, Any]] = {}
    for line in ask(["sinfo", "--noheader", "--Node", "--format=%N|%T|%G|%E"]).lines:
        fields = [field.strip() for field in line.split("|", 3)]
        if len(fields) == 4:
            name, state, gres, reason = fields
            values[name] = {"state": state.rstrip(_SIGNS), "responds": "*" not in state}
            values[name] |= {"gres": gres} if gres not in _NOTHING else {}
            values[name] |= {"reason": reason} if reason not in _NOTHING else {}
    if values:
        found = leaves(records(ask(["scontrol", "show", "topology"]).lines))
        # Where all are at one, it separates none.
        for name, leaf in found.items() if len(set(found.values())) > 1 else ():
            values.setdefault(name, {})["leaf"] = leaf
    return {node: values[name] for node in nodes for name in (known_name(node, values),) if name is not None}


def known_name(node: str, known: Container[str]) -> str | None:
    """Return the name of a node in Slurm, which may lack the domain; None if it is not known."""
    return next((name for name in (node, node.partition(".")[0]) if name in known), None)
