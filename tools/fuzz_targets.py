"""Targets of `fuzz.py`: what is read from nodes, files and users, each with its seeds and the errors it may raise.

A target takes bytes. Where it has several readers, the first byte chooses one.
"""

import argparse
import asyncio
import atexit
import base64
import bz2
import contextlib
import functools
import gzip
import importlib
import io
import itertools
import json
import lzma
import os
import pickle
import pkgutil
import random
import re
import shlex
import shutil
import socket
import sqlite3
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from fabtui.cli.options_from_args import nodes_from, request_from
from fabtui.config.file import merged, read_config
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.job import flight_recorder
from fabtui.diagnosis.job import ras_report as ras_answer
from fabtui.diagnosis.job.flight_recorder import flight_dump
from fabtui.diagnosis.job.logs.job_logs import JobLogs
from fabtui.diagnosis.job.logs.job_rules import report_of as job_report
from fabtui.diagnosis.job.logs.report import JobFacts
from fabtui.diagnosis.job.plain_pickle import NotPlain, read_plain
from fabtui.diagnosis.job.ras_report import report_of as ras_report
from fabtui.diagnosis.knowledge.next_commands import by_hand, path_commands
from fabtui.diagnosis.links.rdma_ports import pair_notes
from fabtui.diagnosis.node_faults import node_faults
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.errors import InputError
from fabtui.export import history as history_output
from fabtui.export.csv import COLUMNS, rows
from fabtui.export.json import as_json
from fabtui.history.entry import add_recordings
from fabtui.history.file import HistoryWriter, reading
from fabtui.history.query import RememberedFindings, read_overview
from fabtui.importers import sources
from fabtui.importers.catalogue import formats, formats_in
from fabtui.importers.formats.job_dumps import FlightDumps
from fabtui.importers.result import Result, read
from fabtui.importers.to_model.dispatch import convertible, events, model
from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.model.recording import apply_recorded, read_events
from fabtui.model.session_model import Model
from fabtui.nodeset import chosen_nodes, expand, expand_listed, fold, read_hosts
from fabtui.presentation.cell_levels import ASCII, Glyphs
from fabtui.presentation.findings import title
from fabtui.presentation.job_lines import job_text
from fabtui.presentation.topology import Topology, flat
from fabtui.report.history import history_blocks
from fabtui.report.imported_output import text_of
from fabtui.report.preflight import preflight_text
from fabtui.report.summary import summary
from fabtui.report.text import text as report_text
from fabtui.sanitize import clean, last_line, one_line, printable
from fabtui.scheduler import current_job, slurm
from fabtui.scheduler.base import ToolOutput
from fabtui.scheduler.slurm import JobStatus, node_values, status_of
from fabtui.session.endpoint_admission import Admission
from fabtui.session.measure.p2p_result import Side
from fabtui.session.node_client import NodeClient
from fabtui.session.ranks.rank_host import HostMessage, RankHost, RankSettings, Report, exit_reason
from fabtui.session.ranks.rendezvous_store import StoreMember, StoreServer
from fabtui.sharing.identities import Identities
from fabtui.sharing.rewriter import Rewriter
from fabtui.sharing.session_file import SessionFile
from fabtui.sharing.suspect import suspects
from fabtui.transport.byte_pipe import BytePipe, Ending
from fabtui.transport.framed_link import FramedLink, Limits
from fabtui.transport.known_hosts import load_file
from fabtui.transport.link import LinkLost, NodeUnreachable
from fabtui.transport.ssh_config import (
    ConfigBroken,
    SshSettings,
    check_host,
    expand_path,
    parse,
    parse_jumps,
    unsupported_setting,
)
from fabtui_node import protocol
from fabtui_node.parsers.base import UNKNOWN_LINES, UNKNOWN_WIDTH, Notes
from fabtui_node.runtime import processes
from fabtui_node.runtime.supervisor import ChildProcesses, Supervisor

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "samples"
#: Outputs of others, which are not part of the repository.
REAL = Path(os.environ.get("FABTUI_REAL_SAMPLES", "/nonexistent"))
#: Longest seed (bytes); longer samples are cut into their beginning.
LONGEST = 3000


class Leak(Exception):
    """A text for a terminal contains characters that the reader should have removed."""


class Target(NamedTuple):
    """A reader of untrusted input.

    Attributes:
        run: Reads the bytes.
        seeds: Yields inputs to begin with.
        refusals: Errors by which input may be refused.
        about: What it covers.
        json_lines: Whether the input is lines of JSON objects, which are then changed as such, too.
    """

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    refusals: tuple[type[Exception], ...]
    about: str
    json_lines: bool = False


def _fit(text: str) -> None:
    if printable(text) != text or "\x1b" in text:
        raise Leak(repr(next(line for line in text.splitlines(keepends=True) if printable(line) != line))[:300])


def _refused(error: Exception) -> None:
    """Check the text of a refusal: one line with words in it."""
    if not str(error).strip():
        raise Leak("a refusal without words")
    _fit(one_line(str(error)))


def _choice(data: bytes, count: int) -> tuple[int, bytes]:
    return (data[0] % count, data[1:]) if data else (0, b"")


def _samples() -> Iterator[bytes]:
    for folder in (SAMPLES, REAL):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".md", ".pickle", ".gz"):
                yield path.read_bytes()[:LONGEST]


@functools.cache
def place() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(data: bytes, name: str = "input") -> Path:
    path = place() / name
    path.write_bytes(data)
    return path


# The wire


class _Pipe(BytePipe):
    def __init__(self, pieces: list[bytes], errors: bytes) -> None:
        self._pieces, self._errors = pieces, [errors]

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def read_error(self) -> bytes:
        return self._errors.pop(0) if self._errors else b""

    async def write(self, data: bytes) -> None:
        return

    def write_eof(self) -> None:
        return

    async def ending(self) -> Ending:
        return Ending(status=0)

    def abort(self) -> None:
        return

    async def wait_closed(self) -> None:
        return


def _frames(data: bytes) -> list[bytes]:
    """Return the frames of lines of JSON, or with the first byte odd, the bytes themselves in pieces."""
    raw, rest = _choice(data, 2)
    if raw:
        return [rest[at : at + 97] for at in range(0, len(rest), 97)]
    return [len(line).to_bytes(4, "big") + line for line in rest.split(b"\n") if line]


def _take_report(report: Report) -> None:
    if isinstance(report, HostMessage):
        Side.read(report.message)


