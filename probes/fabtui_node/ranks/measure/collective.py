"""A collective at one of its ranks: come together, connect, measure each size, report each."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, Callable, Dict, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Collected, Endpoint, Failed, Group, Task, describe
from fabtui_node.ranks.measure.barrier import come_together
from fabtui_node.ranks.measure.collective_sizes import KINDS, TWICE

Message = Dict[str, Any]
Send = Callable[[Message], None]


def parse(message: Message) -> Message:
    """Return the parts of a request for a collective.

    Raises:
        KeyError: Something is missing.
        ValueError: Something is not what it should be.
    """
    kind = str(message["kind"])
    if kind not in KINDS:
        raise ValueError("no collective %r" % kind)
    ranks = [int(rank) for rank in message["ranks"]]
    sizes = [int(size) for size in message["sizes"]]
    if not ranks or len(set(ranks)) != len(ranks) or any(size < 1 for size in sizes):
        raise ValueError("no ranks or sizes: %r, %r" % (ranks, sizes))
    iters, warmup = max(1, int(message["iters"])), max(1, int(message["warmup"]))
    return {"kind": kind, "ranks": ranks, "sizes": sizes, "iters": iters, "warmup": warmup}


def collect(op: Message, endpoint: Optional[Endpoint], rank: int, why: Optional[str], send: Send, task: Task) -> None:
    """Measure a collective of several sizes and report each; never raises because of a test.

    Args:
        op: The request, as ``parse`` returned it.
        endpoint: The rank, None if it is not ready.
        rank: Its number.
        why: Why it is not ready.
        send: Sends a message to the controller.
        task: The task.
    """
    group: Optional[Group] = None
    failed: Optional[Failed] = None
    try:
        group = _join(op, endpoint, rank, why, task)
    except Exception as error:
        failed = Failed.from_error(CONNECT, error)
    for size in op["sizes"]:
        result: Optional[Collected] = None
        if failed is None:
            assert group is not None
            assert endpoint is not None
            try:
                work = partial(group.collective, op["kind"], size, op["iters"], op["warmup"], task.end)
                result = endpoint.run(task, work, TRANSFER, task.end)
            except Exception as error:
                failed = Failed.from_error(TRANSFER, error)
        send(_reduced(task, rank, op["kind"], size, result, failed))
    if group is not None:
        try:
            group.close(failed is not None)
        except Exception as error:
            print("fabtui rank host: teardown: %s" % describe(error), file=sys.stderr, flush=True)


def _join(op: Message, endpoint: Optional[Endpoint], rank: int, why: Optional[str], task: Task) -> Group:
    """Meet the others, then connect to all of them."""
    declined: Optional[Failed] = None
    if endpoint is None:
        declined = Failed(CONNECT, "rank %d is not ready: %s" % (rank, why), kind=ErrorKind.NOT_READY)
    else:
        try:
            endpoint.prepare(max(op["sizes"], default=0), op["kind"] in TWICE)
        except Failed as failed:
            declined = failed
    come_together(task, rank, op["ranks"], time.monotonic() + task.deadline / 2, declined)
    assert endpoint is not None
    joined = endpoint
    group: Group = joined.run(task, lambda: joined.join(task, op["ranks"], task.end), CONNECT, task.end)
    return group


def _reduced(
    task: Task, rank: int, kind: str, size: int, result: Optional[Collected], failed: Optional[Failed]
) -> Message:
    message = {
        "op": "reduced",
        "id": task.id,
        "rank": rank,
        "kind": kind,
        "bytes": size,
        "sent": None,
        "ok": failed is None,
        "timeout": failed is not None and failed.timeout,
        "seconds": None,
        "fastest": None,
        "wrong": 0,
        "phase": TRANSFER if failed is None else failed.phase,
        "error": None if failed is None else failed.text,
        "error_kind": None if failed is None else failed.kind,
        "raw": None if failed is None else failed.raw,
        "transport": None,
        "algorithm": None,
    }  # type: Message
    if result is not None:
        message.update(sent=result.sent, seconds=result.seconds, fastest=result.fastest, wrong=result.wrong)
        message.update(transport=result.transport, algorithm=result.algorithm)
        if result.wrong:
            error = "%d values are wrong" % result.wrong
            message.update(ok=False, seconds=None, fastest=None, phase=VERIFY, error=error)
            message["error_kind"] = ErrorKind.VERIFY
    return message
