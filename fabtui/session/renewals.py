"""Rank hosts that a watching session replaces: those that cannot be used, and those that reach nobody any more.

Libraries do not always survive a fault of the network: gloo may hang in its only thread, and every later test of that
process fails. Without a new process, a node whose network is well again would stay bad for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Tests between nodes that fail one after the other, with how many different nodes, before a rank host is replaced.
FAILURES, PEERS = 3, 2
#: Pause (s) after which it may be replaced again; it doubles up to the longest one, as the node may really be cut off.
PAUSE, LONGEST = 15.0, 600.0


class Renewals:
    """Choice of the rank hosts to replace, and times."""

    def __init__(self) -> None:
        self._failures: dict[str, list[str]] = {}
        self._times: dict[str, int] = {}
        self._earliest: dict[str, float] = {}

    def ended(self, a: str, b: str, dead: bool) -> None:
        """Note a test of a pair between two nodes: whether both its directions failed, or one at least passed."""
        for node, peer in ((a, b), (b, a)) if a != b else ():
            if dead:
                self._failures.setdefault(node, []).append(peer)
            else:
                self._failures.pop(node, None)
                self._times.pop(node, None)

    def due(self, nodes: Iterable[str], broken: Iterable[str], now: float) -> list[str]:
        """Return the nodes, of those that can be tested or are ``broken``, whose rank hosts are to be replaced now (s).

        They are not returned again before their pause is over.
        """
        there = [*nodes, *broken]
        failed = [name for name in there if len(self._failures.get(name, ())) >= FAILURES]
        peers = min(PEERS, len(there) - 1)
        lonely = {name for name in failed if len(set(self._failures[name])) >= peers}
        found = [name for name in dict.fromkeys([*broken, *lonely]) if now >= self._earliest.get(name, now)]
        for name in found:
            self._failures.pop(name, None)
            self._times[name] = self._times.get(name, 0) + 1
            self._earliest[name] = now + min(LONGEST, PAUSE * 2.0 ** (self._times[name] - 1))
        return found