async def _from_node(data: bytes) -> None:
    """Read what a node sends: banner, hello, and messages for probes and the rank host."""
    nonce = "ab"
    hello = protocol.encode({"t": "hello", "protocol": protocol.VERSION, "pid": 1, "python": "3", "host": "n"})
    banner, _, body = data[:-1].partition(b"\n===\n") if data[-1:] == b"B" else (b"", b"", data)
    start = [banner + protocol.marker(nonce) + (b"" if banner else hello)]
    pipe = _Pipe([*start, *_frames(body)], banner)
    limits = Limits(heartbeat=600, start=30)
    link = await FramedLink.start(pipe, "n0", "asyncssh", b"payload", nonce, limits)
    client = NodeClient(link)
    store = StoreServer()
    store.begin("e/1/", {0: StoreMember("n0", "10.0.0.1"), 1: StoreMember("n1", "10.0.0.2")}, gloo=True)
    host = RankHost(client, Admission([], ""), RankSettings("gloo", 1.0), store)
    host.subscribers.append(_take_report)
    probe = asyncio.ensure_future(client.probe("x", {}, 30, lambda _: None))
    spawning = asyncio.ensure_future(client.spawn({}, {}, None, 30))
    await asyncio.sleep(0)
    async for message in client.messages():
        if message["t"] == "rank":
            host.receive(message["m"])
        elif message["t"] == "exit":
            _fit(exit_reason("n0", message)[0])
    await asyncio.sleep(0)
    await link.close()
    store.close()
    await asyncio.gather(probe, spawning, *host._tasks, return_exceptions=True)
    if client.lost is not None and "a message cannot be read" in client.lost.text:
        raise Leak(client.lost.text)
    for text in (link.banner, link.stderr_tail(), client.lost.text if client.lost else ""):
        _fit(text)


#: Errors of tasks that nobody waits for.
_UNSEEN: list[BaseException] = []


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: _UNSEEN.append(context.get("exception") or Leak(context["message"])))
    return loop


def _ended(work: Coroutine[Any, Any, None]) -> None:
    """Run what ends; an error of one of its tasks is its own."""
    _UNSEEN.clear()
    _loop().run_until_complete(work)
    if _UNSEEN:
        raise _UNSEEN[0]


async def _stored(data: bytes) -> None:
    """Answer messages of three nodes to the store, about a test of each two and one of all."""
    store = StoreServer()
    nodes = {f"n{at}": f"10.0.0.{at + 1}" for at in range(3)}
    for prefix, ranks, gloo in (("e/1/", (0, 1), True), ("e/2/", (1, 2), False), ("e/3/", (0, 1, 2), True)):
        store.begin(prefix, {rank: StoreMember(f"n{rank}", nodes[f"n{rank}"]) for rank in ranks}, gloo=gloo)
    lost: set[str] = set()
    answered = 0

    def answer(reply: dict[str, Any]) -> None:
        nonlocal answered
        answered += 1
        protocol.encode({"t": "rank", "m": reply})

    def held() -> dict[str, str | int]:
        return {key: one for test in store._tests.values() for key, one in test.values.items()}

    for number, line in enumerate(data.split(b"\n")[:200]):
        try:
            request = protocol.decode(line)
        except protocol.ProtocolError:
            continue
        node = f"n{request.get('node', 0)}"
        if node not in nodes or node in lost:
            continue
        before = held()
        try:
            store.handle(node, request, answer)
        except LinkLost:
            lost.add(node)
        for key in before.keys() ^ held().keys():
            if key.startswith({"n0": "e/2/", "n2": "e/1/"}.get(node, "none")):
                raise Leak(f"{node} changed {key}")
        if number % 50 == 49:
            store.forget("e/1/")
    size = sum(100 + len(key) + (len(one) if isinstance(one, str) else 0) for key, one in held().items())
    if size != store._size:
        raise Leak(f"{size} bytes are counted as {store._size}")
    store.close()
    if any(store._asking.values()):
        raise Leak("requests are left")


def _requests() -> Iterator[bytes]:
    hello = base64.b64encode(b'{"address": "10.0.0.1", "port": 1}').decode()
    sockaddr = base64.b64encode(b"\2\0\0\1\x0a\0\0\1" + bytes(128)).decode()
    nccl = base64.b64encode(bytes(8) + b"\2\0\0\1\x0a\0\0\2" + bytes(112)).decode()
    for prefix in ("e/1/", "e/2/", "e/3/"):
        yield b"\n".join(
            json.dumps({"op": "store", "node": node, "q": node, "timeout": 1, **request}).encode()
            for node in (0, 1, 2)
            for request in (
                {"cmd": "set", "key": f"{prefix}hello/{node}", "value": hello},
                {"cmd": "swap", "key": f"{prefix}here/{node}", "peer": f"{prefix}here/1", "value": "YQ=="},
                {"cmd": "set", "key": f"{prefix}link1/0/{node}", "value": sockaddr},
                {"cmd": "set", "key": f"{prefix}link1/id", "value": nccl},
                {"cmd": "wait", "key": [f"{prefix}hello/0", f"{prefix}hello/1"]},
                {"cmd": "add", "key": f"{prefix}count", "value": 1},
                {"cmd": "compare_set", "key": f"{prefix}x", "expected": "", "value": "YQ=="},
                {"cmd": "set", "key": f"{prefix}0>1/end/src", "value": "YQ=="},
                {"cmd": "delete", "key": f"{prefix}x"},
                {"cmd": "get", "key": f"{prefix}hello/1"},
                {"cmd": "check", "key": [f"{prefix}x"]},
                {"cmd": "num_keys"},
            )
        )


def _json_lines(*messages: Any) -> bytes:
    return b"\0" + b"\n".join(json.dumps(message).encode() for message in messages)


def _of_nodes() -> Iterator[bytes]:
    side = {"op": "side", "id": 1, "src": 0, "dst": 1, "role": "dst", "ok": True, "timeout": False, "phase": "transfer"}
    side |= {"bytes": 9, "rate": 1e9, "latency": None, "transport": "SHM", "times": {"count": 3, "min": 1e-3}}
    ready = {"op": "ready", "engine": "gloo", "version": "2", "port": 1, "seconds": {"import": 1.0}}
    ready |= {"ranks": [{"rank": 0, "ok": True, "error": None}]}
    store = {"op": "store", "q": 1, "cmd": "set", "key": "e/1/x", "value": "YWI=", "timeout": 1}
    ranks = [{"t": "rank", "m": message} for message in (side, ready, store)]
    for command in ("get", "add", "check", "wait", "compare_set", "delete", "num_keys"):
        change = {**store, "cmd": command, "expected": "YQ==", "value": 1 if command == "add" else "YQ=="}
        yield _json_lines({"t": "rank", "m": store}, {"t": "rank", "m": {**change, "key": ["e/1/x"]}})
        yield _json_lines({"t": "rank", "m": store}, {"t": "rank", "m": change})
    yield _json_lines({"t": "hb", "n": 1, "rank": True}, {"t": "spawned", "pid": 1, "python": "x"}, *ranks)
    failed = {"t": "result", "id": 1, "ok": False, "error": {"kind": "failed", "text": "x"}}
    yield _json_lines({"t": "part", "id": 1, "value": {}}, failed, {"t": "log", "text": "\x1b[2J"})
    ended = {"t": "exit", "code": None, "signal": 9, "stderr": "a\nb"}
    yield _json_lines({"t": "spawned", "pid": 1, "python": "x"}, {"t": "stopped", "on": True}, ended)
    yield b"\x01" + protocol.encode({"t": "hb", "n": 1}) + protocol.encode(ended)
    yield b"Welcome\r\nto n0\n===\n" + _json_lines({"t": "hello", "protocol": 1}) + b"B"


