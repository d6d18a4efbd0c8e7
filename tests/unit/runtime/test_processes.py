from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from fabtui_node.runtime import bootloader, keeper, processes, supervisor
from fabtui_node.runtime.supervisor import merged_environment


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
