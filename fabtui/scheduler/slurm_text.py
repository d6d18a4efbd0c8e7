r"""Output of Slurm: pairs of scontrol's records, states of nodes, and switches and blocks (``topology.conf``).

Grammar of topology (slurm-wlm: man scontrol, man topology.conf; ``src/plugins/topology/*/switch_record.c``): records on
one line. A switch is ``SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[060-061]``, with ``Switches=`` above the leaves. A
block is ``BlockName=b1 BlockIndex=0 Nodes=n[060-063] BlockSize=4``. topology.conf has no levels, may break a line by
``\``, and its names are in any case. Nothing of it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.nodeset import expand_listed

#: Values that mean that Slurm knows none.
NOTHING = ("(null)", "N/A", "n/a", "n/s", "Unknown", "")
#: Slurm's names begin with a capital: a value such as ``train lr=0.1`` is one.
_PAIR = re.compile(r"(?:^|(?<=\s))([A-Z][\w:/.-]{0,60})=")
#: Names whose value is the rest of the line.
_REST = re.compile(r"^\s*(Reason|Comment|AdminComment|SystemComment|Command|WorkDir|OS|Extra)=(.*)$")
#: What a state contains when the node gets no jobs (``sinfo`` manual, node state codes).
_OUT = (
    *("down", "drain", "drng", "fail", "maint", "inval", "error", "unk", "powered", "reboot", "perfctrs"),
    *("no_respond", "not_responding"),
)
#: The same of nodes that do not work.
_BROKEN = ("down", "fail", "inval", "error")
_SWITCH = re.compile(r"\s{0,40}(SwitchName|BlockName|AggregatedBlock)=([^\s#]{1,4096})(.*)", re.I)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]{1,30})=([^\s#]{1,65536})")
_NOTHING = ("(null)", "N/A", "none")


def pairs(line: str) -> dict[str, str]:
    """Return the pairs of a line; a value extends to the next name, so that it may hold blanks and equal signs."""
    if rest := _REST.match(line):
        return {rest[1]: rest[2].strip()}
    names = list(_PAIR.finditer(line))
    ends = [*(name.start() for name in names[1:]), len(line)][: len(names)]
    return {name[1]: line[name.end() : end].strip() for name, end in zip(names, ends, strict=True)}


def known_pairs(line: str) -> dict[str, str]:
    return {name: value for name, value in pairs(line).items() if value not in NOTHING}


def out_of_service(state: str, responds: object = None) -> bool:
    """Return True if Slurm gives a node no jobs, by its state and whether it responds (False: it does not)."""
    return responds is False or any(word in state.lower() for word in _OUT)


def is_broken(state: str) -> bool:
    return any(word in state.lower() for word in _BROKEN)


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
    return [_record(match) for line in joined(lines) if (match := _SWITCH.match(line))]


def joined(lines: Sequence[str]) -> list[str]:
    """Return lines, with those that a backslash breaks joined."""
    whole = []
    before = ""
    for line in lines:
        if line.rstrip().endswith("\\") and len(before) < 65536:
            before += line.rstrip()[:-1] + " "
        else:
            whole.append(before + line)
            before = ""
    return [*whole, before] if before else whole


def leaves(every: Sequence[TopologyRecord]) -> dict[str, str]:
    """Return the leaf switch or block of each node, without those in several."""
    places: dict[str, set[str]] = {}
    for record in every:
        for node in (expand_listed(record.nodes) or ()) if record.leaf and record.nodes else ():
            places.setdefault(node, set()).add(record.name)
    return {node: next(iter(names)) for node, names in places.items() if len(names) == 1}


def _record(match: re.Match[str]) -> TopologyRecord:
    pairs = {name.lower(): text for name, text in _FIELD.findall(match[3]) if text not in _NOTHING}
    nodes, switches = pairs.get("nodes"), pairs.get("switches")
    if match[1].lower() != "switchname":
        # An aggregated block is above blocks that are listed themselves.
        return TopologyRecord("block", match[2], None, nodes if match[1].lower() == "blockname" else None, None)
    printed = pairs.get("level", "")
    level = int(printed) if re.fullmatch(r"\d{1,4}", printed, re.A) else 0 if switches is None else None
    return TopologyRecord("switch", match[2], level, nodes, switches)
