"""Formats by name, and recognition of a text's format."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge.pattern_set import PatternSet
from fabtui.errors import InputError, argument
from fabtui_node.parsers.base import Format, Likely

#: Characters at the beginning and at the end of a text that are used to recognise it.
HEAD = 64 * 1024
#: Minimum likelihood to recognise a format.
LEAST = 0.3
UNKNOWN = "unknown"


def is_ours(kind: str) -> bool:
    """Return True if files of a kind are written by fabtui: recordings, snapshots and sessions."""
    return kind.startswith("fabtui-")


def chosen(name: str) -> Format:
    """Return the format of a name, in any case, of a tool of its suite, or with ``slurm-`` before it.

    Raises:
        InputError: There is none; the names are in the message.
    """
    low = name.lower()
    every = formats().values()
    for same in (low, low.removeprefix("slurm-")):
        for form in every:
            if form.name.lower() == same:
                return form
    for form in every:
        if form.aliases and re.fullmatch(form.aliases, low):
            return form
    known = ", ".join(sorted(formats(), key=str.lower))
    raise InputError(f"{argument('as')}: there is no kind {name!r}; there are {known}")


class Guess(NamedTuple):
    """The format that a text most likely has."""

    format: Format | None  #: The format, or None if none fits, or two fit equally.
    sure: float  #: Its likelihood, from 0 to 1.
    others: list[str]  #: Names of the other formats it may have, the most likely first.


def formats_in(package: str) -> dict[str, Format]:
    """Return the formats that the modules of a package and of the packages in it declare in ``FORMATS``, by name.

    Raises:
        ValueError: Two formats have the same name.
    """
    folder: Any = importlib.import_module(package)
    names = sorted(module.name for module in pkgutil.walk_packages(folder.__path__, package + "."))
    declared = [form for name in names for form in getattr(importlib.import_module(name), "FORMATS", ())]
    by_name = {form.name: form for form in declared}
    if len(by_name) < len(declared):
        raise ValueError("two formats have the same name")
    return by_name


@functools.cache
def formats() -> dict[str, Format]:
    # Declarations of this side replace those of the node side: they have what fabtui makes of an output, too.
    return formats_in("fabtui_node.parsers") | formats_in("fabtui.importers.formats")


@functools.cache
def _possible() -> PatternSet[str]:
    """Return the patterns one of which is in each text of a format; of others, one that is in every text."""
    needs = {name: form.likely.needs if isinstance(form.likely, Likely) else ("",) for name, form in formats().items()}
    # A text may have lost its capitals: the case of letters does not count here.
    return PatternSet((name, f"(?im){pattern}") for name, own in needs.items() for pattern in own)


def likelihoods(text: str) -> dict[str, float]:
    """Return how likely a text has each format; those that it cannot have are missing."""
    return {name: likely for name in _possible().owners(text) if (likely := formats()[name].likely(text)) > 0}


def recognise(text: str) -> Guess:
    """Return the most likely format of a text; no format on a tie."""
    # The log of a job may begin with pages of something else and end with what it was run for.
    ends = [text[:HEAD]] if len(text) <= HEAD else [text[:HEAD], text[-HEAD:]]
    scores: dict[str, float] = {}
    for part in ends:
        for name, likely in likelihoods(part).items():
            scores[name] = max(likely, scores.get(name, 0.0))
    # Among equals the one that is declared first comes first.
    order = {name: at for at, name in enumerate(formats())}
    ranked = sorted(scores, key=lambda name: (-scores[name], order[name]))
    if not ranked or scores[ranked[0]] < LEAST:
        return Guess(None, 0.0, ranked)
    if len(ranked) > 1 and scores[ranked[1]] == scores[ranked[0]]:
        return Guess(None, scores[ranked[0]], ranked)
    return Guess(formats()[ranked[0]], scores[ranked[0]], ranked[1:])
