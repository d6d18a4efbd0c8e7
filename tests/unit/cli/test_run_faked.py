"""``fabtui run`` from its arguments to its exit code, over nodes that are played."""

import csv
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.cli.commands import run as command
from fabtui.cli.outputs import DIAGNOSIS_TEXTS
from fabtui.diagnosis import diagnosis
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.session_model import Model
from fabtui.session import watch
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds import live
from fabtui.session.options import SessionOptions
from fabtui.transport.link import Link
from tests.unit.session.fakenodes import FakeLink, FakeNodes, Script
from tests.unit.session.test_observer import activity


class ArmLink(FakeLink):
    """Ranks that are slower, over another transport, once a variable forbids the fast one."""

    slower = False

    async def send(self, message: dict[str, Any]) -> None:
        if message["t"] == "spawn":
            self.slower = message["env"].get("NCCL_P2P_DISABLE") == "1"
        await super().send(message)

    def _say(self, **message: Any) -> None:
        if message["op"] == "side" and self.slower:
            message |= {"transport": "SHM/direct", "rate": 10e9 if message["rate"] else None}
        super()._say(**message)


class ArmNodes(FakeNodes):
    async def open(self, host: str) -> Link:
        link = self.links[host] = ArmLink(host, self.script)
        return link


def run(monkeypatch: pytest.MonkeyPatch, nodes: FakeNodes, *argv: str) -> int:
    real = live.LiveFeed
    monkeypatch.setattr(command, "LiveFeed", lambda options: real(options, nodes))
    hosts = ",".join(nodes.script.gpus)
    return entry.main(["run", "--nodes", hosts, "--no-record", "--timeout", "0.5", "--quiet", "--ascii", *argv])


def test_a_comparison_shows_both_arms_and_writes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = {name: tmp_path / name for name in ("csv", "json", "table")}
    files = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    nodes = ArmNodes(Script({"a": 2, "b": 2}))
    asked = ("--ab", "NCCL_P2P_DISABLE=0,1", "--collectives", "all_reduce,alltoall", "--sizes", "1M-4M:4")
    assert run(monkeypatch, nodes, *asked, *files) == 0
    out = capsys.readouterr().out
    assert "\nworld: complete, 12 of 12 pairs ok; usual values same-node 40.0 GB/s" in out
    assert "P2P/CUMEM 50.0 GB/s  SHM/direct 10.0 GB/s  0.20x" in out
    assert "\nall_reduce\n  group  ranks   size  time us" in out
    assert "\nalltoall\n  group" in out
    assert f"wrote {paths['table']} (24 rows)" in out
    rows = list(csv.DictReader(paths["csv"].open(newline="")))
    assert sum(row["layer"] == "p2p" for row in rows) == 12
    assert sum(row["layer"] == "p2p@NCCL_P2P_DISABLE=1" for row in rows) == 12
    table = list(csv.DictReader(paths["table"].open(newline="")))
    assert {(row["kind"], row["group"], row["bytes"]) for row in table if not row["arm"]} == {
        (kind, group, str(size))
        for kind in ("all_reduce", "alltoall")
        for group in ("a", "b", "a+b")
        for size in (1 << 20, 4 << 20)
    }
    value = json.loads(paths["json"].read_text())
    assert value["comparison"] == ["NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=1"]
    assert len([m for m in value["arms"] if m["layer"] == "p2p"]) == 12


def test_findings_are_searched_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    searches: list[Model] = []
    real = diagnosis.search

    def search(model: Model, tally: Tally) -> Iterator[diagnosis.Findings | None]:
        searches.append(model)
        return real(model, tally)

    monkeypatch.setattr(diagnosis, "search", search)
    files = ["--json", str(tmp_path / "session.json"), "--report", str(tmp_path / "session.html")]
    assert run(monkeypatch, FakeNodes(Script({"a": 2, "b": 2})), "--confirm", *files) == 0
    assert len(searches) == 1


def test_collectives_run_over_numbers_of_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "json"
    asked = ("--probes", "all_reduce", "--groups", "4,2,8", "--ab", "NCCL_P2P_DISABLE=0,1", "--sizes", "1M")
    assert run(monkeypatch, ArmNodes(Script({"a": 2, "b": 2})), *asked, "--json", str(path)) == 0
    out = capsys.readouterr().out
    assert "\nall_reduce at 1 MiB, by number of GPUs, GB/s\n" in out
    value = json.loads(path.read_text())
    assert [(row["ranks"], [arm["verdict"] for arm in row["arms"]]) for row in value["group_sweep"]] == [
        (2, ["ok", "ok"]),
        (4, ["ok", "ok"]),
    ]
    texts = [line["text"] for line in value["log"]]
    assert texts.count("--groups: not tested with 8 ranks: there are 4") == 1


def test_a_pair_that_fails_alone_and_passes_inside_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = FakeNodes(Script({"a": 2, "b": 2}, silent={(0, 3)}))
    assert run(monkeypatch, nodes) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.startswith("  1 a:0 > b:1 timed out")]
    text = " ".join(line.strip() for line in lines[at : lines.index("what to do now")])
    assert text.count("transfer: no message came from a:0 within 5.0 s") == 1
    assert "pass in the world communicator" in text
    assert "ends work with other partners" in text
    assert "cross-rail" in text
    assert "\nworld, GB/s at 256 MiB; a row sends" in out


@pytest.mark.parametrize(
    ("argv", "layers"),
    [(("--layers", "world"), {"world"}), (("--layers", "p2p"), {"p2p"}), ((), {"world", "p2p"})],
)
def test_layers_are_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: tuple[str, ...], layers: set[str]
) -> None:
    path = tmp_path / "s.csv"
    nodes = FakeNodes(Script({"a": 2, "b": 1}))
    assert run(monkeypatch, nodes, "--probes", "p2p", "--csv", str(path), *argv) == 0
    assert {row["layer"] for row in csv.DictReader(path.open(newline=""))} - {"latency"} == layers


