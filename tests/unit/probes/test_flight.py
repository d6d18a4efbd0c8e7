"""Probe `flight` on this machine: ranks that write recorded dumps through their FIFO, and ranks that do not."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.diagnosis.job.flight_recorder import answer
from fabtui.session.running_job.inquiry import Dumps, Reply, taken_from
from fabtui_node.probes.job import flight

from .places import SAMPLES

PROGRAM = Path(__file__).parents[1] / "jobs" / "flight_rank.py"


class Ranks:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Other ranks may run on this machine.
        self.job = str(os.getpid())
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, dump: Path) -> subprocess.Popen[bytes]:
        variables = {"RANK": str(rank), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{self.folder}/fr"}
        variables |= {"TORCH_FR_DUMP_TEMP_FILE": f"{self.folder}/trace_", "SLURM_JOB_ID": self.job}
        argv = [sys.executable, str(PROGRAM), str(dump)]
        process = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def dumps(self, within: float = 20.0) -> Dumps:
        reply = Reply("n060", None, [])
        value = flight.run({"job": self.job, "write": True, "within": within}, reply.parts.append, 60.0)
        return asyncio.run(taken_from([reply._replace(value=value)]))


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    found = Ranks(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        with process:
            pass


@pytest.mark.slow
def test_a_send_that_was_not_called(ranks: Ranks) -> None:
    """RAS shows nothing of this job; the flight recorder names the rank."""
    for rank in range(2):
        ranks.start(rank, SAMPLES / "ras" / f"p2phang-fr_{rank}.pickle")
    taken = ranks.dumps()
    who = answer(taken.dumps, taken.places)
    assert "recv 3 of default_pg: rank 0 waits in recv from rank 1 at rank.py:23; rank 1 on " in who.sentences[0]
    assert who.sentences[0].endswith(" has not called send")
    assert [place.pid for place in who.suspects] == [ranks.processes[1].pid]
    assert [str(path) for path in taken.files.values()] == [f"{ranks.folder}/trace_{rank}" for rank in range(2)]


@pytest.mark.slow
def test_a_stopped_rank_and_one_with_code(ranks: Ranks, tmp_path: Path) -> None:
    """The third rank's file is a pickle that would run code."""
    code = tmp_path / "code"
    code.write_bytes(pickle.dumps({"entries": [print]}))
    ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    stopped = ranks.start(1, SAMPLES / "ras" / "live-fr_1.pickle")
    ranks.start(2, code)
    stopped.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
    taken = ranks.dumps(within=4.0)
    assert list(taken.dumps) == [0]
    problems = "; ".join(taken.problems)
    assert "rank 1 on n060: it wrote no dump: the process is stopped (state T)" in problems
    assert "contains more than plain values" in problems


def test_ranks_are_listed_without_a_dump(ranks: Ranks) -> None:
    child = ranks.start(0, SAMPLES / "ras" / "live-fr_0.pickle")
    listed = flight.run({"job": ranks.job}, lambda _: None, 10.0)["ranks"]
    assert {"rank": 0, "pid": child.pid, "pipe": f"{ranks.folder}/fr0.pipe"} in listed
    assert not list(ranks.folder.glob("trace_*"))


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
