"""The options that several commands share.

No option has a default here: what was not given is absent from the namespace, so that the defaults stand in one place,
`fabtui.session.options.SessionOptions`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

TRANSPORTS = ("ssh", "openssh", "local")
HOST_KEY_POLICIES = ("config", "strict", "accept-new", "off")
COLORS = ("auto", "24", "256", "16", "none")
MODES = ("auto", "quick", "sampled", "full")
ENGINES = ("auto", "nccl", "torch", "gloo")
#: What is forgotten where a word stands alone that is no command.
_NODES_HINT = "nodes are given as --nodes n060,n061"
_WITH_NODES = (None, "run", "preflight", "serve")


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes no abbreviated options."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("argument_default", argparse.SUPPRESS)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2 and one line that says what is wrong and where to look."""
        if message.startswith("argument COMMAND: invalid choice"):
            message += f"; {_NODES_HINT}"
        self._leave(message, self.prog)

    def _leave(self, message: str, command: str) -> NoReturn:
        text = " ".join("".join(c if c.isprintable() else "?" for c in message).split())
        self.exit(2, f"fabtui: error: {text}; see {command} --help\n")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the namespace; what is left over is told with the command that it was given to."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            command = getattr(found, "command", None)
            hint = (
                f"; {_NODES_HINT}" if command in _WITH_NODES and not any(word.startswith("-") for word in rest) else ""
            )
            of = f"{self.prog} {command}" if command else self.prog
            self._leave(f"unrecognized arguments: {' '.join(rest)}{hint}", of)
        return found


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what chooses the nodes and how they are reached."""
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument("--nodes", action="append", metavar="SET", help="nodes: n[060-067,070], a,b, ^FILE, @GROUP")
    nodes.add_argument(
        "--hostfile", action="append", metavar="FILE", help="one host a line, comments from # (-: stdin)"
    )
    nodes.add_argument("--exclude", action="append", metavar="SET", help="nodes to leave out, in the syntax of --nodes")
    nodes.add_argument("--lab", metavar="NxM", help="no real nodes: N made on this machine, M endpoints each")
    nodes.add_argument("--lab-fault", action="append", metavar="SPEC", help="a fault to make: 'n000:1>n001:2=drop'")

    reach = parser.add_argument_group("reaching them")
    reach.add_argument("--transport", choices=TRANSPORTS, help="asyncssh, your ssh, or this host alone (ssh)")
    reach.add_argument("--ssh-config", metavar="FILE", help="an ssh_config file instead of your own")
    reach.add_argument("--host-key-policy", choices=HOST_KEY_POLICIES, help="how host keys are checked (config)")
    reach.add_argument("--remote-python", metavar="PATH", help="the Python of the nodes that has PyTorch (looked for)")
    reach.add_argument("--connect-timeout", metavar="SECONDS", help="deadline of reaching one node (10)")
    reach.add_argument("--lease", metavar="SECONDS", help="a node ends by itself after so long without us (10)")


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is tested, and how."""
    tests = parser.add_argument_group("tests")
    tests.add_argument("--probes", action="append", metavar="LIST", help="host,ping,p2p... (all; see fabtui probes)")
    tests.add_argument("--timeout", metavar="SECONDS", help="deadline of one test (10)")
    tests.add_argument("--iters", metavar="N", help="timed iterations of one test, at most (20)")
    tests.add_argument("--warmup", metavar="N", help="iterations before the clock runs (2)")
    tests.add_argument("--watch-rate", metavar="PAIRS", help="pairs a second while watching (2, or endpoints / 8)")
    tests.add_argument("--ab", metavar="VAR=A,B", help="everything twice: NCCL_P2P_DISABLE=0,1, side by side")

    pairs = parser.add_argument_group("pairs")
    pairs.add_argument("--layers", action="append", metavar="LIST", help="world,p2p: within all, and alone (both)")
    pairs.add_argument("--mode", choices=MODES, help="which pairs: all, or fewer (auto: all below 128)")
    pairs.add_argument("--pair", action="append", metavar="A>B", help="only this pair, 'n060:3>n061:5', both ways")
    pairs.add_argument("--bytes", metavar="SIZES", help="message sizes: 256M or 8M,256M (256M; 4M on CPUs)")
    pairs.add_argument("--isolated", action="store_true", help="one pair at a time, with no other traffic")
    pairs.add_argument("--bidirectional", action="store_true", help="also both ways at once")

    collectives = parser.add_argument_group("collectives")
    collectives.add_argument("--collectives", action="append", metavar="LIST", help="which ones, or all (all_reduce)")
    collectives.add_argument("--sizes", metavar="SIZES", help="1M,64M or 8-1G or 8-1G:4 (three up to --bytes)")

    ranks = parser.add_argument_group("ranks")
    ranks.add_argument("--engine", choices=ENGINES, help="what drives the ranks (auto: nccl on GPUs, else gloo)")
    ranks.add_argument("--env", action="append", metavar="K=V", help="variable for the ranks, such as NCCL_DEBUG=INFO")
    ranks.add_argument("--ranks-per-node", metavar="N", help="CPU ranks of a node without GPUs (1)")
    ranks.add_argument("--force", action="store_true", help="test GPUs that other processes use as well")
    ranks.add_argument("--keep-warm", action="store_true", help="keep the GPUs after a sweep, for quick re-tests")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is written where."""
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--csv", metavar="FILE", help="write the measurements as CSV at the end")
    outputs.add_argument("--json", metavar="FILE", help="write everything that is known as JSON at the end")
    outputs.add_argument("--table", metavar="FILE", help="write the tables of the collectives as CSV at the end")
    record = outputs.add_mutually_exclusive_group()
    record.add_argument("--record", metavar="FILE", help="where the recording goes (a new file in the state folder)")
    record.add_argument("--no-record", action="store_true", help="keep no recording")


def add_display_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how the screen looks."""
    display = parser.add_argument_group("screen")
    display.add_argument("--theme", metavar="NAME", help="the colours, one of the files in themes/")
    display.add_argument("--colors", choices=COLORS, help="how many colours the terminal has (auto)")
    display.add_argument("--baseline", metavar="FILE", help="a recording or --json to compare with, layer 8")
    display.add_argument("--ascii", action="store_true", help="only ASCII characters")


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """Add which settings file holds."""
    settings = parser.add_argument_group("settings")
    settings.add_argument("--config", metavar="FILE", help="a settings file instead of your own (fabtui config path)")
