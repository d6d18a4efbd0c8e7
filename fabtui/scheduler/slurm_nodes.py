"""States of nodes and leaf switches as Slurm knows them, from ``sinfo`` and ``scontrol show topology``.

Neither needs rights. ``sinfo -R`` would cut reasons at 20 characters.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Any

from fabtui.nodeset import expand_listed
from fabtui.scheduler.tool import ask

_SWITCH = re.compile(r"SwitchName=(\S+) Level=0 .*?\bNodes=(\S+)")
_BLOCK = re.compile(r"BlockName=(\S+) .*?\bNodes=(\S+)")
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
        for name, leaf in _leaves(ask(["scontrol", "show", "topology"]).lines).items():
            values.setdefault(name, {})["leaf"] = leaf
    return {node: values[name] for node in nodes for name in (_known(node, values),) if name is not None}


def _known(node: str, values: dict[str, dict[str, Any]]) -> str | None:
    """Return the name of a node in Slurm, which may lack the domain."""
    return next((name for name in (node, node.partition(".")[0]) if name in values), None)


def _leaves(lines: Sequence[str]) -> dict[str, str]:
    """Return the leaf switch or block of each node, without those in several; none where all are in one."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := _SWITCH.search(line) or _BLOCK.search(line):
            for node in expand_listed(match[2]) or ():
                found.setdefault(node, set()).add(match[1])
    leaves = {node: next(iter(names)) for node, names in found.items() if len(names) == 1}
    return leaves if len(set(leaves.values())) > 1 else {}
