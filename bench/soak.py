"""Soak: a session that watches some nodes while random faults come and go.

Needs root: the nodes are network namespaces (`fabtui.lab.network`), with a management network. The seed decides
which faults are planted, where, and for how long: bursts of some, each a few seconds after the one before. After a
burst everything is healed, and every node has to be back and every pair to be well again within a bound. What the
session holds is compared then: asyncio tasks, file descriptors, processes here and on the nodes, memory. At the end
each pair is measured again. Then no finding may be about anything but the faults that were there. No pair may have
failed but while there was a fault at one of its nodes, or soon after. Nothing may be left on a node. The exit code is 1
if something is wrong; one line each is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.lab.faults import FaultKind, kinds
from fabtui.lab.network import Network, missing
from fabtui.model.endpoints import node_of
from fabtui.model.events import Measured, NodeState
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.session.watch import PHASE

RAILS = 2
#: Faults of a burst; pause (s) before each, and how long (s) it lasts. A link that is silent for 10 s is lost.
BURST, GAP, LASTS = 4, (1.0, 4.0), (1.0, 14.0)
#: How long (s) a node may take to be back after a repair, and a pair to be well: a minute is the longest pause between
#: two tries, and a rank host that starts loads PyTorch on a busy machine.
BACK = 180.0
#: How long (s) a restart of a rank host may still take then.
SETTLE = 60.0
#: How much more memory may be held than after the first burst.
GROWTH = 1.10
#: Verdicts that are not a statement about a path: CPU ranks of a busy machine are slow now and then.
_WELL = (Verdict.OK, Verdict.SLOW)
#: How long (s) after a repair a pair may still be found failed: a test that began before ends at its deadline.
LATE = 15.0
#: How often each pair is measured again before the findings at the end are judged, and how long (s) that may take: a
#: value that is low is tested again by and by.
CALM, CALM_BOUND = 3, 120.0
#: Rules about what has been: a node that was gone, pairs and links that flap.
_PAST = ("FT001", "FT031", "FT035", "FT220")
#: Rules that report that this machine is busy.
_BUSY = ("FT029",)


class Held(NamedTuple):
    """Resources of a session while all is well."""

    tasks: int
    files: int
    processes: int
    on_nodes: int
    memory: float  #: MiB.

    def no_more_than(self, other: Held) -> bool:
        """Return True if nothing is held, besides memory, of which there was less before."""
        return all(mine <= its for mine, its in zip(self[:-1], other[:-1], strict=True))

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.files} files, {self.processes} processes, {self.on_nodes} on nodes, "
            f"{self.memory:.1f} MiB"
        )


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def _memory() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _on_node(network: Network, name: str) -> Counter[str]:
    """Count the processes of a node by name, without those that every node has."""
    found = Counter(network.on(name, "ps", "-e", "-o", "comm=").split("\n"))
    for usual in ("sh", "sleep", "sshd", "ps", ""):
        del found[usual]
    return found


class Fault(NamedTuple):
    """A fault that was planted, and the nodes that it is at."""

    nodes: frozenset[str]
    begin: float  #: Seconds since the epoch.
    end: float


@dataclass
class Soak:
    """A session, its network, and what went wrong so far."""

    network: Network
    feed: LiveFeed
    record: Path  #: The recording of the session.
    dice: random.Random
    only: frozenset[str] = frozenset()  #: Kinds of faults; none: all.
    wrong: list[str] = field(default_factory=list)
    planted: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    warm: bool = False  #: Whether there were faults.

    @property
    def model(self) -> Model:
        return self.feed.model

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f}  {text}", flush=True)

    def blame(self, text: str) -> None:
        self.wrong.append(text)
        self.say(f"WRONG: {text}")

    def draw(self) -> str:
        while True:
            kind = self.dice.choice([kind for kind in kinds("root") if not self.only or kind.name in self.only])
            text = self._place(kind) + f"={kind.name}" + (f":{kind.default}" if kind.value else "")
            if text.partition("=")[0] not in self.network.faults:
                return text

    def _place(self, kind: FaultKind) -> str:
        nodes = self.dice.sample(self.network.names, 2)
        rail = self.dice.choice(self.network.rails)
        return {
            "port": f"{nodes[0]}.eth{rail}",
            "way": f"{nodes[0]}>{nodes[1]}",
            "rail": f"rail{rail}",
            "node": nodes[0],
        }[kind.place]

    async def burst(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(BURST):
                await asyncio.sleep(self.dice.uniform(*GAP))
                text, lasts = self.draw(), self.dice.uniform(*LASTS)
                self.say(f"{text} for {lasts:.1f} s")
                self.planted[text.partition("=")[2].partition(":")[0]] += 1
                self.faults.append(Fault(self._touched(text), time.time(), time.time() + lasts + LATE))
                await self._on_network(self.network.plant, text)
                group.create_task(self._heal(text.partition("=")[0], lasts))

    def _touched(self, text: str) -> frozenset[str]:
        """Return the nodes that a fault is at: a whole rail is at all."""
        place = text.partition("=")[0]
        ends = {end.partition(".")[0] for end in place.split(">")}
        return frozenset(ends & {*self.network.names} or self.network.names)

    async def _heal(self, where: str, after: float) -> None:
        await asyncio.sleep(after)
        await self._on_network(self.network.heal, where)

    async def _on_network(self, change: Callable[[str], None], text: str) -> None:
        # In this thread: processes of the network end with the one that started them. It takes some milliseconds.
        change(text)
        await asyncio.sleep(0)

    def unwell(self) -> list[str]:
        """Return which nodes are not back, and which pairs are not well."""
        model = self.model
        found = [name for name, record in model.nodes.items() if record.state is not NodeState.READY]
        pairs = {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer is Layer.P2P}
        found += [f"{src} > {dst} {verdict}" for (src, dst), verdict in pairs.items() if verdict not in _WELL]
        mesh = [(layer, m) for layer in MESH for m in model.addresses.pairs(layer) if m.verdict not in _WELL]
        found += [f"{m.src_addr} > {m.dst_addr} {layer} {m.verdict}" for layer, m in mesh]
        expected = len(self.network.names) * (len(self.network.names) - 1)
        return found + ([f"{len(pairs)} pairs, not {expected}"] if len(pairs) != expected else [])

    async def recover(self) -> None:
        """Wait until everything is well again."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(BACK):
                while self.unwell():  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self.blame(f"{BACK:.0f} s after the repair: {', '.join(self.unwell()[:8])}")
            return
        slow = sum(self.model.verdict(m) is Verdict.SLOW for m in self.model.measurements() if m.layer is Layer.P2P)
        words = [title(one) for one in diagnose(self.model).findings]
        self.say(f"well after {time.monotonic() - began:.1f} s; {slow} slow; findings: {'; '.join(words) or 'none'}")

    async def calm(self) -> None:
        """Wait until each pair was measured again; no finding may be false then."""
        try:
            async with asyncio.timeout(CALM_BOUND):
                for _ in range(CALM):
                    since = time.time()
                    while any(m.time < since for m in self.model.measurements() if m.layer is Layer.P2P):  # noqa: ASYNC110
                        await asyncio.sleep(0.2)
        except TimeoutError:
            self.blame(f"not every pair was measured {CALM} times within {CALM_BOUND:.0f} s")
        touched = frozenset().union(*(fault.nodes for fault in self.faults))
        for found in diagnose(self.model).findings:
            true = found.rule.id in _BUSY or (found.rule.id in _PAST and touched.issuperset(found.nodes))
            line = f"{found.rule.id} {title(found)}"
            self.say(f"finding at the end: {line}") if true else self.blame(f"false finding: {line}")

    def failures(self) -> None:
        """See that no pair failed but while there was a fault at one of its nodes."""
        counts = Counter[str]()
        events = (event for event in read_events(self.record) if isinstance(event, Measured))
        for one in itertools.chain.from_iterable(event.measurements for event in events):
            if one.layer is not Layer.P2P:
                continue
            counts[one.verdict] += 1
            nodes = {node_of(one.src), node_of(one.dst)}
            late = all(not fault.begin <= one.time <= fault.end for fault in self.faults if nodes & fault.nodes)
            if one.verdict not in _WELL and late:
                self.blame(f"false verdict: {one.src} > {one.dst} {one.verdict}: {one.error}")
        self.say(f"verdicts: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")

    async def settled(self, first: Held | None) -> Held:
        """Return what the session holds when what the last tests have started has ended: no more than before."""
        end = time.monotonic() + SETTLE
        while True:
            await asyncio.sleep(3.0)
            now = self.held()
            if first is None or now.no_more_than(first) or time.monotonic() > end:
                return now

    def held(self) -> Held:
        on_nodes = Counter[str]()
        for name in self.network.names:
            on_nodes += _on_node(self.network, name)
        return Held(
            len(asyncio.all_tasks()),
            len(os.listdir("/proc/self/fd")),
            len(_children(os.getpid())),
            on_nodes.total(),
            _memory(),
        )

    def compare(self, first: Held, now: Held) -> None:
        for name in ("tasks", "files", "processes", "on_nodes"):
            before, after = getattr(first, name), getattr(now, name)
            if after > before:
                self.blame(f"{name}: {after}, not {before}")
        if now.memory > GROWTH * first.memory:
            self.blame(f"memory: {now.memory:.1f} MiB, not at most {GROWTH:g} times {first.memory:.1f} MiB")

    async def run(self, seconds: float, bursts: int) -> None:
        """Watch for some seconds, or some bursts of faults if there are any to be; then end the session."""
        files, children = len(os.listdir("/proc/self/fd")), len(_children(os.getpid()))
        try:
            await self.feed.run()
            self.say("first sweep done")
            self.feed.watch(True)
            await self.recover()
            # All ranks run by then, as they do while all is well.
            async with asyncio.timeout(BACK):
                while self.model.phase.name != PHASE:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.2)
            first = last = await self.settled(None)
            self.say(f"held before any fault: {first}")
            for number in itertools.count():
                if number >= bursts if bursts else time.monotonic() - self.began >= seconds:
                    break
                await self.burst()
                await self.recover()
                last = await self.settled(first)
                self.say(f"held: {last}")
                if not self.warm:
                    # Memory grows with the first failures: modules, and texts of errors.
                    first, self.warm = first._replace(memory=last.memory), True
            self.compare(first, last)
            await self.calm()
        finally:
            await self.feed.close()
        self.failures()
        await asyncio.sleep(3.0)
        for name in self.network.names:
            if left := _on_node(self.network, name):
                self.blame(f"left on {name}: {dict(left)}")
                print(self.network.on(name, "ps", "-e", "-o", "pid,ppid,stat,etimes,wchan:20,args", "--cols", "150"))
        if (now := len(_children(os.getpid()))) > children:
            self.blame(f"{now - children} processes are left here")
        if (now := len(os.listdir("/proc/self/fd"))) > files:
            self.say(f"{now - files} more files are open than before the session")


