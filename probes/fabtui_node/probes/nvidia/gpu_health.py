"""Probes ``gpus`` and ``gpuload``: the state of each GPU by NVML, at rest and under load.

``gpus`` checks it against ``nvidia-smi``, and looks for the Fabric Manager, which sets up NVSwitches.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.nvidia import query_csv, smi_query
from fabtui_node.parsers.nvidia.fabric_manager_log import parse_version
from fabtui_node.parsers.nvidia.values import parse_errors
from fabtui_node.probes.judgement import objects
from fabtui_node.probes.nvidia import gpu_rules, nvml, nvml_inventory, nvml_state
from fabtui_node.probes.nvidia.gpu_rules import judge as judge
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import machine, run_command, sysfs

_RAW_LIMIT = 8 * 1024
_ARGV = (
    "nvidia-smi",
    "--query-gpu=index,uuid,pci.bus_id,driver_version,vbios_version,pcie.link.width.max,ecc.mode.current",
    "--format=csv",
)
#: Fields that nvidia-smi and NVML must agree on, by nvidia-smi's name.
_SAME = {"pci.bus_id": "bus", "vbios_version": "vbios"}
#: The kernel keeps 15 letters of a process's name.
_FABRIC_MANAGER = "nv-fabricmanage"
_MAX_PROCESSES = 100_000
#: Maximum time and interval (s) of samples until every GPU was seen under load.
SECONDS = 4.0
EVERY = 0.5


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read the state of the GPUs; ``check`` False: without ``nvidia-smi``, which takes seconds with an idle driver.

    ``source`` (``nvml``, ``nvidia-smi`` or ``none``), ``driver``, ``cuda``, ``gpus`` (`nvml_state`), ``seconds`` (what
    NVML took). ``on_pci`` (addresses of NVIDIA GPUs on PCI, driver or not), ``all_visible`` (there is no
    CUDA_VISIBLE_DEVICES). ``container``, ``fabric_manager`` (`fabric_manager`), ``disagreements`` (between NVML and
    nvidia-smi), ``problems`` (errors of nvidia-smi), ``raw``, ``error``.
    """
    end = time.monotonic() + deadline
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    task = nvml.NvmlTask(lambda library: _timed(library, setting))
    with ThreadPoolExecutor(2) as pool:
        manager = pool.submit(fabric_manager, min(deadline * 0.4, 6.0), root, proc)
        checked = pool.submit(run_command.run, _ARGV, deadline * 0.4) if args.get("check", True) else None
        printed = checked.result() if checked else None
        known, nvml_error = task.result(max(end - time.monotonic() - deadline * 0.4, 0.5))
        raw = "" if printed is None or printed.missing else (printed.stdout + "\n" + printed.stderr).strip()
        value: Dict[str, Any] = known or {"driver": None, "cuda": None, "gpus": [], "seconds": None}
        value.update(source="nvml" if known else "none", disagreements=[], problems=_problems(raw))
        if known and printed is not None and printed.ok:
            value["disagreements"] = compare(known, query_csv.parse_csv(printed.stdout).values, setting is None)
        elif not known:
            raw = _fallback(value, setting, end, raw)
        value.update(on_pci=nvml_inventory.on_pci(root), fabric_manager=manager.result())
    # Values that agree are not kept twice.
    value["raw"] = "" if known and not value["problems"] + value["disagreements"] else raw[:_RAW_LIMIT]
    value.update(all_visible=setting is None, container=machine.identity(root, proc)["container"])
    value["error"] = nvml_error
    if known and printed is not None and not (printed.ok or printed.missing) and not value["problems"]:
        value["error"] = printed.why()
    return value


def _timed(library: Any, setting: Optional[str]) -> Dict[str, Any]:
    began = time.monotonic()
    value = nvml_state.read(library, setting)
    value["seconds"] = round(time.monotonic() - began, 3)
    return value


def _problems(text: str) -> List[str]:
    found = []
    for problem in parse_errors(text):
        where = problem["bus"] or ("GPU " + problem["index"] if problem["index"] else None)
        found.append(": ".join(filter(None, [where, problem["reason"]])))
    return list(dict.fromkeys(found))[:32]


def _fallback(value: Dict[str, Any], setting: Optional[str], end: float, raw: str) -> str:
    """Fill the value from ``nvidia-smi -q``, for a node whose NVML cannot be used from here; return the raw text."""
    printed = run_command.run(["nvidia-smi", "-q"], max(end - time.monotonic() - 0.3, 0.0))
    if printed.missing:
        return raw
    text = (printed.stdout + "\n" + printed.stderr).strip()
    parsed = smi_query.parse_query(text).values
    value["problems"] = value["problems"] or _problems(text)
    if parsed["gpus"]:
        value.update(source="nvidia-smi", driver=parsed["driver"], cuda=parsed["cuda"])
        # This text does not show the GPU of a MIG instance.
        value["gpus"] = [
            dict(from_query(index, parsed["gpus"][at]), nvml_index=at)
            for index, (at, instance) in enumerate(
                nvml.visible_devices(setting, [gpu["uuid"] for gpu in parsed["gpus"]])
            )
            if instance is None
        ]
    return text


