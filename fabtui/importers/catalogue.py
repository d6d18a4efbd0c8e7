"""Formats by name, and recognition of a text's format."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from fabtui.errors import InputError
from fabtui_node.parsers import catalogue
from fabtui_node.parsers.base import Format

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
    by_name = {known.lower(): form for known, form in formats().items()}
    known_as = (form.name.lower() for form in formats().values() if form.aliases and re.fullmatch(form.aliases, low))
    alias = next(known_as, "")
    for one in (low, low.removeprefix("slurm-"), alias):
        if one in by_name:
            return by_name[one]
    raise InputError(f"--as: there is no kind {name!r}; there are {', '.join(sorted(formats(), key=str.lower))}")


class Guess(NamedTuple):
    """The format that a text most likely has."""

    format: Format | None  #: The format, or None if none fits, or two fit equally.
    sure: float  #: Its likelihood, from 0 to 1.
    others: list[str]  #: Names of the other formats it may have, the most likely first.


@functools.cache
def formats() -> dict[str, Format]:
    """Return all formats by name."""
    # Declarations of this side replace those of the node side: they have what fabtui makes of an output, too.
    return catalogue.formats() | catalogue.formats_in("fabtui.importers.formats")


def recognise(text: str) -> Guess:
    """Return the most likely format of a text; no format on a tie."""
    # The log of a job may begin with pages of something else and end with what it was run for.
    ends = [text[:HEAD]] if len(text) <= HEAD else [text[:HEAD], text[-HEAD:]]
    # Most headings in a text that lost its capitals were capitals alone.
    ends += [part.upper() for part in ends if part.islower()]
    scores = {name: max(map(form.likely, ends)) for name, form in formats().items()}
    ranked = sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])
    if not ranked or scores[ranked[0]] < LEAST:
        return Guess(None, 0.0, ranked)
    if len(ranked) > 1 and scores[ranked[1]] == scores[ranked[0]]:
        return Guess(None, scores[ranked[0]], ranked)
    return Guess(formats()[ranked[0]], scores[ranked[0]], ranked[1:])
