"""``fabtui mcp``: tools for assistants that measure, over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fabtui.cli.commands.hang import hang_options, links_options, query_from
from fabtui.cli.commands.preflight import preflight_options
from fabtui.cli.main import report_crash
from fabtui.cli.options_from_args import own_recordings, print_problems, recording_path, request_from
from fabtui.config.file import ConfigFile, merged, read_config
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.lab.faults import LabSpec
from fabtui.nodeset import chosen_nodes, fold
from fabtui.sanitize import one_line
from fabtui.session.options import JobQuery, SessionOptions

HELP = """\
Serve tools that measure to an assistant, over standard input and output (Model Context Protocol). No port is opened.

examples:
  fabtui mcp                                   inspect nodes, observe jobs, read recordings
  fabtui mcp --nodes 'n[060-067]'              these nodes only; others are refused
  fabtui mcp --nodes @rack1 --allow-tests --budget 7200

The assistant starts it (docs/mcp.md). Its tools are preflight, run, findings, pair, hang, job, explain, read, diff,
history and rules. Tests of GPUs and links need --allow-tests, do not touch GPUs in use, and end with the budget. How
nodes are reached is chosen here, not by the assistant. Commands that findings suggest are for you; the server runs none
of them.

exit codes: 0 the client has gone; 2 bad usage or input
"""

#: Options of this command that are none of a session.
_OWN = ("allow_tests", "budget", "command", "words")
_LONGEST_BUDGET = 30 * 86400.0


def execute(args: argparse.Namespace) -> int:
    """Serve until the client goes; return the exit code."""
    # Versions of the package below 2 have no mcp_types.
    if any(find_spec(name) is None for name in ("mcp", "mcp_types", "jsonschema", "anyio")):
        raise InputError("mcp needs packages that are not installed; pip install 'fabtui[mcp]'")
    from fabtui.mcp.server import serve

    given = vars(args)
    if "-" in given.get("hostfile", []):
        raise InputError("--hostfile: standard input is for the client; name a file")
    if "budget" in given and "allow_tests" not in given:
        raise InputError("--budget limits tests: add --allow-tests")
    config = read_config(args)
    print_problems(config)
    requests = CommandRequests(args, config)
    budget = seconds(getattr(args, "budget", "3600"), "--budget", 1.0, _LONGEST_BUDGET)
    if sys.stdin.isatty():
        print(
            "fabtui: waiting for a client on standard input; assistants start this command (docs/mcp.md)",
            file=sys.stderr,
        )
    asyncio.run(serve(requests, report_crash, nodes=requests.nodes, tests="allow_tests" in given, budget=budget))
    return 0


class CommandRequests:
    """Options of sessions from the arguments of tools and the command line of the server.

    Raises:
        InputError: The command line is not valid.
    """

    def __init__(self, args: argparse.Namespace, config: ConfigFile) -> None:
        self._config = config
        given = {name: value for name, value in vars(args).items() if name not in _OWN}
        self._lab = "lab" in given
        named = {name: given.pop(name) for name in ("nodes", "hostfile", "exclude") if name in given}
        if self._lab:
            # Checked before a client waits for the answer.
            request_from(argparse.Namespace(**given, **named, no_record=True), config)
        self._base = given
        self._named = named
        #: The only nodes that are allowed; empty for any.
        self.nodes = self._limit()

    @property
    def recordings(self) -> Path:
        return own_recordings(self._config)

    def _limit(self) -> tuple[str, ...]:
        if self._lab:
            return tuple(LabSpec.parse(self._base["lab"]).names)
        if self._named.keys() == {"exclude"}:
            raise InputError("--exclude: name the nodes that are allowed as well: --nodes SET")
        if not self._named:
            return ()
        return tuple(chosen_nodes(*(self._named.get(name, []) for name in ("nodes", "hostfile", "exclude"))))

    def run(self, given: Mapping[str, Any]) -> SessionOptions:
        """Return the options of ``fabtui run``."""
        return request_from(self._arguments(given), self._config).options

    def preflight(self, given: Mapping[str, Any]) -> SessionOptions:
        """Return the options of ``fabtui preflight``."""
        return preflight_options(self._arguments(given), self._config)

    def hang(self, given: Mapping[str, Any]) -> tuple[SessionOptions, JobQuery | None]:
        """Return the options of ``fabtui hang``, with a recording of the evidence."""
        options, query = hang_options(self._arguments(given, job=True))
        # As sessions are: in the folder of the settings, or not at all.
        recorded = merged({}, self._config)
        return replace(options, record=recording_path(recorded, options.hosts)), query

    def job(self, given: Mapping[str, Any]) -> tuple[SessionOptions, JobQuery]:
        """Return the options of ``fabtui job``, and what is asked."""
        args = self._arguments(given, job=True, named=("nodes", "jobid", "logs"))
        query = query_from(vars(args), os.environ)
        return links_options(args, self._config, query), query

    def _arguments(
        self, given: Mapping[str, Any], *, job: bool = False, named: Sequence[str] = ("nodes", "jobid")
    ) -> argparse.Namespace:
        """Return the arguments of a tool as those of its command.

        Args:
            given: The arguments.
            job: Whether the tool is about a running job.
            named: Arguments beside which the nodes that are allowed are not meant.
        """
        own = {name: value for name, value in given.items() if value is not False}
        for name in ("nodes", "exclude"):
            # Given once; on a command line it may be repeated.
            own |= {name: [own[name]]} if name in own else {}
        base = dict(self._base)
        if self._lab:
            if job:
                raise InputError("a lab of --lab exists for one session only, so it has no running job")
            if "nodes" in own and set(chosen_nodes(own.pop("nodes"), [], [])) != set(self.nodes):
                raise InputError(
                    f"nodes: these are only some of the lab; {one_line(fold(self.nodes), 200)} are tested together"
                )
        elif self.nodes and not any(name in own for name in named):
            own["nodes"] = [",".join(self.nodes)]
        return argparse.Namespace(**base, **own)
