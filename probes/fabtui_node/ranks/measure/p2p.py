"""Pair test at one of its two ranks: meet, connect, measure one direction, agree on it, measure the other, report."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Callable, List, NamedTuple, Optional, Set

from fabtui_node.protocol import CONSEQUENCES, ErrorKind, Message
from fabtui_node.ranks import base, tcp_precheck
from fabtui_node.ranks.base import CONNECT, TRANSFER, VERIFY, Cancelled, Failed, Fault, PairJob, StoreError, Task
from fabtui_node.ranks.engine import PairLink, RankEndpoint

#: Faults of the lab that change what the source does.
SOURCE_FAULTS = ("corrupt", "kill", "stop")
#: Timed messages (s) in both directions at once.
BIDIRECTIONAL_BUDGET = 0.05
#: Seconds past its own deadline that one side waits for the other's verdict: the two do not start at one instant.
VERDICT_GRACE = 1.0
#: Facts of a rank host that its ranks report to the ranks they meet.
HostInfo = NamedTuple("HostInfo", [("node", str), ("address", str), ("closed_port", int), ("faults", List[Fault])])


def fail(report: Message, failed: Failed) -> None:
    report.update(base.verdict(failed))


def mark_injected(report: Message, fault: str) -> None:
    report["made"], report["error"] = True, "%s (made by the lab: %s)" % (report["error"], fault)


def is_consequence(mine: Optional[str], theirs: Optional[str]) -> bool:
    """Return True if this side's error follows from the other side's error, which is a cause."""
    return mine in CONSEQUENCES and theirs not in CONSEQUENCES


class RankPairTest:
    """Test of one pair at one of its two ranks; both run the same steps."""

    def __init__(
        self, endpoint: RankEndpoint, host: HostInfo, task: Task, op: Message, send: Callable[[Message], None]
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
            self._link, self._name_of_link = kept.take(self._kept_as, self._task), name
        else:
            # The other end closes its own as well.
            kept.close(self._kept_as, broken=True)
            self._free_before = self._endpoint.free_memory()

    def _held(self) -> Optional[int]:
        """Return by how much the GPU's free memory fell since before the pair connected; None for a kept link."""
        now = self._endpoint.free_memory() if self._free_before is not None else None
        return None if now is None or self._free_before is None else max(0, self._free_before - now)

    def _run(self) -> None:
        a, b = self._op["a"], self._op["b"]
        share = self._task.deadline / 2
        lasting: Optional[Failed] = None
        reports: List[Message] = []
        try:
            self._hello = self._meet(time.monotonic() + min(share, self._op.get("meet") or share))
            self._use_kept()
        except Failed as failed:
            lasting = failed
        for src, dst in ((a, b), (b, a)):
            report = self._blank(src, dst, lasting)
            if lasting is None:
                lasting = self._direction(report, time.monotonic() + share)
            elif self._is_absent(self._peer):
                mark_injected(report, "absent")
            reports.append(report)
            if not self._op.get("both"):
                self._report(report)
        if self._op.get("both") and all(report["ok"] and not report["made"] for report in reports):
            self._bidirectional(reports, time.monotonic() + share)
        for report in reports:
            self._report(report)

    def _blank(self, src: int, dst: int, failed: Optional[Failed] = None) -> Message:
        """Return the report of a direction that was not measured, or failed."""
        names = ("rate", "latency", "transport", "src_addr", "dst_addr", "both_rate", "times", "held")
        report: Message = {**dict.fromkeys(names), **base.verdict(failed), "op": "side", "id": self._task.id}
        report.update(src=src, dst=dst, role="src" if self._me == src else "dst", made=False, ok=False)
        report.update(bytes=self._op["bytes"], phase=CONNECT if failed is None else failed.phase)
        return report

    def _is_absent(self, rank: int) -> bool:
        other = self._peer if rank == self._me else self._me
        return any((f.src, f.dst, f.kind) == (rank, other, "absent") for f in self._host.faults)

    def _report_rest(self, failed: Failed) -> None:
        a, b = self._op["a"], self._op["b"]
        self._report(self._blank(a, b, failed))
        self._report(self._blank(b, a, failed))

    def _name(self, rank: int) -> str:
        node = self._host.node if rank == self._me else str(self._hello.get("node") or "")[:80]
        return "rank %d (%s)" % (rank, node) if node else "rank %d" % rank

    def _meet(self, end: float) -> Message:
        task, host, peer = self._task, self._host, self._peer
        own = self._endpoint.rank.address or host.address
        hello: Message = {"node": host.node, "address": own, "closed_port": host.closed_port}
        hello["kept"] = self._endpoint.kept.name(self._kept_as)
        take = partial(task.swap, "hello/%d" % self._me, hello, "hello/%d" % peer, end)
        return task.first(take, lambda: "rank %d" % peer, "rank %d is gone" % peer)

    def _fault(self, src: int, dst: int) -> Fault:
        """Return the fault that the lab injects into a direction; its kind is empty without any."""
        # Not from the other side: a fault can end this process.
        for fault in self._host.faults:
            if (fault.src, fault.dst) == (src, dst):
                return fault
        return Fault(src, dst, "", None)

    def _agree(self, key: str, report: Message, end: float) -> None:
        until = end + VERDICT_GRACE
        if not report["ok"] and report["phase"] == CONNECT and not report["timeout"]:
            # The other side may wait for this one until its deadline; it is cancelled when this one is done.
            until = min(until, time.monotonic() + VERDICT_GRACE / 5)
        role, other = ("src", "dst") if report["role"] == "src" else ("dst", "src")
        shared = ("ok", "timeout", "phase", "error", "error_kind", "transport")
        verdict: Message = {name: report[name] for name in shared}
        verdict["address"] = report[role + "_addr"]
        try:
            theirs = self._task.swap("%s/end/%s" % (key, role), verdict, "%s/end/%s" % (key, other), until)
        except StoreError as error:
            if report["ok"]:
                gone = isinstance(error, Cancelled)
                text = "%s %s" % (self._name(self._peer), "is gone" if gone else "sent no verdict")
                kind = ErrorKind.PEER_LOST if gone else ErrorKind.TIMEOUT
                fail(report, Failed(TRANSFER, text, not gone, kind=kind))
            return
        transport, address = theirs.get("transport"), theirs.get("address")
        if report["transport"] is None and isinstance(transport, str):
            report["transport"] = transport[:80]
        if isinstance(address, str):
            report[other + "_addr"] = report[other + "_addr"] or address[:80]
        if theirs.get("ok") is not True:
            self._merge(report, theirs)

    def _merge(self, report: Message, theirs: Message) -> None:
        late, kind = theirs.get("timeout") is True, ErrorKind.of(theirs.get("error_kind"))
        # The other side's error counts if this side only timed out, or only saw the other one go.
        if report["ok"] or (not late and (report["timeout"] or is_consequence(report["error_kind"], kind))):
            text = base.one_line(str(theirs.get("error") or "failed without a reason"), 1000)
            report["error"], report["error_kind"] = "%s: %s" % (self._name(self._peer), text), kind
            report["timeout"] = late
        report["ok"] = False
        phases = (report["phase"], theirs.get("phase"))
        report["phase"] = CONNECT if CONNECT in phases else VERIFY if VERIFY in phases else TRANSFER

    def _bidirectional(self, reports: List[Message], end: float) -> None:
        """Measure both directions at once; if that fails, the link is bad although each direction alone passed."""
        link, op = self._link, self._op
        assert link is not None
        leading = self._me == op["a"]
        size = min(report["bytes"] for report in reports)
        count = op["iters"]
        if leading:
            known = [size / report["rate"] for report in reports if report["rate"]]
            count = base.repetitions(2 * max(known, default=1.0), BIDIRECTIONAL_BUDGET, count)
        both, rate = self._blank(op["a"], op["b"]), None
        both["phase"] = TRANSFER
        try:
            work = partial(link.bidirectional, size, count, leading, end)
            rate = self._endpoint.run(self._task, work, TRANSFER, end)
            both["ok"] = True
        except Exception as error:
            fail(both, Failed.from_error(TRANSFER, error))
            self._drop_link(broken=True, report=both)
        self._agree("both", both, end)
        for number, report in enumerate(reports):
            if both["ok"]:
                # The rate of what arrives here.
                report["both_rate"] = rate if (number == 0) != leading else None
            else:
                report["ok"], report["timeout"], report["phase"] = False, both["timeout"], both["phase"]
                report["error"] = "each direction alone passes, both at once fail: %s" % both["error"]
                report["raw"], report["error_kind"] = both["raw"] or report["raw"], both["error_kind"]
        if not both["ok"]:
            self._drop_link(broken=True)

    def _direction(self, report: Message, end: float) -> Optional[Failed]:
        """Test one direction; return the failure if it applies to the other direction too."""
        src, dst = report["src"], report["dst"]
        key = "%d>%d" % (src, dst)
        fault = self._fault(src, dst)
        report["made"] = fault.kind != ""
        if fault.kind == "refuse":
            self._refuse(key, report, end)
            return None
        try:
            self._test(fault, report, end)
        except Exception as error:
            fail(report, Failed.from_error(report["phase"], error))
            # At once, not after the agreement: a peer that waits notices that the connection closes.
            self._drop_link(broken=True, report=report)
        self._agree(key, report, end)
        if report["ok"]:
            return None
        self._drop_link(broken=True, report=report)
        # The lab's faults begin once the two are connected: it did not inject a failure to connect.
        report["made"] = report["made"] and report["phase"] != CONNECT
        if report["made"]:
            mark_injected(report, fault.kind)
            return None
        if report["phase"] == CONNECT or self._task.cancelled:
            kind = ErrorKind.of(report["error_kind"])
            return Failed(report["phase"], report["error"] or "", report["timeout"], report["raw"], kind)
        return None

    def _test(self, fault: Fault, report: Message, end: float) -> None:
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
        link.test = task.id
        report["phase"] = TRANSFER
        op = self._op
        rate = fault.rate if fault.kind == "slow" else None
        change = fault.kind if fault.kind in SOURCE_FAULTS else None
        job = PairJob(op["bytes"], op["iters"], op["warmup"], op["latency_iters"], rate, change)
        sending = report["role"] == "src"
        if not sending:
            report.update(run(task, partial(link.receive, job, end), TRANSFER, end))
        elif fault.kind != "drop":
            report.update(run(task, partial(link.send, job, end), TRANSFER, end))
        report["transport"], own, other = link.transport(sending)
        report["src_addr"], report["dst_addr"] = (own, other) if sending else (other, own)
        report["raw"] = None if sending and fault.kind == "drop" else link.raw(sending)
        report["ok"] = True

    def _refuse(self, key: str, report: Message, end: float) -> None:
        if report["role"] == "src":
            address, port = str(self._hello.get("address") or ""), self._hello.get("closed_port")
            failed = self._connect_refused(address, port if isinstance(port, int) else 0, end)
            verdict: Message = {"error": failed.text, "error_kind": failed.kind, "timeout": failed.timeout}
            self._task.put(key + "/refused", verdict)
        else:
            try:
                theirs = self._task.take(key + "/refused", end)
                text = "%s: %s" % (self._name(report["src"]), base.one_line(str(theirs.get("error"))))
                kind = ErrorKind.of(theirs.get("error_kind"))
                failed = Failed(CONNECT, text, theirs.get("timeout") is True, kind=kind)
            except StoreError as error:
                failed = Failed.from_error(CONNECT, error)
        fail(report, failed)
        mark_injected(report, "refuse")

    def _connect_refused(self, address: str, port: int, end: float) -> Failed:
        seconds = min(base.remaining(end), 5.0)
        try:
            tcp_precheck.connect(address, port, self._host.address, seconds).close()
        except OSError as error:
            text = tcp_precheck.reason(error, address, port, seconds)
            return Failed(CONNECT, text, isinstance(error, socket.timeout), kind=ErrorKind.of_socket(error))
        return Failed(CONNECT, "connected to %s, which should refuse" % tcp_precheck.endpoint(address, port))

    def _drop_link(self, broken: bool, report: Optional[Message] = None) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        log, problem = None, ""
        try:
            log = link.log() if broken else None
            link.close(broken)
        except Exception as error:
            log, problem = None, "; teardown: %s" % base.describe(error)
        if report is not None:
            report["raw"] = "\n".join(dict.fromkeys(part for part in (log, report["raw"]) if part)) or None
            if problem:
                report["error"] = "%s%s" % (report["error"], problem)

    def _report(self, report: Message) -> None:
        if report["role"] in self._reported:
            return
        self._reported.add(report["role"])
        if report["ok"]:
            report["timeout"], report["error"], report["error_kind"] = False, None, None
        else:
            report["rate"] = report["latency"] = report["both_rate"] = report["times"] = None
        try:
            report["held"] = self._held()
        except Exception:
            report["held"] = None
        self._send(report)
