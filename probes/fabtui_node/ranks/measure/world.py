"""World layer at one rank: one communicator of all ranks, all connections at once, then rounds of transfers."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Endpoint, Failed, Group, PairJob, Task, TransferResult
from fabtui_node.ranks.controller_channel import Message
from fabtui_node.ranks.measure.barrier import come_together, prepare
from fabtui_node.ranks.measure.collective import close

if TYPE_CHECKING:
    from fabtui_node.messages import WorldReport

MAX_FULL_MESH = 64
"""Maximum number of ranks of which a world without transfers connects all pairs; above it only neighbours."""


def parse(message: Message) -> Message:
    """Return the validated parts of a ``world`` request.

    Raises:
        KeyError: A field is missing.
        TypeError: A field has the wrong type.
        ValueError: A field is invalid.
    """
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
    """One rank's part of a world.

    Args:
        op: The request, as ``parse`` returned it.
        endpoint: The rank, None if it is not ready.
        rank: Its number.
        error: Why it is not ready.
        task: The task; its deadline applies to each of the two halves: forming the world, and the rounds.
    """

    def __init__(self, op: Message, endpoint: Optional[Endpoint], rank: int, error: Optional[str], task: Task) -> None:
        self._op = op
        self._endpoint = endpoint
        self._rank = rank
        self._error = error
        self._task = task
        self._seconds: Dict[str, float] = {}
        self._rows: List[List[Any]] = []
        self._at: Optional[Tuple[int, int]] = None
        self._wrong: Optional[Failed] = None

    def run(self, send: Callable[[WorldReport], None]) -> None:
        """Run all phases and report once; never raises because of a test."""
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
            # The world stays formed if a connection made late, in a round, fails.
            failed.phase = phase if phase == CONNECT or failed.phase == CONNECT else failed.phase
        send(self._report(failed))
        if group is not None:
            close(group, failed is not None and failed is not self._wrong)

    def _lap(self, name: str, began: float) -> float:
        now = time.monotonic()
        self._seconds[name] = round(now - began, 6)
        return now

    def _form(self, end: float) -> Group:
        endpoint, task, ranks = self._endpoint, self._task, self._op["ranks"]
        began = time.monotonic()
        declined = prepare(endpoint, self._rank, self._error, self._op["bytes"], True)
        come_together(task, self._rank, ranks, end, declined)
        assert endpoint is not None
        began = self._lap("meet", began)
        join = partial(endpoint.join, task, ranks, end, endpoint.world_channels)
        group: Group = endpoint.run(task, join, CONNECT, end)
        began = self._lap("init", began)
        try:
            endpoint.run(task, partial(group.connect, self._peers(), end), CONNECT, end)
        except BaseException:
            group.close(True)
            raise
        self._lap("connect", began)
        return group

    def _peers(self) -> List[int]:
        """Return the ranks to connect to: those of its transfers; without any, all or the neighbours."""
        me, ranks = self._rank, self._op["ranks"]
        if self._op["transfers"]:
            found = {src if dst == me else dst for src, dst in self._op["transfers"] if me in (src, dst)}
        elif len(ranks) <= MAX_FULL_MESH:
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
                        measured: TransferResult = endpoint.run(task, partial(link.receive, job, end), TRANSFER, end)
                    except Failed as failed:
                        if failed.phase != VERIFY:
                            raise
                        # The data is wrong, but it arrived: the other ranks must not wait for this one because of it.
                        self._wrong = self._wrong or failed
                        transport = link.transport(False)[0]
                        self._rows.append([src, dst, op["bytes"], None, False, failed.text, transport, failed.kind])
                        continue
                    transport = link.transport(False)[0] or measured.peer_transport
                    self._rows.append([src, dst, measured.bytes, measured.rate, True, None, transport, None])
            self._at = None
        finally:
            self._lap("rounds", began)

    def _report(self, failed: Optional[Failed]) -> WorldReport:
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
