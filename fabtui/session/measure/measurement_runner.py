"""Tests of endpoints in one sweep: TCP check, world layer, pairs, suspects, collectives."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence, Set

from fabtui.model.class_statistics import SURELY_SLOW
from fabtui.model.endpoints import node_of
from fabtui.model.events import PhaseStart, PlanUpdate
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import DEAD, Measurement, Verdict
from fabtui.model.schedule import (
    MAX_SUSPECTS,
    SLOW_ROUNDS,
    Pair,
    PairArray,
    PairSet,
    cover,
    mode_for,
    pairs_for,
    suspect_pairs,
)
from fabtui.nodeset import count
from fabtui.sanitize import one_line
from fabtui.session.counter_sampler import CounterSampler
from fabtui.session.measure.bisection import Bisection, units_of
from fabtui.session.measure.communicator_cache import CommunicatorCache
from fabtui.session.measure.earlier_evidence import DeadPath, DoubtfulGroups, EarlierEvidence
from fabtui.session.measure.group_tests import (
    EVERY_NODE_PAIR,
    CollectiveTest,
    Group,
    WorldSweep,
    WorldTest,
    first_groups,
    groups_of,
    is_measured,
    run_collective,
)
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.p2p import PairSweep, PairTest
from fabtui.session.measure.retest import (
    bad_directions,
    bad_pairs,
    is_tested,
    results_of,
    retest,
    unordered,
)
from fabtui.session.options import SessionOptions
from fabtui.session.ranks.rank_host import HostLost, HostMessage, HostReports
from fabtui_node.protocol import ErrorKind

#: CPU ranks share the cores of their node, so their values spread far wider.
SLOW_BELOW = {"gloo": 0.2}
#: Verdicts of pairs that may pass later; wrong data is certain.
FAILED = (Verdict.FAILED, Verdict.TIMEOUT)
GROUP_SLOW_BELOW = {"gloo": 0.1}
USUAL_SLOW_BELOW = 0.7
LATENCY_ITERS = 20
#: Share of the deadline for the retest of a dead pair, and for the test of one whose path the mesh found bad.
DEAD_SHARE = 0.7
#: The same for the TCP check, which has no data to move; for the world layer where a path is bad, as one pair takes all
#: others along; and for collectives over groups with a bad pair.
REACH_SHARE = WORLD_SHARE = GROUP_SHARE = 0.5
#: The same, once more at the end of a sweep.
LATE_SHARE = 0.3
#: Deadline (s) that a pair has at least when it is tested again, as far as the whole one allows. Half of it is for one
#: direction: TCP repeats a first packet that was lost after 1 s.
LEAST_DEADLINE = 3.0
#: The share of the deadline that ranks wait for each other at first, where there are so few endpoints that they meet
#: within milliseconds; the seconds that they wait at least, as far as the deadline allows. Who does not come is waited
#: for once more, and longer.
MEET_SHARE = 0.25
MEET_LEAST = 2.0
MEET_AT_ONCE = 32
#: How often a pair is tested again whose connection was closed: nobody can be kept from connecting to the ranks' ports.
LOST_ROUNDS = 3
#: Time (s) that the answers of the TCP check may take beyond the deadline of the connections.
REACH_GRACE = 3.0
#: Maximum number of pairs that a line of the log names.
_MAX_NAMED = 3
#: Number of pairs that are looked at before others take their turn.
_TURN = 1024


def shared_deadline(timeout: float, share: float) -> float:
    """Return a share of a deadline (s) that is long enough to find a pair well."""
    return max(share * timeout, min(timeout, LEAST_DEADLINE))


class MeasurementRunner:
    """Runs the tests of a session. Its `counters` samples the counters of the nodes while pairs are tested."""

    def __init__(self, options: SessionOptions, context: MeasurementContext) -> None:
        self._options = options
        self._context = context
        self._pump = context.pump
        self._model = context.pump.model
        self.counters = CounterSampler(context)
        context.sample_counters = self.counters.sample
        #: Pairs that have failed twice.
        self._proven: set[frozenset[int]] = set()
        #: Time of the first failure of pairs in this sweep (epoch seconds).
        self._bad_since: dict[frozenset[int], float] = {}
        #: Pairs that end a rank host.
        self._fatal: set[frozenset[int]] = set()
        self._adaptive = False  #: Whether the latest sweep tests few pairs, and then more of the suspects.
        self._slow_round = 0  #: Latest round of retests of slow pairs that was logged.
        self._kept = CommunicatorCache(context)
        self._known = EarlierEvidence(context)
        self._swept = PairSet()  #: Pairs of the latest sweep.
        self._since = 0.0  #: Start of its tests of pairs (epoch seconds).
        self._world_sweep: WorldSweep | None = None  #: The latest sweep of the world layer.
        self._groups: list[Group] = []  #: Groups of the latest sweep over collectives.
        self.resumed = False  #: Whether collectives are left out that an earlier part of the session has results of.
        self.left = False  #: Whether pairs are left out of which both directions have a good or a slow result.

    async def run(self, new: list[str], old: list[str], withheld: dict[int, str]) -> None:
        """Run all tests with a node of ``new``; endpoints in ``withheld`` are not tested, for these reasons."""
        self._proven.clear()
        self._bad_since.clear()
        self._fatal.clear()
        self._context.lasting = "all_reduce" in self._options.chosen_probes
        self._kept.pool.resize(self._options.largest_message(self._engine))
        if "p2p" in self._options.chosen_probes:
            with self.counters.sampling():
                await self._pairs(new, old, withheld)
            self.counters.border("p2p")
        if "all_reduce" in self._options.chosen_probes:
            await self._collectives([*old, *new], withheld)
            await self._contradicted()
            self.counters.border("collectives")

    @property
    def _engine(self) -> str:
        return next((host.engine.name for host in self._context.hosts.values()), "gloo")

    @property
    def _bytes(self) -> int:
        return self._options.message_size(self._engine)

    @property
    def _largest(self) -> int:
        return max(self._options.sizes, default=self._bytes)

    async def _pairs(self, new: list[str], old: list[str], withheld: dict[int, str]) -> None:
        there = {*old, *new} & self._context.hosts.keys()
        here = [e for e in self._context.endpoints if e.node in there and e.kind != "none"]
        mode = "full" if self._options.pairs else mode_for(self._options.mode, len(here))
        fresh = {e.number for e in here if e.node in new}
        self._adaptive = mode == "adaptive"
        wanted = self._wanted(pairs_for(mode, here, self._model.table.domains, self._model.table.leaves))
        involved = PairArray(pair for pair in wanted if not fresh.isdisjoint(pair))
        left = {layer: self._left(involved, Layer(layer)) for layer in self._options.layers}
        pairs = PairArray(pair for pair in involved if any(pair in found for found in left.values()))
        plan = "" if mode == "full" else f"{mode}: {len(pairs):,} of {len(here) * (len(here) - 1) // 2:,} pairs"
        if plan:
            self._pump.log("notice", f"{plan} are tested")
            plan += ", then suspects with healthy partners" if self._adaptive else ""
        self._pump.emit(PlanUpdate(slow_below=SLOW_BELOW.get(self._engine, USUAL_SLOW_BELOW), pairs=plan))
        pairs = self._without_withheld(pairs, withheld)
        if not pairs:
            return
        self._pump.emit(PhaseStart(name="reach", total=0))
        await self._pump.flush()
        await self._known.look()
        dead = await self._check_reach(pairs, shared_deadline(self._options.timeout, REACH_SHARE))
        world: WorldSweep | None = None
        if "world" in self._options.layers:
            ends = {end for pair in pairs for end in pair} if self._options.pairs else {e.number for e in here}
            # Without a pair that is left, the world is not formed again.
            if asked := PairSet(pair for pair in pairs if pair in left["world"]):
                world = await self._world(sorted(ends - withheld.keys()), asked)
        pairs = PairArray(pair for pair in pairs if pair in left.get("p2p", ()))
        # A bit for each possible pair.
        del left, wanted, involved
        if pairs:
            self._pump.emit(PhaseStart(name="p2p", total=2 * len(pairs) * max(1, len(self._options.sizes))))
            await self._p2p(pairs, dead, len(here))
        self._world_sweep = world
        if world is not None:
            await self._world_failures_again(world)
            await self._world_again(world)

    async def _p2p(self, pairs: PairArray, dead: dict[tuple[str, str], DeadPath], ends: int) -> None:
        """Test pairs each in a communicator of its own, and suspects again; ``ends`` endpoints are there."""
        self._swept, self._since = PairSet(pairs), time.time()
        if self._engine == "gloo":
            pairs = self._without_dead(pairs, dead)
        # In an arm of a comparison nothing is tested again.
        meet = MEET_SHARE if self._context.arm is None and ends <= MEET_AT_ONCE else 0.5
        bad = [pair for pair in pairs if self._known.is_bad_path(*pair)] if self._context.arm is None else []
        # If they fail, two tests agree: they come last, under less than a whole deadline.
        bad = bad if len(bad) <= MAX_SUSPECTS else []
        doubtful = set(unordered(bad))
        sure = PairArray((a, b) for a, b in pairs if (min(a, b), max(a, b)) not in doubtful)
        for size in self._options.sizes or (self._bytes,):
            for some, share in ((sure, 1.0), (bad, DEAD_SHARE)):
                await self._run_pairs(some, size, alone=self._options.isolated, share=share, meet=meet)
        if self._context.arm is not None:
            return
        if self._adaptive and (more := await self._more_of_suspects()):
            await self._run_pairs(more, self._largest)
            pairs = PairArray((*pairs, *more))
            self._swept = PairSet(pairs)
        await self._suspects(PairSet(pairs), doubtful)

    async def _more_of_suspects(self) -> PairArray:
        """Return further pairs of the endpoints that bad pairs have in common."""
        await self._pump.flush()
        bad = await bad_pairs(self._model, self._swept, (*DEAD, Verdict.SLOW))
        there = self._context.ready()
        ends = [end for end in self._context.endpoints if end.number in there]
        pairs = suspect_pairs([pair for pair in bad if there.issuperset(pair)], ends, self._swept)
        if pairs:
            names = ", ".join(map(self._name, cover(bad)[:_MAX_NAMED]))
            self._pump.log("info", f"{count(len(pairs), 'further pair')} of suspects are tested ({names}, ...)")
        return pairs

    def _left(self, pairs: PairArray, layer: Layer) -> PairSet:
        asked = max(self._options.sizes, default=None) if layer is Layer.P2P else None
        return PairSet(p for p in pairs if not (self.left and is_tested(self._model, layer, *p, asked=asked)))

    def _is_limited(self, a: int, b: int) -> bool:
        return any("ctas" in (one.extra or {}) for one in results_of(self._model, a, b))

    def _wanted(self, pairs: PairArray) -> PairArray:
        if not self._options.pairs:
            return pairs
        there = {str(e) for e in self._context.endpoints}
        for src, dst in self._options.pairs:
            if missing := sorted({src, dst} - there):
                why = f"there is no endpoint {' and no endpoint '.join(missing)}"
                self._context.skip([(src, dst, why), (dst, src, why)])
        named = {frozenset(pair) for pair in self._options.pairs}
        return PairArray((a, b) for a, b in pairs if frozenset((self._name(a), self._name(b))) in named)

    async def _check_reach(self, pairs: PairArray, deadline: float) -> dict[tuple[str, str], DeadPath]:
        """Have the rank hosts of pairs connect to each other at once, so that dead paths cost one deadline in all.

        Those that the mesh has just found dead cost none.

        Returns:
            The dead paths: ordered pairs of nodes.
        """
        live = {host.node: host for host in self._context.hosts.values() if host.numbers and host.port and host.address}
        ends = self._context.endpoints
        # Peers that a node has not reported about.
        missing: dict[str, dict[str, None]] = {node: {} for node in live}
        for here, there in {(ends[a].node, ends[b].node) for a, b in pairs}:
            if here in live and there in live and here != there:
                missing[here][there] = missing[there][here] = None
        dead = self._known.dead_paths(pairs, live)
        for here, there in dead:
            del missing[here][there]
        # Each entry is sent to several others and kept once.
        entries = {node: {"node": node, "address": host.address, "port": host.port} for node, host in live.items()}
        until = asyncio.get_running_loop().time() + deadline + REACH_GRACE
        async with HostReports(live.values()) as reports:
            for node, peers in missing.items():
                if peers:
                    live[node].send({"op": "reach", "peers": [entries[peer] for peer in peers], "deadline": deadline})
            while any(missing.values()) and (left := until - asyncio.get_running_loop().time()) > 0:
                for report in await reports.take(left):
                    node = report.host.node
                    if isinstance(report, HostLost):
                        report.host.lose(report.text)
                        missing[node].clear()
                    elif isinstance(report, HostMessage) and report.message.get("op") == "reach":
                        peer, message = str(report.message.get("node")), report.message
                        if peer not in missing[node]:
                            continue
                        del missing[node][peer]
                        if message.get("ok") is not True:
                            text = one_line(str(message.get("error") or "no TCP connection"), 500)
                            dead[node, peer] = DeadPath(text, message.get("timeout") is True)
                            self._pump.log("warning", f"no TCP from {node} to {peer}: {text}", node)
        for node, peers in missing.items():
            for peer in peers:
                text = f"the check of the path to {peer} gave no answer within {deadline:.0f} s"
                dead[node, peer] = DeadPath(text, True)
        return dead

    async def _world(self, ranks: list[int], wanted: PairSet) -> WorldSweep | None:
        """Test pairs within one communicator of all ranks; return the sweep, which can test some again."""
        await self._context.settled()
        ready = self._context.ready()
        ranks = [rank for rank in ranks if rank in ready]
        gloo, few = self._engine == "gloo", len(ranks) <= MEET_AT_ONCE
        bad = few and any(self._known.is_bad_path(*pair) for pair in itertools.combinations(ranks, 2))
        suspects = await self._world_suspects(ranks) if gloo or bad else []
        everyone, left_out = ranks, suspects if gloo else []
        ranks = [rank for rank in ranks if rank not in left_out]
        if len(ranks) < 2:
            return None
        self._pump.emit(PhaseStart(name="world", total=2 * len(wanted)))
        deadline = shared_deadline(self._options.timeout, WORLD_SHARE if bad else 1.0)
        # The layer that is to be there soon: half the messages of a pair test.
        test = WorldTest(self._bytes, (self._options.iters + 1) // 2, self._options.warmup, deadline)
        await self._kept.begin_groups([ranks])
        sweep = WorldSweep(self._context, test, wanted)
        if left_out:
            text = (
                f"{', '.join(map(self._name, left_out))} cannot exchange data with others over TCP, as the mesh showed"
            )
            self._pump.log("warning", f"the world communicator is formed without ranks: {text}")
            sweep.leave_out(everyone, set(left_out), text)
        await sweep.run(ranks, () if gloo else suspects)
        return sweep

    async def _world_again(self, sweep: WorldSweep) -> None:
        """Test pairs again that are slow in the world layer, without those that are bad alone or by their path."""
        for at in range(SLOW_ROUNDS if self._context.arm is None else 0):
            await self._pump.flush()
            bad = set(await bad_pairs(self._model, sweep.wanted, (*DEAD, Verdict.SLOW)))
            directions = await bad_directions(self._model, sweep.wanted, (Verdict.SLOW,), Layer.WORLD)
            slow = unordered(pair for pair in directions if not self._known.is_settled(Layer.WORLD, *pair))
            slow = [pair for pair in slow if pair not in bad and not self._known.is_bad_path(*pair)]
            if not slow or len(slow) > MAX_SUSPECTS:
                break
            self._pump.log("info", f"world layer, tested again (round {at + 1}): {self._named(slow)}")
            await self._kept.begin_groups([sweep.good])
            await sweep.again(PairSet(slow))

    async def _world_failures_again(self, sweep: WorldSweep) -> None:
        """Test pairs again in the world communicator that failed there, or were not reached, if all pass alone."""
        number, between = self._model.table.number, self._model.results.verdict_between
        for _ in range(SLOW_ROUNDS if self._context.arm is None else 0):
            await self._pump.flush()
            verdicts = list(self._model.results.verdicts_in(Layer.WORLD))
            failed = [(src, dst) for one, src, dst in verdicts if one in (*FAILED, Verdict.INCONCLUSIVE)]
            alone = all(between(Layer.P2P, *pair) in (Verdict.OK, Verdict.SLOW) for pair in failed)
            if not failed or not alone:
                return
            pairs = [(number(src) or 0, number(dst) or 0) for src, dst in failed]
            self._pump.log("info", f"world layer, tested again: {self._named(unordered(pairs), 'failed pair')}")
            await self._context.settled()
            await self._kept.begin_groups([sweep.good])
            await sweep.again(PairSet(pairs))
        await self._pump.flush()

    async def _contradicted(self) -> None:
        """Test failed pairs again whose nodes passed a collective since, if there are several or others recovered."""
        await self._pump.flush()
        good = (m for layer in COLLECTIVES.values() for m in self._model.measurements(layer) if m.verdict is Verdict.OK)
        passed = {frozenset((m.src, m.dst)): m.time for m in good}
        number, pairs = self._model.table.number, []
        for m in self._model.bad_measurements(Layer.P2P) if self._context.arm is None else ():
            if m.verdict in FAILED and passed.get(frozenset(map(node_of, (m.src, m.dst))), 0.0) > m.time:
                pairs.append((number(m.src) or 0, number(m.dst) or 0))
        pairs = unordered(pairs)[:MAX_SUSPECTS]
        recovered = any(one.layer is Layer.P2P for one in self._model.intervals.ended)
        if len(pairs) > 1 or (pairs and recovered):
            named = self._named(pairs, "failed pair")
            self._pump.log("info", f"tested again, as collectives of their nodes pass: {named}")
            await self._run_pairs(pairs, self._largest, share=LATE_SHARE)
            if self._world_sweep is not None:
                await self._world_failures_again(self._world_sweep)

    async def _world_suspects(self, ranks: list[int]) -> list[int]:
        """Return the fewest ranks without which no two have a broken path: one takes all along with it."""
        from fabtui.diagnosis.mesh.mesh_rules import blocked_pairs

        await self._pump.flush()
        number = {self._name(rank): rank for rank in ranks}
        left = {(number[a], number[b]) for a, b in blocked_pairs(self._model) if a in number and b in number}
        suspects = cover(left)
        # If nothing works, the test itself shows why.
        return sorted(suspects) if len(suspects) < len(ranks) - 1 else []

    def _without_withheld(self, pairs: PairArray, withheld: dict[int, str]) -> PairArray:
        self._context.skip(
            [
                (self._name(src), self._name(dst), withheld[n])
                for a, b in pairs
                for n in {a, b} & withheld.keys()
                for src, dst in ((a, b), (b, a))
            ]
        )
        return PairArray((a, b) for a, b in pairs if a not in withheld and b not in withheld)

    def _name(self, rank: int) -> str:
        return str(self._context.endpoints[rank])

    def _without_dead(self, pairs: PairArray, dead: dict[tuple[str, str], DeadPath]) -> PairArray:
        left = []
        for a, b in pairs:
            ends = self._context.endpoints[a], self._context.endpoints[b]
            if any(end.address != self._context.hosts[end.node].address for end in ends):
                # On other interfaces than those that were checked.
                left.append((a, b))
                continue
            paths = {(s, d): dead.get((s.node, d.node)) for s, d in (ends, ends[::-1])}
            first = next((result for result in paths.values() if result), None)
            if first is None:
                left.append((a, b))
                continue
            self._context.report(
                [
                    Measurement(
                        Layer.P2P,
                        str(s),
                        str(d),
                        Verdict.TIMEOUT if (result or first).timeout else Verdict.FAILED,
                        unit="GB/s",
                        bytes=self._bytes,
                        time=time.time(),
                        how="TCP check before the test",
                        src_addr=s.address,
                        dst_addr=d.address,
                        attempts=self._context.attempt("p2p", str(s), str(d)),
                        error=f"connect: {result.text if result else f'the return path is dead: {first.text}'}",
                    )
                    for (s, d), result in paths.items()
                ]
            )
        return PairArray(left)

    async def _run_pairs(
        self,
        pairs: Sequence[Pair],
        size: int,
        *,
        alone: bool = False,
        share: float = 1.0,
        meet: float = 0.5,
        unlimited: bool = False,
        doubts: bool = False,
    ) -> None:
        """Test pairs; those that were slow with fewer CTAs once more with NCCL's default, and from then on.

        They have a share of the usual deadline, and ``meet`` is the share of it that ranks wait for each other. With
        ``unlimited``, all are tested with the default. With ``doubts``, those that fail are tested once more, all at
        once, before that counts.
        """
        options, deadline = self._options, shared_deadline(self._options.timeout, share)
        test = PairTest(
            bytes=size,
            iters=options.iters,
            warmup=options.warmup,
            latency_iters=LATENCY_ITERS,
            deadline=deadline,
            meet=min(deadline / 2, max(MEET_LEAST, meet * options.timeout)),
            both=options.both,
        )
        while pairs:
            await self._kept.make_room(self._kept.key(*pair, unlimited=unlimited) for pair in pairs)
            sweep = PairSweep(self._context, test, self._kept, one_at_a_time=alone, unlimited=unlimited, doubts=doubts)
            await sweep.run(pairs)
            self._proven |= sweep.tested_alone
            self._fatal |= sweep.fatal
            for pair_, since in sweep.bad_since.items():
                self._bad_since.setdefault(pair_, since)
            self._kept.unlimited |= sweep.limited
            if sweep.doubted:
                failed = self._named(sorted(sweep.doubted), "failed pair")
                self._pump.log("info", f"retested before that counts: {failed}")
            pairs, doubts = sorted(sweep.limited | sweep.doubted), False

    async def again(self, pairs: list[Pair], deadline_share: float, *, doubts: bool = False) -> None:
        """Test a few pairs again; more follow later. With ``doubts``, a failure counts only twice in a row."""
        self._context.lasting = True
        alone = len(pairs) == 1
        await self._run_pairs(pairs, self._largest, alone=alone, share=deadline_share, doubts=doubts)

    async def release(self) -> None:
        """Have the ranks release all communicators; ranks that end release them anyway."""
        await self._kept.release()

    async def pairs_alone(self, pairs: list[Pair]) -> None:
        """Test pairs one at a time, with NCCL's defaults; in a large fabric those at once that share no NIC."""
        with self.counters.sampling():
            await self._run_pairs(pairs, self._largest, alone=not self._adaptive, unlimited=True)

    def _largest_test(self, kind: str) -> CollectiveTest:
        """Return the test of a collective with the largest message that a sweep tests it with."""
        sizes = (max(self._options.collective_sizes or (self._bytes // 4 * 4,)),)
        return CollectiveTest(kind, sizes, self._options.iters, self._options.warmup, self._options.timeout)

    async def soak_pairs(self, pairs: Sequence[Pair]) -> None:
        """Test disjoint pairs at once, and none of them again."""
        with self.counters.sampling():
            await self._run_pairs(pairs, self._largest)

    async def groups_alone(self, kind: str, groups: Sequence[Group]) -> None:
        """Test a collective over groups of ranks, with the largest message."""
        await run_collective(self._context, self._largest_test(kind), groups, self._kept.begin_groups)

    async def bisect(self) -> None:
        """Search by halves for what makes the first collective slow or fail, and test pairs of what was found."""
        await self._context.settled()
        ready, options = self._context.ready(), self._options
        places = {name: at for at, name in enumerate(self._model.nodes)}
        here = [end for end in self._context.endpoints if end.number in ready]
        units = units_of(sorted(here, key=lambda end: (places[end.node], end.number)))
        test, begin = self._largest_test(options.collectives[0]), self._kept.begin_groups
        limits = GROUP_SLOW_BELOW.get(self._engine, USUAL_SLOW_BELOW), options.bisect_below
        culprits = await Bisection(self._context, test, units, begin, *limits).run()
        ranks = list(units.values())
        named = {unit for culprit in culprits for unit in culprit.units}
        others = [unit for unit in range(len(ranks)) if unit not in named]
        ends = [two for culprit in culprits for two in [*itertools.pairwise([*culprit.units, *others[:1]])][:1]]
        # With good pairs of others, which show what is usual.
        ends += itertools.pairwise(others[:4] if culprits else ())
        if pairs := unordered(pair for a, b in ends for pair in zip(ranks[a], ranks[b], strict=False)):
            await self.pairs_alone(pairs[:MAX_SUSPECTS])

    async def _suspects(self, swept: PairSet, doubtful: Set[Pair] = frozenset()) -> None:
        """Test bad pairs again, alone, then their ends with other partners; dead ``doubtful`` ones are certain."""
        await self._pump.flush()
        dead = await bad_pairs(self._model, swept, (Verdict.TIMEOUT, Verdict.FAILED))
        # Wrong data is certain: a test that passes later would only hide what comes and goes.
        certain = {*doubtful, *await bad_pairs(self._model, swept, (Verdict.WRONG,))}
        dead = [pair for pair in dead if frozenset(pair) not in self._proven and pair not in certain]
        alone: Counter[Pair] = Counter()
        self._slow_round = 0
        limited = [pair for pair in await bad_pairs(self._model, swept, (Verdict.SLOW,)) if self._is_limited(*pair)]
        self._kept.unlimited.update(limited)
        if len(limited) > MAX_SUSPECTS:
            self._pump.log(
                "info", f"slow pairs are tested again with NCCL's default number of CTAs: {self._named(limited)}"
            )
            await self._run_pairs(limited, self._largest, unlimited=True)
            await self._pump.flush()
        await self._slow_again(swept, alone)
        if dead and len(dead) <= MAX_SUSPECTS:
            # Dead pairs move no data, so those that share no endpoint are alone even when they run at once.
            await self._dead_again(dead)
        # Other partners show which end is at fault.
        bad = await bad_pairs(self._model, swept, (*DEAD, Verdict.SLOW))
        if bad and len(bad) <= MAX_SUSPECTS and not self._options.pairs:
            # What passes beside other traffic passes alone; two tests that agree leave no doubt.
            doubts = {one: at for one, at in self._bad_since.items() if tuple(sorted(one)) not in doubtful}
            since = dict.fromkeys(map(frozenset, bad), self._since) | doubts
            lines = await retest(self._model, bad, since, self._fatal, self.pairs_alone, self._pump.flush)
            self._pump.emit(PlanUpdate(suspects=lines))
        # Pairs tested alone are faster and have changed the median.
        await self._slow_again(swept, alone)

    async def _dead_again(self, dead: list[Pair]) -> None:
        """Test dead pairs again, several times while the connection closes: somebody else may be at its other end."""
        for _ in range(LOST_ROUNDS):
            self._pump.log("info", f"tested again, with no other traffic: {count(len(dead), 'dead pair')}")
            await self._run_pairs(dead, self._largest, share=DEAD_SHARE)
            await self._pump.flush()
            results = {pair: results_of(self._model, *pair) for pair in dead}
            lost = ErrorKind.PEER_LOST.value
            dead = [p for p in dead if any((one.extra or {}).get("error_kind") == lost for one in results[p])]
            if not dead:
                return

    def _named(self, pairs: Sequence[Pair], what: str = "slow pair") -> str:
        """Return the number of pairs, and their names if they are few."""
        names = ", ".join(f"{self._name(a)} - {self._name(b)}" for a, b in pairs[:_MAX_NAMED])
        return f"{count(len(pairs), what)} ({names}{', ...' if len(pairs) > _MAX_NAMED else ''})"

    async def _slow_again(self, swept: PairSet, alone: Counter[Pair]) -> None:
        """Test slow pairs alone, at most `SLOW_ROUNDS` times for each slow direction; ``alone`` counts these.

        Of very many a sample shows whether they are slow by themselves, or beside other traffic only.
        """
        while True:
            directions = await bad_directions(self._model, swept, (Verdict.SLOW,))
            # A pair that is dead the other way is tested as that.
            dead = set(await bad_pairs(self._model, swept, DEAD))
            directions = [pair for pair in directions if (min(pair), max(pair)) not in dead]
            # One that was good, and is slow in a retest of the opposite direction, is not confirmed yet.
            slow = unordered(
                pair
                for pair in directions
                if alone[pair] < SLOW_ROUNDS and not self._known.is_settled(Layer.P2P, *pair)
            )
            if not slow or (alone and len(slow) > MAX_SUSPECTS):
                return
            if len(slow) > MAX_SUSPECTS:
                slow = random.Random(len(slow)).sample(slow, MAX_SUSPECTS)
            chosen = set(slow)
            again = [pair for pair in directions if (min(pair), max(pair)) in chosen]
            alone.update(again)
            times = max(alone[pair] for pair in again)
            # Medians move, so that others become slow every moment.
            if times > self._slow_round:
                self._slow_round = times
                self._pump.log("info", f"tested again, alone (round {times}): {self._named(slow)}")
            # A machine that is busier than in the sweep makes good pairs slow, too: values of one minute are compared.
            beside = await self._good_of_class([pair for pair in slow if self._is_slow(pair, SURELY_SLOW)], 1)
            await self.pairs_alone([*slow, *beside])
            await self._pump.flush()
            if any(self._is_slow(pair) for pair in beside) and (
                others := await self._good_of_class(slow, MAX_SUSPECTS)
            ):
                self._pump.log("info", f"slower than before, so tested again, too: {self._named(others, 'good pair')}")
                await self.pairs_alone(others)
                await self._pump.flush()

    def _is_slow(self, pair: Pair, share: float = 0.0) -> bool:
        """Return True if a direction of a pair is slow, and above a share of the limit of its class."""
        limit, key = self._model.limit, self._model.key_of
        results = [(one.value, limit(Layer.P2P, key(one))) for one in results_of(self._model, *pair)]
        return any(value and least and share * least <= value < least for value, least in results)

    async def _good_of_class(self, slow: Sequence[Pair], most: int) -> list[Pair]:
        """Return up to ``most`` good pairs of each class of slow pairs, first those that share no end with them."""
        kinds = {self._model.table.relation(*pair): list[Pair]() for pair in slow}
        ends = set(itertools.chain.from_iterable(slow))
        for apart in (True, False):
            for at, pair in enumerate(self._swept):
                if not at % _TURN:
                    await asyncio.sleep(0)
                good = kinds.get(self._model.table.relation(*pair), [])
                if len(good) < most and ends.isdisjoint(pair) is apart and is_tested(self._model, Layer.P2P, *pair):
                    good += [] if pair in slow or self._is_slow(pair) else [pair]
                if all(len(good) >= most for good in kinds.values()):
                    break
        return list(itertools.chain.from_iterable(kinds.values()))

    async def _collectives(self, nodes: list[str], withheld: dict[int, str]) -> None:
        await self._context.settled()
        usable, there = self._context.ready() - withheld.keys(), set(nodes)
        # Ranks of another node may have come meanwhile: it has its turn next.
        here = [e for e in self._context.endpoints if e.number in usable and e.node in there]
        if counts := self._options.group_sizes:
            groups = first_groups(here, nodes, counts)
            beyond = [str(count) for count in counts if count > len(here)]
            if beyond and self._context.arm is None:
                self._pump.log("warning", f"--groups: not tested with {', '.join(beyond)} ranks: there are {len(here)}")
        else:
            groups = groups_of(here, nodes)
            if (count := len({e.node for e in here})) > EVERY_NODE_PAIR and self._context.arm is None:
                tested = sum(group.src != group.dst for group in groups)
                text = f"collectives: {tested} of {count * (count - 1) // 2} pairs of nodes are tested"
                self._pump.log("notice", text)
        self._groups = groups
        sizes, kinds = self._collective_sizes, self._options.collectives
        if self.resumed:
            groups = [group for group in groups if not is_measured(self._model, group, kinds, sizes)]
        if not groups:
            return
        name = kinds[0] if len(kinds) == 1 else "collectives"
        self._pump.emit(PhaseStart(name=name, total=len(groups) * len(sizes) * len(kinds)))
        await self._pump.flush()
        doubts = await self._doubtful_groups(groups)
        brief = doubts.others, shared_deadline(self._options.timeout, GROUP_SHARE)
        for kind in kinds:
            test = CollectiveTest(kind, sizes, self._options.iters, self._options.warmup, self._options.timeout)
            await run_collective(self._context, test, groups, self._kept.begin_groups, doubts.hopeless, brief)
        # A pair that is bad by itself explains the others.
        explained = {*doubts.hopeless, *doubts.others}
        for kind in kinds if self._context.arm is None else ():
            await self._slow_groups_again(kind, [group for group in groups if group not in explained])

    async def _doubtful_groups(self, groups: Sequence[Group]) -> DoubtfulGroups:
        bad = await bad_directions(self._model, self._swept, (Verdict.TIMEOUT, Verdict.FAILED, Verdict.SLOW))
        if self._context.arm is not None or len(bad) > 2 * MAX_SUSPECTS:
            return DoubtfulGroups({}, set())
        return self._known.doubtful_groups(groups, bad, mesh=self._engine == "gloo")

    @property
    def _collective_sizes(self) -> tuple[int, ...]:
        three = tuple(sorted({max(4, self._bytes // part // 4 * 4) for part in (64, 8, 1)}))
        return self._options.collective_sizes or three

    def recovered_groups(self) -> list[tuple[str, Group]]:
        """Return the collectives that are bad, by kind and group of ranks, though no pair of them fails."""
        number, between = self._model.table.number, self._model.results.verdict_between
        dead = [(number(m.src), number(m.dst)) for m in self._model.bad_measurements(Layer.P2P) if m.verdict in DEAD]
        groups = [group for group in self._groups if not any({*pair} <= {*group.ranks} for pair in dead)]
        bad = (*DEAD, Verdict.SLOW, Verdict.INCONCLUSIVE, Verdict.SKIPPED)
        each = itertools.product(self._options.collectives, groups)
        return [(kind, group) for kind, group in each if between(COLLECTIVES[kind], group.src, group.dst) in bad]

    async def groups_again(self) -> None:
        """Test collectives again that are bad though their pairs pass, with all of their message sizes."""
        options, sizes = self._options, self._collective_sizes
        for kind, group in self.recovered_groups():
            test = CollectiveTest(kind, sizes, options.iters, options.warmup, options.timeout)
            await run_collective(self._context, test, [group], self._kept.begin_groups)

    async def _slow_groups_again(self, kind: str, groups: Sequence[Group]) -> None:
        """Test a collective again over the groups where it is slow, one at a time; what stays slow is slow."""
        for at in range(SLOW_ROUNDS):
            await self._pump.flush()
            latest = {group: self._model.latest(COLLECTIVES[kind], group.src, group.dst) for group in groups}
            bad = [group for group, one in latest.items() if one and self._model.verdict(one) is Verdict.SLOW]
            if not bad or len(bad) > MAX_SUSPECTS:
                return
            names = ", ".join("+".join(sorted({group.src, group.dst})) for group in bad[:_MAX_NAMED])
            more = ", ..." if len(bad) > _MAX_NAMED else ""
            text = f"{kind}, tested again, alone (round {at + 1}): {count(len(bad), 'slow group')} ({names}{more})"
            self._pump.log("info", text)
            for group in bad:
                await self.groups_alone(kind, [group])
