"""Probe ``host``: system settings that limit communication: limits, PCI, IOMMU, GPUDirect, memory, processors.

Reads small files of the kernel and starts no command, so that it can be asked often. It complements ``inventory``.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.probes.judgement import count, judgement, objects, part, seconds_since_boot, some, texts
from fabtui_node.probes.nvidia import nvml_inventory
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import cgroups, drivers, limits, machine, pci, rdma_devices, sessions, sysfs

_MIB = 1024 * 1024
_GIB = 1024 * _MIB
#: Minimum locked memory; with less, RDMA queues of a few peers fail to register. Linux has 8 MiB by default (64 KiB
#: before 5.16), and NVIDIA recommends no limit.
ENOUGH_MEMLOCK = 64 * _MIB
#: NCCL makes a segment of some MB in /dev/shm for each pair of ranks of a node.
ENOUGH_SHM = 1 * _GIB
ENOUGH_FILES = 4096
#: A rank on CPUs needs some hundred MiB.
ENOUGH_MEMORY = 1 * _GIB
#: Share of the table of connections from which it is reported.
NEARLY_FULL = 0.9
ENOUGH_PORTS = 1000


def parse_port_range(text: Optional[str]) -> Optional[List[int]]:
    """Return first and last of ``ip_local_port_range``."""
    words = (text or "").split()
    numbers = [number for word in words if (number := sysfs.to_integer(word)) is not None]
    return numbers if len(numbers) == len(words) == 2 else None


def run(args: Dict[str, Any], emit: Any, deadline: float, sys: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read the system settings; with the argument ``sessions`` only whether other sessions are connected.

    ``identity``, ``processors``, ``memory``, ``connections``, ``folders`` (`machine`); ``cgroup`` (`cgroups.read`),
    ``limits`` (`limits.read`), ``sessions`` (`sessions.others`). ``acs`` (`pci`),
    ``iommu``, ``gpudirect``, ``modules``, ``versions`` (`drivers`), ``network`` (``port_range``), ``uptime`` (s),
    ``devices`` (how many ``gpus`` and ``rdma`` devices there are).
    """
    if args.get("sessions"):
        return {"sessions": sessions.others(sessions.Presence.mark, proc)}
    graphics = nvml_inventory.on_pci(sys)
    cards = [device["bus"] for device in rdma_devices.places(sys)]
    buses = [*graphics, *(bus for bus in cards if bus)]
    modules = drivers.parse_modules(sysfs.text(proc, "modules", limit=1 << 20) or "")
    return {
        "identity": machine.identity(sys, proc),
        "processors": machine.processors(sys, proc),
        "memory": machine.memory(sys, proc),
        "cgroup": cgroups.read(sys, proc),
        "connections": machine.connections(proc),
        "folders": machine.folders(os.environ),
        "limits": limits.read(),
        "sessions": sessions.others(sessions.Presence.mark, proc),
        "acs": pci.read_acs(buses, sys),
        "iommu": drivers.iommu(buses, sys, proc),
        "gpudirect": drivers.gpudirect(modules, sys, proc),
        "modules": modules,
        "versions": drivers.versions(dict(os.environ), sys),
        "network": {"port_range": parse_port_range(sysfs.text(proc, "sys/net/ipv4/ip_local_port_range"))},
        "uptime": seconds_since_boot(sysfs.text(proc, "uptime")),
        "devices": {"gpus": len(graphics), "rdma": len(cards)},
    }


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone."""
    devices = part(value, "devices")
    cards, graphics = count(devices, "rdma") or 0, count(devices, "gpus") or 0
    judgements = _limits(value, cards, graphics) + _cores(value) + _sessions(value)
    judgements += _groups(value, int(graphics)) + _tracked(value) + _folders(value)
    # In the output of a command, nobody looked for devices: there may be some.
    known = "devices" in value
    if cards or graphics > 1 or not known:
        judgements += _paths(value, cards, graphics)
    if graphics or not known:
        judgements += _inside(value)
    ports = part(value, "network").get("port_range")
    if isinstance(ports, list) and len(ports) == 2 and all(isinstance(port, int) for port in ports):
        available = ports[1] - ports[0] + 1
        if available < ENOUGH_PORTS:
            judgements.append(judgement("ports", "warn", "only %d ephemeral ports (ip_local_port_range)" % available))
    return judgements


def _limits(value: Dict[str, Any], cards: float, graphics: float) -> List[Judgement]:
    judgements = []
    memlock = part(part(value, "limits"), "memlock")
    soft, hard = count(memlock, "soft"), count(memlock, "hard")
    known = "devices" in value
    where = "an SSH session" if known else "this shell"
    if (cards or not known) and soft is not None and 0 <= soft < ENOUGH_MEMLOCK:
        more = "" if hard is None or hard == soft else ", though up to %s may be asked for" % bytes_text(hard)
        text = "memlock is %s in %s%s: RDMA cannot register memory" % (bytes_text(soft), where, more)
        judgements.append(judgement("memlock", "bad", text))
    tight = limits.tight(value.get("limits"), bool(graphics))
    judgements += [judgement(name, "bad", where + " has " + text) for name, text in tight]
    files = count(part(part(value, "limits"), "nofile"), "soft")
    if graphics and "nofile" not in dict(tight) and files is not None and 0 <= files < ENOUGH_FILES:
        judgements.append(judgement("nofile", "note", "%d open files: large jobs run out of them" % files))
    return judgements


def _groups(value: Dict[str, Any], graphics: int) -> List[Judgement]:
    judgements = []
    group = part(value, "cgroup")
    files = part(group, "files")
    cpus, memory, kills = count(group, "cpus"), count(group, "memory"), count(group, "oom_kills")
    if cpus is not None and cpus < max(1, graphics):
        throttled = count(group, "throttled") or 0
        waits = "; it waited in %.0f %% of its periods" % (100 * throttled) if throttled >= 0.01 else ""
        cores = "%.3g of a core" % cpus if cpus < 1 else "%.3g cores for %d GPUs" % (cpus, graphics)
        text = "CPU limited to %s%s%s" % (cores, _of_file(files, "cpus"), waits)
        verdict = "bad" if cpus < 1 else "warn"
        judgements.append(judgement("cgroup_cpus", verdict, text, _shown(files, "cpus"), "cpu-quota"))
    if memory is not None and memory < max(ENOUGH_MEMORY, 2 * _GIB * graphics):
        text = "memory limited to %s%s: ranks are killed when they need more" % (
            bytes_text(memory),
            _of_file(files, "memory"),
        )
        verdict = "bad" if memory < ENOUGH_MEMORY else "warn"
        judgements.append(judgement("cgroup_memory", verdict, text, _shown(files, "memory"), "memory-limit"))
    if kills:
        text = "the kernel killed %d processes of this control group for lack of memory (oom_kill)" % kills
        judgements.append(judgement("oom_kills", "note", text, check="oom-kills"))
    return judgements


def _of_file(files: Dict[str, Any], name: str) -> str:
    return " (cgroup %s)" % os.path.basename(str(files[name])) if files.get(name) else ""


def _shown(files: Dict[str, Any], name: str) -> List[str]:
    path = str(files.get(name) or "")
    return ["file:" + path] if path and not any(map(str.isspace, path)) else []


def _tracked(value: Dict[str, Any]) -> List[Judgement]:
    tracked = part(value, "connections")
    used, most = count(tracked, "count"), count(tracked, "max")
    if used is None or not most or used < NEARLY_FULL * most:
        return []
    state, verdict = ("full", "bad") if used >= most else ("%.0f %% full" % (100 * used / most), "warn")
    text = "the table of tracked connections is %s (nf_conntrack_count %d of %d): %s" % (
        *(state, used, most),
        "packets of new connections are dropped",
    )
    return [judgement("conntrack", verdict, text, check="connection-tracking")]


def _folders(value: Dict[str, Any]) -> List[Judgement]:
    """Judge folders that are mounted so that programs cannot run or write there."""
    folders = part(value, "folders")
    home, fixed, closed = folders.get("home"), texts(folders.get("noexec")), texts(folders.get("read_only"))
    judgements = []
    # A container has /dev/shm without exec by default, and nothing is run from there.
    if [path for path in fixed if path != "/dev/shm"]:
        text = "%s mounted noexec: libraries that programs compile there cannot be loaded" % some(fixed)
        judgements.append(judgement("noexec", "note", text, check="folders"))
    if closed:
        whose = "the home is" if closed == [home] else "%s are" % some(closed)
        text = whose + " read-only: caches of PyTorch extensions, Triton and CUDA cannot be written"
        judgements.append(judgement("read_only", "note", text, check="folders"))
    return judgements


def _sessions(value: Dict[str, Any]) -> List[Judgement]:
    text = "another fabtui is connected to this node (user %s, pid %s): both may test at the same time"
    others = objects(value.get("sessions"))
    return [judgement("sessions", "note", text % (one.get("user"), one.get("pid"))) for one in others]


def _paths(value: Dict[str, Any], cards: float, graphics: float) -> List[Judgement]:
    judgements = []
    control = part(value, "acs")
    if control.get("state") == "on":
        where = some([str(entry.get("bus")) for entry in objects(control.get("on"))], 4)
        text = "PCI ACS redirects between devices (%s): GPUs and NICs do not reach each other directly" % where
        judgements.append(judgement("acs", "bad", text))
    if part(value, "iommu").get("state") == "translating" and graphics:
        text = "the IOMMU translates what GPUs and NICs send each other; iommu=pt avoids it"
        judgements.append(judgement("iommu", "warn", text))
    direct = part(value, "gpudirect")
    if graphics and cards and direct.get("open_driver") is not None:
        if direct.get("registered") is False and direct.get("peermem") and not direct.get("dma_buf"):
            text = "%s is loaded but not registered: the driver was built before OFED" % direct["peermem"]
            judgements.append(judgement("gpudirect", "bad", text))
        elif not direct.get("peermem") and direct.get("dma_buf") is False:
            text = "nvidia_peermem is not loaded and this driver cannot use DMA-BUF: no GPUDirect RDMA"
            judgements.append(judgement("gpudirect", "bad", text))
    return judgements


def _inside(value: Dict[str, Any]) -> List[Judgement]:
    shm, processors = count(part(value, "memory"), "shm_size"), part(value, "processors")
    judgements = []
    if shm is not None and shm < ENOUGH_SHM:
        text = "/dev/shm has %s: NCCL may find no room for ranks of one node" % bytes_text(shm)
        judgements.append(judgement("shm", "warn", text))
    if processors.get("numa_balancing") is True:
        judgements.append(
            judgement("numa", "note", "NUMA balancing is on: it stalls threads while it moves their memory")
        )
    governors = processors.get("governors")
    slow = sorted(str(name) for name in governors if name != "performance") if isinstance(governors, dict) else []
    if slow:
        judgements.append(
            judgement("governor", "note", "CPU frequency governor is %s, not performance" % ", ".join(slow))
        )
    return judgements


def _cores(value: Dict[str, Any]) -> List[Judgement]:
    """Judge processors and NUMA nodes that are missing; masks that are not known are not judged."""
    processors = part(value, "processors")
    masks = [processors.get(name) for name in ("cpus_present", "cpus_online", "nodes_with_cpus", "nodes_with_memory")]
    present, online, cores, memory = [set(mask) if isinstance(mask, list) else set() for mask in masks]
    judgements = []
    if online and present - online and processors.get("smt") not in ("off", "forceoff"):
        text = "%d of %d CPUs are offline" % (len(present - online), len(present))
        judgements.append(judgement("cpus", "warn", text, check="cpu-count"))
    if memory and cores - memory:
        text = "NUMA node %s has CPUs and no memory" % ", ".join(map(str, sorted(cores - memory)))
        judgements.append(judgement("numa_nodes", "warn", text, check="numa-node-count"))
    return judgements


PROBE = ProbeSpec(
    name="host",
    title="system settings that limit communication: limits, PCI ACS, IOMMU, GPUDirect, memory, processors",
    phase="inspect",
    passive=True,
    needs="nothing; root for PCI ACS",
    gives="limits, control groups, ACS, IOMMU, GPUDirect modules, huge pages, NUMA, governor, boot id, folders",
    run=run,
    judge=judge,
)
