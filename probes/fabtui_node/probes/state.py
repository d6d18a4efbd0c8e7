"""Probe ``state``: the state of the node as flat keys and values, of which no list is needed to compare nodes.

It reads files of the kernel, netlink and ioctl, starts no program, and sends nothing. A key is a path with dots, such
as ``sysctl.net.ipv4.tcp_rmem``. What differs by nature is replaced by its form: own names and addresses, MAC addresses,
UUIDs, numbers of sessions. What may be a secret is replaced by an HMAC under the key that comes with the arguments.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import zlib
from typing import Any, Callable, Dict, Iterator, List, Tuple

from fabtui_node.probes import clock
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import login_state, sysfs
from fabtui_node.system.network_state import NetworkState

Pairs = Iterator[Tuple[str, object]]
#: Length of a value; of a longer one only the HMAC is sent.
LONGEST = 300
MOST_KEYS = 12000
_MOST_READ = 8192
_SETTINGS = ("net", "kernel", "vm")
#: The random numbers, and what changes from moment to moment.
_NO_SETTING = re.compile(
    r"kernel\.(random\.|ns_last_pid|pty\.nr)|.*(_|\.)(count|nr)$|.*\.(flush|stat_refresh|compact_memory)$"
)
_MEMORY = ("MemTotal", "SwapTotal", "HugePages_Total", "Hugepagesize", "CommitLimit")
_CPU_FILES = ("present", "online", "isolated", "vulnerabilities/spectre_v2", "smt/active", "cpufreq/boost")
_FREQUENCY_FILES = ("scaling_governor", "scaling_driver", "scaling_max_freq")
_RDMA_FILES = ("state", "phys_state", "rate", "link_layer", "cap_mask", "pkeys/0")
#: Forms of values that differ by nature, and the word for each.
_FORMS = (
    (re.compile(r"\b(?:[0-9a-f]{2}:){5,}[0-9a-f]{2}\b"), "<mac>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{32,}\b"), "<uuid>"),
    (re.compile(r"\bfe80::[0-9a-f:]+"), "<link-local>"),
    (re.compile(r"(/run/user|/proc|session-?|slice|job_?|step_?|pid|tmp)([/_-]?)\d+"), r"\1\2<n>"),
    (re.compile(r"\b(size|nr_inodes|nr_blocks)=\d+[kmg]?"), r"\1=<memory>"),
)


#: What may be an address of this node, a network or a host name.
_ADDRESS = re.compile(r"(?<![\w.:])[0-9a-f:][0-9a-f.:]{2,44}(?:/[0-9]{1,3})?(?![\w:])")
_NAME = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w-]{0,62}")


class State:
    """Keys and values, as they are read."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.values: Dict[str, str] = {}
        self.failed: Dict[str, str] = {}
        self._paths: List[Tuple[str, str]] = []

    def hidden(self, text: str) -> str:
        return "#" + hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:12]

    def put(self, key: str, value: object) -> None:
        """Keep a value as one line; nothing if it is None or empty."""
        text = "" if value is None else " ".join(str(value).replace("\0", " ").split())
        if text and len(self.values) < MOST_KEYS:
            secret = login_state.SECRET.search(key) and not text.startswith("#")
            self.values[key[:LONGEST]] = self.hidden(text) if secret or len(text) > LONGEST else text

    def part(self, name: str, pairs: Callable[[], Pairs]) -> None:
        """Read a part; one that fails costs what it would have added."""
        try:
            for key, value in pairs():
                self.put(key, value)
        except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
            self.failed[name] = str(error) or type(error).__name__

    def file(self, key: str, path: str) -> None:
        """Read a file that is read again at the end."""
        self.put(key, sysfs.text(path, limit=_MOST_READ))
        if key in self.values:
            self._paths.append((key, path))

    def settle(self) -> None:
        """Remove what has changed since it was read, as counters do."""
        for key, path in self._paths:
            before = self.values.pop(key)
            self.put(key, sysfs.text(path, limit=_MOST_READ))
            if self.values.get(key) != before:
                self.values.pop(key, None)

    def normal(self, network: NetworkState, names: List[str]) -> Dict[str, str]:
        """Return keys and values without what differs by nature; all at once, which takes a tenth of the time."""
        text = "\n".join(key + "\0" + value for key, value in self.values.items())
        own = {str(net): "<net:%s>/%d" % (name, net.prefixlen) for net, name in network.networks.items()}
        own.update((address, "<ip:%s>" % name) for address, name in network.own.items())

        def replaced(found: "re.Match[str]") -> str:
            address, slash, length = found.group().partition("/")
            return own.get(found.group()) or own.get(address, address) + slash + length

        text = _ADDRESS.sub(replaced, text)
        text = _NAME.sub(lambda found: "<host>" if found.group() in names else found.group(), text)
        for form, word in _FORMS:
            text = form.sub(word, text)
        return dict(line.split("\0", 1) for line in text.split("\n") if line)


