"""Unfinished part of a recorded session, and the options to continue it with."""

from __future__ import annotations

import errno
import fcntl
import os
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fabtui import __version__
from fabtui.errors import InputError
from fabtui.model.layers import Layer
from fabtui.model.recording import apply_recorded, read_events
from fabtui.model.schedule import mode_for, pairs_for
from fabtui.model.session_model import Model
from fabtui.nodeset import check_name
from fabtui.session.measure.retest import is_tested
from fabtui.session.options import ALL_LAYERS, SessionOptions
from fabtui_node import registry

#: Names of options in recordings that differ from those of `SessionOptions`.
_RENAMED = {"looks_only": "preflight_only"}
#: Options that a recording does not hold, and options whose names alone it holds.
_NOT_RECORDED = ("record", "resumed", "query", "probe_folder", "env")


class NothingLeft(InputError):
    """Everything of a session has a result."""


class Resumption(NamedTuple):
    """A session to continue."""

    options: SessionOptions  #: Its options, without the variables of the ranks.
    env: tuple[str, ...]  #: Names of these variables, whose values are not recorded.
    pairs: int  #: Number of ordered pairs of endpoints that are known.
    left: int  #: Number of those that are left to test.
    missing: tuple[str, ...]  #: Nodes that have not had an endpoint yet.


def resumption(path: Path) -> Resumption:
    """Return what is left of the session of a recording.

    Raises:
        InputError: It is not a recording, is still written, is damaged, or cannot be continued.
        NothingLeft: Everything has a result.
    """
    _check_ended(path)
    model = Model()
    for event in read_events(path):
        apply_recorded(model, event, path)
    if model.software != __version__:
        raise InputError(
            f"{path}: recorded by fabtui {model.software or 'of an unknown version'}, and this is {__version__}, whose "
            "options and results may differ; continue with the same version, or test again"
        )
    options = _options(path, model)
    if options.preflight_only or not {"p2p", "all_reduce"} & set(options.chosen_probes):
        raise InputError(f"{path}: this session had no tests of pairs to continue")
    if options.compare is not None:
        raise InputError(f"{path}: a comparison (--ab) repeats every pair; run it again instead")
    ends = [end for end in model.rows if end.kind != "none"]
    pairs = list(pairs_for("full" if options.pairs else mode_for(options.mode, len(ends)), ends, model.table.domains))
    if options.pairs:
        asked = {frozenset(pair) for pair in options.pairs}
        pairs = [(a, b) for a, b in pairs if frozenset((str(model.endpoints[a]), str(model.endpoints[b]))) in asked]
    left = [pair for pair in pairs if not _done(model, options, pair)] if "p2p" in options.chosen_probes else []
    placed = {end.node for end in ends}
    missing = tuple(name for name in model.nodes if name not in placed)
    if not left and not missing and model.exit_code is not None:
        raise NothingLeft(
            f"{path}: nothing is left to test: all {2 * len(pairs)} pairs have results; start a new session"
        )
    # Both directions of a pair are tested together.
    return Resumption(options, tuple(map(str, model.asked("env"))), 2 * len(pairs), 2 * len(left), missing)


def _done(model: Model, options: SessionOptions, pair: tuple[int, int]) -> bool:
    largest = max(options.sizes, default=None)
    return all(
        is_tested(model, Layer(layer), *pair, asked=largest if layer == Layer.P2P else None) for layer in options.layers
    )


def _check_ended(path: Path) -> None:
    """Check that no session is writing the recording.

    Raises:
        InputError: One is.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Reported by who reads it.
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise InputError(f"{path}: a session is still recording to it; end that one first") from None
    finally:
        os.close(descriptor)


def _options(path: Path, model: Model) -> SessionOptions:
    """Return the options of a recording, which is as untrusted as any file.

    Raises:
        InputError: One of them is unknown, or not valid.
    """
    hints = typing.get_type_hints(SessionOptions)
    known = {field.name for field in fields(SessionOptions)}
    found: dict[str, Any] = {}
    for name, value in model.options.items():
        own = _RENAMED.get(name, name)
        if own in _NOT_RECORDED:
            continue
        try:
            if own not in known:
                raise ValueError("unknown")
            found[own] = _typed(hints[own], value)
        except ValueError:
            raise InputError(f"{path}: the option {name!r} cannot be used by this version of fabtui") from None
    options = SessionOptions(**found)
    for name in (*options.hosts, *options.placements):
        check_name(name, str(path))
    known_probes = {*registry.DEFAULT, *registry.OPTIONAL}
    if not {*options.chosen_probes} <= known_probes or not {*options.layers} <= {*ALL_LAYERS}:
        raise InputError(f"{path}: this version of fabtui has none of the recorded probes or layers")
    if not options.hosts and options.lab is None:
        raise InputError(f"{path}: the recording names no nodes to connect to")
    return options


def _typed(hint: Any, value: Any) -> Any:
    """Return a JSON value as the value of a type.

    Raises:
        ValueError: It is not a recorded session.
    """
    if _has_negative(value):
        raise ValueError("no option is negative")
    return msgspec.convert(value, hint, dec_hook=lambda kind, given: kind(given))


def _has_negative(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_negative, value))
    return isinstance(value, (int, float)) and not value >= 0
