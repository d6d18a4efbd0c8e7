"""Texts with instructions in names, messages and logs: each is quoted as data in an answer, and changes nothing."""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabtui.mcp import tools
from fabtui.mcp.tools import MOST_BYTES, NOTE
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    Event,
    InventoryUpdate,
    LogEntry,
    Measured,
    NodeUpdate,
    PlanUpdate,
    ProbeResult,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds.live import LiveFeed
from tests.unit.session.fakenodes import FakeNodes, Script

from .assistant import assistant
from .instructions import GROUPS, UNFIT, shown

#: Characters of the name of a GPU that a line about it has.
_KEPT = 50


class Place(NamedTuple):
    """A place for a text: what a node, a job or a file gives there, and the tool whose answer has it."""

    tool: str
    arguments: Callable[[str, Path], dict[str, Any]]
    kept: Callable[[str], list[str]] = lambda text: [shown(text)]


def _written(text: str, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return str(path)


def _hostlike(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", shown(text)).strip("-")


def _recording(text: str, folder: Path) -> str:
    path = folder / "session.jsonl.gz"
    if not path.exists():
        folder.mkdir()
        journal = Journal(path)
        journal.append(_session(text))
        journal.close()
    return str(path)


def _session(text: str) -> list[Event]:
    ends = [Endpoint(at, node, 0, kind="gpu", name=text, rail=0) for at, node in enumerate("ab")]
    port = {"port": 1, "state": "Down", "physical_state": "Polling", "rate": 400.0, "link_layer": "InfiniBand"}
    xid = {"kind": "xid", "code": 79, "bus": "0000:9b:00", "count": 1, "first": 1.5, "last": 1.5, "text": text}
    failed = Measurement(Layer.P2P, "a:0", "b:0", Verdict.FAILED, None, "GB/s", 1 << 28, 2.0, error=text)
    return [
        SessionStart(nodes=["a", "b", "c", text], options={"probes": ["p2p"]}, time=1.0),
        NodeUpdate(node="c", state="failed", text=f"the server refused: {text}", time=1.0),  # type: ignore[arg-type]
        LogEntry(level="info", text=f"printed at login: {text}", node="a", time=1.0),
        InventoryUpdate(node="a", value={"ib": [{"ca": text, "port": 1}], "driver": text}, time=1.0),
        ProbeResult(node="a", probe="slurm", value={"state": "drained", "reason": text}, time=1.0),
        ProbeResult(node="a", probe="kernel", value={"readable": "yes", "counts": [xid]}, time=1.0),
        ProbeResult(node="a", probe="ibstat", value={"cas": [{"ca": text, "type": text, "ports": [port]}]}, time=1.0),
        EndpointsAdded(endpoints=ends, time=1.0),
        PlanUpdate(slow_below=0.7, time=1.0),
        Measured(measurements=[failed], time=2.0),
    ]


def _nccl(text: str) -> str:
    line = f"{_hostlike(text)}:71:93 [3] NCCL"
    return (
        f"{line} INFO NCCL version 2.28.9+cuda12.9\n{line} WARN Call to ibv_create_cq failed with error "
        f"Cannot allocate memory errno 12 {shown(text)}\n"
    )


def _ibstat(text: str) -> str:
    return (
        f"CA '{shown(text)}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n"
        "\t\tPhysical state: Polling\n\t\tRate: 10\n\t\tBase lid: 0\n\t\tSM lid: 0\n\t\tLink layer: InfiniBand\n"
    )


#: Places that a session has: what is around the text in its answer.
IN_SESSION = {
    "name of a node": "{}",
    "name of a GPU": "2 x {}",
    "name of a NIC": "{}/1: Down",
    "drain reason": "drained in Slurm: {}",
    "Xid": "GPU has fallen off the bus, at 0000:9b:00: {}",
    "banner": "the server refused: {}",
    "error of a pair": "{}",
}
PLACES = {
    "session": Place(
        "findings",
        lambda text, folder: {"file": _recording(text, folder)},
        lambda text: [
            around.format(shown(text)[: None if "{}/" in around else _KEPT]) for around in IN_SESSION.values()
        ],
    ),
    "pair": Place("pair", lambda text, folder: {"pair": "a:0>b:0", "file": _recording(text, folder)}),
    "message of NCCL": Place("explain", lambda text, folder: {"text": _nccl(text)}),
    "Xid": Place(
        "explain", lambda text, folder: {"text": f"[   12.5] NVRM: Xid (PCI:0000:9b:00): 79, pid=7, {text}\n"}
    ),
    "log of a job": Place("job", lambda text, folder: {"logs": [_written(_nccl(text), folder / "logs" / "n060.err")]}),
    "host name": Place("read", lambda text, folder: {"text": _nccl(text)}, lambda text: [_hostlike(text)]),
    "job name": Place(
        "read",
        lambda text, folder: {
            "text": f"JobId=4711 JobName={shown(text)}\n   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A\n"
            "   JobState=RUNNING Reason=None Dependency=(null)\n   NodeList=n060\n"
        },
        # A word with an equals sign begins the next field of Slurm.
        lambda text: [re.split(r" \S+=", shown(text))[0]],
    ),
    "NIC name": Place("read", lambda text, folder: {"text": _ibstat(text)}),
    "file": Place("read", lambda text, folder: {"files": [_written(_nccl(text), folder / "nccl.log")]}),
}


def strings(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of an answer, names of fields too, with the field of the answer that it is in."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield field, name
            yield from strings(inner, field or name)
    elif isinstance(value, list):
        if value and all(isinstance(inner, str) for inner in value):
            # Texts of several lines are lists of lines.
            yield field, " ".join(" ".join(value).split())
        for inner in value:
            yield from strings(inner, field)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
async def test_each_text_arrives_as_data_and_nothing_else_happens(
    group: str, tmp_path: Path, started: list[Any]
) -> None:
    async with assistant() as one:
        offered = await one.offered()
        for number, text in enumerate(GROUPS[group]):
            for place, (tool, arguments, kept) in PLACES.items():
                found = await one.ask(tool, **arguments(text, tmp_path / str(number)))
                where = (text, place, found)
                fields = set()
                for expected in kept(text):
                    holding = {field for field, words in strings(found) if expected in words}
                    assert holding, (expected, *where)
                    fields |= holding
                assert fields <= set(found["untrusted"]), where
                assert not [words for _, words in strings(found) if UNFIT.search(words)], where
                assert len(json.dumps(found, ensure_ascii=False).encode()) <= MOST_BYTES, where
                assert found["note"] == NOTE, "the words of the server itself are the same for all texts"
        assert await one.offered() == offered, "the same tools, with the same words about them"
    assert not started


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
async def test_a_refusal_has_words_of_a_recording_in_quotes_alone(
    group: str, tmp_path: Path, started: list[Any]
) -> None:
    async with assistant("--nodes", "a,b,c") as one:
        for number, text in enumerate(GROUPS[group]):
            file = _recording(text, tmp_path / str(number))
            for tool, arguments in (
                ("findings", {"file": file}),
                ("pair", {"pair": "a:0>b:0", "file": file}),
                ("diff", {"before": file, "after": file}),
            ):
                refusal = await one.refusal(tool, **arguments)
                quoted = re.findall(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", refusal)
                start = shown(text)[:20]
                assert start in "".join(map(ast.literal_eval, quoted)), refusal
                for words in quoted:
                    refusal = refusal.replace(words, "")
                assert start not in refusal
                assert not UNFIT.search(refusal)
    assert not started


def _spoken(texts: Sequence[str]) -> Script:
    xids = [{"kind": "xid", "code": 79, "bus": "0000:9b:00", "count": 1, "text": text} for text in texts]
    ports = [{"ca": text, "port": 1, "state": "Active"} for text in texts]
    gpus = [{"index": 0, "name": texts[0], "uuid": "GPU-a-0", "processes": [{"pid": 7, "name": texts[1], "user": "a"}]}]
    return Script(
        {"a": 1, "b": 1},
        inventory={"a": {"gpus": gpus, "ib": ports, "driver": texts[2], "env": {"NCCL_IB_HCA": texts[3]}}},
        probe_results={"a": {"kernel": {"readable": "yes", "counts": xids}, "host": {"fails": texts[4]}}},
    )


async def test_a_node_that_gives_instructions_is_asked_what_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for group in GROUPS.values() for text in group]
    asked = []
    for words in (texts, [f"mlx5_{number}" for number in range(len(texts))]):
        nodes = FakeNodes(_spoken(words))
        monkeypatch.setattr(tools, "LiveFeed", lambda options, nodes=nodes: LiveFeed(options, nodes))
        async with assistant("--nodes", "a,b", "--allow-tests") as one:
            found = await one.ask("preflight")
            assert shown(words[4])[:_KEPT] in json.dumps(found, ensure_ascii=False)
            await one.ask("run", probes=["p2p"], layers=["p2p"])
        sent = nodes.links["a"].sent
        asked.append(Counter((one["t"], one.get("name"), one["m"]["op"] if one["t"] == "rank" else "") for one in sent))
    assert asked[0] == asked[1]


def test_there_are_forty_texts() -> None:
    assert len({text for group in GROUPS.values() for text in group}) == 40
