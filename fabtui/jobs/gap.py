"""Gaps: operations of a communicator that some of its ranks have called and others have not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fabtui.jobs.place import Place, has, ranks_text


class Gap(NamedTuple):
    """An operation that some ranks have called and others have not.

    Attributes:
        operation: Its name as the source writes it: ``AllReduce``, ``all_reduce``.
        number: Its number in the communicator or group: the first that not all have called.
        group: The communicator or process group, for users.
        size: The number of ranks of the group, or None.
        behind: The ranks that have not called it, as far as they are listed.
        unlisted: How many more have not called it.
        waiting: The ranks that have called it, as far as they are listed.
        highest: The last operation that a rank has called.
        text: The sentence about it, where the source knows more than this.
    """

    operation: str
    number: int
    group: str
    size: int | None
    behind: tuple[Place, ...]
    unlisted: int
    waiting: tuple[Place, ...]
    highest: int
    text: str = ""

    def sentence(self) -> str:
        """Return who has not called what, in one sentence."""
        if self.text:
            return self.text
        size = "" if self.size is None else f" ({self.size} ranks)"
        number = len(self.behind) + self.unlisted
        who = ranks_text(self.behind) if self.behind else f"{self.unlisted} ranks that the report does not name"
        more = f" and {self.unlisted} more" if self.behind and self.unlisted else ""
        last = f"last {self.number - 1}" if self.number > 1 else "none so far"
        return (
            f"{self.operation} {self.number} of {self.group}{size}: {who}{more} {has(number)} not called it ({last});"
            f" the others are at {self.highest}"
        )


def causes_first(gaps: Iterable[Gap]) -> list[Gap]:
    """Return gaps with those first whose late ranks wait for nobody: a rank that waits elsewhere is a consequence."""
    found = list(gaps)
    waiting = {place.process for gap in found for place in gap.waiting}

    def order(gap: Gap) -> tuple[bool, int]:
        return all(place.process in waiting for place in gap.behind), -len(gap.waiting)

    return sorted(found, key=order)


def suspects(gaps: Iterable[Gap]) -> list[Place]:
    """Return the late ranks of the first gap, without those that wait in another group."""
    found = causes_first(gaps)
    waiting = {place.process for gap in found for place in gap.waiting}
    late = list(found[0].behind) if found else []
    return [place for place in late if place.process not in waiting] or late
