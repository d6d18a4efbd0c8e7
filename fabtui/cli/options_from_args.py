"""Convert the parsed arguments to the nodes and options of a session; every mistake is reported in one line."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fabtui import paths
from fabtui.cli.printing import new_file, output_path
from fabtui.config.file import ConfigFile, merged
from fabtui.config.options import OUTPUTS, session_changes
from fabtui.errors import InputError, argument
from fabtui.export.formats import Exposition
from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.nodeset import check_name, chosen_nodes, fold
from fabtui.sanitize import one_line
from fabtui.scheduler import slurm
from fabtui.scheduler.base import Allocation
from fabtui.scheduler.current_job import current_job, pods
from fabtui.session.options import SessionOptions
from fabtui.transport.registry import TRANSPORTS

#: Most nodes of a job that are reached by ssh unless asked for; the scheduler starts the node sides of more.
_MOST_BY_SSH = 128


class Request(NamedTuple):
    """The options of a session and the files to write at its end."""

    options: SessionOptions
    outputs: dict[str, Path]  #: File of each output option that was given, by its name.
    exposition: Exposition = Exposition()  #: What the file of ``--prom`` holds.


def request_from(args: argparse.Namespace, config: ConfigFile | None = None) -> Request:
    """Return the request of arguments and settings, whose files can be written; InputError if one is not valid."""
    given = vars(args) if config is None else merged(vars(args), config)
    changes = session_changes(given)
    counts: dict[str, int] = {}
    if "lab" in given:
        counts = _lab(given).nodes
        changes |= {"lab": given["lab"], "lab_faults": tuple(given.get("lab_fault", ()))}
    elif "lab_fault" in given:
        raise InputError("--lab-fault: faults can only be injected into a lab; add --lab 2x4")
    else:
        ends = (end for pair in changes.get("pairs", ()) for end in pair)
        changes |= nodes_from(given, dict.fromkeys(end.rpartition(":")[0] for end in ends))
    # Pairs of unknown nodes are refused: nothing would be tested, and the exit code would be 0.
    known = frozenset(counts or changes["hosts"])
    where = argument("pairs-from" if "pairs_from" in given else "pair")
    for end in (end for pair in changes.get("pairs", ()) for end in pair):
        node, _, index = end.rpartition(":")
        if node not in known:
            raise InputError(f"{where}: {end!r}: there is no {node} among the nodes")
        if counts and int(index) >= counts[node]:
            raise InputError(f"{where}: {end!r}: {node} has endpoints 0 to {counts[node] - 1}")
    outputs = output_paths(given)
    names = changes.get("hosts") or (f"lab-{given['lab']}",)
    record = recording_path(given, names)
    memory = history_path(given, record, lab="lab" in given)
    options = SessionOptions(**changes, record=record, history=memory, probe_folder=paths.user_probe_folder())
    return Request(options, outputs, exposition_of(given))


def files_request(given: dict[str, Any]) -> Request:
    return Request(SessionOptions(), output_paths(given), exposition_of(given))


def resumed_request(given: dict[str, Any], config: ConfigFile, path: Path, options: SessionOptions) -> Request:
    """Return the request of a session that continues a recording, with the options of that; see `request_from`."""
    folder = config.values.get("recording.folder")
    place = {**({} if folder is None else {"record_folder": str(folder.value)}), **given}
    record = recording_path(place, options.hosts or (f"lab-{options.lab}",))
    memory = history_path(place, record, lab=options.lab is not None)
    options = replace(options, record=record, history=memory, resumed=path, probe_folder=paths.user_probe_folder())
    return Request(options, output_paths(given), exposition_of(given))


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
    """Return the path of each output option given; InputError if not writable, or if two name the same file."""
    files = {name: path for name in OUTPUTS if (path := output_path(given, name)) is not None}
    names: dict[Path, str] = {}
    for name, path in files.items():
        if names.setdefault(path, name) != name:
            raise InputError(f"--{names[path]} and --{name} both name {path}")
    return files


def exposition_of(given: dict[str, Any]) -> Exposition:
    """Return what the file of ``--prom`` is to hold; InputError for a wrong label or without the file."""
    for name in ("prom_pairs", "prom_label"):
        if name in given and "prom" not in given:
            raise InputError(f"--{name.replace('_', '-')} needs --prom FILE")
    if "prom" in given and not str(given["prom"]).endswith(".prom"):
        raise InputError(f"--prom: node_exporter reads files whose names end in .prom, not {given['prom']}")
    return Exposition.of("prom_pairs" in given, given.get("prom_label", ()))


def own_recordings(config: ConfigFile) -> Path:
    own = config.values.get("recording.folder")
    return paths.recordings_folder() if own is None else paths.user_path(str(own.value))


def recording_path(given: dict[str, Any], names: Sequence[str]) -> Path | None:
    """Return the path of the recording of a session on some nodes; None: there is none.

    A state folder that others can change is not used, and a warning names the command to mend it.

    Raises:
        InputError: It cannot be written, or exists.
    """
    if "no_record" in given:
        return None
    if "record" in given:
        return new_file(given["record"], "--record")
    folder = paths.user_path(given["record_folder"]) if "record_folder" in given else paths.recordings_folder()
    try:
        # A folder that the user chose keeps its permissions.
        if "record_folder" in given and folder.is_dir():
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            paths.private_folder(folder)
    except paths.UnsafeFileError as error:
        text = f"fabtui: this session is not recorded: {one_line(str(error), 400)}, or use --record FILE"
        print(text, file=sys.stderr)
        return None
    except OSError as error:
        text = f"cannot use {folder} for the recording: {error.strerror}; use --record FILE or --no-record"
        raise InputError(text) from None
    return paths.free_path(folder / paths.recording_name(names, time.time()))


def history_path(given: dict[str, Any], record: Path | None, *, lab: bool) -> Path | None:
    """Return the history of the site that a session belongs to; None for one that leaves no recording either."""
    return None if record is None or "no_history" in given else paths.history_file(lab=lab)


def print_problems(config: ConfigFile) -> None:
    for problem in config.problems:
        ignored = "this setting" if problem.line or problem.variable else "the file"
        print(f"fabtui: {config.describe(problem)}; {ignored} is ignored", file=sys.stderr)


@functools.cache
def notice(text: str) -> None:
    """Print a notice of the connection, once: a command connects to a node several times."""
    print(f"fabtui: {one_line(text, 500)}", file=sys.stderr)


def nodes_from(given: dict[str, Any], of_pairs: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options that select and reach the nodes, by default those ``of_pairs``; InputError without nodes."""
    _check_together(given)
    if "pods" in given:
        running = pods(given["pods"], "--pods")
        changes = _of_allocation(running.allocation, given)
        return changes | {"transport": "via", "via": running.via}
    name = "via" if "via" in given else given.get("transport", next(iter(TRANSPORTS)))
    if name == "via" and "via" not in given:
        raise InputError("--transport via needs a command line: --via 'kubectl exec -i {node} --'")
    if name == "kubernetes" and not given.get("manifest"):
        raise InputError("--transport kubernetes needs --manifest FILE; docs/scale.md has one to start from")
    named = bool(given.get("nodes") or given.get("hostfile"))
    if not TRANSPORTS[name].remote:
        return {"hosts": _this_host(given, name, named), "transport": name}
    job = _job(given, name, named)
    if job is None:
        if not named and name != "srun" and (ends := [check_name(node, argument("pair")) for node in of_pairs]):
            return {"hosts": _chosen({**given, "nodes": ends}), "transport": name}
        if not named:
            raise InputError(
                f"no nodes given; use {argument('nodes')} n060,n061, {argument('jobid')} ID or --hostfile FILE, "
                "start inside a job, or try --lab 2x4 on this machine (fabtui --help)"
            )
        if name == "srun":
            how = f"start inside salloc or sbatch, or name one with {argument('jobid')}"
            raise InputError(f"--transport srun needs a job: {how}")
        return {"hosts": _chosen(given), "transport": name} | _fallback(name)
    changes = _of_allocation(job, given)
    if name == "srun" and not changes["placements"]:
        raise InputError(f"--transport srun needs a job of Slurm, but this is {job.title}")
    if name == "ssh" and "transport" not in given:
        starter = "srun" if changes["placements"] else "flux" if job.title.startswith("Flux") else ""
        if starter and len(changes["hosts"]) > _MOST_BY_SSH:
            return changes | {"transport": starter, "fallback": "ssh"}
        if starter == "srun":
            changes["fallback"] = "srun"
    return changes | {"transport": name} | _fallback(name)


