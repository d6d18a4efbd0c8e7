"""Processes below the node side: how they are found and ended, what they print, which the kernel killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.session.ranks.rank_host import exit_reason
from fabtui_node.runtime import bootloader, keeper, processes, supervisor
from fabtui_node.runtime.streams import CUT, LONGEST_LINE, TAIL, LineLimit, LogPipe
from fabtui_node.runtime.supervisor import merged_environment, oom_kills


def test_descendants_are_found_downwards_only_and_without_zombies() -> None:
    table = {
        1: (0, "S"),
        10: (1, "S"),
        11: (10, "S"),
        12: (11, "R"),
        13: (11, "Z"),
        14: (13, "D"),
        20: (1, "S"),
        21: (20, "S"),
    }
    assert processes.descendants([10], table) == {11, 12, 14}
    assert processes.descendants([10, 20], table) == {11, 12, 14, 21}
    assert processes.descendants([99], table) == set()


def test_stat_is_read_past_a_hostile_command_name() -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "open('/proc/self/comm','w').write(') Z 1 ((');print(1,flush=True);import time;time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        row = processes.read_stat(child.pid)
        assert row is not None
        assert row[0] == os.getpid()
        assert row[1] in "SRD"
    finally:
        child.kill()
        child.communicate()


def test_a_process_whose_first_thread_ended_still_lives() -> None:
    code = (
        "import threading, time, ctypes\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print(1, flush=True)\n"
        "import os\n"
        "ctypes.CDLL(None).syscall(93 if os.uname().machine == 'aarch64' else 60, 0)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        until = time.monotonic() + 5
        while (processes.read_stat(child.pid) or (0, ""))[1] != "Z" and time.monotonic() < until:
            time.sleep(0.02)
        assert child.pid in processes.descendants([os.getpid()])
    finally:
        child.kill()
        child.communicate()


def test_interpreter_of_the_rank_host() -> None:
    lab = {"FABTUI_LAB_PYTHON": "/lab/python"}
    assert processes.choose_python("/configured", lab) == "/configured"
    assert processes.choose_python(None, lab) == "/lab/python"
    assert processes.choose_python(None, {}) == sys.executable
    assert processes.rank_command(None, "/p") == ["/p", "-u", "-c", bootloader.BOOT]
    assert processes.rank_command(["apptainer", "exec", "x.sif", "python3"], "/p")[:4] == [
        "apptainer",
        "exec",
        "x.sif",
        "python3",
    ]


@pytest.mark.parametrize(
    ("given", "lease"),
    [(5, 5.0), (2.5, 2.5), (0, 10.0), (-1, 10.0), (True, 10.0), ("9", 10.0), (None, 10.0), (1e12, 10.0)],
)
def test_lease_is_within_bounds(given: object, lease: float) -> None:
    assert supervisor.lease_of({"lease": given}) == lease


def test_environments_lie_over_each_other() -> None:
    assert merged_environment({"A": "1", "B": "1"}, None, {"B": "2"}) == {"A": "1", "B": "2"}
    for bad in ({"A=": "1"}, {"": "1"}, {"A": "\0"}, {"A": 1}):
        with pytest.raises(ValueError, match="environment"):
            merged_environment(bad)


def test_how_a_process_ended() -> None:
    assert keeper.exit_of(None) == (None, None)
    assert keeper.exit_of(3 << 8) == (3, None)
    assert keeper.exit_of(signal.SIGKILL) == (None, 9)


@pytest.fixture
def ends() -> Iterator[tuple[LogPipe, int]]:
    listen, write = os.pipe()
    pipe = LogPipe(listen)
    yield pipe, write
    pipe.close()


def test_lines_come_whole(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    os.write(write, b"one\ntw")
    pipe.read()
    assert pipe.lines() == ["one"]
    os.write(write, b"o\r\nthree")
    pipe.read()
    assert pipe.lines() == ["two"]
    assert pipe.lines(rest=True) == ["three"]
    assert pipe.read() == 0
    assert pipe.open
    os.close(write)
    pipe.read()
    assert not pipe.open


def test_long_lines_are_cut_and_the_next_is_whole(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    for _ in range(5):
        os.write(write, b"x" * 10000)
        pipe.read()
        assert pipe.lines() == []
    os.write(write, b"\nnext\n")
    pipe.read()
    cut, following = pipe.lines()
    assert following == "next"
    assert len(cut) == LONGEST_LINE
    assert cut.endswith(CUT)
    os.close(write)


def test_tail_is_the_end_of_what_was_printed(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    os.write(write, b"a" * 5000 + b"\xff the end")
    while pipe.read():
        pass
    assert pipe.tail().endswith("a\\xff the end")
    assert len(pipe.tail()) == TAIL
    os.close(write)


def test_limit_admits_so_many_a_second_and_counts_the_rest() -> None:
    limit = LineLimit(3)
    assert limit.note(10.0) is None
    assert [limit.admit() for _ in range(5)] == [True, True, True, False, False]
    assert limit.note(10.9) is None
    note = limit.note(11.0)
    assert note is not None
    assert "2 more lines" in note
    assert limit.admit()
    assert limit.note(12.5) is None


def test_the_kernels_count_of_killed_processes(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("nr_free_pages 7\noom_kill 3\nswap_ra 0\n")
    assert oom_kills(str(file)) == 3
    file.write_text("nr_free_pages 7\n")
    assert oom_kills(str(file)) is None, "before Linux 4.13"
    assert oom_kills(str(tmp_path / "none")) is None


def test_the_reason_takes_the_place_of_what_was_printed_last() -> None:
    ended = {"signal": 9, "code": None, "stderr": "a line\n", "why": "out of memory: oom_kill 4 in /proc/vmstat"}
    assert exit_reason("h2", ended)[0] == (
        "the rank host of h2 ended with signal 9: out of memory: oom_kill 4 in /proc/vmstat"
    )


def test_a_crash_is_not_taken_for_a_lack_of_memory() -> None:
    for number, name in ((11, "rank-host-crashed"), (9, "ranks-killed")):
        found = meaning_of(f"the rank host of h2 ended with signal {number}", kind="killed")
        assert found is not None
        assert found.id == name
        assert any("killed process" in command for _, command in found.commands) == (number == 9)
    found = meaning_of(
        "the rank host of h2 ended with signal 9: out of memory: oom_kill 4 in /proc/vmstat", kind="killed"
    )
    assert found is not None
    assert found.id == "host-out-of-memory"
