"""Evidence of earlier layers about paths: no layer waits for a deadline to learn what one before it showed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Verdict
from fabtui.model.schedule import Pair, is_settled
from fabtui.session.measure.group_tests import Group
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.retest import results_of
from fabtui.session.ranks.rank_host import RankHost

#: Age (s) up to which the mesh of this sweep shows which paths are dead now: it comes just before the ranks' tests.
FRESH = 60.0
_DEAD = (Verdict.TIMEOUT, Verdict.FAILED)
#: Node and address of an end of a path.
_Seat = tuple[str, str | None]


class DeadPath(NamedTuple):
    """Why a rank host does not reach another."""

    text: str
    timeout: bool  #: Whether there was no answer, rather than a refusal.


class DoubtfulGroups(NamedTuple):
    """Groups in which a pair is bad."""

    hopeless: dict[Group, str]  #: Those that cannot work, each with the pair that shows it.
    others: set[Group]


class EarlierEvidence:
    """Results of the mesh and of pairs, as evidence for the tests that follow.

    Args:
        context: State of the tests.
    """

    def __init__(self, context: MeasurementContext) -> None:
        self._context = context
        self._model = context.pump.model
        self._bad_paths: set[frozenset[_Seat]] = set()

    @property
    def _endpoints(self) -> list[Endpoint]:
        return self._context.endpoints

    async def look(self) -> None:
        """Look which paths the mesh of this sweep found bad, in one direction or both; it tests each of them twice."""
        self._bad_paths, since = set(), time.time() - FRESH
        for layer in MESH:
            for src, dst in self._model.addresses.node_pairs(layer):
                # There may be many.
                await asyncio.sleep(0)
                for one in self._model.addresses.latest(layer, src, dst):
                    if one.verdict.bad and one.time > since:
                        self._bad_paths.add(frozenset(((src, one.src_addr), (dst, one.dst_addr))))

    def dead_paths(self, pairs: Iterable[Pair], hosts: dict[str, RankHost]) -> dict[tuple[str, str], DeadPath]:
        """Return the ordered pairs of nodes between whose rank hosts no TCP connection was possible just now."""
        since, dead = time.time() - FRESH, {}
        nodes = {(self._endpoints[a].node, self._endpoints[b].node) for a, b in pairs}
        for here, there in {*nodes, *((there, here) for here, there in nodes)}:
            source, target = (hosts[node].address if node in hosts else None for node in (here, there))
            last = self._model.addresses.last(Layer.TCP, here, there, source or "", target or "")
            if last is not None and last.time > since and last.verdict in _DEAD:
                text = f"connect to {target}: {last.error or 'no answer'}"
                dead[here, there] = DeadPath(text, last.verdict is Verdict.TIMEOUT)
        return dead

    def is_bad_path(self, a: int, b: int) -> bool:
        """Return True if the path between the addresses of two endpoints is bad."""
        ends = self._endpoints[a], self._endpoints[b]
        return bool(self._bad_paths) and frozenset((end.node, end.address) for end in ends) in self._bad_paths

    def is_settled(self, layer: Layer, src: int, dst: int) -> bool:
        """Return True if the latest results of a slow direction leave no doubt."""
        history = self._model.history(layer, str(self._endpoints[src]), str(self._endpoints[dst]), 2)
        limit = self._model.limit(layer, self._model.key_of(history[-1])) if history else None
        return is_settled([one.value for one in history], limit)

    def doubtful_groups(self, groups: Iterable[Group], bad: Collection[Pair], *, mesh: bool) -> DoubtfulGroups:
        """Return the groups with a bad pair within, and which of them cannot work.

        In a ring of any order each rank has two neighbours: one that connects to fewer fails its group. With ``mesh``,
        all ranks connect to each other.
        """
        bad = {(min(pair), max(pair)) for pair in bad}
        apart = {pair for pair in bad if self._never_meet(*pair)}
        found = DoubtfulGroups({}, set())
        for group in groups:
            inside = set(group.ranks)
            mine = sorted(pair for pair in apart if inside.issuperset(pair))
            alone = Counter(itertools.chain.from_iterable(mine))
            enough = min(2, len(inside) - 1)
            lonely = {rank for rank, number in alone.items() if len(inside) - 1 - number < enough}
            if shown := next((pair for pair in mine if mesh or lonely.intersection(pair)), None):
                names = " and ".join(str(self._endpoints[rank]) for rank in shown)
                found.hopeless[group] = f"not tested: {names} cannot connect to each other, as their own test showed"
            elif any(inside.issuperset(pair) for pair in bad):
                found.others.add(group)
        return found

    def _never_meet(self, a: int, b: int) -> bool:
        """Return True if two ranks could not connect to each other, and no fault of the lab made that up."""
        rows = results_of(self._model, a, b)
        bad = [
            one for one in rows if one.verdict in _DEAD and not one.made and (one.error or "").startswith("connect: ")
        ]
        return len(bad) == 2