def _fallback(transport: str) -> dict[str, Any]:
    return {"fallback": "ssh"} if transport in ("flux", "mpirun") else {}


def _check_together(given: dict[str, Any]) -> None:
    for name, others in (
        ("jobid", ("no_job", "pods")),
        ("pods", ("nodes", "hostfile", "via", "transport")),
        ("via", ("transport",)),
    ):
        for other in others if name in given else ():
            if other in given and given[other] != name:
                raise InputError(f"--{name} excludes --{other.replace('_', '-')}")


def _chosen(given: dict[str, Any]) -> tuple[str, ...]:
    return tuple(chosen_nodes(given.get("nodes", []), given.get("hostfile", []), given.get("exclude", [])))


def _this_host(given: dict[str, Any], transport: str, named: bool) -> tuple[str, ...]:
    nodes = given if named else {**given, "nodes": [socket.gethostname().partition(".")[0] or "localhost"]}
    hosts = _chosen(nodes)
    if len(hosts) > 1:
        raise InputError(f"--transport {transport} is this host only, but {len(hosts)} nodes are given")
    return hosts


def _job(given: dict[str, Any], transport: str, named: bool) -> Allocation | None:
    """Return the job whose nodes are tested or reached by srun, None if there is none."""
    if "jobid" in given:
        where = argument("jobid")
        return slurm.allocation_of(slurm.job_ids(given["jobid"], where), where)
    if "no_job" in given:
        return None
    if not named:
        return current_job()
    try:
        job = slurm.from_environment()
    except InputError:
        # The nodes are given; only srun needs more.
        if transport == "srun":
            raise
        return None
    # Nodes of others, or of nobody, are tested as they are given.
    return job if job is not None and (transport == "srun" or set(_chosen(given)) <= set(job.nodes)) else None


def _of_allocation(allocation: Allocation, given: dict[str, Any]) -> dict[str, Any]:
    hosts = allocation.nodes
    if given.get("nodes") or given.get("hostfile"):
        hosts = _chosen(given)
        strangers = [name for name in hosts if name not in allocation.nodes]
        if strangers:
            text = f"not of {allocation.title}: {fold(strangers)}; its nodes are {fold(allocation.nodes)}"
            raise InputError(f"{argument('nodes')}: {text}")
    elif given.get("exclude"):
        hosts = tuple(chosen_nodes([",".join(allocation.nodes)], [], given["exclude"]))
    placements = {name: allocation.placements[name] for name in hosts if name in allocation.placements}
    return {"hosts": hosts, "origin": allocation.describe(), "job": allocation.job, "placements": placements}


def in_job() -> bool:
    """Return True within a job whose nodes are known; a container in a job has no tools of the scheduler."""
    try:
        return current_job() is not None
    except InputError:
        return False
