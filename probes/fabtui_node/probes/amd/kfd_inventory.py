"""The GPUs of AMD in a node, read from the kernel's tree of compute devices (KFD); no tool or library is needed.

Written from the kernel's description of that tree; nobody has run it on such a machine yet.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional

from fabtui_node.probes.nvidia import nvml_inventory
from fabtui_node.system import sysfs

_TREE = "class/kfd/kfd"
_VENDOR = 0x1002
_MAX_GPUS = 64
_MAX_PROCESSES = 64
#: Variables that hide GPUs, in the order in which they are applied.
VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def read(environ: Mapping[str, str], root: str = "/sys", proc: str = "/proc") -> List[Dict[str, Any]]:
    """Return the GPUs that the variables of `VISIBLE` leave, in the form of `nvml_inventory.read`; none without KFD."""
    found = []
    for node in sysfs.names(root, _TREE, "topology/nodes")[:1024]:
        listed = properties(sysfs.text(root, _TREE, "topology/nodes", node, "properties"))
        # A node without compute units is a CPU; one of a container's neighbours cannot be read.
        if listed.get("simd_count") and listed.get("vendor_id") == _VENDOR:
            found.append(_gpu(node, listed, root, proc))
    for name in VISIBLE:
        found = visible(found, environ.get(name))
    for index, gpu in enumerate(found):
        gpu["index"] = index
    return found[:_MAX_GPUS]


def driver(root: str = "/sys") -> Optional[str]:
    """Return the version of the module ``amdgpu``; the kernel's own has none."""
    version = sysfs.text(root, "module/amdgpu/version", limit=60)
    return "amdgpu %s" % version if version else None


def properties(text: Optional[str]) -> Dict[str, int]:
    """Return a file of lines of a name and a number."""
    return {name: int(value) for name, value in re.findall(r"^(\w{1,60}) ([0-9]{1,20})$", text or "", re.M | re.A)}


def visible(found: List[Dict[str, Any]], setting: Optional[str]) -> List[Dict[str, Any]]:
    """Return the GPUs that a list of indices and ids (``0,2``, ``GPU-e4d2...``) names; what is unknown ends it."""
    if setting is None:
        return found
    chosen: List[Dict[str, Any]] = []
    for word in setting.split(","):
        word = word.strip()
        number = sysfs.to_integer(word)
        if number is not None:
            one = found[number] if 0 <= number < len(found) else None
        else:
            own = "AMD-" + word[4:].lower() if word.startswith("GPU-") and len(word) > 4 else None
            one = next((gpu for gpu in found if own is not None and gpu["uuid"] == own), None)
        if one is None or one in chosen:
            break
        chosen.append(one)
    return chosen


def address(domain: int, location: int) -> Optional[str]:
    """Return the PCI address of KFD's ``domain`` and ``location_id``."""
    if not 0 <= domain <= 0xFFFFFFFF or not 0 <= location <= 0xFFFF:
        return None
    return "%04x:%02x:%02x.%x" % (domain, location >> 8, location >> 3 & 0x1F, location & 7)


def target(version: int) -> str:
    """Return the name of KFD's ``gfx_target_version``: 90402 is ``gfx942``, 90010 is ``gfx90a``."""
    return "gfx%d%x%x" % (version // 10000, version // 100 % 100, version % 100)


def _gpu(node: str, listed: Dict[str, int], root: str, proc: str) -> Dict[str, Any]:
    bus = address(listed.get("domain", 0), listed.get("location_id", -1))
    device = os.path.join(root, "bus/pci/devices", bus or "-")
    version = listed.get("gfx_target_version")
    gpu = nvml_inventory.unknown()
    gpu.update(
        name=sysfs.text(device, "product_name") or "AMD GPU" + (" " + target(version) if version else ""),
        # Not as NVIDIA's are written: HIP does not find devices by it.
        uuid="AMD-%016x" % listed["unique_id"] if listed.get("unique_id") else None,
        bus=bus,
        numa=sysfs.numa_node(device),
        memory=sysfs.integer(device, "mem_info_vram_total"),
        memory_used=sysfs.integer(device, "mem_info_vram_used"),
        processes=_processes(sysfs.integer(root, _TREE, "topology/nodes", node, "gpu_id"), root, proc),
    )
    return gpu


def _processes(gpu_id: Optional[int], root: str, proc: str) -> List[Dict[str, Any]]:
    found = []
    for name in sysfs.names(root, _TREE, "proc")[:4096]:
        pid = sysfs.to_integer(name)
        memory = sysfs.integer(root, _TREE, "proc", name, "vram_%s" % gpu_id)
        if pid is not None and memory:
            found.append(dict(nvml_inventory.owner(pid, proc), pid=pid, memory=memory))
    return found[:_MAX_PROCESSES]
