"""A session over nodes with networks of their own that stays: pairs are tested again and again by the same rank hosts.

Sequences of a pair that breaks in mid-transfer and of the next test of one of its ends, and rates of slow links.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fabtui.cli.main import main
from fabtui.lab.lab import StandingLab
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions

#: Deadline (s) of a pair; each direction has half of it.
DEADLINE = 8.0
#: Latest time (s) at which a fault is planted after its pair has begun.
LATEST = 0.3
#: What breaks a path, and what breaks all of a node.
OF_PATH = ("drop", "drop-tcp", "blackhole:1500", "loss:95%")
OF_PORT = ("pull", "misplug", "down", "loss-in:95%", "loss-out:95%")
#: Kinds of errors that no fault of a network may cause.
STRANGE = ("verify", "stale", "blank")

Ends = tuple[str, str]


class NotTestedError(Exception):
    """A pair was not tested: a node was lost meanwhile, or its ranks."""


class KeptSession:
    """A session that is kept, and the faults of its network; ``fault`` and ``heal`` plant one and take it back."""

    def __init__(self, feed: LiveFeed, fault: Callable[[str], object], heal: Callable[..., object]) -> None:
        self.feed = feed
        self._fault = fault
        self._heal = heal

    async def plant(self, text: str) -> None:
        await asyncio.to_thread(self._fault, text)

    async def heal(self, *places: str) -> None:
        await asyncio.to_thread(self._heal, *places)

    async def test(self, *pairs: Ends) -> None:
        await self.feed.retest(pairs)

    def latest(self, src: str, dst: str, layer: Layer = Layer.P2P) -> Measurement:
        return self.feed.model.history(layer, src, dst, 1)[-1]

    async def begun(self, src: str, dst: str, testing: asyncio.Future[None]) -> None:
        """Wait until the test of a pair has begun, or all tests have ended."""
        model = self.feed.model
        a, b = model.table.number(src), model.table.number(dst)
        assert a is not None
        assert b is not None
        while not (model.cell(Layer.P2P, a, b).running or testing.done()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextmanager
def lab_of(name: str, nodes: int, *, gpu: bool) -> Iterator[StandingLab]:
    """Return a lab of nodes with one NIC; it is made, and taken down at the end, where it is not up."""
    lab = StandingLab(name)
    own = not lab.stands
    if own:
        main(["lab", "up", "--nodes", str(nodes), "--rails", "1", "--name", name, "--gpu" if gpu else "--endpoints=1"])
    try:
        yield lab
    finally:
        if own:
            lab.down()


@asynccontextmanager
async def kept(
    names: Sequence[str], ssh_config: Path, fault: Callable[[str], object], heal: Callable[..., object], **options: Any
) -> AsyncIterator[KeptSession]:
    """Run a first sweep over nodes; the session ends with the context."""
    chosen: dict[str, Any] = {"probes": ("p2p",), "layers": ("p2p",), "timeout": DEADLINE, "keep_warm": True}
    chosen |= {"hosts": tuple(names), "ssh_config": ssh_config, "remote_python": sys.executable, **options}
    feed = LiveFeed(SessionOptions(**chosen))
    try:
        await feed.run()
        yield KeptSession(feed, fault, heal)
    finally:
        await feed.close()


@dataclass(frozen=True)
class Case:
    """A pair that breaks, and the next test of one of its ends."""

    seed: int
    pair: Ends
    next: Ends
    slow: str  #: A limit that is there from the start, which fills queues; or "".
    fault: str
    after: float  #: Time (s) of the fault after the start of the pair.
    heal: float | None  #: Time (s) after the fault at which it is healed; None: after both tests.


def planned(seed: int, names: Sequence[str]) -> Case:
    """Return the sequence of a seed: pairs run in the order of their names, so that the broken one is first."""
    chance = Random(seed)
    while True:
        first, second, third = (names[at] for at in chance.sample(range(len(names)), 3))
        # The end that is tested next is the second one.
        pair, after = (min(first, second), max(first, second)), (min(second, third), max(second, third))
        if pair < after:
            break
    of_path = [f"{src}>{dst}={kind}" for src, dst in (pair, pair[::-1]) for kind in OF_PATH]
    fault = chance.choice([*of_path, *(f"{first}.eth0={kind}" for kind in OF_PORT)])
    slow = f"{first}.eth0={chance.choice(('slow-in', 'slow-out'))}:{chance.choice((20, 60, 200))}MB"
    ends = (f"{pair[0]}:0", f"{pair[1]}:0"), (f"{after[0]}:0", f"{after[1]}:0")
    has_limit = ">" in fault and chance.random() < 0.6
    heal = chance.uniform(1.0, DEADLINE) if chance.random() < 0.5 else None
    return Case(seed, *ends, slow if has_limit else "", fault, chance.uniform(0.0, LATEST), heal)


async def run(session: KeptSession, one: Case) -> dict[str, Any]:
    """Run a sequence; return it with what came of it.

    ``broken``: the pair failed in mid-transfer. ``good``: the next test passed, and no data was anything but its own.
    """
    began = time.time()
    if one.slow:
        await session.plant(one.slow)
    testing = asyncio.ensure_future(session.test(one.pair, one.next))
    try:
        await session.begun(*one.pair, testing)
        await asyncio.sleep(one.after)
        await session.plant(one.fault)
        if one.heal is not None:
            await asyncio.sleep(one.heal)
            await session.heal(one.fault)
        await testing
    finally:
        testing.cancel()
        await session.heal()
    results = [session.latest(*way) for ends in (one.pair, one.next) for way in (ends, ends[::-1])]
    if any(m.time < began for m in results):
        raise NotTestedError("; ".join(entry.text for entry in list(session.feed.model.log)[-8:]))
    errors = [(m.error or "", (m.extra or {}).get("error_kind")) for m in results]
    cut = any(m.verdict is not Verdict.OK and "transfer" in (m.error or "") for m in results[:2])
    good = all(m.verdict is Verdict.OK for m in results[2:]) and not any(kind in STRANGE for _, kind in errors)
    return {
        **{**vars(one), "pair": list(one.pair), "next": list(one.next)},
        "verdicts": [str(m.verdict) for m in results],
        "errors": [text[:300] for text, _ in errors],
        "broken": cut,
        "good": good,
        "seconds": round(time.time() - began, 1),
    }
