"""Limits of a process (``ulimit -a`` of a shell, ``/proc/PID/limits``), and settings of the kernel (``sysctl``)."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines, whole
from fabtui_node.probes.host import ENOUGH_FILES, ENOUGH_MEMLOCK, parse_port_range

_SHELL = re.compile(
    r"^(?P<name>[a-zA-Z][\w ()-]{1,40}?)\s+\((?:(?P<unit>[\w -]{1,20}), )?-(?P<flag>[a-zA-Z])\)\s+(?P<value>\S{1,20})$"
)
_DASH = re.compile(
    r"^(?P<name>[a-z]{2,12})\((?P<unit>blocks|kbytes|seconds)\)\s+(?P<value>\S{1,20})$"
    r"|^(?P<bare>nofiles|process|locks|rtprio)\s+(?P<number>\S{1,20})$"
)
_PROC = re.compile(
    r"^Max (?P<name>[a-z ]{3,30}?)\s{2,}(?P<soft>unlimited|\d{1,20})\s+(?P<hard>unlimited|\d{1,20})"
    r"(?:\s+(?P<unit>\w{1,12}))?\s*$"
)
#: What one unit is in bytes, where it is a size.
_BYTES = {"kbytes": 1024, "bytes": 1, "512 bytes": 512}
_NAMES = {"locked memory": "max locked memory", "nofiles": "open files", "memory": "virtual memory"}


def _limit(value: str, unit: str | None) -> Any:
    """Return a limit: a number (bytes for sizes), the word unlimited, or None for what is neither."""
    if value in ("unlimited", "infinity"):
        return "unlimited"
    number = whole(value)
    return None if number is None else number * _BYTES.get(unit or "", 1)


def _found(line: str) -> tuple[str, dict[str, Any]] | None:
    if proc := _PROC.match(line):
        soft, hard = _limit(proc["soft"], proc["unit"]), _limit(proc["hard"], proc["unit"])
        name, unit = proc["name"].strip(), proc["unit"]
    elif found := _SHELL.match(line) or _DASH.match(line):
        parts = found.groupdict()
        name, value = (parts["name"] or parts["bare"]).strip(), parts["value"] or parts["number"]
        soft, hard = _limit(value, parts["unit"]), None
        unit = "bytes" if parts["unit"] in _BYTES else parts["unit"]
    else:
        return None
    return _NAMES.get(name, name), {"soft": soft, "hard": hard, "unit": unit}


def parse(text: str) -> Reading:
    """Return ``limits``: ``name``, ``soft`` and ``hard`` (None if unknown), ``unit``; sizes are in bytes."""
    notes = Notes()
    limits: dict[str, dict[str, Any]] = {}
    for line in plain_lines(text):
        bare = line.strip()
        if (found := _found(bare)) is not None:
            limits.setdefault(found[0], {"name": found[0], **found[1]})
        elif bare and not bare.startswith(("#", "$", "Limit ")):
            notes.puzzled(line)
    memlock = limits.get("max locked memory", {}).get("soft")
    if isinstance(memlock, int) and memlock < ENOUGH_MEMLOCK:
        notes.warn(f"locked memory is limited to {memlock // 1024} kB: RDMA cannot register its buffers (ulimit -l)")
    files = limits.get("open files", {}).get("soft")
    if isinstance(files, int) and files < ENOUGH_FILES:
        notes.warn(f"only {files} files can be open at once (ulimit -n)")
    if not limits:
        notes.warn("no limit")
    return notes.reading({"limits": list(limits.values())})


#: What the probe ``host`` calls the limits.
_OF_HOST = {
    "max locked memory": "memlock",
    "open files": "nofile",
    "virtual memory": "as",
    "max user processes": "nproc",
}


def _facts(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the limits as the probe ``host`` has them."""
    limits = {
        _OF_HOST[one["name"]]: {end: -1 if one[end] == "unlimited" else one[end] for end in ("soft", "hard")}
        for one in values["limits"]
        if one["name"] in _OF_HOST
    }
    return {"": {"host": {"limits": limits}}}


_LIKELY = first_of(
    (0.97, "^Limit +Soft Limit +Hard Limit +Units"),
    (0.95, r"^(?:max locked memory|open files|core file size|stack size) +\([^)\n]{2,30}-[a-z]\) +\S+$"),
    (0.8, r"\A(?=(?s:.*)^nofiles +\S+$)(?=(?s:.*)^stack\(kbytes\) +\S+$)"),
)

_SETTING = re.compile(r"((?:net|kernel|vm|fs|dev|user|abi|crypto|debug)\.[\w./-]{2,100}) ?= ?(.{0,400})", re.ASCII)


def parse_settings(text: str) -> Reading:
    """Return ``settings``: the value of each by its name, as text."""
    notes = Notes()
    settings: dict[str, str] = {}
    for line in plain_lines(text):
        if found := _SETTING.fullmatch(line.strip()):
            if len(settings) < 10_000:
                settings[found[1]] = " ".join(found[2].split())
        elif line.strip() and not line.lstrip().startswith(("#", "$", "sysctl:")):
            notes.puzzled(line)
    return notes.reading({"settings": settings})


def _setting_facts(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the settings that the probe ``host`` reads, too."""
    settings = values["settings"]
    balancing = settings.get("kernel.numa_balancing")
    host = {
        "network": {"port_range": parse_port_range(settings.get("net.ipv4.ip_local_port_range"))},
        "processors": {"numa_balancing": None if balancing is None else balancing != "0"},
    }
    return {"": {"host": host}}


FORMATS = [
    Format("ulimit", "limits of a process: ulimit -a, /proc/PID/limits", _LIKELY, parse, facts=_facts),
    Format(
        "sysctl",
        "sysctl: settings of the kernel",
        first_of((0.9, r"^(?:net|kernel|vm|fs)\.[\w.]{2,80} = \S")),
        parse_settings,
        facts=_setting_facts,
    ),
]
