"""One knowledge behind every door: the same fault has the same finding in all commands and outputs.

A fault is one file of the folder ``faults``, with its evidence for each door. Where that is made of samples, it is a
row of `FAULTS`. Behind each door the same rule or entry of the error catalogue comes first, with the same cause and a
fitting command. A rule that logs or outputs of commands show as well needs its fault.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.job.flight_recorder import answer
from fabtui.export.json import as_json
from fabtui.history.components import Component, PartKind
from fabtui.history.file import DAY, HistoryWriter, Noted, PartShare, SessionEntry, UsualValue, history_file
from fabtui.history.query import past_of
from fabtui.importers.formats.job_dumps import dump_of
from fabtui.importers.session import read_session
from fabtui.importers.sources import sources
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    Event,
    InventoryUpdate,
    JobEvidence,
    Measured,
    NodeGrowth,
    PlanUpdate,
    ProbeResult,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.report.summary import summary
from fabtui.session.event_pipeline import Journal
from fabtui_node.parsers.nvidia import topo
from fabtui_node.parsers.nvidia.values import parse_errors, problem_text
from tests.unit.importers.places import output_of, start_of

Capture = pytest.CaptureFixture[str]
#: Start of the sessions (epoch seconds).
_BEGAN = 1_700_000_000.0
SAMPLES = Path(__file__).parents[2] / "samples"
#: Codes of rules and of the catalogue, as all texts print them.
_CODE = re.compile(r"\b(?:FT\d{3}|E\d{1,2}|J\d{2})\b")
_ERROR_CODE = re.compile(r"means: (E\d{1,2}),|: (E\d{1,2}) ")
#: The rule of a finding, which may name others: at the end of its title, or behind its severity.
_RULE = re.compile(r"  ((?:FT|J)\d{2,3})$|^- (?:bad|warn|note), ((?:FT|J)\d{2,3}) ", re.MULTILINE)
NCCL_LINE = "n060:71:93 [3] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
WARN = "n060:71:93 [3] NCCL WARN "


class Pair(NamedTuple):
    error: str
    kind: str | None = None


class Fault(NamedTuple):
    """A fault: what comes first behind every door, and its evidence.

    Attributes:
        name: Name of the fault.
        first: Id of the rule, or code of the entry in the catalogue of errors.
        cause: What the cause is, in the words that each door has.
        command: Words of a next command.
        pair: A failed pair of a session.
        transport: Transport of the pairs of node ``b``, or within it, beside a faster one of the others.
        env: Variables of the login environment of node ``b``.
        facts: Values of probes of node ``a``.
        log: Lines of a log for ``explain``, ``read`` (with a version line of NCCL before them) and ``job``.
        output: Output of a command for ``explain`` and ``read``.
        doors: Doors for logs that this error has besides ``explain``.
        past: Earlier sessions of the site.
        dumps: Samples of dumps of the ranks of a running job.
        grew: Counters of node ``a`` that grew while pairs were tested.
    """

    name: str
    first: str
    cause: str
    command: str
    pair: Pair | None = None
    transport: tuple[str, str] | None = None
    env: Mapping[str, str] = {}
    facts: Mapping[str, dict[str, Any]] = {}
    log: str = ""
    output: str = ""
    doors: tuple[str, ...] = ("read", "job")
    past: tuple[SessionEntry, ...] = ()
    dumps: tuple[str, ...] = ()
    grew: Mapping[str, int] = {}

    @property
    def log_of_nccl(self) -> str:
        return f"{NCCL_LINE}{self.log}" if self.log else self.output


def _lines(value: list[str]) -> str:
    return "".join(f"{line}\n" for line in value)


def _fault(path: Path) -> Fault:
    """Read a fault: its fields by name, texts as lines, and ``sample`` for an output that is one."""
    value = json.loads(path.read_text())
    output = _lines(value.pop("output", ()))
    if sample := value.pop("sample", None):
        output = (SAMPLES / sample).read_text()
    pair = Pair(*value.pop("pair")) if "pair" in value else None
    return Fault(**{**value, "log": _lines(value.get("log", ()))}, pair=pair, output=output)


def _links(gpu: int, dark: tuple[int, ...] = ()) -> dict[str, Any]:
    links = [{"link": at, "state": "inactive" if at in dark else "active", "speed": 26.5} for at in range(18)]
    return {"index": gpu, "name": "NVIDIA H100 80GB HBM3", "links": links}


def _link_lines(dark: tuple[int, ...]) -> str:
    lines = []
    for gpu in range(3):
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu}0000000-0000-0000-0000-000000000000)")
        lines += [f"\t Link {at}: {'<inactive>' if gpu == 2 and at in dark else '26.562 GB/s'}" for at in range(18)]
    return "\n".join(lines) + "\n"


def _smi(printed: str) -> dict[str, dict[str, Any]]:
    """Return the facts of a node whose ``nvidia-smi`` prints an error, as the probe ``gpus`` gives them."""
    return {"gpus": {"gpus": [], "problems": [problem_text(error) for error in parse_errors(printed)]}}


def _query(old: str, new: str) -> str:
    text = start_of((SAMPLES / "h200x8/nvidia-smi-q.txt").read_text())
    assert old in text
    return text.replace(old, new, 1)


def _past(
    part: Callable[[int], Component], share: Callable[[int], float] = lambda day: 1.0, found: Container[int] = ()
) -> tuple[SessionEntry, ...]:
    """Return sessions of the 20 days before, of one part; on some days a rule found it slow."""
    sessions = []
    for day in range(20):
        one, started = part(day), _BEGAN - (20 - day) * DAY
        noted = Noted("slow", "FT021", "warn", one, one.place, f"{one.place} was slow")
        session = SessionEntry(str(day), started, started + 60, "", "0.3.0", tuple("abc"), 6, 0, "", "")
        shares = [PartShare(one, "p2p same-rail", share(day), 0)]
        sessions.append(replace(session, components=[one], shares=shares, findings=[noted] if day in found else []))
    return tuple(sessions)


_DSCPS = {str(priority): list(range(8 * priority, 8 * priority + 8)) for priority in range(8)}
_QOS = {"ca": "mlx5_0", "port": 1, "interface": "eth0", "trust": "dscp", "dscp": _DSCPS, "pfc": [3], "class": 24}
_TOPOLOGY = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n" + "".join(
    "\t".join([f"GPU{at}", *("X" if at == to else "SYS" if 2 in (at, to) else "NV18" for to in range(4)), "0-31"])
    + "\n"
    for at in range(4)
)


FAULTS = [
    *map(_fault, sorted(Path(__file__).with_name("faults").glob("*.json"))),
    Fault(
        "GPU without some NVLinks",
        "FT120",
        "16 of the 18 NVLinks that other GPUs have are active: 4, 7 inactive",
        "nvidia-smi nvlink -s",
        facts={"nvlink": {"gpus": [_links(0), _links(1), _links(2, (4, 7))]}},
        output=_link_lines((4, 7)),
    ),
    Fault(
        "NVLink fabric not completed",
        "FT123",
        "the NVLink fabric is in progress",
        "Fabric",
        facts={"gpus": {"gpus": [{"index": 0, "fabric": {"state": "in progress"}}]}},
        output=_query("State                                          : Completed", "State : In Progress"),
    ),
    Fault(
        "GPU without any NVLink",
        "FT120",
        "GPU2 without NVLink, which the 3 other GPUs have with each other (NV18)",
        "nvidia-smi nvlink -s",
        facts={"topology": {"matrix": topo.parse_topology(_TOPOLOGY).values}},
        output=_TOPOLOGY,
    ),
    Fault(
        "GPU that does not answer",
        "E44",
        "the GPU has fallen off the bus",
        "dmesg | grep -i xid",
        facts=_smi("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error"),
        output="Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
    ),
    Fault(
        "lost GPU",
        "E44",
        "the GPU has fallen off the bus",
        "dmesg | grep -i xid",
        facts=_smi("Unable to determine the device handle for GPU0: 0000:3B:00.0: GPU is lost.  Reboot the system"),
        output="Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system\n",
    ),
    Fault(
        "driver that does not run",
        "E45",
        "the NVIDIA driver is not loaded on this node",
        "lsmod | grep nvidia",
        facts=_smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        output="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    ),
    Fault(
        "RoCE class without flow control",
        "FT150",
        "priority 0, which has no PFC; priority 3 has it",
        "mlnx_qos -i",
        facts={"rdma": {"qos": [_QOS]}},
        output=output_of("mlnx-qos") + "Global tclass=24\n",
    ),
    Fault(
        "GPU that degrades",
        "FT401",
        "bandwidth (p2p same-rail) fell from 100 % to 50 % of what is usual",
        "fabtui history 'a:1'",
        past=_past(lambda day: Component(PartKind.GPU, "GPU-1", "a:1"), lambda day: 0.5 if day >= 12 else 1.0),
    ),
    Fault(
        "finding that comes back",
        "FT402",
        "b mlx5_0/1 was slow",
        "FT021 came back: 3 times in 11 days",
        past=_past(lambda day: Component(PartKind.PORT, "0x1", "b mlx5_0/1"), found=(3, 4, 8, 13)),
    ),
    Fault(
        "fault that moved with a GPU",
        "FT404",
        "a:0 was slow",
        "moved with the GPU from c:0",
        past=_past(lambda day: Component(PartKind.GPU, "GPU-1", "c:0" if day < 10 else "a:0"), found=range(20)),
    ),
    Fault(
        "fault that moved with a cable",
        "FT404",
        "a mlx5_0/1 was slow",
        "moved with the cable from c mlx5_0/1",
        past=_past(
            lambda day: Component(PartKind.CABLE, "SN1", "c mlx5_0/1" if day < 10 else "a mlx5_0/1"), found=range(20)
        ),
    ),
]


class Reported(NamedTuple):
    """First finding behind a door: its id, and all its text with commands."""

    first: str
    text: str


def _paths(fault: Fault) -> list[str]:
    return [str(SAMPLES / "ras" / name) for name in fault.dumps]


def _files(fault: Fault, folder: Path) -> list[str]:
    if fault.dumps:
        return _paths(fault)
    file = folder / "pasted.txt"
    file.write_text(fault.log_of_nccl)
    return [str(file)]


def events(fault: Fault) -> list[Event]:
    """Return the events of a session of three nodes with two GPUs each that has the fault."""
    ends = [
        Endpoint(at, *one, kind="gpu", rail=one[1], address=f"10.{one[1]}.0.{at + 1}")
        for at, one in enumerate((node, index) for node in "abc" for index in range(2))
    ]
    found: list[Event] = [SessionStart(nodes=list("abc"), options={"probes": ["p2p"]}, time=_BEGAN)]
    for node in "abc":
        value = {"ib": [{"ca": "mlx5_0", "port": 1, "state": "Active"}], "env": dict(fault.env) if node == "b" else {}}
        found.append(InventoryUpdate(node=node, value=value, time=_BEGAN))
        if fault.transport:
            links = [{"index": at, "links": [{"link": 0, "state": "active"}]} for at in range(2)]
            found.append(ProbeResult(node=node, probe="nvlink", value={"gpus": links}, time=_BEGAN))
    found += [ProbeResult(node="a", probe=probe, value=value, time=_BEGAN) for probe, value in fault.facts.items()]
    found += [EndpointsAdded(endpoints=ends, time=_BEGAN), PlanUpdate(slow_below=0.7, time=_BEGAN)]
    if fault.dumps:
        dumps = {at: dump_of(source.text) for at, source in enumerate(sources(_paths(fault)))}
        known = {rank: dump for rank, dump in dumps.items() if dump is not None}
        found.append(JobEvidence(node="", source="flight", value=answer(known).evidence(), time=_BEGAN))
    for node in "abc" if fault.grew else ():
        grew = {"TcpOutSegs": 900, **(fault.grew if node == "a" else {})}
        found.append(NodeGrowth(node=node, phase="p2p", seconds=9.0, grew=grew, time=_BEGAN))
    rows = [_measured(fault, str(src), str(dst)) for src in ends for dst in ends if src is not dst]
    return [*found, Measured(measurements=rows, time=_BEGAN + 1)]


def _measured(fault: Fault, src: str, dst: str) -> Measurement:
    inside = src[0] == dst[0]
    usual, value = "P2P/CUMEM" if inside else "NET/IB/0/GDRDMA", 350.0 if inside else 45.0
    if fault.pair and (src, dst) == ("a:0", "b:0"):
        extra = {"error_kind": fault.pair.kind} if fault.pair.kind else None
        error = fault.pair.error
        return Measurement(
            Layer.P2P, src, dst, Verdict.FAILED, None, "GB/s", 1 << 28, _BEGAN + 1, error=error, extra=extra
        )
    if fault.transport and inside == fault.transport[0].startswith("P2P"):
        usual = fault.transport["b" in (src[0], dst[0])]
    return Measurement(Layer.P2P, src, dst, Verdict.OK, value, "GB/s", 1 << 28, _BEGAN + 1, transport=usual)


#: Name of the last fault and its diagnosis, which three doors show.
_last: list[tuple[str, Diagnosis]] = []


def diagnosed(fault: Fault) -> Diagnosis:
    if not _last or _last[0][0] != fault.name:
        model = Model()
        for one in events(fault):
            model.apply(one)
        model.past = past_of(model)
        _last[:] = [(fault.name, diagnose(model))]
    return _last[0][1]


def of_diagnosis(found: Diagnosis) -> Reported:
    first = found.all_findings[0]
    return Reported(first.code or first.rule.id, "\n".join([title(first), *evidence(first), *first.next]))


def of_text(text: str) -> Reported:
    """Return what a text names first: in a list of findings the block of the first, else the first code of errors."""
    if listed := re.search(r"\n *findings: (.*)", text, re.DOTALL):
        block = re.split(r"\n\s*(?:2 |\n)", listed[1], maxsplit=1)[0]
    else:
        block = text[text.index("earliest cause: ") if "earliest cause: " in text else text.index("note: ") :]
    code = _ERROR_CODE.search(block) or _RULE.search(block) or _CODE.search(block)
    assert code is not None, text
    return Reported(next(filter(None, (*code.groups(), code[0]))), block)


def _session(fault: Fault, folder: Path, out: Capture) -> Reported:
    return of_diagnosis(diagnosed(fault))


def _recording(fault: Fault, folder: Path, out: Capture) -> Reported:
    journal = Journal(folder / "session.jsonl.gz")
    journal.append(events(fault))
    journal.close()
    return of_diagnosis(diagnose(read_session(str(folder / "session.jsonl.gz"))))


def _json(fault: Fault, folder: Path, out: Capture) -> Reported:
    return _of_findings(as_json(diagnosed(fault))["findings"])


def _summary(fault: Fault, folder: Path, out: Capture) -> Reported:
    return of_text(summary(diagnosed(fault)))


def _report(fault: Fault, folder: Path, out: Capture) -> Reported:
    journal = Journal(folder / "session.jsonl.gz")
    journal.append(events(fault))
    journal.close()
    entry.main(["report", str(folder / "session.jsonl.gz"), "-o", "-"])
    _, _, text = out.readouterr().out.partition("## Findings")
    past = text.partition("## Earlier sessions")[2].partition("\n## ")[0]
    assert bool(fault.past) == (f" {fault.first} " in past)
    block = re.split(r"\n### ", text)[1]
    code = _ERROR_CODE.search(block) or _RULE.search(block) or _CODE.search(block)
    assert code is not None, text
    return Reported(next(filter(None, (*code.groups(), code[0]))), block)


def _history(fault: Fault, folder: Path, out: Capture) -> Reported:
    assert entry.main(["history", "--since", "2023-01-01", "--json"]) == 0
    first = json.loads(out.readouterr().out)["standouts"][0]
    return Reported(first["rule"], first["title"])


def _explain(fault: Fault, folder: Path, out: Capture) -> Reported:
    file = folder / "pasted.txt"
    file.write_text(fault.log or fault.output)
    assert entry.main(["explain", str(file)]) == 0
    return of_text("\n" + out.readouterr().out)


def _read(fault: Fault, folder: Path, out: Capture) -> Reported:
    assert entry.main(["read", *_files(fault, folder)]) == 0
    return of_text(out.readouterr().out)


def _read_json(fault: Fault, folder: Path, out: Capture) -> Reported:
    assert entry.main(["read", "--json", *_files(fault, folder)]) == 0
    return _of_findings(json.loads(out.readouterr().out)["findings"])


def _job(fault: Fault, folder: Path, out: Capture) -> Reported:
    (folder / "n060.err").write_text(fault.log)
    entry.main(["job", "--logs", str(folder), "--json", "--no-links"])
    first = json.loads(out.readouterr().out)["findings"][0]
    assert first["next"].startswith("fabtui explain "), "which prints the command"
    code = _ERROR_CODE.search("\n".join(first["evidence"]))
    assert code is not None, first
    return Reported(next(filter(None, code.groups())), "\n".join(first["evidence"]))


def _asked(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the body of what an assistant is answered; skip where its package is not installed."""
    from tests.unit.mcp import assistant

    async def silent(passed: float, step: str) -> None: ...

    body: dict[str, Any] = asyncio.run(assistant.door().call(tool, arguments, silent))["data"]
    return body


