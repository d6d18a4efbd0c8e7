"""Sessions that were cut short continue with what is left, in a recording that replays the whole."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands import run as command
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.model.events import Event, Measured, NodeState, SessionResumed
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds import live
from fabtui.session.feeds.replay import ReplayFeed
from fabtui.session.options import SessionOptions
from fabtui.session.resumption import NothingLeft, resumption
from fabtui.transport.link import NodeUnreachable
from tests.conftest import replayed
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import p2p_of, run

Times = Counter[tuple[Layer, str, str]]
NODES = {"a": 3, "b": 3}


def events_of(path: Path) -> list[Event]:
    return list(read_events(path))


def times_of(events: list[Event], *verdicts: Verdict) -> Times:
    """Return how often pairs, and groups of collectives, were tested in events."""
    layers = (Layer.P2P, Layer.WORLD, Layer.BUSBW)
    found = [one for event in events if isinstance(event, Measured) for one in event.measurements]
    return Counter(
        (one.layer, one.src, one.dst)
        for one in found
        if one.layer in layers and (not verdicts or one.verdict in verdicts)
    )


def cut(path: Path, out: Path, measured: int) -> Path:
    """Write the beginning of a recording, up to a number of events with measurements, and part of a line."""
    lines, count = [], 0
    for event in read_events(path):
        lines.append(json.dumps(event.to_json()) + "\n")
        count += isinstance(event, Measured)
        if count == measured:
            break
    out.write_text("".join(lines) + '{"seq":9')
    return out


async def resumed(path: Path, out: Path, script: Script) -> tuple[Model, FakeNodes]:
    options = resumption(path).options
    given = {"timeout": options.timeout, "probes": options.probes, "sizes": options.sizes}
    return await run(script, **given, record=out, resumed=path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl.gz"
    asyncio.run(run(Script(dict(NODES)), record=path))
    return path


@pytest.mark.parametrize("part", [0.0, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0])
async def test_a_session_that_was_cut_goes_on_with_what_is_left(tmp_path: Path, whole: Path, part: float) -> None:
    total = sum(isinstance(event, Measured) for event in read_events(whole))
    before = cut(whole, tmp_path / "before.jsonl", max(1, int(total * part) - 1))
    content, out = before.read_bytes(), tmp_path / "after.jsonl.gz"
    model, _ = await resumed(before, out, Script(dict(NODES)))
    assert before.read_bytes() == content, "nothing is written to the recording of the earlier part"
    events = events_of(out)
    first = events_of(before)
    assert [event.to_json() for event in events[: len(first)]] == [event.to_json() for event in first]
    assert isinstance(events[len(first)], SessionResumed)
    assert [event.seq for event in events] == list(range(len(events)))
    had = times_of(first, Verdict.OK)
    pairs = {key for key in had if key[0] is not Layer.BUSBW and had[key[0], key[2], key[1]]}
    assert not pairs & times_of(events[len(first) :]).keys(), "what had a result is not tested again"
    assert len(p2p_of(model)) == 30
    assert set(p2p_of(model).values()) == {Verdict.OK}
    assert model.exit_code == 0
    again = replayed(out)
    assert p2p_of(again) == p2p_of(model)
    assert times_of(events).keys() == times_of(events_of(whole)).keys()
    assert [str(end) for end in again.endpoints] == [f"{node}:{n}" for node in "ab" for n in range(3)]


@pytest.mark.slow
async def test_what_failed_or_was_lost_is_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETURN_PATIENCE", 0.3)
    before, out = tmp_path / "before.jsonl.gz", tmp_path / "after.jsonl.gz"
    # The node dies in the sweep, and a pair fails.
    script = Script(dict(NODES), silent={(0, 1)}, dies_after={"b": 2})
    async with asyncio.timeout(60):
        await run(script, record=before, probes=("p2p",))
    left = resumption(before)
    assert 0 < left.left < left.pairs == 30
    assert left.missing == ()
    model, _ = await resumed(before, out, Script(dict(NODES)))
    assert set(p2p_of(model).values()) == {Verdict.OK}
    assert len(p2p_of(model)) == 30
    assert model.untested == {}
    assert diagnose(model).findings == []
    again = times_of(events_of(out)[len(events_of(before)) :])
    assert again[Layer.P2P, "a:0", "a:1"] == 1


async def test_a_node_that_never_came_joins_with_all_of_its_pairs(tmp_path: Path) -> None:
    before, out = tmp_path / "before.jsonl.gz", tmp_path / "after.jsonl.gz"
    gone = {"b": NodeUnreachable("auth", "refused")}
    await run(Script(dict(NODES), unreachable=gone), record=before, probes=("p2p",))
    assert resumption(before).missing == ("b",)
    model, _ = await resumed(before, out, Script(dict(NODES)))
    assert len(p2p_of(model)) == 30
    assert model.nodes["b"].state is NodeState.READY


async def test_a_pair_without_its_largest_size_is_left(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl.gz"
    await run(
        Script(dict(NODES)), record=whole, probes=("p2p",), layers=("p2p",), sizes=(1 << 20, 4 << 20), bytes=4 << 20
    )
    events = [event for event in read_events(whole) if isinstance(event, Measured)]
    small = sum(all((one.asked_bytes or 0) <= 1 << 20 for one in event.measurements) for event in events)
    before = cut(whole, tmp_path / "before.jsonl", small)
    assert resumption(before).left == 30


async def test_a_replay_does_not_wait_for_the_break(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl.gz", tmp_path / "after.jsonl.gz"
    await run(Script(dict(NODES)), record=whole, probes=("p2p",))
    before = cut(whole, tmp_path / "before.jsonl", 2)
    lines = [json.loads(line) for line in before.read_text().splitlines()[:-1]]
    day = 86400.0
    early = tmp_path / "early.jsonl"
    early.write_text("".join(json.dumps({**line, "time": line["time"] - day}) + "\n" for line in lines))
    await resumed(early, out, Script(dict(NODES)))
    feed = ReplayFeed(out, 100.0)
    async with asyncio.timeout(30):
        await feed.run()
    assert len(p2p_of(feed.model)) == 30


def text(path: Path, **start: Any) -> Path:
    """Write a recording with a start event alone, and return its path."""
    options = {**SessionOptions(hosts=("a", "b")).recorded(), **start.pop("options", {})}
    event = {"kind": "start", "nodes": ["a", "b"], "version": "0.2.0", "options": options, "seq": 0, "time": 1e9}
    path.write_text(json.dumps(event | start) + "\n")
    return path


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"version": "0.1.0"}, "recorded by fabtui 0.1.0, and this is"),
        ({"options": {"novel": 1}}, "the option 'novel' cannot be used"),
        ({"options": {"timeout": "soon"}}, "the option 'timeout' cannot be used"),
        ({"options": {"timeout": -1}}, "the option 'timeout' cannot be used"),
        ({"options": {"transport": "telnet"}}, "the option 'transport' cannot be used"),
        ({"options": {"hosts": ["-oProxyCommand=x"]}}, "begins with '-'"),
        ({"options": {"hosts": []}}, "names no nodes"),
        ({"options": {"probes": ["p2p", "exploit"]}}, "has none of the recorded probes or layers"),
        ({"options": {"looks_only": True}}, "no tests of pairs to continue"),
        ({"options": {"probes": ["ping"]}}, "no tests of pairs to continue"),
        ({"options": {"compare": ["X", ["0", "1"]]}}, "a comparison (--ab)"),
        ({"options": {"env": ["NCCL_DEBUG"]}}, "give them again: --env NCCL_DEBUG=..."),
        ({"options": {"via": "sh -c evil {node}", "transport": "via"}}, "--via 'sh -c evil {node}'"),
        ({"options": {"ssh_config": "/tmp/evil"}}, "--ssh-config /tmp/evil"),
        ({"options": {"placements": {"a": ["--task-prolog=evil"]}}}, "srun --task-prolog=evil"),
        ({"options": {"wrap": "sh -c 'evil\x1b[2J\n' {node}"}}, "would have this used: --wrap"),
        ({"options": {"remote_python": "/tmp/evil"}}, "--remote-python /tmp/evil"),
        ({"options": {"host_key_policy": "off"}}, "--host-key-policy off"),
        ({"options": {"hosts": ["a;touch x"]}}, "is not a host name"),
        ({"options": {"placements": {"$(x)": ["--jobid=1"]}}}, "is not a host name"),
        ({"options": {"hosts": "a"}}, "the option 'hosts' cannot be used"),
    ],
)
def test_what_cannot_be_continued_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: dict[str, Any], expected: str
) -> None:
    assert entry.main(["resume", str(text(tmp_path / "r.jsonl", **start)), "--text"]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


async def test_a_finished_session_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl.gz"
    await run(Script(dict(NODES)), record=whole)
    with pytest.raises(NothingLeft, match="nothing is left to test: all 30 pairs have results"):
        resumption(whole)


def test_a_recording_that_is_still_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    journal = Journal(path)
    journal.append(read_events(text(tmp_path / "other.jsonl")))
    with pytest.raises(InputError, match="a session is still recording to it"):
        resumption(path)
    journal.close()
    assert resumption(path).missing == ("a", "b")


def test_the_command_runs_without_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, out = tmp_path / "whole.jsonl.gz", tmp_path / "after.jsonl.gz"
    asyncio.run(run(Script(dict(NODES)), record=whole))
    before, real = cut(whole, tmp_path / "before.jsonl", 6), live.LiveFeed
    monkeypatch.setattr(command, "LiveFeed", lambda options: real(options, FakeNodes(Script(dict(NODES)))))
    csv = tmp_path / "pairs.csv"
    assert entry.main(["resume", str(before), "--text", "--record", str(out), "--csv", str(csv), "--ascii"]) == 0
    printed = capsys.readouterr()
    assert " pairs left to test\n" in printed.err
    assert f"recorded in {out}\n" in printed.out
    assert csv.read_text().count(",p2p,") == 30
