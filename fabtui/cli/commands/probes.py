"""``fabtui probes``: the probes and tests, and a template of one more."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.paths import private_folder, user_probe_folder
from fabtui.sanitize import one_line
from fabtui.session.user_probes import find, name_problem
from fabtui_node.registry import DEFAULT, JOB, OPTIONAL, PROBES, TESTS

HELP = """\
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
    """Print all probes and tests, or write a template of a probe; return the exit code."""
    if "action" in args:
        if args.action != "new" or "name" not in args:
            raise InputError("fabtui probes: takes no arguments, or new NAME: fabtui probes new NAME")
        probe, test = write_probe(args.name, user_probe_folder())
        print(f"wrote {probe}\nwrote {test}\n\ntest it:  {shlex.join([sys.executable, str(test)])}")
        print("run it:   fabtui preflight --nodes ...    (it runs on the nodes of every session)")
        return 0
    print(table(shutil.get_terminal_size((100, 24)).columns), end="")
    return 0


def table(width: int) -> str:
    """Return the list of all probes and tests, wrapped to a width."""
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
    folder = user_probe_folder()
    found = find(folder)
    lines += [f"user probes, in {folder} (docs/user-probes.md):"]
    lines += [f"  {probe.name:<11} {probe.title or one_line(str(probe.where), 200)}" for probe in found.probes.values()]
    if not found.probes:
        lines.append("  none")
    return "\n".join([*lines, *(f"  {problem}" for problem in found.problems), ""])


def write_probe(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a probe that runs, and its test, into the folder of user probes; return their paths.

    Raises:
        InputError: The name is not valid or in use, or a file exists or cannot be written.
    """
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
            private_folder(path.parent)
            write_bytes(path, text.encode())
        except OSError as error:
            raise InputError(f"fabtui probes new: cannot write {path}: {error.strerror}") from None
    return probe, test
