"""Limits, variables, control groups, mounts, software and files of settings of a login, as keys and values."""

from __future__ import annotations

import glob
import os
import re
from typing import Callable, Iterator, Tuple

from fabtui_node.system import cgroups, mountinfo, sysfs

Pairs = Iterator[Tuple[str, object]]
#: Returns what stands for a text that is not sent.
Hidden = Callable[[str], str]
#: Variables whose values are sent: of libraries on the path of a job, and of the shell.
_CLEAR = re.compile(
    r"(NCCL|RCCL|GLOO|TORCH|PYTORCH|UCX|UCC|NVSHMEM|FI|EFA|OMP|OMPI|MPI|MPICH|I_MPI|PMIX|CUDA|HIP|ROCR|NVIDIA|LD|MKL|KMP"
    r"|MALLOC|GLIBC|RDMA|MLX5|IBV|SLURM|XLA|TRITON|LC)_\w*|PYTHON\w*|\w*PATH|no_proxy|NO_PROXY|https?_proxy|HTTPS?_PROXY"
    r"|all_proxy|ALL_PROXY|LANG|TMPDIR|HOME|SHELL|USER|CONDA_(PREFIX|DEFAULT_ENV)|VIRTUAL_ENV|LOADEDMODULES|HOSTNAME"
)
#: Names of what may be a secret, of variables and settings alike.
SECRET = re.compile("TOKEN|KEY|SECRET|(?<!BY)PASS|JWT|CRED|AUTH|COOKIE|_SALT", re.I)
#: Variables that differ from login to login.
_OF_LOGIN = re.compile(
    r"_|SHLVL|(OLD)?PWD|SSH_\w+|XDG_(SESSION|RUNTIME)\w*|INVOCATION_ID|JOURNAL_STREAM|FABTUI_\w+|DBUS_\w+"
)
_LIBRARY = re.compile(
    r"lib(nccl|cuda|cudart|cudnn|cublas|nvidia-ml|ibverbs|rdmacm|mlx|efa|fabric|ucp|uct|ucs|gloo|mpi|c|m|ssl|crypto"
    r"|nl-3|numa|stdc\+\+|gcc_s|gomp|hwloc|pmix|sharp)[-.]"
)
#: Options of mounts and parameters of the kernel whose values are sent.
_SAFE_OPTION = re.compile(
    r"size|nr_inodes|nr_blocks|mode|[ug]id|rsize|wsize|bsize|vers|proto|nconnect|timeo|retrans|sec|errors|data|commit"
    r"|lookupcache|local_lock|ac\w+|max_read|namlen|inode\d*|huge|mpol"
)
_SAFE_PARAMETER = re.compile(
    r"\w*iommu\w*|isolcpus|nohz\w*|rcu_nocbs|\w*huge\w*|pci\w*|mitigations|numa\w*|ro|rw|quiet|nosmt|maxcpus|nr_cpus"
    r"|(intel|amd|processor)[\w.]*|idle|nmi_watchdog|audit|selinux|apparmor|cgroup\w*|systemd\.unified\w*|clocksource|tsc"
    r"|ipv6\.disable|net\.ifnames|biosdevname|crashkernel|nosoftlockup|skew_tick|nvidia[\w.-]*|mlx5[\w.]*|transparent\w*"
)
_ACCOUNT = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_STATUS = re.compile("Cap|Seccomp|NoNew|Umask|Mems_allowed_list|Cpus_allowed_list|THP|Speculation")
#: Files of control groups that are usage, not settings.
_USAGE = re.compile("procs$|tasks$|threads$|event|release|usage|pressure|stat|current|peak|failcnt|oom_control")
_PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/run")
_FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/security/limits.conf", "/etc/ld.so.conf")
_PACKAGES = (
    "/usr/lib/python3*/*-packages",
    "/usr/local/lib/python3*/*-packages",
    "~/.local/lib/python3*/site-packages",
)
_MOST_PACKAGES = 1500


def shown_variable(name: str, value: str, hidden: Hidden) -> str:
    """Return the value of a variable as it is sent: what no library on the path of a job reads is hidden."""
    if not _CLEAR.fullmatch(name) or SECRET.search(name):
        return hidden(value)
    return _ACCOUNT.sub(lambda account: hidden(account.group()), value)


