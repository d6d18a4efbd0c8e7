"""The GPUs of a node, asked from NVML."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from fabtui_node.probes.nvidia.nvml import ask, bus_id, devices, number, versions, visible_devices, words
from fabtui_node.system import sessions, sysfs

_MAX_PROCESSES = 64

# The kernel's fixed inode of the first PID namespace.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def read(library: Any, setting: Optional[str], root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return ``{"driver", "cuda", "gpus"}`` of the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible."""
    handles, uuids = devices(library)
    found = []
    for index, (at, mig) in enumerate(visible_devices(setting, uuids)):
        known = _gpu(library, at, handles[at], root, proc) if mig is None else _instance(library, mig, root, proc)
        found.append(dict(known, index=index))
    return dict(versions(library), gpus=found)


def _instance(library: Any, name: str, root: str, proc: str) -> Dict[str, Any]:
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
    pcie = {"gen": None, "gen_max": None, "width": None, "width_max": None}
    gpu: Dict[str, Any] = {"index": nvml_index, "nvml_index": nvml_index}
    gpu.update(dict.fromkeys(("name", "uuid", "serial", "bus", "numa", "mig", "memory", "memory_used")))
    return dict(gpu, processes=[], pcie=pcie, nic=None, nic_path=None, error=None)


def _gpu(library: Any, nvml_index: Optional[int], handle: Any, root: str, proc: str) -> Dict[str, Any]:
    gpu = unknown(nvml_index)
    if handle is None:
        gpu["error"] = "NVML gives no handle for this GPU"
        return gpu
    memory = ask(library.nvmlDeviceGetMemoryInfo, handle)
    mig = ask(getattr(library, "nvmlDeviceGetMigMode", None), handle)
    bus = bus_id(words(getattr(ask(library.nvmlDeviceGetPciInfo, handle), "busId", None)))
    gpu.update(
        name=words(ask(library.nvmlDeviceGetName, handle)),
        uuid=words(ask(library.nvmlDeviceGetUUID, handle)),
        serial=words(ask(getattr(library, "nvmlDeviceGetSerial", None), handle)),
        bus=bus,
        numa=sysfs.numa_node(root, "bus/pci/devices", bus) if bus else None,
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
        first = os.readlink(os.path.join(proc, "self/ns/pid")) == _FIRST_PID_NAMESPACE
        user = os.stat(os.path.join(proc, str(pid))).st_uid
    except OSError:
        first, user = False, -1
    if not first:
        return {"name": None, "user": None}
    return {"name": sysfs.text(proc, str(pid), "comm"), "user": sessions.user_name(user)}


def on_pci(root: str = "/sys", kind: str = "0x03") -> List[str]:
    """Return the PCI addresses of NVIDIA's devices of a PCI class, whether or not a driver runs.

    Class 0x03: display and 3D controllers; 0x0680: NVSwitches, which a virtual machine may not see all of.
    """
    folder = os.path.join(root, "bus/pci/devices")
    own = [name for name in sorted(sysfs.names(folder)) if sysfs.text(folder, name, "vendor") == "0x10de"]
    return [name for name in own if (sysfs.text(folder, name, "class") or "").startswith(kind)]
