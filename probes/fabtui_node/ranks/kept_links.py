"""Links between two ranks that are kept after a test, to be used by the next test of the same pair."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from fabtui_node.ranks.base import Task

Key = Tuple[int, int]
"""The other rank, and the maximum number of CTAs (0: the library's default)."""


class Keepable:
    """Base of links that may be kept between two tests."""

    def pause(self) -> None:
        """Prepare for the time until the next test."""

    def renew(self, task: Task) -> None:
        """Begin the next test."""

    def close(self, broken: bool) -> None:
        """Release the connection, without waiting if it is ``broken``."""
        raise NotImplementedError


class KeptLinks:
    """The kept links of one rank; used by its thread.

    Each has the name that both of its ends gave it when they made it: a link is used again only if both have the same.
    The controller bounds their number, because only it knows when nothing is in progress and both ends can let go.
    """

    def __init__(self) -> None:
        self._links: Dict[Key, Tuple[str, Keepable]] = {}

    def __len__(self) -> int:
        return len(self._links)

    def name(self, key: Key) -> Optional[str]:
        """Return the name of the link, None if there is none."""
        return self._links[key][0] if key in self._links else None

    def take(self, key: Key, task: Task) -> Keepable:
        """Remove and return a link for a test."""
        link = self._links.pop(key)[1]
        link.renew(task)
        return link

    def put(self, key: Key, name: str, link: Keepable) -> None:
        """Keep a link; one that is in its place is closed."""
        self.close(key, broken=True)
        link.pause()
        self._links[key] = name, link

    def close(self, key: Key, broken: bool) -> None:
        """Close a link if there is one."""
        found = self._links.pop(key, None)
        if found is not None:
            found[1].close(broken)

    def clear(self) -> None:
        """Close all links."""
        for key in list(self._links):
            self.close(key, broken=False)
