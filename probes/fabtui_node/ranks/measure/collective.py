"""Collective test at one rank: meet, connect, measure each size, report each."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Callable, List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, CollectiveResult, Failed, ReducedReport, Task
from fabtui_node.ranks.controller_channel import Message, StoreError
from fabtui_node.ranks.engine import RankEndpoint, RankGroup
from fabtui_node.ranks.measure.verify import KINDS, TWICE

MAX_NAMED = 64
"""Maximum number of ranks of which the missing ones are looked up."""


def meet(endpoint: RankEndpoint, task: Task, ranks: List[int], size: int, second: bool, end: float) -> None:
    """Allocate memory, and wait until all ranks of a group are there, before any of them calls a library that waits.

    Each rank increments a counter; the last one notifies all. So a rank costs the controller three requests in a group
    of any size.

    Raises `Failed` if a rank declined or is missing; the failure of this one is raised here and at once at all others.

    Args:
        endpoint: This rank.
        task: The group's task.
        ranks: All ranks of the group.
        size: Size of the largest message.
        second: Whether outgoing data needs memory of its own.
        end: Monotonic time of the deadline.
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


def run(op: Message, endpoint: RankEndpoint, send: Callable[[ReducedReport], None], task: Task) -> None:
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
        result = CollectiveResult()
        if failed is None:
            assert group is not None
            try:
                work = partial(group.collective, op["kind"], size, op["iters"], op["warmup"], task.end)
                result = endpoint.run(task, work, TRANSFER, task.end)
            except Exception as error:
                failed = Failed.from_error(TRANSFER, error)
        problem = failed
        if failed is None and result.wrong:
            # The other sizes are measured all the same.
            problem = Failed(VERIFY, "%d values are wrong" % result.wrong, kind=ErrorKind.VERIFY)
        send(
            {
                **base.verdict(problem),
                "op": "reduced",
                "id": task.id,
                "rank": endpoint.rank.rank,
                "kind": op["kind"],
                "bytes": size,
                "sent": result.sent,
                "seconds": result.seconds if problem is None else None,
                "fastest": result.fastest if problem is None else None,
                "wrong": result.wrong,
                "transport": result.transport,
                "algorithm": result.algorithm,
                "rings": list(result.rings),
            }
        )
    if group is not None:
        close(group, failed is not None)


def close(group: RankGroup, broken: bool) -> None:
    """Close a group; an error is only printed, because the results are already reported."""
    try:
        group.close(broken)
    except Exception as error:
        print("fabtui rank host: teardown: %s" % base.describe(error), file=sys.stderr, flush=True)
