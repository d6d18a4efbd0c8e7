"""Pair test at one of its two ranks: meet, connect, measure one direction, agree on it, measure the other, report."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Callable, List, NamedTuple, Optional, Set, Tuple

from fabtui_node.protocol import CONSEQUENCES, ErrorKind
from fabtui_node.ranks import base, tcp_precheck
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Failed, Fault, PairJob, PairReport, Task
from fabtui_node.ranks.controller_channel import Cancelled, Message, StoreError
from fabtui_node.ranks.engine import PairLink, RankEndpoint

SOURCE_FAULTS = ("corrupt", "kill", "stop")
"""Faults of the lab that change what the source does."""

BIDIRECTIONAL_BUDGET = 0.05
"""Timed messages (s) in both directions at once."""

VERDICT_GRACE = 1.0
"""Seconds past its own deadline that one side waits for the other's verdict: the two do not start at one instant."""

HostInfo = NamedTuple("HostInfo", [("node", str), ("address", str), ("closed_port", int), ("faults", List[Fault])])
"""Facts of a rank host that its ranks report to the ranks they meet."""


class PairOutcome:
    """Outcome of one direction, as seen by one side."""

    def __init__(self, failed: Optional[Failed] = None) -> None:
        self.ok = False
        self.timeout = False
        self.phase = CONNECT
        self.error: Optional[str] = None
        self.kind: Optional[ErrorKind] = None
        self.injected = False
        self.result = base.TransferResult(0)
        self.both_rate: Optional[float] = None
        self.transport: Optional[str] = None
        self.own: Optional[str] = None
        self.other: Optional[str] = None
        self.raw: Optional[str] = None
        if failed is not None:
            self.fail(failed)

    def fail(self, failed: Failed) -> None:
        """Store a failure."""
        self.ok, self.timeout, self.phase = False, failed.timeout, failed.phase
        self.error, self.kind, self.raw = failed.text, failed.kind, failed.raw

    def mark_injected(self, fault: str) -> None:
        """Add to the error that the lab injected it."""
        self.injected, self.error = True, "%s (made by the lab: %s)" % (self.error, fault)

    def verdict(self) -> Message:
        """Return the message for the other side."""
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
        """Add what only the other side knows."""
        transport, address = theirs.get("transport"), theirs.get("address")
        if self.transport is None and isinstance(transport, str):
            self.transport = transport[:80]
        if self.other is None and isinstance(address, str):
            self.other = address[:80]


def is_consequence(mine: Optional[ErrorKind], theirs: Optional[ErrorKind]) -> bool:
    """Return True if this side's error follows from the other side's error, which is a cause."""
    return mine in CONSEQUENCES and theirs not in CONSEQUENCES


