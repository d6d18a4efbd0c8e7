"""Identity, processors, memory, folders and connection tracking of the node, from its kernel."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from typing import Any, Dict, List, Mapping, Optional

from fabtui_node.system import sysfs

_MOST_POLICIES = 1024
#: Folders that programs and their libraries write to, besides TMPDIR and the home.
_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")
_LONGEST_PATH = 200
#: Time (s) for file systems to answer.
_PATIENCE = 1.0
_MARKS = (
    ("APPTAINER_CONTAINER", "apptainer"),
    ("SINGULARITY_CONTAINER", "singularity"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("ENROOT_ROOTFS", "enroot"),
)
#: Masks of the kernel, below devices/system.
_MASKS = {
    "cpus_present": "cpu/present",
    "cpus_online": "cpu/online",
    "nodes_with_cpus": "node/has_cpu",
    "nodes_with_memory": "node/has_memory",
}


def parse_list(text: str) -> List[int]:
    """Return the numbers of a list such as ``0-3,8``, at most 16384."""
    numbers: List[int] = []
    for first, last in re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text, re.ASCII):
        numbers += range(int(first), min(int(last or first), int(first) + 16384) + 1)
    return numbers[:16384]


def parse_cpuinfo(text: str) -> Dict[str, Any]:
    """Return ``{"model", "sockets", "threads", "virtual"}`` from ``/proc/cpuinfo``; missing values are None."""
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.{1,200})$", text, re.MULTILINE)
    threads = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    sockets = len(set(re.findall(r"^physical id\s*:\s*([0-9]{1,6})", text, re.MULTILINE)))
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return {
        "model": " ".join(model.group(1).split()) if model else None,
        "sockets": sockets or None,
        "threads": threads or None,
        "virtual": " hypervisor" in flags.group(1) if flags else None,
    }


def parse_meminfo(text: str) -> Dict[str, Optional[int]]:
    """Return ``{"available", "swap", "huge_total", "huge_free", "huge_size"}``: bytes, and counts of huge pages."""
    sizes = {name: int(value) for name, value in re.findall(r"^(\w+):\s+([0-9]{1,15})", text, re.MULTILINE | re.ASCII)}

    def size(name: str) -> Optional[int]:
        return sizes[name] * 1024 if name in sizes else None

    return {
        "available": size("MemAvailable"),
        "swap": size("SwapTotal"),
        "huge_total": sizes.get("HugePages_Total"),
        "huge_free": sizes.get("HugePages_Free"),
        "huge_size": size("Hugepagesize"),
    }


def parse_chosen(text: Optional[str]) -> Optional[str]:
    """Return the word in brackets of a kernel setting such as ``always [madvise] never``."""
    match = re.search(r"\[(\w{1,40})\]", text or "")
    return match.group(1) if match else None


def boot_id(proc: str = "/proc") -> Optional[str]:
    """Return the id of the machine since it started, which all nodes on it share."""
    return sysfs.text(proc, "sys/kernel/random/boot_id")


def load(proc: str = "/proc") -> Optional[float]:
    match = re.match(r"([0-9]{1,9}\.[0-9]{1,9})\s", sysfs.text(proc, "loadavg") or "", re.ASCII)
    return float(match.group(1)) if match else None


def identity(sys: str = "/sys", proc: str = "/proc", etc: str = "/etc") -> Dict[str, Any]:
    """Return who this machine is: ``hostname``, ``boot_id``, ``machine_id``, ``product``, ``bios``, ``container``.

    The kernel shows ``serial``, its serial number, to root alone.
    """
    return {
        "hostname": socket.gethostname(),
        "boot_id": boot_id(proc),
        "machine_id": sysfs.text(etc, "machine-id") or None,
        "product": sysfs.text(sys, "class/dmi/id/product_name") or None,
        "serial": sysfs.text(sys, "class/dmi/id/product_serial") or None,
        "bios": sysfs.text(sys, "class/dmi/id/bios_version") or None,
        "container": container(dict(os.environ), proc),
    }


def container(environ: Dict[str, str], proc: str = "/proc", root: str = "/") -> Optional[str]:
    """Return the kind of container this is in, or None."""
    for variable, kind in _MARKS:
        if environ.get(variable):
            return kind
    for path, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if os.path.exists(os.path.join(root, path)):
            return kind
    match = re.search(r"(docker|kubepods|containerd|lxc|libpod)", sysfs.text(proc, "1/cgroup") or "")
    return match.group(1) if match else sysfs.text(root, "run/systemd/container") or None


def processors(sys: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return ``parse_cpuinfo`` and ``governors`` (how many policies have each), ``numa_nodes``, ``numa_balancing``.

    ``smt`` (the kernel's word), and by number: ``cpus_present``, ``cpus_online``, ``nodes_with_cpus``,
    ``nodes_with_memory``.
    """
    value = parse_cpuinfo(sysfs.text(proc, "cpuinfo", limit=1 << 22) or "")
    governors: Dict[str, int] = {}
    folder = os.path.join(sys, "devices/system/cpu/cpufreq")
    for name in [name for name in sysfs.names(folder) if name.startswith("policy")][:_MOST_POLICIES]:
        governor = sysfs.text(folder, name, "scaling_governor")
        if governor:
            governors[governor[:40]] = governors.get(governor[:40], 0) + 1
    nodes = [n for n in sysfs.names(sys, "devices/system/node") if re.fullmatch("node[0-9]{1,5}", n)]
    balancing = sysfs.integer(proc, "sys/kernel/numa_balancing")
    places = {name: sysfs.text(sys, "devices/system", path) for name, path in _MASKS.items()}
    value.update(
        governors=governors,
        numa_nodes=len(nodes) or None,
        numa_balancing=None if balancing is None else balancing > 0,
        smt=sysfs.text(sys, "devices/system/cpu/smt/control"),
        **{name: None if text is None else parse_list(text) for name, text in places.items()},
        load=load(proc),
    )
    return value


