"""The probe ``gpus``: the state of each GPU by NVML, checked against ``nvidia-smi``, and the Fabric Manager."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.nvidia import query_csv, smi_query
from fabtui_node.parsers.nvidia.values import parse_errors
from fabtui_node.probes.nvidia import fabric_manager, nvml, nvml_inventory, nvml_state, run_nvidia_smi
from fabtui_node.probes.nvidia.gpu_rules import judge as judge
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import machine, run_command

UNITS = nvml_state.UNITS

_RAW_LIMIT = 8 * 1024
_ARGV = (
    "nvidia-smi",
    "--query-gpu=index,uuid,pci.bus_id,driver_version,vbios_version,pcie.link.width.max,ecc.mode.current",
    "--format=csv",
)
#: Fields that nvidia-smi and NVML must agree on, by nvidia-smi's name.
_SAME = {"pci.bus_id": "bus", "vbios_version": "vbios"}


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read the state of the GPUs.

    Args:
        args: ``check`` False: without ``nvidia-smi``, which takes seconds where no program keeps the driver busy.
        emit: Not used.
        deadline: Seconds.
        root: Where sysfs is.
        proc: Where procfs is.

    Returns:
        ``source`` (``nvml``, ``nvidia-smi`` or ``none``), ``driver``, ``cuda``, ``gpus`` (`nvml_state`, with units in
        ``UNITS``), ``seconds`` (what NVML took), ``on_pci`` (addresses of NVIDIA GPUs on PCI, driver or not),
        ``all_visible`` (there is no CUDA_VISIBLE_DEVICES), ``container``, ``fabric_manager`` (`fabric_manager`),
        ``disagreements`` (between NVML and nvidia-smi), ``problems`` (errors of nvidia-smi), ``raw``,
        ``error``.
    """
    end = time.monotonic() + deadline
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    task = nvml.Task(lambda library: _timed(library, setting))
    with ThreadPoolExecutor(2) as pool:
        manager = pool.submit(fabric_manager.read, min(deadline * 0.4, 6.0), root, proc)
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
    found: List[str] = []
    for problem in parse_errors(text):
        where = problem["bus"] or ("GPU " + problem["index"] if problem["index"] else None)
        words = ": ".join(filter(None, [where, problem["reason"]]))
        if words not in found:
            found.append(words)
    return found[:32]


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
        found = parsed["gpus"]
        chosen = run_nvidia_smi.visible_devices(setting, [gpu["uuid"] for gpu in found])
        # This text does not show the GPU of a MIG instance.
        value["gpus"] = [
            dict(from_query(index, found[at]), nvml_index=at)
            for index, (at, instance) in enumerate(chosen)
            if instance is None
        ]
    return text


def from_query(index: int, gpu: Dict[str, Any]) -> Dict[str, Any]:
    """Return a GPU of ``nvidia-smi -q`` in the form of `nvml_state`; the order is that of NVML."""
    volatile, aggregate = gpu["ecc_errors"]["volatile"], gpu["ecc_errors"]["aggregate"]
    memory, power = gpu["memory"], gpu["power"]
    utilization = gpu["utilization"].get("gpu")
    rows, fabric = gpu["remapped_rows"], gpu["fabric"]
    action = (gpu["recovery_action"] or "").strip()
    return {
        "index": index,
        "nvml_index": index,
        "uuid": gpu["uuid"],
        "instance": False,
        "name": gpu["name"],
        "bus": run_nvidia_smi.bus_id(gpu["bus"]),
        "errors": gpu["errors"],
        "lost": next((word for word in gpu["errors"].values() if "lost" in word or "reset" in word.lower()), None),
        "busy": None if utilization is None else utilization > 0,
        "utilization": utilization,
        "perf": gpu["perf"],
        "pcie": {key: gpu["pcie"].get(key) for key in _PCIE},
        "clocks": {
            "sm": gpu["clocks"].get("sm"),
            "memory": gpu["clocks"].get("memory"),
            "sm_max": gpu["max_clocks"].get("sm"),
            "memory_max": gpu["max_clocks"].get("memory"),
        },
        "reasons": [name for name, on in gpu["clocks_event_reasons"].items() if on]
        if gpu["clocks_event_reasons"]
        else None,
        "power": power.get("average_power_draw", power.get("power_draw")),
        "temperature": gpu["temperature"].get("gpu_current_temp"),
        "serial": gpu["serial"],
        "vbios": gpu["vbios"],
        "persistence": gpu["persistence"],
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
        "memory": _mebibytes(memory.get("total")),
        "memory_used": _mebibytes(memory.get("used")),
        "fabric": _fabric(fabric) if fabric else None,
        "recovery": action.lower() or None if action != "N/A" else None,
    }


_PCIE = ("generation", "generation_max", "generation_device_max", "width", "width_max", "replays")


def _mode(pair: Dict[str, Optional[str]]) -> Dict[str, Optional[bool]]:
    return {
        name: None if pair[key] is None else str(pair[key]).startswith("Enabled")
        for name, key in (("on", "current"), ("next", "pending"))
    }


def _sum(counts: Dict[str, Optional[int]], *parts: str) -> Optional[int]:
    """Return the sum of the counters whose names hold one of the parts, None if none of them is a number."""
    found = [count for name, count in counts.items() if any(part in name for part in parts) and count is not None]
    return sum(found) if found else None


def _mebibytes(count: Optional[int]) -> Optional[int]:
    return None if count is None else count << 20


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
            other = run_nvidia_smi.bus_id(other) if key == "bus" else other
            if one and other and one != other:
                found.append("GPU %s: %s is %s by NVML and %s by nvidia-smi" % (gpu["index"], key, one, other))
    drivers = {row.get("driver_version") for row in table["rows"]} - {None, known["driver"]}
    if known["driver"] and drivers:
        found.append("the driver is %s by NVML and %s by nvidia-smi" % (known["driver"], ", ".join(sorted(drivers))))
    if all_visible:
        found += ["NVML does not list %s" % uid for uid in rows]
    return found[:32]


PROBE = ProbeSpec(
    name="gpus",
    title="GPU state: PCIe, clocks, ECC, remapped rows, MIG, NVLink fabric, power; Fabric Manager",
    phase="driver",
    needs="the NVIDIA driver's NVML, or nvidia-smi",
    gives="per GPU: PCIe generation and width, clocks in MHz and throttle reasons, memory errors, modes, W, C",
    run=run,
    judge=judge,
    requires="gpus",
    next="ssh {node} nvidia-smi",
    watch=True,
    beside_tests={"check": False},
)
