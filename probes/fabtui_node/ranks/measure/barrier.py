"""How the ranks of a group come together before any of them enters a library that waits for all."""

from __future__ import annotations

import time
from typing import List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import CONNECT, Failed, Task, remaining, tidy
from fabtui_node.ranks.controller_channel import Cancelled, StoreError, StoreTimeout

ASKED = 64
"""Ranks that are looked for by name when not all came."""


def come_together(task: Task, me: int, ranks: List[int], end: float, declined: Optional[Failed] = None) -> None:
    """Wait until all ranks of a group have come.

    Each rank counts itself; the last one tells all. So a rank costs the controller three requests, however many
    there are.

    Args:
        task: The group's task.
        me: This rank.
        ranks: All ranks of the group.
        end: Monotonic time at which to give up.
        declined: Why this rank cannot take part; the others are told at once, and it is raised here too.

    Raises:
        Failed: Somebody declined or did not come.
    """
    store, board = task.board.store, task.board
    began = time.monotonic()
    if declined is not None:
        board.put("all", {"declined": declined.text, "error_kind": declined.kind})
        raise declined
    try:
        board.put("here/%d" % me, {})
        if store.add(task.prefix + "count", 1, remaining(end), task) == len(ranks):
            board.put("all", {})
            return
        said = board.take("all", end)
    except StoreTimeout:
        text = "%s did not come within %.1f s" % (_missing(task, ranks), time.monotonic() - began)
        raise Failed(CONNECT, text, timeout=True, kind=ErrorKind.PEER_MISSING) from None
    except Cancelled as error:
        raise Failed(CONNECT, "called off: a rank is gone", kind=error.kind) from None
    except StoreError as error:
        raise Failed.from_error(CONNECT, error) from None
    if said.get("declined") is not None:
        raise Failed(CONNECT, tidy(str(said["declined"])), kind=ErrorKind.of(said.get("error_kind")))


def _missing(task: Task, ranks: List[int]) -> str:
    """Return who is not there, in words."""
    if len(ranks) > ASKED:
        return "not all of %d ranks are there: some" % len(ranks)
    missing = []
    for rank in ranks:
        try:
            if not task.board.store.check(["%shere/%d" % (task.prefix, rank)], 1.0, task):
                missing.append("rank %d" % rank)
        except StoreError:
            return "some of %d ranks" % len(ranks)
    if not missing:
        return "word that all ranks are there"
    more = " and %d more" % (len(missing) - 4) if len(missing) > 4 else ""
    return ", ".join(missing[:4]) + more
