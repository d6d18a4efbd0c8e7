"""``fabtui info``: versions, paths, terminal and tools of this machine; ``fabtui probes``: what runs on nodes."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fabtui import __version__
from fabtui import paths as places
from fabtui.atomic_write import write_bytes
from fabtui.config.file import config_path
from fabtui.errors import InputError
from fabtui.sanitize import one_line
from fabtui.session.measure.communicator_cache import BOUND_MESSAGES, bound
from fabtui.session.options import MIB
from fabtui.session.user_probes import find, name_problem
from fabtui_node.registry import DEFAULT, JOB, OPTIONAL, PROBES, TESTS

HELP = """\
Show versions, paths, the terminal and the tools of this machine. Include it in bug reports.
"""

_PACKAGES = (
    *("textual", "rich", "asyncssh", "cryptography", "pandas", "numpy", "ClusterShell", "nvidia-ml-py", "torch"),
    *("shtab", "textual-serve", "mcp"),
)
#: Timeout (s) of a command.
_TIMEOUT = 5.0
HELP_PROBES = """\
List all probes and tests, what they need and what they yield, or write a template of your own.

examples:
  fabtui probes                                all of them
  fabtui probes new scratch                    a probe that runs, and its test, to change
"""
_PROBE = '''\
"""Load of a node. A template: change all of it.

fabtui runs this on each node in every session. Python 3.8, the standard library and fabtui_node.api are there.
"""

from fabtui_node import api

TITLE = "load"
# The unit of each number, and how it is compared between nodes: kind, all, near or none.
UNITS = {"minute": "processes"}
COMPARE = {"processors": "kind"}

def run(args, emit, deadline):
    """Return the text to parse, within the deadline (seconds)."""
    return api.run_command(["sh", "-c", "cat /proc/loadavg; getconf _NPROCESSORS_ONLN"], deadline).stdout

def parse(text):
    """Return the values in the text."""
    load, processors = text.splitlines()
    return {"minute": float(load.split()[0]), "processors": int(processors)}

def judge(value):
    """Return what is bad on this node alone; verdicts are bad, warn and note."""
    if value["minute"] > 2 * value["processors"]:
        return [{"subject": "load", "verdict": "warn", "text": "%.0f processes wait or run" % value["minute"]}]
    return []
'''
_TEST = '''\
"""Test of the probe NAME. Run it with the Python that has fabtui:

PYTHON FILE
"""

import pathlib
import runpy
import unittest

PROBE = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "NAME.py"))

class ProbeTest(unittest.TestCase):
    def test_values_are_read(self):
        self.assertEqual(PROBE["parse"]("0.52 0.58 0.59 1/467 8\\n64\\n"), {"minute": 0.52, "processors": 64})

    def test_a_high_load_is_reported(self):
        self.assertEqual(PROBE["judge"]({"minute": 0.5, "processors": 64}), [])
        (found,) = PROBE["judge"]({"minute": 200.0, "processors": 64})
        self.assertEqual(found["verdict"], "warn")

    def test_it_runs_here(self):
        self.assertGreater(PROBE["parse"](PROBE["run"]({}, None, 5.0))["processors"], 0)

if __name__ == "__main__":
    unittest.main()
'''


def execute(args: argparse.Namespace) -> int:
    sections = {"versions": versions(), "paths": paths(), "terminal": terminal(), "this machine": machine()}
    for title, rows in sections.items():
        print(f"{title}:")
        for name, text in rows:
            print(f"  {name:<14} {one_line(text, 300)}")
        print()
    return 0


def versions() -> list[tuple[str, str]]:
    rows = [("fabtui", f"{__version__} in {Path(__file__).resolve().parents[3]}")]
    rows.append(("python", f"{sys.version.split()[0]} ({sys.executable})"))
    for package in _PACKAGES:
        try:
            rows.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def paths() -> list[tuple[str, str]]:
    folders = {
        "state": places.state_folder(),
        "recordings": places.recordings_folder(),
        "settings": config_path(),
        "themes": places.theme_folder(),
        "user themes": places.user_theme_folder(),
        "ssh config": places.user_path("~/.ssh/config"),
    }
    rows = [(name, str(path) if path.exists() else f"{path} (missing)") for name, path in folders.items()]
    return [*rows, ("temporary", os.environ.get("TMPDIR", "/tmp"))]


def terminal() -> list[tuple[str, str]]:
    size = shutil.get_terminal_size()
    names = ("TERM", "COLORTERM", "NO_COLOR", "TMUX", "SSH_TTY", "LANG", "LC_ALL")
    rows = [(name, value) for name in names if (value := os.environ.get(name))]
    return [
        *rows,
        ("size", f"{size.columns}x{size.lines}" if sys.stdout.isatty() else "stdout is not a terminal"),
        ("encoding", sys.stdout.encoding or "unknown"),
        ("colours", colours(os.environ)),
    ]


def colours(environment: os._Environ[str] | dict[str, str]) -> str:
    """Return the number of colours of a terminal according to its environment."""
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR"):
        return "none (NO_COLOR)"
    if term in ("", "dumb", "unknown"):
        return "none (TERM)"
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16 million (COLORTERM)"
    return "256 (TERM)" if "256color" in term else "16, unless --colors sets more"


def machine() -> list[tuple[str, str]]:
    ssh = shutil.which("ssh")
    version = (_run([ssh, "-V"])[1].splitlines() or ["no output"])[0] if ssh else ""
    torch = find_spec("torch") is not None
    tools = ("ping", "fping", "ibstat", "nvidia-smi", "clush", "tmux")
    return [
        ("ssh", f"{ssh}, {version}" if ssh else "not found: no node can be reached"),
        ("GPUs", _gpus()),
        ("CPU ranks", "yes" if torch else "no, PyTorch is not installed here (pip install 'fabtui[torch]')"),
        ("lab", "yes" if torch else "probes and pings only, without PyTorch or a GPU"),
        ("GPU memory", f"tests take at most {bound(0) // MIB} MiB, or {BOUND_MESSAGES} messages, and a CUDA context"),
        *((tool, shutil.which(tool) or "not found") for tool in tools),
    ]


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none found (no nvidia-smi)"
    code, output = _run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if code != 0:
        return f"nvidia-smi fails: {output}"
    return ", ".join(f"{number} x {name}" for name, number in Counter(output.splitlines()).items()) or "none found"


def _run(argv: list[str]) -> tuple[int | None, str]:
    """Return a command's exit code, None if it did not finish, and its output."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", timeout=_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return None, f"no output within {_TIMEOUT:.0f} s"
    except OSError as error:
        return None, f"cannot run: {error.strerror}"
    return done.returncode, (done.stdout or done.stderr).strip()


