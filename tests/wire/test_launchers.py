"""Sessions over ``--via`` and ``--wrap``: launchers that pass on lines, and one that holds everything back."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.main import main
from tests.forked import fabtui
from tests.wire import fakeside

#: Runs the words after the node; what they print is passed on line by line, as srun and kubectl do.
BY_LINE = """\
import subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
for line in child.stdout:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(child.wait())
"""
#: 1 MB before the first frame, as a prolog may print.
BANNER = """\
import subprocess, sys
for number in range(20000):
    sys.stdout.buffer.write(b"prolog: a line of forty-nine bytes, not a frame.\\n")"""
AT_THE_END = """\
import subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout)
sys.exit(done.returncode)
"""


def session(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run ``fabtui run`` and return what it printed and saved."""
    saved = folder / "session.json"
    words = ["run", "--no-record", "--remote-python", sys.executable, "--json", str(saved)]
    done = fabtui(*words, *args, timeout=120)
    assert saved.exists(), done.stdout + done.stderr
    return done, json.loads(saved.read_text())


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    path = tmp_path / "launch.py"
    path.write_text(BY_LINE)
    return path


def test_frames_pass_through_a_launcher_that_buffers_lines(tmp_path: Path, launcher: Path) -> None:
    via = f"{sys.executable} '{launcher}' {{node}}"
    quick = ("--probes", "p2p", "--layers", "world", "--bytes", "64k", "--iters", "4", "--ranks-per-node", "2")
    done, saved = session(tmp_path, "--nodes", "pod-0,pod-1", "--via", via, *quick)
    assert {node["backend"] for node in saved["nodes"]} == {"via"}, done.stderr
    cells = [m for m in saved["measurements"] if m["layer"] == "world"]
    assert len(cells) == 12
    assert all(m.get("error") is None for m in cells), cells


async def test_large_frames_come_back_behind_a_long_banner(reach_for: Callable[..., Any]) -> None:
    code = BY_LINE.replace("import subprocess, sys", BANNER).replace("argv[2:]", "argv[1:]")
    reach = reach_for(None, transport="via", via=shlex.join([sys.executable, "-c", code]), **fakeside.options())
    link = await reach.open("pod-0")
    try:
        assert await fakeside.exchange(link, 100_000_000) == []
        assert "bytes left out" in link.banner
    finally:
        await link.close()


def test_a_launcher_that_holds_output_back_is_recognised(tmp_path: Path, launcher: Path) -> None:
    launcher.write_text(AT_THE_END)
    via = f"{sys.executable} '{launcher}' {{node}}"
    done, saved = session(tmp_path, "--nodes", "pod-0", "--via", via, "--probes", "host", "--lease", "3")
    assert done.returncode == 3
    (node,) = saved["nodes"]
    assert "passes on output only when the command ends" in node["text"], node


def test_a_launcher_that_is_not_there_is_named(tmp_path: Path) -> None:
    done, saved = session(tmp_path, "--nodes", "pod-0", "--via", "no-such-launcher {node}", "--probes", "host")
    assert done.returncode == 3
    assert "cannot start no-such-launcher" in saved["nodes"][0]["text"]


def test_a_wrapper_runs_in_front_of_the_node_side(tmp_path: Path, launcher: Path) -> None:
    local = ("--transport", "local", "--nodes", "n060", "--probes", "host")
    done, saved = session(tmp_path, *local, "--wrap", f"{sys.executable} '{launcher}' {{node}}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert saved["nodes"][0]["state"] == "ready"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--via", "kubectl exec -i"), "has no {node}"),
        (("--via", "kubectl 'exec"), "cannot be split into words"),
        (("--via", "kubectl", "--transport", "openssh"), "--via excludes --transport"),
        (("--transport", "via"), "--transport via needs a command line"),
        (("--transport", "srun"), "--transport srun needs a job"),
        (("--wrap", ""), "--wrap: empty"),
        (("--jobid", "1", "--no-job"), "--jobid excludes --no-job"),
    ],
)
def test_mistakes_are_one_line(args: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--no-record", "--nodes", "n060", *args]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert len(printed.splitlines()) == 1
