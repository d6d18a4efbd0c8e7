"""Output of a monitor of training jobs: the ends of the files of each node, settings, and iteration times.

Grammar (AvatarHwang/FASOP, ``Megatron-LM-2/get_result.sh``): headings such as ``*** last output message ***``; below
each the ends of files, as ``tail`` prints them (``==> ../log2/4711/n060.gpu <==``), and their number of lines,
``312 lines..``; then settings, ``NNODES: 8``, and ``iteration 10 : 4.125 s``. Files named ``.gpu`` are of gpustat, the
others of Megatron-LM.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.formats import gpustat, megatron
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_HEADING = re.compile(r"\*{3,60} (?:last )?([a-z][a-z ]{0,40}?)(?: message)?(?: (\d{1,12}))? \*{3,60}", re.I)
_FILE = re.compile(r"==> (?:.{0,1000}/)?([^/]{1,200}) <==", re.I)
_LINES = re.compile(r"(\d{1,15}) lines\.\.", re.I)
#: Maximum number of files.
_MOST = 10_000


def parse(text: str) -> Reading:
    """Return ``job``, ``lines`` by heading, the last line of each of ``files``, ``gpus``, and what megatron-log has."""
    job, heading = None, ""
    counts: list[dict[str, Any]] = []
    parts: dict[str, list[str]] = {}
    name = ""
    for line in plain_lines(text):
        short = line.strip()[:1300]
        if found := _HEADING.fullmatch(short):
            heading, name = found[1].lower(), ""
            job = found[2] or job
        elif total := _LINES.fullmatch(short):
            counts.append({"of": heading, "lines": int(total[1])})
            name = ""
        elif file := _FILE.fullmatch(short):
            name = file[1] if len(parts) < _MOST else ""
            parts.setdefault(name, [])
        elif name and short:
            parts[name].append(line)
    gpus, files, notes = [], [], Notes()
    for name, lines in parts.items():
        node, _, kind = name.rpartition(".")
        files.append({"file": name, "last": lines[-1].strip()[:400] if lines else None})
        if kind.lower() == "gpu":
            gpus += [{"node": node, **gpu} for gpu in gpustat.parse("\n".join(lines)).values["gpus"]]
    found_of_log = megatron.parse(text)
    for warning in found_of_log.warnings:
        notes.warn(warning)
    values = found_of_log.values
    values["iterations"] = sorted(values["iterations"], key=lambda row: int(row["iteration"]))
    return notes.reading({"job": job, "lines": counts, "files": files, "gpus": gpus, **values})


_LIKELY = first_of((0.99, r"(?i)^\*{3,60} last (?:output|error|gpu) message \*{3,60}$"))
_TITLE = "monitor of a training job: ends of the output, error and GPU files of each node, settings, iteration times"
_UNITS = {**megatron.FORMATS[0].units, **gpustat.FORMATS[0].units}
FORMATS = [Format("job-monitor", _TITLE, _LIKELY, parse, units=_UNITS, log=True, hidden=("timeline",))]
