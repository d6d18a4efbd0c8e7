"""Tests of endpoints in one sweep: TCP check, world layer, pairs, suspects, collectives."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence

from fabtui.diagnosis.mesh.rules import blocked_pairs
from fabtui.model.events import PhaseStart, PlanUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_index import Pair, PairArray, PairSet
from fabtui.model.schedule import in_parts, mode_for, pairs_for
from fabtui.sanitize import one_line
from fabtui.session.counter_sampler import CounterSampler
from fabtui.session.measure.collectives import CollectiveTest, groups_of, run_collective
from fabtui.session.measure.context import TestBed
from fabtui.session.measure.p2p import PairSweep, PairTest
from fabtui.session.measure.retest import MAX_SUSPECTS, bad_pairs, retest
from fabtui.session.measure.world import WorldSweep, WorldTest
from fabtui.session.node_client import GRACE
from fabtui.session.options import MIB, SessionOptions
from fabtui.session.ranks.gather import Gathering, GroupRequest
from fabtui.session.ranks.rank_host import HostLost, HostMessage, HostReports

#: CPU ranks share the cores of their node, so their values spread far wider.
SLOW_BELOW = {"gloo": 0.2}
USUAL_SLOW_BELOW = 0.7
DEFAULT_BYTES = {"gloo": 4 * MIB}
USUAL_BYTES = 256 * MIB
LATENCY_ITERS = 20
#: Share of the deadline for the retest of a dead pair.
DEAD_SHARE = 0.7
#: The share of the deadline that ranks wait for each other at first, where there are so few endpoints that they meet
#: within milliseconds; the seconds that they wait at least, as far as the deadline allows. Who does not come is waited
#: for once more, and longer.
MEET_SHARE = 0.25
MEET_LEAST = 2.0
MEET_AT_ONCE = 32
#: Maximum number of communicators per endpoint; each holds memory of its GPU.
PAIRS_BEFORE_REST = 32
#: Deadline (s) of the release of communicators; rank hosts that miss it are ended.
RELEASE_DEADLINE = 20.0
#: Time (s) that the answers of the TCP check may take beyond the deadline of the connections.
REACH_GRACE = 3.0
#: Maximum number of retests of a slow pair; only pairs that stay slow are slow.
SLOW_ROUNDS = 2
#: Maximum number of pairs that a line of the log names.
_MAX_NAMED = 3


class TestRunner:
    """Runs the tests of a session. Its `counters` samples the counters of the nodes while pairs are tested."""

    def __init__(self, options: SessionOptions, bed: TestBed) -> None:
        self._options = options
        self._bed = bed
        self._pump = bed.pump
        self._model = bed.pump.model
        self.counters = CounterSampler(bed)
        bed.sample_counters = self.counters.sample
        #: Pairs that have failed twice.
        self._proven: set[frozenset[int]] = set()
        #: Time of the first failure of pairs in this sweep (epoch seconds).
        self._bad_since: dict[frozenset[int], float] = {}
        #: Pairs that end a rank host.
        self._fatal: set[frozenset[int]] = set()
        #: Number of communicators that each endpoint keeps.
        self._kept: Counter[int] = Counter()
        #: Whether tests ran since broken communicators were released.
        self._tested = False

    async def run(self, new: list[str], old: list[str], busy: dict[int, str]) -> None:
        """Run all tests with a node of ``new``; endpoints in ``busy`` are not tested."""
        self._proven.clear()
        self._bad_since.clear()
        self._fatal.clear()
        self._bed.lasting = "all_reduce" in self._options.probes
        if "p2p" in self._options.probes:
            with self.counters.sampling():
                await self._pairs(new, old, busy)
        if "all_reduce" in self._options.probes:
            await self._collectives([*old, *new], busy)

    @property
    def _engine(self) -> str:
        return next((host.engine.name for host in self._bed.hosts.values()), "gloo")

    @property
    def _bytes(self) -> int:
        return self._options.bytes or DEFAULT_BYTES.get(self._engine, USUAL_BYTES)

    @property
    def _largest(self) -> int:
        return max(self._options.sizes, default=self._bytes)

    async def _pairs(self, new: list[str], old: list[str], busy: dict[int, str]) -> None:
        here = [e for e in self._bed.endpoints if e.node in {*old, *new} and e.node in self._bed.hosts]
        mode = "full" if self._options.pairs else mode_for(self._options.mode, len(here))
        fresh = {e.number for e in here if e.node in new}
        pairs = PairArray((a, b) for a, b in self._wanted(pairs_for(mode, here)) if a in fresh or b in fresh)
        self._pump.emit(PlanUpdate(slow_below=SLOW_BELOW.get(self._engine, USUAL_SLOW_BELOW)))
        if mode != "full":
            self._pump.log("notice", f"{mode}: {len(pairs)} of {len(here) * (len(here) - 1) // 2} pairs are tested")
        pairs = self._without_busy(pairs, busy)
        if not pairs:
            return
        self._pump.emit(PhaseStart(name="reach", total=0))
        dead = await self._check_reach(self._options.timeout)
        if "world" in self._options.layers:
            ends = {end for pair in pairs for end in pair} if self._options.pairs else {e.number for e in here}
            await self._world(sorted(ends - busy.keys()), PairSet(pairs))
        if "p2p" not in self._options.layers:
            return
        self._pump.emit(PhaseStart(name="p2p", total=2 * len(pairs) * max(1, len(self._options.sizes))))
        if self._engine == "gloo":
            pairs = self._without_dead(pairs, dead)
        # In an arm of a comparison nothing is tested again.
        meet = MEET_SHARE if self._bed.arm is None and len(here) <= MEET_AT_ONCE else 0.5
        for size in self._options.sizes or (self._bytes,):
            await self._run_pairs(pairs, size, alone=self._options.isolated, meet=meet)
        if self._bed.arm is None:
            await self._suspects(PairSet(pairs))

    def _wanted(self, pairs: PairArray) -> PairArray:
        """Return the pairs requested by name, or all."""
        if not self._options.pairs:
            return pairs
        there = {str(e) for e in self._bed.endpoints}
        for src, dst in self._options.pairs:
            if missing := sorted({src, dst} - there):
                why = f"--pair: there is no endpoint {' and no endpoint '.join(missing)}"
                self._bed.skip([(src, dst, why), (dst, src, why)])
        named = {frozenset(pair) for pair in self._options.pairs}
        return PairArray((a, b) for a, b in pairs if frozenset((self._name(a), self._name(b))) in named)

    async def _check_reach(self, deadline: float) -> dict[tuple[str, str], tuple[str, bool]]:
        """Have all rank hosts connect to each other at once, so that dead paths cost one deadline in all.

        Returns:
            The dead paths: ordered pairs of nodes, each with the error and whether it was a timeout.
        """
        live = [host for host in self._bed.hosts.values() if host.numbers and host.port and host.address]
        nodes, count = {host.node: at for at, host in enumerate(live)}, len(live)
        # One byte per ordered pair without an answer, as hundreds of nodes have many.
        missing = bytearray(b"\1" * count**2)
        missing[:: count + 1] = bytes(count)
        dead: dict[tuple[str, str], tuple[str, bool]] = {}
        # Each entry is sent to all others and kept once.
        entries = [(host, {"node": host.node, "address": host.address, "port": host.port}) for host in live]
        until = asyncio.get_running_loop().time() + deadline + REACH_GRACE
        async with HostReports(live) as reports:
            for host in live:
                if peers := [entry for peer, entry in entries if peer is not host]:
                    host.send({"op": "reach", "peers": peers, "deadline": deadline})
            while 1 in missing and (left := until - asyncio.get_running_loop().time()) > 0:
                for report in await reports.take(left):
                    first = nodes[report.host.node] * count
                    if isinstance(report, HostLost):
                        report.host.broken = report.text
                        missing[first : first + count] = bytes(count)
                    elif isinstance(report, HostMessage) and report.message.get("op") == "reach":
                        node, peer, message = report.host.node, str(report.message.get("node")), report.message
                        if peer not in nodes or not missing[first + nodes[peer]]:
                            continue
                        missing[first + nodes[peer]] = 0
                        if message.get("ok") is not True:
                            text = one_line(str(message.get("error") or "no TCP connection"), 500)
                            dead[node, peer] = (text, message.get("timeout") is True)
                            self._pump.log("warning", f"no TCP from {node} to {peer}: {text}", node)
        names = list(nodes)
        for a, b in (divmod(at, count) for at, is_open in enumerate(missing) if is_open):
            text = f"the check of the path to {names[b]} gave no answer within {deadline:.0f} s"
            dead[names[a], names[b]] = (text, True)
        return dead

    async def _world(self, ranks: list[int], wanted: PairSet) -> None:
        await self._bed.settled()
        ready = self._bed.ready()
        ranks = [rank for rank in ranks if rank in ready]
        suspects = await self._world_suspects(ranks)
        everyone, ranks = ranks, [rank for rank in ranks if rank not in suspects]
        if len(ranks) < 2:
            return
        self._pump.emit(PhaseStart(name="world", total=2 * len(wanted)))
        # The layer that is to be there soon: half the messages of a pair test.
        test = WorldTest(self._bytes, (self._options.iters + 1) // 2, self._options.warmup, self._options.timeout)
        await self._make_room(ranks)
        sweep = WorldSweep(self._bed, test)
        if suspects:
            text = (
                f"{', '.join(map(self._name, suspects))} cannot exchange data with others over TCP, as the mesh showed"
            )
            self._pump.log("warning", f"the world communicator is formed without ranks: {text}")
            sweep.leave_out(everyone, set(suspects), wanted, text)
        await sweep.run(ranks, wanted)
        for at in range(SLOW_ROUNDS if self._bed.arm is None else 0):
            await self._pump.flush()
            slow = await bad_pairs(self._model, wanted, (Verdict.SLOW,), Layer.WORLD)
            if not slow or len(slow) > MAX_SUSPECTS:
                break
            self._pump.log("info", f"world layer: slow pairs are tested again (round {at + 1}): {self._named(slow)}")
            await sweep.again(PairSet(slow))

    async def _world_suspects(self, ranks: list[int]) -> list[int]:
        """Return the fewest CPU ranks without which no two have a broken path: one takes all along with it."""
        if self._engine != "gloo":
            return []
        await self._pump.flush()
        number = {self._name(rank): rank for rank in ranks}
        left = {(number[a], number[b]) for a, b in blocked_pairs(self._model) if a in number and b in number}
        suspects = []
        while left:
            worst = Counter(end for pair in left for end in pair).most_common(1)[0][0]
            suspects.append(worst)
            left = {pair for pair in left if worst not in pair}
        # If nothing works, the test itself shows why.
        return sorted(suspects) if len(suspects) < len(ranks) - 1 else []

    def _without_busy(self, pairs: PairArray, busy: dict[int, str]) -> PairArray:
        """Remove the pairs of GPUs that other processes use, so that their jobs are not disturbed."""
        lines = []
        for a, b in pairs:
            for n in {a, b} & busy.keys():
                why = f"{self._bed.endpoints[n]} is in use by {busy[n]}; --force tests it all the same"
                lines += [(self._name(s), self._name(d), why) for s, d in ((a, b), (b, a))]
        self._bed.skip(lines)
        return PairArray((a, b) for a, b in pairs if a not in busy and b not in busy)

    def _name(self, rank: int) -> str:
        return str(self._bed.endpoints[rank])

    def _without_dead(self, pairs: PairArray, dead: dict[tuple[str, str], tuple[str, bool]]) -> PairArray:
        """Report the pairs whose path the TCP check found dead, so that they cost one deadline in all."""
        left = []
        for a, b in pairs:
            ends = self._bed.endpoints[a], self._bed.endpoints[b]
            if any(end.address != self._bed.hosts[end.node].address for end in ends):
                # On other interfaces than those that were checked.
                left.append((a, b))
                continue
            found = {(s, d): dead.get((s.node, d.node)) for s, d in (ends, ends[::-1])}
            first = next((result for result in found.values() if result), None)
            if first is None:
                left.append((a, b))
                continue
            self._bed.report(
                [
                    Measurement(
                        Layer.P2P,
                        str(s),
                        str(d),
                        Verdict.TIMEOUT if (result or first)[1] else Verdict.FAILED,
                        unit="GB/s",
                        bytes=self._bytes,
                        how="TCP check before the test",
                        src_addr=s.address,
                        dst_addr=d.address,
                        attempts=self._bed.attempt("p2p", str(s), str(d)),
                        error=f"connect: {result[0]}" if result else f"connect: the way back is dead: {first[0]}",
                    )
                    for (s, d), result in found.items()
                ]
            )
        return PairArray(left)

    async def _run_pairs(
        self, pairs: Sequence[Pair], size: int, *, alone: bool = False, share: float = 1.0, meet: float = 0.5
    ) -> None:
        """Test pairs, in parts that keep the number of communicators of each endpoint within its limit.

        They have a share of the usual deadline, and ``meet`` is the share of it that ranks wait for each other.
        """
        options, deadline = self._options, share * self._options.timeout
        test = PairTest(
            bytes=size,
            iters=options.iters,
            warmup=options.warmup,
            latency_iters=LATENCY_ITERS,
            deadline=deadline,
            meet=min(deadline / 2, max(MEET_LEAST, meet * options.timeout)),
            both=options.both,
        )
        for part in in_parts(pairs, PAIRS_BEFORE_REST):
            await self._make_room(end for pair in part for end in pair)
            sweep = PairSweep(self._bed, test, one_at_a_time=alone)
            await sweep.run(part)
            self._proven |= sweep.tested_alone
            self._fatal |= sweep.fatal
            for pair_, since in sweep.bad_since.items():
                self._bad_since.setdefault(pair_, since)

    async def again(self, pairs: list[Pair], deadline_share: float) -> None:
        """Test a few pairs again; more follow later."""
        self._bed.lasting = True
        await self._run_pairs(pairs, self._largest, alone=len(pairs) == 1, share=deadline_share)

    async def _make_room(self, ends: Iterable[int]) -> None:
        """Release the broken communicators, or all if an endpoint would exceed its limit.

        A broken one may keep its GPU busy; an intact one costs memory only, and takes seconds to release.
        """
        more = Counter(ends)
        if any(self._kept[end] + count > PAIRS_BEFORE_REST for end, count in more.items()):
            await self.release()
        elif self._tested:
            await self._release_communicators(whole=False)
        self._kept += more
        self._tested = True

    async def release(self) -> None:
        """Have the ranks release all communicators; ranks that end release them anyway."""
        if self._kept:
            self._kept.clear()
            await self._release_communicators(whole=True)

    async def _release_communicators(self, *, whole: bool) -> None:
        """Release the broken communicators, and with ``whole`` the intact ones; no test may be running."""
        self._tested = False
        if not (ready := tuple(sorted(self._bed.ready()))):
            return
        request = GroupRequest(ready, {"op": "rest", "whole": whole}, RELEASE_DEADLINE - GRACE)
        await Gathering(self._bed, paused_too=True).run([request])
        problems = [
            f"{self._bed.endpoints[rank].node}: {one_line(str(report['error']), 300)}"
            for rank, report in request.last_reports("rested").items()
            if report and report.get("error")
        ]
        nodes = {self._bed.endpoints[rank].node: text for rank, text in request.gone.items()}
        problems += [f"{node}: communicators were not released: {text}" for node, text in nodes.items()]
        for problem in problems:
            self._pump.log("warning", problem)

    async def pairs_alone(self, pairs: list[Pair]) -> None:
        """Test pairs one at a time."""
        with self.counters.sampling():
            await self._run_pairs(pairs, self._largest, alone=True)

    async def _suspects(self, swept: PairSet) -> None:
        """Test bad pairs again, alone, then their ends with other partners."""
        await self._pump.flush()
        dead = await bad_pairs(self._model, swept, (Verdict.FAILED, Verdict.TIMEOUT))
        dead = [pair for pair in dead if frozenset(pair) not in self._proven]
        alone: Counter[Pair] = Counter()
        await self._slow_again(swept, alone)
        if dead and len(dead) <= MAX_SUSPECTS:
            # Dead pairs move no data, so those that share no endpoint are alone even when they run at once.
            self._pump.log("info", f"dead pairs are tested again, with no other traffic: {len(dead)}")
            await self._run_pairs(dead, self._largest, share=DEAD_SHARE)
            await self._pump.flush()
        bad = await bad_pairs(self._model, swept, (Verdict.FAILED, Verdict.TIMEOUT, Verdict.SLOW))
        if bad and len(bad) <= MAX_SUSPECTS and not self._options.pairs:
            lines = await retest(self._model, bad, self._bad_since, self._fatal, self.pairs_alone, self._pump.flush)
            self._pump.emit(PlanUpdate(suspects=lines))
        # Pairs tested alone are faster and have changed the median.
        await self._slow_again(swept, alone)

    def _named(self, pairs: Sequence[Pair]) -> str:
        """Return the number of pairs, and their names if they are few."""
        names = ", ".join(f"{self._name(a)} - {self._name(b)}" for a, b in pairs[:_MAX_NAMED])
        return f"{len(pairs)} ({names}{', ...' if len(pairs) > _MAX_NAMED else ''})"

    async def _slow_again(self, swept: PairSet, alone: Counter[Pair]) -> None:
        """Test slow pairs alone, each at most `SLOW_ROUNDS` times in all; ``alone`` counts them.

        Of very many a sample shows whether they are slow by themselves, or beside other traffic only.
        """
        while True:
            slow = [p for p in await bad_pairs(self._model, swept, (Verdict.SLOW,)) if alone[p] < SLOW_ROUNDS]
            if not slow or (alone and len(slow) > MAX_SUSPECTS):
                return
            if len(slow) > MAX_SUSPECTS:
                slow = random.Random(len(slow)).sample(slow, MAX_SUSPECTS)
            alone.update(slow)
            times = max(alone[pair] for pair in slow)
            self._pump.log("info", f"slow pairs are tested again, alone (round {times}): {self._named(slow)}")
            await self.pairs_alone(slow)
            await self._pump.flush()

    async def _collectives(self, nodes: list[str], busy: dict[int, str]) -> None:
        await self._bed.settled()
        usable = self._bed.ready() - busy.keys()
        groups = groups_of([e for e in self._bed.endpoints if e.number in usable], nodes)
        if not groups:
            return
        largest = self._bytes
        three = tuple(sorted({max(4, largest // part // 4 * 4) for part in (64, 8, 1)}))
        sizes = self._options.collective_sizes or three
        kinds = self._options.collectives
        name = kinds[0] if len(kinds) == 1 else "collectives"
        self._pump.emit(PhaseStart(name=name, total=len(groups) * len(sizes) * len(kinds)))
        await self._make_room(usable)
        for kind in kinds:
            test = CollectiveTest(kind, sizes, self._options.iters, self._options.warmup, self._options.timeout)
            await run_collective(self._bed, test, groups)
