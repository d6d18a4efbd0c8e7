"""Modules and libraries of the system: prerequisites of GPUDirect, IOMMU, versions, NCCL and its net plugins, CUDA."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from fabtui_node.system import run_command, sysfs

#: Modules to report: of GPUs, of RDMA devices, of shared memory.
MODULES = (
    *("nvidia", "nvidia_uvm", "nvidia_fs", "nvidia_peermem", "nv_peer_mem", "gdrdrv"),
    *("mlx5_core", "mlx5_ib", "bnxt_re", "irdma", "efa", "ib_core", "ib_ipoib", "rdma_cm"),
    *("xpmem", "knem"),
)
_DMA_BUF_FROM = (5, 12)
_WORDS = re.compile(r"(?:intel_iommu|amd_iommu|iommu|iommu\.passthrough|pci|numa_balancing|mitigations)(?:=\S{1,80})?")
#: Folders of libraries of the system.
SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
_FOLDERS = (
    *SYSTEM_FOLDERS,
    "/usr/local/nccl*/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/opt/nccl*/lib",
    "/opt/nccl*/build/lib",
)
_NAMES = ("libnccl.so*", "libcuda.so*", "libcudart.so*")
_LISTED = re.compile(r"\s+lib(?:nccl|cuda|cudart)\.so[0-9.]*\s.*=> (/\S{1,500})$")
_MAX_FOUND = 32
#: Folders of net plugins of NCCL.
_LIBRARY_FOLDERS = (
    *SYSTEM_FOLDERS,
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/gib/lib64",
)
_MOST_PLUGINS = 16

# Large folders that rarely change; their modification time shows it.
_SEEN: Dict[str, Tuple[int, Tuple[List[str], Optional[str]]]] = {}


def parse_modules(text: str) -> List[str]:
    """Return which of ``MODULES`` are loaded, from ``/proc/modules``."""
    loaded = set(re.findall(r"^(\w{1,100}) [0-9]", text, re.MULTILINE | re.ASCII))
    return [name for name in MODULES if name in loaded]


def parse_cmdline(text: Optional[str]) -> List[str]:
    """Return the words of the kernel's command line that matter here."""
    return [word for word in (text or "").split()[:200] if _WORDS.fullmatch(word)]


def parse_release(text: Optional[str]) -> Optional[Tuple[int, int]]:
    """Return the first two numbers of a kernel's release."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", text or "", re.ASCII)
    return (int(match.group(1)), int(match.group(2))) if match else None


def parse_nvidia_version(text: Optional[str]) -> Optional[bool]:
    """Return whether ``/proc/driver/nvidia/version`` names the open kernel modules, None if unknown."""
    if not text or "NVRM" not in text:
        return None
    return "Open Kernel Module" in text


def iommu(devices: Iterable[str], sys: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read the state of the IOMMU for GPUs and RDMA devices, by their PCI addresses.

    Returns:
        ``{"state", "groups", "cmdline"}``: ``off`` (no group), ``passthrough`` (the devices are addressed directly),
        ``translating``, or ``unknown``; the number of groups; the words of the kernel's command line.
    """
    groups = len(sysfs.names(sys, "kernel/iommu_groups"))
    words = parse_cmdline(sysfs.text(proc, "cmdline"))
    kinds = {sysfs.text(sys, "bus/pci/devices", bus, "iommu_group/type") for bus in devices} - {None}
    if not groups:
        state = "off"
    elif kinds:
        state = "passthrough" if kinds == {"identity"} else "translating"
    elif "iommu=pt" in words or "iommu.passthrough=1" in words:
        state = "passthrough"
    else:
        state = "unknown"
    return {"state": state, "groups": groups, "cmdline": words}


