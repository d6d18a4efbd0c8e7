"""Limits of the server for assistants: nodes, tests, files, and the size of answers."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
import pytest

from fabtui.cli.main import main
from fabtui.errors import InputError
from fabtui.mcp import permission
from fabtui.mcp.permission import Permission, check_logs, checked_file, checked_files
from fabtui.mcp.tools import TOOLS

from .assistant import assistant

ALLOWED = "n[060-061]"
#: Sets that hold a node which is not allowed, or a node by a way other than the one that is allowed.
FOREIGN = (
    "n062",
    "n[060-062]",
    "n060,n061,login.example.org",
    "root@n060",
    "n060:2222",
    "N060",
    "n060.",
    "n060.evil.example",
    "127.0.0.1",
    "\uff4e060",
    "-oProxyCommand=reboot",
    "n060;reboot",
    "^/etc/hosts",
    "@`reboot`",
)
#: Arguments that lead to nodes in other ways, by tool.
INDIRECT = {
    "pair": {"pair": "n060:0>n062:0", "demo": "h200x4-lab-2x2-faults"},
    "findings": {"demo": "h200x4-lab-2x2-faults"},
    "diff": {"before": "DEMO", "after": "DEMO"},
    "history": {"subject": "n062:3"},
}
SECRET = "correct-horse-battery-staple"


def test_each_tool_is_here() -> None:
    """A new tool that takes nodes, or leads to some, has to be tested below."""
    taking = {name for name, tool in TOOLS.items() if "nodes" in tool.__struct_fields__}
    assert taking == {"preflight", "run", "hang", "job"}
    assert set(TOOLS) - taking - set(INDIRECT) == {"explain", "read", "rules"}


@pytest.fixture
def demo(tmp_path: Path) -> str:
    return str(shutil.copy(next(Path(__file__).parents[3].glob("recordings/h200x4-lab-2x2-faults*")), tmp_path))


async def test_nodes_that_are_not_allowed_are_refused_by_every_tool(started: list[Any], demo: str) -> None:
    async with assistant("--nodes", ALLOWED, "--allow-tests") as one:
        for tool in (name for name, tool in TOOLS.items() if "nodes" in tool.__struct_fields__):
            for nodes in FOREIGN:
                refusal = await one.refusal(tool, nodes=nodes)
                assert refusal.startswith("error: "), (tool, nodes)
                assert len(refusal) < 500, (tool, nodes)
        for tool, arguments in INDIRECT.items():
            given = {name: demo if value == "DEMO" else value for name, value in arguments.items()}
            assert "not allowed" in await one.refusal(tool, **given), tool
    assert not started


async def test_nodes_of_a_job_that_are_not_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '7|RUNNING|None|n[061-062]|1:00|1:00:00|ann|train'\n")
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    for name in ("squeue", "scontrol"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    async with assistant("--nodes", ALLOWED, "--allow-tests") as one:
        for tool in ("preflight", "run", "hang", "job"):
            refusal = await one.refusal(tool, jobid="7")
            assert "'n062' not allowed" in refusal, tool


async def test_tests_need_the_permission_of_the_person(started: list[Any]) -> None:
    async with assistant("--nodes", ALLOWED) as one:
        assert "--allow-tests" in await one.refusal("run", nodes="n060")
    async with assistant("--nodes", ALLOWED, "--allow-tests", "--budget", "6") as one:
        assert "budget" in await one.refusal("run", nodes="n[060-061]"), "6 s are too few for two nodes"
    assert not started


@pytest.mark.parametrize(
    "arguments",
    [
        {"nodes": "n060", "transport": "local"},
        {"nodes": "n060", "ssh_config": "/tmp/x"},
        {"nodes": "n060", "env": ["LD_PRELOAD=/tmp/x.so"]},
        {"nodes": "n060", "force": True},
        {"nodes": "n060", "all_gpus": True},
        {"nodes": "n060", "read_only": False},
        {"nodes": ["n060"]},
        {"nodes": "n060", "csv": "/tmp/x.csv"},
        {"nodes": "n060", "probes": ["./mine.py"]},
        {"nodes": "n060", "bytes": "1" * 1000},
    ],
    ids=str,
)
async def test_what_only_a_person_may_choose_is_no_argument(arguments: dict[str, Any], started: list[Any]) -> None:
    async with assistant("--nodes", ALLOWED, "--allow-tests") as one:
        assert (await one.refusal("run", **arguments)).startswith("error: ")
    assert not started


def _secrets(folder: Path) -> list[Path]:
    """Return files that no assistant is to see: an unknown text, a hidden file, and a file in a hidden folder."""
    (folder / ".ssh").mkdir()
    found = [folder / "token.txt", folder / ".netrc", folder / ".ssh" / "id_ed25519"]
    for path in found:
        path.write_text(f"password: {SECRET}\n{SECRET}\n")
    link = folder / "link.txt"
    link.symlink_to(found[-1])
    return [*found, link]


async def test_files_that_fabtui_does_not_know_are_not_quoted(tmp_path: Path, started: list[Any]) -> None:
    calls: dict[str, Callable[[str], dict[str, Any]]] = {
        "findings": lambda path: {"file": path},
        "pair": lambda path: {"pair": "a:0>b:0", "file": path},
        "diff": lambda path: {"before": path, "after": path},
        "explain": lambda path: {"files": [path]},
        "read": lambda path: {"files": [path]},
        "job": lambda path: {"logs": [path]},
        "hang": lambda path: {"logs": [path], "nodes": "n060"},
    }
    async with assistant() as one:
        for path in _secrets(tmp_path):
            for tool, arguments in calls.items():
                if tool != "hang":
                    result, text = await one.call(tool, **arguments(str(path)))
                    assert SECRET not in text, (tool, path, result)
        mixed = tmp_path / "nccl.log"
        mixed.write_text(f"a:7:9 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\npassword: {SECRET}\n")
        assert "not_examined" in (found := await one.ask("read", files=[str(mixed)]))
        assert SECRET not in json.dumps(found)


async def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with assistant() as one:
        for path in (str(fifo), "/dev/zero", "/proc/self/environ", "/proc/self/fd/0", "/dev/stdin", str(tmp_path), "-"):
            for tool, name in (("read", "files"), ("explain", "files"), ("findings", "file"), ("job", "logs")):
                given = {name: path if name == "file" else [path]}
                result, text = await one.call(tool, **given)
                assert result.is_error or tool == "job", (tool, path, text)


def test_other_nodes_are_refused_by_name() -> None:
    limited = Permission(["n0", "n1"])
    limited.check(["n1"])
    with pytest.raises(InputError, match=r"nodes: 'n\[2-3\]' not allowed; this server was started for n\[0-1\]"):
        limited.check(["n1", "n2", "n3"])
    Permission().check(["anything"])


def test_tests_spend_their_node_seconds_and_give_back_the_rest() -> None:
    allowed = Permission(tests=True, budget=100)
    with allowed.spend(["n0", "n1", "n2", "n3"], 1800) as seconds:
        assert seconds == 25
        with (
            pytest.raises(InputError, match=r"0 node seconds are left .* held by tests that still run"),
            allowed.spend(["n4"], 9),
        ):
            pass
    assert 99 < allowed.left <= 100


def test_a_node_is_tested_by_one_call_at_a_time() -> None:
    allowed = Permission(tests=True, budget=100)
    with allowed.spend(["n0", "n1"], 10):
        with pytest.raises(InputError, match="another call tests n1 now"), allowed.spend(["n1", "n2"], 10):
            pass
        with allowed.spend(["n2"], 10) as seconds:
            assert seconds == 10
    with allowed.spend(["n0"], 10):
        pass


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("preflight", {}, "no nodes given; use nodes n060,n061, jobid ID or"),
    ("preflight", {"nodes": "a,"}, "nodes: an empty name in 'a,'"),
    ("preflight", {"nodes": " "}, "the nodes of a Slurm job: jobid 4711"),
    ("preflight", {"nodes": "a", "exclude": "a"}, "exclude leaves no node"),
    ("preflight", {"nodes": "a.example", "exclude": "a"}, "exclude: a is not in the node set, but a.example is"),
    ("preflight", {"nodes": "a", "expect": ["gpus"]}, "expect: 'gpus' is not FACT=VALUE"),
    ("preflight", {"jobid": "x"}, "jobid: 'x' is not a job id"),
    ("run", {"nodes": "a,b", "bytes": "x"}, "bytes: 'x' is not a size"),
    ("run", {"nodes": "a,b", "pair": ["a:0>c:0"]}, "pair: 'c:0': there is no c among the nodes"),
    ("run", {"nodes": "a,b", "probes": ["host"], "confirm": True}, "confirm needs the probe p2p, which probes leaves"),
    ("run", {"nodes": "a,b", "layers": ["world"], "isolated": True}, "isolated applies to the layer p2p, which layers"),
    ("hang", {"jobid": "1 2"}, "jobid: '1 2' is not a job id"),
    ("job", {}, "no job given; use jobid 4711, or logs FOLDER for logs without Slurm"),
    ("job", {"jobid": "x"}, "jobid: 'x' is not a job id"),
    ("job", {"jobid": "1,2"}, "jobid: one job at a time"),
    ("job", {"logs": ["/nowhere"]}, "logs: no logs were found: /nowhere"),
    ("job", {"logs": ["/nowhere", "/nor/here"]}, "logs: no such file or folder: /nowhere"),
    ("job", {"jobid": "\u0661"}, "is not a job id"),
    ("explain", {"text": "x" * (1 << 20)}, "explain: Expected `str` of length <= 524288 - at `$.text`"),
    ("explain", {"files": ["/x"] * 65}, "explain: Expected `array` of length <= 64 - at `$.files`"),
    ("explain", {"files": []}, "explain: Expected `array` of length >= 1 - at `$.files`"),
    ("preflight", {"nodes": ["a"]}, "preflight: Expected `str`, got `array` - at `$.nodes`"),
]


@pytest.fixture(autouse=True)
def without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


async def test_a_refusal_names_the_argument_of_the_tool() -> None:
    async with assistant("--allow-tests") as one:
        for tool, arguments, why in REFUSED:
            assert why in await one.refusal(tool, **arguments), (tool, arguments)


def test_the_command_line_keeps_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["run", "--nodes", "a,b", "--bytes", "x"], "--bytes: 'x' is not a size"),
        (["job", "x"], "JOBID: 'x' is not a job id"),
        (["job", "--logs", "/nowhere"], "--logs: no logs were found: /nowhere"),
        (["job"], "no job given; use fabtui job 4711, or --logs FOLDER for logs without Slurm"),
    ):
        assert main(words) == 2
        assert why in capsys.readouterr().err, words


def test_regular_files_are_read_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("x")
    assert checked_file(str(log), "files") == log
    hidden = tmp_path / ".ssh" / "id"
    hidden.parent.mkdir()
    hidden.write_text("key")
    (tmp_path / "innocent").symlink_to(hidden)
    os.mkfifo(tmp_path / "pipe")
    for name, why in [
        (".ssh/id", "is hidden"),
        ("innocent", "is hidden"),
        ("pipe", "not a regular file"),
        ("", "not a regular file"),
        ("missing", "No such file"),
        ("a\0b", "null"),
        ("x" * 400, "too long"),
    ]:
        with pytest.raises(InputError, match=f"^files: .*{why}"):
            checked_file(str(tmp_path / name), "files")
    with pytest.raises(InputError, match="not a regular file"):
        checked_file("/proc/self/environ", "files")
    for name in (".ssh/*", "innocent"):
        with pytest.raises(InputError, match="is hidden"):
            check_logs([str(tmp_path / name)], "logs")
    monkeypatch.chdir(tmp_path)
    check_logs([str(tmp_path / "{job}.log"), "../logs/*.out"], "logs")
    monkeypatch.setattr(permission, "MOST_BYTES", 0)
    with pytest.raises(InputError, match="the maximum is 0 MiB"):
        checked_file(str(log), "files")
    monkeypatch.setattr(permission, "MOST_BYTES", 1)
    monkeypatch.setattr(permission, "MOST_TOGETHER", 1)
    assert checked_files([str(log)], "files")
    with pytest.raises(InputError, match="MiB together"):
        checked_files([str(log)] * 2, "files")


def test_the_folder_of_recordings_may_be_in_a_hidden_one(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "recordings"
    recording = folder / "a.jsonl"
    folder.mkdir(parents=True)
    recording.write_text("")
    assert checked_file(str(recording), "file", folder) == recording
    with pytest.raises(InputError, match="is hidden"):
        checked_file(str(recording), "file")