def test_what_is_asked_of_pairs_reaches_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FakeNodes(Script({"a": 4}))
    asked = ("--bytes", "1M,8M", "--bidirectional", "--mode", "quick", "--isolated", "--probes", "p2p", "--keep-warm")
    assert run(monkeypatch, nodes, *asked) == 0
    sent = [m["m"] for m in nodes.links["a"].sent if m["t"] == "rank"]
    pairs = [m for m in sent if m["op"] == "pair"]
    assert [m["bytes"] for m in pairs] == [1 << 20] * 4 + [8 << 20] * 4, "a ring of four, twice"
    assert all(m["both"] is True for m in pairs)


def test_the_options_are_those_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SessionOptions] = []

    def stop(options: SessionOptions) -> None:
        seen.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "LiveFeed", stop)
    assert entry.main(["run", "--nodes", "a", "--no-record", "--engine", "gloo"]) == 130
    assert [options.engine for options in seen] == ["gloo"]


def test_only_the_pair_that_is_named_is_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nodes = FakeNodes(Script({"a": 2, "b": 2}, silent={(0, 3)}))
    asked = ("--pair", "a:0>b:1", "--probes", "p2p", "--csv", str(tmp_path / "c"))
    assert run(monkeypatch, nodes, *asked) == 1
    rows = list(csv.DictReader((tmp_path / "c").open()))
    assert {(row["src"], row["dst"]) for row in rows} == {("a:0", "b:1"), ("b:1", "a:0")}
    out = capsys.readouterr().out
    assert "neither end passes" not in out, "nothing was tested that could show it"


def test_a_pair_of_which_an_end_is_not_there_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = FakeNodes(Script({"a": 2, "b": 2}))
    # Something else was measured, and was well: what was asked for was not tested all the same.
    assert run(monkeypatch, nodes, "--pair", "a:0>b:7", "--pair", "a:0>b:1") == 3
    assert "2 pairs: there is no endpoint b:7" in capsys.readouterr().out


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_a_recording_that_stopped_is_reported_also_when_a_file_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, number: int
) -> None:
    """The disk is full, the quota used up, or the file of an NFS server gone."""
    record, table = tmp_path / "r.gz", tmp_path / "folder" / "s.csv"
    table.parent.mkdir()
    real = live.LiveFeed
    monkeypatch.setattr(command, "LiveFeed", lambda options: real(options, FakeNodes(Script({"a": 2}))))

    def full(self: Journal, events: Iterable[dict[str, Any]]) -> None:
        if table.parent.exists():
            table.parent.rmdir()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Journal, "append", full)
    argv = ["run", "--nodes", "a", "--quiet", "--probes", "p2p", "--record", str(record), "--csv", str(table)]
    assert entry.main(argv) == 2
    reported = capsys.readouterr()
    assert f"RECORDING INCOMPLETE ({os.strerror(number)}): {record}" in reported.out
    assert "cannot write" in reported.err


def test_what_is_written_is_reported_also_when_another_file_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(DIAGNOSIS_TEXTS, "json", full)
    files = ("--csv", str(tmp_path / "a.csv"), "--json", str(tmp_path / "a.json"))
    assert run(monkeypatch, FakeNodes(Script({"a": 2})), "--probes", "p2p", *files) == 2
    reported = capsys.readouterr()
    assert f"wrote {tmp_path / 'a.csv'}" in reported.out
    assert "No space left on device" in reported.err


def test_watching_finds_what_breaks_after_the_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "STEP", 0.01)
    rates: dict[tuple[int, int], float | list[float]] = {(0, 1): [50e9, 1e9]}
    nodes = FakeNodes(Script({"a": 3, "b": 3}, rates=rates))
    assert run(monkeypatch, nodes, "--watch", "1.5", "--watch-rate", "100") == 1
    out = capsys.readouterr().out
    assert "a:0 > a:1" in " ".join(out.replace("->", ">").split())
    assert out.splitlines()[0] == out.splitlines()[-1] == "1 of 30 GPU pairs is bad: a:0 > a:1 2.0 % of usual"
    parts = [out.index(text) for text in ("  1 a:0 > a:1 slow", "what to do now", "p2p, GB/s at 256 MiB; a row sends")]
    assert parts == sorted(parts), "what is wrong and what to do come before the grids"


def test_a_job_on_busy_gpus_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is in the first line, the exit code, the JSON, JUnit and the report; idle GPUs are tested as before."""
    script = Script({"a": 2, "b": 2}, busy={("a", 0), ("a", 1)})
    script.probe_results["a"] = {"activity": activity("a", {0: "R", 1: "T"})}
    paths = {name: tmp_path / f"out.{name}" for name in ("json", "junit")} | {"report": tmp_path / "out.md"}
    files = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert run(monkeypatch, FakeNodes(script), *files) == 1
    out = capsys.readouterr().out
    sentence = out.splitlines()[0]
    assert sentence.startswith("the job on a (4 ranks) has been hanging for 0:0"), out
    assert sentence.endswith(": rank 1 on a:1 is stopped; next: ssh a kill -CONT 101"), out
    assert "J20" in out
    assert "b:0" in out
    found = json.loads(paths["json"].read_text())
    assert (found["exit"], found["job"]["state"], found["job"]["behind"]) == (1, "hangs", [1])
    assert {(m["src"], m["dst"]) for m in found["measurements"]} >= {("b:0", "b:1")}
    assert 'name="J20' in (junit := paths["junit"].read_text())
    assert "rank 1 on a" in junit
    assert "rank 1 on a:1 is stopped" in paths["report"].read_text()
