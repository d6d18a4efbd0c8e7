"""Many node sides by one srun, with a program in place of srun that starts them on this machine."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.transport.link import Link, LinkLost, NodeUnreachable
from tests.wire import fakeside, sshd

#: Plays srun --label --verbose: a task for each node of the list, and the reports about them. In the folder, ``bad``
#: names a node whose task cannot be launched, and ``address`` is where tasks look for this machine.
SRUN = """\
#!{python}
import os, pathlib, re, subprocess, sys, threading, time
folder = pathlib.Path({folder!r})
words = sys.argv[sys.argv.index("--") + 1:]
nodes = [word for word in sys.argv if word.startswith("--nodelist=")][0].partition("=")[2].split(",")
with open(folder / "steps", "a") as steps:
    steps.write(",".join(nodes) + "\\n")
def read(name, default=""):
    return (folder / name).read_text() if (folder / name).exists() else default
if len(nodes) == 1:
    os.execv(words[0], words)
def report(text):
    os.write(2, (text + "\\n").encode())
def pass_on(number, stream):
    for line in stream:
        report("%d: %s" % (number, line.decode().rstrip()))
tasks = dict()
for number, node in enumerate(nodes):
    report("srun: launching StepId=1.0 on host %s, 1 tasks: %d" % (node, number))
    if node == read("bad"):
        continue
    environment = dict(os.environ, SLURMD_NODENAME=node, SLURM_PROCID=str(number))
    environment["SLURM_LAUNCH_NODE_IPADDR"] = read("address", "127.0.0.1")
    task = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    threading.Thread(target=pass_on, args=(number, task.stderr), daemon=True).start()
    tasks[number] = task
    report("srun: launch/slurm: _task_start: Node %s, 1 tasks started" % node)
if len(tasks) < len(nodes):
    time.sleep(0.5)
    report("srun: error: Task launch for StepId=1.0 failed on node %s: Communication connection failure" % read("bad"))
    time.sleep(60)
while tasks:
    for number, task in list(tasks.items()):
        if task.poll() is None:
            continue
        del tasks[number]
        how = "Exited with exit code %d" % task.returncode if task.returncode > 0 else "Killed"
        report("srun: error: %s: task %d: %s" % (nodes[number], number, how if task.returncode else "Completed"))
    time.sleep(0.02)
"""
NODES = [f"n{number}" for number in range(6)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "srun"
    tool.write_text(SRUN.replace("{python}", sys.executable).replace("{folder!r}", repr(str(tmp_path))))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def connector(folder: Path, reach_for: Callable[..., Any]) -> Callable[..., Any]:
    placements = {node: ("--jobid=1", f"--nodelist={node}") for node in NODES}

    def make(**more: Any) -> Any:
        settings = {"transport": "srun", "srun_tree": "on", "job": "1", "placements": placements}
        return reach_for(None, **{**settings, "remote_python": sys.executable, **fakeside.options(), **more})

    return make


async def opened(reach: Any) -> dict[str, Any]:
    found = await asyncio.gather(*(reach.open(node) for node in NODES), return_exceptions=True)
    return dict(zip(NODES, found, strict=True))


async def closed(links: dict[str, Any]) -> None:
    await asyncio.gather(*(link.close() for link in links.values() if isinstance(link, Link)))


def steps(folder: Path) -> list[str]:
    return (folder / "steps").read_text().split()


async def test_one_srun_starts_the_node_sides_of_all_nodes(folder: Path, connector: Callable[..., Any]) -> None:
    links = await opened(connector())
    try:
        assert {name: link.hello["config"]["node"] for name, link in links.items()} == {n: n for n in NODES}
        assert steps(folder) == [",".join(NODES)]
        assert await fakeside.exchange(links["n3"], 20_000_000) == []
        pids = [link.hello["pid"] for link in links.values()]
    finally:
        await closed(links)
    for pid in pids:
        await sshd.wait_gone(pid)


async def test_a_node_that_ends_costs_only_itself(connector: Callable[..., Any]) -> None:
    links = await opened(connector())
    try:
        await links["n2"].send({"t": "exit", "text": "no memory\n", "status": 3})
        await links["n4"].send({"t": "stderr", "text": "a warning\n"})
        with pytest.raises(LinkLost, match="ended with status 3: no memory"):
            await links["n2"].receive()
        for name in ("n0", "n5"):
            assert await fakeside.exchange(links[name], 100) == []
        os.kill(links["n1"].hello["pid"], signal.SIGKILL)
        with pytest.raises(LinkLost, match="Killed"):
            await links["n1"].receive()
        assert "a warning" in links["n4"].stderr_tail()
    finally:
        await closed(links)


async def test_a_node_where_no_task_starts_costs_only_itself(folder: Path, connector: Callable[..., Any]) -> None:
    (folder / "bad").write_text("n4")
    links = await opened(connector())
    try:
        error = links.pop("n4")
        assert isinstance(error, NodeUnreachable)
        assert "slurmd does not answer" in error.text
        assert all(isinstance(link, Link) for link in links.values()), links
        assert steps(folder) == [",".join(NODES), "n0,n1,n2,n3,n5"]
        assert await fakeside.exchange(links["n0"], 100) == []
    finally:
        await closed(links)


async def test_nodes_that_do_not_reach_this_machine_get_steps_of_their_own(
    folder: Path, connector: Callable[..., Any]
) -> None:
    (folder / "address").write_text("256.0.0.1")
    reach = connector()
    links = await opened(reach)
    try:
        assert all(isinstance(link, Link) for link in links.values()), links
        assert sorted(steps(folder)) == sorted([",".join(NODES), *NODES])
        (notice,) = reach.notices
        assert "nodes cannot reach this machine, so each gets a step of its own" in notice
        assert "256.0.0.1 port" in notice
    finally:
        await closed(links)


async def test_the_reason_of_a_task_that_ends_at_once_is_its_own(connector: Callable[..., Any]) -> None:
    found = await opened(connector(remote_python="/no/such/python"))
    assert {error.kind for error in found.values()} == {"no-python"}
    assert all("tried: /no/such/python" in error.text for error in found.values())


async def test_a_stranger_at_the_port_gets_nothing(connector: Callable[..., Any]) -> None:
    reach = connector()
    links = await opened(reach)
    try:
        port = reach.step_tree._server.sockets[0].getsockname()[1]
        step = next(iter(reach.step_tree._groups))
        for first in (f"{step} n1 1 {'0' * 32}\n", "GET / HTTP/1.1\r\n", "x" * 5000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{first}{'0' * 64}\n".encode())
            answer = await asyncio.wait_for(reader.read(), 30)
            assert b"modules" not in answer
            assert len(answer) < 200
            writer.close()
        assert await fakeside.exchange(links["n1"], 100) == []
    finally:
        await closed(links)