def execute_probes(args: argparse.Namespace) -> int:
    if "action" in args:
        if args.action != "new" or "name" not in args:
            raise InputError("fabtui probes: takes no arguments, or new NAME: fabtui probes new NAME")
        probe, test = write_probe(args.name, places.user_probe_folder())
        print(f"wrote {probe}\nwrote {test}\n\ntest it:  {shlex.join([sys.executable, str(test)])}")
        print("run it:   fabtui preflight --nodes ...    (it runs on the nodes of every session)")
        return 0
    print(table(shutil.get_terminal_size((100, 24)).columns), end="")
    return 0


def table(width: int) -> str:
    lines = []
    for title, rows in (("probes of a node", PROBES.values()), ("tests between endpoints", TESTS.values())):
        lines.append(f"{title}:")
        for row in rows:
            marks = [] if row.name in (*DEFAULT, *OPTIONAL, *JOB) else ["always"]
            marks += ["passive"] if row.name in PROBES and PROBES[row.name].passive else []
            lines.append(f"  {row.name:<11} {row.title}" + (f" ({', '.join(marks)})" if marks else ""))
            for label, text in (("needs", row.needs), ("gives", row.gives)):
                start = f"{'':14}{label} "
                lines += textwrap.wrap(text, max(40, min(width, 120)), initial_indent=start, subsequent_indent=" " * 20)
        lines.append("")
    folder = places.user_probe_folder()
    own = find(folder)
    lines += [f"user probes, in {folder} (docs/user-probes.md):"]
    lines += [f"  {probe.name:<11} {probe.title or one_line(str(probe.where), 200)}" for probe in own.probes.values()]
    if not own.probes:
        lines.append("  none")
    return "\n".join([*lines, *(f"  {problem}" for problem in own.problems), ""])


def write_probe(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a probe that runs, and its test; return their paths. InputError if a name or file is not usable."""
    problem = name_problem(name, find(folder))
    if problem:
        raise InputError(f"fabtui probes new: {problem}")
    probe, test = folder / f"{name}.py", folder / "tests" / f"test_{name}.py"
    filled = _TEST.replace("NAME", name).replace("PYTHON", sys.executable).replace("FILE", str(test))
    for path in (probe, test):
        if path.exists():
            raise InputError(f"fabtui probes new: {path} exists")
    for path, text in ((probe, _PROBE), (test, filled)):
        try:
            places.private_folder(path.parent)
            write_bytes(path, text.encode())
        except OSError as error:
            raise InputError(f"fabtui probes new: cannot write {path}: {error.strerror}") from None
    return probe, test