def gpudirect(modules: List[str], sys: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read how RDMA devices can access GPU memory.

    Returns:
        ``{"peermem", "registered", "open_driver", "dma_buf"}``: the module that is loaded for it or None; whether it
        has registered with an RDMA stack that has a list of such (None: it has none); whether the driver is the open
        one; whether kernel and driver could do without the module (None: unknown).
    """
    peermem = next((name for name in ("nvidia_peermem", "nv_peer_mem") if name in modules), None)
    clients = os.path.join(sys, "kernel/mm/memory_peers")
    registered = bool({"nv_mem", "nv_mem_nc"} & set(sysfs.names(clients))) if os.path.isdir(clients) else None
    open_driver = parse_nvidia_version(sysfs.text(proc, "driver/nvidia/version"))
    release = parse_release(sysfs.text(proc, "sys/kernel/osrelease"))
    dma_buf = None if open_driver is None or release is None else open_driver and release >= _DMA_BUF_FROM
    return {"peermem": peermem, "registered": registered, "open_driver": open_driver, "dma_buf": dma_buf}


def versions(environ: Dict[str, str], sys: str = "/sys", folders: Iterable[str] = _LIBRARY_FOLDERS) -> Dict[str, Any]:
    """Return ``ofed`` (``inbox`` where the module is the kernel's own), ``rdma_core`` and NCCL's ``net_plugins``."""
    plugins: Dict[str, str] = {}
    verbs: Optional[str] = None
    for folder in [*loader_folders(environ), *folders]:
        files, version = _libraries_in(folder)
        for path in files:
            plugins.setdefault(os.path.realpath(path), path)
        verbs = verbs or version
    ofed = sysfs.text(sys, "module/mlx5_core/version")
    if ofed is None and os.path.isdir(os.path.join(sys, "module/mlx5_core")):
        ofed = "inbox"
    return {"ofed": ofed, "rdma_core": verbs, "net_plugins": list(plugins.values())[:_MOST_PLUGINS]}


def _libraries_in(folder: str) -> Tuple[List[str], Optional[str]]:
    """Return a folder's net plugins of NCCL, and the version of rdma-core if it is there."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return [], None
    known = _SEEN.get(folder)
    if known is None or known[0] != changed:
        plugins = sorted(glob.glob(os.path.join(glob.escape(folder), "libnccl-net*.so*")))
        verbs = os.path.realpath(os.path.join(folder, "libibverbs.so.1"))
        version = re.search(r"\.so\.1\.[0-9]{1,6}\.([0-9.]{1,30})$", verbs)
        known = _SEEN[folder] = (changed, (plugins, version.group(1) if version else None))
    return known[1]


def parse_ldconfig(text: str) -> List[str]:
    """Return the paths that ``ldconfig -p`` lists for NCCL and CUDA."""
    matches = (_LISTED.match(line) for line in text.splitlines())
    return [match.group(1) for match in matches if match]


def version_of(path: str) -> Optional[str]:
    """Return the version in the name of the file that a library's path leads to, None if the name has none."""
    match = re.search(r"\.so\.([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})$", os.path.realpath(path))
    return match.group(1) if match else None


def find(environ: Dict[str, str], deadline: float) -> List[str]:
    """Return the libraries on the loader's paths and in the usual folders, each file once."""
    paths = [path for folder in loader_folders(environ) for path in _in(glob.escape(folder))]
    paths.extend(parse_ldconfig(run_command.run(["ldconfig", "-p"], deadline).stdout))
    for folder in _FOLDERS:
        paths.extend(_in(folder))
    libraries: Dict[str, str] = {}
    for path in paths:
        file = os.path.realpath(path)
        if os.path.isfile(file):
            libraries.setdefault(file, path)
    return list(libraries.values())[:_MAX_FOUND]


def loader_folders(environ: Dict[str, str]) -> List[str]:
    return [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder.startswith("/")]


def named(paths: Iterable[str], name: str) -> List[str]:
    return [path for path in paths if os.path.basename(path).startswith(name)]


def _in(folder: str) -> List[str]:
    return [path for name in _NAMES for path in sorted(glob.glob(os.path.join(folder, name)), key=len)]
