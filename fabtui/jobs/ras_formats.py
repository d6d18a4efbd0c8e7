"""Text of NCCL RAS 2.24 to 2.30: the answer to ``STATUS`` and ``VERBOSE STATUS``, also as ``ncclras`` prints it.

Grammar, after ``src/ras/client_support.cc`` of these versions (``rasClientRunInit``, ``rasClientRunComms``):

- ``NCCL version 2.28.9 compiled with CUDA 13.0``, ``CUDA runtime version 13000, driver version 13000``.
- ``Job summary``: five numbers if all nodes are alike, else tables of outliers and a row of three totals.
- ``Communicators...``: a row for each group of communicators of the same shape and state.
- ``Errors``: ``INCOMPLETE``, ``DEAD`` with processes; ``#0-0 (hash) INCOMPLETE``, ``#0-0 (hash) ERROR`` with ranks.
- ``Warnings``: ``TIMEOUT``; ``#0-0 (hash) MISMATCH`` with ranks.

A mismatch lists ``26 ranks have launched up to operation 6650`` and below it the members of the smaller groups; a group
of one rank is one line. 2.24 and 2.25 count all collectives together and list missing ranks as ``1,5-7``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fabtui.jobs.ras_report import ANY, Process, RasCommunicator, RasGroup, RasReport
from fabtui.jobs.who_is_behind import JobPlace
from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.lines import json_list, json_number, json_object, plain_lines

# JSON of NCCL RAS, from 2.28.7 on: the answer to ``SET FORMAT json`` and ``VERBOSE STATUS``.
#
# Keys after ``src/ras/client_support.cc`` (``rasDumpCommsToJSON``). 2.28.7 and 2.28.9 leave out a comma after
# ``nvml_dev`` of a missing rank. Their JSON is invalid exactly when something is wrong; the comma is put in.

#: A value at the end of a line and a name on the next one: no valid JSON has this without a comma.
_NO_COMMA = re.compile(r"([\d\"}\]el])([ \t]*\n[ \t]*\")")
_ERRORS = {1: "unhandled CUDA error", 2: "unhandled system error", 3: "internal error", 4: "invalid argument"}
_ERRORS |= {5: "invalid usage", 6: "remote process exited or there was a network error"}
#: ncclSuccess and ncclInProgress.
_FINE = (0, 7)


def json_of(text: str) -> dict[str, Any]:
    """Return the JSON object in an answer; an empty one if none is complete."""
    plain = "\n".join(plain_lines(text))
    start = plain.find("{")
    if start < 0:
        return {}
    for attempt in (plain, _NO_COMMA.sub(r"\1,\2", plain)):
        try:
            value, _ = json.JSONDecoder(parse_constant=lambda _: None).raw_decode(attempt, start)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def parse_json(text: str, notes: Notes) -> RasReport:
    """Return the report of an answer in JSON; if it is cut off, an empty one and a warning."""
    value = json_of(text)
    if not isinstance(value.get("communicators"), list):
        notes.warn("the JSON of RAS is incomplete: nothing of it can be read")
        return RasReport()
    about = json_object(value, "ras")
    report = RasReport(
        nccl=_text(value.get("nccl_version")),
        cuda_runtime=_whole(value.get("cuda_runtime_version")),
        cuda_driver=_whole(value.get("cuda_driver_version")),
        time=_text(value.get("timestamp")),
        seconds=json_number(about.get("collection_time_sec")),
        timeouts=_whole(about.get("timeouts_count")) or 0,
        complete=True,
    )
    for one in value["communicators"]:
        communicator = _communicator(one) if isinstance(one, dict) else None
        if communicator is None:
            notes.warn("a communicator without a hash is left out")
        else:
            report.communicators[communicator.name] = communicator
    _totals(report)
    return report


def _communicator(value: dict[str, Any]) -> RasCommunicator | None:
    name = _text(value.get("hash"))
    if not name:
        return None
    found = RasCommunicator(name.removeprefix("0x").zfill(16)[:40], _whole(value.get("size")))
    for one in json_list(value.get("ranks")):
        rank = _place(found, one)
        if rank is None:
            continue
        for operation, number in json_object(one, "collective_counts").items():
            if (launched := _whole(number)) is not None:
                found.counts.setdefault(operation[:40], {})[rank] = launched
        status = json_object(one, "status")
        for code in (_whole(status.get("init_state")), _whole(status.get("async_error"))):
            if code is not None and code not in _FINE:
                found.errors[rank] = _ERRORS.get(code, f"NCCL result {code}")
        states = [name for name in ("finalize_called", "destroy_flag", "abort_flag") if status.get(name) is True]
        if states:
            found.states[rank] = {"finalize_called": "FINALIZE"}.get(states[-1], "ABORT")
    for one in json_list(value.get("missing_ranks")):
        rank = _place(found, one)
        if rank is not None:
            status = json_object(one, "status")
            dead = status.get("considered_dead") is True
            found.silent[rank] = "dead" if dead else "unresponsive" if status.get("unresponsive") is True else "missing"
    return found


def _place(communicator: RasCommunicator, value: Any) -> int | None:
    """Note where a rank runs; return the rank, or None if there is none."""
    found = value if isinstance(value, dict) else {}
    rank = _whole(found.get("rank"))
    if rank is None:
        return None
    gpu = _whole(found.get("nvml_dev"))
    gpu = _whole(found.get("cuda_dev")) if gpu is None else gpu
    node = (_text(found.get("host")) or "")[:255]
    communicator.places[rank] = JobPlace(rank, node, _whole(found.get("pid")), "" if gpu is None else str(gpu))
    return rank


def _totals(report: RasReport) -> None:
    """Count nodes, processes and GPUs, which the JSON does not state, and collect the processes that are silent."""
    places = {}
    for communicator in report.communicators.values():
        for rank, place in communicator.places.items():
            if place.pid is None:
                continue
            places[place.process] = place
            if rank in communicator.silent:
                dead = communicator.silent[rank] == "dead"
                process = Process(place.pid, place.node, place.gpu, dead)
                if process not in report.missing:
                    report.missing.append(process)
    if places:
        report.nodes = len({place.node for place in places.values()})
        report.processes = len({(place.node, place.pid) for place in places.values()})
        report.gpus = len({(place.node, place.gpu) for place in places.values()})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


#: Maximum number of ranks that one range may stand for.
_MOST_RANKS = 1 << 20
#: Maximum number of communicators.
_MOST_COMMUNICATORS = 65_536

_N = r"(\d{1,9})"
_VERSION = re.compile(r"NCCL version (\S{1,40}) compiled with CUDA \S{1,20}")
_CUDA = re.compile(rf"CUDA runtime version {_N}, driver version {_N}")
_TOTALS = re.compile(rf"\s*{_N}\s+{_N}\s+{_N}(?:\s+{_N}\s+{_N})?\s*")
_GATHERED = re.compile(r"Communicators\.\.\. \((\d{1,9}(?:\.\d{1,9})?)s\)")
_ROW = re.compile(
    rf"\s*{_N}\s+{_N}\s+{_N}\s+(\d{{1,9}}(?:-\d{{1,9}})?)\s+{_N}\s+{_N}\s+([A-Z,/]{{2,60}})\s+([A-Z,]{{2,60}})\s*"
)
_PROCESS = re.compile(rf"Process {_N} on node (\S{{1,255}}) managing GPUs? (.{{1,200}})")
_GPU = re.compile(r"([\d,]{1,200})(?: \(NVML ([\d,]{1,200})\))?")
_COMMUNICATOR = re.compile(rf"#{_N}-{_N} \(([0-9a-f]{{16}})\) (INCOMPLETE|ERROR|MISMATCH)")
_DIFFERENT = re.compile(r"Communicator ranks have different (?:(\w{1,40}) operation counts|(status))")
_WHERE = r"(?:GPUs? (.{1,200}?) managed by process (\d{1,9}) on node (\S{1,255})|\[process information not found\])"
_RANK = re.compile(
    rf"Rank {_N}(?: has (?:launched up to operation (\d{{1,18}})|(not) launched any operations|status (\w{{1,40}}))"
    rf"| reported (.{{1,200}}?))? -- {_WHERE}"
)
_TALLY = re.compile(
    rf"{_N} ranks (?:have launched up to operation (\d{{1,18}})|(have not) launched any operations"
    r"|have status (\w{1,40})|reported (.{1,200}))"
)
_MISSING = re.compile(r"The (?:missing|unknown) ranks?: ([\d,-]{1,20000})")
_TIMEOUTS = re.compile(rf"Encountered {_N} communication timeouts?")
#: Lines without a value of their own.
_KNOWN = re.compile(
    r"SERVER PROTOCOL \d+|OK|=+|Job summary|Errors|Warnings|TIMEOUT|Group +Comms +Nodes.*|# +in group.*"
    r"|Nodes +Processes.*"
    r"|\(total\) .*|per node.*|Processes +GPUs.*|per process"
    r"|Missing communicator data from \d+ (?:job process(?:es)?|ranks?)"
    r"|\d+ job process(?:es are| is) considered dead.*|\[could not find information on \d+ process(?:es)?\]"
    r"|(?:Initialization|Asynchronous) errors? on \d+ ranks?|The outlier nodes?:|Node \S+ running process(?:es)? [\d,]+"
    r"|\d+ +\d+|No communicator data collected!|Rank \S+ has status \w+"
)


def parse_text(text: str, notes: Notes) -> RasReport:
    """Return the report of a text; lines that are not of it are noted."""
    parser = _Parser(notes)
    for line in plain_lines(text):
        if line.strip():
            parser.line(line)
    report = parser.report
    if not report.complete:
        notes.warn("the report is cut off: it has no section Warnings")
    return report


class _Parser:
    def __init__(self, notes: Notes) -> None:
        self.report = RasReport()
        self._notes = notes
        self._section = ""
        self._dead = False
        self._communicator: RasCommunicator | None = None
        self._kind = ""
        self._operation: str | None = None
        self._value: int | str | None = None

    def line(self, line: str) -> None:
        """Take one line in."""
        text = line.strip()
        if text in ("Errors", "Warnings"):
            self._section = text
            self._communicator = None
            self.report.complete = text == "Warnings"
        elif text in ("INCOMPLETE", "DEAD"):
            self._dead = text == "DEAD"
        elif found := _COMMUNICATOR.fullmatch(text):
            self._begin(found)
        elif not (self._head(text) or self._member(text) or _KNOWN.fullmatch(text)):
            self._notes.puzzled(line)

    def _head(self, text: str) -> bool:
        """Take in a line of the summary, the table or the processes; return whether it is one."""
        report = self.report
        if found := _VERSION.fullmatch(text):
            report.nccl = found[1]
        elif found := _CUDA.fullmatch(text):
            report.cuda_runtime, report.cuda_driver = int(found[1]), int(found[2])
        elif found := _GATHERED.fullmatch(text):
            report.seconds = float(found[1])
            self._section = "Communicators"
        elif found := _ROW.fullmatch(text):
            number, communicators, nodes, size, ranks = map(int, found.group(1, 2, 3, 5, 6))
            report.groups.append(RasGroup(number, communicators, nodes, found[4], size, ranks, found[7], found[8]))
        elif not self._section and (found := _TOTALS.fullmatch(text)):
            # The last row of a table of outliers has the totals.
            last = (found[4], found[5]) if found[4] else (found[2], found[3])
            report.nodes, report.processes, report.gpus = int(found[1]), int(last[0]), int(last[1])
        elif found := _PROCESS.fullmatch(text):
            self.report.missing.append(Process(int(found[1]), found[2], _gpus(found[3]), self._dead))
        elif found := _TIMEOUTS.match(text):
            report.timeouts = int(found[1])
        else:
            return False
        return True

    def _begin(self, found: re.Match[str]) -> None:
        self._kind, self._operation, self._value = found[4], None, None
        known = self.report.communicators
        if found[3] not in known and len(known) >= _MOST_COMMUNICATORS:
            self._communicator = None
            return
        size = next((row.ranks_per_communicator for row in self.report.groups if row.number == int(found[1])), None)
        self._communicator = known.setdefault(found[3], RasCommunicator(found[3], size))

    def _member(self, text: str) -> bool:
        """Take in a line about ranks of a communicator; return whether it is one."""
        communicator = self._communicator
        if communicator is None:
            return False
        if found := _DIFFERENT.fullmatch(text):
            self._operation, self._value = None if found[2] else found[1], None
        elif found := _MISSING.fullmatch(text):
            for rank in _listed(found[1]):
                communicator.silent.setdefault(rank, "missing")
        elif found := _TALLY.fullmatch(text):
            self._value = _value(found.group(2, 3, 4, 5))
            if self._operation and isinstance(self._value, int):
                communicator.tallies.setdefault(self._operation, {})[self._value] = int(found[1])
        elif found := _RANK.fullmatch(text):
            self._rank(communicator, found)
        else:
            return False
        return True

    def _rank(self, communicator: RasCommunicator, found: re.Match[str]) -> None:
        rank = int(found[1])
        if found[8]:
            communicator.places[rank] = JobPlace(rank, found[8], int(found[7]), _gpus(found[6]))
        value = _value(found.group(2, 3, 4, 5))
        # A line without a value is a member of the tally above it.
        value = self._value if value is None else value
        if self._kind == "INCOMPLETE":
            dead = any(one.dead and one.pid == communicator.place(rank).pid for one in self.report.missing)
            communicator.silent[rank] = "dead" if dead else "missing"
        elif self._kind == "ERROR":
            communicator.errors[rank] = str(value or "an error")
        elif isinstance(value, int):
            communicator.counts.setdefault(self._operation or ANY, {})[rank] = value
        elif value is not None:
            communicator.states[rank] = value


def _value(texts: tuple[str | None, ...]) -> int | str | None:
    """Return a number of operations, a state or an error from the groups of a line."""
    launched, never, state, error = texts
    if launched:
        return int(launched)
    return 0 if never else state or error


def _gpus(text: str) -> str:
    found = _GPU.fullmatch(text)
    return (found[2] or found[1]) if found else text[:40]


def _listed(text: str) -> list[int]:
    """Return the ranks of ``1,5-7``."""
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(first) < 10 and len(last) < 10:
            end = min(int(last or first), int(first) + _MOST_RANKS - len(ranks))
            ranks += range(int(first), end + 1)
    return ranks


_IS_JSON = re.compile(r'"(?:communicators_count|missing_ranks_count|collective_counts)"\s*:')


def report_of(text: str, notes: Notes) -> RasReport:
    """Return the report of a text, which may be JSON."""
    return parse_json(text, notes) if _IS_JSON.search(text) else parse_text(text, notes)