async def soak(folder: Path, args: argparse.Namespace) -> list[str]:
    """Run a soak; return what went wrong."""
    record = args.record or folder / "soak.jsonl.gz"
    with Network(folder, args.nodes, RAILS, management="mgmt0", relayed=True) as network:
        options = SessionOptions(
            hosts=tuple(network.names),
            ssh_config=network.ssh_config,
            remote_python=sys.executable,
            # With `host`: whether ranks have to wait for cores is a part of the verdict.
            probes=("host", "ping", "p2p"),
            layers=("p2p",),
            bytes=64 << 10,
            iters=4,
            warmup=1,
            timeout=5.0,
            watch_rate=10.0,
            record=record,
        )
        only = frozenset(args.only.split(",")) - {""}
        one = Soak(network, LiveFeed(options), record, random.Random(args.seed), only)
        await one.run(args.seconds, args.bursts)
        planted = ", ".join(f"{count} {name}" for name, count in sorted(one.planted.items()))
        one.say(f"{one.planted.total()} faults ({planted}); seed {args.seed}; {len(one.wrong)} wrong")
        return one.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="how long faults come and go")
    parser.add_argument("--bursts", type=int, default=0, help="number of bursts of faults, in place of a time")
    parser.add_argument("--nodes", type=int, default=8, help="number of nodes (8)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", default="", help="kinds of faults, with commas between")
    parser.add_argument("--record", type=Path, help="keep the recording in this file")
    args = parser.parse_args()
    if (why := missing()) is not None:
        print(f"soak: not run: {why}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        return 1 if asyncio.run(soak(Path(folder), args)) else 0


if __name__ == "__main__":
    sys.exit(main())