class _Children(ChildProcesses):
    """Children that are never started."""

    def _ask(self, frame: bytes, descriptors: Iterable[int] = ()) -> None:
        self.asked = protocol.Decoder(pieces=True).feed(frame)

    def clear(self) -> None:
        for rank in (self._rank, self._spare):
            if rank is not None:
                rank.close()
        if self._worker is not None:
            self._worker.close()
        self._printed.close()


def _supervisor(data: bytes) -> None:
    """Obey what a controller sends, without starting processes."""
    near, far = socket.socketpair()
    listen, printed = os.pipe()
    source, feed = os.pipe()
    null, sink = os.pipe()
    with near, far, mock.patch.object(processes, "choose_python", return_value="/usr/bin/python3"):
        children = _Children(near, listen, {"env": {}})
        supervisor = Supervisor(source, sink, children, {"nonce": "ab", "lease": 10})
        try:
            for piece in _frames(data):
                for at in range(0, len(piece), 4096):
                    os.write(feed, piece[at : at + 4096])
                    supervisor._listen()
                if supervisor._why is not None:
                    break
            supervisor._settle(1e9)
            supervisor._out.drop()
        finally:
            children.clear()
            for number in (printed, source, feed, null, sink):
                os.close(number)


def _of_controllers() -> Iterator[bytes]:
    probe = {"t": "probe", "id": 1, "name": "host", "args": {}, "deadline": 5}
    order = {"argv": None, "env": {"A": "b"}, "config": {"engine": "gloo"}}
    yield _json_lines({"t": "hb", "n": 1}, probe, probe, {**probe, "id": 2, "deadline": 1e9})
    yield _json_lines(
        {"t": "standby", "on": True, **order}, {"t": "spawn", **order}, {"t": "rank", "m": {"op": "quit"}}
    )
    yield _json_lines({"t": "spawn", **order, "argv": ["a", "b"]}, {"t": "kill"}, {"t": "standby", "on": False})
    yield _json_lines({"t": "bye"})
    yield b"\x01" + protocol.encode_piece(b"abc", True) + protocol.encode(probe)


# Recordings


def _recording(data: bytes) -> None:
    path = _file(data)
    found = Model()
    damage: InputError | None = None
    try:
        for event in read_events(path):
            apply_recorded(found, event, path)
    except InputError as error:
        damage = error
    _shown(found)
    if damage is not None:
        raise damage


def _shown(found: Model) -> None:
    _fit(summary(diagnose(found), True))
    _fit(preflight_text(found, preflight(found), None, "", 100, True, True, False))
    json.dumps(as_json(diagnose(found)), allow_nan=False)
    rows(found)
    _viewed(found)


def _viewed(found: Model) -> None:
    """Draw the views of nodes, of some pairs and of the topology."""
    from fabtui.screen.views.node import node_lines
    from fabtui.screen.views.nodes import node_rows, pair_counts
    from fabtui.screen.views.pair import hops, path_lines

    diagnosis, glyphs = diagnose(found), Glyphs(plain=False)
    faults = node_faults(diagnosis.tally, diagnosis.findings)
    node_rows(found, diagnosis.tally, faults, pair_counts(diagnosis.tally, faults), {}, {}, 0.0)
    for record in found.nodes.values():
        node_lines(found, record, preflight(found), 120, glyphs, lambda finding: [])
    for src, dst in itertools.permutations(found.endpoints[:3], 2):
        measurement = next(iter(found.measurements()), None)
        path_lines(hops(found, src, dst, measurement), (src.node, dst.node), 120, glyphs)
        path_commands(found, src, dst, measurement)
        by_hand(found, str(src), str(dst))
        pair_notes(found, str(src), str(dst))
    flat(Topology(found, diagnosis.tally, faults, None, glyphs).roots())


def _recordings() -> Iterator[bytes]:
    """Yield the start of each recording with one event of each other kind, and with the results of one probe."""
    for path in sorted((ROOT / "tests" / "samples" / "sessions").glob("*.jsonl.gz")):
        lines = [line for line in gzip.decompress(path.read_bytes()).splitlines() if len(line) < 2 * LONGEST]
        by_kind: dict[tuple[str, str], list[bytes]] = {}
        for line in lines:
            value = json.loads(line)
            by_kind.setdefault((value["kind"], str(value.get("probe", ""))), []).append(line)
        start = [line for kind in ("start", "node", "endpoints", "phase") for line in by_kind.get((kind, ""), [])[:4]]
        for (kind, _), found in by_kind.items():
            if kind not in ("start", "node", "endpoints", "phase"):
                yield b"\n".join([*start, *found[:2]]) + b"\n"
        yield b"\n".join([*start, *(found[0] for (kind, _), found in by_kind.items() if kind != "start")]) + b"\n"
    yield from _probed_sessions()


def _probed_sessions() -> Iterator[bytes]:
    """Yield a session for each probe that no recording has, with what a node may send."""
    from tests.screen.fakefeed import sweep_of_two
    from tests.screen.fakeprobes import PROBED

    story = [json.dumps(event.to_json()).encode() for event in sweep_of_two().events]
    for probe, value in PROBED.items():
        results = [{"kind": "look", "node": node, "probe": probe, "value": value} for node in ("n000", "n001")]
        yield b"\n".join([*story, *(json.dumps(one).encode() for one in results)]) + b"\n"


def _share(data: bytes) -> None:
    """Rewrite a session file as `fabtui share` does; the copy is of the same kind and holds no name of a node."""
    source = SessionFile(_file(data))
    identities = Identities(("orca",))
    for value in source.values():
        identities.gather(value)
    rewriter = Rewriter(identities, b"key")
    copy = io.BytesIO()
    source.write(rewriter.value, copy)
    suspects(rewriter)
    again = SessionFile(_file(copy.getvalue(), "copy"))
    if again.kind != source.kind:
        raise Leak(f"a {source.kind} became a {again.kind}")
    hosts = {name for name in identities.hosts if len(name) > 9 and name.isalnum() and any(map(str.isdigit, name))}
    text = copy.getvalue().decode().lower()
    for name in hosts:
        if re.search(rf"(?<![0-9a-z]){name}(?![0-9a-z])", text):
            raise Leak(f"{name} is in the copy")