def _settings(state: State) -> None:
    for part in _SETTINGS:
        root = "/proc/sys/" + part
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                key = part + "." + path[len(root) + 1 :].replace("/", ".")
                if os.lstat(path).st_mode & 0o400 and not _NO_SETTING.match(key):
                    state.file("sysctl." + key, path)


def _modules(state: State) -> None:
    for module in sysfs.names("/sys/module"):
        for entry in ("version", "srcversion"):
            state.file("module.%s.%s" % (module, entry), "/sys/module/%s/%s" % (module, entry))
        for name in sysfs.names("/sys/module", module, "parameters"):
            state.file("module.%s.%s" % (module, name), "/sys/module/%s/parameters/%s" % (module, name))


def _machine() -> Pairs:
    memory = {line.split(":")[0]: line.split()[1] for line in (sysfs.text("/proc/meminfo") or "").splitlines()}
    for name in _MEMORY:
        yield "memory." + name, memory.get(name)
    yield "memory.available", memory.get("MemAvailable")
    for name in ("enabled", "defrag", "shmem_enabled", "khugepaged/defrag"):
        yield "thp." + name.replace("/", "."), sysfs.text("/sys/kernel/mm/transparent_hugepage", name)
    for entry in _CPU_FILES:
        yield "cpu." + entry.replace("/", "."), sysfs.text("/sys/devices/system/cpu", entry)
    policies = sysfs.names("/sys/devices/system/cpu/cpufreq")
    for entry in _FREQUENCY_FILES:
        values = {sysfs.text("/sys/devices/system/cpu/cpufreq", policy, entry) for policy in policies}
        yield "cpu." + entry, " ".join(sorted(filter(None, values)))
    lines = (line.partition(":") for line in (sysfs.text("/proc/cpuinfo") or "").splitlines())
    processor = {name.strip(): value.strip() for name, _, value in lines}
    for field in ("model name", "microcode", "flags"):
        yield "cpu." + field.replace(" ", "_"), processor.get(field)
    yield "kernel.release", os.uname().release
    yield "kernel.version", os.uname().version
    for path in ("/proc/driver/nvidia/version", "/etc/os-release"):
        yield "file." + path, sysfs.text(path)


def _devices() -> Pairs:
    root = "/sys/class/infiniband"
    for name in sysfs.names(root):
        yield "rdma.%s.fw_ver" % name, sysfs.text(root, name, "fw_ver")
        for port in sysfs.names(root, name, "ports"):
            for entry in _RDMA_FILES:
                yield (
                    "rdma.%s.%s.%s" % (name, port, entry.replace("/", ".")),
                    sysfs.text(root, name, "ports", port, entry),
                )


def _clock() -> Pairs:
    yield "clock.source", sysfs.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    kept = clock.kernel()
    if kept is not None:
        yield "clock.rate_ppm", round(kept.rate, 1)
        yield "clock.tick", kept.tick
        yield "clock.synchronised", kept.synchronised


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Read the state of the node; ``key``: hexadecimal digits of the key for what is not sent in clear.

    ``state``: compressed JSON (zlib, base64) of keys and values. ``failed``: why a part could not be read, by its name.
    """
    state, network = State(bytes.fromhex(str(args["key"]))), NetworkState()
    for name, settings in (("settings", _settings), ("modules", _modules)):
        try:
            settings(state)
        except OSError as error:
            state.failed[name] = str(error)
    for name, part in network.parts():
        state.part(name, part)
    for read in login_state.PARTS:
        state.part(read.__name__, lambda read=read: read(state.hidden))  # type: ignore[misc]
    for name, part in (("machine", _machine), ("devices", _devices), ("clock", _clock)):
        state.part(name, part)
    state.settle()
    names = [name for name in (os.environ.get("FABTUI_LAB_NODE"), socket.gethostname().split(".")[0]) if name]
    # An address has the same MAC address on all nodes: these stay as they are.
    macs = {key: value for key, value in state.values.items() if key.startswith("lladdr ")}
    for key in macs:
        del state.values[key]
    values = {**state.normal(network, names), **macs}
    values.update(("mac " + address, mac) for address, mac in network.macs.items())
    data = zlib.compress(json.dumps(values, separators=(",", ":"), sort_keys=True).encode(), 6)
    return {"state": base64.b64encode(data).decode("ascii"), "failed": state.failed}


PROBE = ProbeSpec(
    name="state",
    title="all settings of kernel, network, login and software, which are compared key by key",
    phase="inspect",
    passive=True,
    needs="nothing; root shows more",
    gives="keys and values; of what may be a secret a digest that means nothing after the session",
    run=run,
)
