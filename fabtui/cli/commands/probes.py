"""``fabtui probes``: the probes and tests."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from fabtui.paths import user_probe_folder
from fabtui.sanitize import one_line
from fabtui.session.user_probes import find
from fabtui_node.registry import DEFAULT, JOB, OPTIONAL, PROBES, TESTS


def execute(args: argparse.Namespace) -> int:
    """Print all probes and tests; return the exit code."""
    print(table(shutil.get_terminal_size((100, 24)).columns), end="")
    return 0


def table(width: int) -> str:
    """Return the list of all probes and tests, wrapped to a width."""
    lines = []
    for title, rows in (("probes of a node", PROBES.values()), ("tests between endpoints", TESTS.values())):
        lines.append(f"{title}:")
        for row in rows:
            always = "" if row.name in (*DEFAULT, *OPTIONAL, *JOB) else " (always)"
            lines.append(f"  {row.name:<11} {row.title}{always}")
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
