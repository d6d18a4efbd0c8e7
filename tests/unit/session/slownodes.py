"""Nodes played inside the test process: rank hosts take time to start, pairs take time and fail as real ones do.

What real nodes do with each fault of the lab was taken from recordings of them: which side reports what, and when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fabtui.transport.link import Link
from tests.unit.session.fakenodes import FakeLink, Script

Pair = tuple[int, int]


@dataclass
class Play(Script):
    """The behaviour of these nodes besides that of a `Script`; all times in seconds.

    Attributes:
        load: What a rank host takes to start before it touches a GPU: interpreter, libraries, the driver.
        attach: What each of its ranks then takes.
        ends: What a rank host that is killed takes to end.
        each: What a pair takes, both directions.
        lets_go: What a rank host takes to let go of broken communicators.
        faults: Faults of ordered pairs of ranks: ``absent``, ``corrupt``, ``kill`` or ``stop``.
        wrong: Nodes on which no communicator comes about.
        lingers: Unordered pairs (lower first) that cannot connect, and the time after which that ends the rank host of
            the first one, as with gloo now and then.
        naps: For how long the rank host of a node is stopped in its first pair before it continues.
        reports_stops: Whether supervisors report a rank host that is stopped.
        meetings: The pairs under way, by number.
        links: The nodes, by name.
        timeouts: Number of sides that reported a timeout.
    """

    load: float = 0.0
    attach: float = 0.0
    ends: float = 0.0
    each: float = 0.01
    lets_go: float = 0.0
    faults: dict[Pair, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    lingers: dict[Pair, float] = field(default_factory=dict)
    naps: dict[str, float] = field(default_factory=dict)
    reports_stops: bool = True
    meetings: dict[int, Meeting] = field(default_factory=dict)
    links: dict[str, SlowLink] = field(default_factory=dict)
    timeouts: int = 0

    def __post_init__(self) -> None:
        first = 0
        for node, count in self.gpus.items():
            if node in self.wrong:
                self.spoilers |= set(range(first, first + count))
            first += count


class SlowNodes:
    def __init__(self, play: Play) -> None:
        self.play = play

    async def open(self, host: str) -> Link:
        link = self.play.links[host] = SlowLink(host, self.play)
        return link


class Meeting:
    """A pair under way, on both its nodes."""

    def __init__(self, play: Play, m: dict[str, Any]) -> None:
        self.play = play
        self.m = m
        self.directions: list[Pair] = [(m["a"], m["b"]), (m["b"], m["a"])]
        self.at: dict[int, SlowLink] = {}
        self.reported: set[tuple[int, Pair]] = set()
        self.free: set[int] = set()

    def join(self, rank: int, link: SlowLink) -> None:
        """Have a rank come to the meeting, or stay away from it."""
        self.at[rank] = link
        peer = self.m["a"] + self.m["b"] - rank
        deadline = self.m["deadline"]
        away = {r for r in (rank, peer) if self.play.faults.get((r, sum(self.directions[0]) - r)) == "absent"}
        lingers = self.play.lingers.get((min(rank, peer), max(rank, peer)))
        if lingers is not None:
            self._later(0.05, lambda: self.fail(rank, "connect", "no route to host"))
            if rank < peer:
                self._later(0.05 + lingers, partial(link.die, link.life))
        elif rank in away:
            self._later(deadline, lambda: self._leave(rank))
        elif away:
            patience = self.m.get("meet", deadline / 2)
            text = f"rank {peer} did not come within {patience:.1f} s (made by the lab: absent)"
            self._later(patience, lambda: self.fail(rank, "connect", text, timeout=True))
        elif link.node in self.play.wrong:
            text = "no communicator of 2 ranks came about: Bootstrap : no socket interface found"
            self._later(0.2, lambda: self.fail(rank, "connect", text))
        elif len(self.at) == 2 and not {at.node for at in self.at.values()} & self.play.wrong:
            self._later(self.play.each / 2, lambda: self._way(0))

    @staticmethod
    def _later(seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what)

    def _way(self, number: int) -> None:
        """Be through with a direction, as far as its nodes live."""
        src, dst = way = self.directions[number]
        if self.free or any(link.dead or link.frozen for link in self.at.values()):
            return
        fault = self.play.faults.get(way)
        if fault == "kill":
            self.at[src].die()
            return
        if fault == "stop":
            self.at[src].freeze()
            return
        for rank, role in ((src, "src"), (dst, "dst")):
            if fault == "corrupt":
                self._say(rank, way, "verify", "1 of 65536 bytes is wrong (made by the lab: corrupt)")
                self.at[rank].broken = True
            else:
                self.reported.add((rank, way))
                self.at[rank].report(self.m, src, dst, role)
        if number == 0:
            self._later(self.play.each / 2, lambda: self._way(1))
        else:
            for rank in self.at:
                self._leave(rank)

    def _say(self, rank: int, way: Pair, phase: str, error: str, *, timeout: bool = False) -> None:
        if (rank, way) in self.reported:
            return
        self.reported.add((rank, way))
        self.play.timeouts += timeout
        role = "src" if rank == way[0] else "dst"
        kind = "cancelled" if error.startswith("cancelled") else None
        side = {
            "src": way[0],
            "dst": way[1],
            "role": role,
            "phase": phase,
            "error": error,
            "timeout": timeout,
            "error_kind": kind,
        }
        self.at[rank].send_report(op="side", id=self.m["id"], ok=False, made="made" in error, **side)

    def fail(self, rank: int, phase: str, error: str, *, timeout: bool = False) -> None:
        """Have a rank report what it did not yet, as failed, and leave."""
        if rank in self.free or self.at[rank].dead or self.at[rank].frozen:
            return
        self.at[rank].broken = True
        for way in self.directions:
            self._say(rank, way, phase, error, timeout=timeout)
        self._leave(rank)

    def _leave(self, rank: int) -> None:
        if rank not in self.free and not self.at[rank].dead and not self.at[rank].frozen:
            self.free.add(rank)
            self.at[rank].send_report(op="free", id=self.m["id"], rank=rank)

    def lose(self, link: SlowLink) -> None:
        for rank, at in self.at.items():
            if at is not link and self.play.faults.get((rank, sum(self.directions[0]) - rank)) != "absent":
                self._later(0.05, partial(self.fail, rank, "transfer", "connection closed by remote peer"))


class SlowLink(FakeLink):
    def __init__(self, node: str, play: Play) -> None:
        super().__init__(node, play)
        self.play = play
        self.dead = True
        self.frozen = False
        self.broken = False
        self.deaths = 0
        self.naps = 0
        self._deaf = 0.0
        self.standbys = 0
        #: Whether a process was made ready before its first start.
        self.prepared = False
        self._life = 0
        self._loaded: float | None = None
        self._standby: float | None = None

    async def send(self, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "spawn":
            self.sent.append(message)
            self._spawn()
        elif kind == "standby" and not self.spawns:
            self.prepared = True
            self._standby = self._now() + self.play.load
        elif kind == "standby":
            self.sent.append(message)
            if not message["on"]:
                self._standby = None
            elif self._standby is None:
                self.standbys += 1
                self._standby = self._now() + self.play.load
        elif kind == "kill":
            self.sent.append(message)
            self._end()
        elif kind != "rank" or not self.dead:
            await super().send(message)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def send_report(self, **message: Any) -> None:
        if not self.dead and not self.frozen:
            self._say(**message)

    def report(self, m: dict[str, Any], src: int, dst: int, role: str) -> None:
        if not self.dead and not self.frozen:
            self._side(m, src, dst, role)

    def _end(self) -> None:
        """Have the rank host go, and all meetings that it is in see that."""
        self._life += 1
        self.dead, self.frozen, self.broken = True, False, False
        for meeting in list(self.play.meetings.values()):
            if self in meeting.at.values():
                meeting.lose(self)

    @property
    def life(self) -> int:
        return self._life

    def die(self, life: int | None = None) -> None:
        """End the rank host with signal 9; with a ``life``, only if it is still that process."""
        if life not in (None, self._life) or self.dead:
            return
        self._end()
        self.deaths += 1
        exit_ = {"t": "exit", "code": None, "signal": 9, "stderr": ""}
        asyncio.get_running_loop().call_later(self.play.ends, self._queue.put_nowait, exit_)

    def freeze(self) -> None:
        self.frozen = True
        self.deaths += 1
        if self.play.reports_stops:
            self._queue.put_nowait({"t": "stopped", "on": True})

    def _nap(self, seconds: float) -> None:
        """Be stopped, resume, and then take as long again for an answer, many times over."""
        loop = asyncio.get_running_loop()
        self._deaf = loop.time() + 10 * seconds
        self._queue.put_nowait({"t": "stopped", "on": True})
        loop.call_later(seconds, self._queue.put_nowait, {"t": "stopped", "on": False})

    def _spawn(self) -> None:
        ends = 0.0 if self.dead else self.play.ends
        self._end()
        self.spawns += 1
        self._loaded = self._standby if self._standby is not None else self._now() + self.play.load
        self._standby = None
        life = self._life

        def spawned() -> None:
            if self._life == life:
                self.dead = False
                self._queue.put_nowait({"t": "spawned", "pid": 1, "python": "python3"})

        asyncio.get_running_loop().call_later(ends, spawned)

    def _rank(self, m: dict[str, Any]) -> None:
        op, loop, life = m["op"], asyncio.get_running_loop(), self._life
        if self.frozen or (op == "alive" and self._now() < self._deaf):
            return
        if op == "init":
            self._ranks = [r["rank"] for r in m["ranks"]]
            ranks = [{"rank": r, "ok": True, "error": None} for r in self._ranks]
            ready = {"op": "ready", "engine": m["engine"], "version": "fake 1", "port": 1, "ranks": ranks}
            load = max(0.0, (self._loaded or 0.0) - self._now())
            wait = load + self.play.attach * len(ranks)
            loop.call_later(load, partial(self._if_alive, life, partial(self.send_report, op="loaded")))
            loop.call_later(wait, partial(self._if_alive, life, partial(self.send_report, **ready)))
        elif op == "pair":
            if self.node in self.play.naps and not self.naps:
                self.naps += 1
                loop.call_later(0.1, self._nap, self.play.naps[self.node])
            meeting = self.play.meetings.setdefault(m["id"], Meeting(self.play, m))
            for rank in {m["a"], m["b"]} & set(self._ranks):
                meeting.join(rank, self)
        elif op == "abort":
            here = self.play.meetings[m["id"]].at if m["id"] in self.play.meetings else {}
            for rank in set(self._ranks) & here.keys():
                loop.call_later(0.05, self._call_off, m["id"], rank)
        elif op == "rest" and self.broken:
            self.broken = False
            loop.call_later(self.play.lets_go, partial(self._if_alive, life, partial(super()._rank, m)))
        else:
            super()._rank(m)

    def _if_alive(self, life: int, what: Callable[[], None]) -> None:
        if self._life == life:
            what()

    def _call_off(self, number: int, rank: int) -> None:
        meeting = self.play.meetings[number]
        peer = sum(meeting.directions[0]) - rank
        if self.play.faults.get((rank, peer)) == "absent":
            meeting._leave(rank)
        else:
            meeting.fail(rank, "connect", "cancelled: a peer is gone")