def _session_files() -> Iterator[bytes]:
    names = {
        "src": "node00417x:0",
        "dst": "node00418x:0",
        "layer": "p2p",
        "verdict": "ok",
        "value": 1.5,
        "unit": "GB/s",
    }
    yield b",".join(name.encode() for name in COLUMNS) + b"\nnode00417x:0,node00418x:0,ok\n"
    yield json.dumps({"software": "fabtui 0.2.0", "nodes": ["node00417x"], "pairs": [names]}).encode()
    texts = (
        "gid fe80::1 of node00417xib0",
        "131.0.0.7 10.1.2.0/24 50:6b:4b:c7:12:34",
        "/home/al/x al@node00417x [::1]:22",
        "--token aB3d password='x y' Cookie: a=b; eyJhbGciOi.eyJzdWIi.x ip-10-1-2-3 enx9c63c0aabb47",
    )
    start = {"kind": "start", "seq": 1, "time": 1.0, "nodes": ["node00417x"], "options": {}, "version": "0.2.0"}
    logs = [{"kind": "log", "seq": 2 + at, "time": 2.0, "level": "info", "text": text} for at, text in enumerate(texts)]
    yield b"\n".join(json.dumps(one).encode() for one in (start, *logs)) + b"\n"
    yield from itertools.islice(_recordings(), 20)


# The history of a site


