"""The state of GPUs, asked from NVML: PCIe, clocks and what holds them down, ECC, rows, MIG, NVLink fabric, power.

NVML answers each question about a GPU separately. Unknown values of this GPU, driver or pynvml are None; failures of
a lost GPU are in its ``errors``.
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.parsers.nvidia.values import reason_names
from fabtui_node.probes.nvidia import run_nvidia_smi
from fabtui_node.probes.nvidia.nvml import ask, number, words

UNITS = {
    "width": "lanes",
    "width_max": "lanes",
    "clocks": "MHz",
    "power": "W",
    "power_limit": "W",
    "power_limit_default": "W",
    "temperature": "C",
    "temperature_slowdown": "C",
    "memory": "bytes",
    "memory_used": "bytes",
    "utilization": "%",
    "uncorrected": "errors since the driver was loaded",
    "uncorrected_ever": "errors since the GPU was made",
    "corrected": "errors since the driver was loaded",
    "correctable": "rows",
    "uncorrectable": "rows",
    "replays": "events since the last reset",
}

#: Codes of NVML that mean "there is no such thing here", which is no fault: invalid argument, not supported, not found,
#: function not found, no ECC in a virtual GPU, other version of a structure, deprecated.
_NOTHING = (2, 3, 6, 13, 22, 25, 26)
_NO_PERMISSION = 4
_LOST = 15
_RESET = 16
_WORDS = {_NO_PERMISSION: "not permitted", _LOST: "GPU is lost", _RESET: "GPU requires reset"}

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}
#: Offsets of two bits of the fabric's health: 1 is true, 2 is false, 0 is not supported.
_FABRIC_HEALTH = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6}
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK = 8, 0xF
_RECOVERY = {
    0: "none",
    1: "GPU reset",
    2: "node reboot",
    3: "drain P2P",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}

Gpu = Dict[str, Any]


class Asker:
    """Asks NVML about one GPU and keeps its errors.

    Args:
        library: An initialised ``pynvml``.

    Attributes:
        errors: By the name of what was asked for.
        dead: Error of a lost GPU; it is not asked again.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.errors: Dict[str, str] = {}
        self.dead: Optional[str] = None

    def __call__(self, what: str, function: str, *args: Any) -> Any:
        """Return what NVML answers, None for anything else."""
        found: Optional[Callable[..., Any]] = getattr(self.library, function, None)
        if found is None or self.dead is not None:
            return None
        try:
            return found(*args)
        except Exception as error:  # pynvml releases differ in what they raise; ask the other questions
            self._keep(what, error)
            return None

    def _keep(self, what: str, error: Exception) -> None:
        code = getattr(error, "value", None)
        if not isinstance(code, int) or code in _NOTHING:
            return
        self.errors[what] = _WORDS.get(code) or "%s (NVML error %d)" % (str(error)[:120], code)
        if code in (_LOST, _RESET):
            self.dead = _WORDS[code]


