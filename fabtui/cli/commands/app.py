"""``fabtui`` without a command, the app on live nodes, and ``fabtui serve``, the app in a browser."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fabtui.cli.main import main
from fabtui.cli.options_from_args import Request, own_recordings, request_from
from fabtui.config.file import ConfigFile, read_config, settings_in_effect
from fabtui.config.options import options_of
from fabtui.config.values import readable_file
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK
from fabtui.nodeset import chosen_nodes
from fabtui.scheduler.current_job import current_job
from fabtui.screen.context import ScreenSettings, part
from fabtui.screen.launch import NoScreen, check_terminal, run_app, run_start

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed
    from fabtui.session.feeds.live import LiveFeed
import asyncio
import getpass
import secrets
import socket
from importlib.util import find_spec

from fabtui.config.values import count
from fabtui.model.recording import check_recording
from fabtui.paths import user_path

OneFeed = TypeVar("OneFeed", bound="Feed")
HELP = """\
Test every GPU of a cluster against every other, live, over plain SSH.
A file or folder is replayed, explained or read; bare node names are asked about
before they are tested; a number is a job of Slurm.

examples:
  fabtui                                       start screen: nodes, jobs, films
  fabtui --nodes n060,n061                     the grid of two nodes, live
  fabtui demo cable                            a cable is pulled, and found
  fabtui run --nodes @rack1 --csv pairs.csv    without a screen

exit codes: 0 ok; 1 a bad result; 2 bad input; 3 untested; 130 interrupted
"""

#: Options that name the nodes of a session, or how they are reached.
_SELECTIONS = frozenset(
    ("nodes", "hostfile", "exclude", "jobid", "pods", "lab", "lab_fault", "transport", "via", "no_job")
)
_NAMES = ("theme", "colors", "ascii", "notify")
HELP_SERVE = """\
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


def screen_settings(
    args: argparse.Namespace, config: ConfigFile, title: str, csv: Path | None = None
) -> ScreenSettings:
    """Return the settings of the screen; ``csv``: file that a key writes. InputError for an unreadable baseline."""
    own = {name: config.values[f"screen.{name}"].value for name in _NAMES if f"screen.{name}" in config.values}
    given = {name: value for name, value in vars(args).items() if name in _NAMES}
    return ScreenSettings(
        title=title,
        csv=csv,
        baseline=readable_file(args.baseline, "--baseline") if "baseline" in args else None,
        theme_must_be="theme" in given,
        keys={name: str(found.value) for name, found in config.keys.items()},
        problems=tuple(config.describe(problem) for problem in config.problems),
        config=config.path,
        in_effect=tuple(settings_in_effect(vars(args), config)),
        **{**own, **given},
    )


def show(make_feed: Callable[[], OneFeed], settings: ScreenSettings, alternative: str) -> tuple[int, OneFeed | None]:
    """Run the app; return exit code and feed. Without a terminal, InputError names the alternative command."""
    feeds: list[OneFeed] = []

    def begin() -> OneFeed:
        feeds.append(make_feed())
        return feeds[-1]

    try:
        return run_app(begin, settings), feeds[0] if feeds else None
    except NoScreen as error:
        raise InputError(f"{error}; without a screen: {alternative}") from None


def execute(args: argparse.Namespace) -> int:
    config = read_config(args)
    if "asks" in args or not (_SELECTIONS & set(vars(args)) or current_job() is not None):
        words = _chosen_command(args, config)
        if words is not None and words[:1] != ["--nodes"]:
            # Another command, with the options of the screen that were given.
            return main([*words, *_screen_words(args, words[0])]) if words else ALL_OK
        chosen = words or ()
        for name, value in zip(chosen[::2], chosen[1::2], strict=True):
            setattr(args, name.removeprefix("--").replace("-", "_"), [value] if name == "--nodes" else value)
    request = request_from(args, config)
    return on_screen(args, config, request, _title(args, request), "fabtui run --text")


def _chosen_command(args: argparse.Namespace, config: ConfigFile) -> list[str] | None:
    """Return the words chosen on the start screen; None for this command. InputError if nodes need a terminal."""
    nodes = ",".join(getattr(args, "nodes", []))
    try:
        check_terminal()
        sections = part("cli.start_choices:start_sections")
        ssh_config = user_path(args.ssh_config) if "ssh_config" in args else None
        settings = screen_settings(args, config, "")
        return run_start(
            settings, sections(own_recordings(config), ssh_config), lambda text: chosen_nodes([text], [], []), nodes
        )
    except NoScreen as error:
        if nodes:
            raise InputError(f"{error}; without a screen: fabtui run --nodes {shlex.quote(nodes)}") from None
        # The error about the options names what is missing.
        return None


def _screen_words(args: argparse.Namespace, command: str) -> list[str]:
    taken = [spec for spec in options_of(command) if spec.group in ("screen", "settings") and spec.argument in args]
    words = [[spec.flag] if spec.kind == "switch" else [spec.flag, getattr(args, spec.argument)] for spec in taken]
    return [word for own in words for word in own]


def on_screen(args: argparse.Namespace, config: ConfigFile, request: Request, title: str, without_screen: str) -> int:
    """Show the session of a request; return the exit code. InputError, with another command, without a terminal."""
    settings = screen_settings(args, config, title, request.outputs.get("csv"))
    settings = settings._replace(recorded=request.options.record is not None)

    def make_feed() -> LiveFeed:
        from fabtui.session.feeds.live import LiveFeed

        return LiveFeed(request.options)

    code, feed = show(make_feed, settings, without_screen)
    if feed is not None:
        _report(feed, request, code)
    return code


def _report(feed: LiveFeed, request: Request, code: int) -> None:
    from fabtui.cli.outputs import write_outputs

    try:
        for line in write_outputs(feed.model, request):
            # The terminal may be gone; the files are not.
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr)
    finally:
        print_end(feed, request.options.record, code)


def print_end(feed: LiveFeed, record: Path | None, code: int) -> None:
    recorded = []
    if record is not None and record.exists():
        report = f"a page about it: fabtui report {shlex.quote(str(record))}"
        recorded = [part("cli.outputs:recording_line")(record, feed.recording_stopped), report]
    if feed.history_problem:
        recorded.append(feed.history_problem)
    part("cli.outputs:print_outcome")(feed, code, recorded)


def _title(args: argparse.Namespace, request: Request) -> str:
    given = vars(args)
    if request.options.origin:
        return request.options.origin.removeprefix("nodes of ").partition(":")[0]
    if "lab" in given:
        return f"lab {given['lab']}"
    return ",".join([*given.get("nodes", []), *given.get("hostfile", [])]) or "this host"


def execute_serve(args: argparse.Namespace) -> int:
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
