"""The grammar that many InfiniBand tools share: ``Name:.......value``, below a heading that begins with ``#``."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.ib import values

_FIELD = re.compile(r"\s*([A-Za-z][\w ]{0,60}?):\.*\s*(.*)", re.ASCII)
# What the bits of the mask above stand for, a line each.
_FLAG = re.compile(r"\t{2,}(Is|Has|No)\w{1,60}|\s{8,}(Is|Has)\w{1,60}", re.ASCII)
_REMARKS = ("Disable may be irreversible", "Port is already in enable state")
_LID = re.compile(r"Lid ([0-9]{1,6})\b", re.ASCII)


class Block(NamedTuple):
    """One answer: what was asked for, of whom, and its fields as text.

    Attributes:
        title: The heading's words, for example ``Port counters``; "" when fields came without a heading.
        lid: The LID that was asked, or None.
        port: The port that was asked, or None; 255 stands for all ports of a switch.
        remark: The text in brackets of the heading, or "".
        before: The line before the heading, for example ``Peer PortInfo``, or "".
        fields: The values by name.
    """

    title: str
    lid: Optional[int]
    port: Optional[int]
    remark: str
    before: str
    fields: Dict[str, str]


def blocks(text: str, notes: Notes) -> List[Block]:
    """Return the answers in a text; complaints become warnings, and what is none of this is noted as unknown."""
    found: List[Block] = []
    before = last = ""
    for line in values.lines(text):
        field = _FIELD.fullmatch(line)
        if line.startswith("#"):
            found.append(heading(line, before))
            before = ""
        elif re.fullmatch(r"\s*[\w /]{1,60}:\s*", line, re.ASCII):
            before = line.strip().rstrip(":")
        elif values.complaint(line):
            notes.warn(line)
        elif field:
            if not found:
                found.append(Block("", None, None, "", before, {}))
            last = field.group(1)
            found[-1].fields[last] = field.group(2).strip()[:200]
        elif found and last and _FLAG.fullmatch(line):
            flags = found[-1].fields.get(last + " flags", "")
            found[-1].fields[last + " flags"] = (flags + " " + line.strip()).strip()[:2000]
        elif line.strip() not in _REMARKS:
            notes.puzzled(line)
    return found


def heading(line: str, before: str) -> Block:
    """Return the empty block that a heading begins."""
    rest = line[1:].strip()
    title, _, about = rest.partition(": ")
    title = title.rstrip(":")
    lid = _LID.search(about)
    port = re.search(r"\bport ([0-9]{1,4})\b", about, re.ASCII)
    remark = re.search(r"\(([^()]{1,100})\)\s*$", about)
    return Block(
        title[:60],
        int(lid.group(1)) if lid else None,
        int(port.group(1)) if port else None,
        remark.group(1) if remark else "",
        before,
        {},
    )


def as_dict(block: Block) -> Dict[str, Any]:
    """Return the values in the heading, the first of a block."""
    return {"title": block.title, "lid": block.lid, "port": block.port}
