"""``nvidia-smi -q``: all attributes of each GPU as indented ``name : value`` lines, or a part of them (``-d``)."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import without_escapes
from fabtui_node.parsers.nvidia.values import (
    complain,
    failure,
    field_text,
    is_noise,
    number,
    parse_errors,
    pick,
    snake,
    truth,
    whole,
)

_MAX_GPUS = 256
_MAX_LINES = 200_000

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])(?::? ?(.{1,80}))?")
_LINE = re.compile(r"(\S.{0,80}?)\s{0,80}:(?:\s(.{0,300}))?")
_RULED = re.compile("=+[A-Za-z ]+=+")

#: Sections that newer drivers renamed, by the name they have here.
_RENAMED = {
    "clocks_throttle_reasons": "clocks_event_reasons", "fb_memory_usage": "memory", "power_readings": "power",
    "clocks_throttle_reasons_counters": "clocks_event_reasons_counters", "gpu_power_readings": "power",
    "pcie_generation": "generation", "gpu_link_info": "link",
}  # fmt: skip

Fields = Dict[str, str]

_LIKELY = first_of(
    (0.97, "NVSMI LOG"),
    (0.95, r"^\s{0,8}Attached GPUs\s{1,60}: [0-9]"),
    (0.6, r"^\s{2,8}(?:Fabric|ECC Mode|Clocks Event Reasons|Remapped Rows|GPU Link Info)\s*\n\s{4,16}\w[\w ]{2,40} : "),
    (0.8, r"^GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]$"),
)
_UNITS = {
    **{"width": "lanes", "width_max": "lanes", "clocks": "MHz", "max_clocks": "MHz", "temperature": "C"},
    **{"power": "W", "memory": "MiB", "utilization": "%", "clocks_event_counters": "us", "banks": "banks"},
    **{"correctable": "rows", "uncorrectable": "rows"},
    "volatile": "errors since the driver was loaded",
    "aggregate": "errors since the GPU was made",
}


class _Gpu:
    """The lines of one GPU: each value by the path of its section, in snake case."""

    def __init__(self, bus: str) -> None:
        self.bus = bus
        self.fields: Fields = {}
        self.processes: List[Dict[str, str]] = []

    def under(self, prefix: str) -> Fields:
        start = prefix + "."
        inner = {path[len(start) :]: word for path, word in self.fields.items() if path.startswith(start)}
        return {name: word for name, word in inner.items() if "." not in name}


class _Walk:
    """Follows the indentation: a line with no value opens a section, for all lines that are indented further."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.head: Fields = {}
        self.gpus: List[_Gpu] = []
        self.elided = False
        self._open: List[Tuple[int, str]] = []

    def line(self, line: str) -> None:
        word = line.strip()
        if word in ("[...]", "...", "(...)"):
            self.elided = True
        if is_noise(line) or _RULED.fullmatch(word[:200]):
            return
        gpu = _GPU.fullmatch(word[:200])
        if gpu and len(self.gpus) < _MAX_GPUS:
            self.gpus.append(_Gpu(gpu[1]))
            self._open = []
            if gpu[2]:
                self.gpus[-1].fields["said"] = gpu[2]
            return
        depth = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        while self._open and self._open[-1][0] >= depth:
            self._open.pop()
        match = _LINE.fullmatch(word[:400])
        if match and match[2] is not None:
            self._value(match[1], match[2].strip())
        elif word and len(word) <= 80 and not parse_errors(word) and self.gpus:
            name = snake(match[1] if match else word)
            self._open.append((depth, _RENAMED.get(name, name)))
        elif not parse_errors(word):
            self.notes.puzzled(line)

    def _value(self, label: str, word: str) -> None:
        name = snake(label)
        if not self.gpus:
            self.head.setdefault(name, word)
            return
        gpu = self.gpus[-1]
        path = ".".join([*(section for _, section in self._open), name])
        if path.startswith("processes."):
            # A field that is there already is the next process's.
            if not gpu.processes or name in gpu.processes[-1]:
                gpu.processes.append({})
            gpu.processes[-1][name] = word
        else:
            gpu.fields.setdefault(_RENAMED.get(path, path), word)


