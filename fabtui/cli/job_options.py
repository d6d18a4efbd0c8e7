"""Options of commands that ask the nodes of a running job."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping
from typing import Any

from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.config.file import read_config
from fabtui.errors import InputError
from fabtui.sanitize import one_line
from fabtui.scheduler.current_job import current_job
from fabtui.session.options import SessionOptions


def job_options(args: argparse.Namespace, own: tuple[str, ...]) -> SessionOptions:
    """Return the nodes and the connection; without nodes those of the job that this runs in, else this machine.

    ``own`` are the command's own arguments, by name.

    Raises:
        InputError: An argument is not valid.
    """
    config = read_config(args)
    print_problems(config)
    given = {name: value for name, value in vars(args).items() if name not in own}
    named = {"nodes", "hostfile", "jobid", "pods", "via", "transport"} & set(given)
    if not named and ("no_job" in given or not _in_job()):
        given["transport"] = "local"
    return request_from(argparse.Namespace(**given, no_record=True), config).options


def _in_job() -> bool:
    """Return True within a job whose nodes are known; a container in a job has no tools of the scheduler."""
    try:
        return current_job() is not None
    except InputError:
        return False


def seconds_of(given: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    """Return an argument that is a time (s).

    Raises:
        InputError: It is no number in the range.
    """
    try:
        seconds = float(given.get(name, default))
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise InputError(f"--{name}: {given[name]!r} is not a number of seconds from {least:g} to {most:g}")
    return seconds


@functools.cache
def notice(text: str) -> None:
    """Print a notice of the connection, once: a command connects to a node several times."""
    print(f"fabtui: {one_line(text, 500)}", file=sys.stderr)
