"""``fabtui nodes``: the nodes of a session that are healthy together, or their order for a ring or a pipeline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fabtui.atomic_write import write_bytes
from fabtui.cli.outputs import reading_progress
from fabtui.cli.printing import output_path, print_json, print_text, write_each, write_first
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.healthy_set import HealthySet, healthy_set
from fabtui.diagnosis.node_bandwidth import node_bandwidth
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD
from fabtui.export.planner import source_text
from fabtui.importers.session import read_session
from fabtui.nodeset import check_name, fold
from fabtui.presentation.healthy_text import as_json, host_lines, order_lines, stray_lines
from fabtui.report.healthy import healthy_text
from fabtui.sanitize import one_line

HELP = """\
Print the nodes without a fault of their own, for Slurm and MPI, why others are out, and which pairs to retest; or the
best order.

examples:
  fabtui nodes session.jsonl.gz                node list, commands to drain the others
  fabtui nodes pairs.csv --hostfile hosts      also write a host file for mpirun --hostfile
  fabtui nodes session.json --json             one JSON object
  fabtui nodes session.jsonl.gz --strays pairs   also write the stray bad pairs, for run --pairs-from
  fabtui nodes session.jsonl.gz --strict       leave nodes out until no pair of the others is bad
  fabtui nodes session.jsonl.gz --order        a ring over the nodes without slow neighbours, and what it gains
  fabtui nodes session.jsonl.gz --order --for pipeline --hostfile hosts
  fabtui nodes pairs.csv --order --slurm-hostfile ranks
  SLURM_HOSTFILE=ranks srun --distribution=arbitrary ./train.sh

Stray pairs are bad ones, few at each node, that no fault of a node, NIC or switch explains: retest them before nodes
are left out for them. Nothing is run or drained. FILE is a recording, a CSV or JSON of fabtui, or output that fabtui
read recognises. In an order, nodes with the same GPUs follow each other; nodes without a passing test to another node
are left out.

exit codes: 0 all nodes are healthy, or the order was printed; 1 some nodes are left out, or have stray pairs; 2 bad
usage or input, or no pair was tested
"""


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    if "order" in given:
        return _print_order(args)
    for name in ("for", "slurm_hostfile"):
        if name in given:
            raise InputError(f"--{name.replace('_', '-')} belongs to an order: fabtui nodes FILE --order")
    # Checked before anything is read.
    paths = {name: path for name in ("hostfile", "strays") if (path := output_path(given, name))}
    if len(set(paths.values())) < len(paths):
        raise InputError("--hostfile and --strays name the same file")
    model = read_session(args.file, reading_progress(args.file))
    diagnosis = diagnose(model)
    strict = healthy_set(model, diagnosis.tally, diagnosis.findings, strict=True)
    usual = diagnosis.healthy
    if usual is None or strict is None:
        raise InputError(f"{args.file}: no pair of endpoints was tested; run a session with the test p2p")
    healthy = strict if "strict" in given else usual

    def report(lines: list[str]) -> None:
        if "json" in args:
            print_json(as_json(healthy))
        else:
            print_text(healthy_text(model, healthy, strict) + "".join(f"\n{line}\n" for line in lines))

    write_first(_write(healthy, paths), report)
    return BAD if healthy.left_out or healthy.strays else ALL_OK


def _write(healthy: HealthySet, paths: dict[str, Path]) -> Iterator[str]:
    if "hostfile" in paths and not healthy.nodes:
        raise InputError(f"--hostfile: no node is healthy with all its GPUs; {paths['hostfile']} was not written")
    if "strays" in paths and not healthy.strays:
        raise InputError(f"--strays: there is no stray pair to retest; {paths['strays']} was not written")
    for node in healthy.nodes:
        check_name(node, " or ".join(f"--{name}" for name in paths))
    joining = [f"# joins with some of its GPUs: {line}" for line in host_lines(healthy.joining)]
    texts = {"hostfile": [*host_lines(healthy.endpoints), *joining], "strays": stray_lines(healthy)}
    yield from write_each([(path, partial(_put, texts[name])) for name, path in paths.items()])


def _print_order(args: argparse.Namespace) -> int:
    # Checked before anything is read.
    paths = {name: path for name in ("hostfile", "slurm_hostfile") if (path := output_path(vars(args), name))}
    if len(set(paths.values())) < len(paths):
        raise InputError("--hostfile and --slurm-hostfile name the same file")
    ring = getattr(args, "for", "ring") == "ring"
    model = read_session(args.file, reading_progress(args.file))
    bandwidth = node_bandwidth(model)
    order = bandwidth.order(ring=ring)
    if len(order.nodes) < 2:
        raise InputError(f"{args.file}: no test between two nodes passed; run a session of several nodes with p2p")
    for node in order.nodes:
        check_name(node, args.file)
    ends = [end for node in order.nodes for end in model.table.of_node(node)]
    # srun reads one host per rank.
    texts = {"hostfile": host_lines(ends), "slurm_hostfile": [one_line(end.node) for end in ends]}
    files = [(path, partial(_put, texts[name])) for name, path in paths.items()]
    left_out = [node for node in bandwidth.nodes if node not in order.nodes]

    def report(lines: list[str]) -> None:
        value: dict[str, Any] = {"order": order.nodes, "ring": ring, "before": order.before, "after": order.after}
        if "json" in args:
            value |= {"unknown": order.unknown, "left_out": left_out, "source": source_text(bandwidth), **texts}
            hops = {name: None if (hop := value[name]) is None else hop._asdict() for name in ("before", "after")}
            print_json(value | hops)
            return
        shown = [*order_lines(order, ring), f"source: {one_line(source_text(bandwidth))}"]
        if left_out:
            shown.append(f"left out, as no test with another node passed: {fold(left_out)}")
        sys.stdout.write("\n".join([*shown, "", *texts["hostfile"], *lines]) + "\n")

    write_first(write_each(files), report)
    return 0


def _put(lines: list[str], path: Path) -> None:
    write_bytes(path, ("\n".join(lines) + "\n").encode())
