"""Output of gpustat, once or again and again (``-i``), as text and JSON: use and processes of the GPUs of a node.

Grammar (wookayin/gpustat, ``gpustat/core.py``: ``GPUStat.print_to``, ``GPUStatCollection.print_formatted`` and
``jsonify``): a line with host, date and driver, then a line per GPU. Between its bars are number and name,
temperature and other values, memory, and processes as ``user:command/pid(memory)``. Before 0.2 the memory
stood as ``Mem: 1 MiB / 2 MiB``. Numbers and use of a line are parsed by `fabtui.jobs.monitor.gpu_history`, for the
monitor of jobs too.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui.jobs.monitor.gpu_history import gpu_of
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_value, plain_lines

_HEADER = re.compile(
    r"(\S{1,253})(?: \(.{1,80}\))? {1,80}"
    r"((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {1,3}\w{3} {1,3}\d{1,2} {1,3}\d\d:\d\d:\d\d {1,3}\d{4})"
    r"(?: {1,80}(\d[\d.]{1,20}))?\s*",
    re.I,
)
_OLD_MEMORY = re.compile(r"\| {0,4}Mem: {0,12}(\d{1,9}|\?{1,9}) MiB / {1,12}(\d{1,9}|\?{1,9}) MiB {0,4}\|?", re.I)
_GPU = re.compile(r"\[\d{1,3}\] [^|]{1,120}\|", re.ASCII)
_TEMPERATURE = re.compile(r"(\d{1,3}) ?(?:'|\u00b0)C", re.I)
_PROCESS = re.compile(r"([\w.@$-]{1,64})(?::([^(/]{1,200}))?(?:/(\d{1,9}))?\((\d{1,9}|\?{1,9})M\)", re.I)
_JSON = re.compile(r'"gpus"\s*:\s*\[')
_MEGABYTE = 1 << 20
#: Maximum number of processes of a GPU that are kept.
_MOST_PROCESSES = 64
_FIELDS = {
    "temperature": "temperature.gpu", "utilization": "utilization.gpu", "power": "power.draw",
    "memory_used": "memory.used", "memory_total": "memory.total",
}  # fmt: skip


def _processes(text: str) -> list[dict[str, Any]]:
    found = []
    for match in _PROCESS.finditer(text[:20_000]):
        used = None if match[4].startswith("?") else int(match[4])
        pid = None if match[3] is None else int(match[3])
        found.append({"user": match[1], "command": match[2], "pid": pid, "memory_used": used})
    return found[:_MOST_PROCESSES]


def _gpu(line: str) -> dict[str, Any] | None:
    line = _OLD_MEMORY.sub(r"| \1 / \2 MB |", line.replace(" mb |", " MB |"), count=1)
    gpu = gpu_of(line)
    if gpu is None:
        return None
    name, middle = line.partition("] ")[2].split("|")[:2]
    temperature = _TEMPERATURE.search(middle)
    return {
        "index": gpu.number,
        "name": name.strip(),
        "temperature": int(temperature[1]) if temperature else None,
        "utilization": gpu.utilization,
        "power": gpu.power,
        "memory_used": None if gpu.used is None else gpu.used // _MEGABYTE,
        "memory_total": None if gpu.total is None else gpu.total // _MEGABYTE,
        "processes": _processes(line.split("|", 3)[3]),
    }


def _of_json(value: Any, notes: Notes) -> dict[str, Any]:
    top = json_object(value)
    gpus = []
    for one in json_list(top.get("gpus"))[:4096]:
        gpu = json_object(one)
        numbers = {ours: json_number(gpu.get(theirs)) for ours, theirs in _FIELDS.items()}
        processes = [
            {
                "user": process.get("username"),
                "command": process.get("command"),
                "pid": process.get("pid"),
                "memory_used": json_number(process.get("gpu_memory_usage")),
            }
            for process in map(json_object, json_list(gpu.get("processes"))[:_MOST_PROCESSES])
        ]
        gpus.append({"index": gpu.get("index"), "name": gpu.get("name"), **numbers, "processes": processes})
    if not gpus:
        notes.warn("no GPU")
    return {
        "host": top.get("hostname"),
        "time": top.get("query_time"),
        "driver": top.get("driver_version"),
        "gpus": gpus,
    }


def parse(text: str) -> Reading:
    """Return ``samples`` (how often it was printed), and ``host``, ``gpus`` and ``processes`` of the last one.

    ``busy`` counts the samples with a process or use on any GPU.
    """
    notes = Notes()
    if json := _JSON.search(text):
        value = json_value(text[text.rfind("{", 0, json.start()) :])
        if value is None:
            notes.warn("the JSON is cut off")
        found = _of_json(value, notes)
        busy = any(gpu["processes"] or gpu["utilization"] for gpu in found["gpus"])
        return notes.reading(_values(found, 1 if found["gpus"] else 0, int(busy)))
    samples = _Samples()
    for line in plain_lines(text):
        samples.line(line, notes)
    last = samples.last(notes)
    if not last["gpus"]:
        notes.warn("no GPU")
    return notes.reading(_values(last, samples.count, samples.busy))


def _values(last: dict[str, Any], samples: int, busy: int) -> dict[str, Any]:
    """Return the values; processes are a list of their own."""
    processes = [{"gpu": gpu["index"], **process} for gpu in last["gpus"] for process in gpu["processes"]]
    gpus = [{name: value for name, value in gpu.items() if name != "processes"} for gpu in last["gpus"]]
    return {**last, "samples": samples, "busy": busy, "gpus": gpus, "processes": processes}


class _Samples:
    """Counts samples and keeps the latest two."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {"host": None, "time": None, "driver": None, "gpus": []}
        self.before: dict[str, Any] | None = None
        self.earlier: list[dict[str, Any]] = []
        self.count = self.busy = 0

    def line(self, line: str, notes: Notes) -> None:
        """Take one line in."""
        line = line.strip()
        if header := _HEADER.fullmatch(line[:400]):
            self._end()
            self.now |= {"host": header[1], "time": " ".join(header[2].split()), "driver": header[3]}
        elif (gpu := _gpu(line)) is not None:
            if any(one["index"] == gpu["index"] for one in self.now["gpus"]):
                # Without headers, the first GPU begins the next sample.
                self._end()
            self.now["gpus"].append(gpu)
        elif _GPU.match(line):
            notes.puzzled(line)

    def last(self, notes: Notes) -> dict[str, Any]:
        """Return the last sample that is whole."""
        self._end()
        last = self.before or self.now
        if len(last["gpus"]) < len(self.earlier):
            notes.warn("the last sample is cut off; the one before it counts")
            return {**last, "gpus": self.earlier}
        return last

    def _end(self) -> None:
        if not self.now["gpus"]:
            return
        self.count += 1
        self.busy += any(gpu["processes"] or gpu["utilization"] for gpu in self.now["gpus"])
        self.earlier = self.before["gpus"] if self.before else []
        self.before = self.now
        self.now = {**self.now, "time": None, "gpus": []}


_LIKELY = first_of(
    (
        0.95,
        r"(?i)^[ \t]{0,8}\[\d{1,3}\] [^|\n]{1,120}\|[^|\n]{0,60}\|[ \t]{0,20}(?:mem:[ \t]{0,12})?[\d?]{1,9} (?:mib )?"
        r"/ {1,20}[\d?]{1,9} mi?b\b",
    ),
    (0.95, r'"gpus"\s{0,40}:\s{0,40}\[\s{0,40}\{(?s:.){0,400}"temperature\.gpu"'),
)
_TITLE = "gpustat: use, memory and processes of a node's GPUs"
_UNITS = {"temperature": "C", "utilization": "%", "power": "W", "memory_used": "MiB", "memory_total": "MiB"}
FORMATS = [Format("gpustat", _TITLE, _LIKELY, parse, units=_UNITS)]
