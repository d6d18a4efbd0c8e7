"""The command that words stand for which begin with none: files, a job of Slurm, or nodes."""

from __future__ import annotations

import re
import shlex
import socket
import threading
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from fabtui.cli.parser import COMMANDS, FURTHER
from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.importers.catalogue import HEAD, recognise
from fabtui.importers.sources import contents
from fabtui.model.recording import DamagedRecording, check_recording
from fabtui.nodeset import expand
from fabtui.paths import is_file_or_folder, user_path
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import status_of
from fabtui.transport.ssh_hosts import host_patterns

#: Time (s) in which names have to resolve, and the maximum number of names that are asked about.
_RESOLVED, _MOST_ASKED = 2.0, 16
#: What ``fabtui explain`` knows by a code.
_CODE = re.compile(r"(?:FT|E|J)\d{1,4}|xid", re.IGNORECASE)
_WHERE = "nodes"


class LikelyCommand(NamedTuple):
    """The words of a command line, and whether they name nodes that are tested only after a further key."""

    words: list[str]
    asks: bool = False


def likely_command(words: Sequence[str], at: int) -> LikelyCommand:
    """Return the command line meant by words without a command, the first of which is at a place, or InputError."""
    # A dash alone is standard input.
    end = next(
        (place for place in range(at, len(words)) if words[place].startswith("-") and len(words[place]) > 1), len(words)
    )
    things, before, after = list(words[at:end]), [*words[:at]], [*words[end:]]
    first = things[0]
    if is_file_or_folder(first):
        return LikelyCommand([_command_of(things), *before, *things, *after])
    problem = ""
    if re.fullmatch(r"\d{1,12}(?:[_+]\d{1,9})?", first, re.ASCII):
        status = status_of(first)
        if status.state:
            return LikelyCommand(["job", *before, *things, *after])
        problem = f": {status.problem}"
    elif not (near := nearest(first, [*COMMANDS, *FURTHER, "--version", "--help"])) or not first.isalpha():
        text = ",".join(things)
        try:
            names = expand(text, _WHERE)
            if not (unknown := _unresolved(names)):
                return LikelyCommand(["--nodes", text, *before, *after], asks=True)
            problem = f": no host {one_line(unknown, 60)} is known here"
        except InputError as error:
            if re.search(r"[\[@,&!^]", text):
                raise InputError(str(error)) from None
    else:
        problem = near
    if _CODE.fullmatch(first):
        problem = f"; did you mean fabtui explain {shlex.join(things)}?"
    see = "" if problem.endswith("?") else "; see fabtui --help"
    raise InputError(f"{one_line(first, 80)!r} is neither a command, a file, a job nor a node{problem}{see}")


def _command_of(files: Sequence[str]) -> str:
    """Return the command for files: a recording is replayed, logs and folders are explained, other outputs read."""
    for name in files:
        if not is_file_or_folder(name):
            raise InputError(f"cannot read {one_line(name, 200)}: no such file")
    kinds = ["explain" if name == "-" else _kind(user_path(name)) for name in files]
    if kinds.count("replay") == 2 == len(kinds):
        raise InputError(f"these are two recordings; did you mean fabtui diff {shlex.join(files)}?")
    if "replay" in kinds and len(kinds) > 1:
        recording = shlex.quote(files[kinds.index("replay")])
        raise InputError(f"a recording is replayed alone; did you mean fabtui replay {recording}?")
    return "explain" if "explain" in kinds else kinds[0]


def _kind(path: Path) -> str:
    if path.is_dir():
        return "explain"
    try:
        check_recording(path)
    except DamagedRecording:
        return "replay"
    except (InputError, OSError):
        form = recognise(_beginning(path)).format
        return "explain" if form is None or form.errors else "read"
    return "replay"


def _beginning(path: Path) -> str:
    """Return the beginning of a file, unpacked; "" if it cannot be read, which its command reports."""
    try:
        with path.open("rb") as file:
            first = next(iter(contents(file)), None)
    except (OSError, InputError):
        return ""
    return "" if first is None else first.data[:HEAD].decode("utf-8", "replace")


def _unresolved(names: Sequence[str]) -> str:
    """Return the first name unknown to ssh configuration and name service, or ""; of many, some are asked about."""
    patterns = host_patterns()
    asked = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    asked = asked[:: max(1, len(asked) // _MOST_ASKED)]
    known: set[str] = set()

    def ask(name: str) -> None:
        try:
            socket.getaddrinfo(name, None)
            known.add(name)
        except (OSError, UnicodeError):
            pass

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_RESOLVED / max(1, len(threads)) if thread is not threads[0] else _RESOLVED)
    return next((name for name in asked if name not in known), "")
