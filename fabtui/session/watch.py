"""Watching: pairs are tested again in the background at a bounded rate, bad and oldest results first."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from fabtui.model.events import PhaseStart, Watching
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.sanitize import one_line
from fabtui.session.measure.retest import Pair, results_of
from fabtui.session.options import SessionOptions
from fabtui.session.sweep import Sweep
from fabtui_node import registry

#: Consecutive failed tests between nodes, and number of different peers among them, before a rank host is replaced.
FAILURES, PEERS = 3, 2
#: Pause (s) before it may be replaced again; it doubles up to the longest one, as the node may really be cut off.
PAUSE, LONGEST = 15.0, 600.0
Tests = Coroutine[Any, Any, None]
PHASE = "watch"
#: Seconds between two steps, each of which tests as many pairs as the rate allows.
STEP = 0.5
#: Minimum rate (pairs per second), on fabrics of any size.
MIN_RATE = 2.0
#: Endpoints for each further pair a second: an endpoint is in a test about every four seconds.
ENDPOINTS_PER_PAIR = 8
#: Seconds before a suspect is tested again.
SUSPECT_REST = 5.0
#: The share of the deadline that a pair has which was dead when it was tested last.
DEAD_SHARE = 0.3
#: Seconds between two looks at links and GPUs while it watches, and what is looked at.
PROBE_INTERVAL = 60.0
WATCH_PROBES = tuple(spec.name for spec in registry.PROBES.values() if spec.watch)
#: Seconds between two tests of the addresses that do not reach each other, and between two looks for pairs of nodes
#: that began or ceased to fail, whose addresses are tested at once.
MESH_INTERVAL, MESH_LOOK = 30.0, 5.0
#: Nodes per second whose addresses are all tested again where no pairs are.
NODES_PER_SECOND = 4
#: Seconds between two tests of the collectives that were bad and whose pairs pass; it doubles while they stay bad.
GROUPS_INTERVAL = 10.0
#: Seconds between two looks for something to test while there is nothing.
IDLE = 1.0
_DEAD = (Verdict.FAILED, Verdict.TIMEOUT)


class RankHostReplacement:
    """Choice of the rank hosts to replace: those that cannot be used, and those that no longer reach any other node.

    Libraries do not always survive a fault of the network: gloo may hang in its only thread, and every later test of
    that process fails. Without a new process, a node whose network has recovered would stay bad.
    """

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
        chosen = [name for name in dict.fromkeys([*broken, *lonely]) if now >= self._earliest.get(name, now)]
        for name in chosen:
            self._failures.pop(name, None)
            self._times[name] = self._times.get(name, 0) + 1
            self._earliest[name] = now + min(LONGEST, PAUSE * 2.0 ** (self._times[name] - 1))
        return chosen


def rate_for(wanted: float | None, endpoints: int) -> float:
    """Return the number of pairs tested per second: the wanted one, or one for a number of endpoints."""
    return wanted if wanted is not None else max(MIN_RATE, endpoints / ENDPOINTS_PER_PAIR)


def verdicts_of(model: Model, pair: Pair) -> list[Verdict]:
    """Return the verdicts of both directions of a pair, as far as it was tested."""
    return [model.verdict(one) for one in results_of(model, *pair)]


def is_suspect(model: Model, pair: Pair) -> bool:
    """Return True if a pair is bad in a direction, or flaps."""
    a, b = (str(model.endpoints[number]) for number in pair)
    flaps = (Layer.P2P, a, b) in model.results.flapping or (Layer.P2P, b, a) in model.results.flapping
    return flaps or any(verdict.bad for verdict in verdicts_of(model, pair))


class Round:
    """The order in which pairs are tested again: the stalest first, round and round; every other turn is a suspect's.

    Pairs without results are not tested.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stale: deque[Pair] = deque()
        self._suspects: deque[Pair] = deque()
        self._tested: dict[Pair, float] = {}
        self._turn = 0

    def _begin(self) -> None:
        """Queue all tested pairs, the oldest results first, and the suspects among them."""
        times: dict[Pair, float] = {}
        for measurement in self._model.measurements():
            if measurement.layer is not Layer.P2P:
                continue
            a, b = self._model.table.number(measurement.src), self._model.table.number(measurement.dst)
            if a is not None and b is not None and a != b:
                pair = (min(a, b), max(a, b))
                times[pair] = min(times.get(pair, measurement.time), measurement.time)
        self._stale = deque(sorted(times, key=lambda pair: (times[pair], pair)))
        known = set(self._suspects)
        self._suspects.extend(p for p in self._stale if p not in known and is_suspect(self._model, p))

    def take(self, count: int, usable: set[int], now: float) -> list[Pair]:
        """Return the next pairs of usable endpoints, at most ``count``, no two of which share one; ``now`` in s."""
        if not self._stale:
            self._begin()
        taken: list[Pair] = []
        for _ in range(count):
            self._turn += 1
            free = usable - {end for pair in taken for end in pair}
            pair = self._suspect(free, now) if self._turn % 2 else None
            pair = pair or self._stalest(free, usable, now) or self._suspect(free, now)
            if pair is None:
                break
            taken.append(pair)
            self._tested[pair] = now
        return taken

    def _suspect(self, free: set[int], now: float) -> Pair | None:
        for _ in range(len(self._suspects)):
            pair = self._suspects.popleft()
            if not is_suspect(self._model, pair):
                continue
            self._suspects.append(pair)
            if free.issuperset(pair) and now - self._tested.get(pair, float("-inf")) >= SUSPECT_REST:
                return pair
        return None

    def _stalest(self, free: set[int], usable: set[int], now: float) -> Pair | None:
        passed_over = []
        stalest = None
        while self._stale and stalest is None:
            pair = self._stale.popleft()
            if not usable.issuperset(pair) or now - self._tested.get(pair, float("-inf")) < STEP:
                # Not in this round: its node is gone, or it was tested as a suspect just now.
                continue
            if free.issuperset(pair):
                stalest = pair
            else:
                passed_over.append(pair)
        # What has to wait for another pair of this step comes first in the next.
        self._stale.extendleft(reversed(passed_over))
        return stalest

    def ended(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Note that pairs were tested; return those that became suspects."""
        new = [pair for pair in pairs if pair not in self._suspects and is_suspect(self._model, pair)]
        self._suspects.extend(new)
        return new


class Watch:
    """Tests pairs again while it is on. Tests that a user asks for come between its steps.

    In a read-only session it only inspects links and GPUs.

    It holds the lock ``testing`` during tests, which ``run`` runs; ``end`` ends the tests of a session and emits the
    exit code.
    """

    def __init__(
        self,
        options: SessionOptions,
        sweep: Sweep,
        testing: asyncio.Lock,
        run: Callable[[Callable[[], Tests]], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self._options = options
        self._sweep = sweep
        self._pump = sweep.context.pump
        self._model = sweep.context.pump.model
        self._go = sweep.context.go
        self._testing = testing
        self._run_tests = run
        self._end = end
        self._off = asyncio.Event()
        self._off.set()
        self._task: asyncio.Task[None] | None = None
        self._tested = 0
        self._replacement = RankHostReplacement()

    @property
    def on(self) -> bool:
        return not self._off.is_set()

    def turn(self, on: bool, first: asyncio.Event) -> None:
        """Turn it on or off; what runs is ended. It begins when ``first`` is set: the first sweep is done."""
        if on == self.on:
            return
        if not self._options.read_only:
            self._pump.emit(Watching(on=on))
        if not on:
            self._off.set()
            return
        self._off.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(first))

    async def stop(self) -> None:
        """End it at once, and what it tests."""
        task, self._task = self._task, None
        was = self.on
        self._off.set()
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if was:
            self._pump.emit(Watching(on=False))
        if self._model.phase.name == PHASE or (was and self._options.read_only):
            await self._end()

    async def _run(self, first: asyncio.Event) -> None:
        try:
            await first.wait()
            while self.on:
                await (self._inspect() if self._options.read_only else self._watch())
                # Turned on again while it came to its end.
        except Exception as error:
            # The session continues without it.
            self._off.set()
            text = one_line(f"{type(error).__name__}: {error}", 300)
            self._pump.log("error", f"watching ended by an error: {text}")
            self._pump.emit(Watching(on=False))
            await self._end()

    async def _watch(self) -> None:
        rate = rate_for(self._options.watch_rate, len(self._model.endpoints))
        what = f"at most {rate:.3g} pairs a second; the ranks keep their GPUs meanwhile"
        if "p2p" not in self._options.chosen_probes:
            what = f"all addresses are tested again every {self._mesh_pause:.0f} s"
        self._pump.log("info", f"watching: {what}")
        order = Round(self._model)
        self._tested = 0
        self._replacement = RankHostReplacement()
        self._sweep.warm = True
        loop = asyncio.get_running_loop()
        credit, most = 1.0, max(1.0, 2 * rate * STEP)
        beside = [
            asyncio.create_task(work())
            for work in (self._probe_periodically, self._mesh_periodically, self._groups_periodically)
        ]
        last = loop.time()
        try:
            with self._sweep.runner.counters.sampling():
                while self.on:
                    now = loop.time()
                    credit, last = min(credit + rate * (now - last), most), now
                    if credit < 1:
                        await self._wait((1 - credit) / rate)
                        continue
                    done = await self._step(order, int(credit))
                    credit -= done
                    await self._wait(now + (min(STEP, 1 / rate) if done else IDLE) - loop.time())
        finally:
            self._sweep.warm = False
            self._pump.log("info", f"watching ended: {count(self._tested, 'pair')} tested again")
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        async with self._testing:
            await self._sweep.cool()
            await self._end()

    async def _inspect(self) -> None:
        """Inspect links and GPUs periodically, and test nothing; a job on the nodes is observed all the time."""
        self._pump.log("info", f"watching without tests: links and GPUs are inspected every {PROBE_INTERVAL:.0f} s")
        inspecting = asyncio.create_task(self._probe_periodically())
        try:
            await self._off.wait()
        finally:
            inspecting.cancel()
            await asyncio.gather(inspecting, return_exceptions=True)
        await self._end()

    async def _probe_periodically(self) -> None:
        self._sweep.runner.counters.border()
        while True:
            await asyncio.sleep(PROBE_INTERVAL)
            await self._go.wait()
            self._sweep.runner.counters.border(PHASE)
            try:
                chosen = [probe for probe in WATCH_PROBES if probe in self._options.chosen_probes]
                await self._sweep.probes.run(self._sweep.alive(self._sweep.clients), chosen, beside_tests=True)
            except ExceptionGroup as errors:
                self._pump.log("warning", f"probes: {one_line(str(errors.exceptions[0]), 300)}")

    async def _mesh_periodically(self) -> None:
        """Test the addresses again that did not reach each other, and those whose pairs changed."""
        loop = asyncio.get_running_loop()
        known, last, pairs = self._sweep.dead_nodes(), loop.time(), "p2p" in self._options.chosen_probes
        while True:
            await asyncio.sleep(min(MESH_LOOK, MESH_INTERVAL))
            dead = self._sweep.dead_nodes()
            changed = dead ^ known
            if not pairs:
                # Nothing else would notice an address that no longer answers.
                changed = {*itertools.permutations(self._sweep.alive(self._sweep.clients), 2)}
            if not (changed and pairs) and loop.time() - last < (MESH_INTERVAL if pairs else self._mesh_pause):
                continue
            await self._go.wait()
            async with self._testing:
                await self._run_tests(partial(self._sweep.mesh_again, changed))
            known, last = dead, loop.time()

    @property
    def _mesh_pause(self) -> float:
        """Time (s) between two tests of all addresses, where no pairs are tested."""
        return max(MESH_LOOK, len(self._sweep.clients) / NODES_PER_SECOND)

    async def _groups_periodically(self) -> None:
        """Test the collectives again that were bad and whose pairs pass: findings may hold no longer."""
        recovered, pause = self._sweep.runner.recovered_groups, GROUPS_INTERVAL
        while True:
            await asyncio.sleep(pause)
            await self._go.wait()
            if recovered():
                async with self._testing:
                    await self._run_tests(self._sweep.groups_again)
                    await self._pump.flush()
            pause = min(LONGEST, 2 * pause) if recovered() else GROUPS_INTERVAL

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._off.wait()

    def _renewed(self) -> list[str]:
        """Return the nodes whose rank hosts are to be replaced, before these nodes are blamed again."""
        there = {node: self._sweep.context.hosts[node] for node in self._sweep.alive(self._sweep.context.hosts)}
        broken = [node for node, host in there.items() if host.broken]
        usable = [node for node, host in there.items() if host.numbers]
        nodes = self._replacement.due(usable, broken, asyncio.get_running_loop().time())
        for node in nodes:
            why = f"could not be used: {there[node].broken}" if node in broken else "no longer reached any other node"
            self._pump.log("info", f"its rank host {why}; it is replaced", node)
        return nodes

    async def _again(self, dead: list[Pair], well: list[Pair]) -> None:
        await self._sweep.ready_again()
        if dead:
            await self._sweep.runner.again(dead, DEAD_SHARE)
        if well:
            # What was well may fail once: a rank got no processor in time, or a first packet was lost.
            await self._sweep.runner.again(well, 1.0, doubts=True)

    async def _step(self, order: Round, count: int) -> int:
        """Test the next pairs; returns how many there were."""
        await self._go.wait()
        async with self._testing:
            if not self.on or not self._go.is_set():
                return 0
            if self._model.phase.name != PHASE:
                self._pump.emit(PhaseStart(name=PHASE, total=0))
            await self._sweep.ready_again(self._renewed())
            pairs = order.take(count, self._sweep.context.ready(), asyncio.get_running_loop().time())
            dead = [pair for pair in pairs if any(v in _DEAD for v in verdicts_of(self._model, pair))]
            well = [pair for pair in pairs if pair not in dead]
            await self._run_tests(lambda: self._again(dead, well))
            await self._pump.flush()
            self._note(order, pairs)
            return len(pairs)

    def _note(self, order: Round, pairs: list[Pair]) -> None:
        ends = self._model.endpoints
        for a, b in pairs:
            verdicts = verdicts_of(self._model, (a, b))
            self._replacement.ended(ends[a].node, ends[b].node, dead=all(verdict in _DEAD for verdict in verdicts))
        for a, b in order.ended(pairs):
            # The model logs each change of a verdict.
            if not any(verdict.bad for verdict in verdicts_of(self._model, (a, b))):
                self._pump.log("warning", f"{ends[a]} - {ends[b]} is flapping")
        self._tested += len(pairs)