def read(library: Any, setting: Optional[str], all_values: bool = True) -> Dict[str, Any]:
    """Return ``{"driver", "cuda", "gpus"}`` of the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible.

    Args:
        library: An initialised ``pynvml``.
        setting: The value of ``CUDA_VISIBLE_DEVICES``, None when unset.
        all_values: True for all values; else only those that change under load, which takes fewer questions.
    """
    count = number(ask(library.nvmlDeviceGetCount)) or 0
    askers = [Asker(library) for _ in range(count)]
    handles = [asker("handle", "nvmlDeviceGetHandleByIndex", at) for at, asker in enumerate(askers)]
    uuids = [
        None if handle is None else words(asker("uuid", "nvmlDeviceGetUUID", handle))
        for asker, handle in zip(askers, handles)  # noqa: B905 - Python 3.8 knows no strict=
    ]
    found = []
    for index, (at, instance) in enumerate(run_nvidia_smi.visible_devices(setting, uuids)):
        asker, handle, uid = (askers[at], handles[at], uuids[at]) if instance is None else (Asker(library), None, None)
        if instance is not None:
            handle, at, uid = _parent(asker, instance)
        gpu = _gpu(asker, handle, all_values)
        gpu.update(index=index, nvml_index=at, uuid=instance or uid, instance=instance is not None)
        found.append(gpu)
    version = ask(library.nvmlSystemGetCudaDriverVersion)
    return {
        "driver": words(ask(library.nvmlSystemGetDriverVersion)),
        "cuda": "%d.%d" % (version // 1000, version % 1000 // 10) if isinstance(version, int) else None,
        "gpus": found,
    }


def _parent(asker: Asker, instance: str) -> Any:
    """Return handle, index and name of the GPU behind a MIG instance."""
    device = asker("handle", "nvmlDeviceGetHandleByUUID", instance)
    handle = asker("handle", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device) if device is not None else None
    at = number(asker("index", "nvmlDeviceGetIndex", handle)) if handle is not None else None
    return handle, at, instance


def _gpu(asker: Asker, handle: Any, all_values: bool) -> Gpu:
    gpu: Gpu = {"errors": asker.errors, "lost": asker.dead}
    if handle is None:
        asker.errors.setdefault("handle", "NVML gives no handle for this GPU")
        gpu.update(bus=None, name=None, busy=None)
        return gpu
    gpu.update(_load(asker, handle))
    if all_values:
        gpu.update(_kept(asker, handle))
    gpu["lost"] = asker.dead
    return gpu


def _load(asker: Asker, handle: Any) -> Gpu:
    """Return what changes with the work a GPU has; the current generation and width mean little without any."""
    library = asker.library
    used = asker("utilization", "nvmlDeviceGetUtilizationRates", handle)
    utilization = number(getattr(used, "gpu", None))
    reasons = asker("reasons", "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = asker("reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    state = number(asker("perf", "nvmlDeviceGetPerformanceState", handle))
    sm, dram = _constant(library, "NVML_CLOCK_SM", 1), _constant(library, "NVML_CLOCK_MEM", 2)
    bus = words(getattr(asker("bus", "nvmlDeviceGetPciInfo", handle), "busId", None))
    return {
        "bus": run_nvidia_smi.bus_id(bus),
        "name": words(asker("name", "nvmlDeviceGetName", handle)),
        "busy": None if utilization is None else utilization > 0,
        "utilization": utilization,
        "perf": "P%d" % state if state is not None and state < 32 else None,
        "pcie": {
            "generation": number(asker("pcie", "nvmlDeviceGetCurrPcieLinkGeneration", handle)),
            "generation_max": number(asker("pcie", "nvmlDeviceGetMaxPcieLinkGeneration", handle)),
            "generation_device_max": number(asker("pcie", "nvmlDeviceGetGpuMaxPcieLinkGeneration", handle)),
            "width": number(asker("pcie", "nvmlDeviceGetCurrPcieLinkWidth", handle)),
            "width_max": number(asker("pcie", "nvmlDeviceGetMaxPcieLinkWidth", handle)),
            "replays": number(asker("pcie", "nvmlDeviceGetPcieReplayCounter", handle)),
        },
        "clocks": {
            "sm": number(asker("clocks", "nvmlDeviceGetClockInfo", handle, sm)),
            "memory": number(asker("clocks", "nvmlDeviceGetClockInfo", handle, dram)),
            "sm_max": number(asker("clocks", "nvmlDeviceGetMaxClockInfo", handle, sm)),
            "memory_max": number(asker("clocks", "nvmlDeviceGetMaxClockInfo", handle, dram)),
        },
        "reasons": None if number(reasons) is None else reason_names(reasons),
        "power": _thousandth(asker("power", "nvmlDeviceGetPowerUsage", handle)),
        "temperature": number(asker("temperature", "nvmlDeviceGetTemperature", handle, 0)),
    }


def _kept(asker: Asker, handle: Any) -> Gpu:
    """Return what stays as it is, until somebody resets the GPU or the node."""
    library = asker.library
    ecc = asker("ecc", "nvmlDeviceGetEccMode", handle)
    mig = asker("mig", "nvmlDeviceGetMigMode", handle)
    memory = asker("memory", "nvmlDeviceGetMemoryInfo", handle)
    slow = _constant(library, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", 1)
    mode = number(asker("compute_mode", "nvmlDeviceGetComputeMode", handle))
    persistence = number(asker("persistence", "nvmlDeviceGetPersistenceMode", handle))
    pending = number(asker("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", handle))
    return {
        "serial": words(asker("serial", "nvmlDeviceGetSerial", handle)),
        "vbios": words(asker("vbios", "nvmlDeviceGetVbiosVersion", handle)),
        "persistence": None if persistence is None else bool(persistence),
        "compute_mode": None if mode is None else _COMPUTE_MODES.get(mode, "mode %d" % mode),
        "mig": _now_and_next(mig),
        "ecc": _now_and_next(ecc),
        "ecc_errors": {
            "uncorrected": _errors(asker, handle, "UNCORRECTED", 1, "VOLATILE_ECC", 0),
            "uncorrected_ever": _errors(asker, handle, "UNCORRECTED", 1, "AGGREGATE_ECC", 1),
            "corrected": _errors(asker, handle, "CORRECTED", 0, "VOLATILE_ECC", 0),
        },
        "rows": _rows(asker("rows", "nvmlDeviceGetRemappedRows", handle)),
        "retired_pending": None if pending is None else bool(pending),
        "power_limit": _thousandth(asker("power_limit", "nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_limit_default": _thousandth(asker("power_limit", "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        "temperature_slowdown": number(asker("slowdown", "nvmlDeviceGetTemperatureThreshold", handle, slow)),
        "memory": number(getattr(memory, "total", None)),
        "memory_used": number(getattr(memory, "used", None)),
        "fabric": _fabric(asker, handle),
        "recovery": _recovery(asker, handle),
    }


def _constant(library: Any, name: str, usual: int) -> int:
    found = getattr(library, name, usual)
    return found if isinstance(found, int) else usual


def _errors(asker: Asker, handle: Any, kind: str, usual: int, counter: str, usual_counter: int) -> Optional[int]:
    kind_code = _constant(asker.library, "NVML_MEMORY_ERROR_TYPE_" + kind, usual)
    counter_code = _constant(asker.library, "NVML_" + counter, usual_counter)
    return number(asker("ecc_errors", "nvmlDeviceGetTotalEccErrors", handle, kind_code, counter_code))


def _thousandth(value: Any) -> Optional[float]:
    count = number(value)
    return None if count is None else round(count / 1000.0, 1)


def _now_and_next(found: Any) -> Dict[str, Optional[bool]]:
    """Return a mode that holds now and the one after the next reset, None where the GPU has none."""
    pair = list(found) if isinstance(found, (list, tuple)) and len(found) == 2 else [None, None]
    return {"on": None if pair[0] is None else bool(pair[0]), "next": None if pair[1] is None else bool(pair[1])}


def _rows(found: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(found, (list, tuple)) or len(found) < 4:
        return None
    counts = {"correctable": number(found[0]), "uncorrectable": number(found[1])}
    return dict(counts, pending=bool(found[2]), failure=bool(found[3]))


def _fabric(asker: Asker, handle: Any) -> Optional[Dict[str, Any]]:
    """Return the state of the GPU in its NVLink fabric, None where there is no NVSwitch."""
    for name, function in (
        ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
    ):
        structure = getattr(asker.library, name, None)
        if structure is None:
            continue
        info = structure()
        reference = ctypes.byref(info) if isinstance(info, ctypes.Structure) else info
        if asker("fabric", function, handle, reference) is not None:
            return _fabric_of(info, asker.library)
    return None


def _fabric_of(info: Any, library: Any) -> Optional[Dict[str, Any]]:
    state = number(getattr(info, "state", None))
    if state is None or state == 0:
        return None
    status = number(getattr(info, "status", None))
    cluster = bytes(bytearray(getattr(info, "clusterUuid", b"") or b""))[:16]
    mask = number(getattr(info, "healthMask", None)) or 0
    status_text = (
        None if status is None else ("success" if status == 0 else words(ask(library.nvmlErrorString, status)))
    )
    wrong = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_MASK
    return {
        "state": _FABRIC_STATES.get(state, "state %d" % state),
        "status": status_text or (None if status is None else "error %d" % status),
        "clique": number(getattr(info, "cliqueId", None)),
        "cluster": str(uuid.UUID(bytes=cluster)) if len(cluster) == 16 and any(cluster) else None,
        "summary": _FABRIC_SUMMARY.get(getattr(info, "healthSummary", None) or 0),
        "unhealthy": [name for name, shift in _FABRIC_HEALTH.items() if mask >> shift & 3 == 1]
        + (["configuration %d" % wrong] if wrong > 1 else []),
    }


def _recovery(asker: Asker, handle: Any) -> Optional[str]:
    """Return what the driver wants to be done with this GPU before it works again, ``none`` for nothing."""
    field = getattr(asker.library, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values: List[Any] = [] if field is None else asker("recovery", "nvmlDeviceGetFieldValues", handle, [field]) or []
    try:
        if values[0].nvmlReturn != 0:
            return None
        code = int(values[0].value.uiVal)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return _RECOVERY.get(code, "action %d" % code)
