"""What two ranks do when they meet: agree, connect, measure one direction, agree on it, measure the other, report."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from fabtui_node.protocol import CONSEQUENCES, ErrorKind
from fabtui_node.ranks import tcp_precheck
from fabtui_node.ranks.base import (
    CONNECT,
    TRANSFER,
    VERIFY,
    Endpoint,
    Failed,
    Fault,
    Link,
    Measured,
    PairJob,
    Task,
    describe,
    fitting,
    remaining,
    summed_up,
    tidy,
)
from fabtui_node.ranks.controller_channel import Cancelled, StoreError, StoreTimeout

DEEDS = ("corrupt", "kill", "stop")

BOTH_BUDGET = 0.05
"""Seconds of timed messages both ways at once."""

VERDICT_GRACE = 1.0
"""Seconds that one side waits for the other's verdict after its own deadline: the two do not start at one instant."""

Message = Dict[str, Any]

Site = NamedTuple("Site", [("node", str), ("address", str), ("closed_port", int), ("faults", List[Fault])])
"""What a rank host knows about itself and tells the ranks it meets."""


class Outcome:
    """How one direction went, as one side saw it."""

    def __init__(self) -> None:
        self.ok = False
        self.timeout = False
        self.phase = CONNECT
        self.error: Optional[str] = None
        self.kind: Optional[ErrorKind] = None
        self.made = False
        self.measured = Measured(0)
        self.both_rate: Optional[float] = None
        self.transport: Optional[str] = None
        self.own: Optional[str] = None
        self.other: Optional[str] = None
        self.raw: Optional[str] = None

    def fail(self, failed: Failed) -> None:
        """Note what went wrong."""
        self.ok, self.timeout, self.phase = False, failed.timeout, failed.phase
        self.error, self.kind, self.raw = failed.text, failed.kind, failed.raw

    def verdict(self) -> Message:
        """Return what the other side is told."""
        return {
            "ok": self.ok,
            "timeout": self.timeout,
            "phase": self.phase,
            "error": self.error,
            "error_kind": self.kind,
            "transport": self.transport,
            "address": self.own,
        }

    def complete(self, theirs: Message) -> None:
        """Fill in what only the other side knows."""
        way, address = theirs.get("transport"), theirs.get("address")
        if self.transport is None and isinstance(way, str):
            self.transport = way[:80]
        if self.other is None and isinstance(address, str):
            self.other = address[:80]


def is_consequence(mine: Optional[ErrorKind], theirs: Optional[ErrorKind]) -> bool:
    """Return True if this side's error only follows from the other side's, and that one is a cause of its own."""
    return mine in CONSEQUENCES and theirs not in CONSEQUENCES


