"""Logs of training jobs: Megatron-LM and its forks, a monitor that prints the ends of these, and failures of PyTorch.

Settings that a job prints at its start (``NODE_RANK: 1``, ``MASTER_ADDR: n060``, as scripts of users do) are parsed by
`fabtui.diagnosis.job.logs.settings`.
"""

from __future__ import annotations

import re
import statistics

from fabtui.diagnosis.job.logs.error_lines import PATTERNS
from fabtui.diagnosis.job.logs.gpu_history import NodeGpus, gpu_of, idle_among
from fabtui.diagnosis.job.logs.iteration_times import IterationLine, iteration_line
from fabtui.diagnosis.job.logs.settings import Settings, printed
from fabtui.diagnosis.knowledge.log_causes import WORK, LogPlace, LogReader
from fabtui.importers.tables import Tables, Values, kinds
from fabtui.sanitize import one_line
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines
from fabtui_node.parsers.nccl import log_lines

# Timers in the log of Megatron-LM: how long each part of an iteration took, by rank or over all ranks.
# Grammar (NVIDIA/Megatron-LM, ``megatron/core/timers.py``, ``--timing-log-option`` max, minmax and all): a line
# ``max time across ranks (ms):``, ``(min, max) time across ranks (ms):`` or ``times across ranks (ms):``, then a line
# per timer, ``forward-compute ....: 12.34`` or ``....: (12.34, 56.78)``, or its name and a line ``rank  0: 12.34`` per
# rank. Forks that record a profile (AvatarHwang/FASOP) add two lines per rank, ``NAME start time lst:  1686726492.1``
# and ``NAME end time lst:  ...``, in seconds since the epoch. Releases before 2022 print one line,
# ``time (ms) | forward-compute: 12.34 | ...``.

_TIMERS = kinds(
    r"""
    title  (?P<form>(?i:max|\(min, max\)|times))(?: time)? across ranks \(ms\):$
    old    .{0,200}?\btime \(ms\) \|(?P<fields>.*)
    rank   rank\s{1,6}<rank:int>: <spent:time>$
    range  <timer:timer>\s?\.{0,120}: {0,4}(?:\(<min:time>, )?<max:time>\)?$
    named  <timer:timer>:$
    span   <timer:timer> (?P<end>start|end) time lst:(?P<times>[\s\d.]*)$
    other  \S
    """,
    timer=r"[a-z][\w/ -]{0,80}?",
    time=(r"-?\d[\d.]{0,30}", number),
)
_OLD_FIELD = re.compile(r"([a-z][\w/-]{0,80}): (-?\d[\d.]{0,30})(?=\s*(?:\||$))")
#: Maximum numbers of timers, ranks, and spans of all of them that are kept.
_MOST, _MOST_TIMED_RANKS, _MOST_SPANS = 1000, 65_536, 1_000_000
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\]")
_NAMES = {
    "consumed samples": "consumed_samples", "consumed tokens": "consumed_tokens", "learning rate": "learning_rate",
    "global batch size": "global_batch_size", "lm loss": "loss", "loss": "loss", "lm loss value": "loss",
    "loss scale": "loss_scale", "grad norm": "grad_norm", "num zeros": "num_zeros", "params norm": "params_norm",
    "number of skipped iterations": "skipped", "number of nan iterations": "nan",
    "samples per second": "samples_per_second", "tokens per gpu per second (tgs)": "tokens_per_gpu_per_second",
    "TFLOPs": "tflops", "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "throughput (token/sec/GPU)": "tokens_per_gpu_per_second",
}  # fmt: skip
_WHOLE = frozenset({"consumed_samples", "consumed_tokens", "global_batch_size", "skipped", "nan"})
#: What each iteration has, unknown or not.
_NAMED = ("elapsed", "loss", "grad_norm", "skipped")
#: A line of scripts that print the times alone, in seconds.
_SHORT = re.compile(r"iteration {1,8}(\d{1,12}) ?: ?(\d[\d.]{0,20}) s")
#: Memory of a rank (``megatron/training/utils.py``: ``report_memory``), whose MB are 2^20 bytes.
_MEMORY = re.compile(
    r"\s{0,8}\[Rank (\d{1,7})\] \((?:after (\d{1,12}) iterations)?[^)]{0,60}\) memory \(MB\)(.{0,1000})", re.I
)
_MEMORY_FIELD = re.compile(r"\| ((?:max )?(?:allocated|reserved)): (\d[\d.]{0,30})", re.I)
_MOST_RANKS = 65_536
#: An iteration that takes this many times the median stands out.
_SLOW = 1.5
_MEGATRON_LIKELY = first_of(
    (0.97, r"\biteration\s+\d+/\s*\d+ \| consumed samples"),
    (0.8, r"\biteration\s+\d+/\s*\d+ \|.*elapsed time per iteration"),
    (0.8, r"(?i)\b(?:max time|\(min, max\) time|times) across ranks \(ms\):|\btime \(ms\) \| [a-z-]+: [\d.]+ \|"),
    (0.6, r"(?i)^[ \t]{0,8}\[Rank \d{1,7}\] \(.{0,60}\) memory \(MB\) \|"),
    (0.6, r"^iteration +\d+ ?: [\d.]+ s\r?\niteration +\d+ ?: [\d.]+ s\r?$"),
    (0.6, r"^(?:NODE_RANK|MASTER_ADDR|NNODES|WORLD_SIZE): .*\n(?:[A-Z][A-Z_0-9]+: .*\n){2}"),
)
_MEGATRON_UNITS = {
    **dict.fromkeys(("allocated", "max_allocated", "reserved", "max_reserved"), "MiB"),
    **{"min": "ms", "max": "ms", "spent": "ms", "starts": "s", "ends": "s"},
    **{"elapsed": "s", "elapsed_median": "s", "tflops": "TFLOP/s"},
    **{"samples_per_second": "1/s", "tokens_per_gpu_per_second": "1/s"},
}
# Output of a monitor of training jobs: the ends of the files of each node, settings, and iteration times.
#
# Grammar (AvatarHwang/FASOP, ``Megatron-LM-2/get_result.sh``): headings such as ``*** last output message ***``; below
# each the ends of files, as ``tail`` prints them (``==> ../log2/4711/n060.gpu <==``), and their number of lines,
# ``312 lines..``; then settings, ``NNODES: 8``, and ``iteration 10 : 4.125 s``. Files named ``.gpu`` are of gpustat,
# the others of Megatron-LM.

