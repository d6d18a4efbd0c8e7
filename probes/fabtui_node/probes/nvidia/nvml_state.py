"""The state of GPUs, asked from NVML: PCIe, clocks and what holds them down, ECC, rows, MIG, NVLink fabric, power.

NVML answers each question about a GPU separately. Unknown values of this GPU, driver or pynvml are None; failures of
a lost GPU are in its ``errors``. Units: clocks in MHz, power in W, temperatures in C, memory in bytes, utilization in
percent; replays since the last reset, ECC errors since the driver was loaded (``_ever``: since the GPU was made).
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any, Callable, Dict, List, Optional

from fabtui_node.parsers.nvidia.values import reason_names
from fabtui_node.probes.nvidia.nvml import ask, bus_id, number, versions, visible_devices, words

#: Codes of NVML that mean "there is no such thing here", which is no fault: invalid argument, not supported, not found,
#: function not found, no ECC in a virtual GPU, other version of a structure, deprecated.
_NOTHING = (2, 3, 6, 13, 22, 25, 26)
_LOST, _RESET = 15, 16
_WORDS = {4: "not permitted", _LOST: "GPU is lost", _RESET: "GPU requires reset"}

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}
#: Offsets of two bits of the fabric's health: 1 is true, 2 is false, 0 is not supported. Four bits of them are a code.
_FABRIC_HEALTH = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6}
_CONFIGURATION_SHIFT = 8
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


class NvmlAsker:
    """Asks NVML (an initialised ``pynvml``) about one GPU and keeps its errors, by the name of what was asked for."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.errors: Dict[str, str] = {}
        #: Error of a lost GPU; it is not asked again.
        self.dead: Optional[str] = None

    def __call__(self, what: str, function: str, *args: Any) -> Any:
        """Return what NVML answers, None for anything else."""
        found: Optional[Callable[..., Any]] = getattr(self.library, function, None)
        if found is None or self.dead is not None:
            return None
        try:
            return found(*args)
        except Exception as error:  # pynvml releases differ in what they raise; ask the other questions
            code = getattr(error, "value", None)
            if isinstance(code, int) and code not in _NOTHING:
                self.errors[what] = _WORDS.get(code) or "%s (NVML error %d)" % (str(error)[:120], code)
                self.dead = _WORDS[code] if code in (_LOST, _RESET) else None
            return None

    def number(self, what: str, function: str, *args: Any) -> Optional[int]:
        """Return the number that NVML answers."""
        return number(self(what, function, *args))

    def constant(self, name: str, usual: int) -> int:
        """Return a constant of NVML, the usual one where this pynvml does not know it."""
        found = getattr(self.library, name, usual)
        return found if isinstance(found, int) else usual


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
    """Return handle and index of the GPU behind a MIG instance."""
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
        "power": _thousandth(asker("power", "nvmlDeviceGetPowerUsage", handle)),
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
        "power_limit": _thousandth(asker("power_limit", "nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_limit_default": _thousandth(asker("power_limit", "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        "temperature_slowdown": asker.number("slowdown", "nvmlDeviceGetTemperatureThreshold", handle, slow),
        "memory": number(getattr(memory, "total", None)),
        "memory_used": number(getattr(memory, "used", None)),
        "fabric": _fabric(asker, handle),
        "recovery": _recovery(asker, handle),
    }


def _errors(asker: NvmlAsker, handle: Any, kind: str, usual: int, counter: str, usual_counter: int) -> Optional[int]:
    kind_code = asker.constant("NVML_MEMORY_ERROR_TYPE_" + kind, usual)
    counter_code = asker.constant("NVML_" + counter, usual_counter)
    return asker.number("ecc_errors", "nvmlDeviceGetTotalEccErrors", handle, kind_code, counter_code)


def _thousandth(value: Any) -> Optional[float]:
    count = number(value)
    return None if count is None else round(count / 1000.0, 1)


def _now_and_next(found: Any) -> Dict[str, Optional[bool]]:
    """Return a mode that holds now and the one after the next reset, None where the GPU has none."""
    now, later = found if isinstance(found, (list, tuple)) and len(found) == 2 else (None, None)
    return {"on": None if now is None else bool(now), "next": None if later is None else bool(later)}


def _rows(found: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(found, (list, tuple)) or len(found) < 4:
        return None
    counts = {"correctable": number(found[0]), "uncorrectable": number(found[1])}
    return dict(counts, pending=bool(found[2]), failure=bool(found[3]))


def _fabric(asker: NvmlAsker, handle: Any) -> Optional[Dict[str, Any]]:
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
        + (["configuration %d" % wrong] if wrong > 1 else []),
    }


def _recovery(asker: NvmlAsker, handle: Any) -> Optional[str]:
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
