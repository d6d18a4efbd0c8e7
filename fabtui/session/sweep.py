"""One sweep over the nodes that are there: look, ping, p2p, suspects again, all_reduce, look again."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import asdict
from typing import Any

from fabtui.fabric.endpoint import Endpoint
from fabtui.fabric.events import Kind, event
from fabtui.fabric.measurement import Layer, Measurement, Verdict
from fabtui.fabric.model import Model
from fabtui.fabric.schedule import circle_rounds, in_parts
from fabtui.fabric.text import one_line
from fabtui.session.admission import Admission, absent, admit, engine_for
from fabtui.session.collective import ReduceSweep, ReduceTest, groups_of
from fabtui.session.mesh import COUNT, WAIT, addresses_of, read_row, targets_of
from fabtui.session.options import MIB, SessionOptions
from fabtui.session.p2p import PairSweep, PairTest
from fabtui.session.pump import EventPump
from fabtui.session.ranks import Engine, RankHost
from fabtui.session.reach_check import check_reach
from fabtui.session.remote import ProbeFailed, Remote
from fabtui.session.rest import rest
from fabtui.session.store import StoreServer

#: CPU ranks share the cores of their node with each other, so what is normal for them spreads far wider.
SLOW_BELOW = {"nccl": 0.7, "gloo": 0.2}
DEFAULT_BYTES = {"nccl": 256 * MIB, "gloo": 4 * MIB}
LOOK_DEADLINE = 20.0
#: Suspects are tested again at most this often; only what stays slow is slow.
SUSPECT_ROUNDS = 2
MAX_SUSPECTS = 256
#: Communicators an endpoint may keep before it lets go of them: each holds some memory of its GPU.
PAIRS_BEFORE_REST = 32


class Sweep:
    """The state of testing: endpoints, rank hosts, store, attempts.

    Args:
        options: What is asked for.
        pump: Where events go.
        model: What is known so far.
        go: Cleared while the session is paused.
        faults: Lab faults of pairs: ``(src, dst, kind, rate)`` with endpoint names.
    """

    def __init__(
        self,
        options: SessionOptions,
        pump: EventPump,
        model: Model,
        go: asyncio.Event,
        faults: list[tuple[str, str, str, float | None]],
    ) -> None:
        self.endpoints: list[Endpoint] = []
        self.hosts: dict[str, RankHost] = {}
        self.remotes: dict[str, Remote] = {}
        self.store = StoreServer()
        self._options = options
        self._pump = pump
        self._model = model
        self._go = go
        self._faults = faults
        self._ids = itertools.count(1)
        self._attempts: Counter[tuple[str, ...]] = Counter()
        self._admissions: dict[str, Admission] = {}
        self._engine: Engine | None = None

    # -- who takes part -----------------------------------------------------------------------------------------------

    def admit(self, ready: dict[str, tuple[Remote, dict[str, Any]]], gone: dict[str, str], order: list[str]) -> None:
        """Give endpoints to nodes that became ready, and one row each to nodes that failed, in the given order."""
        if self._engine is None and ready:
            name = engine_for([inventory for _, inventory in ready.values()])
            self._engine = Engine(name, self._options.timeout, dict(self._options.env))
        added: list[Endpoint] = []
        notes: dict[str, str] = {}
        for node in order:
            first = len(self.endpoints) + len(added)
            if node in ready and self._engine is not None:
                self.remotes[node], inventory = ready[node]
                admission = admit(
                    node, inventory, first, self._engine.name, self._options.ranks_per_node, self._options.remote_python
                )
            elif node in gone:
                admission = absent(node, first, gone[node])
            else:
                continue
            self._admissions[node] = admission
            added += admission.endpoints
            if admission.note and node not in gone:
                notes[node] = admission.note
                self._pump.log("warning", admission.note, node)
        self.endpoints += added
        self._number_faults()
        self._pump.emit(event(Kind.ENDPOINTS, endpoints=[asdict(e) for e in added], notes=notes))

    def _number_faults(self) -> None:
        if self._engine is None:
            return
        numbers = {str(e): e.number for e in self.endpoints}
        known = tuple(
            {"src": numbers[src], "dst": numbers[dst], "kind": kind, "rate": rate}
            for src, dst, kind, rate in self._faults
            if src in numbers and dst in numbers
        )
        self._engine = Engine(self._engine.name, self._engine.timeout, self._engine.env, known, self._engine.epoch)

    def _wants(self, *probes: str) -> bool:
        return any(probe in self._options.probes for probe in probes)

    def _alive(self, nodes: list[str]) -> list[str]:
        return [node for node in nodes if node in self.remotes and self.remotes[node].lost is None]

    # -- the sweep ----------------------------------------------------------------------------------------------------

    async def run(self, new: list[str], old: list[str]) -> None:
        """Sweep over the pairs that involve a new node; ``old`` nodes were swept before."""
        await self._pump.flush()
        self._number_faults()
        self._pump.emit(event(Kind.PHASE, name="look", total=0))
        async with asyncio.TaskGroup() as group:
            for node in self._alive(new):
                group.create_task(self._look(node))
            if self._wants("ping"):
                group.create_task(self._mesh(self._alive(new), self._alive(old)))
            if self._wants("p2p", "all_reduce"):
                for node in self._alive(new):
                    group.create_task(self._start_ranks(node))
        if self._wants("p2p"):
            await self._pairs(new, old)
        if self._wants("all_reduce"):
            await self._reduce(self._alive([*old, *new]))
        async with asyncio.TaskGroup() as group:
            for node in self._alive([*old, *new]):
                group.create_task(self._look(node, only=("nvlink",)))

    async def _look(self, node: str, only: tuple[str, ...] = ("ibstat", "nvlink")) -> None:
        remote = self.remotes[node]
        inventory = self._model.nodes[node].inventory or {}
        for probe in only:
            has = inventory.get("gpus") if probe == "nvlink" else inventory.get("ib")
            if not self._wants(probe) or not has:
                continue
            try:
                value = await remote.probe(probe, {}, LOOK_DEADLINE)
                self._pump.emit(event(Kind.LOOK, node=node, probe=probe, value=value))
            except ProbeFailed as failed:
                self._pump.emit(event(Kind.LOOK, node=node, probe=probe, error=one_line(failed.text, 500)))

    async def _mesh(self, new: list[str], old: list[str]) -> None:
        addresses = {node: addresses_of(self._model.nodes[node].inventory) for node in [*old, *new]}
        wanted = {node: targets_of(node, [*old, *new], addresses) for node in new}
        wanted |= {node: targets_of(node, new, addresses) for node in old}
        total = sum(len(targets) for targets in wanted.values())
        self._pump.emit(event(Kind.PHASE, name="ping", total=total))
        async with asyncio.TaskGroup() as group:
            for node, targets in wanted.items():
                if targets:
                    group.create_task(self._ping(node, targets))

    async def _ping(self, node: str, targets: list[dict[str, Any]]) -> None:
        keys = {(t["id"], t["src"], t["dst"]) for t in targets}

        def part(value: dict[str, Any]) -> None:
            rows = value.get("rows")
            found = []
            for row in rows if isinstance(rows, list) else []:
                if isinstance(row, dict) and (m := read_row(node, row, keys, self._count("ping", node, row))):
                    keys.discard((m.dst, str(row["src"]), str(row["dst"])))
                    found.append(m)
            self._report(found)

        deadline = COUNT * WAIT * (1 + len(targets) / 64) + 10.0
        args = {"targets": targets, "count": COUNT, "wait": WAIT}
        why = "the ping probe gave no row for it"
        try:
            part(await self.remotes[node].probe("ping", args, deadline, part))
        except ProbeFailed as failed:
            why = failed.text
            self._pump.log("warning", f"ping: {why}", node)
        self._report(
            [
                Measurement(
                    Layer.PING, node, peer, Verdict.INCONCLUSIVE, unit="ms", src_addr=src, dst_addr=dst, error=why
                )
                for peer, src, dst in sorted(keys)
            ]
        )

    def _count(self, *key: Any) -> int:
        if key[0] == "ping":
            row = key[2]
            key = ("ping", key[1], str(row.get("src")), str(row.get("dst")))
        self._attempts[key] += 1
        return self._attempts[key]

    def _report(self, measurements: list[Measurement]) -> None:
        if measurements:
            self._pump.emit(event(Kind.MEASURED, measurements=[m.to_json() for m in measurements]))

    async def _start_ranks(self, node: str) -> None:
        admission = self._admissions[node]
        if self._engine is None or all(e.kind == "none" for e in admission.endpoints):
            return
        host = RankHost(
            self.remotes[node], admission.endpoints, self._engine, admission.argv, admission.library, self.store
        )
        self.hosts[node] = host
        await host.start(len(self.endpoints))
        if host.broken:
            self._pump.log("error", f"ranks: {host.broken}", node)
        for rank, why in host.bad_ranks.items():
            self._pump.log("error", f"{self.endpoints[rank]}: {why}", node)

    def _testable(self, nodes: list[str]) -> list[int]:
        return [e.number for e in self.endpoints if e.node in nodes and e.node in self.hosts]

    async def _pairs(self, new: list[str], old: list[str]) -> None:
        numbers = self._testable([*old, *new])
        fresh = set(self._testable(new))
        pairs = [
            (numbers[i], numbers[j])
            for round_ in circle_rounds(len(numbers))
            for i, j in round_
            if numbers[i] in fresh or numbers[j] in fresh
        ]
        self._pump.emit(event(Kind.PHASE, name="p2p", total=2 * len(pairs)))
        name = self._engine.name if self._engine else "gloo"
        self._pump.emit(
            event(Kind.PLAN, layer="p2p", slow_below=SLOW_BELOW[name], untested=self._untestable([*old, *new]))
        )
        pairs = self._without_busy(pairs)
        if not pairs:
            return
        unreachable = await check_reach([self.hosts[n] for n in self.hosts], self._options.timeout, self._pump)
        if name == "gloo":
            pairs = self._without_unreachable(pairs, unreachable)
        await self._run_pairs(pairs)
        await self._suspects({frozenset(pair) for pair in pairs})

    def _untestable(self, nodes: list[str]) -> list[tuple[str, str, str]]:
        """Return the ordered pairs in which a node has nothing to test, with the reason."""
        lines = []
        for a, b in itertools.permutations(self.endpoints, 2):
            why = [self._admissions[e.node].note for e in (a, b) if e.kind == "none" and self._admissions[e.node].note]
            if why:
                lines.append((str(a), str(b), why[0]))
        return lines

    def _without_busy(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take out the pairs of GPUs that other processes use: their jobs are not to be disturbed."""
        busy = {n: why for admission in self._admissions.values() for n, why in admission.busy.items()}
        if self._options.force or not busy:
            return pairs
        lines = []
        for a, b in pairs:
            for n in {a, b} & busy.keys():
                why = f"{self.endpoints[n]} is in use by {busy[n]}; --force tests it all the same"
                lines += [(str(self.endpoints[s]), str(self.endpoints[d]), why) for s, d in ((a, b), (b, a))]
        self._pump.emit(event(Kind.PLAN, layer="p2p", untested=lines))
        return [(a, b) for a, b in pairs if not {a, b} & busy.keys()]

    def _without_unreachable(
        self, pairs: list[tuple[int, int]], unreachable: dict[tuple[str, str], tuple[str, bool]]
    ) -> list[tuple[int, int]]:
        """Report the pairs whose path the TCP check found dead, so that they cost one deadline in all."""
        left = []
        for a, b in pairs:
            ends = self.endpoints[a], self.endpoints[b]
            found = {(s, d): unreachable.get((s.node, d.node)) for s, d in (ends, ends[::-1])}
            dead = next((result for result in found.values() if result), None)
            if dead is None:
                left.append((a, b))
                continue
            self._report(
                [
                    Measurement(
                        Layer.P2P,
                        str(s),
                        str(d),
                        Verdict.TIMEOUT if (result or dead)[1] else Verdict.FAILED,
                        unit="GB/s",
                        how="TCP check before the test",
                        src_addr=s.address,
                        dst_addr=d.address,
                        attempts=self._count("p2p", str(s), str(d)),
                        error=f"connect: {result[0]}" if result else f"connect: the way back is dead: {dead[0]}",
                    )
                    for (s, d), result in found.items()
                ]
            )
        return left

    async def _run_pairs(self, pairs: list[tuple[int, int]], *, alone: bool = False) -> None:
        """Test pairs, in parts after each of which the ranks let go of what the tests have left."""
        sweep = self._pair_sweep(alone=alone)
        for part in in_parts(pairs, PAIRS_BEFORE_REST):
            await sweep.run(part)
            await self._rest()

    async def _rest(self) -> None:
        for trouble in await rest(self.hosts.values(), next(self._ids), len(self.endpoints)):
            self._pump.log("warning", trouble)

    def _pair_sweep(self, *, alone: bool = False) -> PairSweep:
        name = self._engine.name if self._engine else "gloo"
        test = PairTest(
            bytes=self._options.bytes or DEFAULT_BYTES[name],
            iters=self._options.iters,
            warmup=self._options.warmup,
            latency_iters=20,
            deadline=self._options.timeout,
            engine=name,
        )
        return PairSweep(
            self.endpoints,
            self.hosts,
            test,
            self.store,
            self._ids,
            report=self._report,
            began=lambda pairs: self._pump.emit(event(Kind.RUNNING, pairs=pairs)),
            untested=lambda lines: self._pump.emit(event(Kind.PLAN, layer="p2p", untested=lines)),
            attempts=lambda src, dst: self._count("p2p", src, dst),
            go=self._go,
            one_at_a_time=alone,
        )

    async def _suspects(self, swept: set[frozenset[int]]) -> None:
        """Test what came out slow again with no other traffic: only what stays slow is slow."""
        for _ in range(SUSPECT_ROUNDS):
            await self._pump.flush()
            slow: set[tuple[int, int]] = set()
            for measurement in self._model.measurements():
                if measurement.layer is Layer.P2P and self._model.verdict(measurement) is Verdict.SLOW:
                    a, b = self._model.number(measurement.src), self._model.number(measurement.dst)
                    if a is not None and b is not None and {a, b} in swept:
                        slow.add((min(a, b), max(a, b)))
            if not slow or len(slow) > MAX_SUSPECTS:
                return
            self._pump.log("info", f"{len(slow)} slow pairs are tested again, alone")
            await self._run_pairs(sorted(slow), alone=True)

    async def _reduce(self, nodes: list[str]) -> None:
        testable = {n for host in self.hosts.values() for n in host.numbers}
        busy = set() if self._options.force else {n for a in self._admissions.values() for n in a.busy}
        groups = groups_of([e for e in self.endpoints if e.number in testable - busy], nodes)
        if not groups:
            return
        name = self._engine.name if self._engine else "gloo"
        largest = self._options.bytes or DEFAULT_BYTES[name]
        sizes = tuple(sorted({max(4, largest // 64 // 4 * 4), max(4, largest // 8 // 4 * 4), max(4, largest // 4 * 4)}))
        self._pump.emit(event(Kind.PHASE, name="all_reduce", total=len(groups) * len(sizes)))
        test = ReduceTest(sizes, self._options.iters, self._options.warmup, self._options.timeout)
        sweep = ReduceSweep(
            self.endpoints,
            self.hosts,
            test,
            self.store,
            self._ids,
            report=self._report,
            attempts=lambda src, dst, size: self._count("busbw", src, dst, str(size)),
            go=self._go,
        )
        await sweep.run(groups)
        await self._rest()

    async def retest(self, pairs: list[tuple[int, int]]) -> None:
        """Test unordered pairs again, one at a time."""
        pairs = [pair for pair in pairs if all(self.endpoints[n].node in self.hosts for n in pair)]
        self._pump.emit(event(Kind.PHASE, name="re-test", total=2 * len(pairs)))
        await self._run_pairs(pairs, alone=True)

    async def close(self) -> None:
        """End the waits of the store."""
        await self.store.close()