def _of_findings(findings: list[dict[str, Any]]) -> Reported:
    first = findings[0]
    code = first["facts"].get("code") or first["id"]
    return Reported(code, "\n".join([first["title"], *first["evidence"], *first["next"]]))


def _assistant_findings(fault: Fault, folder: Path, out: Capture) -> Reported:
    journal = Journal(folder / "session.jsonl.gz")
    journal.append(events(fault))
    journal.close()
    return _of_findings(_asked("findings", file=str(folder / "session.jsonl.gz"))["findings"])


def _assistant_explain(fault: Fault, folder: Path, out: Capture) -> Reported:
    file = folder / "pasted.txt"
    file.write_text(fault.log or fault.output)
    return of_text("\n" + "\n".join(_asked("explain", files=[str(file)])["lines"]))


def _assistant_read(fault: Fault, folder: Path, out: Capture) -> Reported:
    # Copies: a checkout may be in a hidden folder, whose files assistants may not read.
    copies = [str(shutil.copy(path, folder)) for path in _paths(fault)]
    given: dict[str, Any] = {"files": copies} if fault.dumps else {"text": fault.log_of_nccl}
    return _of_findings(_asked("read", **given)["results"][0]["findings"])


Door = Callable[[Fault, Path, Capture], Reported]


def _doors(fault: Fault) -> Iterator[Door]:
    if fault.pair or fault.transport or fault.facts or fault.past or fault.dumps or fault.grew:
        yield from (_session, _recording, _json, _summary, _report, _assistant_findings)
    if fault.past:
        # No log and no output of a command has earlier sessions.
        yield _history
        return
    if fault.grew:
        return
    if not fault.dumps:
        yield from (_explain, _assistant_explain)
    if fault.output or "read" in fault.doors:
        yield from (_read, _read_json, _assistant_read)
    if fault.log and "job" in fault.doors:
        yield _job


