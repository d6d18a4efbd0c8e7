"""``fabtui probes``: what can be looked at and tested."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser("probes", help="what --probes takes", description="Show all probes and tests.")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the table; returns the exit code."""
    import shutil

    print(table(shutil.get_terminal_size((100, 24)).columns), end="")
    return 0


def table(width: int) -> str:
    """Return the table of all probes and tests, wrapped to a width."""
    from fabtui.session.options import ALL_PROBES, OPTIONAL_PROBES
    from fabtui_node.registry import PROBES, TESTS

    lines = []
    for kind, rows in (("looks at a node", PROBES.values()), ("tests between endpoints", TESTS.values())):
        lines.append(f"{kind}:")
        for row in rows:
            always = "" if row.name in (*ALL_PROBES, *OPTIONAL_PROBES) else " (always)"
            lines.append(f"  {row.name:<11} {row.title}{always}")
            for label, text in (("needs", row.needs), ("gives", row.gives)):
                start = f"{'':14}{label} "
                lines += textwrap.wrap(text, max(40, min(width, 120)), initial_indent=start, subsequent_indent=" " * 20)
        lines.append("")
    return "\n".join([*lines, *_own()])


def _own() -> list[str]:
    from fabtui.paths import user_probe_folder
    from fabtui.sanitize import one_line
    from fabtui.session.user_probes import find

    folder = user_probe_folder()
    found = find(folder)
    lines = [f"of your own, in {folder} (docs/user-probes.md):"]
    lines += [f"  {probe.name:<11} {probe.title or one_line(str(probe.where), 200)}" for probe in found.probes.values()]
    if not found.probes:
        lines.append("  none")
    return [*lines, *(f"  {problem}" for problem in found.problems), ""]
