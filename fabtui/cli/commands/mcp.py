"""``fabtui mcp``: tools for assistants that measure, over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from fabtui.cli.commands.hang import hang_options, links_options, query_from
from fabtui.cli.commands.preflight import preflight_options
from fabtui.cli.main import report_crash
from fabtui.cli.options_from_args import notice, own_recordings, print_problems, recording_path, request_from
from fabtui.config.file import ConfigFile, merged, read_config
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.lab.faults import LabSpec
from fabtui.nodeset import chosen_nodes, fold
from fabtui.session.options import JobQuery, SessionOptions

HELP = """\
Serve tools that measure to an assistant, over standard input and output (Model Context Protocol). No port is opened.

examples:
  fabtui mcp                                   inspect nodes, observe jobs, read recordings
  fabtui mcp --nodes 'n[060-067]'              these nodes only; others are refused
  fabtui mcp --nodes @rack1 --allow-tests --budget 7200

The assistant starts it (docs/mcp.md), you choose how nodes are reached. Tests of GPUs and links need --allow-tests, do
not touch GPUs in use, and end with the budget. Commands that findings suggest are for you; the server runs none.

exit codes: 0 the client has gone; 2 bad usage or input
"""

#: Options of this command that are none of a session.
_OWN = ("allow_tests", "budget", "command", "words")


def execute(args: argparse.Namespace) -> int:
    # Versions of the package below 2 have no mcp_types.
    if any(find_spec(name) is None for name in ("mcp", "mcp_types", "anyio")):
        raise InputError("mcp needs packages that are not installed; pip install 'fabtui[mcp]'")
    from fabtui.mcp.server import Door, Permission, serve

    given = vars(args)
    if "-" in given.get("hostfile", []):
        raise InputError("--hostfile: standard input is for the client; name a file")
    if "budget" in given and "allow_tests" not in given:
        raise InputError("--budget limits tests: add --allow-tests")
    config = read_config(args)
    print_problems(config)
    requests = CommandRequests(args, config)
    budget = seconds(given.get("budget", "3600"), "--budget", 1.0, 30 * 86400.0)
    if sys.stdin.isatty():
        notice("waiting for a client on standard input; assistants start this command (docs/mcp.md)")
    permission = Permission(requests.nodes, tests="allow_tests" in given, budget=budget)
    asyncio.run(serve(Door(requests.options, own_recordings(config), permission, report_crash)))
    return 0


class CommandRequests:
    """Options of sessions from the arguments of tools and the command line of the server."""

    def __init__(self, args: argparse.Namespace, config: ConfigFile) -> None:
        self._config = config
        self._base = {name: value for name, value in vars(args).items() if name not in _OWN}
        if lab := self._base.get("lab"):
            # Checked before a client waits for the answer.
            request_from(argparse.Namespace(**self._base, no_record=True), config)
        named, files, excluded = (self._base.pop(name, []) for name in ("nodes", "hostfile", "exclude"))
        if excluded and not (named or files):
            raise InputError("--exclude: name the nodes that are allowed as well: --nodes SET")
        allowed = LabSpec.parse(lab).names if lab else chosen_nodes(named, files, excluded) if named or files else ()
        self.nodes = tuple(allowed)  #: The only nodes that are allowed; empty for any.

    def options(self, command: str, own: dict[str, Any]) -> tuple[SessionOptions, JobQuery | None]:
        if "lab" in self._base:
            if command in ("hang", "job"):
                raise InputError("a lab of --lab exists for one session only, so it has no running job")
            if (nodes := own.pop("nodes", "")) and set(chosen_nodes([nodes], [], [])) != set(self.nodes):
                raise InputError(f"nodes: only some of the lab, whose nodes are tested together: {fold(self.nodes)}")
        elif self.nodes and not own.keys() & {"nodes", "jobid", *(["logs"] if command == "job" else [])}:
            own["nodes"] = ",".join(self.nodes)
        # On a command line they may be repeated.
        args = argparse.Namespace(**self._base, **own | {key: [own[key]] for key in ("nodes", "exclude") if key in own})
        if command == "run":
            return request_from(args, self._config).options, None
        if command == "preflight":
            return preflight_options(args, self._config), None
        if command == "job":
            query = query_from(vars(args), os.environ)
            return links_options(args, self._config, query), query
        options, logs = hang_options(args)
        # The evidence is recorded as sessions are: in the folder of the settings, or not at all.
        return replace(options, record=recording_path(merged({}, self._config), options.hosts)), logs
