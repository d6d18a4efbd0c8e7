"""Limits of the control groups of a process, versions 1 and 2, and what the kernel killed for lack of memory."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fabtui_node.system import mountinfo, sysfs

#: Version 1 shows a limit near 2^63 where there is none.
_NO_LIMIT = 1 << 62
_MOST_LEVELS = 32
_LONGEST_PATH = 250
#: Files of each limit by version: version 1 has two for the CPUs.
_FILES = {"cpus": ("cpu.cfs_quota_us", "cpu.max"), "memory": ("memory.limit_in_bytes", "memory.max")}
_CONTROLLERS = {"cpus": "cpu", "memory": "memory", "tasks": "pids"}


class Mount(NamedTuple):
    """Mounted hierarchy of control groups."""

    version: int
    root: str  #: The group that is at the mount point: a container may see a part of the hierarchy only.
    point: str
    controllers: Tuple[str, ...]  #: Empty in version 2, which has all in one.


def parse_mounts(text: str) -> List[Mount]:
    """Return the hierarchies in ``/proc/self/mountinfo``."""
    mounts = []
    for line in mountinfo.mount_lines(text):
        if line.kind in ("cgroup", "cgroup2"):
            version = 1 if line.kind == "cgroup" else 2
            controllers = tuple(line.more.split(",")) if version == 1 else ()
            mounts.append(Mount(version, mountinfo.plain(line.root), mountinfo.plain(line.point), controllers))
    return mounts


def parse_groups(text: Optional[str]) -> Dict[str, str]:
    """Return the group by controller in ``/proc/self/cgroup``; that of version 2 by an empty name."""
    groups: Dict[str, str] = {}
    for names, path in re.findall(r"^[0-9]{1,9}:([^:\n]{0,400}):(/[^\n]{0,4000})$", text or "", re.MULTILINE):
        if ".." not in path.split("/"):
            groups.update(dict.fromkeys(names.split(","), path))
    return groups


def parse_cpu_max(text: Optional[str]) -> Optional[float]:
    """Return the CPUs that ``cpu.max`` of a control group leaves, None for no limit or no such text."""
    match = re.fullmatch(r"([0-9]{1,15})\s+([0-9]{1,15})", (text or "").strip(), re.ASCII)
    return int(match.group(1)) / int(match.group(2)) if match and int(match.group(2)) else None


def parse_numbers(text: Optional[str]) -> Dict[str, int]:
    """Return the numbers by name of a file such as ``memory.events`` or ``cpu.stat``."""
    return {name: int(value) for name, value in re.findall(r"^(\w{1,60}) ([0-9]{1,19})$", text or "", re.MULTILINE)}


def _hierarchies(proc: str) -> Tuple[Dict[str, str], List[Mount]]:
    mounts = parse_mounts(sysfs.text(proc, "self/mountinfo", limit=1 << 20) or "")
    if not any(mount.version == 2 for mount in mounts):
        mounts.append(Mount(2, "/", "/sys/fs/cgroup", ()))
    return parse_groups(sysfs.text(proc, "self/cgroup")), mounts


def _folders(
    controller: str, sys: str, groups: Mapping[str, str], mounts: Sequence[Mount]
) -> Iterator[Tuple[int, str]]:
    for mount in mounts:
        path = groups.get(controller if mount.version == 1 else "")
        if path is None or (mount.version == 1 and controller not in mount.controllers):
            continue
        if path == mount.root or path.startswith(mount.root.rstrip("/") + "/"):
            path = path[len(mount.root.rstrip("/")) :]
        parts = path.strip("/").split("/")
        top = sys + mount.point[len("/sys") :] if mount.point.startswith("/sys/") else mount.point
        for depth in range(len(parts), max(-1, len(parts) - _MOST_LEVELS), -1):
            yield mount.version, os.path.join(top, *parts[:depth])


def folders(sys: str = "/sys", proc: str = "/proc") -> Iterator[Tuple[str, int, str]]:
    """Yield controller (``v2`` of version 2), level and folder of the groups of this process; the innermost is 0."""
    groups, mounts = _hierarchies(proc)
    for controller in sorted(groups):
        for version in (1, 2):
            mine = [folder for of, folder in _folders(controller, sys, groups, mounts) if of == version]
            for level, folder in enumerate(mine if (version == 2) is (controller == "") else ()):
                yield controller or "v2", level, folder


def _limit(name: str, version: int, folder: str) -> Optional[float]:
    if name == "tasks":
        return sysfs.integer(folder, "pids.max")
    if name == "memory":
        limit = sysfs.integer(folder, _FILES[name][version - 1])
        return limit if limit is not None and 0 <= limit < _NO_LIMIT else None
    if version == 2:
        return parse_cpu_max(sysfs.text(folder, "cpu.max"))
    quota, period = sysfs.integer(folder, "cpu.cfs_quota_us"), sysfs.integer(folder, "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def read(sys: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return the tightest limits of the control groups this process is in: ``cpus``, ``memory`` (bytes), ``tasks``.

    None is not a limit, or a system whose limits cannot be read. ``files``: the path of each limit. ``oom_kills``: how
    many processes of the innermost group were killed for lack of memory, None if unknown. ``throttled``: the share of
    the periods in which the group with the CPU limit had to wait, None if unknown.
    """
    value: Dict[str, Any] = {"cpus": None, "memory": None, "tasks": None, "files": {}, "throttled": None}
    groups, mounts = _hierarchies(proc)
    for name, controller in _CONTROLLERS.items():
        for version, folder in _folders(controller, sys, groups, mounts):
            limit = _limit(name, version, folder)
            if limit is None or (value[name] is not None and limit >= value[name]):
                continue
            value[name] = limit
            file = _FILES[name][version - 1] if name in _FILES else "pids.max"
            value["files"][name] = os.path.join(folder, file)[:_LONGEST_PATH]
            if name == "cpus":
                periods = parse_numbers(sysfs.text(folder, "cpu.stat"))
                throttled, all_of_them = periods.get("nr_throttled"), periods.get("nr_periods")
                value["throttled"] = throttled / all_of_them if all_of_them and throttled is not None else None
    value["oom_kills"] = _oom_kills(_folders("memory", sys, groups, mounts))
    return value


def _oom_kills(folders: Iterator[Tuple[int, str]]) -> Optional[int]:
    """Return how many processes of the innermost group the kernel killed for lack of memory; None if unknown."""
    for version, folder in folders:
        text = sysfs.text(folder, "memory.oom_control" if version == 1 else "memory.events")
        kills = parse_numbers(text).get("oom_kill")
        if kills is not None:
            return kills
    return None
