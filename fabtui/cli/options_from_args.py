"""Convert the parsed arguments to the options of a session; every mistake is reported in one line."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.cli.nodes_from_args import nodes_from
from fabtui.config.file import ConfigFile, merged
from fabtui.config.options import session_changes
from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable
from fabtui.lab.spec import LabSpec, parse_faults
from fabtui.paths import check_folder, free_path, private_folder, recording_name, recordings_folder, user_probe_folder
from fabtui.session.options import SessionOptions


class Request(NamedTuple):
    """The options of a session and the files to write at its end."""

    options: SessionOptions
    csv: Path | None
    json: Path | None
    table: Path | None = None


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
            raise InputError(f"--pair: {end!r}: there is no {node} among the nodes")
        if counts and int(index) >= counts[node]:
            raise InputError(f"--pair: {end!r}: {node} has endpoints 0 to {counts[node] - 1}")
    outputs = output_paths(given)
    names = changes.get("hosts") or (f"lab-{given['lab']}",)
    options = SessionOptions(**changes, record=_record(given, names), probe_folder=user_probe_folder())
    return Request(options, *outputs)


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


def output_paths(given: dict[str, Any]) -> tuple[Path | None, Path | None, Path | None]:
    """Return the paths of ``--csv``, ``--json`` and ``--table``, None where not given.

    Raises:
        InputError: One cannot be written, or two name the same file.
    """
    names: dict[Path, str] = {}
    csv, json, table = paths = tuple(output_path(given, name) for name in ("csv", "json", "table"))
    for name, path in zip(("csv", "json", "table"), paths, strict=True):
        if path is not None and names.setdefault(path, name) != name:
            raise InputError(f"--{names[path]} and --{name} both name {path}")
    return csv, json, table


def output_path(given: dict[str, Any], name: str) -> Path | None:
    """Return the path of an output option, None if it was not given.

    Raises:
        InputError: It cannot be written.
    """
    if name not in given:
        return None
    if given[name] in ("", "-"):
        raise InputError(f"--{name}: {given[name]!r} names no file; standard output is for the summary")
    path = Path(given[name]).expanduser()
    check_writable(path, f"--{name}")
    return path.absolute()


def _record(given: dict[str, Any], names: Sequence[str]) -> Path | None:
    if "no_record" in given:
        return None
    if "record" in given:
        path = Path(given["record"]).expanduser()
        if os.path.lexists(path):
            raise InputError(f"--record: {path} already exists and is not overwritten; choose another name")
        check_writable(path, "--record")
        return path.absolute()
    folder = Path(given["record_folder"]).expanduser() if "record_folder" in given else recordings_folder()
    try:
        # A folder that the user chose keeps its permissions.
        if "record_folder" in given and folder.is_dir():
            check_folder(folder)
        else:
            private_folder(folder)
    except OSError as error:
        text = f"cannot use {folder} for the recording: {error.strerror}; use --record FILE or --no-record"
        raise InputError(text) from None
    return free_path(folder / recording_name(names, time.time()))


def print_problems(config: ConfigFile) -> None:
    """Print the invalid settings on standard error."""
    for problem in config.problems:
        print(f"fabtui: {config.describe(problem)}; this setting is ignored", file=sys.stderr)
