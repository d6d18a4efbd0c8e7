"""Flight recorder dumps of the ranks of a job, from their nodes; nothing in them is run."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from fabtui.jobs.flight_recorder import FlightDump, flight_dump
from fabtui.jobs.place import Place
from fabtui.jobs.plain_pickle import NotPlain, read_plain
from fabtui.model.facts.node_view import dicts, text
from fabtui.session.one_probe import AskNodes, Reply

#: Maximum size (bytes) of a dump.
_MOST_BYTES = 64 << 20


class Dumps(NamedTuple):
    """Dumps and places by rank, where their files are, and why others are missing."""

    dumps: dict[int, FlightDump]
    places: dict[int, Place]
    files: dict[int, str]
    problems: list[str]


async def collect_dumps(ask: AskNodes, hosts: Sequence[str], arguments: dict[str, Any], deadline: float) -> Dumps:
    """Return the dumps that the probe ``flight`` finds on all nodes."""
    return taken_from(await ask(hosts, "flight", arguments, deadline, lambda _: False))


def taken_from(found: list[Reply]) -> Dumps:
    """Return the dumps in the answers of nodes."""
    taken = Dumps({}, {}, {}, [])
    for reply in found:
        if reply.value is None:
            taken.problems.append(f"{reply.node}: {reply.problem}")
            continue
        packed: dict[int, list[str]] = {}
        for part in reply.parts:
            if isinstance(part.get("rank"), int) and isinstance(part.get("text"), str):
                packed.setdefault(part["rank"], []).append(part["text"])
        for row in dicts(reply.value.get("ranks")):
            rank, pid = row.get("rank"), row.get("pid")
            if not isinstance(rank, int) or not isinstance(pid, int):
                continue
            taken.places[rank] = Place(rank, reply.node, pid)
            problem = text(row.get("problem"))
            dump = None if problem else _dump(packed.get(rank, []))
            if isinstance(dump, FlightDump):
                taken.dumps[rank] = dump
                taken.files[rank] = text(row.get("file")) or ""
            else:
                taken.problems.append(f"rank {rank} on {reply.node}: {problem or dump}")
    return taken


def _dump(packed: list[str]) -> FlightDump | str:
    """Return a dump from its parts, or why it is none; nothing in it is run."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(b"".join(base64.b64decode(piece, validate=True) for piece in packed), _MOST_BYTES)
        if not unpacker.eof:
            return "its dump is cut off or too large"
        dump = flight_dump(read_plain(data))
    except (zlib.error, binascii.Error, NotPlain) as error:
        return f"its dump cannot be read: {error}"
    return dump or "its file is no flight recorder dump"
