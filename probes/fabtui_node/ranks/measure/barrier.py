"""Barrier of the ranks of a group, before any of them calls a library that waits for all."""

from __future__ import annotations

import time
from typing import List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import CONNECT, Endpoint, Failed, Task, one_line, remaining
from fabtui_node.ranks.controller_channel import Cancelled, StoreError, StoreTimeout

MAX_NAMED = 64
"""Maximum number of ranks of which the missing ones are looked up."""


def prepare(endpoint: Optional[Endpoint], rank: int, error: Optional[str], size: int, second: bool) -> Optional[Failed]:
    """Allocate the memory of a group test; return why this rank cannot take part, None if it can.

    Args:
        endpoint: The rank, None if it is not ready.
        rank: Its number.
        error: Why it is not ready.
        size: Size of the largest message.
        second: Whether outgoing data needs memory of its own.
    """
    if endpoint is None:
        return Failed(CONNECT, "rank %d is not ready: %s" % (rank, error), kind=ErrorKind.NOT_READY)
    try:
        endpoint.prepare(size, second)
    except Failed as failed:
        return failed
    return None


def come_together(task: Task, me: int, ranks: List[int], end: float, declined: Optional[Failed] = None) -> None:
    """Wait until all ranks of a group are there.

    Each rank increments a counter; the last one notifies all. So a rank costs the controller three requests in a group
    of any size.

    Args:
        task: The group's task.
        me: This rank.
        ranks: All ranks of the group.
        end: Monotonic time of the deadline.
        declined: Why this rank cannot take part; raised here and at once at all others.

    Raises:
        Failed: A rank declined or is missing.
    """
    store, board = task.board.store, task.board
    if declined is not None:
        board.put("all", {"declined": declined.text, "error_kind": declined.kind})
        raise declined
    try:
        board.put("here/%d" % me, {})
        if store.add(task.prefix + "count", 1, remaining(end), task) == len(ranks):
            board.put("all", {})
            return
        reply = board.take("all", end)
    except StoreTimeout:
        text = "%s did not come within %.1f s" % (_missing(task, ranks), time.monotonic() - task.began)
        raise Failed(CONNECT, text, timeout=True, kind=ErrorKind.PEER_MISSING) from None
    except Cancelled as error:
        raise Failed(CONNECT, "cancelled: a rank is gone", kind=error.kind) from None
    except StoreError as error:
        raise Failed.from_error(CONNECT, error) from None
    if reply.get("declined") is not None:
        raise Failed(CONNECT, one_line(str(reply["declined"])), kind=ErrorKind.of(reply.get("error_kind")))


def _missing(task: Task, ranks: List[int]) -> str:
    """Return the names of missing ranks."""
    if len(ranks) > MAX_NAMED:
        return "some of %d ranks" % len(ranks)
    missing = []
    for rank in ranks:
        try:
            if not task.board.store.check(["%shere/%d" % (task.prefix, rank)], 1.0, task):
                missing.append("rank %d" % rank)
        except StoreError:
            return "some of %d ranks" % len(ranks)
    if not missing:
        return "the notification that all ranks are there"
    more = " and %d more" % (len(missing) - 4) if len(missing) > 4 else ""
    return ", ".join(missing[:4]) + more
