"""The options of commands about a running job: its nodes, and how they are reached."""

from __future__ import annotations

import argparse

from fabtui.cli.nodes_from_args import in_job
from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.config.file import read_config
from fabtui.session.options import SessionOptions


def job_options(args: argparse.Namespace) -> SessionOptions:
    """Return the nodes and the connection; without nodes those of the job that this runs in, else this machine.

    Raises:
        InputError: An argument is not valid.
    """
    config = read_config(args)
    print_problems(config)
    # Here, --json names no file.
    given = {name: value for name, value in vars(args).items() if name != "json"}
    named = {"nodes", "hostfile", "jobid", "pods", "via", "transport"} & set(given)
    if not named and ("no_job" in given or not in_job()):
        given["transport"] = "local"
    return request_from(argparse.Namespace(**given, no_record=True), config).options
