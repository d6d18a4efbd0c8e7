"""``fabtui order``: an order of the nodes of a session that keeps slow links between neighbours out."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from fabtui.cli.options_from_args import output_path
from fabtui.cli.outputs import write_each, write_first
from fabtui.cli.printing import print_json
from fabtui.diagnosis.node_bandwidth import node_bandwidth
from fabtui.errors import InputError
from fabtui.export.atomic_write import write_atomically
from fabtui.export.planner import source_text
from fabtui.importers.session import read_session
from fabtui.nodeset import check_name, fold
from fabtui.presentation.healthy_text import host_lines, order_lines
from fabtui.sanitize import one_line

HELP = """\
Order the nodes of a session so that the slowest neighbours of a ring or a pipeline are as fast as possible.

examples:
  fabtui order session.jsonl.gz                a ring over the nodes, and what it gains
  fabtui order session.jsonl.gz --for pipeline --hostfile hosts
  fabtui order pairs.csv --slurm-hostfile ranks
  SLURM_HOSTFILE=ranks srun --distribution=arbitrary ./train.sh

Nodes with the same GPUs follow each other. Nodes without a passing test to another node are left out.

exit codes: 0 printed; 2 bad usage or input, or no two nodes were tested
"""


def execute(args: argparse.Namespace) -> int:
    """Print the order of the nodes of a session; return the exit code."""
    # Checked before anything is read.
    paths = {name: path for name in ("hostfile", "slurm_hostfile") if (path := output_path(vars(args), name))}
    if len(set(paths.values())) < len(paths):
        raise InputError("--hostfile and --slurm-hostfile name the same file")
    ring = getattr(args, "for", "ring") == "ring"
    model = read_session(args.file)
    found = node_bandwidth(model)
    order = found.order(ring=ring)
    if len(order.nodes) < 2:
        raise InputError(f"{args.file}: no test between two nodes passed; run a session of several nodes with p2p")
    for node in order.nodes:
        check_name(node, args.file)
    ends = [end for node in order.nodes for end in model.table.of_node(node)]
    # srun reads one host per rank.
    texts = {"hostfile": host_lines(ends), "slurm_hostfile": [one_line(end.node) for end in ends]}
    files = [(path, partial(_put, texts[name])) for name, path in paths.items()]
    left_out = [node for node in found.nodes if node not in order.nodes]

    def report(lines: list[str]) -> None:
        value: dict[str, Any] = {"order": order.nodes, "ring": ring, "before": order.before, "after": order.after}
        if "json" in args:
            value |= {"unknown": order.unknown, "left_out": left_out, "source": source_text(found), **texts}
            hops = {name: None if (hop := value[name]) is None else hop._asdict() for name in ("before", "after")}
            print_json(value | hops)
            return
        shown = [*order_lines(order, ring), f"source: {one_line(source_text(found))}"]
        if left_out:
            shown.append(f"left out, as no test with another node passed: {fold(left_out)}")
        sys.stdout.write("\n".join([*shown, "", *texts["hostfile"], *lines]) + "\n")

    write_first(write_each(files), report)
    return 0


def _put(lines: list[str], path: Path) -> None:
    text = "\n".join(lines) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
