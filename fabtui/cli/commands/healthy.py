"""``fabtui healthy``: the largest set of nodes and GPUs of a session that are healthy together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fabtui.cli.options_from_args import output_path
from fabtui.cli.outputs import write_each, write_first
from fabtui.cli.printing import print_json, print_text
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.healthy_set import HealthySet
from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.importers.session import read_session
from fabtui.model.exit_codes import ALL_OK, BAD
from fabtui.nodeset import check_name
from fabtui.presentation.healthy_text import as_json, host_lines
from fabtui.report.healthy import healthy_text

HELP = """\
Print the largest set of nodes without a bad pair, for Slurm and MPI, and what to do with the others.

examples:
  fabtui healthy session.jsonl.gz              node list, rank order, commands to drain the others
  fabtui healthy pairs.csv --hostfile hosts    also write a host file for mpirun --hostfile
  fabtui healthy session.json --json           one JSON object

Nothing is run or drained. FILE is a recording, a CSV or JSON of fabtui, or output that fabtui read recognises.

exit codes: 0 all nodes are healthy; 1 some are left out; 2 bad usage or input, or no pair was tested
"""


def execute(args: argparse.Namespace) -> int:
    """Print the healthy set of a session; return the exit code."""
    # Checked before anything is read.
    hostfile = output_path(vars(args), "hostfile")
    model = read_session(args.file)
    found = diagnose(model).healthy
    if found is None:
        raise InputError(f"{args.file}: no pair of endpoints was tested; run a session with the test p2p")

    def report(lines: list[str]) -> None:
        if "json" in args:
            print_json(as_json(found))
        else:
            print_text(healthy_text(model, found) + "".join(f"\n{line}\n" for line in lines))

    write_first(_write(found, hostfile) if hostfile is not None else [], report)
    return BAD if found.left_out else ALL_OK


def _write(found: HealthySet, path: Path) -> Iterator[str]:
    if not found.nodes:
        raise InputError(f"--hostfile: no node is healthy with all its GPUs; {path} was not written")
    for node in found.nodes:
        check_name(node, "--hostfile")
    joining = [f"# joins with some of its GPUs: {line}" for line in host_lines(found.joining)]
    text = "\n".join((*host_lines(found.endpoints), *joining)) + "\n"

    def put(path: Path) -> None:
        write_bytes(path, text.encode())

    yield from write_each([(path, put)])
