"""`fabtui ras` over a local link, against a service that replays recorded answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.running_job.node_evidence import addresses_of
from fabtui_node.probes.job import ras
from fabtui_node.system import run_command

from ..jobs.ras_texts import recorded
from ..jobs.rasservice import RasService, body

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def elsewhere(text: str) -> str:
    """Return a recorded answer with an address of another machine."""
    return text.replace("192.0.2.2", "198.51.100.7")


@pytest.mark.slow
def test_a_rank_is_behind(capsys: Out) -> None:
    with RasService("", elsewhere(body(recorded("skip-json.txt")))) as service:
        assert entry.main(["ras", "--address", service.address, "--wait", "0.1"]) == 1
    out = capsys.readouterr().out
    assert "AllReduce 251 of communicator f88f135d92df96f2 (2 ranks): rank 1 on 198.51.100.7 has not called it" in out
    assert "the late ranks launched nothing between two reports" in out
    assert "198.51.100.7 is the address of none of the nodes that were asked: nothing is known about it" in out
    assert "ssh 198.51.100.7 py-spy dump --pid 742" in out


@pytest.mark.slow
def test_the_node_of_the_late_rank(capsys: Out) -> None:
    """The answer has the node's name instead of its address, and what the node shows about the rank."""
    here = addresses_of({"addresses": ras.addresses()})[0]
    argv = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(argv, env={**os.environ, "RANK": "1"}, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        report = body(recorded("skip-json.txt")).replace("192.0.2.2", here)
        report = report.replace('"pid": 742', f'"pid": {child.pid}')
        with RasService("", report) as service:
            assert entry.main(["ras", "--address", service.address, "--wait", "0.1", "--json"]) == 1
        child.kill()
    found = json.loads(capsys.readouterr().out)["values"]
    name = found["ranks"][1]["node"]
    assert name != here
    assert f"rank 1 on {name} has not called it (last 250)" in found["answer"][0]
    assert any(one.startswith(f"rank 1 on {name}: sleeping in") for one in found["answer"])
    assert any(one.startswith(f"no sign of a fabric fault on {name}: ") for one in found["answer"])
    # This node needs no ssh. A tool that is not there is no next command.
    tool = any(map(run_command.find, ("py-spy", "pystack")))
    command = f"py-spy dump --pid {child.pid}" if tool else f"ps -o pid,stat,wchan:32,etime,args -p {child.pid}"
    assert found["next"] == [command]


def test_a_hang_that_ras_does_not_see_leads_to_stacks(capsys: Out) -> None:
    with RasService("", body(recorded("p2phang-json.txt"))) as service:
        assert entry.main(["ras", "--address", service.address, "--wait", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["next"] == ["fabtui stacks"]


@pytest.mark.slow
def test_a_stopped_rank_is_named(capsys: Out) -> None:
    argv = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(argv, env={**os.environ, "RANK": "31"}, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        with RasService("", body(recorded("killed-json.txt"))) as service:
            assert entry.main(["ras", "--address", service.address, "--wait", "0"]) == 0
        assert entry.main(["ras", "--address", "127.0.0.1:1"]) == 3
        child.kill()
    reported, failed = capsys.readouterr().out.split("no RAS service listens on 127.0.0.1:1", 1)
    for out in (reported, failed):
        assert "stopped (state T) on " in out
        assert str(child.pid) in out


def test_one_report_as_json(capsys: Out) -> None:
    with RasService(body(recorded("running-verbose.txt"))) as service:
        assert entry.main(["ras", "--address", service.address, "--wait", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "nccl-ras"
    assert found["file"].endswith(service.address)
    assert found["values"]["hangs"] is None
    assert found["values"]["groups"][0]["errors"] == "OK"


def test_no_service(capsys: Out) -> None:
    assert entry.main(["ras", "--address", "127.0.0.1:1", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["values"]["problems"][0]["problem"].startswith("no RAS service")


def test_a_node_that_cannot_be_reached(capsys: Out) -> None:
    argv = [
        "ras",
        "--nodes",
        "127.0.0.1",
        "--transport",
        "openssh",
        "--ssh-config",
        "/dev/null",
        "--connect-timeout",
        "1",
    ]
    assert entry.main(argv) == 3
    assert capsys.readouterr().out.startswith("127.0.0.1: ")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--address", "localhost"], "is not HOST:PORT"),
        (["--wait", "-1"], "is not a time from 0 to 600 seconds"),
        (["--wait", "x"], "is not a time from 0 to 600 seconds"),
    ],
)
def test_wrong_arguments(argv: list[str], words: str, capsys: Out) -> None:
    assert entry.main(["ras", *argv]) == 2
    assert words in capsys.readouterr().err


def test_a_long_report_comes_in_parts() -> None:
    parts: list[dict[str, object]] = []
    ras._send(parts.append, 0, ras.RasAnswer("a", "text", "x" * (ras._PART + 5)))
    assert ["x" * len(str(part["text"])) for part in parts] == ["x" * ras._PART, "x" * 5]
