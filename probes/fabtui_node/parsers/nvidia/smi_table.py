"""``nvidia-smi`` without options: the table of GPUs, MIG devices and processes. And ``nvidia-smi -L``."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.dmesg import parse_kernel
from fabtui_node.parsers.lines import without_escapes
from fabtui_node.parsers.nvidia.values import (
    complain,
    failure,
    field_text,
    is_noise,
    number,
    parse_errors,
    truth,
    whole,
)

_MAX_ROWS = 1024

_SMI = re.compile(r"NVIDIA-SMI\s{1,20}([0-9][0-9A-Za-z.]{1,24})")
# Drivers from 610 on print the two halves of the driver separately.
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s{0,20}([0-9][0-9A-Za-z.]{1,24})")
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s{0,20}([0-9]{1,3}\.[0-9]{1,3})")
_TIME = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ 0-9]?[0-9] [0-9:]{8} [0-9]{4}")
_BUS = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])(?:\s{1,20}(\S{1,8}))?")
_FIRST = re.compile(r"\s{0,6}([0-9]{1,4})\s{1,6}(\S.{0,60}?)(?:\s{1,40}(On|Off|N/A|ERR!|WDDM|TCC|MCDM))?\s{0,20}")
_SECOND = re.compile(
    r"\s{0,6}(N/A|ERR!|\[[^\]]{1,20}\]|[0-9]{1,3} ?%)\s{0,8}"
    r"(N/A|ERR!|[0-9]{1,3} ?C)\s{1,8}(P[0-9]{1,2}|N/A|ERR!)\s{1,24}(\S{1,12})\s{0,4}/\s{0,6}(\S{1,12})\s{0,20}"
)
_MEMORY = re.compile(r"\s{0,16}([0-9]{1,9}) ?MiB\s{0,3}/\s{0,8}([0-9]{1,9}) ?MiB\s{0,12}")
_MIG_FIRST = re.compile(r"\s{0,6}([0-9]{1,4})\s{1,6}([0-9]{1,4})\s{1,6}([0-9]{1,4})\s{1,6}([0-9]{1,4})\s{0,6}")
_PROCESS = re.compile(
    r"\s{0,6}([0-9]{1,4})\s{1,8}(?:(N/A|[0-9]{1,4})\s{1,6}(N/A|[0-9]{1,4})\s{1,12})?([0-9]{1,10})\s{1,8}"
    r"([MCG+/A-Z]{1,6})\s{1,8}(\S.{0,200}?)\s{1,40}([0-9]{1,9} ?MiB|N/A|ERR!)\s{0,6}"
)
_RULE = re.compile(r"[|+]?[-=+|\s]{3,200}[|+]?")

_LISTED = re.compile(r"GPU ([0-9]{1,4}): (.{1,120}?)(?: \(UUID: ([^)]{1,80})\))?", re.ASCII | re.IGNORECASE)
_INSTANCE = re.compile(
    r"MIG (\S{1,24})\s{1,12}Device\s{1,4}([0-9]{1,4}): \(UUID: ([^)]{1,120})\)", re.ASCII | re.IGNORECASE
)

_FIELDS = (
    *("index", "name", "persistence", "bus", "display", "ecc_uncorrected", "fan", "temperature", "perf", "power"),
    *("power_limit", "memory_used", "memory_total", "utilization", "compute_mode", "mig"),
)

Gpu = Dict[str, Any]

_LIKELY = first_of(
    (0.95, r"^\| NVIDIA-SMI [0-9]"),
    (0.9, r"^\|\s{1,6}GPU\s{1,4}Name\s"),
    (0.8, r"^\s{0,8}\|\s{1,4}[0-9]{1,3}  \S.{1,60}\|\s{1,4}[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7] "),
)
_UNITS = {
    **{"fan": "%", "temperature": "C", "power": "W", "power_limit": "W", "utilization": "%"},
    **{"memory_used": "MiB", "memory_total": "MiB", "memory": "MiB"},
    "ecc_uncorrected": "errors since the driver was loaded",
}


def _cells(line: str) -> List[str]:
    inner = line.strip()
    return inner[1:].rstrip("|").split("|") if inner.startswith("|") else []


def _is_first(cells: List[str]) -> bool:
    return len(cells) >= 3 and bool(_FIRST.fullmatch(cells[0])) and bool(_BUS.fullmatch(cells[1].strip()))


class _Table:
    """The GPUs of a table as its lines come; a line belongs to the section whose header was last."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.tables = 0
        self._begin()

    def line(self, line: str) -> None:
        cells = _cells(line)
        if line.lstrip().startswith("+"):
            self._rows = 0
        if not cells:
            return
        if _SMI.search(cells[0]):
            self.tables += 1
            self._begin()
        elif set(line.strip()) <= set("|=+ ") and "=" in line:
            self._body = True
        elif _RULE.fullmatch(line.strip()[:200]):
            self._rows = 0
        elif "Processes:" in cells[0] or "MIG devices:" in cells[0]:
            self._section, self._body = "processes" if "Processes:" in cells[0] else "instances", False
        elif self._section == "processes":
            self._process(line)
        elif not self._body and not (self._section == "gpus" and _is_first(cells)):
            pass
        elif self._section == "instances":
            self._instance(cells, line)
        elif len(self.gpus) < _MAX_ROWS:
            self._gpu(cells, line)

    def _begin(self) -> None:
        """Begin a table: of several, as ``watch`` or ``-l`` leave them, the last one counts."""
        self.gpus: List[Gpu] = []
        self.instances: List[Dict[str, Any]] = []
        self.processes: List[Dict[str, Any]] = []
        self.process_list = "unknown"
        self._section, self._rows, self._body = "gpus", 0, False

    def _gpu(self, cells: List[str], line: str) -> None:
        # Somebody may have kept a part of the table only: what looks like the first line of a GPU is one.
        self._body = True
        self._rows = 1 if _is_first(cells) else self._rows + 1
        first = _FIRST.fullmatch(cells[0])
        if self._rows == 1 and first and len(cells) >= 3:
            self.gpus.append(_first_row(first, cells))
        elif self._rows == 2 and self.gpus:
            if not _second_row(self.gpus[-1], cells):
                self.notes.puzzled(line)
        elif self._rows == 3 and self.gpus and len(cells) >= 3:
            _put(self.gpus[-1], "mig", cells[2])
        elif self._rows > 3 or not self.gpus:
            self.notes.puzzled(line)

    def _instance(self, cells: List[str], line: str) -> None:
        first = _MIG_FIRST.fullmatch(cells[0])
        memory = _MEMORY.fullmatch(cells[1]) if len(cells) > 1 else None
        if first and len(self.instances) < _MAX_ROWS:
            gpu, gi, ci, device = map(int, first.groups())
            used, total = (int(memory[1]), int(memory[2])) if memory else (None, None)
            instance = {"gpu": gpu, "gi": gi, "ci": ci, "device": device, "memory_used": used, "memory_total": total}
            self.instances.append(instance)
        elif cells[0].strip() and "No MIG devices found" not in line:
            self.notes.puzzled(line)

    def _process(self, line: str) -> None:
        match = _PROCESS.fullmatch(line.strip().strip("|"))
        if "no running processes" in line.lower():
            self.process_list = "none"
        elif match and len(self.processes) < _MAX_ROWS:
            self.process_list = "listed"
            gpu, instance, compute, pid, kind, name, memory = match.groups()
            place = {"gpu": int(gpu), "gi": whole(instance or ""), "ci": whole(compute or ""), "pid": int(pid)}
            self.processes.append({**place, "type": kind, "name": field_text(name) or None, "memory": whole(memory)})
        elif self._body and line.strip("| "):
            self.notes.puzzled(line)


