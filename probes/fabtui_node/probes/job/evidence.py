"""Probe ``evidence``: what a node shows about ranks that are late or silent: kernel reports, ports, their stacks."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.probes import kernel_log
from fabtui_node.probes.job import stacks
from fabtui_node.probes.network import interfaces
from fabtui_node.probes.nvidia import nvml_inventory
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import job_processes, sysfs

#: Kinds of kernel reports (`dmesg`) that may stop a rank, and codes of theirs that do not.
_KINDS = (
    *("xid", "sxid", "gpu_lost", "gpu_init", "aer", "iommu", "machine_check", "link_down", "module"),
    *("nic_health", "nic_command", "nic_power", "nic_temperature"),
)
_HARMLESS = ("corrected", "plugged", "unplugged", "unknown")
#: Maximum numbers of reports, and of processes whose stacks are read.
_EVENTS = 40
_PROCESSES = 8
_DAY = 86400.0
#: Time (s) before the start of a job whose reports count as well.
_BEFORE = 60.0


def run(
    args: Dict[str, Any],
    emit: Callable[[Dict[str, Any]], None],
    deadline: float,
    proc: str = "/proc",
    sys: str = "/sys",
    kmsg: str = "/dev/kmsg",
) -> Dict[str, Any]:
    """Collect evidence about the processes ``pids``, as their own container counts them.

    ``addresses`` of the node; ``log``: whether the kernel's log may be read; ``since`` (s): the age of the job, and
    ``events`` of that time. An event is as in `dmesg`, with ``gpu`` (index), ``age`` (s) and ``at`` (local time).
    ``ports`` (``name``, ``state``, ``physical_state``) of RDMA; ``ranks`` (`stacks`), with ``asked``, the number in
    ``pids``; ``gone``: those of ``pids`` that are no longer there.
    """
    processes = job_processes.find(proc, str(args.get("job") or ""))
    since = _since(processes, proc)
    log = kernel_log.run({}, emit, deadline * 0.4, kmsg=kmsg, proc=proc)
    nics, devices = interfaces.read_all(sys, min(2.0, deadline / 8))
    buses = nvml_inventory.on_pci(sys)
    asked = {pid: _process(pid, processes, proc) for pid in _pids(args)}
    found = stacks.inspected([one for one in asked.values() if one is not None], deadline * 0.4, proc)
    numbers = {one["pid"]: pid for pid, one in asked.items() if one is not None}
    return {
        "addresses": sorted({entry["address"] for nic in nics for entry in nic["addresses"]}),
        "log": log["readable"],
        "since": since,
        "events": [_event(one, buses) for one in log["events"] if _counts(one, since)][-_EVENTS:],
        "ports": [
            {"name": "%s/%s" % (device["ca"], port["port"]), **{key: port[key] for key in ("state", "physical_state")}}
            for device in devices
            for port in device["ports"]
        ],
        "ranks": [dict(one, asked=numbers.get(one["pid"])) for one in found],
        "gone": [pid for pid, one in asked.items() if one is None and _is_gone(pid, proc)],
    }


def _pids(args: Dict[str, Any]) -> List[int]:
    pids = args.get("pids")
    return [pid for pid in pids if isinstance(pid, int)][:_PROCESSES] if isinstance(pids, list) else []


def _process(pid: int, processes: List[Dict[str, Any]], proc: str) -> Optional[Dict[str, Any]]:
    """Return the process with a number, else the one that has this number in its container; None if there is none."""
    for one in processes:
        if one["pid"] == pid:
            return one
    for one in processes:
        status = sysfs.text(proc, str(one["pid"]), "status") or ""
        inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), "")
        if inner == str(pid):
            return one
    return None


def _is_gone(pid: int, proc: str) -> bool:
    """Return True if a process has ended; one of another user is still listed."""
    return job_processes.state(pid, proc) in (None, "Z", "X")


def _since(processes: List[Dict[str, Any]], proc: str) -> float:
    """Return the age (s) of the oldest process with a rank, a day if there is none."""
    ages = [age for one in processes if (age := job_processes.age(one["pid"], proc)) is not None]
    return round(max(ages), 1) if ages else _DAY


def _counts(event: Dict[str, Any], since: float) -> bool:
    if event["kind"] not in _KINDS or event["code"] in _HARMLESS:
        return False
    return event["age"] is not None and event["age"] <= since + _BEFORE


def _event(event: Dict[str, Any], buses: List[str]) -> Dict[str, Any]:
    """Return an event with its time and the index of its GPU: the place of its PCI address among all GPUs."""
    when = time.localtime(time.time() - event["age"])
    at = time.strftime("%H:%M" if event["age"] < _DAY / 2 else "%Y-%m-%d %H:%M", when)
    bus = pci_address(event["bus"])
    gpu = next((index for index, name in enumerate(buses) if pci_address(name) == bus), None) if bus else None
    kept = {key: event.get(key) for key in ("kind", "bus", "code", "interface", "age")}
    return dict(kept, gpu=gpu, at=at, text=str(event.get("text", ""))[:200])


def pci_address(bus: Optional[str]) -> str:
    """Return a PCI address without function, with a domain of four digits: the driver writes it in several ways."""
    domain, _, rest = (bus or "").lower().partition(":")
    return "%s:%s" % (domain[-4:], rest.partition(".")[0]) if rest else ""


PROBE = ProbeSpec(
    name="evidence",
    title="what a node shows about ranks that are late or silent",
    phase="job",
    passive=True,
    needs="nothing; for Xids the right to read the kernel's log",
    gives="kernel reports since the job started, states of RDMA ports, stacks of the ranks, addresses",
    run=run,
)
