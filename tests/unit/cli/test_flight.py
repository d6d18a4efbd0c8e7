"""`fabtui flight` on this machine: ranks that write recorded dumps through their FIFO, and ranks that do not."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui_node.probes.job import flight
from fabtui_node.system import run_command

from ..probes.places import SAMPLES

PROGRAM = Path(__file__).parents[1] / "jobs" / "flight_rank.py"
Out = pytest.CaptureFixture[str]


class Ranks:
    """Processes that act like ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Other ranks may run on this machine.
        self.words = ["flight", "--pipe", f"{folder}/fr"]
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, dump: Path) -> subprocess.Popen[bytes]:
        variables = {"RANK": str(rank), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{self.folder}/fr"}
        variables["TORCH_FR_DUMP_TEMP_FILE"] = f"{self.folder}/trace_"
        argv = [sys.executable, str(PROGRAM), str(dump)]
        process = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = Ranks(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        with process:
            pass


@pytest.mark.slow
def test_a_send_that_was_not_called(ranks: Ranks, capsys: Out) -> None:
    """RAS shows nothing of this job; the flight recorder names the rank."""
    for rank in range(2):
        ranks.start(rank, SAMPLES / "ras" / f"p2phang-fr_{rank}.pickle")
    assert entry.main([*ranks.words, "--yes", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["values"]
    assert "recv 3 of default_pg: rank 0 waits in recv from rank 1 at rank.py:23; rank 1 on " in found["answer"][0]
    assert found["answer"][0].endswith(" has not called send")
    assert any(sentence.startswith("rank 1 on ") for sentence in found["answer"])
    tool = any(map(run_command.find, ("py-spy", "pystack")))
    command = "py-spy dump --pid" if tool else "ps -o pid,stat,wchan:32,etime,args -p"
    assert found["next"] == [f"{command} {ranks.processes[1].pid}"]
    assert [path.partition(":")[2] for path in found["files"]] == [f"{ranks.folder}/trace_{rank}" for rank in range(2)]


@pytest.mark.slow
def test_a_stopped_rank_and_one_with_code(ranks: Ranks, capsys: Out, tmp_path: Path) -> None:
    """The third rank's file is a pickle that would run code."""
    code = tmp_path / "code"
    code.write_bytes(pickle.dumps({"entries": [print]}))
    ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    stopped = ranks.start(1, SAMPLES / "ras" / "live-fr_1.pickle")
    ranks.start(2, code)
    stopped.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
    assert entry.main([*ranks.words, "--yes", "--within", "4"]) == 1
    out = capsys.readouterr().out
    assert "it wrote no dump: the process is stopped (state T)" in out
    assert "contains more than plain values" in out
    assert f"kill -CONT {stopped.pid}" in out


@pytest.mark.slow
def test_ranks_write_only_after_a_yes(ranks: Ranks, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert entry.main(ranks.words) == 2
    assert "standard input is not a terminal: add --yes" in capsys.readouterr().err
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert entry.main(ranks.words) == 130
    assert "1 rank on" in capsys.readouterr().err
    assert not list(ranks.folder.glob("trace_*"))


def test_no_rank_has_a_recorder(ranks: Ranks, capsys: Out) -> None:
    argv = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"]
    child = subprocess.Popen(argv, env={**os.environ, "RANK": "3"}, stdout=subprocess.PIPE)
    ranks.processes.append(child)
    assert child.stdout is not None
    child.stdout.readline()
    assert entry.main([*ranks.words, "--json"]) == 3
    (problem,) = json.loads(capsys.readouterr().out)["values"]["problems"]
    assert "no rank has a FIFO of the flight recorder; start the job with TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in problem


def test_what_is_no_fifo_is_not_written_to(tmp_path: Path) -> None:
    """A FIFO without a reader would block a writer, and a link may lead anywhere."""
    fifo, file, link = (tmp_path / name for name in ("fifo", "file", "link"))
    os.mkfifo(fifo)
    file.write_text("kept")
    link.symlink_to(file)
    assert flight.trigger(str(fifo)) == "cannot open its FIFO: No such device or address"
    assert flight.trigger(str(file)) == "its FIFO is another file, or that of another user"
    assert str(flight.trigger(str(link))).startswith("cannot open its FIFO: ")
    assert str(flight.trigger(str(tmp_path / "none"))).startswith("cannot open its FIFO: ")
    assert file.read_text() == "kept"


def test_names_of_dumps() -> None:
    assert flight.prefixes({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/a/x_", "HOME": "/h"}) == ["/a/x_"]
    newer = {"TORCH_FR_DUMP_TEMP_FILE": "/b/", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/a/x_"}
    assert flight.prefixes(newer) == ["/b/"]
    in_home = ["/h/.cache/torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_"]
    assert flight.prefixes({"HOME": "/h"}) == in_home
    assert flight.prefixes({"HOME": "/h", "XDG_CACHE_HOME": "/c"})[0] == "/c/torch/comm_lib_trace_rank_"
    assert flight.prefixes({}) == ["/tmp/nccl_trace_rank_"]


def test_the_ranks_of_two_jobs_are_not_mixed(ranks: Ranks, capsys: Out) -> None:
    ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    ranks.folder = ranks.folder / "other"
    ranks.folder.mkdir()
    ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    assert entry.main(["flight", "--yes"]) == 2
    assert "several jobs with a flight recorder run there; choose one with --pipe: " in capsys.readouterr().err
