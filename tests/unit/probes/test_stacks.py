"""Stacks of ranks on a node: outputs of py-spy and pystack, the kernel's part, and which process is the rank."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.job.who_is_behind import JobPlace, RankStack, stack_tree
from fabtui.session.running_job import stack_tool
from fabtui.session.running_job.inquiry import Reply
from fabtui_node.probes.job import evidence
from fabtui_node.system import job_processes, run_command, sent_program

from .test_ras_client import process

#: py-spy 0.4.3: two threads, shortened.
PY_SPY = [
    {"pid": 7, "thread_name": "pt_nccl", "os_thread_id": 9, "frames": []},
    {
        "pid": 7,
        "thread_name": "MainThread",
        "os_thread_id": 7,
        "active": False,
        "frames": [
            {"name": "Event.wait", "filename": "/usr/lib/threading.py", "short_filename": "threading.py", "line": 629},
            {"name": "<module>", "filename": "/home/user/hang.py", "short_filename": "hang.py", "line": 5},
        ],
    },
]
#: pystack 1.x.
PYSTACK = """\
Traceback for thread 9 (pt_tcpstore_uv) [] (most recent call last):
    (Python) File "/usr/lib/threading.py", line 10, in run
Traceback for thread 7 (python) [Has the GIL] (most recent call last):
    (Python) File "/home/user/hang.py", line 5, in <module>
        main()
    (Python) File "/usr/lib/threading.py", line 629, in Event.wait
