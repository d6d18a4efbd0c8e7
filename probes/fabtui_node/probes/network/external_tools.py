"""Probes ``iperf3`` and ``perftest``: tools that measure between two nodes, one of which runs a server.

One run of the probe plays one role. ``serve`` starts the server on an ephemeral port, emits the port, and keeps it
until ``end`` or its deadline; ``measure`` runs the client. Neither outlives its run.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from typing import Dict, List

from fabtui_node.parsers.ib import perftest
from fabtui_node.parsers.net import iperf3
from fabtui_node.probes.network import perftest_options
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import run_command, sysfs

_RAW_LIMIT = 4000
_LISTEN = "0A"
_OPEN_DEADLINE = 5.0
_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

#: Tools and the parsers of their clients' output.
TOOLS = {
    "iperf3": iperf3.parse,
    "ib_write_bw": perftest.parse,
    "ib_send_bw": perftest.parse,
    "ib_read_lat": perftest.parse,
}


_stops: Dict[str, threading.Event] = {}
_lock = threading.Lock()


def free_port(address: str) -> int:
    """Return a TCP port of an address that nobody uses."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.bind((address, 0))
        port: int = sock.getsockname()[1]
        return port


def listens(port: int, tables: List[str]) -> bool:
    """Return True if ``/proc/net/tcp`` or ``tcp6`` lists a listening port."""
    wanted = ":%04X" % port
    rows = (line.split() for text in tables for line in text.splitlines()[1:])
    return any(len(row) > 3 and row[1].endswith(wanted) and row[3] == _LISTEN for row in rows)


def server_argv(args: Value, port: int) -> List[str]:
    if args["tool"] == "iperf3":
        # Not for one client alone (-1): that may be somebody who scans the ports.
        return ["iperf3", "-s", "-B", args["address"], "-p", str(port)]
    return _perftest(args, port)


def client_argv(args: Value) -> List[str]:
    if args["tool"] == "iperf3":
        argv = ["iperf3", "-c", args["address"], "-p", str(args["port"]), "-B", args["source"], "-J"]
        return [*argv, "-t", str(args["seconds"]), "--connect-timeout", "3000"]
    return [*_perftest(args, args["port"]), args["address"]]


def _perftest(args: Value, port: int) -> List[str]:
    argv = [args["tool"], "-d", args["device"], "-i", str(args["ib_port"]), "-p", str(port), "-F"]
    if args["gid_index"] is not None:
        argv += ["-x", str(args["gid_index"])]
    latency = args["tool"] == "ib_read_lat"
    more = perftest_options.of_tool(args["tool"], args["options"])
    argv += ["-s", "8"] if latency else ["--report_gbits", "-s", "1048576"]
    if not {"-n", "-D"} & set(more):
        argv += ["-n", "2000"] if latency else ["-D", str(args["seconds"])]
    # The last of two counts.
    return [*argv, *more]


def _checked(args: Value) -> Value:
    """Return the arguments, each of its kind; ValueError if one is not."""
    tool = args.get("tool")
    if tool not in TOOLS:
        raise ValueError("no tool %r; there are %s" % (tool, ", ".join(TOOLS)))
    checked: Value = {
        "tool": tool,
        "gid_index": None,
        "device": "",
        "ib_port": 1,
        "source": "",
        "port": 0,
        "seconds": 1,
    }
    options = args.get("options") or []
    if not isinstance(options, list):
        raise ValueError("the options are not a list")
    checked["options"] = perftest_options.checked([str(word) for word in options])
    for name in ("address", "source"):
        if args.get(name) is not None:
            checked[name] = str(ipaddress.ip_address(str(args[name])))
    for name, most in (("port", 65535), ("ib_port", 255), ("gid_index", 1023), ("seconds", 60)):
        value = args.get(name)
        if value is not None:
            if not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError("%s is not a number of 0 to %d" % (name, most))
            checked[name] = value
    if args.get("device") is not None:
        checked["device"] = str(args["device"])
        if not _DEVICE.fullmatch(checked["device"]) or checked["device"].startswith("-"):
            raise ValueError("not the name of a device: %r" % checked["device"][:64])
    if "address" not in checked:
        raise ValueError("an address is missing")
    return checked


