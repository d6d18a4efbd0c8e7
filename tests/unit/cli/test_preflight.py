"""``fabtui preflight`` from its arguments to its exit code, over nodes that are played."""

import csv
import errno
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.cli import printing
from fabtui.cli.commands import run as foreground
from fabtui.session.feeds import live
from fabtui.transport.link import NodeUnreachable
from tests.unit.model.broken_nodes import BROKEN, HEALTHY
from tests.unit.model.cluster import host, memlock
from tests.unit.session.fakenodes import FakeNodes, Script


def play(monkeypatch: pytest.MonkeyPatch, nodes: FakeNodes) -> None:
    real = live.LiveFeed
    monkeypatch.setattr(foreground, "LiveFeed", lambda options: real(options, nodes))


def preflight(nodes: FakeNodes, *argv: str) -> int:
    record = [] if "--record" in argv else ["--no-record"]
    return entry.main(["preflight", "--nodes", ",".join(nodes.script.gpus), *record, "--quiet", *argv])


def script(**results: dict[str, Any]) -> Script:
    names = [f"n06{i}" for i in range(4)]
    wanted = {name: {"host": host(name), "firewall": {"input": "accept"}, **results.get(name, {})} for name in names}
    return Script(dict.fromkeys(names, 2), probe_results=wanted)


def test_nothing_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch, nodes := FakeNodes(script()))
    assert preflight(nodes) == 0
    out = capsys.readouterr().out
    assert out.startswith("preflight: 4 nodes inspected, no findings\n  n[060-063]  kind 2 x Fake GPU\n")
    assert "\n GPUs 2 x Fake GPU\n" in re.sub(" +", " ", out)
    assert " clock offset 0 s\n" in re.sub(" +", " ", out)
    for link in nodes.links.values():
        sent = {message["name"] for message in link.sent if message["t"] == "probe"}
        assert {"inventory", "clock", "host", "firewall", "nvlink"} <= sent
        assert not [message for message in link.sent if message["t"] in ("spawn", "rank")]


def test_the_odd_one_is_reported_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch, nodes := FakeNodes(script(n062={"host": memlock("n062", 65536)})))
    assert preflight(nodes, "--ascii") == 1
    out = capsys.readouterr().out
    head, _, rest = out.partition("\n\n")
    assert head.startswith("preflight: 4 nodes inspected, 1 bad finding\n")
    assert rest.startswith("x n062  memlock is 64 KiB in an SSH session: RDMA cannot register memory\n")
    assert "# memlock unlimited 64 KiB #" in " ".join(out.split())
    assert out.isascii()


def test_json_and_csv_hold_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    play(monkeypatch, nodes := FakeNodes(script(n062={"host": memlock("n062", 65536)})))
    assert preflight(nodes, "--json", "--csv", str(tmp_path / "facts.csv")) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "fabtui preflight"
    assert [finding["nodes"] for finding in found["findings"]] == [["n062"]]
    assert {node["name"]: node["facts"]["memlock"] for node in found["nodes"]}["n062"] == 65536
    assert found["verdicts"][1:3] == [
        {"node": "n061", "verdict": "ok", "rules": []},
        {"node": "n062", "verdict": "bad", "rules": ["FT301"]},
    ]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "facts.csv").read_text())))
    (odd,) = [row for row in rows if row["verdict"]]
    assert (odd["node"], odd["fact"], odd["value"], odd["unit"]) == ("n062", "memlock", "65536", "B")


def test_each_check_of_the_catalogue_is_in_the_verdict_of_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {f"n{rule[2:]}": {**HEALTHY, **broken} for rule, broken in BROKEN.items()}
    play(monkeypatch, nodes := FakeNodes(Script({**dict.fromkeys(results, 1), "n0": 1}, probe_results=results)))
    nodes.script.probe_results["n0"] = HEALTHY
    assert preflight(nodes, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    severe = {one["node"]: (one["verdict"], one["rules"]) for one in found["verdicts"]}
    for rule in BROKEN:
        (finding,) = [one for one in found["findings"] if one["id"] == rule]
        assert finding["nodes"] == [f"n{rule[2:]}"]
        assert finding["next"]
        assert (rule in severe[f"n{rule[2:]}"][1]) is (finding["severity"] != "note")


def test_a_variable_that_names_a_missing_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = script()
    wanted.inventory["n061"] = {"env": {"NCCL_IB_HCA": "mlx5_9"}, "ib": []}
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes, "--fail-on", "bad") == 1
    out = capsys.readouterr().out
    assert "x n061  NCCL_IB_HCA: no RDMA device mlx5_9: NCCL falls back to TCP\n" in out
    assert "next: ssh n061 env | grep NCCL_IB_HCA (needs a shell)\n" in out


@pytest.mark.parametrize(
    ("expected", "code", "line"),
    [
        (["gpus=2 x Fake GPU", "memlock=unlimited", "numa_nodes=2"], 0, None),
        (["gpus=8 x H200"], 1, "x n[060-063]  GPUs: 2 x Fake GPU, expected 8 x H200"),
        (["numa_nodes=4"], 1, "x n[060-063]  NUMA nodes: 2, expected 4"),
        (["vbios=96.00"], 3, "  n[060-063]: VBIOS: unknown, expected 96.00"),
    ],
)
def test_expected_values(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    expected: list[str],
    code: int,
    line: str | None,
) -> None:
    play(monkeypatch, nodes := FakeNodes(script()))
    assert preflight(nodes, *(f"--expect={one}" for one in expected)) == code
    assert line is None or line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("transport", "args"), [("local", {"check": False}), ("ssh", {})])