"""
FRAMES = [{"name": "Event.wait", "site": "threading.py:629"}, {"name": "<module>", "site": "hang.py:5"}]


def test_outputs_of_the_tools() -> None:
    assert evidence.parse_py_spy(json.dumps(PY_SPY), 7) == FRAMES
    assert evidence.parse_pystack(PYSTACK, 7) == FRAMES
    for text in ("", "[]", "{}", "[1]", "Error: no", '[{"frames": 1}]'):
        assert evidence.parse_py_spy(text, 7) == []
        assert evidence.parse_pystack(text, 7) == []


def listed(root: Path) -> list[tuple[int, int]]:
    return [(one["pid"], one["rank"]) for one in job_processes.find(str(root))]


def program(root: Path, pid: int, parent: int, path: str, rank: str) -> None:
    process(root, pid, parent, name="pt_main_thread", RANK=rank)
    target = root / path
    target.touch()
    (root / str(pid) / "exe").symlink_to(target)


def test_which_process_is_the_rank(tmp_path: Path) -> None:
    # A shell, a timeout, the rank, its data loader.
    for pid, name in ((10, "bash"), (11, "timeout"), (12, "python3.11"), (13, "python3.11")):
        program(tmp_path, pid, pid - 1, name, "0")
    # A rank that is not Python, and its helper.
    for pid, name in ((20, "bash"), (21, "all_reduce_perf"), (22, "helper")):
        program(tmp_path, pid, 10 if pid == 20 else pid - 1, name, "1")
    assert listed(tmp_path) == [(12, 0), (21, 1)]


@pytest.mark.parametrize("elastic", [True, False])
def test_a_launcher_in_a_step_of_slurm_is_no_rank(tmp_path: Path, elastic: bool) -> None:
    # One task per node: torchrun has the rank of its task, and starts ranks 8 and 9.
    more = {"TORCHELASTIC_RUN_ID": "7"} if elastic else {}
    process(tmp_path, 10, 1, SLURM_PROCID="1")
    (tmp_path / "10" / "cmdline").write_text(
        "python3\0/opt/bin/torchrun\0train.py" if not elastic else "python3\0-m\0x"
    )
    for pid, number in ((11, "8"), (12, "9")):
        process(tmp_path, pid, 10, SLURM_PROCID="1", RANK=number, **more)
    # A rank that Slurm has started itself, whose data loader was started with what it has set.
    process(tmp_path, 20, 1, SLURM_PROCID="3")
    (tmp_path / "20" / "cmdline").write_text("python3\0train.py")
    process(tmp_path, 21, 20, SLURM_PROCID="3", RANK="3")
    assert listed(tmp_path) == [(11, 8), (12, 9), (20, 3)]


def test_the_node_side_in_a_step_of_the_job_is_no_rank(tmp_path: Path) -> None:
    program(tmp_path, 20, 1, "/usr/bin/python3.11", "0")
    program(tmp_path, 21, 1, "/usr/bin/python3.11", "0")
    (tmp_path / "21" / "cmdline").write_text("python3\0-IS\0-c\0exec('fabtui_node')\0")
    # A command that it runs has inherited the rank of the step.
    program(tmp_path, 22, 21, "ip", "0")
    assert listed(tmp_path) == [(20, 0)]


@pytest.mark.parametrize("words", [("/opt/bin/python3", "/opt/bin/fabtui", "hang"), ("python3", "-m", "fabtui", "run")])
def test_the_controller_in_a_step_of_the_job_is_no_rank(tmp_path: Path, words: tuple[str, ...]) -> None:
    program(tmp_path, 20, 1, "/usr/bin/python3.11", "0")
    (tmp_path / "20" / "cmdline").write_text("python3\0train.py\0--out\0/data/fabtui-trial\0")
    program(tmp_path, 21, 1, "/usr/bin/python3.11", "0")
    (tmp_path / "21" / "cmdline").write_text("\0".join(words))
    program(tmp_path, 22, 21, "ssh", "0")
    assert listed(tmp_path) == [(20, 0)]


@pytest.fixture
def rank() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"],
        env={**os.environ, "RANK": "7"},
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def found(pid: int) -> dict[str, object]:
    (one,) = [one for one in evidence.run_stacks({}, lambda _: None, 20.0)["ranks"] if one["pid"] == pid]
    return one  # type: ignore[no-any-return]


def test_a_rank_without_a_tool(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "find", lambda *_, **__: None)
    one = found(rank)
    problem = "neither py-spy nor pystack is on the PATH, where others cannot change it"
    assert (one["rank"], one["state"], one["problem"]) == (7, "S", problem)
    assert isinstance(one["cpu"], float)
    assert "frames" not in one


@pytest.mark.slow
def test_a_rank_with_py_spy(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "py-spy"
    threads = json.dumps([PY_SPY[0], {**PY_SPY[1], "os_thread_id": rank}])
    script.write_text(f"#!/bin/sh\n[ \"$5\" = {rank} ] && cat <<'END'\n{threads}\nEND\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    one = found(rank)
    assert (one["frames"], one["by"]) == (FRAMES, "py-spy")
    script.write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    assert str(found(rank)["problem"]).startswith("py-spy: ")


@pytest.mark.parametrize(
    ("scope", "bound", "user", "expected"),
    [
        ("1", "1ffffffffff", 1000, ("kernel.yama.ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0")),
        ("0", "a80425fb", 1000, ("the container lacks SYS_PTRACE", "")),
        ("1", "1ffffffffff", 0, None),
    ],
)
def test_why_the_kernel_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scope: str,
    bound: str,
    user: int,
    expected: tuple[str, str] | None,
) -> None:
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(scope)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tpython3\nCapBnd:\t{bound:0>16}\n")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    refusal = evidence._refusal(str(tmp_path))
    if expected is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert expected[0] in refusal[0]
        assert refusal[1] == expected[1]


class Node:
    """A node that answers the probe ``stacks`` in this process."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, args: dict[str, Any]) -> Reply:
        self.asked.append(next(iter(args), ""))
        return Reply("n0", evidence.run_stacks(args, lambda _: None, 20.0), [])


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A node without tools, and the folder of the programs of fabtui's own environment."""
    monkeypatch.setattr(run_command, "find", lambda *_, **__: None)
    monkeypatch.setattr(sent_program, "_files", [])
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    for cached in (stack_tool._program, stack_tool.machine, stack_tool._pieces):
        cached.cache_clear()
    return tmp_path


