"""Sending one thing to many ranks and gathering one report of each, with a deadline and rank hosts that die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fabtui.sanitize import one_line
from fabtui.session.measure.context import ABORT_PATIENCE, LAG, TestBed
from fabtui.session.measure.p2p_result import name_ranks
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.liveness import Pulse, frozen_text
from fabtui.session.ranks.rank_host import RankHost

#: More than any rank has to tell of one errand: a report for each message size.
_MOST_REPORTS = 256


@dataclass(slots=True)
class Errand:
    """Something that a group of ranks is asked to do together.

    Attributes:
        ranks: The ranks.
        message: What they are asked, without its number.
        for_node: Returns what of the message is said to one node only.
        keep: Returns what is kept of a report.
        seconds: How long they may take by themselves.
        reports: All messages of each rank about it, as they came.
        gone: Why a rank gave no report, where its rank host or node was lost.
        hung: Whether a rank did not come back at all.
    """

    ranks: tuple[int, ...]
    message: dict[str, Any]
    seconds: float
    for_node: Callable[[str], dict[str, Any]] = lambda node: {}
    keep: Callable[[dict[str, Any]], dict[str, Any]] = lambda report: report
    number: int = 0
    due: float = 0.0
    aborted: bool = False
    hung: bool = False
    free: set[int] = field(default_factory=set)
    reports: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)


def _message(errand: Errand, node: str) -> dict[str, Any]:
    return {**errand.message, **errand.for_node(node), "id": errand.number}


def failure(errand: Errand, reports: dict[int, dict[str, Any] | None], names: Sequence[object]) -> tuple[str, bool]:
    """Return why an errand failed, by the rank that says most, and whether it was a timeout."""
    bad = [(rank, report) for rank, report in reports.items() if report is None or report.get("ok") is not True]
    if not bad:
        return "every rank says that it passed, but not every transfer was reported", False

    def knows_less(found: tuple[int, dict[str, Any] | None]) -> tuple[bool, bool, bool]:
        # A rank that says why comes before those that only waited for it, were called off, or said nothing.
        said = found[1] or {}
        return found[1] is None, "called off" in str(said.get("error")), bool(said.get("timeout"))

    rank, report = min(bad, key=knows_less)
    if errand.gone and (report is None or report.get("timeout")):
        rank, report = min(errand.gone), None
    text = one_line(str((report or {}).get("error") or errand.gone.get(rank) or "gave no report"), 1000)
    timeout = bool(report and report.get("timeout")) or (errand.hung and report is None)
    return f"{names[rank]}: {name_ranks(text, names)}", timeout


class Gathering:
    """Runs errands; those that share no rank run at once."""

    def __init__(self, bed: TestBed) -> None:
        self._bed = bed
        self._running: dict[int, Errand] = {}
        self._wake = asyncio.Event()
        self._lost: list[RankHost] = []

    async def run(self, errands: Sequence[Errand]) -> None:
        """Run errands in their order, as far as their ranks are free; return when all ended."""
        for host in self._bed.hosts.values():
            host.on_test = self._take
            host.on_gone = self._gone
        pulse = asyncio.create_task(Pulse(self._bed.hosts.values(), self._busy, self._frozen).run())
        waiting = list(errands)
        try:
            await self._settled(errands)
            while waiting or self._running:
                waiting = self._start_some(waiting)
                self._wake.clear()
                try:
                    async with asyncio.timeout(0.5):
                        await self._wake.wait()
                except TimeoutError:
                    self._check_deadlines()
        finally:
            pulse.cancel()
            await asyncio.gather(pulse, return_exceptions=True)
            for host in self._bed.hosts.values():
                host.on_test = host.on_gone = None
            await self._leave_down()

    async def _settled(self, errands: Sequence[Errand]) -> None:
        """Wait for the rank hosts that are needed and were lost in other tests."""
        nodes = {self._bed.endpoints[rank].node for errand in errands for rank in errand.ranks}
        hosts = [self._bed.hosts[node] for node in nodes if node in self._bed.hosts]
        await asyncio.gather(*(host.settled(len(self._bed.endpoints)) for host in hosts))

    async def _leave_down(self) -> None:
        """End rank hosts that died or hung; the next test that needs one starts it anew."""
        for host in self._lost:
            if host.remote.lost is None:
                host.broken = None
                await host.leave_down()

    def _busy(self) -> set[str]:
        ranks = [rank for errand in self._running.values() for rank in errand.ranks]
        return {self._bed.endpoints[rank].node for rank in ranks}

    def _start_some(self, waiting: list[Errand]) -> list[Errand]:
        if not self._bed.go.is_set():
            return waiting
        busy = {rank for errand in self._running.values() for rank in errand.ranks}
        later = []
        for errand in waiting:
            if busy & set(errand.ranks):
                later.append(errand)
                busy |= set(errand.ranks)
                continue
            missing = [rank for rank in errand.ranks if rank not in self._bed.ready()]
            if missing:
                errand.gone.update((rank, f"cannot take part: {self._bed.why_not(rank)}") for rank in missing)
                continue
            self._start(errand)
            busy |= set(errand.ranks)
        return later

    def _start(self, errand: Errand) -> None:
        errand.number = next(self._bed.ids)
        errand.due = time.monotonic() + errand.seconds + GRACE
        self._running[errand.number] = errand
        for node in {self._bed.endpoints[rank].node for rank in errand.ranks}:
            self._bed.hosts[node].send_made(partial(_message, errand, node))

    def _take(self, host: RankHost, message: dict[str, Any]) -> None:
        errand = self._running.get(message.get("id", -1))
        rank = message.get("rank")
        if errand is None or not isinstance(rank, int) or rank not in errand.ranks:
            return
        if not any(endpoint.number == rank for endpoint in host.endpoints):
            return
        if message.get("op") == "free":
            errand.free.add(rank)
            if any(report.get("ok") is False for report in errand.reports.get(rank, [])) and not errand.aborted:
                # What one rank could not do, the others cannot do together with it.
                errand.due = min(errand.due, time.monotonic() + LAG)
            self._end_if_through(errand)
        elif len(reports := errand.reports.setdefault(rank, [])) < _MOST_REPORTS:
            reports.append(errand.keep(message))

    def _end_if_through(self, errand: Errand) -> None:
        if len(errand.free) == len(errand.ranks) and self._running.pop(errand.number, None) is not None:
            self._bed.forget(errand.number)
            self._wake.set()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for errand in [errand for errand in self._running.values() if now >= errand.due]:
            if not errand.aborted:
                self._abort(errand)
                continue
            errand.hung = True
            for node in {self._bed.endpoints[rank].node for rank in set(errand.ranks) - errand.free}:
                self._lose(self._bed.hosts[node], "it did not come back from a test that was called off")

    def _abort(self, errand: Errand) -> None:
        errand.aborted = True
        errand.due = time.monotonic() + ABORT_PATIENCE
        for node in {self._bed.endpoints[rank].node for rank in set(errand.ranks) - errand.free}:
            self._bed.hosts[node].send({"op": "abort", "id": errand.number})

    def _frozen(self, host: RankHost, seconds: float) -> None:
        self._lose(host, frozen_text(host, seconds))

    def _gone(self, host: RankHost, text: str) -> None:
        self._lose(host, text)

    def _lose(self, host: RankHost, text: str) -> None:
        """Close what runs on a rank host that is gone; the other ranks are told to stop waiting."""
        host.broken = text
        self._lost.append(host)
        mine = {endpoint.number for endpoint in host.endpoints}
        for errand in list(self._running.values()):
            lost = mine & set(errand.ranks) - errand.free
            errand.gone.update(dict.fromkeys(lost, text))
            errand.free |= lost
            if lost and not errand.aborted:
                self._abort(errand)
            self._end_if_through(errand)