def from_query(index: int, gpu: Dict[str, Any]) -> Dict[str, Any]:
    """Return a GPU of ``nvidia-smi -q`` in the form of `nvml_state`; in the order of NVML."""
    volatile, aggregate = gpu["ecc_errors"]["volatile"], gpu["ecc_errors"]["aggregate"]
    memory, power = gpu["memory"], gpu["power"]
    utilization, reasons = gpu["utilization"].get("gpu"), gpu["clocks_event_reasons"]
    rows, fabric = gpu["remapped_rows"], gpu["fabric"]
    action = (gpu["recovery_action"] or "").strip()
    return {
        **{key: gpu[key] for key in ("uuid", "name", "errors", "perf", "serial", "vbios", "persistence")},
        "index": index,
        "nvml_index": index,
        "instance": False,
        "bus": nvml.bus_id(gpu["bus"]),
        "lost": next((word for word in gpu["errors"].values() if "lost" in word or "reset" in word.lower()), None),
        "busy": None if utilization is None else utilization > 0,
        "utilization": utilization,
        "pcie": {key: gpu["pcie"].get(key) for key in nvml_state.PCIE},
        "clocks": {
            "sm": gpu["clocks"].get("sm"),
            "memory": gpu["clocks"].get("memory"),
            "sm_max": gpu["max_clocks"].get("sm"),
            "memory_max": gpu["max_clocks"].get("memory"),
        },
        "reasons": [name for name, on in reasons.items() if on] if reasons else None,
        "power": power.get("average_power_draw", power.get("power_draw")),
        "temperature": gpu["temperature"].get("gpu_current_temp"),
        "compute_mode": (gpu["compute_mode"] or "").lower().replace("_", " ") or None,
        "mig": _mode(gpu["mig"]),
        "ecc": _mode(gpu["ecc"]),
        "ecc_errors": {
            "uncorrected": _sum(volatile, "uncorrect", "double"),
            "uncorrected_ever": _sum(aggregate, "uncorrect", "double"),
            "corrected": _sum(volatile, "_correct", "single"),
        },
        "rows": rows and {key: rows[key] for key in ("correctable", "uncorrectable", "pending", "failure")},
        "retired_pending": gpu["retired_pending"],
        "power_limit": power.get("current_power_limit", power.get("power_limit")),
        "power_limit_default": power.get("default_power_limit"),
        "temperature_slowdown": gpu["temperature"].get("gpu_slowdown_temp"),
        "memory": memory["total"] << 20 if memory.get("total") is not None else None,
        "memory_used": memory["used"] << 20 if memory.get("used") is not None else None,
        "fabric": _fabric(fabric) if fabric else None,
        "recovery": action.lower() or None if action != "N/A" else None,
    }


def _mode(pair: Dict[str, Optional[str]]) -> Dict[str, Optional[bool]]:
    return {
        name: None if pair[key] is None else str(pair[key]).startswith("Enabled")
        for name, key in (("on", "current"), ("next", "pending"))
    }


def _sum(counts: Dict[str, Optional[int]], *parts: str) -> Optional[int]:
    """Return the sum of the counters whose names hold one of the parts, None if none of them is a number."""
    found = [count for name, count in counts.items() if any(part in name for part in parts) and count is not None]
    return sum(found) if found else None