def _put(gpu: Gpu, name: str, word: str) -> None:
    gpu[name] = field_text(word)
    if wrong := failure(word):
        gpu["errors"][name] = wrong


def _first_row(first: Any, cells: List[str]) -> Gpu:
    gpu: Gpu = dict.fromkeys(_FIELDS)
    gpu.update(index=int(first[1]), errors={})
    _put(gpu, "name", first[2])
    gpu["persistence"] = truth(first[3] or "")
    bus = _BUS.search(cells[1])
    gpu["bus"] = bus[1] if bus else None
    gpu["display"] = truth(bus[2] or "") if bus else None
    gpu["ecc_uncorrected"] = whole(cells[2])
    for name, word in (("persistence", first[3] or ""), ("ecc_uncorrected", cells[2]), ("bus", cells[1])):
        wrong = failure(word)
        if wrong and gpu[name] is None:
            gpu["errors"][name] = wrong
    return gpu


def _second_row(gpu: Gpu, cells: List[str]) -> bool:
    """Take fan, temperature, power, memory, utilization; return whether all of it was understood."""
    match = _SECOND.fullmatch(cells[0])
    if match:
        fan, temperature, perf, power, limit = match.groups()
        for name, word in (("fan", fan), ("temperature", temperature), ("power", power), ("power_limit", limit)):
            _put(gpu, name, word)
            gpu[name] = number(word)
        _put(gpu, "perf", perf)
    memory = _MEMORY.fullmatch(cells[1]) if len(cells) > 1 else None
    if memory:
        gpu["memory_used"], gpu["memory_total"] = int(memory[1]), int(memory[2])
    elif len(cells) > 1 and failure(cells[1]):
        gpu["errors"]["memory"] = failure(cells[1])
    last = re.fullmatch(r"\s{0,12}(\S{1,12}%?|N/A)\s{1,16}(\S.{0,24}?)\s{0,4}", cells[2]) if len(cells) > 2 else None
    if last:
        _put(gpu, "utilization", last[1])
        gpu["utilization"] = whole(last[1])
        _put(gpu, "compute_mode", last[2])
    # A GPU without sensors or dedicated memory prints that in words, which is a value as well.
    answered = memory or (len(cells) > 1 and (failure(cells[1]) or field_text(cells[1]) is None))
    return bool(match and answered and last)


