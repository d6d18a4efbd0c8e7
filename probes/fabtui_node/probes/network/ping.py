"""Probe ``ping``: round trip and loss from each address of the node to each given address.

``fping`` asks many targets at once from one source. If it is missing, may not open its socket or prints nothing,
``ping`` does the same, one pair a process; without either, ICMP sockets do. An echo goes there and back:
loss does not show which direction is broken.
"""

from __future__ import annotations

import ipaddress
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from fabtui_node.parsers.net import ping as ping_format
from fabtui_node.probes.network import icmp_socket
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import run_command

_PINGS_AT_ONCE = 64
_FPINGS_AT_ONCE = 16
_TARGETS_A_FPING = 128
_RAW_LIMIT = 2000
_ALL_RAW_LIMIT = 500 * 1000
_MAX_COUNT = 100
_MAX_TARGETS = 8192

# Between the echoes to one target, and between any two echoes of one fping.
_PERIOD = 0.2
_SPACING_MS = 1

_USAGE = re.compile(r"invalid|unrecognized|illegal|usage:|bad |cannot flood|minimal interval", re.IGNORECASE)


class Plan(NamedTuple):
    """Parameters of a ping: echoes, seconds to wait for the last, bytes of payload, no fragments."""

    echoes: int
    wait: float
    size: int
    whole: bool = False
    period: float = _PERIOD

    @property
    def span(self) -> float:
        """Seconds that asking a target that never answers takes, with some slack for a busy node."""
        return self.echoes * 1.0 + self.wait + 2.0


def fping_argv(src: str, targets: Iterable[str], plan: Plan) -> List[str]:
    """Return the command that asks all targets (of one address family) from one source."""
    argv = ["fping", "-q", "-C", str(plan.echoes), "-p", str(int(plan.period * 1000)), "-i", str(_SPACING_MS)]
    argv += ["-t", str(max(1, int(plan.wait * 1000))), "-b", str(plan.size)]
    if plan.whole:
        argv.append("-M")
    if src:
        argv += ["-S", src]
    return [*argv, "--", *targets]


def ping_argv(src: str, dst: str, plan: Plan, plain: bool = False) -> List[str]:
    """Return the command that asks one target; ``plain`` without the options that not every release has."""
    # Integer seconds: older releases accept no others.
    argv = ["ping", "-n", "-c", str(plan.echoes), "-W", str(max(1, math.ceil(plan.wait))), "-s", str(plan.size)]
    if plan.whole:
        argv += ["-M", "do"]
    if not plain:
        argv += ["-i", str(_PERIOD)]
    if ":" in dst:
        argv.append("-6")
    if src:
        argv += ["-I", src]
    return [*argv, "--", dst]


class _Sweep:
    """One run of the probe: the rows so far, and how to hand them out."""

    def __init__(self, plan: Plan, emit: Emit, end: float) -> None:
        self.plan = plan
        self.end = end
        self.rows: List[Value] = []
        self._emit = emit
        self._lock = threading.Lock()
        self._plain = False

    def _run(self, argv: List[str], more: float = 0.0) -> run_command.CommandResult:
        return run_command.run(argv, min(self.end - time.monotonic(), self.plan.span + more))

    def of(self, target: Value) -> Plan:
        return self.plan._replace(size=target["size"])

    def give(self, answers: List[Tuple[Value, Value]], tool: str) -> None:
        done = [dict(row, **target, tool=tool) for target, row in answers]
        with self._lock:
            self.rows.extend(done)
            if done:
                self._emit({"rows": done})

    def fping(self, group: List[Value]) -> List[Value]:
        """Ask a group of targets of one source; return those that fping gave no answer for."""
        wanted = list(dict.fromkeys(target["dst"] for target in group))
        spread = len(wanted) * self.plan.echoes * _SPACING_MS / 1000.0
        argv = fping_argv(group[0]["src"], wanted, self.of(group[0]))
        result = self._run(argv, spread)
        text = result.stderr + "\n" + result.stdout
        rows = ping_format.parse_fping(text)
        # The lines of one target, not of all of them.
        raw = dict.fromkeys(wanted, "")
        for line in text.splitlines():
            for dst in set(line.split()) & set(raw):
                raw[dst] = (raw[dst] + line + "\n")[:_RAW_LIMIT]
        answered = [target for target in group if target["dst"] in rows]
        self.give([(target, dict(rows[target["dst"]], raw=raw[target["dst"]])) for target in answered], "fping")
        return [target for target in group if target["dst"] not in rows]

    def ping(self, target: Value) -> None:
        # Others may find out meanwhile what this ping does not know.
        plain = self._plain
        result = self._run(ping_argv(target["src"], target["dst"], self.of(target), plain))
        refused = result.returncode not in (0, None) and _USAGE.search(result.stderr)
        if result.missing or (refused and self.plan.whole):
            # A ping that cannot forbid fragments (busybox) would prove nothing.
            self.echo(target)
            return
        if refused and not plain:
            result = self._run(ping_argv(target["src"], target["dst"], self.of(target), True))
            self._plain = self._plain or result.returncode in (0, 1)
        text = result.stdout + ("\n" + result.stderr if result.stderr else "")
        row = ping_format.parse_ping(text)
        if result.timed_out and row["sent"] is None:
            row["error"] = "no time left to ask" if result.returncode is None else "ping did not end in time"
        elif row["sent"] is None and row["error"] == ping_format.NO_SUMMARY:
            row["error"] = result.why() or row["error"]
        if self.plan.whole and row["path_mtu"] and not row["received"]:
            row["outdated"] = self._passes_anyway(target)
        self.give([(target, dict(row, raw=text[:_RAW_LIMIT]))], "ping")

    def _passes_anyway(self, target: Value) -> Optional[bool]:
        """Return True if echoes pass that ignore the path MTU in the kernel's cache, which ping respects."""
        try:
            return bool(self._echo(target, True)["received"])
        except icmp_socket.NotPermitted:
            return None

    def echo(self, target: Value) -> None:
        try:
            row = self._echo(target, self.plan.whole)
        except icmp_socket.NotPermitted as error:
            row = ping_format.unknown_row(str(error))
        self.give([(target, dict(row, raw=""))], "icmp")

    def _echo(self, target: Value, whole: bool) -> Value:
        plan = self.plan
        size, period = target["size"], plan.period
        return icmp_socket.ask(target["src"], target["dst"], plan.echoes, plan.wait, size, self.end, whole, period)


