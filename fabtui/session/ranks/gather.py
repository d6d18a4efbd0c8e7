"""Group requests: one request to many ranks, with a deadline, failing rank hosts and one set of reports per rank."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from fabtui.nodeset import count
from fabtui.sanitize import one_line
from fabtui.session.measure.measurement_context import ABORT_PATIENCE, LAG, MeasurementContext
from fabtui.session.measure.p2p_result import name_ranks
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.rank_host import HostFrozen, HostLost, HostMessage, HostReports, RankHost, Report
from fabtui.transport.link import Message
from fabtui_node.protocol import CONSEQUENCES, ErrorKind

#: Maximum number of reports of a rank about one request: one for each message size.
_MAX_REPORTS = 256
#: Interval (s) at which deadlines are checked.
_TICK = 0.5


@dataclass(slots=True)
class GroupRequest:
    """Request to a group of ranks."""

    ranks: tuple[int, ...]
    message: Message  #: The message, without its number.
    seconds: float  #: Time (s) the ranks may take by themselves.
    #: Returns the part of the message that only one node gets.
    for_node: Callable[[str], Message] = lambda node: {}
    #: Processes a report of a rank at once; returns False if it is to be kept.
    take: Callable[[int, Message], bool] = lambda rank, report: False
    keep: Callable[[Message], Message] = lambda report: report  #: Returns the part of a report that is kept.
    number: int = 0
    due: float = 0.0
    aborted: bool = False
    hung: bool = False  #: Whether a rank did not respond to the abort of the request.
    free: set[int] = field(default_factory=set)
    #: Messages of each rank about the request, in order.
    reports: dict[int, list[Message]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)  #: Why a rank gave no report: its rank host or node was lost.
    began: float = 0.0
    #: Whether a rank host ended in which another test had failed before, which may be the reason.
    spoiled: bool = False
    members: frozenset[int] = field(init=False)  #: Its ranks, to find one among thousands.

    def __post_init__(self) -> None:
        self.members = frozenset(self.ranks)

    def reset(self) -> None:
        self.aborted = self.hung = self.spoiled = False
        for known in (self.free, self.reports, self.gone):
            known.clear()

    def message_for(self, node: str) -> Message:
        return {**self.message, **self.for_node(node), "id": self.number}

    def last_reports(self, op: str, **fields: Any) -> dict[int, Message | None]:
        """Return the last report of each rank with an operation and further fields, or None."""
        wanted = {"op": op, **fields}
        found: dict[int, Message | None] = {}
        for rank in self.ranks:
            matching = (m for m in reversed(self.reports.get(rank, [])) if all(m.get(k) == wanted[k] for k in wanted))
            found[rank] = next(matching, None)
        return found


class Failure(NamedTuple):
    """Reason why a group request failed."""

    text: str
    timeout: bool
    kind: ErrorKind


def failure(request: GroupRequest, reports: Mapping[int, Message | None], names: Sequence[object]) -> Failure:
    """Return why a request failed, by the rank whose error explains most."""
    bad = [(rank, report) for rank, report in reports.items() if report is None or report.get("ok") is not True]
    if not bad:
        return Failure("every rank passed, but not every transfer was reported", False, ErrorKind.NO_REPORT)

    def explains_less(found: tuple[int, Message | None]) -> tuple[bool, bool, bool]:
        # A rank with a reason comes before those that waited for it, were cancelled, or did not report.
        report = found[1] or {}
        return found[1] is None, ErrorKind.of(report.get("error_kind")) in CONSEQUENCES, bool(report.get("timeout"))

    rank, report = min(bad, key=explains_less)
    if request.gone and (report is None or report.get("timeout")):
        rank, report = min(request.gone), None
    text = one_line(str((report or {}).get("error") or request.gone.get(rank) or "gave no report"), 1000)
    timeout = bool(report and report.get("timeout")) or (request.hung and report is None)
    kind = ErrorKind.of((report or {}).get("error_kind")) or (ErrorKind.TIMEOUT if timeout else ErrorKind.FAILED)
    return Failure(f"{names[rank]}: {name_ranks(text, names)}", timeout, kind)


class Gathering:
    """Runs group requests; those that share no rank run at the same time.

    With ``paused_too``, they are not tests: they also run during a pause, and only once.
    """

    def __init__(self, context: MeasurementContext, *, paused_too: bool = False) -> None:
        self._context = context
        self._paused_too = paused_too
        self._running: dict[int, GroupRequest] = {}
        self._lost: list[RankHost] = []

    async def run(self, requests: Sequence[GroupRequest]) -> None:
        """Run requests in order, as soon as their ranks are free; return when all have ended.

        Tests that an earlier one may have spoiled are run once more.
        """
        await self._run(requests)
        if again := [request for request in requests if request.spoiled and not self._paused_too]:
            what = count(len(again), "test of a group", "tests of groups")
            self._context.pump.log(
                "info", f"{what} run again: an earlier failure may have ended one of their rank hosts"
            )
            for request in again:
                request.reset()
            await self._run(again)

    async def _run(self, requests: Sequence[GroupRequest]) -> None:
        waiting, self._lost = list(requests), []
        async with HostReports(self._context.hosts.values(), self._busy_nodes) as reports:
            # Some of the rank hosts that are needed may have been lost in other tests.
            nodes = self._nodes_of(rank for request in requests for rank in request.ranks) & self._context.hosts.keys()
            world = len(self._context.endpoints)
            await asyncio.gather(*(self._context.hosts[node].settled(world) for node in nodes))
            while waiting or self._running:
                waiting = self._start_some(waiting)
                for report in await reports.take(_TICK if self._running or waiting else 0.0):
                    self._process(report)
                self._check_deadlines()
        # Rank hosts that died or hung are ended; the next test that needs one restarts it.
        for host in self._lost:
            if host.client.lost is None:
                host.broken = None
                await host.leave_down()

    def _nodes_of(self, ranks: Iterable[int]) -> set[str]:
        return {self._context.endpoints[rank].node for rank in ranks}

    def _busy_nodes(self) -> set[str]:
        return self._nodes_of(rank for request in self._running.values() for rank in request.ranks)

    def _start_some(self, waiting: list[GroupRequest]) -> list[GroupRequest]:
        if not self._paused_too and not self._context.go.is_set():
            return waiting
        busy = {rank for request in self._running.values() for rank in request.ranks}
        ready = self._context.ready()
        later = []
        for request in waiting:
            if busy & set(request.ranks):
                later.append(request)
            elif missing := [rank for rank in request.ranks if rank not in ready]:
                request.gone.update((rank, f"cannot take part: {self._context.why_not(rank)}") for rank in missing)
                continue
            else:
                self._start(request)
            busy |= set(request.ranks)
        return later

    def _start(self, request: GroupRequest) -> None:
        request.number = self._context.begin(request.ranks)
        request.began = time.monotonic()
        request.due = request.began + request.seconds + GRACE
        self._running[request.number] = request
        for node in self._nodes_of(request.ranks):
            self._context.hosts[node].send_late(partial(request.message_for, node))

    def _process(self, report: Report) -> None:
        match report:
            case HostMessage(host, message):
                try:
                    self._take(host, message)
                except Exception as error:
                    host.client.reject(error)
            case HostLost(host, text) | HostFrozen(host, text):
                self._lose(host, text)

    def _take(self, host: RankHost, message: Message) -> None:
        request = self._running.get(message.get("id", -1))
        rank = message.get("rank")
        if request is None or not isinstance(rank, int) or rank not in request.members:
            return
        if not any(endpoint.number == rank for endpoint in host.endpoints):
            return
        if message.get("ok") is False:
            host.note_failure()
        if message.get("op") == "free":
            request.free.add(rank)
            if any(report.get("ok") is False for report in request.reports.get(rank, [])) and not request.aborted:
                # If one rank failed, the others cannot succeed with it.
                request.due = min(request.due, time.monotonic() + LAG)
            self._end_if_complete(request)
        elif not request.take(rank, message) and len(reports := request.reports.setdefault(rank, [])) < _MAX_REPORTS:
            reports.append(request.keep(message))

    def _end_if_complete(self, request: GroupRequest) -> None:
        if len(request.free) == len(request.ranks) and self._running.pop(request.number, None) is not None:
            self._context.forget(request.number)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for request in [request for request in self._running.values() if now >= request.due]:
            if not request.aborted:
                self._abort(request)
                continue
            request.hung = True
            for node in self._nodes_of(set(request.ranks) - request.free):
                self._lose(self._context.hosts[node], "it did not come back from a cancelled test")

    def _abort(self, request: GroupRequest) -> None:
        request.aborted = True
        request.due = time.monotonic() + ABORT_PATIENCE
        for node in self._nodes_of(set(request.ranks) - request.free):
            self._context.hosts[node].send({"op": "abort", "id": request.number})

    def _lose(self, host: RankHost, text: str) -> None:
        host.broken = text
        self._lost.append(host)
        mine = {endpoint.number for endpoint in host.endpoints}
        for request in list(self._running.values()):
            lost = mine & set(request.ranks) - request.free
            request.gone.update(dict.fromkeys(lost, text))
            request.free |= lost
            request.spoiled |= bool(lost) and host.client.lost is None and host.had_failed(request.began)
            if lost and not request.aborted:
                self._abort(request)
            self._end_if_complete(request)
