"""``perfquery``: the counters of ports, short (they stop at their limit), extended (64 bits), and details."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import dotted_fields, values

_SELECTORS = ("PortSelect", "CounterSelect", "CounterSelect2")


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``perfquery``."""
    if re.search(r"^# (Port (extended )?counters|Port\w+ counters|PortSamplesControl): ", text, re.MULTILINE):
        return 0.97
    if re.search(r"^(SymbolErrorCounter|PortXmitData|PortSelect):\.+\d", text, re.MULTILINE):
        return 0.8
    return 0.0


def parse(text: str) -> Reading:
    """Return ``{"blocks": [{"title", "lid", "port", "extended", "capabilities", "counters", "saturated"}]}``.

    ``extended`` is True if the counters have 64 bits. ``saturated`` names those of the short form that stand at
    their limit: more may have happened. Data is counted in words of 4 bytes. An empty text has no block: nothing is
    known then, it does not mean zero.
    """
    notes = Notes()
    found: List[Dict[str, Any]] = []
    for block in dotted_fields.blocks(text, notes):
        counters: Dict[str, int] = {}
        for name, value in block.fields.items():
            count = values.digits(value)
            if name in _SELECTORS:
                continue
            if count is not None:
                counters[name] = count
            else:
                notes.puzzled("%s: %s" % (name, value))
        extended = "extended" in block.title
        if block.title or counters:
            entry = dotted_fields.as_dict(block)
            short = not extended and block.title in ("Port counters", "")
            entry.update(
                extended=extended,
                capabilities=block.remark or None,
                counters=counters,
                saturated=values.saturated(counters) if short else [],
            )
            found.append(entry)
    if not found and not notes.warnings:
        notes.warn("there are no counters in the text")
    return notes.reading({"blocks": found})


FORMATS = [
    Format(
        "perfquery",
        "perfquery: the counters of InfiniBand ports",
        ("perfquery",),
        {"PortXmitData": "words of 4 B", "PortRcvData": "words of 4 B", "PortXmitWait": "ticks"},
        likely,
        parse,
    )
]