class Meeting:
    """One pair, at one of its two endpoints; both run the same steps."""

    def __init__(
        self, endpoint: Endpoint, site: Site, task: Task, op: Message, send: Callable[[Message], None]
    ) -> None:
        self._endpoint = endpoint
        self._site = site
        self._task = task
        self._op = op
        self._send = send
        self._me = endpoint.rank.rank
        self._peer = op["b"] if op["a"] == self._me else op["a"]
        self._hello: Message = {}
        self._link: Optional[Link] = None
        self._attempts = 0
        self._reported: Set[str] = set()

    def run(self) -> None:
        """Test both directions and report each; never raises, whatever happens."""
        a, b = self._op["a"], self._op["b"]
        if self._absent(self._me):
            self._stay_away()
            return
        share = self._task.deadline / 2
        lasting: Optional[Failed] = None
        outcomes: List[Tuple[int, int, Outcome]] = []
        try:
            try:
                self._hello = self._meet(time.monotonic() + min(share, self._op.get("meet") or share))
            except Failed as failed:
                lasting = failed
            for src, dst in ((a, b), (b, a)):
                outcome = Outcome()
                if lasting is not None:
                    outcome.fail(lasting)
                    if self._absent(self._peer):
                        outcome.made = True
                        outcome.error = "%s (made by the lab: absent)" % outcome.error
                else:
                    lasting = self._direction(src, dst, outcome, time.monotonic() + share)
                outcomes.append((src, dst, outcome))
                if not self._op.get("both"):
                    self._report(src, dst, outcome)
            if self._op.get("both") and all(outcome.ok and not outcome.made for _, _, outcome in outcomes):
                self._both([outcome for _, _, outcome in outcomes], time.monotonic() + share)
            for src, dst, outcome in outcomes:
                self._report(src, dst, outcome)
        except Exception as error:
            self.report_rest(Failed.from_error(CONNECT if not self._reported else TRANSFER, error))
        finally:
            self._drop_link(broken=False)

    def _absent(self, rank: int) -> bool:
        """Return whether a fault of the lab keeps a rank away from this meeting."""
        other = self._peer if rank == self._me else self._me
        return any((f.src, f.dst, f.kind) == (rank, other, "absent") for f in self._site.faults)

    def _stay_away(self) -> None:
        """Be as a rank that never joins: do nothing and say nothing until the deadline, or until called off."""
        while remaining(self._task.end) > 0 and not self._task.cancelled:
            time.sleep(0.02)

    def decline(self, failed: Failed) -> None:
        """Tell the other side that this one cannot take part, and report both directions as failed."""
        self._task.board.put("hello/%d" % self._me, {"declined": failed.text, "error_kind": failed.kind})
        self.report_rest(failed)

    def report_rest(self, failed: Failed) -> None:
        """Report the directions that have no report yet as failed; safe from any thread."""
        for src, dst in ((self._op["a"], self._op["b"]), (self._op["b"], self._op["a"])):
            outcome = Outcome()
            outcome.fail(failed)
            self._report(src, dst, outcome)

    # -- agreeing

    def _name(self, rank: int) -> str:
        node = self._site.node if rank == self._me else str(self._hello.get("node") or "")[:80]
        return "rank %d (%s)" % (rank, node) if node else "rank %d" % rank

    def _meet(self, end: float) -> Message:
        """Tell the other side who this is and hear who it is."""
        mine = [f for f in self._site.faults if {f.src, f.dst} == {self._me, self._peer}]
        board = self._task.board
        board.put(
            "hello/%d" % self._me,
            {
                "node": self._site.node,
                "address": self._site.address,
                "closed_port": self._site.closed_port,
                "faults": [list(fault) for fault in mine],
            },
        )
        began = time.monotonic()
        try:
            hello = board.take("hello/%d" % self._peer, end)
        except StoreTimeout:
            text = "rank %d did not come within %.1f s" % (self._peer, time.monotonic() - began)
            raise Failed(CONNECT, text, timeout=True, kind=ErrorKind.PEER_MISSING) from None
        except Cancelled as error:
            raise Failed(CONNECT, "called off: rank %d is gone" % self._peer, kind=error.kind) from None
        except StoreError as error:
            raise Failed.from_error(CONNECT, error) from None
        if hello.get("declined") is not None:
            raise Failed(CONNECT, tidy(str(hello["declined"])), kind=ErrorKind.of(hello.get("error_kind")))
        return hello

    def _fault(self, src: int, dst: int) -> Optional[Fault]:
        for fault in self._site.faults:
            if (fault.src, fault.dst) == (src, dst):
                return fault
        told = self._hello.get("faults")
        for item in told if isinstance(told, list) else []:
            if isinstance(item, list) and len(item) == 4 and item[:2] == [src, dst]:
                return Fault(src, dst, str(item[2]), item[3] if isinstance(item[3], (int, float)) else None)
        return None

    def _agree(self, key: str, role: str, outcome: Outcome, end: float) -> None:
        """Tell the other side how it went here, and fold in how it went there."""
        board = self._task.board
        board.put("%s/end/%s" % (key, role), outcome.verdict())
        until = end + VERDICT_GRACE
        if not outcome.ok and outcome.phase == CONNECT and not outcome.timeout:
            # The other side may wait for this one to its deadline; it is called off when this one is through.
            until = min(until, time.monotonic() + VERDICT_GRACE / 5)
        try:
            theirs = board.take("%s/end/%s" % (key, "dst" if role == "src" else "src"), until)
        except StoreError as error:
            if outcome.ok:
                gone = isinstance(error, Cancelled)
                text = "is gone" if gone else "did not say how it went"
                why = ErrorKind.PEER_LOST if gone else ErrorKind.TIMEOUT
                outcome.fail(Failed(TRANSFER, "%s %s" % (self._name(self._peer), text), not gone, kind=why))
            return
        outcome.complete(theirs)
        if theirs.get("ok") is True:
            return
        said = tidy(str(theirs.get("error") or "failed without a word"), 1000)
        late, kind = theirs.get("timeout") is True, ErrorKind.of(theirs.get("error_kind"))
        # Who only waited in vain, or only saw the other one go, knows less than who can say why.
        if outcome.ok or (not late and (outcome.timeout or is_consequence(outcome.kind, kind))):
            outcome.error, outcome.kind = "%s: %s" % (self._name(self._peer), said), kind
            outcome.timeout = late
        outcome.ok = False
        phases = (outcome.phase, theirs.get("phase"))
        outcome.phase = CONNECT if CONNECT in phases else VERIFY if VERIFY in phases else TRANSFER

    # -- both directions at once

    def _both(self, outcomes: List[Outcome], end: float) -> None:
        """Measure both directions at once; when that fails, the link is not good although each way alone was."""
        link, op = self._link, self._op
        leading = self._me == op["a"]
        size = min(outcome.measured.bytes or op["bytes"] for outcome in outcomes)
        known = [size / outcome.measured.rate for outcome in outcomes if outcome.measured.rate]
        count = fitting(2 * max(known, default=1.0), BOTH_BUDGET, op["iters"]) if leading else op["iters"]
        outcome, rate = Outcome(), None
        outcome.phase = TRANSFER
        try:
            assert link is not None
            both = partial(link.both, size, count, leading, end)
            rate = self._endpoint.run(self._task, both, TRANSFER, end)
            outcome.ok = True
        except Exception as error:
            outcome.fail(Failed.from_error(TRANSFER, error))
        if not outcome.ok:
            self._drop_link(broken=True, outcome=outcome)
        self._agree("both", "src" if leading else "dst", outcome, end)
        for number, one in enumerate(outcomes):
            if outcome.ok:
                incoming = (number == 0) != leading
                one.both_rate = rate if incoming else None
            else:
                one.ok, one.timeout, one.phase = False, outcome.timeout, outcome.phase
                one.error = "each way alone is good, both at once are not: %s" % outcome.error
                one.raw, one.kind = outcome.raw or one.raw, outcome.kind
        if not outcome.ok:
            self._drop_link(broken=True)

    # -- one direction

    def _direction(self, src: int, dst: int, outcome: Outcome, end: float) -> Optional[Failed]:
        """Test one direction; return the failure that holds for the other direction too, if that is what it was."""
        key = "%d>%d" % (src, dst)
        fault = self._fault(src, dst)
        outcome.made = fault is not None
        if fault is not None and fault.kind == "refuse":
            self._refuse(key, src, outcome, end)
            return None
        try:
            self._test(src, fault, outcome, end)
        except Exception as error:
            outcome.fail(Failed.from_error(outcome.phase, error))
        if not outcome.ok:
            # At once, not after the agreement: a peer in the middle of a wait sees the connection close.
            self._drop_link(broken=True, outcome=outcome)
        self._agree(key, "src" if self._me == src else "dst", outcome, end)
        if outcome.ok:
            return None
        self._drop_link(broken=True, outcome=outcome)
        # The lab's faults begin when the two are connected: what keeps them from that is not of its making.
        outcome.made = outcome.made and outcome.phase != CONNECT
        if outcome.made:
            assert fault is not None
            outcome.error = "%s (made by the lab: %s)" % (outcome.error, fault.kind)
            return None
        if outcome.phase == CONNECT or self._task.cancelled:
            return Failed(outcome.phase, outcome.error or "", outcome.timeout, outcome.raw, outcome.kind)
        return None

    def _test(self, src: int, fault: Optional[Fault], outcome: Outcome, end: float) -> None:
        outcome.phase = CONNECT
        run, task = self._endpoint.run, self._task
        if self._link is None:
            self._attempts += 1
            address, attempt = str(self._hello.get("address") or ""), self._attempts
            self._link = run(
                task, lambda: self._endpoint.connect(task, self._peer, address, attempt, end), CONNECT, end
            )
        link = self._link
        assert link is not None
        outcome.phase = TRANSFER
        op = self._op
        rate = fault.rate if fault is not None and fault.kind == "slow" else None
        deed = fault.kind if fault is not None and fault.kind in DEEDS else None
        job = PairJob(op["bytes"], op["iters"], op["warmup"], op["latency_iters"], rate, deed)
        if self._me != src:
            outcome.measured = run(task, lambda: link.receive(job, end), TRANSFER, end)
        elif fault is not None and fault.kind == "drop":
            link.drop(end)
        else:
            outcome.measured = run(task, lambda: link.send(job, end), TRANSFER, end)
        outcome.transport, outcome.own, outcome.other = link.transport(self._me == src)
        outcome.raw = outcome.measured.raw
        outcome.ok = True

    def _refuse(self, key: str, src: int, outcome: Outcome, end: float) -> None:
        """Let the source run into a port that refuses, and tell the destination what it met."""
        board = self._task.board
        if self._me == src:
            address = str(self._hello.get("address") or "")
            port = self._hello.get("closed_port")
            outcome.fail(self._run_into(address, port if isinstance(port, int) else 0, end))
            board.put(key + "/refused", outcome.verdict())
        else:
            try:
                told = board.take(key + "/refused", end)
                text = "%s: %s" % (self._name(src), tidy(str(told.get("error"))))
                kind = ErrorKind.of(told.get("error_kind"))
                outcome.fail(Failed(CONNECT, text, told.get("timeout") is True, kind=kind))
            except StoreError as error:
                outcome.fail(Failed.from_error(CONNECT, error))
        outcome.error = "%s (made by the lab: refuse)" % outcome.error

    def _run_into(self, address: str, port: int, end: float) -> Failed:
        seconds = min(remaining(end), 5.0)
        try:
            tcp_precheck.connect(address, port, self._site.address, seconds).close()
        except OSError as error:
            text = tcp_precheck.reason(error, address, port, seconds)
            return Failed(CONNECT, text, isinstance(error, socket.timeout), kind=tcp_precheck.error_kind(error))
        return Failed(CONNECT, "connected to %s, which was to refuse" % tcp_precheck.endpoint(address, port))

    def _drop_link(self, broken: bool, outcome: Optional[Outcome] = None) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            log = link.log() if broken else None
            trouble = link.close(broken)
        except Exception as error:
            log, trouble = None, "teardown: %s" % describe(error)
        if outcome is not None:
            outcome.raw = log or outcome.raw
            if trouble:
                outcome.error = "%s; %s" % (outcome.error, trouble)

    def _report(self, src: int, dst: int, outcome: Outcome) -> None:
        role = "src" if self._me == src else "dst"
        if role in self._reported:
            return
        self._reported.add(role)
        own, other = outcome.own, outcome.other
        measured = outcome.measured
        self._send(
            {
                "op": "side",
                "id": self._task.id,
                "src": src,
                "dst": dst,
                "role": role,
                "ok": outcome.ok,
                "timeout": outcome.timeout and not outcome.ok,
                "phase": outcome.phase,
                "error": None if outcome.ok else outcome.error,
                "error_kind": None if outcome.ok else outcome.kind,
                "made": outcome.made,
                "bytes": measured.bytes or self._op["bytes"],
                "rate": measured.rate if outcome.ok else None,
                "latency": measured.latency if outcome.ok else None,
                "transport": outcome.transport,
                "src_addr": own if role == "src" else other,
                "dst_addr": other if role == "src" else own,
                "raw": outcome.raw,
                "both_rate": outcome.both_rate if outcome.ok else None,
                "times": summed_up(measured.times) if outcome.ok else None,
            }
        )
