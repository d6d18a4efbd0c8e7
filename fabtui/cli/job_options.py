"""Options of commands that ask the nodes of a running job."""

from __future__ import annotations

import argparse
import sys

from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.config.file import read_config
from fabtui.sanitize import one_line
from fabtui.session.options import SessionOptions


def job_options(args: argparse.Namespace, own: tuple[str, ...]) -> SessionOptions:
    """Return the nodes and the connection; without nodes this machine, where a job runs or there is nothing to ask.

    ``own`` are the command's own arguments, by name.

    Raises:
        InputError: An argument is not valid.
    """
    config = read_config(args)
    print_problems(config)
    given = {name: value for name, value in vars(args).items() if name not in own}
    if not {"nodes", "hostfile", "transport"} & set(given):
        given["transport"] = "local"
    return request_from(argparse.Namespace(**given, no_record=True), config).options


def notice(text: str) -> None:
    """Print a notice of the connection."""
    print(f"fabtui: {one_line(text, 500)}", file=sys.stderr)
