"""From the namespace of the command line to the options of a session, every mistake told in one line."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.cli import quantities
from fabtui.errors import InputError
from fabtui.model.layers import COLLECTIVES
from fabtui.nodeset import chosen_nodes
from fabtui.paths import user_probe_folder
from fabtui.session.options import ALL_LAYERS, ALL_PROBES, OPTIONAL_PROBES, SessionOptions

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
    from fabtui.paths import check_folder, free_path, private_folder, recording_name, recordings_folder

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


#: Each message size of pairs is a sweep of its own.
MOST_PAIR_SIZES = 8
#: 8 B to 64 GiB by factors of two are 34.
MOST_COLLECTIVE_SIZES = 40
MOST_ARMS = 8
_LONGEST_VALUE = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENDPOINT = re.compile(r"[^\s:>][^\s>]*:[0-9]{1,4}")
_SWITCHES = {"force": "force", "isolated": "isolated", "bidirectional": "both", "keep_warm": "keep_warm"}
#: What an option needs to have any effect.
_NEEDS = {
    "layers": ("p2p",),
    "mode": ("p2p",),
    "pair": ("p2p",),
    "isolated": ("p2p",),
    "bidirectional": ("p2p",),
    "collectives": ("all_reduce",),
    "sizes": ("all_reduce",),
    "ab": ("p2p", "all_reduce"),
}


def tests_from(given: dict[str, Any]) -> dict[str, Any]:
    """Return what of `SessionOptions` the arguments change about the tests.

    Raises:
        InputError: Something of it is wrong.
    """
    changes: dict[str, Any] = {}
    if "probes" in given:
        changes["probes"] = _probes(given["probes"])
        _check_needs(given, changes["probes"])
    if "timeout" in given:
        changes["timeout"] = quantities.seconds(given["timeout"], "--timeout", 0.5, quantities.HOUR)
    for name, least, most in (("iters", 1, 100_000), ("warmup", 0, 100_000), ("ranks_per_node", 1, 64)):
        if name in given:
            changes[name] = quantities.count(given[name], f"--{name.replace('_', '-')}", least, most)
    if "watch_rate" in given:
        changes["watch_rate"] = quantities.ratio(given["watch_rate"], "--watch-rate", 0.01, 10_000.0)
    changes |= {field: True for name, field in _SWITCHES.items() if name in given}
    changes |= {name: given[name] for name in ("mode", "engine") if name in given}
    if "env" in given:
        changes["env"] = _environment(given["env"])
    if "ab" in given:
        changes["compare"] = _arms(given["ab"], changes.get("env", {}))
    return changes | _pairs(given) | _collectives(given)


def _probes(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the probes of a list; ``all`` stands for those that run by themselves."""
    names = [name.strip() for name in ",".join(texts).split(",")]
    wanted = [one for name in names for one in (ALL_PROBES if name == "all" else (name,))]
    known = (*ALL_PROBES, *OPTIONAL_PROBES)
    return _chosen(wanted, known, "--probes", "probe", "; or all (fabtui probes tells more)")


def _pairs(given: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "pair" in given:
        changes["pairs"] = tuple(_pair(text) for text in given["pair"])
    if "layers" in given:
        changes["layers"] = _chosen(given["layers"], ALL_LAYERS, "--layers", "layer")
    if "bytes" in given:
        sizes = quantities.sizes(given["bytes"], "--bytes", MOST_PAIR_SIZES)
        changes["bytes"] = sizes[-1]
        if len(sizes) > 1:
            changes["sizes"] = sizes
    alone = [name for name in ("isolated", "bidirectional") if name in given]
    if alone and "p2p" not in changes.get("layers", ALL_LAYERS):
        raise InputError(f"--{alone[0]} is about the layer p2p, which --layers leaves out")
    return changes


def _pair(text: str) -> tuple[str, str]:
    """Return the two endpoints of a pair as text."""
    ends = [end.strip() for end in text.split(">")]
    if len(ends) != 2 or not all(_ENDPOINT.fullmatch(end) for end in ends) or ends[0] == ends[1]:
        raise InputError(f"--pair: {text[:80]!r} is not a pair of endpoints; expected 'n060:3>n061:5'")
    return ends[0], ends[1]


def _collectives(given: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "collectives" in given:
        texts = given["collectives"]
        everything = [name.strip() for name in ",".join(texts).split(",")] == ["all"]
        known = tuple(COLLECTIVES)
        changes["collectives"] = (
            known if everything else _chosen(texts, known, "--collectives", "collective", "; or all")
        )
    if "sizes" in given:
        changes["collective_sizes"] = quantities.sizes(given["sizes"], "--sizes", MOST_COLLECTIVE_SIZES)
    return changes


def _check_needs(given: dict[str, Any], probes: Sequence[str]) -> None:
    for name, needed in _NEEDS.items():
        if name in given and not set(needed) & set(probes):
            raise InputError(f"--{name} needs the probe {' or '.join(needed)}, which --probes leaves out")


def _chosen(texts: Iterable[str], known: Sequence[str], option: str, what: str, more: str = "") -> tuple[str, ...]:
    """Return the names of a list, in the order in which they are known."""
    wanted = [name.strip() for name in ",".join(texts).split(",")]
    for name in wanted:
        if name not in known:
            wrong = f"unknown {what} {name[:40]!r}" if name else "an empty name"
            raise InputError(f"{option}: {wrong}; there are {', '.join(known)}{more}")
    return tuple(name for name in known if name in wanted)


def _environment(texts: Sequence[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            # Not the value: it may be a secret.
            raise InputError(f"--env: {name[:40]!r} is not NAME=VALUE; expected something like NCCL_DEBUG=INFO")
        if variables.setdefault(name, value) != value:
            raise InputError(f"--env: {name} is given twice with different values")
    return variables


def _arms(text: str, env: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the variable and the values of ``VAR=A,B``."""
    name, equals, rest = text.partition("=")
    expected = "expected something like NCCL_P2P_DISABLE=0,1"
    if not equals or not _NAME.fullmatch(name):
        raise InputError(f"--ab: {name[:40]!r} is not VARIABLE=A,B; {expected}")
    values = tuple(value.strip() for value in rest.split(","))
    if len(values) < 2:
        raise InputError(f"--ab: {name} has one value, so there is nothing to compare; {expected}")
    if len(values) > MOST_ARMS:
        raise InputError(f"--ab: {len(values)} values of {name}; at most {MOST_ARMS}")
    if len(set(values)) < len(values):
        raise InputError(f"--ab: a value of {name} is given twice; {expected}")
    if any(not value or not value.isprintable() or len(value) > _LONGEST_VALUE for value in values):
        raise InputError(f"--ab: a value of {name} is empty, too long or not printable; {expected}")
    if name in env:
        raise InputError(f"--ab and --env both set {name}")
    return name, values
