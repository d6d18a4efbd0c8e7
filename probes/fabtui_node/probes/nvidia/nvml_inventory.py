"""The GPUs of a node, asked from NVML."""

from __future__ import annotations

import os
import pwd
from typing import Any, Dict, List, Optional

from fabtui_node.probes.nvidia import run_nvidia_smi
from fabtui_node.probes.nvidia.nvml import ask, number, words
from fabtui_node.system import sysfs

_MAX_PROCESSES = 64

# The kernel's fixed inode of the first PID namespace.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def read(library: Any, setting: Optional[str], root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return ``{"driver", "cuda", "gpus"}`` of the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible.

    Args:
        library: An initialised ``pynvml``.
        setting: The value of ``CUDA_VISIBLE_DEVICES``, None when unset.
        root: Where sysfs is.
        proc: Where procfs is.
    """
    count = number(ask(library.nvmlDeviceGetCount)) or 0
    handles = [ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    uuids = [words(ask(library.nvmlDeviceGetUUID, handle)) if handle else None for handle in handles]
    found = []
    for index, (nvml_index, mig) in enumerate(run_nvidia_smi.visible_devices(setting, uuids)):
        if mig is not None:
            gpu = _instance(library, mig, handles, root, proc)
        else:
            gpu = _gpu(library, nvml_index, handles[nvml_index], root, proc)
        gpu["index"] = index
        found.append(gpu)
    return {
        "driver": words(ask(library.nvmlSystemGetDriverVersion)),
        "cuda": cuda_version(ask(library.nvmlSystemGetCudaDriverVersion)),
        "gpus": found,
    }


def cuda_version(value: Any) -> Optional[str]:
    """Return NVML's 12080 as ``12.8``."""
    return "%d.%d" % (value // 1000, value % 1000 // 10) if isinstance(value, int) else None


def _instance(library: Any, name: str, handles: List[Any], root: str, proc: str) -> Dict[str, Any]:
    """Return the GPU behind a MIG instance, under the instance's name and with its memory."""
    instance = ask(getattr(library, "nvmlDeviceGetHandleByUUID", None), name)
    parent = ask(getattr(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", None), instance)
    nvml_index = number(ask(library.nvmlDeviceGetIndex, parent)) if parent else None
    gpu = _gpu(library, nvml_index, parent, root, proc)
    memory = ask(library.nvmlDeviceGetMemoryInfo, instance) if instance else None
    gpu.update(uuid=name, mig=True, memory=_field(memory, "total"), memory_used=_field(memory, "used"))
    if parent is None:
        gpu["error"] = "the driver does not know the MIG instance %s" % name
    return gpu


def _field(value: Any, name: str) -> Optional[int]:
    return number(getattr(value, name, None))


def unknown(nvml_index: Optional[int] = None) -> Dict[str, Any]:
    """Return the record of a GPU of which nothing is known yet."""
    return {
        "index": nvml_index,
        "nvml_index": nvml_index,
        "name": None,
        "uuid": None,
        "bus": None,
        "numa": None,
        "mig": None,
        "memory": None,
        "memory_used": None,
        "processes": [],
        "pcie": {"gen": None, "gen_max": None, "width": None, "width_max": None},
        "nic": None,
        "nic_path": None,
        "error": None,
    }


def on_numa(number: Optional[int]) -> Optional[int]:
    """Return the kernel's ``numa_node``, None for -1."""
    return number if number is not None and number >= 0 else None


def _gpu(library: Any, nvml_index: Optional[int], handle: Any, root: str, proc: str) -> Dict[str, Any]:
    gpu = unknown(nvml_index)
    if handle is None:
        gpu["error"] = "NVML gives no handle for this GPU"
        return gpu
    memory = ask(library.nvmlDeviceGetMemoryInfo, handle)
    mig = ask(getattr(library, "nvmlDeviceGetMigMode", None), handle)
    bus = run_nvidia_smi.bus_id(words(getattr(ask(library.nvmlDeviceGetPciInfo, handle), "busId", None)))
    numa = sysfs.integer(root, "bus/pci/devices", bus, "numa_node") if bus else None
    gpu.update(
        name=words(ask(library.nvmlDeviceGetName, handle)),
        uuid=words(ask(library.nvmlDeviceGetUUID, handle)),
        bus=bus,
        numa=on_numa(numa),
        mig=bool(mig[0]) if isinstance(mig, (list, tuple)) and mig else None,
        memory=_field(memory, "total"),
        memory_used=_field(memory, "used"),
        processes=_processes(library, handle, proc),
        pcie={
            "gen": number(ask(library.nvmlDeviceGetCurrPcieLinkGeneration, handle)),
            "gen_max": number(ask(library.nvmlDeviceGetMaxPcieLinkGeneration, handle)),
            "width": number(ask(library.nvmlDeviceGetCurrPcieLinkWidth, handle)),
            "width_max": number(ask(library.nvmlDeviceGetMaxPcieLinkWidth, handle)),
        },
    )
    return gpu


def _processes(library: Any, handle: Any, proc: str) -> List[Dict[str, Any]]:
    running: Dict[int, Any] = {}
    for kind in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for process in ask(getattr(library, kind, None), handle) or []:
            pid = number(getattr(process, "pid", None))
            if pid is not None:
                running.setdefault(pid, process)
    return [
        dict(owner(pid, proc), pid=pid, memory=_field(running[pid], "usedGpuMemory"))
        for pid in sorted(running)[:_MAX_PROCESSES]
    ]


def owner(pid: int, proc: str = "/proc") -> Dict[str, Optional[str]]:
    """Return ``{"name", "user"}`` of a process, None where unknown.

    NVML counts processes as the host does. Inside a container the same number is another process, or none, so nothing
    is in it.
    """
    try:
        if os.readlink(os.path.join(proc, "self/ns/pid")) != _FIRST_PID_NAMESPACE:
            return {"name": None, "user": None}
        user = os.stat(os.path.join(proc, str(pid))).st_uid
    except OSError:
        return {"name": None, "user": None}
    try:
        account = pwd.getpwuid(user).pw_name
    except KeyError:
        account = str(user)
    return {"name": sysfs.text(proc, str(pid), "comm"), "user": account}


def on_pci(root: str = "/sys") -> List[str]:
    """Return the PCI addresses of NVIDIA's display and 3D controllers, whether or not a driver runs."""
    folder = os.path.join(root, "bus/pci/devices")
    return [
        name
        for name in sorted(sysfs.names(folder))
        if sysfs.text(folder, name, "vendor") == "0x10de"
        and (sysfs.text(folder, name, "class") or "").startswith("0x03")
    ]
