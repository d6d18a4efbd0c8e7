"""``fabtui serve``: the app in a browser."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import Any

from fabtui.cli.arguments import (
    add_config_argument,
    add_display_arguments,
    add_node_arguments,
    add_output_arguments,
    add_test_arguments,
)
from fabtui.errors import InputError

DEFAULT_PORT = 8000
_EXAMPLES = """\
examples:
  fabtui serve --nodes n060,n061               prints an address, and the ssh line to reach it from elsewhere
  fabtui serve --port 0 --replay session.jsonl.gz

The server listens on 127.0.0.1 alone, and answers only to addresses with the random token that is printed. Whoever has
the address can do what you can do in the app. Each window is a session of its own, one at a time; closing it ends what
runs on the nodes. ctrl+c ends everything.
"""


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "serve",
        help="the app in a browser, through ssh -L",
        description="Serve the app to a browser on this machine, or through ssh -L to one elsewhere.",
        epilog=_EXAMPLES,
    )
    served = parser.add_argument_group("server")
    served.add_argument("--port", metavar="N", help=f"the port on 127.0.0.1, 0 for a free one ({DEFAULT_PORT})")
    served.add_argument("--replay", metavar="FILE", help="a recording in place of nodes")
    served.add_argument("--speed", metavar="X", help="with --replay: times faster than it was, or max (1)")
    add_node_arguments(parser)
    add_test_arguments(parser)
    add_output_arguments(parser)
    add_display_arguments(parser)
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Serve until a signal ends it; returns the exit code.

    Raises:
        InputError: The arguments are wrong, the extra is not installed, or the port cannot be had.
    """
    if find_spec("aiohttp") is None or find_spec("textual_serve") is None:
        raise InputError("serve needs packages that are not installed; pip install 'fabtui[serve]'")
    import asyncio
    import secrets

    argv = [sys.executable, "-m", "fabtui", *_words(args)]
    port = _port(getattr(args, "port", str(DEFAULT_PORT)))
    token = secrets.token_urlsafe(24)
    from fabtui.serve.web import serve

    asyncio.run(serve(argv, token, port, lambda bound: _tell(bound, token)))
    return 0


def _port(text: str) -> int:
    from fabtui.cli.quantities import count

    return count(text, "--port", 0, 65535)


def _words(args: argparse.Namespace) -> list[str]:
    """Return the arguments of the app that is served; what is wrong with them is told now rather than in the browser.

    Raises:
        InputError: They are wrong.
    """
    from fabtui.config.file import read_config

    config = read_config(args)
    own = {"--port": 1}
    if "replay" in args:
        from fabtui.cli.commands.replay import check_recording

        check_recording(args.replay)
        words = _without(args.words[1:], {**own, "--replay": 1})
        return ["replay", args.replay, *words]
    if "speed" in args:
        raise InputError("--speed goes with --replay")
    from fabtui.cli.options_from_args import request_from

    request_from(args, config)
    return _without(args.words[1:], own)


def _without(words: list[str], options: dict[str, int]) -> list[str]:
    """Return words without some options and their values."""
    kept = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
            continue
        name, equals, _ = word.partition("=")
        if name in options:
            skip = 0 if equals else options[name]
            continue
        kept.append(word)
    return kept


def _tell(port: int, token: str) -> None:
    import getpass
    import socket

    print(f"fabtui is at http://127.0.0.1:{port}/{token}/")
    print("from your own machine, first:")
    print(f"    ssh -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}")
    print(
        "then open the same address there. Closing the window ends the session; ctrl+c here ends everything.",
        flush=True,
    )
