"""Reports of NCCL RAS: communicators with the operations that their ranks have launched, and silent processes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabtui.diagnosis.job.who_is_behind import (
    JobPlace,
    UnmatchedOperation,
    WhoIsBehind,
    at_rank,
    causes_first,
    ranks_text,
    stack_command,
    state_command,
    suspects,
)
from fabtui.nodeset import count
from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.lines import (
    json_list,
    json_number,
    json_object,
    json_text,
    json_value,
    json_whole,
    plain_lines,
)

#: Maximum number of kinds of ranks, by their counts, that are compared with each other.
_MOST_KINDS = 64
#: NCCL 2.24 and 2.25 count all collectives together.
ANY = "collective"
#: Maximum number of silent ranks that get a sentence, and of commands.
_MOST = 4
#: What RAS counts, after ``NCCL_NUM_FUNCTIONS``.
BLIND = (
    "RAS counts Broadcast, Reduce, AllGather, ReduceScatter and AllReduce only: a hang in send or recv (pipelines,"
    " all-to-all) does not show here; flight recorder dumps and stacks show it"
)
#: What else a late rank may do, of which RAS shows nothing.
_PENDING = (
    "RAS does not count send and recv: {who} may wait in one, and then the rank that it waits for is behind; stacks and"
    " flight recorder dumps show it. A rank that is writing a checkpoint has such counts, too"
)
_FOREVER = "RAS gives up on a process after 60 s of silence, and does not notice if it resumes later"
_SILENT = {
    "dead": "RAS considers it dead",
    "unresponsive": "it does not answer RAS: it is stopped, or its node is cut off",
    "missing": "RAS has no data on it: it is stopped, busy, or its node is cut off",
}
#: A value at the end of a line and a name on the next one: no valid JSON has this without a comma.
_NO_COMMA = re.compile(r"([\d\"}\]el])([ \t]*\n[ \t]*\")")
_ERRORS = {1: "unhandled CUDA error", 2: "unhandled system error", 3: "internal error", 4: "invalid argument"}
_ERRORS |= {5: "invalid usage", 6: "remote process exited or there was a network error"}
#: ncclSuccess and ncclInProgress.
_FINE = (0, 7)
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
_IS_JSON = re.compile(r'"(?:communicators_count|missing_ranks_count|collective_counts)"\s*:')


class Process(NamedTuple):
    """A process that RAS misses; ``dead``: RAS has given it up, which it never takes back."""

    pid: int
    node: str
    gpus: str
    dead: bool


class RasGroup(NamedTuple):
    """A row of the table of communicators in the text: communicators of the same shape and state."""

    number: int
    communicators: int
    nodes: int
    ranks_per_node: str
    ranks_per_communicator: int
    ranks: int
    status: str
    errors: str


@dataclass
class RasCommunicator:
    """A communicator."""

    name: str  #: Its hash, 16 hexadecimal digits.
    size: int | None = None  #: The number of its ranks, or None.
    #: Where its ranks run, by rank, as far as the report lists them.
    places: dict[int, JobPlace] = field(default_factory=dict)
    #: How many operations a rank has launched, by operation and rank.
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    #: How many ranks have launched how many operations, by operation and number of operations. The text lists not all
    #: ranks of a tally.
    tallies: dict[str, dict[int, int]] = field(default_factory=dict)
    #: Ranks without data: ``dead``, ``unresponsive`` or ``missing``.
    silent: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)  #: What ranks report, by rank.
    #: States of ranks that differ: ``INIT``, ``NOCOMM`` and others, by rank.
    states: dict[int, str] = field(default_factory=dict)

    def place(self, rank: int) -> JobPlace:
        return self.places.get(rank, JobPlace(rank))

    def gaps(self) -> list[UnmatchedOperation]:
        """Return the operations that some ranks have launched and others have not: the lowest number is behind.

        NCCL lists the smaller side, which may be the one that is ahead.
        """
        gaps = []
        for operation, counts in self.counts.items():
            tallies = self.tallies.get(operation, {})
            numbers = {*counts.values(), *tallies}
            if len(numbers) < 2:
                continue
            low = min(numbers)
            behind = tuple(self.place(rank) for rank, number in counts.items() if number == low)
            waiting = tuple(self.place(rank) for rank, number in counts.items() if number > low)
            unlisted = max(0, tallies.get(low, 0) - len(behind))
            name = f"communicator {self.name}"
            gaps.append(
                UnmatchedOperation(operation, low + 1, name, self.size, behind, unlisted, waiting, max(numbers))
            )
        return gaps

    def diverging(self) -> list[JobPlace]:
        """Return the ranks that are ahead in one operation and behind in another, the fewest of each kind first.

        Ranks that call the same operations in the same order are never so, even if they are counted at other moments.
        """
        uneven = {name: counts for name, counts in self.counts.items() if len(set(counts.values())) > 1}
        kinds: dict[tuple[int, ...], list[int]] = {}
        for rank in sorted({rank for counts in uneven.values() for rank in counts} if len(uneven) > 1 else ()):
            kinds.setdefault(tuple(counts.get(rank, 0) for _, counts in sorted(uneven.items())), []).append(rank)
        ordered = sorted(kinds.items(), key=lambda pair: (len(pair[1]), pair[1]))[:_MOST_KINDS]
        for at, (counts, ranks) in enumerate(ordered):
            for others_counts, others in ordered[at + 1 :]:
                pairs = list(zip(counts, others_counts, strict=True))
                if any(a > b for a, b in pairs) and any(a < b for a, b in pairs):
                    # Neither of two kinds of the same size is the odd one.
                    named = ranks if len(ranks) < len(others) else [*ranks, *others]
                    return [self.place(rank) for rank in named]
        return []


@dataclass
class RasReport:
    """A report of NCCL RAS; what the report does not contain is None or empty."""

    nccl: str | None = None
    cuda_runtime: int | None = None
    cuda_driver: int | None = None
    time: str | None = None
    seconds: float | None = None
    timeouts: int = 0
    nodes: int | None = None
    processes: int | None = None
    gpus: int | None = None
    groups: list[RasGroup] = field(default_factory=list)
    communicators: dict[str, RasCommunicator] = field(default_factory=dict)
    missing: list[Process] = field(default_factory=list)
    complete: bool = False


def answer(report: RasReport, earlier: RasReport | None = None) -> WhoIsBehind:
    """Return who is behind; with an earlier report of the same job, also whether the job makes progress."""
    every = list(report.communicators.values())
    silent = [(one, rank, why) for one in every for rank, why in one.silent.items()]
    places = list({one.place(rank).process: one.place(rank) for one, rank, _ in silent}.values())
    diverging = {one.name: apart for one in every if (apart := one.diverging())}
    gaps = [gap for one in every if one.name not in diverging for gap in one.gaps()]
    growth = None if earlier is None else _growth(report, earlier)
    if growth is not None:
        # Ranks that still launch operations are late only for the moment.
        gaps = [gap for gap in gaps if not any((gap.group, place.rank) in growth for place in gap.behind)]
    gaps = causes_first(gaps)
    sentences = [*_silent(silent, report), *_errors(every)]
    sentences += [_different(report.communicators[name], apart) for name, apart in diverging.items()][:1]
    sentences += [gap.sentence() for gap in gaps[:1]]
    if len(gaps) > 1:
        sentences.append(f"{len(gaps) - 1} more counts differ; where late ranks wait elsewhere, that is a consequence")
    if not sentences:
        sentences = [_all_agree(report) if growth is None or not growth else "no rank is behind"]
    late = [place for apart in diverging.values() for place in apart] or suspects(gaps)
    if gaps and growth is not None and late and not diverging:
        sentences.append(_PENDING.format(who=ranks_text(late)))
    commands = [at_rank(place, state_command(place)) for place in places[:_MOST]]
    commands += [at_rank(place, stack_command(place)) for place in late[:_MOST]]
    if not commands and not growth:
        first = [place for one in every[:1] for place in list(one.places.values())[:2]]
        commands = [at_rank(place, stack_command(place)) for place in first]
    blind = [] if gaps or silent or growth or diverging else [BLIND]
    moves = _movement(growth, bool(gaps))
    # If nothing moves and nothing is late, the job may be idle.
    stands = True if gaps or (diverging and not growth) else False if growth else True if silent else None
    hangs = None if growth is None else stands
    named = tuple(dict.fromkeys([*places, *late]))
    return WhoIsBehind([*sentences, *moves, *blind], list(dict.fromkeys(commands)), hangs, named)


def _silent(silent: list[tuple[RasCommunicator, int, str]], report: RasReport) -> list[str]:
    found: dict[str, None] = {}
    processes: dict[Any, list[tuple[RasCommunicator, int, str]]] = {}
    for one in silent:
        place = one[0].place(one[1])
        processes.setdefault((one[0].name, one[1]) if place.pid is None else place.process, []).append(one)
    for (communicator, rank, why), *others in processes.values():
        size = "" if communicator.size is None else f" ({communicator.size} ranks)"
        more = f" and of {count(len(others), 'more communicator')}" if others else ""
        who = f"{_process(communicator.place(rank))}, rank {rank} of communicator {communicator.name}{size}{more}"
        found.setdefault(f"{who}: {_SILENT[why]}")
    if not silent:
        for process in report.missing:
            place = JobPlace(0, process.node, process.pid, process.gpus)
            found.setdefault(f"{_process(place)}: {_SILENT['dead' if process.dead else 'missing']}")
    sentences = list(found)[:_MOST]
    if len(found) > _MOST:
        sentences.append(f"{len(found) - _MOST} more ranks are silent")
    if any(why == "dead" for _, _, why in silent) or any(process.dead for process in report.missing):
        sentences.append(_FOREVER)
    return sentences


def _different(communicator: RasCommunicator, places: list[JobPlace]) -> str:
    uneven = [name for name, counts in communicator.counts.items() if len(set(counts.values())) > 1]
    shown = {place.rank: place for place in places[:_MOST]}
    for rank in communicator.counts[uneven[0]]:
        # A rank of the others, for comparison.
        if len(shown) < 2 and rank not in {place.rank for place in places}:
            shown[rank] = communicator.place(rank)
    texts = [
        f"{ranks_text([place])} has launched "
        + " and ".join(f"{name} {communicator.counts[name].get(rank, 0)}" for name in uneven)
        for rank, place in shown.items()
    ]
    size = "" if communicator.size is None else f" ({communicator.size} ranks)"
    return f"ranks are in different collectives of communicator {communicator.name}{size}: {', '.join(texts)}"


def _process(place: JobPlace) -> str:
    if place.pid is None:
        return "a process that RAS does not name"
    return f"process {place.pid} on {place.node}" + (f" (GPU {place.gpu})" if place.gpu else "")


def _errors(communicators: list[RasCommunicator]) -> list[str]:
    sentences = []
    for one in communicators:
        texts: dict[str, list[JobPlace]] = {}
        for rank, text in one.errors.items():
            texts.setdefault(text, []).append(one.place(rank))
        sentences += [f"{ranks_text(places)} of communicator {one.name}: {text}" for text, places in texts.items()]
    return sentences[:_MOST]


def _all_agree(report: RasReport) -> str:
    mismatched = [row for row in report.groups if row.errors != "OK"]
    if mismatched:
        return f"{count(sum(row.communicators for row in mismatched), 'communicator')}: {mismatched[0].errors}"
    number = len(report.communicators) or sum(row.communicators for row in report.groups)
    if not number and not report.complete:
        return "the report has no communicator, and it is cut off"
    if not number:
        return "RAS has no communicator: the job has not formed one yet, or has ended"
    counts = {
        f"{operation} {max(numbers.values())}": None
        for one in report.communicators.values()
        for operation, numbers in one.counts.items()
        if numbers and max(numbers.values())
    }
    shown = f" ({', '.join(list(counts)[:5])})" if number == 1 and counts else ""
    return f"in {count(number, 'communicator')} all ranks have launched the same number of each collective{shown}"


def _movement(growth: dict[tuple[str, int], str] | None, late: bool) -> list[str]:
    """Return whether counts grow. A job that hangs by other evidence may have launched some moments ago."""
    if growth is None:
        alone = (
            "one report does not show whether the job makes progress: counts of running ranks differ for moments;"
            " ask again"
        )
        return [alone] if late else []
    if late:
        return ["the late ranks launched nothing between two reports"]
    return [f"counts grow: {next(iter(growth.values()))}"] if growth else ["no count grew between two reports"]


def _growth(report: RasReport, earlier: RasReport) -> dict[tuple[str, int], str] | None:
    """Return what grew between two reports, by communicator and rank; None if they have no count in common."""
    grown = {}
    compared = False
    for name, one in report.communicators.items():
        before = earlier.communicators.get(name)
        for operation, counts in one.counts.items():
            old = before.counts.get(operation, {}) if before else {}
            for rank in counts.keys() & old.keys():
                compared = True
                if counts[rank] > old[rank]:
                    text = f"{operation} of communicator {name} went from {old[rank]} to {counts[rank]} on rank {rank}"
                    grown[f"communicator {name}", rank] = text
    return grown if compared else None


# Text of NCCL RAS 2.24 to 2.30: the answer to ``STATUS`` and ``VERBOSE STATUS``, also as ``ncclras`` prints it.
#
# Grammar, after ``src/ras/client_support.cc`` of these versions (``rasClientRunInit``, ``rasClientRunComms``):
#
# - ``NCCL version 2.28.9 compiled with CUDA 13.0``, ``CUDA runtime version 13000, driver version 13000``.
# - ``Job summary``: five numbers if all nodes are alike, else tables of outliers and a row of three totals.
# - ``Communicators...``: a row for each group of communicators of the same shape and state.
# - ``Errors``: ``INCOMPLETE``, ``DEAD`` with processes; ``#0-0 (hash) INCOMPLETE``, ``#0-0 (hash) ERROR`` with ranks.
# - ``Warnings``: ``TIMEOUT``; ``#0-0 (hash) MISMATCH`` with ranks.
#
# A mismatch lists ``26 ranks have launched up to operation 6650`` and below it the members of the smaller groups; a
# group of one rank is one line. 2.24 and 2.25 count all collectives together and list missing ranks as ``1,5-7``.

# JSON of NCCL RAS, from 2.28.7 on: the answer to ``SET FORMAT json`` and ``VERBOSE STATUS``.
#
# Keys after ``src/ras/client_support.cc`` (``rasDumpCommsToJSON``). 2.28.7 and 2.28.9 leave out a comma after
# ``nvml_dev`` of a missing rank. Their JSON is invalid exactly when something is wrong; the comma is put in.


def json_of(text: str) -> dict[str, Any]:
    """Return the JSON object in an answer; an empty one if none is complete."""
    plain = "\n".join(plain_lines(text))
    plain = plain[max(plain.find("{"), 0) :]
    value = json_value(plain)
    return json_object(json_value(_NO_COMMA.sub(r"\1,\2", plain)) if value is None else value)


def parse_json(text: str, notes: Notes) -> RasReport:
    """Return the report of an answer in JSON; if it is cut off, an empty one and a warning."""
    value = json_of(text)
    if not isinstance(value.get("communicators"), list):
        notes.warn("the JSON of RAS is incomplete: nothing of it can be read")
        return RasReport()
    about = json_object(value, "ras")
    report = RasReport(
        nccl=json_text(value.get("nccl_version")),
        cuda_runtime=json_whole(value.get("cuda_runtime_version")),
        cuda_driver=json_whole(value.get("cuda_driver_version")),
        time=json_text(value.get("timestamp")),
        seconds=json_number(about.get("collection_time_sec")),
        timeouts=json_whole(about.get("timeouts_count")) or 0,
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
    name = json_text(value.get("hash"))
    if not name:
        return None
    communicator = RasCommunicator(name.removeprefix("0x").zfill(16)[:40], json_whole(value.get("size")))
    for one in json_list(value.get("ranks")):
        rank = _place(communicator, one)
        if rank is None:
            continue
        for operation, number in json_object(one, "collective_counts").items():
            if (launched := json_whole(number)) is not None:
                communicator.counts.setdefault(operation[:40], {})[rank] = launched
        status = json_object(one, "status")
        for code in (json_whole(status.get("init_state")), json_whole(status.get("async_error"))):
            if code is not None and code not in _FINE:
                communicator.errors[rank] = _ERRORS.get(code, f"NCCL result {code}")
        states = [name for name in ("finalize_called", "destroy_flag", "abort_flag") if status.get(name) is True]
        if states:
            communicator.states[rank] = {"finalize_called": "FINALIZE"}.get(states[-1], "ABORT")
    for one in json_list(value.get("missing_ranks")):
        rank = _place(communicator, one)
        if rank is not None:
            status = json_object(one, "status")
            dead = status.get("considered_dead") is True
            communicator.silent[rank] = (
                "dead" if dead else "unresponsive" if status.get("unresponsive") is True else "missing"
            )
    return communicator


def _place(communicator: RasCommunicator, value: Any) -> int | None:
    """Note where a rank runs; return the rank, or None if there is none."""
    row = value if isinstance(value, dict) else {}
    rank = json_whole(row.get("rank"))
    if rank is None:
        return None
    gpu = json_whole(row.get("nvml_dev"))
    gpu = json_whole(row.get("cuda_dev")) if gpu is None else gpu
    node = (json_text(row.get("host")) or "")[:255]
    communicator.places[rank] = JobPlace(rank, node, json_whole(row.get("pid")), "" if gpu is None else str(gpu))
    return rank


def _totals(report: RasReport) -> None:
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
    match = _GPU.fullmatch(text)
    return (match[2] or match[1]) if match else text[:40]


def _listed(text: str) -> list[int]:
    """Return the ranks of ``1,5-7``."""
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(first) < 10 and len(last) < 10:
            end = min(int(last or first), int(first) + _MOST_RANKS - len(ranks))
            ranks += range(int(first), end + 1)
    return ranks


def report_of(text: str, notes: Notes) -> RasReport:
    return parse_json(text, notes) if _IS_JSON.search(text) else parse_text(text, notes)
