"""The command line as a whole: the app's own options, and one sub-command a module."""

from __future__ import annotations

import argparse

from fabtui import __version__
from fabtui.cli.arguments import (
    OneLineParser,
    add_config_argument,
    add_display_arguments,
    add_node_arguments,
    add_output_arguments,
    add_test_arguments,
)
from fabtui.cli.commands import app, completion, config, info, preflight, probes, read, replay, run, serve

EXAMPLES = """\
examples:
  fabtui --nodes n060,n061                     the app on two nodes
  fabtui --nodes 'n[060-067]' --exclude n063   seven nodes
  fabtui --hostfile hosts --csv pairs.csv      nodes of a file; a CSV at the end
  fabtui --lab 2x4                             try it here, without any node
  fabtui --nodes @rack1 --mode quick           few pairs, but every endpoint and rail
  fabtui run --nodes @rack1 --csv pairs.csv    without a screen, for scripts
  fabtui preflight --nodes @rack1              look only: what is wrong, what differs
  fabtui replay session.jsonl.gz               a session again
  fabtui read nccl.log bw/*.txt                outputs you already have

exit codes of run: 0 all ok; 1 something is slow, failed or timed out; 2 bad usage or input;
3 something could not be tested; 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; each namespace it makes has ``execute``."""
    parser = OneLineParser(
        prog="fabtui",
        usage="fabtui [--nodes SET | --hostfile FILE | --lab NxM] [options]\n       fabtui COMMAND [options]",
        description="See a GPU fabric live: every GPU against every GPU, in the terminal, over plain SSH.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"fabtui {__version__}", help="show the version")
    parser.set_defaults(execute=app.execute)
    add_node_arguments(parser)
    add_test_arguments(parser)
    add_output_arguments(parser)
    add_display_arguments(parser)
    add_config_argument(parser)
    commands = parser.add_subparsers(
        title="commands", dest="command", prog="fabtui", metavar="COMMAND", parser_class=OneLineParser
    )
    for command in (run, preflight, replay, read, serve, config, info, probes, completion):
        command.add_command(commands)
    return parser
