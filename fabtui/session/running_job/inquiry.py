"""Questions to the nodes of a running job: probes, NCCL RAS, flight recorder dumps."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fabtui.diagnosis.job.flight_recorder import FlightDump, flight_dump
from fabtui.diagnosis.job.plain_pickle import READER, NotPlain, json_of
from fabtui.diagnosis.job.who_is_behind import JobPlace
from fabtui.model.facts.node_view import dicts, text
from fabtui.sanitize import one_line
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.transport.link import Message

#: Maximum size (characters) of the texts of all parts of an answer, and what a part counts besides.
MOST_TEXT = 128 << 20
_A_PART = 1000
#: Maximum size (bytes) of a dump.
_MOST_BYTES = 64 << 20
#: Maximum time (s) in which the dumps of one node are read.
_READING = 60.0


class Reply(NamedTuple):
    """Answer of a node: the value and the parts of the probe, or why it gave no answer (``problem``)."""

    node: str
    value: Message | None
    parts: list[Message]
    problem: str = ""


#: Returns the open link to a node, or raises ProbeFailed.
ClientOf = Callable[[str], Awaitable[NodeClient]]


async def ask_node(
    client_of: ClientOf, node: str, probe: str, args: Message, deadline: float, most_text: int = MOST_TEXT
) -> Reply:
    """Return the answer of a node over its open link, with parts of at most ``most_text`` characters."""
    parts: list[Message] = []
    size = 0

    def take(part: Message) -> None:
        nonlocal size
        size += _A_PART + len(str(part.get("text", ""))) + len(str(part.get("head", "")))
        if size <= most_text:
            parts.append(part)

    try:
        client = await client_of(node)
        return Reply(node, await client.probe(probe, args, deadline, take), parts)
    except ProbeFailed as failed:
        return Reply(node, None, parts, one_line(failed.text, 300))


async def read_messages(client: NodeClient) -> None:
    async for _ in client.messages():
        pass


def texts_of(reply: Reply) -> list[str]:
    """Return the whole reports in the answer of a node, the latest last."""
    texts: dict[int, list[str]] = {}
    for part in reply.parts:
        number, text = part.get("report"), part.get("text")
        if number in (0, 1) and isinstance(text, str):
            texts.setdefault(number, []).append(text)
    complete = reply.value.get("reports") if reply.value else None
    # A report that the deadline cut off may have left parts.
    return ["".join(texts[number]) for number in sorted(texts)][: complete if isinstance(complete, int) else 0]


class Dumps(NamedTuple):
    """Dumps and places by rank, where their files are, and why others are missing."""

    dumps: dict[int, FlightDump]
    places: dict[int, JobPlace]
    files: dict[int, str]
    problems: list[str]


async def taken_from(replies: list[Reply]) -> Dumps:
    taken = Dumps({}, {}, {}, [])
    clock = asyncio.get_running_loop().time
    for reply in replies:
        end = clock() + _READING
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
            taken.places[rank] = JobPlace(rank, reply.node, pid)
            problem = text(row.get("problem"))
            if not problem and clock() > end:
                problem = f"the dumps of its node took more than {_READING:.0f} s to read"
            dump = None if problem else await _dump(packed.get(rank, []))
            if isinstance(dump, FlightDump):
                taken.dumps[rank] = dump
                taken.files[rank] = text(row.get("file")) or ""
            else:
                taken.problems.append(f"rank {rank} on {reply.node}: {problem or dump}")
    return taken


async def _dump(packed: list[str]) -> FlightDump | str:
    """Return a dump from its parts, or why it cannot be read; no code in it is run."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(b"".join(base64.b64decode(piece, validate=True) for piece in packed), _MOST_BYTES)
        if not unpacker.eof:
            return "its dump is cut off or too large"
        dump = flight_dump(json.loads(await _json_of_pickle(data)))
    except (zlib.error, ValueError, NotPlain) as error:
        return f"its dump cannot be read: {error}"
    return dump or "its file is not a flight recorder dump"


async def _json_of_pickle(data: bytes) -> str:
    """Return the value of a pickle as JSON text; raise `NotPlain` if it holds more or takes too much."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*READER, stdin=pipe, stdout=pipe, stderr=null)
    try:
        printed, _ = await process.communicate(data)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return json_of(printed, await process.wait())
