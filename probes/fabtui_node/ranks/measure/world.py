"""World layer at one rank: one communicator of all ranks, all connections at once, then rounds of transfers."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Failed, PairJob, Task, WorldReport, WorldRows
from fabtui_node.ranks.controller_channel import Message
from fabtui_node.ranks.engine import RankEndpoint, RankGroup
from fabtui_node.ranks.measure.collective import close, meet

REPORTS_PER_SECOND = 100
"""Maximum number of reports of all ranks together during the rounds."""

LEAST_INTERVAL = 0.5
"""Minimum time (s) between two reports of a rank during the rounds."""

MAX_FULL_MESH = 64
"""Maximum number of ranks of which a world without transfers connects all pairs; above it only neighbours."""


def parse(message: Message) -> Message:
    """Return the validated parts of a ``world`` request; raise KeyError, TypeError or ValueError if it is invalid."""
    ranks = [int(rank) for rank in message["ranks"]]
    known = set(ranks)
    if not ranks or len(known) != len(ranks):
        raise ValueError("no ranks, or a rank twice: %r" % (ranks[:100],))
    transfers = [(int(pair[0]), int(pair[1])) for pairs in message["rounds"] for pair in pairs]
    if any(src == dst or src not in known or dst not in known for src, dst in transfers):
        raise ValueError("a transfer is not between two of the ranks")
    op = {key: max(1, int(message[key])) for key in ("bytes", "iters", "warmup")}  # type: Message
    op.update(ranks=ranks, transfers=transfers)
    return op


class World:
    """One rank's part of a world; ``op`` is the request, as ``parse`` returned it.

    The deadline of the task applies to each of the two halves: forming the world, and the rounds.
    """

    def __init__(self, op: Message, endpoint: RankEndpoint, task: Task) -> None:
        self._op = op
        self._endpoint = endpoint
        self._rank = endpoint.rank.rank
        self._task = task
        self._seconds: Dict[str, Optional[float]] = dict.fromkeys(("init", "connect", "rounds"))
        self._rows: List[List[Any]] = []
        self._at: Optional[List[int]] = None
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
        report: WorldReport = {
            **base.verdict(failed or self._wrong),
            "op": "worlded",
            "id": self._task.id,
            "rank": self._rank,
            "seconds": self._seconds,
            "channels": self._endpoint.world_channels,
            "at": self._at,
            "rows": self._rows,
        }
        send(report)
        if group is not None:
            close(group, failed is not None)

    def _report_rows(self) -> None:
        """Report the results since the latest report, if that was some time ago."""
        now = time.monotonic()
        if self._rows and now - self._reported > max(LEAST_INTERVAL, len(self._op["ranks"]) / REPORTS_PER_SECOND):
            rows, self._rows, self._reported = self._rows, [], now
            channels = self._endpoint.world_channels
            found: WorldRows = {
                "op": "rows",
                "id": self._task.id,
                "rank": self._rank,
                "channels": channels,
                "rows": rows,
            }
            self._send(found)

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
            found = {src if dst == me else dst for src, dst in self._op["transfers"] if me in (src, dst)}
        elif len(ranks) <= MAX_FULL_MESH:
            found = set(ranks)
        else:
            at = ranks.index(me)
            found = {ranks[at - 1], ranks[(at + 1) % len(ranks)]}
        return sorted(found - {me})

    def _transfers(self, group: RankGroup, end: float) -> None:
        endpoint, task, op = self._endpoint, self._task, self._op
        began = self._reported = time.monotonic()
        job = PairJob(op["bytes"], op["iters"], op["warmup"], 0)
        try:
            for src, dst in op["transfers"]:
                if self._rank not in (src, dst):
                    continue
                self._report_rows()
                self._at = [src, dst]
                if self._rank == src:
                    endpoint.run(task, partial(group.link(dst).send, job, end), TRANSFER, end)
                    continue
                link = group.link(src)
                try:
                    measured: base.TransferResult = endpoint.run(task, partial(link.receive, job, end), TRANSFER, end)
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