async def test_the_py_spy_of_fabtui_is_sent_to_a_node_without_one(rank: int, bare: Path) -> None:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("py-spy is not installed")
    (bare / "py-spy").symlink_to(program)
    node = Node()
    reply = await stack_tool.stacks(node.ask)
    assert node.asked[0] == "offers"
    assert set(node.asked[1:]) == {"piece"}
    (row,) = [one for one in (reply.value or {})["ranks"] if one["pid"] == rank]
    assert (row["frames"][0]["name"], row["by"], row["sent"]) == ("<module>", "py-spy", True), row
    # It is sent once, and lies on no disk.
    await stack_tool.stacks(node.ask)
    assert node.asked.count("offers") == 2
    assert node.asked[-1] == "offers"
    assert os.readlink(str(sent_program.path())).startswith("/memfd:")


async def test_a_node_of_another_kind_is_sent_nothing(rank: int, bare: Path) -> None:
    """The file is an ELF program for a processor that is not this one."""
    machine = 183 if os.uname().machine == "x86_64" else 62
    (bare / "py-spy").write_bytes(b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little"))
    node = Node()
    reply = await stack_tool.stacks(node.ask)
    (row,) = [one for one in (reply.value or {})["ranks"] if one["pid"] == rank]
    assert node.asked == ["offers"]
    assert row["problem"].endswith(f"that of fabtui is for {stack_tool.machine()}, this node is {os.uname().machine}")


def test_stacks_are_one_tree() -> None:
    outer = ("main (train.py:9)", "<module> (train.py:20)")
    rows = [
        RankStack(JobPlace(0), ("wait (d.py:3)", "reduce (d.py:7)", *outer), "running"),
        RankStack(JobPlace(1), ("load (data.py:4)", *outer), "sleeping"),
        RankStack(JobPlace(2), ("wait (d.py:3)", "reduce (d.py:7)", *outer), "running"),
        RankStack(JobPlace(3), ("wait (d.py:5)", "reduce (d.py:7)", *outer), "running"),
        RankStack(JobPlace(4), (), "stopped"),
    ]
    tree = stack_tree(rows)
    assert [line for branch in tree for line in branch.lines()] == [
        "1:[4] stopped",
        "4:[0-3] <module> (train.py:20) > main (train.py:9)",
        "  1:[1] load (data.py:4) > sleeping",
        "  3:[0,2-3] reduce (d.py:7)",
        "    1:[3] wait (d.py:5) > running",
        "    2:[0,2] wait (d.py:3) > running",
    ]
    assert tree[1].lines(None) == ["4:[0-3] <module> (train.py:20)", "  main (train.py:9)"]


def test_bytes_of_files() -> None:
    before = job_processes.moved_bytes(os.getpid())[0]
    assert before is not None
    Path("/proc/self/status").read_text()
    assert (job_processes.moved_bytes(os.getpid())[0] or 0) > before
    assert job_processes.moved_bytes(0)[0] is None


def test_processor_time() -> None:
    assert (job_processes.processor_time("/proc", str(os.getpid())) or ("", 0))[1] > 0
    assert job_processes.processor_time("/proc", str(2**22 + 1)) is None


def test_ranks_of_other_jobs_of_slurm(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, RANK="0", SLURM_JOB_ID="12")
    process(tmp_path, 11, 1, RANK="0", SLURM_JOB_ID="13")
    process(tmp_path, 12, 1, RANK="0", SLURM_JOB_ID="15", SLURM_ARRAY_JOB_ID="14", SLURM_ARRAY_TASK_ID="3")
    process(tmp_path, 13, 1, RANK="0", SLURM_JOB_ID="21", SLURM_HET_JOB_ID="20")
    # A container may have dropped the variables of Slurm.
    process(tmp_path, 14, 1, RANK="7")
    for job, pids in (
        ("", [10, 11, 12, 13, 14]),
        ("12", [10, 14]),
        ("12,13", [10, 11, 14]),
        ("14_3", [12, 14]),
        ("15", [12, 14]),
        ("20+1", [13, 14]),
    ):
        assert [one["pid"] for one in job_processes.find(str(tmp_path), job)] == pids
