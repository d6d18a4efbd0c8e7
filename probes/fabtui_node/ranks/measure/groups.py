"""Tests of groups at one rank: a collective, or the world layer.

A collective meets, connects, measures each size and reports each. The world is one communicator of all ranks: all
connections at once, then rounds of transfers.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.protocol import ErrorKind, Message
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Failed, PairJob, StoreError, Task
from fabtui_node.ranks.engine import RankEndpoint, RankGroup
from fabtui_node.ranks.measure.verify import KINDS, TWICE

#: Maximum number of ranks of which the missing ones are looked up.
MAX_NAMED = 64
#: Maximum number of reports of all ranks together during the rounds.
REPORTS_PER_SECOND = 100
#: Minimum time (s) between two reports of a rank during the rounds.
LEAST_INTERVAL = 0.5
#: Minimum time (s) after which a transfer that has not ended is stuck, if the deadline is twice as long.
LEAST_TIME = 3.0
#: Maximum number of ranks of which a world without transfers connects all pairs; above it only neighbours.
MAX_FULL_MESH = 64


def meet(endpoint: RankEndpoint, task: Task, ranks: List[int], size: int, second: bool, end: float) -> None:
    """Allocate memory, and wait until all ranks of a group are there, before any of them calls a library that waits.

    Each rank increments a counter; the last one notifies all. So a rank costs the controller three requests in a group
    of any size.

    Raises `Failed` if a rank declined or is missing; the failure of this one is raised here and at once at all others.
    ``size`` belongs to the largest message; with ``second``, outgoing data needs memory of its own.
    """
    try:
        if endpoint.error is not None:
            raise Failed(CONNECT, endpoint.error, kind=ErrorKind.NOT_READY)
        endpoint.prepare(size, second)
    except Failed as failed:
        task.put("all", {"declined": failed.text, "error_kind": failed.kind})
        raise

    def wait() -> Message:
        task.put("here/%d" % endpoint.rank.rank, {})
        if task.store.ask("add", task.prefix + "count", base.remaining(end), task, value=1) == len(ranks):
            task.put("all", {})
            return {}
        return task.take("all", end)

    task.first(wait, partial(_missing, task, ranks), "a rank is gone")


def _missing(task: Task, ranks: List[int]) -> str:
    if len(ranks) > MAX_NAMED:
        return "some of %d ranks" % len(ranks)
    missing = []
    for rank in ranks:
        try:
            if not task.store.ask("check", ["%shere/%d" % (task.prefix, rank)], 1.0, task):
                missing.append("rank %d" % rank)
        except StoreError:
            return "some of %d ranks" % len(ranks)
    if not missing:
        return "the notification that all ranks are there"
    more = " and %d more" % (len(missing) - 4) if len(missing) > 4 else ""
    return ", ".join(missing[:4]) + more


def parse(message: Message) -> Message:
    """Return the validated parts of a ``collective`` request; raise KeyError or ValueError if it is invalid."""
    kind = str(message["kind"])
    if kind not in KINDS:
        raise ValueError("no collective %r" % kind)
    ranks = [int(rank) for rank in message["ranks"]]
    sizes = [int(size) for size in message["sizes"]]
    if not ranks or len(set(ranks)) != len(ranks) or any(size < 1 for size in sizes):
        raise ValueError("no ranks or sizes: %r, %r" % (ranks, sizes))
    iters, warmup = max(1, int(message["iters"])), max(1, int(message["warmup"]))
    return {"kind": kind, "ranks": ranks, "sizes": sizes, "iters": iters, "warmup": warmup}


def run(op: Message, endpoint: RankEndpoint, send: Callable[[Message], None], task: Task) -> None:
    """Measure each size of a collective (as ``parse`` returned it) and report it; never raises because of a test."""
    group: Optional[RankGroup] = None
    failed: Optional[Failed] = None
    try:
        size = max(op["sizes"], default=0)
        meet(endpoint, task, op["ranks"], size, op["kind"] in TWICE, time.monotonic() + task.deadline / 2)
        group = endpoint.run(task, partial(endpoint.join, task, op["ranks"], task.end), CONNECT, task.end)
    except Exception as error:
        failed = Failed.from_error(CONNECT, error)
    for size in op["sizes"]:
        result: Message = {"tested": None, "sent": None, "seconds": None, "fastest": None, "wrong": 0}
        result.update(transport=None, algorithm=None, rings=[])
        if failed is None:
            assert group is not None
            try:
                work = partial(group.collective, op["kind"], size, op["iters"], op["warmup"], task.end)
                result = endpoint.run(task, work, TRANSFER, task.end)
            except Exception as error:
                failed = Failed.from_error(TRANSFER, error)
        problem = failed
        if failed is None and result["wrong"]:
            # The other sizes are measured all the same.
            problem = Failed(VERIFY, "%d values are wrong" % result["wrong"], kind=ErrorKind.VERIFY)
            result.update(seconds=None, fastest=None)
        about = {"op": "reduced", "id": task.id, "rank": endpoint.rank.rank, "kind": op["kind"], "bytes": size}
        send({**base.verdict(problem), **about, **result})
    if group is not None:
        close(group, failed is not None)


def close(group: RankGroup, broken: bool) -> None:
    """Close a group; an error is only printed, because the results are already reported."""
    try:
        group.close(broken)
    except Exception as error:
        print("fabtui rank host: teardown: %s" % base.describe(error), file=sys.stderr, flush=True)


def parse_world(message: Message) -> Message:
    """Return the validated parts of a ``world`` request; raise KeyError, TypeError or ValueError if it is invalid."""
    ranks = [int(rank) for rank in message["ranks"]]
    known = set(ranks)
    if not ranks or len(known) != len(ranks):
        raise ValueError("no ranks, or a rank twice: %r" % (ranks[:100],))
    transfers = [(int(pair[0]), int(pair[1])) for pairs in message["rounds"] for pair in pairs]
    if any(src == dst or src not in known or dst not in known for src, dst in transfers):
        raise ValueError("a transfer is not between two of the ranks")
    op = {key: max(1, int(message[key])) for key in ("bytes", "iters", "warmup")}  # type: Message
    op.update(ranks=ranks, transfers=transfers, turn=max(0.0, float(message.get("turn", 0.0))))
    return op


class World:
    """One rank's part of a world; ``op`` is the request, as `parse_world` returned it.

    The deadline of the task applies to each of the two halves: forming the world, and the rounds. A transfer leaves a
    ``turn`` (s) to each of those after it, but at most half of the time.
    """

    def __init__(self, op: Message, endpoint: RankEndpoint, task: Task) -> None:
        self._op = op
        self._endpoint = endpoint
        self._rank = endpoint.rank.rank
        self._task = task
        self._seconds: Dict[str, Optional[float]] = dict.fromkeys(("init", "connect", "rounds"))
        self._rows: List[List[Any]] = []
        self._at: Optional[List[int]] = None
        self._short = False  # Whether the transfer that failed had too little time, as those before it took long.
        self._wrong: Optional[Failed] = None
        self._send: Callable[[Any], None] = lambda message: None
        self._reported = 0.0

    def run(self, send: Callable[[Any], None]) -> None:
        """Run all phases and report at the end, results of the rounds meanwhile; never raises because of a test."""
        self._send = send
        group: Optional[RankGroup] = None
        failed: Optional[Failed] = None
        phase = CONNECT
        try:
            group = self._form(time.monotonic() + self._task.deadline)
            phase = TRANSFER
            self._transfers(group, time.monotonic() + self._task.deadline)
        except Exception as error:
            failed = Failed.from_error(phase, error)
            # The world stays formed if a connection made late, in a round, fails.
            failed.phase = phase if phase == CONNECT or failed.phase == CONNECT else failed.phase
        report = {**base.verdict(failed or self._wrong), "seconds": self._seconds, "at": self._at, "short": self._short}
        send({**report, **self._part("worlded", self._rows)})
        if group is not None:
            close(group, failed is not None)

    def _report_rows(self) -> None:
        """Report the results since the latest report, if that was some time ago."""
        now = time.monotonic()
        if self._rows and now - self._reported > max(LEAST_INTERVAL, len(self._op["ranks"]) / REPORTS_PER_SECOND):
            rows, self._rows, self._reported = self._rows, [], now
            self._send(self._part("rows", rows))

    def _part(self, op: str, rows: List[List[Any]]) -> Message:
        """Return rows ``[src, dst, bytes, bytes per second, ok, error, transport, error kind]`` of this destination."""
        channels = self._endpoint.world_channels
        return {"op": op, "id": self._task.id, "rank": self._rank, "channels": channels, "rows": rows}

    def _lap(self, name: str, began: float) -> float:
        now = time.monotonic()
        self._seconds[name] = round(now - began, 6)
        return now

    def _form(self, end: float) -> RankGroup:
        endpoint, task, ranks = self._endpoint, self._task, self._op["ranks"]
        began = time.monotonic()
        meet(endpoint, task, ranks, self._op["bytes"], True, end)
        began = self._lap("meet", began)
        join = partial(endpoint.join, task, ranks, end, endpoint.world_channels)
        group: RankGroup = endpoint.run(task, join, CONNECT, end)
        began = self._lap("init", began)
        try:
            endpoint.run(task, partial(group.connect, self._peers(), end), CONNECT, end)
        except BaseException:
            group.close(True)
            raise
        self._lap("connect", began)
        return group

    def _peers(self) -> List[int]:
        """Return the ranks to connect to: its peers in transfers; without transfers, all or the neighbours."""
        me, ranks = self._rank, self._op["ranks"]
        if self._op["transfers"]:
            peers = {src if dst == me else dst for src, dst in self._op["transfers"] if me in (src, dst)}
        elif len(ranks) <= MAX_FULL_MESH:
            peers = set(ranks)
        else:
            at = ranks.index(me)
            peers = {ranks[at - 1], ranks[(at + 1) % len(ranks)]}
        return sorted(peers - {me})

    def _transfers(self, group: RankGroup, end: float) -> None:
        endpoint, task, op = self._endpoint, self._task, self._op
        began = self._reported = time.monotonic()
        own = [pair for pair in op["transfers"] if self._rank in pair]
        try:
            for number, (src, dst) in enumerate(own):
                job = PairJob(op["bytes"], op["iters"], op["warmup"], 0, shares=len(own) - number)
                self._report_rows()
                others = min((job.shares - 1) * op["turn"], base.remaining(end) / 2)
                self._at, turn = [src, dst], end - others
                self._short = base.remaining(turn) < min(LEAST_TIME, task.deadline / 2)
                if self._rank == src:
                    endpoint.run(task, partial(group.link(dst).send, job, turn), TRANSFER, turn)
                    continue
                link = group.link(src)
                try:
                    measured: Message = endpoint.run(task, partial(link.receive, job, turn), TRANSFER, turn)
                except Failed as failed:
                    if failed.phase != VERIFY:
                        raise
                    # The data is wrong, but it arrived: the other ranks must not wait for this one because of it.
                    self._wrong = self._wrong or failed
                    transport = link.transport(False)[0]
                    self._rows.append([src, dst, op["bytes"], None, False, failed.text, transport, failed.kind])
                    continue
                transport = link.transport(False)[0] or measured["transport"]
                self._rows.append([src, dst, measured["bytes"], measured["rate"], True, None, transport, None])
            self._at = None
        finally:
            self._lap("rounds", began)