def _emit_when_open(port: int, emit: Emit, stop: threading.Event) -> None:
    end = time.monotonic() + _OPEN_DEADLINE
    while time.monotonic() < end and not stop.wait(0.02):
        if listens(port, [sysfs.text("/proc/net/" + name, limit=1 << 22) or "" for name in ("tcp", "tcp6")]):
            # The controller may be gone.
            with contextlib.suppress(OSError):
                emit({"port": port})
            return


def _serve(args: Value, token: str, emit: Emit, deadline: float) -> Value:
    stop = threading.Event()
    with _lock:
        _stops[token] = stop
    ended = threading.Event()
    try:
        port = free_port(args["address"])
        waiting = threading.Thread(target=_emit_when_open, args=(port, emit, ended), daemon=True)
        waiting.start()
        result = run_command.run(server_argv(args, port), deadline, stop=stop)
    finally:
        ended.set()
        with _lock:
            _stops.pop(token, None)
    waiting.join(1.0)
    text = result.stdout + "\n" + result.stderr
    failed = None if stop.is_set() else result.why()
    error = failed and (TOOLS[args["tool"]](text).values.get("message") or failed)
    return {"error": error, "raw": text[:_RAW_LIMIT]}


def _measure(args: Value, deadline: float) -> Value:
    result = run_command.run(client_argv(args), deadline)
    text = result.stdout if args["tool"] == "iperf3" else result.stdout + "\n" + result.stderr
    values = TOOLS[args["tool"]](text).values
    error = values["error"] if args["tool"] == "iperf3" else values["message"]
    raw = (text or result.stderr)[:_RAW_LIMIT]
    return {"values": values, "error": error or result.why(), "timed_out": result.timed_out, "raw": raw}


def run(args: Value, emit: Emit, deadline: float) -> Value:
    """Play a role in a measurement between two nodes; the tool is killed at the deadline.

    ``role``: ``serve``, ``measure`` or ``end``; ``token``: the name of the server, to end it. To serve and to measure:
    ``tool`` (of `TOOLS`), ``address`` (the server's), and for perftest ``device``, ``ib_port``, ``gid_index`` (or
    null) and ``options`` (further words, as in `perftest_options`); to measure also ``port``, ``source`` (the client's
    address) and ``seconds``. A server emits ``{"port"}`` as soon as it listens.

    Of a server ``{"error", "raw"}``; of a client ``{"values" (what the tool's format gives), "error", "timed_out",
    "raw"}``; of ``end`` ``{}``.

    Raises ValueError: the arguments fit no role.
    """
    role, token = args.get("role"), str(args.get("token") or "")
    if role == "end":
        with _lock:
            _stops.get(token, threading.Event()).set()
        return {}
    if role == "serve":
        return _serve(_checked(args), token, emit, deadline - 0.5)
    if role == "measure":
        return _measure(_checked(args), deadline - 0.5)
    raise ValueError("the role is serve, measure or end, not %r" % (role,))


PROBE_IPERF3 = ProbeSpec(
    name="iperf3",
    title="TCP bandwidth between the nodes of each rail, in both directions, one pair per node at a time",
    phase="request",
    needs="iperf3; an ephemeral port is open meanwhile",
    gives="per pair of addresses of a rail: rate in GB/s, retransmits",
    run=run,
)

PROBE_PERFTEST = ProbeSpec(
    name="perftest",
    title="RDMA bandwidth and latency between the nodes of each rail, in both directions, one pair per node at a time",
    phase="request",
    needs="ib_write_bw, ib_send_bw and ib_read_lat (perftest), and active RDMA ports",
    gives="per pair of RDMA ports of a rail: write and send bandwidth in GB/s, read latency in us",
    run=run,
)
