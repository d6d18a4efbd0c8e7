"""Sessions over a kubectl that is played: pods are the nodes of a lab network."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.forked import fabtui
from tests.lab.field import network_in

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

#: As with the real one, its end does not reach the process in the pod: something holds that one's input open.
KUBECTL = """\
#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if words[:2] == ["get", "pods"]:
    for name in {pids}:
        print(name + "|Running|host-" + name)
    sys.exit(0)
at = words.index("--")
pod = [word for word in words[1:at] if not word.startswith("-")][0]
if pod not in {pids}:
    sys.exit('Error from server (NotFound): pods "%s" not found' % pod)
enter = ["nsenter", "--target", str({pids}[pod]), "--net", "--uts", "--ipc", "--pid", "--mount", "--"]
far, near = os.pipe()
child = subprocess.Popen(enter + words[at + 1:], stdin=far, stdout=subprocess.PIPE, start_new_session=True)
os.set_inheritable(near, True)
subprocess.Popen(["sleep", "40"], close_fds=False, start_new_session=True, stdout=subprocess.DEVNULL)
os.close(far)
if os.fork() == 0:
    while data := os.read(0, 65536):
        os.write(near, data)
    os._exit(0)
for line in child.stdout:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(child.wait())
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_in(tmp_path_factory.mktemp("pods"), 3, 1) as network:
        pids = {name: network.holder(name).pid for name in network.names}
        tool = network.folder / "kubectl"
        tool.write_text(KUBECTL.replace("{python}", sys.executable).replace("{pids}", repr(pids)))
        tool.chmod(0o755)
        yield network


def words(network: Network, *args: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of fabtui, and an environment with the played kubectl."""
    return ["run", "--no-record", "--remote-python", sys.executable, *args], {
        **os.environ,
        "PATH": f"{network.folder}:{os.environ['PATH']}",
    }


def test_a_full_session_over_pods(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    quick = ("--probes", "ping,p2p,all_reduce", "--layers", "world", "--bytes", "64k", "--iters", "4")
    run, environment = words(network, "--pods", "train/job-name=llm", "--json", str(path), *quick)
    done = fabtui(*run, env=environment)
    assert done.stderr.startswith("nodes of pods train/job-name=llm: n[0-2] (kubectl; n0 on host-n0"), done.stderr
    saved = json.loads(path.read_text())
    assert {(node["name"], node["backend"]) for node in saved["nodes"]} == {(name, "via") for name in network.names}
    layers = {m["layer"] for m in saved["measurements"]}
    assert {"ping", "world", "busbw"} <= layers
    assert all(m.get("error") is None for m in saved["measurements"] if m["layer"] == "world")


def test_an_unknown_pod_is_named(network: Network, tmp_path: Path) -> None:
    run, environment = words(network, "--nodes", "n0,n9", "--via", "kubectl", "--probes", "host")
    done = fabtui(*run, env=environment)
    assert done.returncode == 3
    assert 'pods "n9" not found' in done.stdout


def test_a_kill_leaves_nothing_although_the_input_stays_open(network: Network) -> None:
    via = ("--nodes", "n[0-2]", "--via", "kubectl", "--lease", "4", "--watch", "100", "--probes", "p2p")
    run, environment = words(network, *via, "--layers", "world", "--bytes", "64k", "--iters", "4")

    def left() -> list[str]:
        return [
            line
            for name in network.names
            for line in network.on(name, "ps", "-eo", "args").splitlines()
            if "-IS -c" in line
        ]

    argv = [sys.executable, "-m", "fabtui", *run]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while len(left()) < 9 and time.monotonic() < end:
            time.sleep(0.2)
        assert left()
        process.send_signal(signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 30
    while left() and time.monotonic() < end:
        time.sleep(0.2)
    assert left() == []