_TEMPERATURE = re.compile(r"(\d{1,3}) ?(?:'|\u00b0)C")
_MEGABYTE = 1 << 20
_GPU_UNITS = {"temperature": "C", "utilization": "%", "power": "W", "memory_used": "MiB", "memory_total": "MiB"}
_HEADING = re.compile(r"\*{3,60} (?:last )?([a-z][a-z ]{0,40}?)(?: message)?(?: (\d{1,12}))? \*{3,60}", re.I)
_FILE = re.compile(r"==> (?:.{0,1000}/)?([^/]{1,200}) <==", re.I)
_LINES = re.compile(r"(\d{1,15}) lines\.\.", re.I)
#: Maximum number of files.
_MOST_FILES = 10_000
_MONITOR_LIKELY = first_of(
    (0.99, r"(?i)^\*{3,60} (?:last (?:output|error|gpu) message|job info \d{1,10}|iteration time) \*{3,60}$")
)
_RANK = re.compile(r"\[rank(\d{1,7})\]|\[Rank (\d{1,7})\]|\bRank (\d{1,7})\]|^\[default(\d{1,7})\]:")
_TIMEOUT = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), )?OpType=(?P<op>\w{1,40})(?:, NumelIn=(?P<numel>\d{1,18}))?"
    r"(?:, NumelOut=\d{1,18})?(?:, TensorShape=\[[\d, ]{0,200}\])?, Timeout\(ms\)=(?P<limit>\d{1,12})\)"
    r"(?: ran for (?P<ran>\d{1,12}) milliseconds)?"
)
_AT_WORK = re.compile(r"watchdog(?: thread)? at work(?: sequence id)?:? ?(\d{1,18})")
_NCCL_ERROR = re.compile(
    r"\b(nccl(?:RemoteError|SystemError|InternalError|InvalidArgument|InvalidUsage|UnhandledCudaError))\b"
)
_NCCL_WORDS = (
    ("ncclRemoteError", "remote process exited or there was a network error"),
    ("ncclSystemError", "unhandled system error"),
    ("ncclUnhandledCudaError", "unhandled cuda error"),
    ("ncclInternalError", "internal error"),
    ("ncclInvalidUsage", "invalid usage"),
    ("ncclInvalidArgument", "invalid argument"),
)
_LAST_ERROR = re.compile(r"Last error:\s*(.*)$")
_IB = re.compile(r"with error (\d{1,5}), opcode \d{1,5}, len \d{1,12}, vendor err (\d{1,7})")
#: Kinds of errors of CUDA, the most general one last.
_CUDA = (
    *("ecc_uncorrectable", "out_of_memory", "illegal_address", "device_assert", "fabric_not_ready", "no_device"),
    *("launch_timeout", "cuda_error"),
)
_FRAME = re.compile(r"^(?:\[rank\d+\]: ?)?\s*frame #(\d{1,4}): ")
_EXCEPTION = re.compile(
    r"^(?:\[rank\d{1,7}\]: ?|\[default\d{1,7}\]: ?|\d{1,7}: ?)?\s*((?:[a-zA-Z_][\w.]{0,80}\.)?\w{0,60}(?:Error"
    r"|Exception|Interrupt))"
    r"(?:: (.{0,300}))?$"
)
_TORCH_LIKELY = first_of(
    (0.95, r"ProcessGroupNCCL\.(?:cpp|hpp)|DistBackendError|Watchdog caught collective"),
    (0.92, r"c10::Error|c10d::|torch\.distributed\.\w*Error|torch\.cuda\.OutOfMemoryError"),
    (0.9, r"\[c10d\]|Gloo connectFullMesh|gloo/transport/tcp|TCPStore\b|ProcessGroup(?:NCCL|Gloo)\b"),
    (0.8, r"GLOO_SOCKET_IFNAME|torch/(?:csrc|distributed)/|torchrun|torch\.distributed\.(?:elastic|launch|run)\b"),
    (0.6, r"cudaError[A-Z]\w+|RuntimeError: (?:CUDA|NCCL) "),
    # Frames of its backtrace, of which there are others below.
    (0.6, r"^frame #\d{1,4}: .{1,2000} \+ 0x[0-9a-f]{1,16} \(0x[0-9a-f]{1,16} in .{1,400}\)\s*frame #\d"),
)