def _targets(args: Dict[str, Any], size: int) -> Tuple[List[Value], List[Value]]:
    good: List[Value] = []
    bad: List[Value] = []
    for target in args.get("targets") or []:
        if not isinstance(target, dict):
            continue
        entry: Value = {"id": target.get("id"), **{end: str(target.get(end) or "") for end in ("src", "dst")}}
        entry["size"] = int(_bounded(target.get("size"), size, 0, 65507))
        families = {_family(address) for address in (entry["src"] or entry["dst"], entry["dst"])}
        (good if families in ({4}, {6}) else bad).append(entry)
    return good, bad


def _family(text: str) -> Optional[int]:
    address, _, zone = text.partition("%")
    if zone and not re.fullmatch("[0-9A-Za-z_.-]{1,15}", zone, re.ASCII):
        return None
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return None


def _bounded(value: Any, default: float, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return default
    return min(max(float(value), low), high)


def _groups(targets: List[Value]) -> List[List[Value]]:
    by_source: Dict[Tuple[str, int, bool], List[Value]] = {}
    for target in targets:
        by_source.setdefault((target["src"], target["size"], ":" in target["dst"]), []).append(target)
    most = _TARGETS_A_FPING
    return [found[start : start + most] for found in by_source.values() for start in range(0, len(found), most)]


def run(args: Value, emit: Emit, deadline: float) -> Value:
    """Ask every pair of addresses, and emit ``{"rows": [...]}`` as answers come; those not asked in time have an error.

    ``targets``: ``[{"id", "src", "dst", "size"}]``. ``count`` of echoes (3), ``wait`` for each in seconds (1.0),
    ``size`` of the payload in bytes (56) of targets without a ``size``. ``period`` between the echoes of ``fping``
    and of sockets in seconds (0.2). ``whole``: forbid fragments; ``reasons``: use ``ping`` before ``fping``, which does
    not print why an echo could not be sent.

    ``{"rows": [{"id", "src", "dst", "size", "sent", "received", "loss" (percent), "rtt_min", "rtt_avg", "rtt_max" (ms),
    "duplicates", "path_mtu" (bytes), "error", "tool", "raw"}], "tool"}``; None is unknown, never 0. ``raw`` is left out
    of a very large result; the parts have it. Where ``ping`` met a smaller path MTU, "outdated" is true if that is only
    in the kernel's cache.

    Raises ValueError: there are more targets than one message can answer for.
    """
    plan = Plan(
        int(_bounded(args.get("count"), 3, 1, _MAX_COUNT)),
        _bounded(args.get("wait"), 1.0, 0.05, 30.0),
        int(_bounded(args.get("size"), 56, 0, 65507)),
        args.get("whole") is True,
        _bounded(args.get("period"), _PERIOD, 0.01, 10.0),
    )
    targets, bad = _targets(args, plan.size)
    if len(targets) + len(bad) > _MAX_TARGETS:
        raise ValueError("at most %d pairs a request, not %d" % (_MAX_TARGETS, len(targets) + len(bad)))
    sweep = _Sweep(plan, emit, time.monotonic() + deadline - 0.2)
    unknown = dict(ping_format.unknown_row("not two addresses of one family"), raw="")
    sweep.give([(target, unknown) for target in bad], "none")
    if targets and run_command.find("fping") and not (args.get("reasons") is True and run_command.find("ping")):
        with ThreadPoolExecutor(_FPINGS_AT_ONCE) as pool:
            targets = [target for rest in pool.map(sweep.fping, _groups(targets)) for target in rest]
    if targets:
        with ThreadPoolExecutor(min(_PINGS_AT_ONCE, len(targets))) as pool:
            list(pool.map(sweep.ping if run_command.find("ping") else sweep.echo, targets))
    tools = sorted({row["tool"] for row in sweep.rows})
    # The parts have carried every row with its text; together they would not fit into one message.
    if sum(len(row["raw"]) for row in sweep.rows) > _ALL_RAW_LIMIT:
        sweep.rows = [dict(row, raw="") for row in sweep.rows]
    return {"rows": sweep.rows, "tool": "+".join(tool for tool in tools if tool != "none") or "none"}


PROBE = ProbeSpec(
    name="ping",
    title="round trips between all data addresses, with small packets and with packets that fill the MTU",
    phase="mesh",
    needs="fping or ping, or permission to send ICMP echo requests",
    gives="per pair of addresses: round trip in ms (min, avg, max), loss in percent, largest packet that passes",
    run=run,
)
