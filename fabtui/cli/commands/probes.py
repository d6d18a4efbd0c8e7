"""``fabtui probes``: the probes and tests, and a template of one more."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap

from fabtui.cli.new_probe import write_probe
from fabtui.errors import InputError
from fabtui.paths import user_probe_folder
from fabtui.sanitize import one_line
from fabtui.session.user_probes import find
from fabtui_node.registry import DEFAULT, JOB, OPTIONAL, PROBES, TESTS


def execute(args: argparse.Namespace) -> int:
    """Print all probes and tests, or write a template of a probe; return the exit code."""
    if "action" in args:
        if args.action != "new" or "name" not in args:
            raise InputError("fabtui probes: expected nothing, or: fabtui probes new NAME")
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
