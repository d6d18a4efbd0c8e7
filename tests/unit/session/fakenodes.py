"""Nodes that speak the protocol inside the test process: a link each, with a supervisor, probes and ranks played.

A `Script` holds their faults.
"""

import asyncio
import base64
import json
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

from fabtui.transport.link import Link, LinkLost, NodeUnreachable

#: Error of a node on which NVLink SHARP cannot be set up.
SHARP_ERROR = "NCCL: unhandled cuda error: transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'"


@dataclass
class Script:
    """The behaviour of the fake nodes.

    Attributes:
        gpus: How many endpoints each node has; 0: a node without GPUs and without torch.
        unreachable: Nodes that cannot be reached.
        tries: What each try to reach a node gives, one after the other, then the last one for ever; None: a link.
        late: Seconds that a node takes to be reached.
        rates: Bytes a second of ordered pairs of ranks that differ from ``rate``; a list is used up attempt by attempt.
        silent: Ordered pairs of ranks that time out.
        cure: Environment of the ranks that ends silence and slowness: name and value of a variable, or None.
        hang: Unordered pairs (lower first) of which nothing is ever heard, and which ignore an abort.
        held: Bytes of GPU memory that a communicator takes.
        dies_after: Number of pairs after which the link of a node is lost.
        busy: GPUs (node and index) that another process uses.
        kills: Nodes whose rank host dies in the test of a pair.
        deadly: Nodes whose rank host dies in one direction of a pair, of which the other one is good.
        away: Ranks that never come to a meeting with a peer, ``(rank, peer)``; they come back when it is called off.
        spoilers: Ranks with which no world communicator forms.
        spoilers_after: Number of worlds that each node sees before the spoilers spoil one.
        early_rows: Number of transfers that each rank reports before the end of a world; the last of them twice.
        world_rates: Bytes a second in the world of ordered pairs of ranks that differ from 40 GB/s.
        apart: Ranks that no world communicator may have together.
        stuck: Ordered pairs whose transfer hangs in the world communicator.
        short: Whether these began when little time was left.
        slow_ranks: Seconds that the ranks of a node take to be ready.
        patient: Whether ranks wait, until they are called off, for those that spoil the world.
        growth: What each reading of all counters of a node gives, one after the other, then the last one for ever;
        counters: What each look at the counters of a node gives, one after the other, then the last one for ever;
            None: no answer.
        takes: Seconds that a pair takes before its ranks report.
        inventory: Fields of the inventory of a node besides its GPUs, or in their place.
        probe_results: Results of the probes of a node, ``{"fails": text}`` where one fails.
        ahead: Seconds by which the clock of a node is ahead.
        mail: The datagrams of all nodes: token, destination address, and what its listener reports of them.
        sharp: Nodes whose collectives fail where NVLink SHARP is set up, unless ``NCCL_NVLS_ENABLE`` is 0.
        lost: Ordered pairs of addresses whose datagrams are lost; TCP gets no answer in either direction.
        cut: Unordered pairs of ranks (lower first) that cannot connect to each other.
        corrupt: In how many tests, the first ones, the data of ordered pairs of ranks is wrong.
        drivers: Nodes that report at once that a driver of GPUs is loaded.
        slow_together: Sets of ranks: a collective over all of one takes ten times as long.
        most: Largest message (bytes) that collectives and the world send, as over slow links.
    """

    gpus: dict[str, int]
    unreachable: dict[str, NodeUnreachable] = field(default_factory=dict)
    tries: dict[str, list[NodeUnreachable | None]] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    rate: float = 50e9
    held: int = 40 << 20
    rates: dict[tuple[int, int], float | list[float]] = field(default_factory=dict)
    silent: set[tuple[int, int]] = field(default_factory=set)
    cure: tuple[str, str] | None = None
    hang: set[tuple[int, int]] = field(default_factory=set)
    dies_after: dict[str, int] = field(default_factory=dict)
    busy: set[tuple[str, int]] = field(default_factory=set)
    kills: set[tuple[str, int, int]] = field(default_factory=set)
    deadly: set[tuple[str, int, int]] = field(default_factory=set)
    away: set[tuple[int, int]] = field(default_factory=set)
    spoilers: set[int] = field(default_factory=set)
    spoilers_after: int = 0
    early_rows: int = 0
    world_rates: dict[tuple[int, int], float] = field(default_factory=dict)
    apart: set[frozenset[int]] = field(default_factory=set)
    stuck: set[tuple[int, int]] = field(default_factory=set)
    short: bool = False
    patient: bool = False
    slow_ranks: dict[str, float] = field(default_factory=dict)
    counters: dict[str, list[dict[str, Any] | None]] = field(default_factory=dict)
    growth: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    takes: float = 0.0
    inventory: dict[str, dict[str, Any]] = field(default_factory=dict)
    probe_results: dict[str, dict[str, Any]] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    mail: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    sharp: set[str] = field(default_factory=set)
    lost: set[tuple[str, str]] = field(default_factory=set)
    cut: set[tuple[int, int]] = field(default_factory=set)
    corrupt: dict[tuple[int, int], int] = field(default_factory=dict)
    drivers: set[str] = field(default_factory=set)
    slow_together: list[set[int]] = field(default_factory=list)
    most: int = 1 << 40


