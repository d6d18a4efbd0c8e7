"""``fabtui serve``: the app in a browser."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import secrets
import socket
import sys
from importlib.util import find_spec

from fabtui.cli.options_from_args import request_from
from fabtui.config.file import read_config
from fabtui.config.values import count
from fabtui.errors import InputError
from fabtui.model.recording import check_recording
from fabtui.paths import user_path

HELP = """\
Serve the app to a browser on this machine, or through ssh -L to a browser elsewhere.

examples:
  fabtui serve --nodes n060,n061               prints the address, and the ssh command to reach it
  fabtui serve replay session.jsonl.gz --port 0

The server listens on 127.0.0.1 only and accepts only addresses with the random token that it prints. Anyone who has
the address can do what you can do in the app. Each window is a session of its own, one at a time; closing it stops
everything on the nodes. Ctrl+C stops the server.
"""

#: Options of this command alone, and whether they have a value.
_OWN = {"--port": True, "--replay": True}


def execute(args: argparse.Namespace) -> int:
    """Serve until a signal arrives; return the exit code."""
    if find_spec("aiohttp") is None or find_spec("textual_serve") is None:
        raise InputError("serve needs packages that are not installed; pip install 'fabtui[serve]'")
    from fabtui.serve.web import serve

    # -P: otherwise Python imports from the working directory first, where anybody may have put a "fabtui".
    argv = [sys.executable, "-P", "-m", "fabtui", *_app_arguments(args)]
    port = count(getattr(args, "port", "8000"), "--port", 0, 65535)
    token = secrets.token_urlsafe(24)
    asyncio.run(serve(argv, token, port, lambda bound: _print_address(bound, token)))
    return 0


def _app_arguments(args: argparse.Namespace) -> list[str]:
    """Return the arguments of the app that is served; errors in them are reported here, not in the browser."""
    config = read_config(args)
    words = _without_own(args.words[1:])
    if "replay" in args:
        check_recording(user_path(args.replay))
        return ["replay", args.replay, *words]
    if "speed" in args:
        raise InputError("--speed needs --replay")
    request_from(args, config)
    return words


def _without_own(words: list[str]) -> list[str]:
    kept = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if not skip and name not in _OWN:
            kept.append(word)
        skip = not skip and not equals and _OWN.get(name, False)
    return kept


def _print_address(port: int, token: str) -> None:
    print(f"fabtui is at http://127.0.0.1:{port}/{token}/")
    print("from another machine, first run there:")
    print(f"    ssh -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}")
    print("then open the same address. Closing the window ends the session; Ctrl+C here stops the server.", flush=True)
