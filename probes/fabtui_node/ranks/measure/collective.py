"""Collective test at one rank: meet, connect, check, warm up, time and check each size, report each."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import (
    CONNECT,
    TRANSFER,
    VERIFY,
    CollectiveResult,
    Endpoint,
    Failed,
    Group,
    Task,
    describe,
    max_float32_sums,
    remaining,
    repetitions,
)
from fabtui_node.ranks.controller_channel import Message
from fabtui_node.ranks.measure.barrier import come_together, prepare
from fabtui_node.ranks.measure.collective_sizes import KINDS, TWICE, Shape, shape

MAX_TIMED = 1000
"""Maximum number of timed iterations: NCCL ranks agree on it as a float32."""

if TYPE_CHECKING:
    from fabtui_node.messages import ReducedReport


class CollectiveTest(Group):
    """Collectives of a group of ranks; an engine implements the steps, each of which raises Failed.

    Args:
        ranks: Global numbers of the ranks.
        me: Index of this rank among them.
    """

    budget = 1.0
    """Timed iterations (s) of one size."""

    def __init__(self, ranks: List[int], me: int) -> None:
        self._ranks = ranks
        self._me = me

    # -- implemented by an engine

    def _allocate(self, form: Shape) -> Any:
        """Return the buffer that the results arrive in."""
        raise NotImplementedError

    def _iteration(self, form: Shape, buffer: Any, end: float) -> Callable[[], Any]:
        """Return the function that starts one iteration."""
        raise NotImplementedError

    def _fill(self, form: Shape, buffer: Any, end: float) -> None:
        """Write this rank's contribution; the rest becomes blank."""
        raise NotImplementedError

    def _timed(self, form: Shape, times: int, run: Callable[[], Any], end: float) -> List[float]:
        """Return the duration (s) of each of ``times`` iterations in a row."""
        raise NotImplementedError

    def _wrong(self, form: Shape, buffer: Any, rounds: int, end: float) -> int:
        """Return the number of wrong values after ``rounds`` iterations."""
        raise NotImplementedError

    def _minimum(self, number: int, end: float) -> int:
        """Return the minimum of the numbers of all ranks; also a barrier."""
        raise NotImplementedError

    def _transports(self) -> Optional[str]:
        """Return the transports out of this rank, worst first."""
        raise NotImplementedError

    def _algorithm(self) -> Optional[str]:
        """Return the algorithm that the library reported."""
        raise NotImplementedError

    def collective(self, kind: str, size: int, iters: int, warmup: int, end: float) -> CollectiveResult:
        """Measure one size of a collective."""
        ranks = len(self._ranks)
        form = shape(kind, size, ranks)
        buffer = self._allocate(form)
        run = self._iteration(form, buffer, end)
        self._fill(form, buffer, end)
        each = self._timed(form, 1, run, end)[0]
        wrong = self._wrong(form, buffer, 1, end)
        for _ in range(warmup - 1):
            each = self._timed(form, 1, run, end)[0]
        count = min(MAX_TIMED, repetitions(each, min(self.budget, remaining(end) / 3), iters))
        if kind == "all_reduce":
            # Every sum multiplies the values by the number of ranks, until they overflow.
            count = max_float32_sums(ranks, count + 1) - 1
        self._fill(form, buffer, end)
        # Right before the timed iterations, so that the ranks start together.
        count = max(1, self._minimum(count, end))
        # One untimed iteration goes first: the first of a row takes longer.
        laps = self._timed(form, count + 1, run, end)[1:]
        wrong += self._wrong(form, buffer, count + 1, end)
        algorithm = None if kind in TWICE else self._algorithm()
        average = sum(laps) / len(laps)
        return CollectiveResult(form.bytes, average, min(laps), wrong, self._transports(), algorithm)


def parse(message: Message) -> Message:
    """Return the validated parts of a ``collective`` request.

    Raises:
        KeyError: A field is missing.
        ValueError: A field is invalid.
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


def run(
    op: Message,
    endpoint: Optional[Endpoint],
    rank: int,
    error: Optional[str],
    send: Callable[[ReducedReport], None],
    task: Task,
) -> None:
    """Measure a collective of several sizes and report each; never raises because of a test.

    Args:
        op: The request, as ``parse`` returned it.
        endpoint: The rank, None if it is not ready.
        rank: Its number.
        error: Why it is not ready.
        send: Sends a message to the controller.
        task: The task.
    """
    group: Optional[Group] = None
    failed: Optional[Failed] = None
    try:
        group = _join(op, endpoint, rank, error, task)
    except Exception as problem:
        failed = Failed.from_error(CONNECT, problem)
    for size in op["sizes"]:
        result: Optional[CollectiveResult] = None
        if failed is None:
            assert group is not None
            assert endpoint is not None
            try:
                work = partial(group.collective, op["kind"], size, op["iters"], op["warmup"], task.end)
                result = endpoint.run(task, work, TRANSFER, task.end)
            except Exception as problem:
                failed = Failed.from_error(TRANSFER, problem)
        send(_report(task, rank, op["kind"], size, result, failed))
    if group is not None:
        close(group, failed is not None)


def close(group: Group, broken: bool) -> None:
    """Close a group; an error is only printed, because the results are already reported."""
    try:
        group.close(broken)
    except Exception as error:
        print("fabtui rank host: teardown: %s" % describe(error), file=sys.stderr, flush=True)


def _join(op: Message, endpoint: Optional[Endpoint], rank: int, error: Optional[str], task: Task) -> Group:
    declined = prepare(endpoint, rank, error, max(op["sizes"], default=0), op["kind"] in TWICE)
    come_together(task, rank, op["ranks"], time.monotonic() + task.deadline / 2, declined)
    assert endpoint is not None
    group: Group = endpoint.run(task, partial(endpoint.join, task, op["ranks"], task.end), CONNECT, task.end)
    return group


def _report(
    task: Task, rank: int, kind: str, size: int, result: Optional[CollectiveResult], failed: Optional[Failed]
) -> ReducedReport:
    wrong = 0 if result is None else result.wrong
    if failed is None and wrong:
        failed = Failed(VERIFY, "%d values are wrong" % wrong, kind=ErrorKind.VERIFY)
    good = result if failed is None else None
    return {
        "op": "reduced",
        "id": task.id,
        "rank": rank,
        "kind": kind,
        "bytes": size,
        "sent": None if result is None else result.sent,
        "ok": failed is None,
        "timeout": failed is not None and failed.timeout,
        "seconds": None if good is None else good.seconds,
        "fastest": None if good is None else good.fastest,
        "wrong": wrong,
        "phase": TRANSFER if failed is None else failed.phase,
        "error": None if failed is None else failed.text,
        "error_kind": None if failed is None else failed.kind,
        "raw": None if failed is None else failed.raw,
        "transport": None if result is None else result.transport,
        "algorithm": None if result is None else result.algorithm,
    }
