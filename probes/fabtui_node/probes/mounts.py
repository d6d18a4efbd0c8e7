"""Probe ``mounts``: file systems of the network that answer, and local ones that are full or were made read-only.

A file system that hangs costs its thread alone; a process with such a thread may not end before the server answers.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, Iterator, List

from fabtui_node.probes.judgement import count, judgement, objects
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import mountinfo, sysfs

#: File systems whose server may be gone; of FUSE, those that are named ``fuse.NAME``.
_REMOTE = ("nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs", "9p", "orangefs", "glusterfs")
_OWN_FUSE = ("fuse.lxcfs", "fuse.portal", "fuse.gvfsd-fuse", "fuse.snapfuse")
#: File systems on disks of the node.
_DISKS = ("ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs")
_MOST = 64
#: Time (s) in which a file system has to answer.
SECONDS = 1.2
#: A disk with less room (bytes), or fewer free files, is full: jobs cannot start there.
ROOM, FILES = 16 << 20, 64


def parse_mounts(text: str) -> List[Dict[str, Any]]:
    """Return ``{"path", "type", "remote", "read_only"}`` of ``/proc/self/mountinfo``, without mounts of other kinds."""
    mounts: Dict[str, Dict[str, Any]] = {}
    for line in mountinfo.mount_lines(text):
        remote = line.kind in _REMOTE or (line.kind.startswith("fuse.") and line.kind not in _OWN_FUSE)
        if remote or line.kind in _DISKS:
            path = mountinfo.plain(line.point)[:300]
            # The option of the mount is intended; that of the file system is what the kernel did after an error.
            changed = "ro" in line.more.split(",") and "ro" not in line.options.split(",")
            mounts[path] = {"path": path, "type": line.kind[:40], "remote": remote, "read_only": changed}
    return list(mounts.values())[:_MOST]


def run(args: Dict[str, Any], emit: Any, deadline: float, proc: str = "/proc") -> Dict[str, Any]:
    """Ask each file system for its room, at once, for at most ``seconds``.

    ``mounts``: as of `parse_mounts`, with ``free`` and ``size`` (bytes), ``files`` (free; None: unlimited), ``seconds``
    (None: it did not answer) and ``error``.
    """
    mounts = parse_mounts(sysfs.text(proc, "self/mountinfo", limit=1 << 20) or "")
    until = time.monotonic() + min(float(args.get("seconds") or SECONDS), deadline * 0.5)
    threads = [threading.Thread(target=_ask, args=(mount,), daemon=True) for mount in mounts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    # A late answer changes nothing more.
    return {"mounts": [dict(mount) for mount in mounts]}


def _ask(mount: Dict[str, Any]) -> None:
    began = time.monotonic()
    try:
        disk = os.statvfs(mount["path"])
    except OSError as error:
        mount.update(error=error.strerror, seconds=time.monotonic() - began)
        return
    room = {"free": disk.f_frsize * disk.f_bavail, "size": disk.f_frsize * disk.f_blocks}
    mount.update(room, files=disk.f_favail if disk.f_files else None, seconds=round(time.monotonic() - began, 4))


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone."""
    return [judgement("mounts", "bad", text) for mount in objects(value.get("mounts")) for text in _problems(mount)]


def _problems(mount: Dict[str, Any]) -> Iterator[str]:
    where = "%s (%s)" % (mount.get("path"), mount.get("type"))
    free, size, files = (count(mount, name) for name in ("free", "size", "files"))
    if "seconds" not in mount:
        yield "%s does not answer: its server or its daemon is gone" % where
    # A folder that this user may not enter shows nothing.
    elif mount.get("error") not in (None, "Permission denied"):
        yield "%s: %s" % (where, mount["error"])
    elif mount.get("read_only") is True:
        yield "%s is read-only since an error" % where
    elif not mount.get("remote") and free is not None and free < ROOM < (size or 0) / 2:
        yield "%s is full: %.0f MB left" % (where, free / 1e6)
    elif not mount.get("remote") and files is not None and files < FILES:
        yield "%s is full: %.0f files left" % (where, files)


PROBE = ProbeSpec(
    name="mounts",
    title="file systems: those of the network that answer, local ones that are full or read-only",
    phase="asked",
    passive=True,
    needs="nothing",
    gives="per file system: type, time to answer, room, whether it became read-only",
    run=run,
    judge=judge,
    next="ssh {node} findmnt",
)
