"""``fabtui resume``: continue a session that was cut short, with what is left to test."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fabtui.cli.commands.app import on_screen
from fabtui.cli.foreground import as_text
from fabtui.cli.options_from_args import Request, exposition_of, history_path, output_paths, recording_path
from fabtui.cli.printing import confirmed
from fabtui.config.file import read_config
from fabtui.config.options import session_changes
from fabtui.errors import InputError
from fabtui.exit_status import INTERRUPTED
from fabtui.nodeset import count, fold
from fabtui.paths import user_probe_folder
from fabtui.sanitize import one_line
from fabtui.session.options import SessionOptions
from fabtui.session.resumption import Resumption, resumption

HELP = """\
Continue a recorded session with the pairs that are left: same nodes, options and transport.

examples:
  fabtui resume session.jsonl.gz               in the app
  fabtui resume session.jsonl.gz --text --csv pairs.csv    without a screen, for scripts

Pairs with a result are not tested again, unless they failed; nodes are inspected and pinged again. The recording is not
changed: the new one begins with a copy of it, and replays the whole session.

exit codes: those of run; 2 also if nothing is left to test; 130 not confirmed, or interrupted
"""


def execute(args: argparse.Namespace) -> int:
    """Continue the session of a recording, in a new one that begins with a copy of it; return the exit code."""
    path = Path(args.file).expanduser().absolute()
    found = resumption(path)
    config = read_config(args)
    given = vars(args)
    folder = config.values.get("recording.folder")
    place = {**({} if folder is None else {"record_folder": str(folder.value)}), **given}
    env = session_changes({"env": given["env"]} if "env" in given else {}).get("env", {})
    if absent := [name for name in found.env if name not in env]:
        wanted = " ".join(f"--env {name}=..." for name in absent)
        raise InputError(f"{path}: values of variables are not recorded; give them again: {one_line(wanted, 300)}")
    runs = list(_runs(found.options))
    if runs and "yes" not in args and not _confirmed(path, runs):
        return INTERRUPTED
    names = found.options.hosts or (f"lab-{found.options.lab}",)
    record = recording_path(place, names)
    options = replace(
        found.options,
        env=env,
        record=record,
        history=history_path(place, record, lab=found.options.lab is not None),
        resumed=path,
        probe_folder=user_probe_folder(),
    )
    request = Request(options, output_paths(given), exposition_of(given))
    if "text" in args:
        if "quiet" not in args:
            print(_left(found), file=sys.stderr)
        return as_text(args, config, request)
    return on_screen(args, config, request, f"RESUMED {path.name}", "fabtui resume FILE --text")


def _left(found: Resumption) -> str:
    text = f"resumed: {found.left} of {count(found.pairs, 'pair')} left to test"
    return text + (f", and all of {one_line(fold(found.missing), 200)}" if found.missing else "")


def _runs(options: SessionOptions) -> Iterator[str]:
    """Yield the options that make this machine or the nodes run or trust something that a file names."""
    for name in ("via", "wrap", "remote_python", "ssh_config"):
        if value := getattr(options, name):
            yield f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
    if options.host_key_policy == "off":
        yield "--host-key-policy off"
    for words in dict.fromkeys(options.placements.values()):
        yield f"srun {shlex.join(words)}"


def _confirmed(path: Path, runs: list[str]) -> bool:
    """Ask whether these options may be used: somebody else may have written the file."""
    shown = "\n".join(f"  {one_line(text, 300)}" for text in runs[:20])
    question = f"{one_line(path.name)} has these options:\n{shown}\nUse them?"
    return confirmed(question, f"{path} would have this used: {one_line(runs[0], 200)}")