def parse_nvidia_smi(text: str) -> Reading:
    """Return what ``nvidia-smi`` shows.

    Values: ``smi``, ``driver``, ``cuda``, ``time``; ``gpus``: ``[{"index", "name" (as long as the table is wide),
    "persistence", "bus", "display", "ecc_uncorrected", "fan", "temperature", "perf", "power", "power_limit",
    "memory_used", "memory_total", "utilization", "compute_mode", "mig", "errors": {field: "ERR!"}}]``;
    ``instances`` (MIG); ``processes``; ``processes_told``: ``listed``, ``none`` or ``unknown``; ``any_err``: some field
    holds an error; ``errors``: errors of the tool (`values.parse_errors`); ``kernel``: reports of the
    kernel in the same text (`dmesg`).
    """
    notes = Notes()
    text = without_escapes(text)
    table = _Table(notes)
    for line in text.splitlines():
        table.line(line[:400])
    errors = complain(text, notes)
    if table.tables > 1:
        notes.warn("%d tables, the last one is used" % table.tables)
    for gpu in table.gpus:
        for name, word in gpu["errors"].items():
            notes.warn("GPU %d: %s is %s" % (gpu["index"], name, word))
        if gpu["perf"] is None and not gpu["errors"]:
            notes.warn("GPU %d: the table is cut off" % gpu["index"])
    if not table.gpus and not errors and text.strip():
        notes.warn("no GPU in this text")
        for line in text.splitlines()[:20]:
            if not is_noise(line):
                notes.puzzled(line)
    time = _TIME.search(text)
    smi, driver, cuda = ((match := pattern.search(text)) and match[1] for pattern in (_SMI, _DRIVER, _CUDA))
    return notes.reading(
        {
            **{"smi": smi, "driver": driver, "cuda": cuda, "time": time[0] if time else None, "gpus": table.gpus},
            **{"instances": table.instances, "processes": table.processes, "processes_told": table.process_list},
            "any_err": bool(errors) or any(gpu["errors"] for gpu in table.gpus),
            "errors": errors,
            # People paste kernel messages beside the table.
            "kernel": parse_kernel(text).values["events"] if "NVRM: " in text else [],
        }
    )


def parse_list(text: str) -> Reading:
    """Return the GPUs that ``nvidia-smi -L`` lists, each with its MIG instances."""
    notes = Notes()
    gpus: List[Gpu] = []
    for line in text.splitlines():
        word = line.strip()[:400]
        listed, instance = _LISTED.fullmatch(word), _INSTANCE.fullmatch(word)
        if listed and len(gpus) < _MAX_ROWS:
            index, name, uuid = listed.groups()
            gpus.append({"index": int(index), "name": name, "uuid": uuid, "mig": []})
        elif instance and gpus and len(gpus[-1]["mig"]) < _MAX_ROWS:
            profile, device, uuid = instance.groups()
            gpus[-1]["mig"].append({"profile": profile, "device": int(device), "uuid": uuid})
        elif not is_noise(line) and not parse_errors(word):
            notes.puzzled(line)
    return notes.reading({"gpus": gpus, "errors": complain(text, notes)})


def _likely(text: str) -> float:
    if likely := _LIKELY(text):
        return likely
    # A text of a few lines may be such a complaint and nothing else; others may hold one as well.
    errors = [error["kind"] for error in parse_errors(text[:4000])]
    if not set(errors) & {"gpu_lost", "device_handle", "driver", "version", "library", "no_devices"}:
        return 0.3 if errors else 0.0
    return 0.92 if len(text.splitlines()) <= 12 else 0.5


def _likely_list(text: str) -> float:
    lines = [line.strip()[:400] for line in text.splitlines()[:64] if not is_noise(line)]
    listed = sum(1 for line in lines if _LISTED.fullmatch(line) or _INSTANCE.fullmatch(line))
    # The headings of other commands look the same.
    return 0.9 if listed and listed == len(lines) else 0.6 if listed > len(lines) / 2 else 0.0


FORMATS = [
    Format("nvidia-smi", "the table of GPUs and processes", _likely, parse_nvidia_smi, _UNITS),
    Format("nvidia-smi-L", "GPUs and MIG instances by UUID", _likely_list, parse_list),
]
