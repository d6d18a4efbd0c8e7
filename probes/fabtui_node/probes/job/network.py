"""Probe ``job-network``: the TCP sockets of the ranks of a running job, and the interfaces that they use.

A socket belongs to the process of the rank that holds it; the same user may see that, and root. What a data loader has
inherited is its rank's as well, and is not listed twice. Nothing is sent, but for two echoes of two sizes along a path
on which a socket is stuck.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from fabtui_node.probes.job import evidence
from fabtui_node.probes.network import interfaces, ping
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, sock_diag, sysfs

#: Maximum number of sockets that are reported, those that carried most first.
_MOST = 512
#: Doubled time-outs from which a path is tried with echoes, maximum number of paths, and bytes of headers.
_STUCK, _PATHS, _SMALL, _HEADERS = 3, 4, 56, 12
#: Samples of where the ranks wait, and the time (s) between two.
_SAMPLES, _BETWEEN = 20, 0.05
_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors")


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc", root: str = "/sys") -> Value:
    """Read the sockets of the ranks, with ``job`` those of one Slurm job.

    With ``longer``, stuck paths are tried, and ``waits`` has for each rank how often its main thread was seen where
    within a second: ``rank``, ``pid``, ``seen`` (by wait channel; "" means that it ran).

    ``sockets``: rows of `sock_diag.sockets` with ``rank`` and ``pid``, without ``inode``. ``nics``: by interface with a
    carrier or an address, ``carrier`` (bool), ``speed`` (Mbit/s), ``changes`` (of the carrier), and counts of errors.
    ``addresses``: the interface of each address of the node. ``pings``: rows of the probe ``ping`` along stuck paths.
    ``problems``: what cannot be seen, and why.
    """
    end = time.monotonic() + deadline * 0.8
    owners: Dict[int, Dict[str, Any]] = {}
    problems: List[str] = []
    processes = job_processes.find(proc, str(args.get("job") or ""))
    longer = args.get("longer") is True
    waits = _waits(processes, proc) if longer else []
    here = job_processes.link_of(proc, "self/ns/net")
    for process in processes:
        place = {"rank": process["rank"], "pid": process["pid"]}
        if job_processes.link_of(proc, str(process["pid"]), "ns/net") not in ("", here):
            problems.append("rank %d has a network namespace of its own" % process["rank"])
            continue
        held = job_processes.held_sockets(process["pid"], proc)
        if held is None:
            problems.append("the sockets of rank %d may not be read" % process["rank"])
        for inode in held or ():
            owners.setdefault(inode, place)
    rows: List[Dict[str, Any]] = []
    if owners:
        try:
            rows = [dict(row, **owners[row.pop("inode")]) for row in sock_diag.sockets() if row["inode"] in owners]
        except OSError as error:
            problems.append("the kernel lists no sockets: %s" % (error.strerror or error))
    rows.sort(key=lambda row: -(row.get("acked", 0) + row.get("received", 0)))
    nics, _ = interfaces.read_all(root)
    return {
        "sockets": rows[:_MOST],
        "nics": {nic["name"]: _nic(nic["name"], root) for nic in nics if nic["addresses"] and nic["name"] != "lo"},
        "addresses": {entry["address"]: nic["name"] for nic in nics for entry in nic["addresses"]},
        "pings": _pings(rows, end - time.monotonic()) if longer else [],
        "waits": waits,
        "problems": problems,
    }


def _waits(processes: List[Dict[str, Any]], proc: str) -> List[Value]:
    rows = [{"rank": process["rank"], "pid": process["pid"], "seen": {}} for process in processes]
    for _ in range(_SAMPLES):
        for row in rows:
            where = evidence.wait_channel(row["pid"], proc) or ""
            row["seen"][where] = row["seen"].get(where, 0) + 1
        time.sleep(_BETWEEN)
    return rows


def _pings(rows: List[Dict[str, Any]], seconds: float) -> List[Value]:
    """Try the paths of stuck sockets with a small packet and one as large as theirs."""
    stuck = [row for row in rows if row.get("backoff", 0) >= _STUCK and row.get("unacked")]
    paths = {(row["local"][0], row["remote"][0]): row.get("mss", 0) + _HEADERS for row in stuck}
    sizes = [(path, size) for path, large in list(paths.items())[:_PATHS] for size in (_SMALL, large)]
    if not sizes or seconds < 2.5:
        return []
    targets = [{"src": src, "dst": dst, "size": size} for (src, dst), size in sizes]
    answer = ping.run({"targets": targets, "count": 2, "wait": 1.0, "whole": True}, lambda _: None, seconds)
    return [{name: row[name] for name in ("src", "dst", "size", "sent", "received")} for row in answer["rows"]]


def _nic(name: str, root: str) -> Dict[str, Any]:
    folder = os.path.join(root, "class/net", name)
    carrier = sysfs.integer(folder, "carrier")
    return {
        # It cannot be read of an interface that is switched off.
        "carrier": carrier == 1,
        "speed": sysfs.integer(folder, "speed"),
        "changes": sysfs.integer(folder, "carrier_changes"),
        **{error: sysfs.integer(folder, "statistics", error) for error in _ERRORS},
    }


PROBE = ProbeSpec(
    name="job-network",
    title="the TCP sockets of the ranks of a running job, and their interfaces",
    phase="job",
    passive=True,
    needs="processes with a rank, of the same user or as root",
    gives="what is unacknowledged, unsent, retransmitted and unread on each socket; carrier and errors of interfaces",
    run=run,
)