def _numbers(fields: Fields) -> Dict[str, Optional[float]]:
    return {name: number(word) for name, word in fields.items()}


def _counts(fields: Fields) -> Dict[str, Optional[int]]:
    return {name: whole(word) for name, word in fields.items() if truth(word) is None}


def _now_and_next(gpu: _Gpu, section: str) -> Dict[str, Optional[str]]:
    return {name: field_text(gpu.fields.get("%s.%s" % (section, name), "")) for name in ("current", "pending")}


def _ecc(gpu: _Gpu) -> Dict[str, Any]:
    """Return the counts; GPUs before Ampere have single and double bit errors of each of their memories."""
    counts: Dict[str, Any] = {}
    for kind in ("volatile", "aggregate"):
        counts[kind] = _counts(gpu.under("ecc_errors." + kind))
        for bits in ("single_bit", "double_bit"):
            total = gpu.under("ecc_errors.%s.%s" % (kind, bits)).get("total")
            if total is not None:
                counts[kind][bits] = whole(total)
    flags = {name: truth(word) for name, word in gpu.under("ecc_errors").items()}
    counts.update((name, flag) for name, flag in flags.items() if flag is not None)
    return counts


def _pcie(gpu: _Gpu) -> Dict[str, Optional[int]]:
    generation, width = gpu.under("pci.link.generation"), gpu.under("pci.link.link_width")
    return {
        "generation": whole(pick(generation, "device_current", "current")),
        "generation_max": whole(pick(generation, "max")),
        "generation_device_max": whole(pick(generation, "device_max")),
        "generation_host_max": whole(pick(generation, "host_max")),
        "width": whole(pick(width, "current")),
        "width_max": whole(pick(width, "max")),
        "replays": whole(gpu.fields.get("pci.replays_since_reset", "")),
        "replay_rollovers": whole(gpu.fields.get("pci.replay_number_rollovers", "")),
    }


def _remapped(gpu: _Gpu) -> Optional[Dict[str, Any]]:
    inner = gpu.under("remapped_rows")
    if not inner:
        return None
    return {
        "correctable": whole(pick(inner, "correctable_error")),
        "uncorrectable": whole(pick(inner, "uncorrectable_error")),
        "pending": truth(pick(inner, "pending")),
        "failure": truth(pick(inner, "remapping_failure_occurred")),
        "banks": _counts(gpu.under("remapped_rows.bank_remap_availability_histogram")),
    }


def _fabric(gpu: _Gpu) -> Optional[Dict[str, Any]]:
    inner = gpu.under("fabric")
    if not inner:
        return None
    return {
        "state": field_text(pick(inner, "state")),
        "status": field_text(pick(inner, "status")),
        "clique": whole(pick(inner, "cliqueid", "clique_id")),
        "cluster": field_text(pick(inner, "clusteruuid", "cluster_uuid")),
        "health": {name: field_text(word) for name, word in gpu.under("fabric.health").items()},
    }


def _processes(gpu: _Gpu) -> Optional[List[Dict[str, Any]]]:
    if "processes" in gpu.fields:
        return []
    if not gpu.processes:
        return None
    rows = []
    for process in gpu.processes[:1024]:
        kind, name = field_text(process.get("type", "")), field_text(process.get("name", ""))
        rows.append({"pid": whole(process.get("process_id", "")), "type": kind, "name": name})
        rows[-1]["memory"] = whole(process.get("used_gpu_memory", ""))
    return rows


def _recovery(top: Fields) -> Optional[str]:
    """Return the recovery that the driver asks for; before driver 565, whether a reset is required."""
    if "gpu_recovery_action" in top:
        return top["gpu_recovery_action"]
    required = truth(top.get("gpu_reset_status.reset_required", ""))
    if required or truth(top.get("gpu_reset_status.drain_and_reset_recommended", "")):
        return "Reset" if required else "Drain and Reset"
    return None if required is None else "None"