@pytest.mark.parametrize(
    ("fault", "door"),
    [
        pytest.param(fault, door, id=f"{fault.name.replace(' ', '-')}-{door.__name__[1:]}")
        for fault in FAULTS
        for door in _doors(fault)
    ],
)
def test_the_same_finding_stands_first_behind_every_door(
    fault: Fault, door: Door, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    if fault.past:
        HistoryWriter(history_file()).add(fault.past)
    found = door(fault, tmp_path, capsys)
    assert found.first == fault.first, found.text
    shown = " ".join(found.text.replace("`", "").replace("\\", "").split())
    assert fault.cause in shown
    assert door in (_job, _history) or fault.command in shown


def test_a_version_that_changed_what_is_usual_is_named_once_by_each_view_of_the_history(
    tmp_path: Path, capsys: Capture
) -> None:
    sessions = _past(lambda day: Component(PartKind.NODE, "machine-a", "a"))
    values = [46.0, 46.1] * 5 + [42.0] * 10
    usual = [[UsualValue("p2p same-rail", 1 << 28, value)] for value in values]
    HistoryWriter(history_file()).add(
        replace(one, versions={"driver": "580" if day >= 10 else "570"}, usual=usual[day])
        for day, one in enumerate(sessions)
    )
    journal = Journal(tmp_path / "session.jsonl.gz")
    journal.append(events(FAULTS[0]))
    journal.close()
    title = "what is usual changed on 2023-11-04 with driver 570 -> 580: p2p same-rail -9 %"
    since = ["--since", "2023-01-01"]
    for words in (["history", *since], ["history", *since, "--csv"], ["report", str(journal.path), "-o", "-"]):
        entry.main(words)
        printed = capsys.readouterr().out.replace("\\", "")
        assert (printed.count(title), printed.count("FT405")) == (1, 1), printed
    entry.main(["history", *since, "--json"])
    (step,) = json.loads(capsys.readouterr().out)["version_steps"]
    assert step == {"since": "2023-11-04T22:13:20.000Z", "rule": "FT405", "title": title}
    (asked,) = _asked("history", since="2023-01-01")["version_steps"]
    assert asked == step


def test_at_least_sixteen_faults_are_seen_through_several_doors() -> None:
    assert len(FAULTS) >= 16
    assert all(len(list(_doors(fault))) >= 6 for fault in FAULTS)
