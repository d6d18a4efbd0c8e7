"""Dumps of PyTorch's flight recorder; a pickle has become JSON when its file was read."""

from __future__ import annotations

import json
from typing import Any

from fabtui.jobs.flight_recorder import FlightDump, flight_dump
from fabtui_node.parsers.base import Format, Notes, Reading, first_of

NAME = "flight-recorder"


def dump_of(text: str) -> FlightDump | None:
    """Return the dump in a text, None if it has none that is complete."""
    start = text.find("{")
    try:
        value, _ = json.JSONDecoder(parse_constant=lambda _: None).raw_decode(text, max(start, 0))
    except (ValueError, RecursionError):
        return None
    return flight_dump(value)


def parse(text: str) -> Reading:
    """Return what one rank has called and what is unfinished; who is behind takes the dumps of all ranks."""
    notes = Notes()
    dump = dump_of(text)
    if dump is None:
        notes.warn("the dump is incomplete: nothing of it can be read")
        return notes.reading({})
    return notes.reading(values_of(dump))


def values_of(dump: FlightDump) -> dict[str, Any]:
    """Return the dump of a rank as JSON-able values."""
    return {
        "version": dump.version or None,
        "library": dump.library or None,
        "entries": dump.entries,
        "groups": [
            {
                "group": group.description,
                "name": group.name,
                "ranks": len(group.members) or None,
                "called": group.called,
                "finished": group.finished,
                "unfinished": len(group.unfinished),
                **({"waits_in": f"{call.operation} {call.number}", "site": call.site or None} if call else {}),
            }
            for group in dump.groups.values()
            for call in [next(iter(group.unfinished), None)]
        ],
    }


_LIKELY = first_of(
    (0.97, r'"(?:collective_seq_id|p2p_seq_id)"\s*:'),
    (0.95, r'"pg_status"\s*:\s*\{'),
)
_TITLE = "PyTorch flight recorder: collectives, sends and receives of each rank, who is behind"
FORMATS = [Format(NAME, _TITLE, _LIKELY, parse, aliases="torchfrtrace|nccl-trace|fr")]