def _record(gpu: _Gpu) -> Dict[str, Any]:
    top = gpu.fields
    return {
        "bus": gpu.bus,
        "name": field_text(pick(top, "product_name")),
        "uuid": field_text(pick(top, "gpu_uuid")),
        "serial": field_text(pick(top, "serial_number")),
        "architecture": field_text(pick(top, "product_architecture")),
        "vbios": field_text(pick(top, "vbios_version")),
        "gsp_firmware": field_text(pick(top, "gsp_firmware_version")),
        "minor": whole(pick(top, "minor_number")),
        "persistence": truth(pick(top, "persistence_mode")),
        "compute_mode": field_text(pick(top, "compute_mode")),
        "perf": field_text(pick(top, "performance_state")),
        "recovery_action": _recovery(top),
        "virtualization": field_text(pick(top, "gpu_virtualization_mode.virtualization_mode")),
        "mig": _now_and_next(gpu, "mig_mode"),
        "ecc": _now_and_next(gpu, "ecc_mode"),
        "ecc_errors": _ecc(gpu),
        "retired_pages": _counts(gpu.under("retired_pages")),
        "retired_pending": truth(pick(gpu.under("retired_pages"), "pending_page_blacklist", "pending")),
        "remapped_rows": _remapped(gpu),
        "pcie": _pcie(gpu),
        "clocks_event_reasons": {
            path.rpartition(".")[2]: truth(word)
            for path, word in top.items()
            if path.startswith("clocks_event_reasons.")
        },
        "clocks_event_counters": _counts(gpu.under("clocks_event_reasons_counters")),
        "clocks": _counts(gpu.under("clocks")),
        "max_clocks": _counts(gpu.under("max_clocks")),
        "temperature": _numbers(gpu.under("temperature")),
        "power": _numbers(gpu.under("power")),
        "memory": _counts(gpu.under("memory")),
        "utilization": _counts(gpu.under("utilization")),
        "fabric": _fabric(gpu),
        "processes": _processes(gpu),
        "errors": {path: failure(word) for path, word in top.items() if failure(word)},
    }


def parse_query(text: str) -> Reading:
    """Return what ``nvidia-smi -q`` shows of each GPU; fields that are not there are None or empty.

    - ``driver``, ``cuda``, ``time``, ``attached`` (the GPUs it counts), ``gpus`` and ``errors``.
    - Each GPU has its names and states, ``pcie``, ``ecc``, ``ecc_errors``, ``remapped_rows`` and
      ``clocks_event_reasons`` (True for those that lower the clocks).
    - ``fabric`` is None if the text has none; ``errors`` are the fields that show that the GPU is lost.
    """
    notes = Notes()
    walk = _Walk(notes)
    for line in without_escapes(text).splitlines()[:_MAX_LINES]:
        walk.line(line[:500])
    gpus = [_record(gpu) for gpu in walk.gpus]
    attached = whole(walk.head.get("attached_gpus", ""))
    errors = complain(text, notes)
    if walk.elided:
        notes.warn("a part of this text was left out")
    if attached is not None and attached > len(gpus):
        notes.warn("it counts %d GPUs and shows %d" % (attached, len(gpus)))
    for gpu in gpus:
        rows = gpu["remapped_rows"] or {}
        if rows.get("pending"):
            notes.warn("%s: a row of its memory will be remapped at the next GPU reset" % gpu["bus"])
        if rows.get("failure"):
            notes.warn("%s: remapping a row of its memory failed" % gpu["bus"])
        for path, word in gpu["errors"].items():
            notes.warn("%s: %s is %s" % (gpu["bus"], path, word))
    if not gpus and not errors and text.strip():
        notes.warn("no GPU in this text")
    values = {
        "driver": field_text(pick(walk.head, "driver_version", "kmd_version")),
        "cuda": field_text(pick(walk.head, "cuda_version", "cuda_umd_version")),
        "time": field_text(pick(walk.head, "timestamp")),
        "attached": attached,
        "gpus": gpus,
        "errors": errors,
    }
    return notes.reading(values)


FORMATS = [Format("nvidia-smi-q", "everything of each GPU", _LIKELY, parse_query, _UNITS)]