@functools.cache
def _good_history() -> bytes:
    from tests.past import write_past

    path = write_past(place() / "good.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as base:
        # One file, without a log beside it.
        base.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def _history(data: bytes) -> None:
    """Add a recording to a history, or read one with foreign values or damaged pages; then write a session into it."""
    from tests.past import MOVED, entry

    number, rest = _choice(data, 4)
    for old in place().glob("history.*"):
        old.unlink()
    path = _file(_damaged(rest) if number == 2 else _good_history(), "history.sqlite")
    path.chmod(0o600)
    if number == 0:
        for _, problem in add_recordings([_file(rest, "recording.jsonl")], path, title):
            _fit(one_line(problem))
    elif number == 1:
        _replace_values(path, rest)
    elif number == 3:
        with contextlib.closing(sqlite3.connect(path)) as base, contextlib.suppress(sqlite3.Error):
            base.executescript("".join(_SCHEMAS[byte % len(_SCHEMAS)] for byte in rest[:4]))
    for subject in ("", "n061", MOVED):
        found = read_overview(path, 0.0, subject, courses=3)
        _fit(report_text(history_blocks(found, ASCII, 100), 100, True))
        json.loads(history_output.json_text(found))
        history_output.csv_text(found)
    with reading(path) as base:
        if base is not None:
            RememberedFindings(base, path, float("inf"))
    HistoryWriter(path).add([entry(9, later=1e6)])


def _damaged(data: bytes) -> bytes:
    """Return a history with some of its bytes replaced: each five of the input are a place and a byte."""
    whole = bytearray(_good_history())
    for at in range(0, len(data) - 4, 5):
        whole[int.from_bytes(data[at : at + 4], "big") % len(whole)] = data[at + 4]
    return bytes(whole)


def _replace_values(path: Path, data: bytes) -> None:
    """Replace values of a history, one for each line of JSON."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA synchronous = OFF")
        for line in data.split(b"\n")[:50]:
            try:
                table, column, key, value = json.loads(line)
                where = "1" if key is None else f"rowid = {int(key)}" if table in _WITH_ROWID else "component = 1"
                base.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))  # noqa: S608  # nosec B608
            except (ValueError, TypeError, RecursionError, OverflowError, sqlite3.Error):
                # No change of a value.
                continue
        base.commit()


_WITH_ROWID = ("session", "component", "finding")
#: What others may add to the tables of a history: queries that run when it is read or written.
_ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
_SCHEMAS = [
    text.format(table)
    for table in ("session", "component", "stay", "seen", "share", "usual", "finding", "reading")
    for text in (
        f"ALTER TABLE {{0}} RENAME TO old_{{0}}; CREATE VIEW {{0}} AS {_ENDLESS};",
        "CREATE TRIGGER t_{0} AFTER INSERT ON {0} BEGIN DELETE FROM component; END;",
        "ALTER TABLE {0} ADD COLUMN more AS (randomblob(1e6));",
        "CREATE INDEX i_{0} ON {0}(abs(1));",
        "DROP TABLE {0};",
    )
]


def _histories() -> Iterator[bytes]:
    yield from (b"\0" + data for data in itertools.islice(_recordings(), 0, None, 5))
    with contextlib.closing(sqlite3.connect(_file(_good_history(), "seed.sqlite"))) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            lines = [[table, column, 1, base.execute(f"SELECT {column} FROM {table}").fetchone()] for column in columns]  # noqa: S608  # nosec B608
            lines = [[*line[:3], line[3] and line[3][0]] for line in lines]
            yield b"\x01" + b"\n".join(json.dumps(line).encode() for line in lines)
            for *names, _ in lines:
                yield b"\x01" + json.dumps([*names, None]).encode()
                yield b"\x01" + json.dumps([*names, "x"]).encode()
    yield from (b"\3" + bytes([number]) for number in range(len(_SCHEMAS)))
    for at in (18, 24, 40, 56, 60, 68, 100, 4096, 8200, 20000):
        yield b"\2" + at.to_bytes(4, "big") + b"\xff" + (at + 1).to_bytes(4, "big") + b"\0"


# Files of other tools


def _json_of_pickle(data: bytes) -> str:
    """Return what the reader of pickles prints, which is a process of its own: none is started here."""
    return json.dumps(read_plain(data))


def _imported(data: bytes) -> None:
    """Read a file, packed or not, as the kind it looks like or as any other."""
    kinds = [None, *(name for name, form in formats().items() if form.parse.__module__.startswith("fabtui."))]
    number, rest = _choice(data, len(kinds))
    try:
        with mock.patch.object(sources, "_json_of_pickle", _json_of_pickle):
            source = next(sources._texts("file_3", io.BytesIO(rest)))
    except InputError:
        return
    # Tables take far longer than reading.
    _judged(read(source, kinds[number]), tables=len(rest) % 4 == 0)


def _judged(result: Result, tables: bool) -> None:
    json.dumps(result.as_json(), allow_nan=False)
    assert max(len(result.warnings) - 2, len(result.unknown)) <= UNKNOWN_LINES
    assert all(len(line) <= UNKNOWN_WIDTH for line in (*result.warnings, *result.unknown))
    if tables:
        _fit(text_of(result, 100, plain=True))
    dumps = FlightDumps()
    if dumps.take(result):
        for found in dumps.results():
            _fit(text_of(found, 100, plain=True))
    if convertible(result.kind):
        list(events([result]))
        _shown(model([result]))


def _archives(data: bytes) -> None:
    with mock.patch.object(sources, "_json_of_pickle", _json_of_pickle):
        for source in sources._texts("file_3", io.BytesIO(data)):
            _fit(one_line(source.name))
            if len(source.text) > sources.MOST_BYTES:
                raise Leak(f"{len(source.text)} characters")


def _packed() -> Iterator[bytes]:
    text = b"NCCL WARN x\n" * 9
    yield from (gzip.compress(text) + gzip.compress(text), bz2.compress(text), lzma.compress(text))
    yield b"\x28\xb5\x2f\xfd" + text
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as archive:
            for name, content in {"a": text, "../b": gzip.compress(text), "c/": b"", "d": b"", "\x1b[2J": text}.items():
                archive.writestr(name, content)
        yield made.getvalue()
        with zipfile.ZipFile(outer := io.BytesIO(), "w", method) as archive:
            archive.writestr("inner.zip", made.getvalue())
        yield outer.getvalue()


@functools.cache
def _lines_of_samples() -> tuple[list[str], ...]:
    texts = (data.decode("utf-8", "replace") for data in _samples())
    return tuple(lines for text in texts if len(lines := text.splitlines()[:256]) > 2)


def _blocks(data: bytes) -> None:
    """Read lines of a sample in any order, as `grep` and copies by hand leave them: a byte for each line."""
    number, rest = _choice(data[1:], 256)
    every = _lines_of_samples()
    lines = every[(data[0] << 8 | number if data else 0) % len(every)]
    text = "".join(f"{lines[byte % len(lines)]}\n" for byte in rest[:300])
    _judged(read(sources.Source("file_3", text)), tables=len(rest) % 4 == 0)


def _orders() -> Iterator[bytes]:
    for number, lines in enumerate(_lines_of_samples()):
        head, order = number.to_bytes(2, "big"), range(min(len(lines), 60))
        yield from (head + bytes(order), head + bytes(reversed(order)))


def _parsed(data: bytes) -> None:
    forms = list(formats_in("fabtui_node.parsers").values())
    number, rest = _choice(data, len(forms))
    text = rest.decode("utf-8", "replace")
    assert 0.0 <= forms[number].likely(text) <= 1.0
    reading = forms[number].parse(text)
    json.dumps(reading.values, allow_nan=False)


def _outputs(of_node: bool) -> Iterator[bytes]:
    if of_node:
        forms = list(formats_in("fabtui_node.parsers").values())
    else:
        forms = [form for form in formats().values() if form.parse.__module__.startswith("fabtui.")]
    for data in _samples():
        text = data.decode("utf-8", "replace")
        likely = [form.likely(text) for form in forms]
        best = max(range(len(forms)), key=likely.__getitem__)
        if likely[best] > 0:
            yield bytes([best + (not of_node)]) + data
            if not of_node:
                yield b"\0" + data
    if not of_node:
        for path in sorted((SAMPLES / "ras").glob("*.pickle"))[:4]:
            yield b"\0" + path.read_bytes()[:LONGEST]


def _pickle(data: bytes) -> None:
    half = data.find(b"=====")
    parts = [data] if half < 0 else [data[:half], data[half + 5 :]]
    dumps = {rank: found for rank, part in enumerate(parts) if (found := flight_dump(read_plain(part))) is not None}
    for sentence in flight_recorder.answer(dumps).sentences:
        one_line(sentence)


def _small_dump(path: Path, entries: int) -> bytes:
    # A sample of this repository.
    value = pickle.loads(path.read_bytes())  # noqa: S301  # nosec B301
    value["entries"] = value["entries"][-entries:]
    for entry in value["entries"]:
        entry["frames"] = entry.get("frames", [])[:2]
    return pickle.dumps(value, 2)


def _dumps() -> Iterator[bytes]:
    paths = sorted((SAMPLES / "ras").glob("*.pickle"))
    for path in paths:
        yield _small_dump(path, 4)
    for first, second in itertools.pairwise(paths):
        yield _small_dump(first, 3) + b"=====" + _small_dump(second, 3)


def _ras(data: bytes) -> None:
    """Read a report of RAS, and the answer from it and an earlier one."""
    first, _, second = data.decode("utf-8", "replace").partition("=====\n")
    report = ras_report(first, Notes())
    earlier = ras_report(second, Notes()) if second else None
    for sentence in ras_answer.answer(report, earlier).sentences:
        one_line(sentence)


def _ras_outputs() -> Iterator[bytes]:
    texts = [path.read_bytes()[:LONGEST] for path in sorted((SAMPLES / "ras").iterdir()) if path.suffix != ".pickle"]
    yield from texts
    yield from (first + b"=====\n" + second for first, second in itertools.pairwise(texts))


def _job_logs(data: bytes) -> None:
    """Read logs of a job (two parts of two files) and report."""
    parts = [part.decode("utf-8", "replace") for part in data.split(b"=====\n")][:3]
    logs = JobLogs(["n0", "n1"])
    for number, text in enumerate(parts):
        path = ("/l/n0.out", "/l/n1.err", "/l/n1_gpu.csv")[number]
        known = {"path": path, "start": 0, "end": len(text), "size": len(text), "inode": 1, "modified": 1e9}
        logs.take("", [{**known, "text": text[:-3], "unfinished": text[-3:], "head": text[:200]}], 1e9 + number)
    report = job_report(JobFacts(JobStatus("1", "RUNNING", nodes=("n0", "n1")), logs, when=1e9 + 9))
    _fit(job_text(report, 100, ascii_only=True))


def _logs() -> Iterator[bytes]:
    names = ("megatron", "torch", "nccl", "dmesg", "gpustat", "qgpu", "live")
    found = [path for folder in (SAMPLES, REAL) for path in sorted(folder.rglob("*")) if path.is_file()]
    texts = [path.read_bytes()[:2000] for path in found if any(name in str(path) for name in names)]
    gpus = b"timestamp, index, utilization.gpu [%], memory.used [MiB]\n2026/11/22 02:00:00.000, 0, 100 %, 9 MiB\n"
    for first, second in zip(texts[::2], texts[1::2], strict=False):
        yield b"=====\n".join([first, second, gpus])


# What users write


def _config(data: bytes) -> None:
    """Read the settings file, and merge it with arguments."""
    from fabtui.screen.app import FabricApp
    from fabtui.screen.keymap import check_keys

    found = read_config(argparse.Namespace(config=str(_file(data, "config.toml"))))
    for problem in found.problems:
        _fit(found.describe(problem))
    merged({}, found)
    merged({"lab": "2x4", "env": ["A=b"]}, found)
    _, wrong = check_keys({name: one.value for name, one in found.keys.items()}, FabricApp)
    for _, text in wrong:
        _fit(one_line(text))


def _settings() -> Iterator[bytes]:
    from fabtui.config.file import template
    from fabtui.screen.app import FabricApp
    from fabtui.screen.keymap import key_rows

    whole = template([(row.id, row.keys, row.description) for row in key_rows(FabricApp)])
    yield whole.encode()
    settings = [line.removeprefix("#") for line in whole.splitlines() if line[:1] == "#" and line[1:2] not in " #"]
    yield "\n".join(line for line in whole.splitlines() if line.startswith("[")).encode()
    table = ""
    for line in whole.splitlines():
        table = line if line.startswith("[") else table
        if line.removeprefix("#") in settings and table:
            yield f"{table}\n{line.removeprefix('#')}\n".encode()
    yield from (f"[session]\niters = {many}\n".encode() for many in ("9" * 4400, "0x" + "f" * 4400))
    yield b'[session.env]\nNCCL_DEBUG = "INFO"\n[keys]\nmain.filter = "f5,ctrl+r"\n'


#: Commands that ask no node, start no process and serve nobody; of the others, the arguments are read.
_OFFLINE = ("config", "diff", "explain", "help", "history", "read", "replay", "report", "share")


class _ArgumentsAlone:
    """A command that reads its arguments."""

    def __getattr__(self, execute: str) -> Callable[[argparse.Namespace], int]:
        return lambda args: 0 * len(request_from(args).outputs)


def _words(data: bytes) -> None:
    """Run a command line, a word in each line, in a folder with a recording and a log; see `_OFFLINE`."""
    import fabtui.cli.main as entry

    def command(name: str) -> Any:
        if name.rpartition(".")[2] in _OFFLINE or not name.startswith("fabtui.cli.commands."):
            return importlib.import_module(name)
        return _ArgumentsAlone()

    def crash(error: BaseException) -> str:
        raise error

    # Not outside of the folder.
    words = [os.fsdecode(word) for word in data.split(b"\n")[:40] if not re.match(rb"(-[^=]*=?)?[~/]|.*\.\.", word)]
    errors = io.StringIO()
    _file(_recording_of_words(), "s.jsonl")
    _file(b"n0:1:2 [0] NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n", "log.txt")
    folders = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), str(place()))
    with (
        mock.patch.dict(os.environ, folders),
        mock.patch.object(entry, "import_module", command),
        mock.patch.object(entry, "report_crash", crash),
        mock.patch("gc.freeze"),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        contextlib.chdir(place()),
        redirect_stderr(errors),
    ):
        try:
            code = entry.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 2
    text = errors.getvalue()
    _fit(text)
    if "Traceback" in text or "this is a bug" in text or (code == 2 and not text.strip()):
        raise Leak(f"exit code {code}: {text[-300:]}")


@functools.cache
def _recording_of_words() -> bytes:
    return next(_recordings())


def _command_lines() -> Iterator[bytes]:
    import fabtui.cli.commands as package

    for module in pkgutil.iter_modules(package.__path__, "fabtui.cli.commands."):
        for line in re.findall(
            r"^  fabtui (.+)$", str(getattr(importlib.import_module(module.name), "HELP", "")), re.M
        ):
            words = re.sub(r"\S+\.jsonl(?:\.gz)?\b", "s.jsonl", re.split(r" {3,}|[|>#]", line)[0])
            with contextlib.suppress(ValueError):
                yield "\n".join(shlex.split(re.sub(r"\S+\.(?:txt|log)\b", "log.txt", words))).encode("utf-8", "replace")


def mutated_words(data: bytes, chance: random.Random) -> bytes:
    """Change words of a command line: one left out, doubled, moved, cut, or replaced by an odd one."""
    words = data.split(b"\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(words) + 1)
        match chance.randrange(5):
            case 0:
                del words[at : at + 1]
            case 1:
                words[at:at] = words[at : at + 1] * 2
            case 2:
                chance.shuffle(words)
            case 3:
                words[at : at + 1] = [word[: chance.randrange(len(word) + 1)] for word in words[at : at + 1]]
            case _:
                words[at:at] = [chance.choice(_ODD)]
    return b"\n".join(words)


_ODD = (
    *(b"", b"\0", b"\x1b[2J", b"\xff", b"9" * 5000, "\u202e\u00e9".encode(), b"a" * 5000),
    *b"- -- --- = --= -x -1 1e999 nan n[0- n[9-1] [ * %s {} ' --json --csv --nodes --timeout --since run".split(),
    *b"s.jsonl log.txt . --nodes= --pair n0:0>n0:0 replay".split(),
)


def _hosts(data: bytes) -> None:
    """Read host lists, host files and labs of users, and node sets as files of tools and Slurm have them."""
    number, rest = _choice(data, 7)
    text = os.fsdecode(rest)
    if number == 0:
        names = expand(text, "--nodes")
        assert sorted(expand(fold(names), "fold")) == sorted(names)
        if unsafe := [name for name in names if name.startswith("-") or set(name) & set(" \n;'\"$`")]:
            raise Leak(repr(unsafe))
    elif number == 1:
        read_hosts(str(_file(rest, "hosts")), "--hostfile")
    elif number == 2:
        if listed := expand_listed(text):
            again = expand_listed(fold(listed))
            if again is None or set(again) != set(listed):
                raise Leak(f"{fold(listed)!r} stands for other nodes")
    elif number == 3:
        nodes, _, exclude = text.partition("\n")
        chosen_nodes([nodes], [], [exclude])
    elif number == 4:
        shape, *faults = text.splitlines() or [""]
        try:
            parse_faults(faults, LabSpec.parse(shape))
        except ValueError as error:
            _refused(error)
    elif number == 5:
        slurm.job_ids(text, "--jobid")
    else:
        _fit(one_line(fold(text.splitlines()[:300])))


def _lists() -> Iterator[bytes]:
    for text in (
        *("n060,n061", "n[060-067,070]", "r[1-2]n[01-04/2]", "gpu-[001-016].x.y", "n1,n2,n10", "a[1-3]!a2", "^hosts"),
        *("a[1-9]&a[3-4]", "[fd00::1],10.0.0.[1-3]", "n[01-03]-ib[0-1]", "a[1,3-5,007]b", "n[[[", "n[9-1]"),
        *("n[1-99999999]", "a-b_c.d", "@gpu:all", "@*"),
    ):
        yield b"\0" + text.encode()
        yield b"\2" + text.encode()
        yield b"\3" + text.encode() + b"\n" + text.encode()
        yield b"\6" + text.replace(",", "\n").encode()
    yield b"\1# hosts\nn060 slots=8 # x\nn[061-062]\n\n10.0.0.1\n"
    yield b"\4" + b"2x4\nn000:1>n001:2=drop\nn000:3>n001:0=slow:20MB\nn001=dead-after:3\nn001=env:A=B"
    yield b"\4" + b"2,3\nn001:1>n000:0=absent\nn000=hang"
    yield b"\5" + b"4711,12_3,12+1"


def _scheduler(data: bytes) -> None:
    """Read answers of a scheduler; each question gets the next of them, then the last one again."""
    number, rest = _choice(data, 7)
    answers = [text.decode("utf-8", "replace") for text in rest.split(b"=====\n")]

    def ask(*_: object) -> ToolOutput:
        text = answers.pop(0) if len(answers) > 1 else answers[0]
        if text.startswith("failed\n"):
            return ToolOutput([], last_line(text, 200))
        return ToolOutput([line for line in clean(text).splitlines() if line.strip()])

    with contextlib.ExitStack() as patches:
        for module in (slurm, current_job):
            patches.enter_context(mock.patch.object(module, "ask", ask))
        patches.enter_context(mock.patch("fabtui.scheduler.slurm.shutil.which", return_value="/usr/bin/squeue"))
        patches.enter_context(mock.patch("fabtui.scheduler.slurm.time.sleep"))
        (
            lambda: status_of("12"),
            lambda: nodes_from({"jobid": "12"}),
            lambda: slurm.gpu_use(["n0"], "12"),
            lambda: slurm.gpu_use(["n0"], ""),
            lambda: nodes_from({"pods": "train/a=b"}),
            lambda: node_values(["n0", "n1"]),
            lambda: (slurm.ending_of("12"), slurm.node_addresses()),
        )[number]()


def _answers() -> Iterator[bytes]:
    job = b"JobId=12 JobName=a b UserId=me(1000) JobState=FAILED RunTime=00:01:02 TimeLimit=UNLIMITED EndTime="
    job += b"2026-11-22T02:00:00 NodeList=n[0-1] ExitCode=1:9 StdErr=/l/12.err StdOut=/l/12.out\n"
    row = b"12|RUNNING|None|n[0-1]|1-02:03:04|UNLIMITED|me|a|b\n"
    held = b"     Nodes=n[060-061] CPU_IDs=0 Mem=1000 GRES=gpu:a10:2(IDX:0-1,3)\n"
    nodes = b"n0|idle|(null)|none\nn1|down*|gpu:4|gpu 3 fell off the bus\n"
    yield b"\0" + row + b"=====\n" + job
    yield (
        b"\0failed\n=====\nfailed\n=====\nCANCELLED by 0|0:15|2026-11-22T02:00:00|n[0-1]|00:10:00|me|x|y\n=====\n"
        + nodes
    )
    yield b"\0" + row.replace(b"RUNNING", b"FAILED") + b"=====\n" + job + b"=====\n" + nodes
    yield b"\x01" + b"12|RUNNING|None|n[0-1]\n"
    yield b"\x01" + b"12+0|RUNNING|None|n0\n12+1|RUNNING|None|n[1-2]\n"
    yield b"\x01failed\nInvalid job id\n=====\nFAILED|2026-11-22T02:00:00|n[0-1]\n"
    yield b"\2JobId=12\n" + held + b"=====\nConstrainDevices = yes\n"
    yield b"\x0377|somebody|gres:gpu:a10:2\n=====\n" + held
    yield b"\4" + b"worker-0|Running|n060\nworker-1|Pending|\n"
    topology = (
        b"SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[0-1]\nSwitchName=s Level=1 LinkSpeed=1 Switches=leaf[0-1]\n"
    )
    yield b"\5" + nodes + b"=====\n" + topology
    yield b"\6" + b"12|COMPLETING|None|n0\n=====\n12|TIMEOUT|x|n0\n=====\nn0|10.0.0.1\n"
    for path in sorted((SAMPLES / "slurm").glob("*")):
        for number in (0, 2, 5):
            yield bytes([number]) + path.read_bytes()[:LONGEST]


def _ssh(data: bytes) -> None:
    """Read ssh configuration: what ``ssh -G`` prints, jump hosts, known hosts."""
    number, rest = _choice(data, 4)
    text = rest.decode("utf-8", "replace")
    if number == 0:
        found = parse("n0", text, {"ciphers": "a,b"})
        unsupported_setting(found)
        for name in (*found.identities, *found.user_known_hosts, found.proxy_command or ""):
            expand_path(name, found)
    elif number == 1:
        try:
            parse_jumps(text)
        except ValueError as error:
            _refused(error)
    elif number == 2:
        load_file(str(_file(rest, "known_hosts")))
    else:
        check_host(text)
        expand_path(text, SshSettings(text, text, "me"))


def _ssh_texts() -> Iterator[bytes]:
    shown = b"host n0\nuser me\nhostname 10.0.0.1\nport 22\nproxyjump me@j1:2222,[fd00::1]\nconnecttimeout 5\n"
    shown += b"identityfile ~/.ssh/id_%h\nuserknownhostsfile ~/a /b\nstricthostkeychecking accept-new\nciphers c,d\n"
    yield b"\0" + shown
    yield b"\x01me@j1:22,ssh://you@[fd00::1]:2222/"
    key = b"AAAAC3NzaC1lZDI1NTE5AAAAIJ0hY1VYb1ZkZzqVyq1zFJbVYtYJHnQfPyn0jP8l3q3p"
    yield b"\2n0,10.0.0.1 ssh-ed25519 " + key + b"\n@cert-authority *.x ssh-ed25519 " + key + b" c\n@revoked * x y\n"
    yield b"\2|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-ed25519 " + key
    yield b"\3n0.cluster"


class _Screen:
    """The app on two nodes. Opened and closed in one task, which runs the commands as well."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[str | None] = asyncio.Queue()
        self._answered: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self._task = _loop().create_task(self._serve())

    def run(self, text: str | None) -> None:
        """Complete, check and run a command; None closes the app."""
        self._asked.put_nowait(text)
        error = _loop().run_until_complete(self._answered.get() if text is not None else self._task)
        if error is not None:
            raise error

    async def _serve(self) -> None:
        from fabtui.screen.views.command_line import CommandTable
        from tests.screen.conftest import make_app, settled
        from tests.screen.fakefeed import FakeFeed, sweep_of_two

        app = make_app(FakeFeed(sweep_of_two().events))
        async with app.run_test(size=(100, 30)) as pilot:
            await settled(app, pilot)
            table = CommandTable(app, app.screen)
            while (text := await self._asked.get()) is not None:
                try:
                    await self._command(table, text)
                except InputError as error:
                    _refused(error)
                    self._answered.put_nowait(None)
                except BaseException as error:
                    self._answered.put_nowait(error)
                else:
                    self._answered.put_nowait(None)

    @staticmethod
    async def _command(table: Any, text: str) -> None:
        await table.completions(text)
        command, argument = table.read(text)
        act = await command.prepare(argument)
        if command.name in ("layer", "filter", "go", "sort", "order"):
            act()
            await asyncio.sleep(0)


@functools.cache
def _screen() -> _Screen:
    return _Screen()


def close() -> None:
    """Close the app, if it was opened."""
    if _screen.cache_info().currsize:
        _screen().run(None)
        _screen.cache_clear()


def _commands(data: bytes) -> None:
    """Complete, check and run a command of the command line."""
    text = data.decode("utf-8", "replace").replace("\n", " ")
    if not text.strip().removeprefix(":").startswith("rep"):
        _screen().run(text)


def _typed() -> Iterator[bytes]:
    for text in (
        *("filter bad", "filter rail n[000-001]", "filter n000>", "filter >n001 ! via:ib", "filter slow,failed tcp"),
        *("filter n000>n001", "go n000:1>n001:2", "go n000", "go >n001:1", "pair n000:1>n001:2", "layer world"),
        *("sort badness", "order leaf", "theme textual-light", "node n001", "nodes", "find", "q", ":help", "filter @x"),
    ):
        yield text.encode()


# What assistants ask


async def _asked(data: bytes) -> None:
    from fabtui.mcp.permission import Permission
    from fabtui.mcp.server import Door
    from fabtui.mcp.tools import MOST_BYTES, text_of

    def refuse(*given: object) -> Any:
        raise InputError("no node is asked here")

    async def quiet(seconds: float, step: str) -> None:
        _fit(one_line(step))

    line, _, content = data.partition(b"\n")
    request = json.loads(line)
    if not isinstance(request["tool"], str):
        # The library refuses it before.
        return
    file = str(_file(content, "asked.jsonl"))
    given = {
        name: file if value == "FILE" else [file] if value == ["FILE"] else value
        for name, value in request["arguments"].items()
    }
    door = Door(refuse, place(), Permission(("n000", "n001"), tests=True, budget=1e6), str)
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(place())}):
        answer = await door.call(request["tool"], given, quiet)
    text = text_of(answer)
    if len(text.encode()) > MOST_BYTES:
        raise Leak(f"an answer of {len(text.encode())} bytes")
    for one in _texts_of(answer):
        _fit(one)


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _texts_of(inner[0])
        yield from _texts_of(inner[1])


