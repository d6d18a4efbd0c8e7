"""From the namespace of the command line to the options of a session, every mistake told in one line."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.cli import quantities
from fabtui.cli.tested import tests_from
from fabtui.errors import InputError
from fabtui.paths import user_probe_folder
from fabtui.session.options import SessionOptions

if TYPE_CHECKING:
    from fabtui.config.file import ConfigFile

NO_NODES = "no nodes given; use --nodes n060,n061 or --hostfile FILE, or try --lab 2x4 on this machine (fabtui --help)"
_HOUR = quantities.HOUR


def _no_nodes() -> str:
    """Say how to name nodes; within a Slurm job, those of the job are at hand."""
    if os.environ.get("SLURM_JOB_NODELIST"):
        return NO_NODES.replace(
            "no nodes given;", 'no nodes given; those of this job are --nodes "$SLURM_JOB_NODELIST";'
        )
    return NO_NODES


class Request(NamedTuple):
    """What a session is asked to do, and what is written when it is over."""

    options: SessionOptions
    csv: Path | None
    json: Path | None
    table: Path | None = None


def request_from(args: argparse.Namespace, config: ConfigFile | None = None) -> Request:
    """Return the request of the arguments; files that will be written are known to be writable.

    Args:
        args: The arguments.
        config: The user's settings, which hold where the arguments say nothing.

    Raises:
        InputError: Something of it is wrong.
    """
    given = vars(args)
    if config is not None:
        from fabtui.config.file import lay_under

        given = lay_under(given, config)
    changes: dict[str, Any] = {}
    lab = given.get("lab")
    faults = tuple(given.get("lab_fault", ()))
    transport = given.get("transport", "ssh")
    if lab is not None:
        _check_lab(lab, faults, given)
        changes |= {"lab": lab, "lab_faults": faults}
    else:
        if faults:
            raise InputError("--lab-fault: faults are only made in a lab; add --lab 2x4")
        changes["hosts"] = _hosts(given, transport)
    changes["transport"] = transport
    changes |= reach_from(given)
    changes |= tests_from(given)
    _check_pairs(changes, lab)
    outputs = output_paths(given)
    names = changes.get("hosts") or (f"lab-{lab}",)
    options = SessionOptions(**changes, record=_record(given, names), probe_folder=user_probe_folder())
    return Request(options, *outputs)


def _check_lab(lab: str, faults: Sequence[str], given: dict[str, Any]) -> None:
    for other in ("nodes", "hostfile", "exclude", "transport", "ssh_config"):
        if other in given:
            raise InputError(
                f"--lab makes its own nodes and way to them; it does not go with --{other.replace('_', '-')}"
            )
    from fabtui.lab.faults import parse_faults
    from fabtui.lab.spec import LabSpec

    try:
        spec = LabSpec.parse(lab)
    except ValueError as error:
        raise InputError(f"--lab: {error}") from None
    try:
        parse_faults(list(faults), spec)
    except ValueError as error:
        raise InputError(f"--lab-fault: {error}") from None


def _check_pairs(changes: dict[str, Any], lab: str | None) -> None:
    """Refuse pairs of nodes that are not among those of the session: nothing would be tested, and all would be well."""
    counts: dict[str, int] = {}
    if lab is not None:
        from fabtui.lab.spec import LabSpec

        counts = LabSpec.parse(lab).nodes
    for end in (end for pair in changes.get("pairs", ()) for end in pair):
        node, _, index = end.rpartition(":")
        if node not in (counts or changes["hosts"]):
            raise InputError(f"--pair: {end!r}: there is no {node} among the nodes")
        if counts and int(index) >= counts[node]:
            raise InputError(f"--pair: {end!r}: {node} has endpoints 0 to {counts[node] - 1}")


def _hosts(given: dict[str, Any], transport: str) -> tuple[str, ...]:
    nodes, hostfiles = given.get("nodes", []), given.get("hostfile", [])
    if not nodes and not hostfiles:
        if transport != "local":
            raise InputError(_no_nodes())
        import socket

        nodes = [socket.gethostname().partition(".")[0] or "localhost"]
    from fabtui.hostlist import chosen_nodes

    hosts = chosen_nodes(nodes, hostfiles, given.get("exclude", []))
    if transport == "local" and len(hosts) > 1:
        raise InputError(f"--transport local is this host alone, but {len(hosts)} nodes are given")
    return tuple(hosts)


def reach_from(given: dict[str, Any]) -> dict[str, Any]:
    """Return what of `SessionOptions` the arguments change about the way to the nodes.

    Raises:
        InputError: Something of it is wrong.
    """
    changes: dict[str, Any] = {}
    if "ssh_config" in given:
        path = Path(given["ssh_config"]).expanduser()
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputError(f"--ssh-config: cannot read {path}: {error.strerror}") from None
        changes["ssh_config"] = path.absolute()
    if "host_key_policy" in given:
        changes["host_key_policy"] = given["host_key_policy"]
    if "remote_python" in given:
        python = given["remote_python"]
        if not python or python.startswith("-") or not python.isprintable():
            raise InputError(
                f"--remote-python: {python[:80]!r} is not the path of an interpreter; expected /opt/venv/bin/python3"
            )
        changes["remote_python"] = python
    if "connect_timeout" in given:
        changes["connect_timeout"] = quantities.seconds(given["connect_timeout"], "--connect-timeout", 0.5, _HOUR)
    if "lease" in given:
        changes["lease"] = quantities.seconds(given["lease"], "--lease", 3.0, _HOUR)
    return changes


def output_paths(given: dict[str, Any]) -> tuple[Path | None, Path | None, Path | None]:
    """Return the paths of ``--csv``, ``--json`` and ``--table``, those that were given; no two are the same.

    Raises:
        InputError: One cannot be written, or two name the same file.
    """
    names: dict[Path, str] = {}
    found: list[Path | None] = []
    for name in ("csv", "json", "table"):
        path = output_path(given, name)
        found.append(path)
        if path is not None and names.setdefault(path, name) != name:
            raise InputError(f"--{names[path]} and --{name} both name {path}")
    csv, json, table = found
    return csv, json, table


def output_path(given: dict[str, Any], name: str) -> Path | None:
    """Return the path of an output option that was given, known to be writable, or None.

    Raises:
        InputError: It cannot be written.
    """
    if name not in given:
        return None
    from fabtui.export.atomic_write import check_writable

    if given[name] in ("", "-"):
        raise InputError(f"--{name}: {given[name]!r} names no file; what else is told is on standard output")
    path = Path(given[name]).expanduser()
    check_writable(path, f"--{name}")
    return path.absolute()


def _record(given: dict[str, Any], names: Sequence[str]) -> Path | None:
    if "no_record" in given:
        return None
    from fabtui.places import check_folder, free_path, private_folder, recording_name, recordings_folder

    if "record" in given:
        from fabtui.export.atomic_write import check_writable

        path = Path(given["record"]).expanduser()
        if os.path.lexists(path):
            raise InputError(f"--record: {path} is there already, and is not overwritten; choose another name")
        check_writable(path, "--record")
        return path.absolute()
    folder = Path(given["record_folder"]).expanduser() if "record_folder" in given else recordings_folder()
    try:
        # A folder of the user's own choice keeps the permissions that they gave it.
        if "record_folder" in given and folder.is_dir():
            check_folder(folder)
        else:
            private_folder(folder)
    except OSError as error:
        raise InputError(
            f"cannot use {folder} for the recording: {error.strerror}; use --record FILE or --no-record"
        ) from None
    return free_path(folder / recording_name(names, time.time()))