def memory(sys: str = "/sys", proc: str = "/proc", shm: str = "/dev/shm") -> Dict[str, Any]:
    """Return ``parse_meminfo``, ``transparent`` huge pages, and ``shm_size`` and ``shm_free`` in bytes."""
    value: Dict[str, Any] = dict(parse_meminfo(sysfs.text(proc, "meminfo") or ""), shm_size=None, shm_free=None)
    value["transparent"] = parse_chosen(sysfs.text(sys, "kernel/mm/transparent_hugepage/enabled"))
    # If it is not a file system, the folder's figures would describe the disk it is on.
    with contextlib.suppress(OSError):
        if os.path.ismount(shm):
            disk = os.statvfs(shm)
            value.update(shm_size=disk.f_frsize * disk.f_blocks, shm_free=disk.f_frsize * disk.f_bavail)
    return value


def connections(proc: str = "/proc") -> Dict[str, Optional[int]]:
    """Return ``count`` and ``max`` of the connections that the firewall tracks; None where it tracks none."""
    folder = os.path.join(proc, "sys/net/netfilter")
    return {name: sysfs.integer(folder, "nf_conntrack_" + name) for name in ("count", "max")}


def folders(environ: Mapping[str, str], within: float = _PATIENCE) -> Dict[str, Any]:
    """Return ``home``, and the folders of programs that are mounted ``noexec`` or ``read_only``.

    Each is None if unknown, as of a file system that does not answer within some seconds.
    """
    home = environ.get("HOME", "").rstrip("/")
    named = [*_WRITABLE, environ.get("TMPDIR", ""), home]
    paths = list(dict.fromkeys(path.rstrip("/") for path in named if path.startswith("/") and path.strip("/")))
    mounts: Dict[str, int] = {}

    def look() -> None:
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                mounts[path[:_LONGEST_PATH]] = os.statvfs(path).f_flag

    asked = threading.Thread(target=look, daemon=True)
    asked.start()
    asked.join(within)
    flags = dict(mounts)
    return {
        "home": home[:_LONGEST_PATH] or None,
        "noexec": [path for path, flag in flags.items() if flag & os.ST_NOEXEC] if flags else None,
        "read_only": [path for path, flag in flags.items() if flag & os.ST_RDONLY] if flags else None,
    }
