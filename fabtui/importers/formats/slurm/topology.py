"""Output of ``scontrol show topology``, and ``topology.conf``; the grammar is in `fabtui.scheduler.slurm_topology`."""

from __future__ import annotations

import re

from fabtui.nodeset import expand_listed
from fabtui.scheduler.slurm_topology import joined, leaves, records
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

#: Maximum numbers of records and nodes of a result.
_MOST, _MOST_NODES = 10_000, 100_000


def parse(text: str) -> Reading:
    """Return ``records``, and ``nodes``: the leaf switch or block of each node that is in one only."""
    notes = Notes()
    lines = joined(plain_lines(text))
    found = records(lines)[:_MOST]
    for line in lines:
        bare = line.strip()
        if bare and not bare.startswith(("#", "$")) and "=" in bare and not records([line]):
            notes.puzzled(line)
        elif re.match(r"(?:scontrol: |slurm_load_\w+ error|No topology)", bare):
            notes.warn(bare)
    at = leaves(found)
    below: set[str] = set()
    rows = []
    for one in found:
        names = expand_listed(one.nodes) if one.nodes else None
        rows.append({**one._asdict(), "expands_to": None if names is None else len(names)})
        if one.leaf and names:
            several = below & set(names)
            if several:
                notes.warn(f"{min(several)} is below {one.name} and another leaf")
            below |= set(names)
    if not found:
        notes.warn("no switch and no block: topology/flat, or the fabric is not described to Slurm")
    nodes = [{"node": node, "leaf": leaf} for node, leaf in sorted(at.items())[:_MOST_NODES]]
    return notes.reading({"records": rows, "nodes": nodes})


_LIKELY = first_of(
    (0.97, r"(?i)^[ \t]{0,8}SwitchName=\S+[ \t].*\b(?:Nodes|Switches)="),
    (0.97, r"(?i)^[ \t]{0,8}(?:BlockName|AggregatedBlock)=\S+[ \t].*\bNodes="),
    (0.9, r"(?i)^[ \t]{0,8}(?:SwitchName|BlockName)=\S"),
    (0.93, r"^[#$].{0,200}\bscontrol(?: -\S+)* show topo"),
)
_TITLE = "Slurm's topology: switches or blocks, and the leaf of each node"
FORMATS = [Format("slurm-topology", _TITLE, _LIKELY, parse, aliases=r"topology(?:\.conf)?")]