def _each(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that travelled as one, and each test of a round as a message."""
    if message["op"] == "several":
        return [one for inner in message["messages"] for one in _each(inner)]
    if message["op"] == "pairs":
        common = {name: value for name, value in message.items() if name != "tests"}
        rows = [dict(zip(("id", "a", "b", "ctas"), row, strict=True)) for row in message["tests"]]
        return [{**common, "op": "pair", **row} for row in rows]
    return [message]


class FakeNodes:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.links: dict[str, FakeLink] = {}
        self.tried: dict[str, int] = {}

    async def open(self, host: str) -> Link:
        await asyncio.sleep(self.script.late.get(host, 0.0))
        if host in self.script.unreachable:
            raise self.script.unreachable[host]
        if tries := self.script.tries.get(host):
            self.tried[host] = self.tried.get(host, 0) + 1
            if (refused := tries.pop(0) if len(tries) > 1 else tries[0]) is not None:
                raise refused
        link = self.links[host] = FakeLink(host, self.script)
        return link


class FakeLink(Link):
    def __init__(self, node: str, script: Script) -> None:
        self.node = node
        self.backend = "local"
        self.banner = ""
        self.hello = {"t": "hello", "gpus": node in script.drivers}
        self.round_trip = None
        self.script = script
        self.sent: list[dict[str, Any]] = []
        #: Messages to and from the rank host, in order.
        self.exchanged: list[dict[str, Any]] = []
        self.closed = False
        self.spawns = 0
        self.envs: list[dict[str, str]] = []
        self.pairs = 0
        self.worlds = 0
        self._queue: asyncio.Queue[dict[str, Any] | LinkLost] = asyncio.Queue()
        self._ranks: list[int] = []
        self._waiting_ranks: dict[int, list[int]] = {}
        self._away: dict[int, set[int]] = {}
        self._listens: dict[str, tuple[int, list[str]]] = {}

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None:
        self.closed = True
        self.lose("closed", "closed")

    def lose(self, kind: Any, text: str) -> None:
        self._queue.put_nowait(LinkLost(kind, text))

    async def receive(self) -> dict[str, Any]:
        found = await self._queue.get()
        if isinstance(found, LinkLost):
            raise found
        return found

    async def send(self, message: dict[str, Any]) -> None:
        kind = message["t"]
        self.sent += [{"t": "rank", "m": one} for one in _each(message["m"])] if kind == "rank" else [message]
        if kind == "probe":
            value = self._probe(message)
            if value is not None and isinstance(failed := value.get("fails"), str):
                error = {"kind": "failed", "text": failed}
                self._queue.put_nowait({"t": "result", "id": message["id"], "ok": False, "error": error})
            elif value is not None:
                self._queue.put_nowait({"t": "result", "id": message["id"], "ok": True, "value": value})
        elif kind == "spawn":
            if self.spawns:
                self._queue.put_nowait({"t": "exit", "code": None, "signal": 9, "stderr": ""})
            self.spawns += 1
            self.envs.append(message["env"])
            self._queue.put_nowait({"t": "spawned", "pid": 1, "python": "python3"})
        elif kind == "rank":
            for one in _each(message["m"]):
                self.exchanged.append(one)
                self._rank(one)

    def _say(self, **message: Any) -> None:
        self.exchanged.append(message)
        self._queue.put_nowait({"t": "rank", "m": message})

    def _probe(self, message: dict[str, Any]) -> dict[str, Any] | None:
        mine = self.script.probe_results.get(self.node, {})
        if message["name"] in mine:
            return dict(mine[message["name"]])
        if message["name"] == "clock":
            return {"time": time.time() + self.script.ahead.get(self.node, 0.0), "synchronised": True}
        if message["name"] == "inventory":
            count = self.script.gpus[self.node]
            gpus = [
                {
                    "index": i,
                    "name": "Fake GPU",
                    "uuid": f"GPU-{self.node}-{i}",
                    "processes": [{"pid": 7, "name": "train", "user": "ann"}]
                    if (self.node, i) in self.script.busy
                    else [],
                }
                for i in range(count)
            ]
            address = f"10.0.0.{1 + sorted(self.script.gpus).index(self.node)}"
            return {
                "gpus": gpus,
                "nvml_error": None if gpus else "no driver",
                "data_addresses": [{"address": address, "nic": "eth0", "family": 4}],
                **self.script.inventory.get(self.node, {}),
            }
        if message["name"] == "ping":
            rows = [
                {**target, "sent": 3, "received": 3, "loss": 0.0, "rtt_avg": 0.1, "tool": "ping"}
                for target in message["args"]["targets"]
            ]
            return {"rows": rows}
        if message["name"] == "state":
            return {"state": base64.b64encode(zlib.compress(json.dumps({"a": "1"}).encode())).decode(), "failed": {}}
        if message["name"] == "udp":
            return self._datagrams(message["id"], **message["args"])
        if message["name"] == "growth" and self.node in self.script.growth:
            readings = self.script.growth[self.node]
            return readings.pop(0) if len(readings) > 1 else readings[0]
        if message["name"] == "counters" and self.node in self.script.counters:
            values = self.script.counters[self.node]
            return values.pop(0) if len(values) > 1 else values[0]
        return {"gpus": []}

    def _datagrams(self, number: int, role: str, token: str, **args: Any) -> dict[str, Any] | None:
        if role == "listen":
            self._listens[token] = (number, args["addresses"])
            ports = [{"address": address, "udp": 1000, "tcp": 1001} for address in args["addresses"]]
            self._queue.put_nowait({"t": "part", "id": number, "value": {"ports": ports}})
            return None
        if role == "send":
            answer = {"small": args["small"], "big": args["big"], "connected": 0.1}
            silence = {**answer, "connected": None, "connect_error": "no answer", "connect_error_kind": "timeout"}
            both_of = [(t, {(t["src"], t["dst"]), (t["dst"], t["src"])}) for t in args["targets"]]
            rows = [{**t, **(silence if self.script.lost & both else answer)} for t, both in both_of]
            self.script.mail += [(token, t["dst"], t) for t in rows if (t["src"], t["dst"]) not in self.script.lost]
            return {"rows": rows}
        if role == "flows":
            return {"rows": []}
        listening, addresses = self._listens[token]
        if role == "count":
            return {"rows": [row for key, dst, row in self.script.mail if key == token and dst in addresses]}
        self._queue.put_nowait({"t": "result", "id": listening, "ok": True, "value": {}})
        return {}

    def _rank(self, m: dict[str, Any]) -> None:
        op = m["op"]
        if op == "init":
            self._ranks = [r["rank"] for r in m["ranks"]]
            ranks = [{"rank": r, "ok": True, "error": None} for r in self._ranks]
            ready = {"op": "ready", "engine": m["engine"], "version": "fake 1", "port": 1, "ranks": ranks}
            wait = self.script.slow_ranks.get(self.node, 0.0)
            asyncio.get_running_loop().call_later(wait, lambda: self._say(**ready))
        elif op == "reach":
            for peer in m["peers"]:
                self._say(op="reach", node=peer["node"], ok=True, timeout=False, seconds=0.0, error=None)
        elif op == "abort":
            self._let_go(m["id"])
        elif op == "pair":
            if self.script.takes:
                asyncio.get_running_loop().call_later(self.script.takes, self._pair, m)
            else:
                self._pair(m)
        elif op == "rest":
            for rank in self._ranks:
                self._say(op="rested", id=m["id"], rank=rank, error=None)
                self._say(op="free", id=m["id"], rank=rank)
        elif op == "alive":
            self._say(op="alive", n=m["n"])
        elif op == "collective":
            error = SHARP_ERROR if self.node in self.script.sharp and "NCCL_NVLS_ENABLE" not in self.envs[-1] else None
            slower = 10 if any(slow <= set(m["ranks"]) for slow in self.script.slow_together) else 1
            for rank in set(m["ranks"]) & set(self._ranks):
                for size in m["sizes"]:
                    tested = min(size, self.script.most)
                    done = {"ok": error is None, "error": error, "timeout": False, "seconds": slower * tested / 1e9}
                    done |= {"tested": tested, "sent": tested}
                    self._say(op="reduced", id=m["id"], rank=rank, bytes=size, **done)
                self._say(op="free", id=m["id"], rank=rank)
        elif op == "world":
            self._world(m)

    def _let_go(self, number: int) -> None:
        """Call off the wait of ranks in a pair, or for a world that does not form."""
        for rank in self._away.pop(number, ()):
            self._say(op="free", id=number, rank=rank)
        for rank in self._waiting_ranks.pop(number, []):
            self._say(
                op="worlded",
                id=number,
                rank=rank,
                ok=False,
                timeout=False,
                phase="connect",
                error="cancelled",
                error_kind="cancelled",
            )
            self._say(op="free", id=number, rank=rank)

    def _world(self, m: dict[str, Any]) -> None:
        """Form unless a spoiler is among the ranks; break at the transfers that are stuck."""
        ranks = set(m["ranks"])
        spoilers = ranks & self.script.spoilers if self.worlds >= self.script.spoilers_after else set()
        self.worlds += 1
        apart = any(pair <= ranks for pair in (*self.script.apart, *map(frozenset, self.script.cut)))
        for rank in ranks & set(self._ranks):
            report: dict[str, Any] = {"op": "worlded", "id": m["id"], "rank": rank, "ok": True, "phase": "verify"}
            report["seconds"] = {"init": 0.5, "connect": 0.25, "rounds": 0.125}
            if spoilers and self.script.patient and rank not in spoilers:
                self._waiting_ranks.setdefault(m["id"], []).append(rank)
                continue
            if spoilers or apart:
                own = rank in spoilers
                error = "Bootstrap : no socket interface found" if own else "not all ranks came within 0.5 s"
                report |= {"ok": False, "timeout": not own, "phase": "connect", "error": error}
            else:
                mine = [(s, d) for round_ in m["rounds"] for s, d in round_ if rank in (s, d)]
                stuck = next((pair for pair in mine if pair in self.script.stuck), None)
                done = mine if stuck is None else mine[: mine.index(stuck)]
                if self.script.stuck:
                    stuck = stuck or (mine[-1] if mine else None)
                    report |= {"ok": False, "timeout": True, "phase": "transfer", "error": "stuck", "at": stuck}
                    report["short"] = self.script.short
                    done = [pair for pair in done if pair != stuck]
                report["at"] = list(stuck) if stuck else None
                rates, size = self.script.world_rates, min(m["bytes"], self.script.most)
                report["rows"] = [
                    [s, d, size, rates.get((s, d), 40e9), True, None, "NET/IB/0"] for s, d in done if d == rank
                ]
            if early := report.get("rows", [])[: self.script.early_rows]:
                self._say(op="rows", id=m["id"], rank=rank, channels=None, rows=early)
                report["rows"] = report["rows"][len(early) - 1 :]
            self._say(**report)
            self._say(op="free", id=m["id"], rank=rank)

    def _pair(self, m: dict[str, Any]) -> None:
        self.pairs += 1
        if (self.node, m["a"], m["b"]) in self.script.kills or (self.node, m["b"], m["a"]) in self.script.kills:
            self._queue.put_nowait({"t": "exit", "code": None, "signal": 9, "stderr": ""})
            return
        if self.pairs > self.script.dies_after.get(self.node, 1 << 30):
            self.lose("lost", "the connection broke")
            return
        if (min(m["a"], m["b"]), max(m["a"], m["b"])) in self.script.hang:
            return
        mine = {m["a"], m["b"]} & set(self._ranks)
        here = {rank for rank in mine if (rank, m["a"] + m["b"] - rank) not in self.script.away}
        for src, dst in ((m["a"], m["b"]), (m["b"], m["a"])):
            if (self.node, src, dst) in self.script.deadly:
                self._queue.put_nowait({"t": "exit", "code": None, "signal": 9, "stderr": ""})
                return
            for role, rank in (("src", src), ("dst", dst)):
                if rank in here:
                    self._side(m, src, dst, role)
        for rank in here:
            self._say(op="free", id=m["id"], rank=rank)
        self._away.setdefault(m["id"], mine - here)

    def _side(self, m: dict[str, Any], src: int, dst: int, role: str) -> None:
        silent = (src, dst) in self.script.silent or bool({(src, dst), (dst, src)} & self.script.away)
        rate = self.script.rates.get((src, dst), self.script.rate)
        if self.script.cure is not None and self.script.cure in self.envs[-1].items():
            silent, rate = False, self.script.rate
        if isinstance(rate, list):
            rate = rate.pop(0) if role == "dst" and len(rate) > 1 else rate[0]
        if role == "dst" and self.script.corrupt.get((src, dst), 0):
            self.script.corrupt[src, dst] -= 1
            wrong = {
                "ok": False,
                "timeout": False,
                "phase": "verify",
                "error": "1 byte is wrong",
                "error_kind": "verify",
            }
            self._say(op="side", id=m["id"], src=src, dst=dst, role=role, made=False, bytes=m["bytes"], **wrong)
            return
        if (min(src, dst), max(src, dst)) in self.script.cut:
            apart = {"ok": False, "timeout": True, "phase": "connect", "error": "not formed within 5.0 s"}
            self._say(op="side", id=m["id"], src=src, dst=dst, role=role, made=False, bytes=m["bytes"], **apart)
            return
        self._say(
            op="side",
            id=m["id"],
            src=src,
            dst=dst,
            role=role,
            ok=not silent,
            timeout=silent,
            phase="transfer",
            error=f"no message came from rank {src} within 5.0 s" if silent else None,
            made=False,
            bytes=m["bytes"],
            rate=rate if role == "dst" and not silent else None,
            latency=1e-5 if role == "src" and not silent else None,
            transport="P2P/CUMEM",
            held=self.script.held,
        )