def _fabric(fabric: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    if not fabric["state"]:
        return None
    cluster = fabric["cluster"]
    health = {name: word for name, word in fabric["health"].items() if word}
    return {
        "state": fabric["state"].lower(),
        "status": (fabric["status"] or "").lower() or None,
        "clique": fabric["clique"],
        "cluster": cluster if cluster and cluster.strip("0-") else None,
        "summary": (health.pop("summary", None) or "").lower() or None,
        "unhealthy": [name for name, word in health.items() if word.lower() in ("yes", "true", "degraded")],
    }


def compare(known: Dict[str, Any], table: Dict[str, Any], all_visible: bool) -> List[str]:
    """Return where the rows of ``nvidia-smi`` contradict NVML; GPUs that only one of them has, if all are visible."""
    found: List[str] = []
    rows = {row.get("uuid"): row for row in table["rows"] if row.get("uuid")}
    for gpu in known["gpus"]:
        row = rows.pop(gpu["uuid"], None) if not gpu.get("instance") else {}
        if row is None:
            if gpu["uuid"]:
                found.append("nvidia-smi does not list GPU %s (%s)" % (gpu["index"], gpu["uuid"]))
            continue
        for column, key in _SAME.items():
            one, other = gpu.get(key), row.get(column)
            other = nvml.bus_id(other) if key == "bus" else other
            if one and other and one != other:
                found.append("GPU %s: %s is %s by NVML and %s by nvidia-smi" % (gpu["index"], key, one, other))
    drivers = {row.get("driver_version") for row in table["rows"]} - {None, known["driver"]}
    if known["driver"] and drivers:
        found.append("the driver is %s by NVML and %s by nvidia-smi" % (known["driver"], ", ".join(sorted(drivers))))
    if all_visible:
        found += ["NVML does not list %s" % uid for uid in rows]
    return found[:32]


def fabric_manager(deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return ``{"installed", "active", "version", "said", "switches"}`` of NVIDIA's Fabric Manager.

    ``active`` is None if unknown, as in a container; ``said`` is the state of systemd; ``switches`` the NVSwitches.
    """
    path = run_command.find("nv-fabricmanager")
    version: Optional[str] = None
    if path:
        printed = run_command.run([path, "--version"], min(deadline / 2, 3.0))
        version = parse_version(printed.stdout + "\n" + printed.stderr)
    state = run_command.run(["systemctl", "is-active", "nvidia-fabricmanager"], min(deadline / 2, 3.0))
    unit_state = state.stdout.strip()[:40] if not state.missing and not state.timed_out else ""
    processes = [name for name in sysfs.names(proc) if name.isdecimal()][:_MAX_PROCESSES]
    active: Optional[bool] = None
    if unit_state == "active" or any(sysfs.text(proc, name, "comm") == _FABRIC_MANAGER for name in processes):
        active = True
    elif unit_state in ("inactive", "failed", "activating", "deactivating"):
        active = False
    return {
        "installed": path is not None or active is True,
        "active": active,
        "version": version,
        "said": unit_state or None,
        "switches": len(nvml_inventory.on_pci(root, "0x0680")),
    }


def _watch(library: Any, setting: Optional[str], seconds: float) -> Dict[str, Any]:
    """Sample until every GPU was seen under load, or the time is over; keep each as it was when it had most to do."""
    end = time.monotonic() + seconds
    best: Dict[Any, Dict[str, Any]] = {}
    samples = 0
    took = 0.0
    while True:
        began = time.monotonic()
        for gpu in nvml_state.read(library, setting, all_values=False)["gpus"]:
            known = best.setdefault(gpu["index"], gpu)
            if (gpu.get("utilization") or 0) > (known.get("utilization") or 0):
                best[gpu["index"]] = gpu
        samples += 1
        took = max(took, time.monotonic() - began)
        if all(gpu["busy"] for gpu in best.values()) or time.monotonic() + EVERY + took > end:
            return {"gpus": list(best.values()), "samples": samples, "seconds": round(took, 3)}
        time.sleep(EVERY)


def run_load(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Sample the GPUs under load for ``seconds`` (0: one sample).

    ``{"gpus": [...], "busy" (how many GPUs were seen at work), "samples", "seconds" (the longest time that asking once
    took), "error"}``; of each GPU what changes with its work (`nvml_state`), at its busiest moment.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = args.get("seconds", SECONDS)
    seconds = min(float(wanted) if isinstance(wanted, (int, float)) else SECONDS, deadline * 0.8)
    task = nvml.NvmlTask(lambda library: _watch(library, setting, seconds))
    known, error = task.result(deadline * 0.95)
    value: Dict[str, Any] = known or {"gpus": [], "samples": 0, "seconds": None}
    return dict(value, busy=sum(1 for gpu in value["gpus"] if gpu["busy"]), error=error)


def judge_load(value: Dict[str, Any]) -> List[Judgement]:
    """Return problems under load, of the GPUs that had any."""
    return gpu_rules.judge_load([gpu for gpu in objects(value.get("gpus")) if gpu.get("busy") is True])


PROBE_LOAD = ProbeSpec(
    name="gpuload",
    title="PCIe links and clocks of GPUs under load",
    phase="load",
    needs="the NVIDIA driver's NVML",
    gives="per GPU at its busiest: PCIe generation and width, clocks in MHz and throttle reasons",
    run=run_load,
    judge=judge_load,
    requires="gpus",
    next="ssh {node} nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
)

PROBE = ProbeSpec(
    name="gpus",
    title="GPU state: PCIe, clocks, ECC, remapped rows, MIG, NVLink fabric, power; Fabric Manager",
    phase="driver",
    passive=True,
    needs="the NVIDIA driver's NVML, or nvidia-smi",
    gives="per GPU: PCIe generation and width, clocks in MHz and throttle reasons, memory errors, modes, W, C",
    run=run,
    judge=judge,
    requires="gpus",
    next="ssh {node} nvidia-smi",
    watch=True,
    beside_tests={"check": False},
)