def _mcp(data: bytes) -> None:
    """Call a tool of `fabtui mcp` with the arguments, and perhaps the file, of an assistant; no node is asked."""
    try:
        _ended(_asked(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # No call at all: the library refuses it before.
        if not isinstance(error, InputError) and "/mcp/" in "".join(traceback.format_tb(error.__traceback__)):
            raise


def _calls() -> Iterator[bytes]:
    from fabtui.mcp.tools import TOOLS

    values: dict[str, Any] = {
        "nodes": "n[000-001]",
        "file": "FILE",
        "files": ["FILE"],
        "pair": "n000:0>n001:0",
        "since": "1y",
    }
    values |= {"demo": "h200x4-lab-2x2", "before": "FILE", "after": "FILE", "text": "NCCL WARN x", "subject": "n000"}
    contents = [b"", *itertools.islice(_recordings(), 0, 60, 12), b"NCCL WARN x\n"]
    for tool, kind in TOOLS.items():
        schema = kind.input_schema()
        samples = {name: values.get(name, _sample(each)) for name, each in schema["properties"].items()}
        needed = schema["required"]
        chosen = [needed, tuple(samples), *({*needed, name} for name in samples)]
        for names in chosen:
            call = json.dumps({"tool": tool, "arguments": {name: samples[name] for name in sorted(names)}})
            reads = any(samples[name] in ("FILE", ["FILE"]) for name in names)
            yield from (call.encode() + b"\n" + content for content in (contents if reads else contents[:1]))


def _sample(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kinds = {"string": "n000", "boolean": True, "integer": schema.get("minimum", 1), "number": schema.get("minimum", 1)}
    return ["n000"] if schema.get("type") == "array" else kinds.get(str(schema.get("type")), "n000")


_REFUSED = (InputError,)
TARGETS: dict[str, Target] = {
    "link": Target(
        lambda data: _ended(_from_node(data)), _of_nodes, (NodeUnreachable,), "wire, from a node", json_lines=True
    ),
    "store": Target(
        lambda data: _ended(_stored(data)),
        _requests,
        (),
        "messages of nodes to the store of the ranks",
        json_lines=True,
    ),
    "supervisor": Target(_supervisor, _of_controllers, (), "wire, from a controller", json_lines=True),
    "recording": Target(_recording, _recordings, _REFUSED, "recordings, and what is shown of them", json_lines=True),
    "share": Target(_share, _session_files, _REFUSED, "session files that are shared", json_lines=True),
    "history": Target(_history, _histories, _REFUSED, "recordings and files of the history of a site", json_lines=True),
    "archives": Target(_archives, _packed, _REFUSED, "packed files and archives"),
    "blocks": Target(_blocks, _orders, _REFUSED, "lines of outputs in any order"),
    "importers": Target(_imported, lambda: _outputs(False), _REFUSED, "files that fabtui read takes", json_lines=True),
    "parsers": Target(_parsed, lambda: _outputs(True), (), "outputs of commands on nodes"),
    "pickles": Target(_pickle, _dumps, (NotPlain,), "flight recorder dumps"),
    "ras": Target(_ras, _ras_outputs, (), "reports of NCCL RAS"),
    "joblogs": Target(_job_logs, _logs, _REFUSED, "logs and configuration of jobs"),
    "config": Target(_config, _settings, _REFUSED, "settings file and keymap"),
    "hosts": Target(_hosts, _lists, _REFUSED, "host lists and files, node sets, labs, job ids"),
    "scheduler": Target(_scheduler, _answers, _REFUSED, "answers of Slurm and kubectl"),
    "ssh": Target(_ssh, _ssh_texts, (ConfigBroken, NodeUnreachable), "ssh configuration and known hosts"),
    "mcp": Target(
        _mcp, _calls, (InputError, TimeoutError), "calls of assistants, and files they name", json_lines=True
    ),
    "words": Target(_words, _command_lines, (), "command lines"),
    "commands": Target(_commands, _typed, _REFUSED, "command line and filters of the screen"),
}


def mutate_json_lines(data: bytes, chance: random.Random) -> bytes:
    """Change a value of one of the lines of JSON: to another value, to that of another place, or by leaving it out.

    What follows the first byte may also be one value over several lines.
    """
    head, lines = (data[:1], data[1:].split(b"\n")) if data[:1] in (b"\0", b"\x01") else (b"", data.split(b"\n"))
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(data[1:])
        head, lines = data[:1], [data[1:]]
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    places = [
        (value, key)
        for value in _containers(value)
        for key in (value if isinstance(value, dict) else range(len(value)))
    ]
    if not places:
        return data
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            other, name = chance.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        case 1 if isinstance(holder, dict):
            del holder[key]
        case _:
            holder[key] = chance.choice(JUNK)
    if chance.random() < 0.1:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    lines[at] = json.dumps(value).encode()
    return head + b"\n".join(lines)


JUNK: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**70, 1e99, -0.5, 1e-300, 1e308, "", "9" * 30, "x\x1b[2J\u202e[red]"),
    *(float("inf"), float("nan"), 10**400, 1e11),
    *("\ud800", "10.0.0.9", "n000", "n000:0", "1", "yes", "²", "x" * 300, [], [[]], {}, {"a": []}, [1, "2", None]),
    *({"rows": [None, [1], {}]}, ["a", {}], {"": ""}, [0] * 9, "ok", "failed", "p2p", "GB/s", "done"),
]


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _containers(one)