class RankPairTest:
    """Test of one pair at one of its two ranks; both run the same steps."""

    def __init__(
        self, endpoint: RankEndpoint, host: HostInfo, task: Task, op: Message, send: Callable[[PairReport], None]
    ) -> None:
        self._endpoint = endpoint
        self._host = host
        self._task = task
        self._op = op
        self._send = send
        self._me = endpoint.rank.rank
        self._peer = op["b"] if op["a"] == self._me else op["a"]
        self._hello: Message = {}
        self._link: Optional[PairLink] = None
        #: Under which the link is kept, and its name at both ends.
        self._kept_as = (self._peer, op.get("ctas", 0))
        self._name_of_link: Optional[str] = None
        self._free_before: Optional[int] = None
        self._attempts = 0
        self._reported: Set[str] = set()

    def run(self) -> None:
        """Test both directions and report each; never raises."""
        if self._endpoint.error is not None:
            failed = Failed(CONNECT, self._endpoint.error, kind=ErrorKind.NOT_READY)
            self._task.put("hello/%d" % self._me, {"declined": failed.text, "error_kind": failed.kind})
            self._report_rest(failed)
            return
        if self._is_absent(self._me):
            # Never joins: it waits silently until the deadline or the cancellation.
            while base.remaining(self._task.end) > 0 and not self._task.cancelled:
                time.sleep(0.02)
            return
        try:
            self._run()
        except Exception as error:
            self._report_rest(Failed.from_error(CONNECT if not self._reported else TRANSFER, error))
        finally:
            if self._op.get("keep") and self._link is not None and self._name_of_link is not None:
                link, self._link = self._link, None
                self._endpoint.kept.put(self._kept_as, self._name_of_link, link)
            self._drop_link(broken=False)

    def _use_kept(self) -> None:
        """Take the link that an earlier test left, if both ends have it still."""
        kept = self._endpoint.kept
        name = kept.name(self._kept_as)
        if name is not None and name == self._hello.get("kept"):
            link = kept.take(self._kept_as, self._task)
            assert isinstance(link, PairLink)
            self._link, self._name_of_link = link, name
        else:
            # The other end closes its own as well.
            kept.close(self._kept_as, broken=True)
            self._free_before = self._endpoint.free_memory()

    def _held(self) -> Optional[int]:
        now = self._endpoint.free_memory() if self._free_before is not None else None
        return None if now is None or self._free_before is None else max(0, self._free_before - now)

    def _run(self) -> None:
        a, b = self._op["a"], self._op["b"]
        share = self._task.deadline / 2
        lasting: Optional[Failed] = None
        outcomes: List[Tuple[int, int, PairOutcome]] = []
        try:
            self._hello = self._meet(time.monotonic() + min(share, self._op.get("meet") or share))
            self._use_kept()
        except Failed as failed:
            lasting = failed
        for src, dst in ((a, b), (b, a)):
            outcome = PairOutcome(lasting)
            if lasting is None:
                lasting = self._direction(src, dst, outcome, time.monotonic() + share)
            elif self._is_absent(self._peer):
                outcome.mark_injected("absent")
            outcomes.append((src, dst, outcome))
            if not self._op.get("both"):
                self._report(src, dst, outcome)
        if self._op.get("both") and all(outcome.ok and not outcome.injected for _, _, outcome in outcomes):
            self._bidirectional([outcome for _, _, outcome in outcomes], time.monotonic() + share)
        for src, dst, outcome in outcomes:
            self._report(src, dst, outcome)

    def _is_absent(self, rank: int) -> bool:
        """Return True if a fault of the lab keeps a rank away from this test."""
        other = self._peer if rank == self._me else self._me
        return any((f.src, f.dst, f.kind) == (rank, other, "absent") for f in self._host.faults)

    def _report_rest(self, failed: Failed) -> None:
        """Report the directions without a report as failed."""
        a, b = self._op["a"], self._op["b"]
        self._report(a, b, PairOutcome(failed))
        self._report(b, a, PairOutcome(failed))

    def _name(self, rank: int) -> str:
        node = self._host.node if rank == self._me else str(self._hello.get("node") or "")[:80]
        return "rank %d (%s)" % (rank, node) if node else "rank %d" % rank

    def _meet(self, end: float) -> Message:
        """Exchange hello messages with the other side; return its message."""
        task, host, peer = self._task, self._host, self._peer
        mine = [list(f) for f in host.faults if {f.src, f.dst} == {self._me, peer}]
        own = self._endpoint.rank.address or host.address
        hello: Message = {"node": host.node, "address": own, "closed_port": host.closed_port, "faults": mine}
        hello["kept"] = self._endpoint.kept.name(self._kept_as)
        take = partial(task.swap, "hello/%d" % self._me, hello, "hello/%d" % peer, end)
        return task.first(take, lambda: "rank %d" % peer, "rank %d is gone" % peer)

    def _fault(self, src: int, dst: int) -> Fault:
        """Return the fault that the lab injects into a direction; its kind is empty without any."""
        for fault in self._host.faults:
            if (fault.src, fault.dst) == (src, dst):
                return fault
        theirs = self._hello.get("faults")
        for item in theirs if isinstance(theirs, list) else []:
            if isinstance(item, list) and len(item) == 4 and item[:2] == [src, dst]:
                return Fault(src, dst, str(item[2]), item[3] if isinstance(item[3], (int, float)) else None)
        return Fault(src, dst, "", None)

    def _agree(self, key: str, role: str, outcome: PairOutcome, end: float) -> None:
        """Exchange verdicts with the other side, and merge the other one into the outcome."""
        until = end + VERDICT_GRACE
        if not outcome.ok and outcome.phase == CONNECT and not outcome.timeout:
            # The other side may wait for this one until its deadline; it is cancelled when this one is done.
            until = min(until, time.monotonic() + VERDICT_GRACE / 5)
        try:
            mine, other = ("%s/end/%s" % (key, one) for one in (role, "dst" if role == "src" else "src"))
            theirs = self._task.swap(mine, outcome.verdict(), other, until)
        except StoreError as error:
            if outcome.ok:
                gone = isinstance(error, Cancelled)
                text = "%s %s" % (self._name(self._peer), "is gone" if gone else "sent no verdict")
                kind = ErrorKind.PEER_LOST if gone else ErrorKind.TIMEOUT
                outcome.fail(Failed(TRANSFER, text, not gone, kind=kind))
            return
        outcome.complete(theirs)
        if theirs.get("ok") is not True:
            self._merge(outcome, theirs)

    def _merge(self, outcome: PairOutcome, theirs: Message) -> None:
        late, kind = theirs.get("timeout") is True, ErrorKind.of(theirs.get("error_kind"))
        # The other side's error counts if this side only timed out, or only saw the other one go.
        if outcome.ok or (not late and (outcome.timeout or is_consequence(outcome.kind, kind))):
            text = base.one_line(str(theirs.get("error") or "failed without a reason"), 1000)
            outcome.error, outcome.kind = "%s: %s" % (self._name(self._peer), text), kind
            outcome.timeout = late
        outcome.ok = False
        phases = (outcome.phase, theirs.get("phase"))
        outcome.phase = CONNECT if CONNECT in phases else VERIFY if VERIFY in phases else TRANSFER

    def _bidirectional(self, outcomes: List[PairOutcome], end: float) -> None:
        """Measure both directions at once; if that fails, the link is bad although each direction alone passed."""
        link, op = self._link, self._op
        assert link is not None
        leading = self._me == op["a"]
        size = min(outcome.result.bytes or op["bytes"] for outcome in outcomes)
        count = op["iters"]
        if leading:
            known = [size / outcome.result.rate for outcome in outcomes if outcome.result.rate]
            count = base.repetitions(2 * max(known, default=1.0), BIDIRECTIONAL_BUDGET, count)
        outcome, rate = PairOutcome(), None
        outcome.phase = TRANSFER
        try:
            work = partial(link.bidirectional, size, count, leading, end)
            rate = self._endpoint.run(self._task, work, TRANSFER, end)
            outcome.ok = True
        except Exception as error:
            outcome.fail(Failed.from_error(TRANSFER, error))
            self._drop_link(broken=True, outcome=outcome)
        self._agree("both", "src" if leading else "dst", outcome, end)
        for number, one in enumerate(outcomes):
            if outcome.ok:
                # The rate of what arrives here.
                one.both_rate = rate if (number == 0) != leading else None
            else:
                one.ok, one.timeout, one.phase = False, outcome.timeout, outcome.phase
                one.error = "each direction alone passes, both at once fail: %s" % outcome.error
                one.raw, one.kind = outcome.raw or one.raw, outcome.kind
        if not outcome.ok:
            self._drop_link(broken=True)

    def _direction(self, src: int, dst: int, outcome: PairOutcome, end: float) -> Optional[Failed]:
        """Test one direction; return the failure if it applies to the other direction too."""
        key = "%d>%d" % (src, dst)
        fault = self._fault(src, dst)
        outcome.injected = fault.kind != ""
        if fault.kind == "refuse":
            self._refuse(key, src, outcome, end)
            return None
        try:
            self._test(src, fault, outcome, end)
        except Exception as error:
            outcome.fail(Failed.from_error(outcome.phase, error))
            # At once, not after the agreement: a peer that waits notices that the connection closes.
            self._drop_link(broken=True, outcome=outcome)
        self._agree(key, "src" if self._me == src else "dst", outcome, end)
        if outcome.ok:
            return None
        self._drop_link(broken=True, outcome=outcome)
        # The lab's faults begin once the two are connected: it did not inject a failure to connect.
        outcome.injected = outcome.injected and outcome.phase != CONNECT
        if outcome.injected:
            outcome.mark_injected(fault.kind)
            return None
        if outcome.phase == CONNECT or self._task.cancelled:
            return Failed(outcome.phase, outcome.error or "", outcome.timeout, outcome.raw, outcome.kind)
        return None

    def _test(self, src: int, fault: Fault, outcome: PairOutcome, end: float) -> None:
        outcome.phase = CONNECT
        run, task = self._endpoint.run, self._task
        if self._link is None:
            self._attempts += 1
            address = str(self._hello.get("address") or "")
            ctas = self._op.get("ctas") or None
            connect = partial(self._endpoint.connect, task, self._peer, address, self._attempts, end, ctas)
            self._link = run(task, connect, CONNECT, end)
            self._name_of_link = "%slink%d" % (task.prefix, self._attempts)
        link = self._link
        assert link is not None
        outcome.phase = TRANSFER
        op = self._op
        rate = fault.rate if fault.kind == "slow" else None
        change = fault.kind if fault.kind in SOURCE_FAULTS else None
        job = PairJob(op["bytes"], op["iters"], op["warmup"], op["latency_iters"], rate, change)
        if self._me != src:
            outcome.result = run(task, partial(link.receive, job, end), TRANSFER, end)
        elif fault.kind != "drop":
            outcome.result = run(task, partial(link.send, job, end), TRANSFER, end)
        outcome.transport, outcome.own, outcome.other = link.transport(self._me == src)
        outcome.raw = outcome.result.raw
        outcome.ok = True

    def _refuse(self, key: str, src: int, outcome: PairOutcome, end: float) -> None:
        """Let the source connect to a port that refuses, and notify the destination of the error."""
        if self._me == src:
            address, port = str(self._hello.get("address") or ""), self._hello.get("closed_port")
            outcome.fail(self._connect_refused(address, port if isinstance(port, int) else 0, end))
            self._task.put(key + "/refused", outcome.verdict())
        else:
            try:
                theirs = self._task.take(key + "/refused", end)
                text = "%s: %s" % (self._name(src), base.one_line(str(theirs.get("error"))))
                kind = ErrorKind.of(theirs.get("error_kind"))
                outcome.fail(Failed(CONNECT, text, theirs.get("timeout") is True, kind=kind))
            except StoreError as error:
                outcome.fail(Failed.from_error(CONNECT, error))
        outcome.mark_injected("refuse")

    def _connect_refused(self, address: str, port: int, end: float) -> Failed:
        seconds = min(base.remaining(end), 5.0)
        try:
            tcp_precheck.connect(address, port, self._host.address, seconds).close()
        except OSError as error:
            text = tcp_precheck.reason(error, address, port, seconds)
            return Failed(CONNECT, text, isinstance(error, socket.timeout), kind=ErrorKind.of_socket(error))
        return Failed(CONNECT, "connected to %s, which should refuse" % tcp_precheck.endpoint(address, port))

    def _drop_link(self, broken: bool, outcome: Optional[PairOutcome] = None) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        log, problem = None, ""
        try:
            log = link.log() if broken else None
            link.close(broken)
        except Exception as error:
            log, problem = None, "; teardown: %s" % base.describe(error)
        if outcome is not None:
            outcome.raw = log or outcome.raw
            if problem:
                outcome.error = "%s%s" % (outcome.error, problem)

    def _report(self, src: int, dst: int, outcome: PairOutcome) -> None:
        role = "src" if self._me == src else "dst"
        if role in self._reported:
            return
        self._reported.add(role)
        ok, own, other, result = outcome.ok, outcome.own, outcome.other, outcome.result
        try:
            held = self._held()
        except Exception:
            held = None
        self._send(
            {
                "op": "side",
                "id": self._task.id,
                "src": src,
                "dst": dst,
                "role": role,
                "ok": ok,
                "timeout": outcome.timeout and not ok,
                "phase": outcome.phase,
                "error": None if ok else outcome.error,
                "error_kind": None if ok else outcome.kind,
                "made": outcome.injected,
                "bytes": result.bytes or self._op["bytes"],
                "rate": result.rate if ok else None,
                "latency": result.latency if ok else None,
                "transport": outcome.transport,
                "src_addr": own if role == "src" else other,
                "dst_addr": other if role == "src" else own,
                "raw": outcome.raw,
                "both_rate": outcome.both_rate if ok else None,
                "times": base.summarize(result.times) if ok else None,
                "held": held,
            }
        )
