"""Questions to the nodes of a running job: probes, NCCL RAS, flight recorder dumps, names of addresses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import queue
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.running_job.flight_recorder import FlightDump, flight_dump
from fabtui.diagnosis.running_job.node_evidence import addresses_of, plain_address
from fabtui.diagnosis.running_job.plain_pickle import READER, NotPlain, json_of
from fabtui.diagnosis.running_job.ras_report import RasReport, answer, report_of
from fabtui.diagnosis.running_job.who_is_behind import JobPlace, WhoIsBehind
from fabtui.model.facts.node_view import dicts, text
from fabtui.sanitize import one_line
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions, connector_options
from fabtui.transport.connector import Connector
from fabtui.transport.link import NodeUnreachable
from fabtui_node.parsers.base import Notes

#: Nodes that are asked at the same time.
TOGETHER = 8
#: Maximum size (characters) of the texts of all parts of an answer, and what a part counts besides.
MOST_TEXT = 128 << 20
_A_PART = 1000


class Reply(NamedTuple):
    """Answer of a node: the value and the parts of the probe, or why it gave no answer (``problem``, ``hint``).

    ``backend`` is how it was reached; "" if it was not.
    """

    node: str
    value: dict[str, Any] | None
    parts: list[dict[str, Any]]
    problem: str = ""
    hint: str = ""
    backend: str = ""


#: Returns the open link to a node, or raises ProbeFailed.
ClientOf = Callable[[str], Awaitable[NodeClient]]


#: Returns the answers of nodes to a probe with arguments and a deadline (s), up to one that is enough.
AskNodes = Callable[[Sequence[str], str, dict[str, Any], float, Callable[[Reply], bool]], Awaitable[list[Reply]]]


def over_new_links(options: SessionOptions, notice: Callable[[str], None]) -> AskNodes:
    """Return an asker that opens links. It asks about the Slurm job of the options only."""

    async def ask(
        nodes: Sequence[str], probe: str, args: dict[str, Any], deadline: float, enough: Callable[[Reply], bool]
    ) -> list[Reply]:
        args = {**args, "job": options.job}
        async with Connector(connector_options(options), notice) as connector:
            return await _in_groups(nodes, enough, lambda node: _connect(connector, node, probe, args, deadline))

    return ask


def over_open_links(client_of: ClientOf, job: str) -> AskNodes:
    """Return an asker that uses open links. It asks about one Slurm job only."""

    async def ask(
        nodes: Sequence[str], probe: str, args: dict[str, Any], deadline: float, enough: Callable[[Reply], bool]
    ) -> list[Reply]:
        args = {**args, "job": job}
        return await _in_groups(nodes, enough, lambda node: ask_node(client_of, node, probe, args, deadline))

    return ask


async def ask_node(
    client_of: ClientOf, node: str, probe: str, args: dict[str, Any], deadline: float, most_text: int = MOST_TEXT
) -> Reply:
    """Return the answer of a node over its open link, with parts of at most ``most_text`` characters."""
    try:
        client = await client_of(node)
    except ProbeFailed as failed:
        return Reply(node, None, [], one_line(failed.text, 300))
    return await _ask(client, node, probe, args, deadline, most_text)


async def replies(
    options: SessionOptions,
    probe: str,
    args: dict[str, Any],
    deadline: float,
    enough: Callable[[Reply], bool],
    notice: Callable[[str], None],
) -> list[Reply]:
    """Return the answers of the nodes of the options over links of their own, up to one that is enough."""
    return await over_new_links(options, notice)(options.hosts, probe, args, deadline, enough)


async def _in_groups(
    nodes: Sequence[str], enough: Callable[[Reply], bool], one: Callable[[str], Coroutine[Any, Any, Reply]]
) -> list[Reply]:
    found: list[Reply] = []
    for start in range(0, len(nodes), TOGETHER):
        found += await _together([asyncio.create_task(one(node)) for node in nodes[start : start + TOGETHER]], enough)
        if any(enough(reply) for reply in found):
            break
    return found


async def _together(asked: Sequence[asyncio.Task[Reply]], enough: Callable[[Reply], bool]) -> list[Reply]:
    """Return the answers of nodes that are asked at the same time, up to the first that is enough."""
    found: list[Reply] = []
    try:
        for answer in asyncio.as_completed(asked):
            found.append(await answer)
            if enough(found[-1]):
                break
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return found


async def _connect(connector: Connector, node: str, probe: str, args: dict[str, Any], deadline: float) -> Reply:
    try:
        async with _client(connector, node) as client:
            return await _ask(client, node, probe, args, deadline)
    except NodeUnreachable as failed:
        return Reply(node, None, [], one_line(failed.text, 300), failed.hint or "")


async def _ask(
    client: NodeClient, node: str, probe: str, args: dict[str, Any], deadline: float, most_text: int = MOST_TEXT
) -> Reply:
    parts: list[dict[str, Any]] = []
    size = 0

    def take(part: dict[str, Any]) -> None:
        nonlocal size
        size += _A_PART + len(str(part.get("text", ""))) + len(str(part.get("head", "")))
        if size <= most_text:
            parts.append(part)

    try:
        value = await client.probe(probe, args, deadline, take)
    except ProbeFailed as failed:
        return Reply(node, None, parts, one_line(failed.text, 300), backend=client.link.backend)
    return Reply(node, value, parts, backend=client.link.backend)


@contextlib.asynccontextmanager
async def _client(connector: Connector, node: str) -> AsyncIterator[NodeClient]:
    client = NodeClient(await connector.open(node))
    reading = asyncio.create_task(read_messages(client))
    try:
        yield client
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.link.close()


async def read_messages(client: NodeClient) -> None:
    """Receive messages, of which only answers to the probe matter."""
    async for _ in client.messages():
        pass


#: Time (s) for the reports, without the time between them.
_DEADLINE = 90.0


class RasInquiry(NamedTuple):
    """Result of the question."""

    replies: list[Reply]  #: The answers of the nodes that were asked.
    node: str  #: The node that has a report; "" if none has.
    address: str  #: The address of its service.
    report: RasReport | None  #: The latest report, or None.
    answer: WhoIsBehind | None  #: Who is behind; None without a report.
    names: dict[str, str]  #: Names of nodes by address.
    notes: Notes  #: What in the report was not understood.


async def inquire(ask: AskNodes, hosts: Sequence[str], address: str, wait: float) -> RasInquiry:
    """Ask nodes until one has a report; ask it again after ``wait`` seconds (0: once)."""
    arguments = {"address": address, "wait": wait}
    found = await ask(hosts, "ras", arguments, _DEADLINE + wait, lambda reply: bool(texts_of(reply)))
    names = {address: reply.node for reply in found for address in addresses_of(reply.value or {})}
    asked = next((reply for reply in found if texts_of(reply)), None)
    notes = Notes()
    if asked is None:
        return RasInquiry(found, "", "", None, None, names, notes)
    texts = texts_of(asked)
    latest = report_of(texts[-1], notes)
    earlier = report_of(texts[0], Notes()) if len(texts) > 1 else None
    if any(host not in names and host not in hosts for host in latest.hosts()):
        names = {**await resolved(hosts), **names}
    # A job on one node may use the loopback interface.
    names.update({host: asked.node for host in latest.hosts() if host.startswith("127.") or host == "::1"})
    latest.rename(names)
    who = answer(latest, earlier)
    if stopped := stopped_ranks(asked):
        who.sentences.append(stopped)
    where = next((str(part.get("address", ""))[:300] for part in asked.parts if part.get("address")), "")
    return RasInquiry(found, asked.node, where, latest, who, names, notes)


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


def processes(reply: Reply) -> list[dict[str, Any]]:
    """Return the processes with a rank on a node."""
    found = (reply.value or {}).get("processes")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def stopped_ranks(reply: Reply) -> str:
    """Return which processes with a rank are stopped on a node, or nothing."""
    stopped = [str(one.get("pid")) for one in processes(reply) if one.get("state") in ("T", "t")]
    if not stopped:
        return ""
    return f"stopped (state T) on {reply.node}: process {', '.join(stopped[:8])}; kill -CONT resumes it"


#: Maximum size (bytes) of a dump.
_MOST_BYTES = 64 << 20
#: Maximum time (s) in which the dumps of one node are read.
_READING = 60.0


class Dumps(NamedTuple):
    """Dumps and places by rank, where their files are, and why others are missing."""

    dumps: dict[int, FlightDump]
    places: dict[int, JobPlace]
    files: dict[int, str]
    problems: list[str]


async def collect_dumps(ask: AskNodes, hosts: Sequence[str], arguments: dict[str, Any], deadline: float) -> Dumps:
    """Return the dumps that the probe ``flight`` finds on all nodes."""
    return await taken_from(await ask(hosts, "flight", arguments, deadline, lambda _: False))


async def taken_from(found: list[Reply]) -> Dumps:
    """Return the dumps in the answers of nodes."""
    taken = Dumps({}, {}, {}, [])
    clock = asyncio.get_running_loop().time
    for reply in found:
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


#: Threads that resolve names, and the time (s) for all of them.
_THREADS = 16
_RESOLVING = 3.0


async def resolved(hosts: Sequence[str], deadline: float = _RESOLVING) -> dict[str, str]:
    """Return node names by the addresses that this machine resolves them to before the deadline.

    An address that two names resolve to is left out.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for host in hosts:
        waiting.put(host)
    found: dict[str, set[str]] = {}
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    left = len(hosts)

    def take(host: str, addresses: list[str]) -> None:
        nonlocal left
        for address in addresses:
            found.setdefault(address, set()).add(host)
        left -= 1
        if not left:
            done.set()

    def resolve() -> None:
        with contextlib.suppress(queue.Empty, RuntimeError):
            while True:
                host = waiting.get_nowait()
                loop.call_soon_threadsafe(take, host, addresses_of_name(host))

    for number in range(min(_THREADS, len(hosts))):
        # A resolver that hangs cannot be interrupted, and must not keep this process from ending.
        threading.Thread(target=resolve, name=f"resolve-{number}", daemon=True).start()
    if hosts:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), deadline)
    return {address: next(iter(names)) for address, names in found.items() if len(names) == 1}


def addresses_of_name(host: str) -> list[str]:
    """Return the addresses of a name other than loopback, none if it is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = {plain_address(str(entry[4][0])) for entry in found}
    return sorted(one for one in addresses if not one.startswith("127.") and one != "::1")
