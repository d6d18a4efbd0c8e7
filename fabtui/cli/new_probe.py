"""Template of a user probe and of its test, for ``fabtui probes new``."""

from __future__ import annotations

import sys
from pathlib import Path

from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.paths import private_folder
from fabtui.session.user_probes import find, name_problem

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
