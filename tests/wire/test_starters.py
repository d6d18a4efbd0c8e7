"""Many node sides by one call, with a program in place of srun, flux, mpirun and kubectl that starts them here."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.transport.framed_link import Limits
from fabtui.transport.link import Link, LinkLost, NodeUnreachable
from fabtui.transport.starters import STARTERS
from tests.wire import fakeside, sshd

#: Plays srun --label --verbose: a task for each node of the list, and the reports about them. In the folder, ``bad``
#: names nodes whose tasks cannot be launched, and ``address`` is where tasks look for this machine. Under the names of
#: the other programs it plays these, as far as their errors differ.
SRUN = """\
#!{python}
import json, os, pathlib, re, subprocess, sys, threading, time
sys.path.insert(0, {root!r})
from fabtui.nodeset import expand_listed
folder = pathlib.Path({folder!r})
name = pathlib.Path(sys.argv[0]).name
def value(option, words=sys.argv):
    return next((word.partition("=")[2] for word in words if word.startswith(option + "=")), None)
def read(name, default=""):
    return (folder / name).read_text() if (folder / name).exists() else default
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
setting = {}
if name == "srun":
    nodes, words = expand_listed(value("--nodelist")), sys.argv[sys.argv.index("--") + 1:]
elif name == "mpirun":
    nodes, words = sys.argv[sys.argv.index("--host") + 1].split(","), sys.argv[sys.argv.index("/bin/sh"):]
elif name == "kubectl":
    text = sys.stdin.read()
    if sys.argv[1] == "delete":
        sys.exit(0)
    job = json.loads(text)["items"][-1]["spec"]
    pod = job["template"]["spec"]
    nodes = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    nodes = nodes[0]["matchExpressions"][0]["values"]
    words = pod["containers"][0]["command"]
    setting = dict((e["name"], e["value"]) for e in pod["containers"][0]["env"] if "value" in e)
elif sys.argv[1:3] == ["getattr", "hostlist"]:
    print(read("hostlist"))
    sys.exit(0)
else:
    hosts = expand_listed(read("hostlist") or value("--requires").partition(":")[2])
    ranks = value("--rank")
    nodes = [hosts[int(rank)] for rank in ranks.split(",")] if ranks else hosts
    words = sys.argv[sys.argv.index("/bin/sh"):]
with open(folder / "steps", "a") as steps:
    steps.write(",".join(nodes) + "\\n")
if len(nodes) == 1 and name == "srun":
    os.execv(words[0], words)
bad = read("bad").split()
silent = read("silent").split()
if name == "mpirun" and set(nodes) & set(bad):
    for node in bad:
        os.write(2, ("ssh: connect to host %s port 22: No route to host\\n" % node).encode())
    os.write(2, b"ORTE was unable to reliably start one or more daemons.\\nLocal host: n0\\n")
    sys.exit(1)
def report(text):
    os.write(2, (text + "\\n").encode())
def pass_on(number, stream):
    for line in stream:
        report("%d: %s" % (number, line.decode().rstrip()))
tasks = dict()
for number, node in enumerate(nodes):
    report("srun: launching StepId=1.0 on host %s, 1 tasks: %d" % (node, number))
    if node in bad or node in silent:
        continue
    environment = dict(os.environ, SLURM_PROCID=str(number), **setting)
    environment["SLURMD_NODENAME" if name == "srun" else "FABTUI_NODE"] = read("claim") or node
    environment["SLURM_LAUNCH_NODE_IPADDR"] = read("address", "127.0.0.1")
    task = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    threading.Thread(target=pass_on, args=(number, task.stderr), daemon=True).start()
    tasks[number] = task
    report("srun: launch/slurm: _task_start: Node %s, 1 tasks started" % node)
if name == "kubectl":
    sys.exit(0)
if bad and len(tasks) < len(nodes):
    time.sleep(0.5)
    for node in bad if name == "srun" else ():
        report("srun: error: Task launch for StepId=1.0 failed on node %s: Communication connection failure" % node)
    time.sleep(60 if name == "srun" else 0)
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
    text = SRUN.replace("{python}", sys.executable).replace("{folder!r}", repr(str(tmp_path)))
    for name in STARTERS:
        tool = tmp_path / {"kubernetes": "kubectl"}.get(name, name)
        tool.write_text(text.replace("{root!r}", repr(str(Path(__file__).parents[2]))))
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def connector(folder: Path, reach_for: Callable[..., Any]) -> Callable[..., Any]:
    placements = {node: ("--jobid=1", f"--nodelist={node}") for node in NODES}

    def make(**more: Any) -> Any:
        settings = {"transport": "srun", "most_apart": 1, "job": "1", "placements": placements}
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
        _, notice = reach.notices
        assert "nodes cannot reach this machine, so each gets a step of its own" in notice
        assert "256.0.0.1 port" in notice
    finally:
        await closed(links)


async def test_the_reason_of_a_task_that_ends_at_once_is_its_own(connector: Callable[..., Any]) -> None:
    found = await opened(connector(remote_python="/no/such/python"))
    assert {error.kind for error in found.values()} == {"no-python"}
    assert all("tried: /no/such/python" in error.text for error in found.values())


