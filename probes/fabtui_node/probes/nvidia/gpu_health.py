"""Probes ``gpus`` and ``gpuload``: the state of each GPU by NVML, at rest and under load.

``gpus`` checks it against ``nvidia-smi``, and looks for the Fabric Manager, which sets up NVSwitches.
"""

from __future__ import annotations

import ctypes
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.parsers.nvidia import query_csv, smi_query
from fabtui_node.parsers.nvidia.fabric_manager_log import parse_version
from fabtui_node.parsers.nvidia.values import parse_errors, problem_text, reason_names
from fabtui_node.probes.judgement import objects
from fabtui_node.probes.nvidia import gpu_rules, nvml, nvml_inventory
from fabtui_node.probes.nvidia.gpu_rules import judge as judge
from fabtui_node.probes.nvidia.nvml import (
    ask,
    bus_id,
    field_count,
    number,
    thousandth,
    versions,
    visible_devices,
    words,
)
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import machine, run_command, sysfs

# The state of GPUs, asked from NVML: PCIe, clocks and what holds them down, ECC, rows, MIG, NVLink fabric, power.
#
# NVML answers each question about a GPU separately. Unknown values of this GPU, driver or pynvml are None; failures of
# a lost GPU are in its ``errors``. Units: clocks in MHz, power in W, temperatures in C, memory in bytes, utilization in
# percent; replays since the last reset, ECC errors since the driver was loaded (``_ever``: since the GPU was made).

#: Codes of NVML that mean "there is no such thing here", which is not a fault: invalid argument, not supported,
#: not found, function not found, no ECC in a virtual GPU, other version of a structure, deprecated.
_NOTHING = (2, 3, 6, 13, 22, 25, 26)
_LOST, _RESET = 15, 16
_WORDS = {4: "not permitted", _LOST: "GPU is lost", _RESET: "GPU requires reset"}

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}
#: Bit offsets in the health mask. Each field has two bits (0 unsupported, 1 true, 2 false), except the four-bit code.
_FABRIC_HEALTH = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6}
#: The same, for what is bad if it is false.
_FABRIC_NEEDS = {"no partition assigned": 12, "global Fabric Manager not connected": 14}
_CONFIGURATION_SHIFT = 8
_CONFIGURATION = {
    2: "incorrect system GUID", 3: "incorrect chassis serial number", 4: "no partition", 5: "insufficient NVLinks",
    6: "incompatible GPU firmware", 7: "invalid location", 8: "invalid state of the GPU",
}  # fmt: skip
_RECOVERY = {
    0: "none", 1: "GPU reset", 2: "node reboot", 3: "drain P2P", 4: "drain and reset", 5: "recover the IMEX domain",
    6: "bus reset", 7: "system reboot",
}  # fmt: skip

#: Values of a PCIe link, by the ends of the names of NVML's functions.
PCIE = {
    "generation": "CurrPcieLinkGeneration",
    "generation_max": "MaxPcieLinkGeneration",
    "generation_device_max": "GpuMaxPcieLinkGeneration",
    "width": "CurrPcieLinkWidth",
    "width_max": "MaxPcieLinkWidth",
    "replays": "PcieReplayCounter",
}

Gpu = Dict[str, Any]

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


