"""Probe ``kernel``: kernel messages since boot about GPUs, PCIe and network cards."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from fabtui_node.parsers import dmesg
from fabtui_node.probes.judgement import count, judgement, objects, seconds_since_boot
from fabtui_node.registry import Judgement, ProbeSpec, Value
from fabtui_node.system import run_command, sysfs

#: Maximum bytes read of the end of the log.
LIMIT = 4 * 1000 * 1000
#: Maximum number of events and of their kinds: the controller keeps them for every node.
EVENTS = 60
COUNTS = 120
#: Age (s) of a report after which it is only a note.
OLD = 7 * 86400.0
#: Number of times that a link went down since boot for it to count as flapping.
FLAPS = 3
_RECORD = 8192
_MAX_RECORDS = 50_000
_NOT_PERMITTED = ("not permitted", "permission denied", "insufficient permissions", "users in groups")

_VERDICTS = {
    **dict.fromkeys(
        ("gpu_init", "gpu_lost", "driver_mismatch", "nic_health", "nic_timeout", "nic_probe", "lockup"), "bad"
    ),
    **dict.fromkeys(
        ("sxid", "pcie_limited", "iommu", "machine_check", "nic_command", "nic_power", "efa_command"), "warn"
    ),
    "nic_temperature": "warn",
    "peermem": "note",
}
_SUBJECTS = {"sxid": "sxid", "aer": "aer", "pcie_limited": "pcie_link", "link_down": "link", "module": "link"}
#: Checks of the catalogue by the kind of report.
_CHECKS = {
    "sxid": "sxid", "aer": "pcie-errors", "link_down": "link-flap", "pcie_limited": "pcie-limited",
    "gpu_lost": "gpu-lost", "gpu_init": "gpu-lost",
}  # fmt: skip


class _Log(NamedTuple):
    """The log: where it is from, its text, and whether it may be read (None: the node has no log)."""

    source: str
    text: str
    permitted: Optional[bool]
    error: Optional[str] = None


def read_kmsg(path: str, seconds: float) -> _Log:
    """Read the kernel's buffer from its device: the records of this boot that it still has."""
    try:
        device = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return _Log("kmsg", "", False)
    except OSError as error:
        return _Log("kmsg", "", None, error.strerror)
    end = time.monotonic() + seconds
    records: List[bytes] = []
    size = 0
    try:
        while time.monotonic() < end and len(records) < _MAX_RECORDS and size < 4 * LIMIT:
            try:
                record = os.read(device, _RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                # EPIPE: records were overwritten meanwhile; continue with the oldest that is left.
                if error.errno == errno.EPIPE:
                    continue
                return _Log("kmsg", "", False if error.errno in (errno.EPERM, errno.EACCES) else None, error.strerror)
            if not record:
                break
            # A pipe or a file that stands in for the device may give several records, and not end.
            records.append(record.rstrip(b"\n"))
            size += len(record)
            if not select.select([device], [], [], 0)[0]:
                break
    finally:
        with contextlib.suppress(OSError):
            os.close(device)
    text = b"\n".join(records)[-LIMIT:].decode("utf-8", "replace")
    return _Log("kmsg", text, True)


def _command(argv: List[str], source: str, seconds: float) -> _Log:
    result = run_command.run(argv, seconds, limit=2 * LIMIT)
    printed = (result.stderr + result.stdout[:2000]).lower()
    if result.missing:
        return _Log(source, "", None)
    refused = any(words in printed for words in _NOT_PERMITTED)
    if refused and len(result.stdout) < 2000:
        return _Log(source, "", False)
    if not result.stdout.strip():
        return _Log(source, "", None, result.why())
    return _Log(source, result.stdout[-LIMIT:], True, result.why())


def read_log(deadline: float, kmsg: str = "/dev/kmsg") -> _Log:
    """Return the kernel's log from the first of its places that may be read: the device, ``dmesg``, the journal."""
    end = time.monotonic() + deadline
    tried = [read_kmsg(kmsg, deadline * 0.3)]
    if not tried[-1].permitted:
        tried.append(_command(["dmesg"], "dmesg", (end - time.monotonic()) * 0.5))
    if not tried[-1].permitted:
        argv = ["journalctl", "-k", "-b", "0", "--no-pager", "-o", "short-monotonic", "-n", "50000"]
        tried.append(_command(argv, "journal", (end - time.monotonic()) * 0.9))
    none = _Log("none", "", None, next((log.error for log in tried if log.error), None))
    return next((log for wanted in (True, False) for log in tried if log.permitted is wanted), none)


def run(args: Value, emit: Any, deadline: float, kmsg: str = "/dev/kmsg", proc: str = "/proc") -> Value:
    """Read the kernel's log of this boot.

    ``{"source": "kmsg"|"dmesg"|"journal"|"none", "readable": "yes"|"not permitted"|"unknown", "lines", "events" (the
    last ones), "counts" (the worst ones first), "xids", "boards", "devices" (`dmesg`), "uptime" (s), "error"}``. That
    it may not be read is not an error: most nodes let only root do it. Where the uptime of an event is known, ``age``
    (s) is how long ago it was; a count has its ``verdict``, but for Xids.
    """
    log = read_log(deadline * 0.8, kmsg)
    values = dmesg.parse_kernel(log.text).values
    uptime = seconds_since_boot(sysfs.text(proc, "uptime"))
    values["events"] = values["events"][-EVENTS:]
    # None is cut before an Xid.
    order = ["bad", "warn", "note", None]
    values["counts"].sort(key=lambda entry: (entry["kind"] != "xid", order.index(_verdict(entry))))
    values["counts"] = values["counts"][:COUNTS]
    for event in values["events"]:
        event["age"] = _age(uptime, event["uptime"])
    for entry in values["counts"]:
        entry["age"] = _age(uptime, entry["last"])
        verdict = _verdict(entry)
        entry["verdict"] = verdict and aged(entry, verdict)
    readable = {True: "yes", False: "not permitted", None: "unknown"}[log.permitted]
    return {"source": log.source, "readable": readable, "uptime": uptime, "error": log.error, **values}


def _age(uptime: Optional[float], when: Any) -> Optional[float]:
    if uptime is None or not isinstance(when, (int, float)) or when > uptime + 60:
        return None
    return round(max(0.0, uptime - when), 1)


def judge(value: Value) -> List[Judgement]:
    """Return what is bad on this node alone, but for Xids, which the controller explains; old reports are notes."""
    judgements = []
    for entry in objects(value.get("counts")):
        verdict = _verdict(entry)
        if verdict is not None:
            kind = str(entry.get("kind"))
            code = " %s" % entry["code"] if entry.get("code") is not None else ""
            name = kind.replace("_", " ") + code
            judgements.append(report(entry, aged(entry, verdict), _SUBJECTS.get(kind, "kernel"), name))
    if value.get("readable") == "not permitted":
        text = "the kernel's log may not be read by this user: no Xid, AER or link reports from it"
        judgements.append(judgement("kernel", "note", text))
    return judgements[:200]


def report(entry: Dict[str, Any], verdict: str, subject: str, name: str) -> Judgement:
    age, times = count(entry, "age"), count(entry, "count") or 1
    where = entry.get("interface") or entry.get("bus")
    if where:
        name += "%s at %s" % ("," if ":" in name else "", where)
    reported = str(entry.get("text", ""))[:200]
    # The driver repeats the name of an Xid in its message.
    words = [] if reported.rstrip(".") in name else [reported]
    if times > 1:
        words.append("%d times" % times)
    if age is not None:
        words.append("last %s ago" % ago(age))
    devices = ["bus:%s" % entry["bus"]] if isinstance(entry.get("bus"), str) else []
    judged = judgement(subject, verdict, ": ".join([name, "; ".join(words)] if words else [name]), devices)
    if str(entry.get("kind")) in _CHECKS:
        judged["check"] = _CHECKS[str(entry.get("kind"))]
    return judged


def aged(entry: Mapping[str, Any], verdict: str) -> str:
    """Return the verdict on a count of reports; old ones are notes."""
    age = count(entry, "age")
    return "note" if age is not None and age > OLD else verdict


def _verdict(entry: Dict[str, Any]) -> Optional[str]:
    kind, code, times = entry.get("kind"), entry.get("code"), count(entry, "count") or 0
    if kind == "aer":
        return {"fatal": "bad", "nonfatal": "warn"}.get(str(code), "note")
    if kind == "link_down":
        return "warn" if times >= FLAPS else None
    if kind == "module":
        return "warn" if code in ("error", "temperature") else None
    return _VERDICTS.get(str(kind))


def ago(seconds: float) -> str:
    """Return a time in its largest whole unit: ``3 h``."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return "%d %s" % (seconds // unit, name)
    return "%d s" % seconds


PROBE = ProbeSpec(
    name="kernel",
    title="kernel messages since boot: Xid, AER, PCIe limits, links of network cards",
    phase="inspect",
    passive=True,
    needs="/dev/kmsg, dmesg or the journal; on many nodes only root may read them",
    gives="events with time, kind, PCI address, code and count",
    run=run,
    judge=judge,
    next="ssh {node} sudo dmesg -T | tail -50",
)
