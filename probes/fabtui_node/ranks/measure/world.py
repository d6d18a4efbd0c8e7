"""The world layer at one of its ranks: one communicator of all, all connections at once, then rounds of transfers."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Endpoint, Failed, Group, Measured, PairJob, Task, describe
from fabtui_node.ranks.measure.barrier import come_together

EVERYONE = 64
"""Up to so many ranks a world without transfers connects everyone to everyone, a larger one only neighbours."""

Message = Dict[str, Any]


def parse(message: Message) -> Message:
    """Return the parts of a request for a world.

    Raises:
        KeyError: Something is missing.
        TypeError: Something is of another type.
        ValueError: Something is not what it should be.
    """
    ranks = [int(rank) for rank in message["ranks"]]
    known = set(ranks)
    if not ranks or len(known) != len(ranks):
        raise ValueError("no ranks, or one of them twice: %r" % (ranks[:100],))
    transfers = [(int(pair[0]), int(pair[1])) for pairs in message["rounds"] for pair in pairs]
    if any(src == dst or src not in known or dst not in known for src, dst in transfers):
        raise ValueError("a transfer is not between two of the ranks")
    op = {key: max(1, int(message[key])) for key in ("bytes", "iters", "warmup")}  # type: Message
    op.update(ranks=ranks, transfers=transfers)
    return op


class World:
    """One rank's part of a world.

    Args:
        op: The request, as ``parse`` returned it.
        endpoint: The rank, None if it is not ready.
        rank: Its number.
        why: Why it is not ready.
        task: The task, whose deadline is that of each of the two halves: making the world, and the rounds.
    """

    def __init__(self, op: Message, endpoint: Optional[Endpoint], rank: int, why: Optional[str], task: Task) -> None:
        self._op = op
        self._endpoint = endpoint
        self._rank = rank
        self._why = why
        self._task = task
        self._seconds: Dict[str, float] = {}
        self._rows: List[List[Any]] = []
        self._at: Optional[Tuple[int, int]] = None
        self._wrong: Optional[Failed] = None

    def run(self, send: Callable[[Message], None]) -> None:
        """Go through all of it and report once; never raises because of a test."""
        group: Optional[Group] = None
        failed: Optional[Failed] = None
        phase = CONNECT
        try:
            group = self._form(time.monotonic() + self._task.deadline)
            phase = TRANSFER
            self._transfers(group, time.monotonic() + self._task.deadline)
        except Exception as error:
            failed = Failed.from_error(phase, error)
        if failed is None:
            failed = self._wrong
        else:
            # A connection that is made late, in a round, does not unmake the world.
            failed.phase = phase if phase == CONNECT or failed.phase == CONNECT else failed.phase
        send(self._report(failed))
        if group is not None:
            try:
                group.close(failed is not None and failed is not self._wrong)
            except Exception as error:
                print("fabtui rank host: teardown: %s" % describe(error), file=sys.stderr, flush=True)

    def _lap(self, name: str, began: float) -> float:
        now = time.monotonic()
        self._seconds[name] = round(now - began, 6)
        return now

    def _form(self, end: float) -> Group:
        endpoint, task, ranks = self._endpoint, self._task, self._op["ranks"]
        began = time.monotonic()
        declined: Optional[Failed] = None
        if endpoint is None:
            text = "rank %d is not ready: %s" % (self._rank, self._why)
            declined = Failed(CONNECT, text, kind=ErrorKind.NOT_READY)
        else:
            try:
                endpoint.prepare(self._op["bytes"], True)
            except Failed as failed:
                declined = failed
        come_together(task, self._rank, ranks, end, declined)
        assert endpoint is not None
        joined = endpoint
        began = self._lap("meet", began)
        group: Group = joined.run(task, lambda: joined.join(task, ranks, end, joined.world_channels), CONNECT, end)
        began = self._lap("init", began)
        try:
            joined.run(task, lambda: group.meet(self._peers(), end), CONNECT, end)
        except BaseException:
            group.close(True)
            raise
        self._lap("connect", began)
        return group

    def _peers(self) -> List[int]:
        """Return whom this rank has transfers with; in a world without any, whom to connect to anyway."""
        me, ranks = self._rank, self._op["ranks"]
        if self._op["transfers"]:
            found = {src if dst == me else dst for src, dst in self._op["transfers"] if me in (src, dst)}
        elif len(ranks) <= EVERYONE:
            found = set(ranks)
        else:
            at = ranks.index(me)
            found = {ranks[at - 1], ranks[(at + 1) % len(ranks)]}
        return sorted(found - {me})

    def _transfers(self, group: Group, end: float) -> None:
        endpoint, task, op = self._endpoint, self._task, self._op
        assert endpoint is not None
        began = time.monotonic()
        job = PairJob(op["bytes"], op["iters"], op["warmup"], 0)
        try:
            for src, dst in op["transfers"]:
                if self._rank == src:
                    self._at = (src, dst)
                    endpoint.run(task, partial(group.link(dst).send, job, end), TRANSFER, end)
                elif self._rank == dst:
                    self._at = (src, dst)
                    link = group.link(src)
                    try:
                        measured: Measured = endpoint.run(task, partial(link.receive, job, end), TRANSFER, end)
                    except Failed as failed:
                        if failed.phase != VERIFY:
                            raise
                        # What came is wrong, but it came: the others are not to wait for this rank because of it.
                        self._wrong = self._wrong or failed
                        self._rows.append([src, dst, op["bytes"], None, False, failed.text, link.transport(False)[0]])
                        continue
                    way = link.transport(False)[0] or measured.told
                    self._rows.append([src, dst, measured.bytes, measured.rate, True, None, way])
            self._at = None
        finally:
            self._lap("rounds", began)

    def _report(self, failed: Optional[Failed]) -> Message:
        seconds: Dict[str, Optional[float]] = dict.fromkeys(("init", "connect", "rounds"))
        seconds.update(self._seconds)
        return {
            "op": "worlded",
            "id": self._task.id,
            "rank": self._rank,
            "ok": failed is None,
            "timeout": failed is not None and failed.timeout,
            "phase": TRANSFER if failed is None else failed.phase,
            "error": None if failed is None else failed.text,
            "error_kind": None if failed is None else failed.kind,
            "raw": None if failed is None else failed.raw,
            "seconds": seconds,
            "channels": None if self._endpoint is None else self._endpoint.world_channels,
            "at": list(self._at) if failed is not None and self._at is not None else None,
            "rows": self._rows,
        }
