"""Convert the parsed arguments to the options of a session; every mistake is reported in one line."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.argument_name import argument
from fabtui.cli.nodes_from_args import nodes_from
from fabtui.cli.written_files import output_path
from fabtui.config.file import ConfigFile, merged
from fabtui.config.options import OUTPUTS, session_changes
from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable
from fabtui.export.formats import Exposition
from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.paths import (
    RECORDING,
    UnsafeFileError,
    check_folder,
    free_path,
    history_file,
    private_folder,
    recording_name,
    recordings_folder,
    shipped_recordings_folder,
    user_path,
    user_probe_folder,
)
from fabtui.sanitize import one_line
from fabtui.session.options import SessionOptions


class Request(NamedTuple):
    """The options of a session and the files to write at its end."""

    options: SessionOptions
    outputs: dict[str, Path]  #: File of each output option that was given, by its name.
    exposition: Exposition = Exposition()  #: What the file of ``--prom`` holds.


def request_from(args: argparse.Namespace, config: ConfigFile | None = None) -> Request:
    """Return the request of the arguments, and of the settings for what they leave open; the files can be written.

    Raises:
        InputError: An argument is not valid.
    """
    given = vars(args) if config is None else merged(vars(args), config)
    changes = session_changes(given)
    counts: dict[str, int] = {}
    if "lab" in given:
        counts = _lab(given).nodes
        changes |= {"lab": given["lab"], "lab_faults": tuple(given.get("lab_fault", ()))}
    elif "lab_fault" in given:
        raise InputError("--lab-fault: faults can only be injected into a lab; add --lab 2x4")
    else:
        changes |= nodes_from(given)
    # Pairs of unknown nodes are refused: nothing would be tested, and the exit code would be 0.
    for end in (end for pair in changes.get("pairs", ()) for end in pair):
        node, _, index = end.rpartition(":")
        if node not in (counts or changes["hosts"]):
            raise InputError(f"{argument('pair')}: {end!r}: there is no {node} among the nodes")
        if counts and int(index) >= counts[node]:
            raise InputError(f"{argument('pair')}: {end!r}: {node} has endpoints 0 to {counts[node] - 1}")
    outputs = output_paths(given)
    names = changes.get("hosts") or (f"lab-{given['lab']}",)
    record = recording_path(given, names)
    memory = history_path(given, record, lab="lab" in given)
    options = SessionOptions(**changes, record=record, history=memory, probe_folder=user_probe_folder())
    return Request(options, outputs, exposition_of(given))


def files_request(given: dict[str, Any]) -> Request:
    """Return the request of a command that only writes files of a session; see `request_from`."""
    return Request(SessionOptions(), output_paths(given), exposition_of(given))


def _lab(given: dict[str, Any]) -> LabSpec:
    for other in ("nodes", "hostfile", "exclude", "jobid", "pods", "transport", "via", "wrap", "ssh_config"):
        if other in given:
            raise InputError(f"--lab brings its own nodes and connection; it excludes --{other.replace('_', '-')}")
    option = "--lab"
    try:
        spec = LabSpec.parse(given["lab"])
        option = "--lab-fault"
        parse_faults(given.get("lab_fault", []), spec)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    return spec


def output_paths(given: dict[str, Any]) -> dict[str, Path]:
    """Return the path of each output option (`OUTPUTS`) that was given.

    Raises:
        InputError: One cannot be written, or two name the same file.
    """
    found = {name: path for name in OUTPUTS if (path := output_path(given, name)) is not None}
    names: dict[Path, str] = {}
    for name, path in found.items():
        if names.setdefault(path, name) != name:
            raise InputError(f"--{names[path]} and --{name} both name {path}")
    return found


def exposition_of(given: dict[str, Any]) -> Exposition:
    """Return what the file of ``--prom`` is to hold.

    Raises:
        InputError: A label cannot be used, or there is no such file.
    """
    for name in ("prom_pairs", "prom_label"):
        if name in given and "prom" not in given:
            raise InputError(f"--{name.replace('_', '-')} needs --prom FILE")
    if "prom" in given and not str(given["prom"]).endswith(".prom"):
        raise InputError(f"--prom: node_exporter reads files whose names end in .prom, not {given['prom']}")
    return Exposition.of("prom_pairs" in given, given.get("prom_label", ()))


def own_recordings(config: ConfigFile) -> Path:
    own = config.values.get("recording.folder")
    return recordings_folder() if own is None else user_path(str(own.value))


def shipped_recording(name: str) -> Path:
    """Return the recording of a name, or the only one whose name has this part, among those that ship with fabtui.

    Raises:
        InputError: There is none, or there are several.
    """
    folder = shipped_recordings_folder()
    known = sorted(path.name.removesuffix(RECORDING) for path in folder.glob(f"*{RECORDING}"))
    found = [one for one in known if one == name] or [one for one in known if name in one]
    if len(found) != 1:
        raise InputError(f"--demo: no recording {name[:60]!r}; there are {', '.join(known)}{nearest(name, known)}")
    return folder / f"{found[0]}{RECORDING}"


def recording_path(given: dict[str, Any], names: Sequence[str]) -> Path | None:
    """Return the path of the recording of a session on some nodes; None: there is none.

    A state folder that others can change is not used, and a warning names the command to mend it.

    Raises:
        InputError: It cannot be written, or exists.
    """
    if "no_record" in given:
        return None
    if "record" in given:
        path = user_path(given["record"])
        if os.path.lexists(path):
            raise InputError(f"--record: {path} already exists and is not overwritten; choose another name")
        check_writable(path, "--record")
        return path.absolute()
    folder = user_path(given["record_folder"]) if "record_folder" in given else recordings_folder()
    try:
        # A folder that the user chose keeps its permissions.
        if "record_folder" in given and folder.is_dir():
            check_folder(folder)
        else:
            private_folder(folder)
    except UnsafeFileError as error:
        text = f"fabtui: this session is not recorded: {one_line(str(error), 400)}, or use --record FILE"
        print(text, file=sys.stderr)
        return None
    except OSError as error:
        text = f"cannot use {folder} for the recording: {error.strerror}; use --record FILE or --no-record"
        raise InputError(text) from None
    return free_path(folder / recording_name(names, time.time()))


def history_path(given: dict[str, Any], record: Path | None, *, lab: bool) -> Path | None:
    """Return the history of the site that a session belongs to; None for one that leaves no recording either."""
    return None if record is None or "no_history" in given else history_file(lab=lab)


def print_problems(config: ConfigFile) -> None:
    """Print the invalid settings on standard error."""
    for problem in config.problems:
        ignored = "this setting" if problem.line or problem.variable else "the file"
        print(f"fabtui: {config.describe(problem)}; {ignored} is ignored", file=sys.stderr)


@functools.cache
def notice(text: str) -> None:
    """Print a notice of the connection, once: a command connects to a node several times."""
    print(f"fabtui: {one_line(text, 500)}", file=sys.stderr)
