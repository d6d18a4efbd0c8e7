"""Faults of a node's software, end to end: a clock that is off, and probes that crash."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui.lab.network import Network, missing
from tests.lab.field import Outcome, run

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no network: {missing()}")

AHEAD = "import time; now = time.time; time.time = lambda: now() + 90.0"
#: Has a call of a function of `time` fail in one module of the node side.
FAILS = """import sys, time
usual = time.{function}
def broken(*args):
    if sys._getframe(1).f_code.co_filename.endswith('/{module}.py'):
        raise OSError(22, 'Invalid argument')
    return usual(*args)
time.{function} = broken"""


#: Nodes and rails.
NETWORK = (3, 2)


def interpreter(path: Path, before: str = "") -> Path:
    """Write a command that starts Python as the node side does, with some code before that of the node side."""
    start = f'flags=$1 code=$3\nshift 3\nexec {sys.executable} "$flags" -c "{before}\n$code" "$@"\n'
    path.write_text(f"#!/bin/sh\n{start}")
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def odd_python(network: Network, name: str, before: str) -> Iterator[list[str]]:
    """Have a node's Python run some code first; yield the arguments that choose this Python on all nodes."""
    usual = interpreter(network.folder / "python3")
    network.on(name, "mount", "--bind", str(interpreter(network.folder / "odd", before)), str(usual))
    try:
        yield ["--remote-python", str(usual)]
    finally:
        network.on(name, "umount", str(usual))


def first(found: Outcome) -> tuple[str, tuple[str, str]]:
    finding = found.saved["findings"][0]
    return finding["title"], (finding["subject"]["kind"], finding["subject"]["name"])


def test_a_clock_that_is_off_is_named_by_its_node(network: Network) -> None:
    with odd_python(network, "n2", AHEAD) as chosen:
        found = run(network, network.folder, *chosen, "--probes", "clock,ping")
    title, subject = first(found)
    assert title.startswith("clock offset: 90"), found.printed
    assert subject == ("node", "n2")
    assert re.search(r"^ *1 n2: clock offset: 90.* as on 2 others", found.printed, re.MULTILINE), found.printed
    assert found.cells("ping", "mtu") == []


@pytest.mark.parametrize(
    ("probe", "module", "function"), [("udp", "udp_one_way", "sleep"), ("ping", "ping", "monotonic")]
)
def test_a_probe_that_crashes_is_reported_as_that(network: Network, probe: str, module: str, function: str) -> None:
    with odd_python(network, "n1", FAILS.format(module=module, function=function)) as chosen:
        found = run(network, network.folder, *chosen, "--probes", "ping,udp")
    assert found.titles == [f"the {probe} probe failed on n1: OSError: [Errno 22] Invalid argument"], found.printed
    assert first(found)[1] == ("node", "n1")
    assert {m["verdict"] for m in found.cells("ping", "mtu", "udp", "tcp")} == {"inconclusive"}
    assert {m["src"] for m in found.cells("ping", "mtu", "udp", "tcp")} == {"n1"}
    assert found.code == 3


def test_a_controller_that_was_stopped_reports_that_of_itself(network: Network) -> None:
    argv = [sys.executable, "-m", "fabtui", "run", "--nodes", "n[0-2]", "--ssh-config", str(network.ssh_config)]
    argv += ["--no-record", "--probes", "ping,udp", "--lease", "3"]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    try:
        next(line for line in running.stderr if line.startswith("ping"))
        running.send_signal(signal.SIGSTOP)
        # Longer than the lease, after which nodes end themselves.
        time.sleep(6.0)
        running.send_signal(signal.SIGCONT)
        printed = "".join(running.communicate(timeout=60))
    finally:
        running.kill()
    text = r"notice: this machine slept, or fabtui was stopped or got no processor, for \d+ s; nodes are joined again"
    assert re.search(text, printed), printed
    assert "pairs are ok." in printed
    assert running.returncode == 0