def shown_options(options: str, hidden: Hidden, safe: "re.Pattern[str]" = _SAFE_OPTION) -> str:
    """Return options of a mount, or parameters of a kernel, sorted; values of unknown ones are hidden."""
    words = []
    for word in sorted(set(filter(None, re.split(r"[,\s]+", options)))):
        name, equals, value = word.partition("=")
        clear = not equals or (safe.fullmatch(name) and not SECRET.search(name))
        words.append(word if clear else name + "=" + hidden(value))
    return " ".join(words)


def variables(hidden: Hidden) -> Pairs:
    for name, value in os.environ.items():
        if not _OF_LOGIN.fullmatch(name):
            yield "env." + name, shown_variable(name, value, hidden)


def process(hidden: Hidden) -> Pairs:
    for line in (sysfs.text("/proc/self/limits") or "").splitlines()[1:]:
        cells = re.split(r"  +", line)
        yield "limit." + cells[0][4:].replace(" ", "-"), " ".join(cells[1:3])
    yield "process.nice", os.getpriority(os.PRIO_PROCESS, 0)
    yield "process.policy", os.sched_getscheduler(0)
    yield "process.uid", os.getuid()
    yield "process.groups", " ".join(map(str, sorted(os.getgroups())))
    yield "process.cpus", len(os.sched_getaffinity(0))
    for line in (sysfs.text("/proc/self/status") or "").splitlines():
        if _STATUS.match(line):
            yield "process." + line.split(":")[0], line.partition(":")[2].strip()


def groups(hidden: Hidden) -> Pairs:
    for controller, level, folder in cgroups.folders():
        for name in sysfs.names(folder):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if mode & 0o100600 == 0o100600 and not _USAGE.search(name):
                yield "cgroup.%s.%d.%s" % (controller, level, name), sysfs.text(path, limit=4096)


def mounts(hidden: Hidden) -> Pairs:
    for line in mountinfo.mount_lines(sysfs.text("/proc/self/mountinfo", limit=1 << 18) or ""):
        source = _ACCOUNT.sub("", line.source) if line.kind in ("nfs", "nfs4", "lustre") else ""
        options = shown_options(line.options + "," + line.more, hidden)
        yield "mount." + line.point, "%s %s %s" % (line.kind, source, options)
    for place in {*_PLACES, os.environ.get("TMPDIR", "/tmp"), os.path.expanduser("~")}:
        try:
            state = os.statvfs(place)
            mode = os.stat(place).st_mode
        except OSError as error:
            yield "fs.%s.error" % place, error.strerror
            continue
        yield "fs.%s.size" % place, state.f_blocks * state.f_frsize
        yield "fs.%s.free" % place, state.f_bavail * state.f_frsize
        yield "fs.%s.inodes" % place, state.f_favail
        yield "fs.%s.mode" % place, "%o %s" % (mode, "writable" if os.access(place, os.W_OK) else "not writable")


def libraries(hidden: Hidden) -> Pairs:
    cache = sysfs.text("/etc/ld.so.cache", limit=1 << 20) or ""
    for path in cache.split("\0"):
        name = os.path.basename(path)
        if path.startswith("/") and _LIBRARY.match(name):
            yield "library." + path, os.path.basename(os.path.realpath(path))


def packages(hidden: Hidden) -> Pairs:
    folders = [folder for pattern in _PACKAGES for folder in glob.glob(os.path.expanduser(pattern))]
    for folder in folders:
        for name in sysfs.names(folder)[:_MOST_PACKAGES]:
            if name.endswith(".dist-info"):
                package, _, version = name[: -len(".dist-info")].partition("-")
                yield "package.%s.%s" % (folder, package), version


def files(hidden: Hidden) -> Pairs:
    for path in _FILES:
        text = sysfs.text(path, limit=1 << 16)
        yield "file." + path, None if text is None else "text " + text
    for where, path in (("/etc", "/etc/nccl.conf"), ("~", os.path.expanduser("~/.nccl.conf"))):
        for line in (sysfs.text(path) or "").splitlines():
            name, _, value = (part.strip() for part in line.partition("="))
            if name and not name.startswith("#"):
                yield "nccl.conf.%s.%s" % (where, name), shown_variable(name, value, hidden)
    others = []
    for word in (sysfs.text("/proc/cmdline") or "").split():
        name, equals, _ = word.partition("=")
        if equals or _SAFE_PARAMETER.fullmatch(name):
            yield "cmdline." + name, shown_options(word, hidden, _SAFE_PARAMETER)
        else:
            others.append(word)
    # A word alone may be the value of the word before it.
    yield "cmdline", hidden(" ".join(others)) if others else None


PARTS = (variables, process, groups, mounts, libraries, packages, files)