async def test_a_stranger_at_the_port_gets_nothing(folder: Path, connector: Callable[..., Any]) -> None:
    (folder / "silent").write_text("n5")
    reach = connector(transport="mpirun", limits=Limits(start=6.0))
    opening = asyncio.create_task(opened(reach))
    while reach.starter._server is None:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    host, port = reach.starter._server.sockets[0].getsockname()[:2]
    while not reach.starter._groups:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    step = next(iter(reach.starter._groups))
    for first in (f"{step} n5 1 {'0' * 32}\n", "GET / HTTP/1.1\r\n", "x" * 5000):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"{first}{'0' * 64}\n".encode())
        answer = await asyncio.wait_for(reader.read(), 30)
        assert b"modules" not in answer
        assert len(answer) < 200
        writer.close()
    links = await opening
    try:
        assert await fakeside.exchange(links["n1"], 100) == []
        # No node is awaited.
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(host, port)
    finally:
        await closed(links)


#: Grammar of `docs/scale.md`, as JSON.
MANIFEST = """{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "batch/v1", "kind": "Job",
"metadata": {"name": "fabtui-{number}"}, "spec": {"completions": {count}, "parallelism": {count},
"completionMode": "Indexed", "template": {"spec": {"affinity": {"nodeAffinity": {
"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
{"key": "kubernetes.io/hostname", "operator": "In", "values": {nodes}}]}]}}},
"containers": [{"command": {command}, "env": [{"name": "FABTUI_CALL_BACK", "value": {call_back}}]}]}}}}]}"""


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("flux", ["exec", "--rank=1,2,3,4,5,6", "--noinput", "--label-io"]),
        ("mpirun", ["--host", "n0,n1,n2,n3,n4,n5", "--map-by", "ppr:1:node"]),
        ("kubernetes", ["create", "--filename=-"]),
    ],
)
async def test_one_call_of_each_program_starts_all_nodes(
    folder: Path, connector: Callable[..., Any], name: str, first: list[str]
) -> None:
    (folder / "hostlist").write_text("login,n[0-5]")
    reach = connector(transport=name, manifest=MANIFEST)
    links = await opened(reach)
    try:
        assert all(isinstance(link, Link) for link in links.values()), links
        assert {node: link.hello["config"]["node"] for node, link in links.items()} == {n: n for n in NODES}
        assert steps(folder) == [",".join(NODES)]
        calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
        assert calls[-1][: len(first)] == first
        assert reach.notices == [f"one {name} starts 6 nodes, which call back to {reach.notices[0].split(' to ')[1]}"]
        await links["n2"].send({"t": "exit", "text": "no memory\n", "status": 3})
        with pytest.raises(LinkLost):
            await links["n2"].receive()
        assert await fakeside.exchange(links["n3"], 100_000) == []
    finally:
        await closed(links)
        await reach.close()
    if name == "kubernetes":
        assert '["delete", "--ignore-not-found", "--wait=false", "--filename=-"]' in (folder / "calls").read_text()


@pytest.mark.parametrize(("name", "how"), [("mpirun", "bad"), ("mpirun", "silent"), ("flux", "silent")])
async def test_nodes_that_do_not_call_are_named_and_cost_only_themselves(
    folder: Path, connector: Callable[..., Any], name: str, how: str
) -> None:
    (folder / how).write_text("n1 n4 n5")
    links = await opened(connector(transport=name, limits=Limits(start=5.0)))
    try:
        refused = {node: link.text for node, link in links.items() if isinstance(link, NodeUnreachable)}
        assert list(refused) == ["n1", "n4", "n5"], links
        assert all(("No route to host" if how == "bad" else "called back within 5 s") in t for t in refused.values())
        assert await fakeside.exchange(links["n3"], 100) == []
    finally:
        await closed({node: link for node, link in links.items() if node not in refused})


async def test_two_that_call_as_one_are_named(folder: Path, connector: Callable[..., Any]) -> None:
    (folder / "claim").write_text("n3.cluster")
    reach = connector(transport="flux", limits=Limits(start=4.0))
    links = await opened(reach)
    try:
        assert [node for node, link in links.items() if isinstance(link, Link)] == ["n3"]
        assert "called back, but another has called as this node: it is not used" in reach.notices[1]
    finally:
        await closed(links)


@pytest.mark.parametrize("name", ["flux", "mpirun"])
async def test_nodes_that_do_not_reach_this_machine_are_reached_by_ssh(
    folder: Path, connector: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("fabtui.transport.node_starter._address_towards", lambda nodes, otherwise: "")
    monkeypatch.setattr("socket.gethostname", lambda: "256.0.0.1")
    reach = connector(transport=name, fallback="local")
    links = await opened(reach)
    try:
        assert all(link.backend == "local" for link in links.values()), links
        assert "nodes cannot reach this machine" in reach.notices[-1]
    finally:
        await closed(links)
