r"""Switches and blocks of a cluster as Slurm knows them: output of ``scontrol show topology``, or ``topology.conf``.

Grammar (slurm-wlm: man scontrol, man topology.conf; ``src/plugins/topology/*/switch_record.c``): records on one line.
A switch is ``SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[060-061]``, with ``Switches=`` above the leaves. A block is
``BlockName=b1 BlockIndex=0 Nodes=n[060-063] BlockSize=4``. topology.conf has no levels, may break a line by
``\``, and its names are in any case. Nothing of it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.nodeset import expand_listed

_RECORD = re.compile(r"\s{0,40}(SwitchName|BlockName|AggregatedBlock)=([^\s#]{1,4096})(.*)", re.I)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]{1,30})=([^\s#]{1,65536})")
_NOTHING = ("(null)", "N/A", "none")


class TopologyRecord(NamedTuple):
    """A switch or a block."""

    kind: str  #: ``switch`` or ``block``.
    name: str  #: Its name; of some records a list of names (``b[1-2]``).
    level: int | None  #: 0 for a leaf; None for a block.
    nodes: str | None  #: The list of nodes below it, as printed; None without one.
    switches: str | None  #: The list of switches below it, as printed; None without one.

    @property
    def leaf(self) -> bool:
        """True for the switch or block that nodes are connected to."""
        return self.nodes is not None and (self.kind == "block" or self.level == 0)


def records(lines: Sequence[str]) -> list[TopologyRecord]:
    return [_record(match) for line in joined(lines) if (match := _RECORD.match(line))]


def joined(lines: Sequence[str]) -> list[str]:
    """Return lines, with those that a backslash breaks joined."""
    found = []
    before = ""
    for line in lines:
        if line.rstrip().endswith("\\") and len(before) < 65536:
            before += line.rstrip()[:-1] + " "
        else:
            found.append(before + line)
            before = ""
    return [*found, before] if before else found


def leaves(every: Sequence[TopologyRecord]) -> dict[str, str]:
    """Return the leaf switch or block of each node, without those in several."""
    found: dict[str, set[str]] = {}
    for record in every:
        for node in (expand_listed(record.nodes) or ()) if record.leaf and record.nodes else ():
            found.setdefault(node, set()).add(record.name)
    return {node: next(iter(names)) for node, names in found.items() if len(names) == 1}


def _record(match: re.Match[str]) -> TopologyRecord:
    pairs = {name.lower(): text for name, text in _PAIR.findall(match[3]) if text not in _NOTHING}
    nodes, switches = pairs.get("nodes"), pairs.get("switches")
    if match[1].lower() != "switchname":
        # An aggregated block is above blocks that are listed themselves.
        return TopologyRecord("block", match[2], None, nodes if match[1].lower() == "blockname" else None, None)
    printed = pairs.get("level", "")
    level = int(printed) if re.fullmatch(r"\d{1,4}", printed, re.A) else 0 if switches is None else None
    return TopologyRecord("switch", match[2], level, nodes, switches)
