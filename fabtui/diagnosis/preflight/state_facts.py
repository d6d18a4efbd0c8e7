"""Facts of the probe ``state``: what a table knows of a key, and what of any other."""

from __future__ import annotations

import functools
import re
import shlex
from typing import Any

from fabtui.diagnosis.knowledge import load
from fabtui.model.facts.compare import MOST_VALUES, Compare, Fact
from fabtui.model.facts.states import States

#: Areas whose keys are known by the rest of their name.
_PLAIN = ("sysctl.", "env.")
_UNNAMED: dict[str, Any] = {"level": "all"}


@functools.cache
def _rows(part: str) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(row["key"]), row) for row in load("state_keys")[part]]


def state_facts(states: States) -> list[Fact]:
    """Return a fact for each key in which nodes differ, those that can break the most first."""
    facts = [fact for key in states.differing(MOST_VALUES) if (fact := state_fact(states, key)) is not None]
    order = ["bad", "warn", "note"]
    return sorted(facts, key=lambda fact: (fact.quiet, order.index(fact.verdict)))


def state_fact(states: States, key: str) -> Fact | None:
    """Return the fact of a key; None if it differs by nature."""
    matches = ((pattern.fullmatch(key), row) for pattern, row in _rows("key"))
    match, row = next(((match, row) for match, row in matches if match), (None, _UNNAMED))
    if row["level"] == "no":
        return None
    area = next((area for area in _PLAIN if key.startswith(area)), "")
    quiet = row["level"] == "all"
    return Fact(
        key,
        row["title"].format("", *match.groups()) if match and "title" in row else key.removeprefix(area),
        lambda node: states.value(node.name, key),
        Compare.ODD,
        row.get("unit", ""),
        "note" if quiet else row["level"],
        next=_command(key),
        share=row.get("share", 0.0),
        floor=row.get("floor", 0.0),
        quiet=quiet,
        breaks=row.get("breaks", ""),
    )


def _command(key: str) -> str:
    for pattern, row in _rows("show"):
        if (match := pattern.match(key)) is not None:
            groups = [shlex.quote(group) for group in match.groups()]
            command: str = row["next"]
            return command.replace("{1}", groups[0]) if groups else command
    return ""
