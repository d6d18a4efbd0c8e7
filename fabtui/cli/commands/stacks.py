"""``fabtui stacks``: stacks of the ranks of a running job, identical ones together."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from fabtui.cli.job_options import job_options
from fabtui.cli.options_from_args import notice
from fabtui.cli.printing import print_json, print_text
from fabtui.diagnosis.running_job.who_is_behind import StackGroup, grouped, rank_stacks
from fabtui.exit_status import ALL_OK, NOT_TESTED
from fabtui.nodeset import count, fold
from fabtui.sanitize import clean, one_line
from fabtui.session.running_job.inquiry import Reply, replies

HELP = """\
Print where the ranks of a running job are: by py-spy or pystack if the nodes have one, else by the kernel.

examples:
  fabtui stacks --nodes 'n[060-067]'           all nodes of the job; the ranks that differ first
  fabtui stacks                                on a node of the job, in its pod or container

Nothing is installed on the nodes, and no process is stopped. Ranks are processes with RANK, SLURM_PROCID,
OMPI_COMM_WORLD_RANK or PMI_RANK in their environment.

exit codes: 0 ranks were found; 2 bad usage or input; 3 no rank was found
"""

_DEADLINE = 60.0


def execute(args: argparse.Namespace) -> int:
    """Inspect the ranks on all nodes; print them; return the exit code."""
    given = vars(args)
    options = job_options(args)
    found = asyncio.run(replies(options, "stacks", {}, _DEADLINE, lambda _: False, notice))
    stacks = [one for reply in found if reply.value is not None for one in rank_stacks(reply.node, reply.value)]
    groups = grouped(stacks)
    problems = {reply.node: reply.problem for reply in found if reply.value is None}
    if "json" in given:
        print_json(_values(groups, problems), given)
    else:
        print_text("\n".join(_lines(groups, problems, found)) + "\n", given)
    return ALL_OK if stacks else NOT_TESTED


def _lines(groups: list[StackGroup], problems: dict[str, str], found: list[Reply]) -> list[str]:
    number = sum(len(group.ranks) for group in groups)
    if not number:
        lines = [f"no process with a rank is visible on {fold(reply.node for reply in found)}"]
    else:
        lines = [f"{count(number, 'rank')}, {count(len(groups), 'place')}; the fewest first"]
    lines += [f"  {one_line(group.sentence(), 1000)}" for group in groups]
    missing: dict[str, list[str]] = {}
    for group in groups:
        for one in group.ranks:
            if one.problem:
                missing.setdefault(one.problem, []).append(one.place.node)
    lines += [f"no stack on {fold(dict.fromkeys(nodes))}: {one_line(text, 300)}" for text, nodes in missing.items()]
    return [*lines, *(f"{one_line(node)}: {one_line(text, 300)}" for node, text in problems.items())]


def _values(groups: list[StackGroup], problems: dict[str, str]) -> dict[str, Any]:
    return {
        "groups": [
            {
                "ranks": [
                    {"rank": one.place.rank, "node": clean(one.place.node), "pid": one.place.pid} for one in group.ranks
                ],
                "activity": clean(group.ranks[0].activity),
                "frames": [clean(frame) for frame in group.ranks[0].frames],
                "problem": clean(group.ranks[0].problem) or None,
            }
            for group in groups
        ],
        "problems": {clean(node): clean(text) for node, text in problems.items()},
    }