class NvmlAsker:
    """Asks NVML (an initialised ``pynvml``) about one GPU and keeps its errors, by the name of what was asked for."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.errors: Dict[str, str] = {}
        #: Error of a lost GPU; it is not asked again.
        self.dead: Optional[str] = None

    def __call__(self, what: str, function: str, *args: Any) -> Any:
        """Return what NVML answers, None for anything else."""
        ask_library: Optional[Callable[..., Any]] = getattr(self.library, function, None)
        if ask_library is None or self.dead is not None:
            return None
        try:
            return ask_library(*args)
        except Exception as error:  # pynvml releases differ in what they raise; ask the other questions
            code = getattr(error, "value", None)
            if isinstance(code, int) and code not in _NOTHING:
                self.errors[what] = _WORDS.get(code) or "%s (NVML error %d)" % (str(error)[:120], code)
                self.dead = _WORDS[code] if code in (_LOST, _RESET) else None
            return None

    def number(self, what: str, function: str, *args: Any) -> Optional[int]:
        return number(self(what, function, *args))

    def constant(self, name: str, usual: int) -> int:
        value = getattr(self.library, name, usual)
        return value if isinstance(value, int) else usual


def read(library: Any, setting: Optional[str], all_values: bool = True) -> Dict[str, Any]:
    """Return ``{"driver", "cuda", "gpus"}`` of the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible.

    Without ``all_values`` only those values that change under load, which takes fewer questions.
    """
    count = number(ask(library.nvmlDeviceGetCount)) or 0
    askers = [NvmlAsker(library) for _ in range(count)]
    handles = [asker("handle", "nvmlDeviceGetHandleByIndex", at) for at, asker in enumerate(askers)]
    uuids = [
        None if handle is None else words(asker("uuid", "nvmlDeviceGetUUID", handle))
        for asker, handle in zip(askers, handles)  # noqa: B905 - Python 3.8 knows no strict=
    ]
    found = []
    for index, (at, instance) in enumerate(visible_devices(setting, uuids)):
        if instance is None:
            asker, handle, name = askers[at], handles[at], uuids[at]
        else:
            asker, name = NvmlAsker(library), instance
            handle, at = _parent(asker, instance)
        gpu = _gpu(asker, handle, all_values)
        gpu.update(index=index, nvml_index=at, uuid=name, instance=instance is not None)
        found.append(gpu)
    return dict(versions(library), gpus=found)


def _parent(asker: NvmlAsker, instance: str) -> Any:
    device = asker("handle", "nvmlDeviceGetHandleByUUID", instance)
    handle = asker("handle", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device) if device is not None else None
    return handle, asker.number("index", "nvmlDeviceGetIndex", handle) if handle is not None else None


def _gpu(asker: NvmlAsker, handle: Any, all_values: bool) -> Gpu:
    if handle is None:
        asker.errors.setdefault("handle", "NVML gives no handle for this GPU")
        return {"errors": asker.errors, "lost": asker.dead, "bus": None, "name": None, "busy": None}
    gpu = dict(_load(asker, handle), **(_kept(asker, handle) if all_values else {}))
    return dict(gpu, errors=asker.errors, lost=asker.dead)


def _load(asker: NvmlAsker, handle: Any) -> Gpu:
    """Return what changes with the work a GPU has; the current generation and width mean little without any."""
    used = asker("utilization", "nvmlDeviceGetUtilizationRates", handle)
    utilization = number(getattr(used, "gpu", None))
    reasons = asker("reasons", "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = asker("reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    state = asker.number("perf", "nvmlDeviceGetPerformanceState", handle)
    sm, dram = asker.constant("NVML_CLOCK_SM", 1), asker.constant("NVML_CLOCK_MEM", 2)
    pcie = {name: asker.number("pcie", "nvmlDeviceGet" + function, handle) for name, function in PCIE.items()}
    return {
        "bus": bus_id(words(getattr(asker("bus", "nvmlDeviceGetPciInfo", handle), "busId", None))),
        "name": words(asker("name", "nvmlDeviceGetName", handle)),
        "busy": None if utilization is None else utilization > 0,
        "utilization": utilization,
        "perf": "P%d" % state if state is not None and state < 32 else None,
        "pcie": pcie,
        "clocks": {
            "sm": asker.number("clocks", "nvmlDeviceGetClockInfo", handle, sm),
            "memory": asker.number("clocks", "nvmlDeviceGetClockInfo", handle, dram),
            "sm_max": asker.number("clocks", "nvmlDeviceGetMaxClockInfo", handle, sm),
            "memory_max": asker.number("clocks", "nvmlDeviceGetMaxClockInfo", handle, dram),
        },
        "reasons": None if number(reasons) is None else reason_names(reasons),
        "power": thousandth(asker("power", "nvmlDeviceGetPowerUsage", handle)),
        "temperature": asker.number("temperature", "nvmlDeviceGetTemperature", handle, 0),
    }


def _kept(asker: NvmlAsker, handle: Any) -> Gpu:
    """Return what stays as it is, until somebody resets the GPU or the node."""
    memory = asker("memory", "nvmlDeviceGetMemoryInfo", handle)
    slow = asker.constant("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", 1)
    mode = asker.number("compute_mode", "nvmlDeviceGetComputeMode", handle)
    persistence = asker.number("persistence", "nvmlDeviceGetPersistenceMode", handle)
    pending = asker.number("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", handle)
    return {
        "serial": words(asker("serial", "nvmlDeviceGetSerial", handle)),
        "vbios": words(asker("vbios", "nvmlDeviceGetVbiosVersion", handle)),
        "persistence": None if persistence is None else bool(persistence),
        "compute_mode": None if mode is None else _COMPUTE_MODES.get(mode, "mode %d" % mode),
        "mig": _now_and_next(asker("mig", "nvmlDeviceGetMigMode", handle)),
        "ecc": _now_and_next(asker("ecc", "nvmlDeviceGetEccMode", handle)),
        "ecc_errors": {
            "uncorrected": _errors(asker, handle, "UNCORRECTED", 1, "VOLATILE_ECC", 0),
            "uncorrected_ever": _errors(asker, handle, "UNCORRECTED", 1, "AGGREGATE_ECC", 1),
            "corrected": _errors(asker, handle, "CORRECTED", 0, "VOLATILE_ECC", 0),
        },
        "rows": _rows(asker("rows", "nvmlDeviceGetRemappedRows", handle)),
        "retired_pending": None if pending is None else bool(pending),
        "power_limit": thousandth(asker("power_limit", "nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_limit_default": thousandth(asker("power_limit", "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        "temperature_slowdown": asker.number("slowdown", "nvmlDeviceGetTemperatureThreshold", handle, slow),
        "memory": number(getattr(memory, "total", None)),
        "memory_used": number(getattr(memory, "used", None)),
        "fabric": _fabric_info(asker, handle),
        "recovery": _recovery(asker, handle),
    }


def _errors(asker: NvmlAsker, handle: Any, kind: str, usual: int, counter: str, usual_counter: int) -> Optional[int]:
    kind_code = asker.constant("NVML_MEMORY_ERROR_TYPE_" + kind, usual)
    counter_code = asker.constant("NVML_" + counter, usual_counter)
    return asker.number("ecc_errors", "nvmlDeviceGetTotalEccErrors", handle, kind_code, counter_code)


def _now_and_next(found: Any) -> Dict[str, Optional[bool]]:
    """Return a mode that holds now and the one after the next reset, None where the GPU has none."""
    now, later = found if isinstance(found, (list, tuple)) and len(found) == 2 else (None, None)
    return {"on": None if now is None else bool(now), "next": None if later is None else bool(later)}


def _rows(found: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(found, (list, tuple)) or len(found) < 4:
        return None
    counts = {"correctable": number(found[0]), "uncorrectable": number(found[1])}
    return dict(counts, pending=bool(found[2]), failure=bool(found[3]))


def _fabric_info(asker: NvmlAsker, handle: Any) -> Optional[Dict[str, Any]]:
    """Return the state of the GPU in its NVLink fabric, None where there is no NVSwitch."""
    for version, function in (("_v3", "FabricInfoV"), ("_v2", "FabricInfoV"), ("", "FabricInfo")):
        structure = getattr(asker.library, "c_nvmlGpuFabricInfo%s_t" % version, None)
        if structure is None:
            continue
        info = structure()
        reference = ctypes.byref(info) if isinstance(info, ctypes.Structure) else info
        if asker("fabric", "nvmlDeviceGetGpu" + function, handle, reference) is not None:
            return _fabric_of(info, asker.library)
    return None


def _fabric_of(info: Any, library: Any) -> Optional[Dict[str, Any]]:
    state = number(getattr(info, "state", None))
    if not state:
        return None
    status = number(getattr(info, "status", None))
    cluster = bytes(bytearray(getattr(info, "clusterUuid", b"") or b""))[:16]
    mask = number(getattr(info, "healthMask", None)) or 0
    text: Optional[str] = None
    if status is not None:
        text = "success" if status == 0 else words(ask(library.nvmlErrorString, status)) or "error %d" % status
    wrong = mask >> _CONFIGURATION_SHIFT & 0xF
    return {
        "state": _FABRIC_STATES.get(state, "state %d" % state),
        "status": text,
        "clique": number(getattr(info, "cliqueId", None)),
        "cluster": str(uuid.UUID(bytes=cluster)) if len(cluster) == 16 and any(cluster) else None,
        "summary": _FABRIC_SUMMARY.get(getattr(info, "healthSummary", None) or 0),
        "unhealthy": [name for name, shift in _FABRIC_HEALTH.items() if mask >> shift & 3 == 1]
        + [name for name, shift in _FABRIC_NEEDS.items() if mask >> shift & 3 == 2]
        + (["incorrect configuration: " + _CONFIGURATION.get(wrong, "code %d" % wrong)] if wrong > 1 else []),
    }


def _recovery(asker: NvmlAsker, handle: Any) -> Optional[str]:
    """Return what the driver wants to be done with this GPU before it works again, ``none`` for nothing."""
    field = getattr(asker.library, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    answers = None if field is None else asker("recovery", "nvmlDeviceGetFieldValues", handle, [field])
    code = field_count(answers[0], "uiVal") if answers else None
    return None if code is None else _RECOVERY.get(code, "action %d" % code)


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read the state of the GPUs; ``check`` False: without ``nvidia-smi``, which takes seconds with an idle driver.

    ``source`` (``nvml``, ``nvidia-smi`` or ``none``), ``driver``, ``cuda``, ``gpus`` (`read`), ``seconds`` (what
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
    value = read(library, setting)
    value["seconds"] = round(time.monotonic() - began, 3)
    return value


def _problems(text: str) -> List[str]:
    return list(dict.fromkeys(map(problem_text, parse_errors(text))))[:32]


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
    """Return a GPU of ``nvidia-smi -q`` as NVML gives it; in the order of NVML."""
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
        "pcie": {key: gpu["pcie"].get(key) for key in PCIE},
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
    numbers = [count for name, count in counts.items() if any(part in name for part in parts) and count is not None]
    return sum(numbers) if numbers else None


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
        "unhealthy": [text for name, word in health.items() for text in _wrong(name, word.lower())],
    }


def _wrong(name: str, word: str) -> List[str]:
    if name == "partition_assigned":
        return ["no partition assigned"] if word in ("no", "false") else []
    if name == "incorrect_configuration":
        return ["incorrect configuration: " + word] if word not in ("no", "false") else []
    return [name] if word in ("yes", "true", "degraded") else []


def compare(known: Dict[str, Any], table: Dict[str, Any], all_visible: bool) -> List[str]:
    """Return where the rows of ``nvidia-smi`` contradict NVML; GPUs that only one of them has, if all are visible."""
    problems: List[str] = []
    rows = {row.get("uuid"): row for row in table["rows"] if row.get("uuid")}
    for gpu in known["gpus"]:
        row = rows.pop(gpu["uuid"], None) if not gpu.get("instance") else {}
        if row is None:
            if gpu["uuid"]:
                problems.append("nvidia-smi does not list GPU %s (%s)" % (gpu["index"], gpu["uuid"]))
            continue
        for column, key in _SAME.items():
            one, other = gpu.get(key), row.get(column)
            other = nvml.bus_id(other) if key == "bus" else other
            if one and other and one != other:
                problems.append("GPU %s: %s is %s by NVML and %s by nvidia-smi" % (gpu["index"], key, one, other))
    drivers = {row.get("driver_version") for row in table["rows"]} - {None, known["driver"]}
    if known["driver"] and drivers:
        problems.append("the driver is %s by NVML and %s by nvidia-smi" % (known["driver"], ", ".join(sorted(drivers))))
    if all_visible:
        problems += ["NVML does not list %s" % uid for uid in rows]
    return problems[:32]


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
        for gpu in read(library, setting, all_values=False)["gpus"]:
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
    took), "error"}``; of each GPU what changes with its work (`read`), at its busiest moment.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = args.get("seconds", SECONDS)
    seconds = min(float(wanted) if isinstance(wanted, (int, float)) else SECONDS, deadline * 0.8)
    task = nvml.NvmlTask(lambda library: _watch(library, setting, seconds))
    known, error = task.result(deadline * 0.95)
    value: Dict[str, Any] = known or {"gpus": [], "samples": 0, "seconds": None}
    return dict(value, busy=sum(1 for gpu in value["gpus"] if gpu["busy"]), error=error)


def judge_load(value: Dict[str, Any]) -> List[Judgement]:
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