def test_a_prolog_starts_no_tool_that_takes_seconds(
    monkeypatch: pytest.MonkeyPatch, transport: str, args: dict[str, Any]
) -> None:
    play(monkeypatch, nodes := FakeNodes(Script({"n0": 2})))
    assert preflight(nodes, "--transport", transport) == 0
    sent = {message["name"]: message["args"] for message in nodes.links["n0"].sent if message["t"] == "probe"}
    assert sent["gpus"] == sent["nvlink"] == args


def test_a_node_that_lost_all_of_its_gpus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Script({"n0": 0}, inventory={"n0": {"gpus": [], "pci_gpus": []}})
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes, "--expect", "gpus=8 x H200") == 1
    assert "x n0  GPUs: none, expected 8 x H200\n" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["gpu=8", "gpus", "gpus="])
def test_an_expectation_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    play(monkeypatch, nodes := FakeNodes(script()))
    assert preflight(nodes, "--expect", text) == 2
    assert capsys.readouterr().err.startswith("fabtui: error: --expect: ")
    assert not nodes.links


@pytest.mark.parametrize(("least", "code"), [("bad", 0), ("warn", 1), ("note", 1)])
def test_only_findings_that_are_severe_enough_count(monkeypatch: pytest.MonkeyPatch, least: str, code: int) -> None:
    odd = host("n062", iommu={"state": "off"})
    play(monkeypatch, nodes := FakeNodes(script(n062={"host": odd})))
    assert preflight(nodes, "--fail-on", least) == code


def test_a_node_that_is_not_reached_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = script()
    wanted.unreachable["n061"] = NodeUnreachable("refused", "connection refused")
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes, "--json") == 3
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    assert [one["verdict"] for one in verdicts] == ["ok", "unknown", "ok", "ok"]


def test_what_was_found_is_reported_also_when_a_file_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from fabtui.atomic_write import write_text as real

    def full(path: Path, text: str) -> None:
        if path.name == "facts.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, text)

    monkeypatch.setattr(printing, "write_text", full)
    play(monkeypatch, nodes := FakeNodes(script()))
    table = tmp_path / "facts.csv"
    assert preflight(nodes, "--json", str(tmp_path / "facts.json"), "--csv", str(table)) == 2
    reported = capsys.readouterr()
    assert reported.out.startswith("preflight: 4 nodes inspected, no findings\n")
    assert f"wrote {table}" in reported.out
    assert "No space left on device" in reported.err


@pytest.mark.parametrize("kind", ["json", "recording"])
def test_a_baseline_reports_what_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "before"
    with monkeypatch.context() as patched:
        play(patched, nodes := FakeNodes(script()))
        assert preflight(nodes, "--json" if kind == "json" else "--record", str(path)) == 0
    with monkeypatch.context() as patched:
        play(patched, nodes := FakeNodes(script()))
        assert preflight(nodes, "--baseline", str(path)) == 0
        assert f"since {path}: no changes" in capsys.readouterr().out
    # All of them: nobody is the odd one, and only the earlier preflight knows better.
    less = {f"n06{i}": {"host": host(f"n06{i}", versions={"ofed": "24.10"})} for i in range(4)}
    play(monkeypatch, nodes := FakeNodes(script(**less)))
    less["n060"]["host"]["processors"]["model"] = "another"
    assert preflight(nodes, "--baseline", str(path)) == 1
    out = capsys.readouterr().out
    assert "n060  CPU: Xeon -> another" in out
    assert "OFED" not in out.partition("\nfacts")[0]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"kind": "fabtui preflight", "nodes": [3]}', "rubbish\n"])
def test_a_file_that_is_no_preflight_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert entry.main(["preflight", "--nodes", "a", "--no-record", "--baseline", str(path)]) == 2
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "--baseline" in reported


def test_a_node_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = script()
    wanted.unreachable["n063"] = NodeUnreachable("refused", "nobody listens on port 22")
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes) == 3
    assert "not inspected\n  n063: nobody listens on port 22\n" in capsys.readouterr().out


def test_a_failing_probe_is_reported_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = script()
    for name in wanted.probe_results:
        wanted.probe_results[name]["firewall"] = {"fails": "boom \x1b[31m"}
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes) == 3
    out = capsys.readouterr().out
    assert "  n[060-063]: firewall: boom [31m\n" in out
    assert "\x1b" not in out


def test_a_clock_that_is_off_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = script()
    wanted.ahead["n061"] = 30.0
    play(monkeypatch, nodes := FakeNodes(wanted))
    assert preflight(nodes) == 1
    assert "! n061  clock offset: 30 s, not about" in capsys.readouterr().out


def test_json_and_csv_do_not_go_to_the_same_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["preflight", "--nodes", "a", "--no-record", "--json", "--csv"]) == 2
    assert "the same destination" in capsys.readouterr().err


def test_run_reports_what_counts_of_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch, nodes := FakeNodes(script(n062={"host": memlock("n062", 65536)})))
    argv = ["run", "--nodes", "n060,n061,n062", "--no-record", "--quiet", "--ascii", "--probes", "host"]
    del nodes.script.gpus["n063"]
    entry.main(argv)
    out = capsys.readouterr().out
    assert "\nfindings about nodes (details: fabtui preflight)\n x n062 memlock is 64 KiB in an SSH session" in out