class _Timers(Tables, lines=_TIMERS):
    """Collects the timers of a log; each block that is printed replaces the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = 0
        self._begin("")

    def _begin(self, form: str) -> None:
        self._form, self._name, self._rank, self._count = form, "", -1, 0
        self._rows: dict[str, Values] = {}
        self._ranks: dict[str, dict[int, float]] = {}
        #: Starts and ends by timer and rank.
        self._spans: dict[tuple[str, int], tuple[list[float], list[float]]] = {}

    def values(self) -> list[Values]:
        """Return the timers of the last block: the least and the greatest time, and their ranks."""
        for name, ranks in self._ranks.items():
            if ranks:
                low, high = min(ranks, key=ranks.__getitem__), max(ranks, key=ranks.__getitem__)
                self._row(name, ranks[low], ranks[high], high, len(ranks))
        return list(self._rows.values())

    def timeline(self) -> list[Values]:
        """Return the time of each rank in each timer of the last block, with starts and ends if they are printed."""
        rows = []
        for name, ranks in self._ranks.items():
            for rank, value in ranks.items():
                starts, ends = self._spans.get((name, rank), ([], []))
                both = min(len(starts), len(ends))
                rows.append({"rank": rank, "timer": name, "spent": value, "starts": starts[:both], "ends": ends[:both]})
        return rows

    def title(self, values: Values, line: str) -> None:
        self._begin(values["form"].lower())
        self.blocks += 1

    def old(self, values: Values, line: str) -> None:
        self._begin("")
        self.blocks += 1
        for name, text in _OLD_FIELD.findall(values["fields"]):
            self._row(name, None, number(text))

    def range(self, values: Values, line: str) -> bool:
        fits = line[0].isspace() and self._form == ("max" if values["min"] is None else "(min, max)")
        if fits:
            self._row(values["timer"], values["min"], values["max"])
        return fits

    def named(self, values: Values, line: str) -> bool:
        taken = line[0].isspace() and self._form == "times"
        if taken:
            self._name = values["timer"]
            self._ranks.setdefault(self._name, {})
            self._row(self._name, None, None)
        return taken

    def rank(self, values: Values, line: str) -> bool:
        ranks = self._ranks.get(self._name)
        if ranks is not None and values["spent"] is not None and len(ranks) < _MOST_TIMED_RANKS:
            self._rank = values["rank"]
            ranks[self._rank] = values["spent"]
        return ranks is not None

    def span(self, values: Values, line: str) -> bool:
        times = [time for word in values["times"].split() if (time := number(word)) is not None]
        known = values["timer"] == self._name and self._rank in self._ranks.get(self._name, {})
        if known and self._count + len(times) <= _MOST_SPANS:
            self._count += len(times)
            self._spans.setdefault((self._name, self._rank), ([], []))[values["end"] == "end"].extend(times)
        return self._form == "times"

    def other(self, values: Values, line: str) -> bool:
        self._form = ""
        return False

    def _row(self, name: str, least: float | None, most: float | None, *of_ranks: int) -> None:
        if len(self._rows) < _MOST or name in self._rows:
            rank, ranks = of_ranks or (None, None)
            self._rows[name] = {"timer": name, "min": least, "max": most, "rank_of_max": rank, "ranks": ranks}


def _iteration(found: IterationLine, notes: Notes, line: str) -> Values:
    row: Values = {"iteration": found.number, **dict.fromkeys(_NAMED)}
    if found.cut:
        notes.warn(f"iteration {found.number}: the line is cut off")
        notes.puzzled(line)
    seconds, unit = found.elapsed
    if unit:
        row |= {"elapsed": None if seconds is None else round(seconds, 6), "elapsed_unit": unit}
    for name, text in found.fields.items():
        if name in _NAMES:
            value, key = number(text), _NAMES[name]
            row[key] = int(value) if value is not None and key in _WHOLE else value
            if value is None and text.lower() in ("nan", "inf", "-inf"):
                notes.warn(f"iteration {found.number}: {name} is {text}")
    return row


def _parse_megatron(text: str) -> Reading:
    """Return ``total`` iterations, ``iterations``, ``elapsed_median``, ``timers`` and the ``settings`` of the job.

    ``memory`` has each rank's last values. ``timeline`` has the time that each rank ``spent`` in each timer;
    ``starts`` and ``ends`` are in seconds since the epoch.

    An iteration has ``elapsed`` in seconds (``elapsed_printed_in`` is the unit in the text), ``grad_norm``, ``skipped``
    and the other values of its line. ``loss`` is None if the step was skipped or the line has none.
    """
    notes = Notes()
    rows: list[Values] = []
    memory: dict[int, Values] = {}
    total = None
    timers, settings = _Timers(), Settings()
    run, known = 0, set[int]()
    for at, line in enumerate(plain_lines(text), 1):
        printed_line = iteration_line(line)
        if printed_line is None:
            if setting := None if timers.take(line) else printed(line):
                # Without a label, lines that follow each other are of one process.
                run = run or at
                settings.take("" if setting.label else f"line {run}", line.partition(" #")[0])
            elif (short := _SHORT.fullmatch(line.strip()[:80])) and int(short[1]) not in known:
                known.add(int(short[1]))
                rows.append({"iteration": int(short[1]), **dict.fromkeys(_NAMED), "elapsed": number(short[2])})
            elif (used := _MEMORY.match(line[:2000])) and len(memory) < _MOST_RANKS:
                memory[int(used[1])] = _memory(used)
            run = run if setting else 0
            continue
        run = 0
        total = printed_line.total
        row = _iteration(printed_line, notes, line)
        known.add(row["iteration"])
        if stamp := _STAMP.search(line[: printed_line.start]):
            row["time"] = stamp[1]
        rows.append(row)
    units = {unit for row in rows if (unit := row.pop("elapsed_unit", None))}
    times = [row["elapsed"] for row in rows if row["elapsed"] is not None]
    middle = round(statistics.median(times), 6) if times else None
    for row in rows:
        if middle and len(times) >= 5 and (row["elapsed"] or 0) > _SLOW * middle:
            notes.warn(f"iteration {row['iteration']} took {row['elapsed']:g} s, the median is {middle:g} s")
    if not rows and not timers.blocks and not settings.of and not memory:
        notes.warn("no iteration")
    nans = sum(row.get("nan") or 0 for row in rows)
    if nans:
        notes.warn(f"{nans} iterations with NaN")
    printed_in = " and ".join(sorted(units)) or None
    values = {"total": total, "elapsed_median": middle, "elapsed_printed_in": printed_in, "iterations": rows}
    values |= {"memory": [memory[rank] for rank in sorted(memory)]}
    values |= {"timers": timers.values(), "timeline": timers.timeline()}
    values["settings"] = [{"printed_by": one, **of} for one, of in list(settings.of.items())[:4096]]
    return notes.reading(values)


def _memory(found: re.Match[str]) -> Values:
    """Return the memory of a rank; what a line that is cut off lacks is None."""
    known = {name.lower().replace(" ", "_"): number(text) for name, text in _MEMORY_FIELD.findall(found[3])}
    names = ("allocated", "max_allocated", "reserved", "max_reserved")
    after = None if found[2] is None else int(found[2])
    return {"rank": int(found[1]), "iteration": after, **{name: known.get(name) for name in names}}


def _gpu(line: str) -> Values | None:
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
    }


def _last_sample(lines: list[str]) -> list[Values]:
    samples: list[list[Values]] = [[]]
    for gpu in filter(None, (_gpu(line.strip()) for line in lines)):
        if samples[-1] and gpu["index"] <= samples[-1][-1]["index"]:
            samples = [samples[-1], []]
        samples[-1].append(gpu)
    return max(reversed(samples), key=len)


def _parse_monitor(text: str) -> Reading:
    """Return ``job``, ``lines`` by heading, the last line of each of ``files``, ``gpus``, and what megatron-log has."""
    job, heading = None, ""
    counts: list[Values] = []
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
            name = file[1] if len(parts) < _MOST_FILES else ""
            parts.setdefault(name, [])
        elif name and short:
            parts[name].append(line)
    gpus, files, notes = [], [], Notes()
    samples: dict[str, NodeGpus] = {}
    for name, lines in parts.items():
        node, _, kind = name.rpartition(".")
        files.append({"file": name, "last": lines[-1].strip()[:400] if lines else None})
        if kind.lower() == "gpu":
            gpus += [{"node": node, **gpu} for gpu in _last_sample(lines)]
            samples[node] = NodeGpus(None, tuple(gpu for line in lines if (gpu := gpu_of(line.strip())) is not None))
    for node in idle_among(samples):
        notes.warn(f"{node}: 0 of {len(samples[node].gpus)} GPUs are busy; all GPUs of the other nodes are busy")
    found_of_log = _parse_megatron(text)
    for warning in found_of_log.warnings:
        notes.warn(warning)
    values = found_of_log.values
    values["iterations"] = sorted(values["iterations"], key=lambda row: int(row["iteration"]))
    return notes.reading({"job": job, "lines": counts, "files": files, "gpus": gpus, **values})


class _TorchLog:
    def __init__(self) -> None:
        self.notes = Notes()
        self.timeouts: dict[tuple[int | None, str | None], Values] = {}
        self.work: dict[int | None, dict[str, int]] = {}
        self.ranks: dict[int, None] = {}
        self.classes: dict[str, None] = {}
        self.exceptions: list[Values] = []
        self.values: Values = {"nccl": None, "last_error": None, "ib_error": None, "vendor_err": None}
        self.frames = 0
        self._after_last_error = False
        self._caught: int | None = None
        self.failing: LogPlace | None = None

    def line(self, line: str) -> None:
        rank = _rank_of(line)
        if rank is not None and len(self.ranks) < 100_000:
            self.ranks.setdefault(rank)
        if self._after_last_error and line.strip():
            self._last_error(re.sub(r"^\[(?:rank|default)\d+\]: ?", "", line).strip())
        if caught := PATTERNS["collective_timeout"].search(line):
            self._caught = rank
        if (caught or self._caught is not None) and (found := _TIMEOUT.search(line)):
            # The work may be on the next line.
            self._timeout(self._caught if rank is None else rank, found)
            self._caught = None
        if found := WORK.search(line):
            self.work[rank] = {"enqueued": int(found["enqueued"]), "completed": int(found["completed"])}
            if at := _AT_WORK.search(line):
                self.work[rank]["at"] = int(at[1])
        if _FRAME.match(line):
            self.frames += 1
            return
        self._class(line)
        if found := log_lines.VERSION.search(line):
            self.values["nccl"] = found[1]
        if found := _LAST_ERROR.search(line):
            self._after_last_error = not found[1].strip()
            if found[1].strip():
                self._last_error(found[1].strip())
        if (found := _EXCEPTION.match(line)) and len(self.exceptions) < 100:
            entry = {"rank": rank, "type": found[1], "text": (found[2] or "").strip()[:300]}
            if entry not in self.exceptions:
                self.exceptions.append(entry)

    def _last_error(self, text: str) -> None:
        self._after_last_error = False
        self.values["last_error"] = self.values["last_error"] or text[:300]
        if found := _IB.search(text):
            self.values["ib_error"], self.values["vendor_err"] = int(found[1]), int(found[2])

    def _class(self, line: str) -> None:
        if found := _NCCL_ERROR.search(line):
            self.classes.setdefault(found[1])
        elif "NCCL error" in line or "NCCL operations have failed" in line:
            for name, words in _NCCL_WORDS:
                if words in line:
                    self.classes.setdefault(name)
        if cuda := next((name for name in _CUDA if PATTERNS[name].search(line)), None):
            self.classes.setdefault(cuda)
        if PATTERNS["rendezvous"].search(line):
            self.classes.setdefault("rendezvous")

    def _timeout(self, rank: int | None, found: re.Match[str]) -> None:
        self.classes.setdefault("collective_timeout")
        key = (rank, found["seq"])
        if key not in self.timeouts and len(self.timeouts) < 100_000:
            seq, elements, limit, ran = map(_whole, found.group("seq", "numel", "limit", "ran"))
            entry = {"rank": rank, "seq": seq, "op": found["op"], "elements": elements}
            self.timeouts[key] = {**entry, "limit": limit, "ran": ran}

    def reading(self) -> Reading:
        timeouts = list(self.timeouts.values())
        for entry in timeouts:
            entry.update(self.work.get(entry["rank"], {"enqueued": None, "completed": None}))
        completed = {rank: work["completed"] for rank, work in self.work.items() if rank is not None}
        behind = [rank for rank, done in completed.items() if done < max(completed.values())]
        if behind:
            self.notes.warn(f"ranks {', '.join(map(str, sorted(behind)[:20]))} completed least: look there first")
        if timeouts:
            self.notes.warn("every rank that waits prints the timeout, not only the one that hangs")
        classes = list(self.classes)
        # A general word adds nothing to a specific one.
        if len(classes) > 1 and "cuda_error" in classes:
            classes.remove("cuda_error")
        if not classes and not self.exceptions:
            failing = self.failing
            self.notes.warn(f"unknown failure: {one_line(failing.text, 300)}" if failing else "no known failure")
        values = {"class": classes[0] if classes else "unknown", "classes": classes, **self.values}
        values.update(ranks=sorted(self.ranks), timeouts=timeouts, exceptions=self.exceptions, frames=self.frames)
        return self.notes.reading(values)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _rank_of(line: str) -> int | None:
    rank = _RANK.search(line)
    return None if rank is None else int(rank[rank.lastindex or 0])


def _parse_torch(text: str) -> Reading:
    """Return how a job failed.

    ``class`` is the first of ``classes``: an NCCL result such as ``ncclRemoteError``, ``collective_timeout``,
    ``ecc_uncorrectable`` and others, else an error of the catalogue such as ``watchdog_stuck``, or ``unknown``.
    ``timeouts`` has an entry a rank and sequence number, with the last work it enqueued and completed; ``last_error``
    is NCCL's own reason; ``frames`` counts the C++ frames.
    """
    parser = _TorchLog()
    for line in plain_lines(text):
        parser.line(line)
    if not parser.classes:
        errors = LogReader()
        errors.add(text)
        result = errors.result()
        parser.classes = {found.meaning.id.replace("-", "_"): None for found in result.causes[:1]}
        parser.failing = result.failing
    return parser.reading()


FORMATS = [
    Format(
        "megatron-log",
        "training log of Megatron-LM and its forks: time and loss of each iteration, timers, settings of the job",
        _MEGATRON_LIKELY,
        _parse_megatron,
        units=_MEGATRON_UNITS,
        log=True,
        aliases="megatron(?:-(?:info|timers))?",
        errors=True,
        hidden=("timeline",),
    ),
    Format(
        "job-monitor",
        "monitor of a training job: ends of the output, error and GPU files of each node, settings, iteration times",
        _MONITOR_LIKELY,
        _parse_monitor,
        units={**_MEGATRON_UNITS, **_GPU_UNITS},
        log=True,
        hidden=("timeline",),
    ),
    Format(
        "torch-log",
        "how a PyTorch job failed: watchdog timeouts, NCCL and CUDA errors",
        _TORCH_LIKELY,
        _parse_torch,
        units={"limit": "ms", "ran": "ms"},
        log=True,
        aliases="torch-failure|pytorch|torch",
        errors=True,
    ),
]
