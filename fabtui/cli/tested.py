"""From the namespace of the command line to what is tested and how: a part of the options of a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from fabtui.cli import quantities
from fabtui.errors import InputError
from fabtui.model.measurement import COLLECTIVES
from fabtui.session.options import ALL_LAYERS, ALL_PROBES, OPTIONAL_PROBES

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
