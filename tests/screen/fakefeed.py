"""A feed that plays a list of events at fixed times; and such lists."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from fabtui.diagnosis.knowledge.step_command import StepCommand
from fabtui.model.endpoints import Endpoint, pair_class
from fabtui.model.events import (
    Acknowledged,
    CommandEnd,
    CommandStart,
    EndpointsAdded,
    Event,
    Experiment,
    InventoryUpdate,
    LogEntry,
    Measured,
    NodeState,
    NodeUpdate,
    PairsStarted,
    Paused,
    PhaseStart,
    ProbeResult,
    SessionEnd,
    SessionStart,
    Watching,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.schedule import each_round
from fabtui.model.session_model import Model
from fabtui.session.feeds.base import Feed, Playback
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.transport.login_answers import LoginQuestion
from tests.screen.fakeprobes import address, inventory, nvlink

START = 1_700_000_000.0


class FakeFeed(Feed):
    """Plays events into a model.

    Args:
        events: The events, each with its time.
        can_test: Whether it is a live session.
        badges: Lasting warnings.
        hold: Play only what `advance` asks for, instead of everything at once.
        pace: Seconds to wait after each event.
    """

    def __init__(
        self,
        events: Iterable[Event],
        *,
        can_test: bool = True,
        badges: list[str] | None = None,
        hold: bool = False,
        pace: float = 0.0,
    ) -> None:
        self.model = Model()
        self.can_test = can_test
        self.badges = badges or []
        self.waiting = list(events)
        self.hold = hold
        self.pace = pace
        self.closed = 0
        self.swept = 0
        self.bisected = 0
        self.asked = 0
        self.retested: list[tuple[str, str]] = []
        self.confirmed: list[Experiment] = []
        self.probed: list[str] = []
        self.ran: list[StepCommand] = []
        #: State of a replay, if it is one, and what was asked of it.
        self.replay: Playback | None = None
        self.sought: list[float] = []
        self.turned: list[int] = []
        self.speeds: list[float] = []
        self.error: Exception | None = None
        self.close_takes = 0.0
        #: What a server asks at a login, and what was answered.
        self.question: LoginQuestion | None = None
        self.answered: list[Sequence[str] | None] = []
        #: Monitor of the job whose nodes these are.
        self.job: JobMonitor | None = None
        self._listeners: list[Callable[[], None]] = []

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        if self.hold:
            return
        while self.waiting and not self.closed:
            self.advance(1)
            if self.pace:
                await asyncio.sleep(self.pace)
        if self.question is not None:
            assert self.ask is not None
            self.answered.append(await self.ask(self.question))

    def advance(self, count: int | None = None) -> None:
        """Play the next events, or all that are left."""
        some, self.waiting = self.waiting[:count], self.waiting[count:] if count is not None else []
        self.play(some)

    def play(self, events: Iterable[Event]) -> None:
        for one in events:
            self.model.apply(one)
        for changed in self._listeners:
            changed()

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.retested.extend(pairs)

    async def confirm(self, experiments: Sequence[Experiment]) -> None:
        self.confirmed.extend(experiments)

    async def sweep(self) -> None:
        self.swept += 1

    async def bisect(self) -> None:
        self.bisected += 1

    async def look(self, nodes: Sequence[str]) -> None:
        self.probed.extend(nodes)

    async def run_step(self, step: StepCommand) -> None:
        self.ran.append(step)
        number, now = len(self.ran), self.model.now
        self.play([CommandStart(number=number, node=step.node, command=step.text, argv=step.argv, time=now)])

    async def acknowledge(self, finding: str, title: str, note: str) -> None:
        self.play([Acknowledged(finding=finding, title=title, note=note, time=self.model.now)])

    def answer(self, **fields: Any) -> None:
        self.play([CommandEnd(number=len(self.ran), time=self.model.now, **fields)])

    async def ask_job(self) -> None:
        self.asked += 1

    def job_monitor(self) -> JobMonitor | None:
        return self.job

    def watch(self, on: bool) -> None:
        self.play([Watching(on=on, time=self.model.now)])

    def pause(self, on: bool) -> None:
        self.play([Paused(on=on, time=self.model.now)])

    @property
    def playback(self) -> Playback | None:
        return self.replay

    def seek(self, position: float) -> None:
        self.sought.append(position)

    async def seek_turn(self, step: int) -> None:
        self.turned.append(step)

    def play_at(self, speed: float) -> None:
        self.speeds.append(speed)

    async def close(self) -> None:
        self.closed += 1
        await asyncio.sleep(self.close_takes)


class Story:
    """Builds the events of a session, a fixed step of time apart.

    Args:
        nodes: Names of the nodes.
        per_node: Endpoints of a node.
        kind: ``gpu`` or ``cpu``.
        lab: What the lab is called, or None.
        faults: Lab faults as text.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        per_node: int,
        *,
        kind: str = "gpu",
        lab: str | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        self.nodes = list(nodes)
        self.per_node = per_node
        self.kind = kind
        self.events: list[Event] = []
        self.now = START
        self.step = 0.05
        self.faults = list(faults)
        self.shadow = Model()
        self.add(
            SessionStart(
                format=1,
                version="0",
                nodes=self.nodes,
                options={"probes": ["ping", "p2p", "all_reduce"]},
                lab=lab,
                faults=self.faults,
            )
        )

    def add(self, one: Event) -> None:
        self.now = round(self.now + self.step, 3)
        stamped = replace(one, seq=len(self.events), time=one.time or self.now)
        self.events.append(stamped)
        self.shadow.apply(stamped)

    def state(
        self, node: str, state: NodeState, text: str = "", hint: str | None = None, retry: float | None = None
    ) -> None:
        self.add(NodeUpdate(node=node, state=state, text=text, hint=hint, backend="asyncssh", retry=retry))

    def log(self, text: str, node: str | None = None, level: str = "info") -> None:
        self.add(LogEntry(level=level, node=node, text=text))

    def connect(self, node: str) -> None:
        self.state(node, NodeState.CONNECTING)
        self.state(node, NodeState.CONNECTED)
        self.state(node, NodeState.LOOKING)
        self.add(InventoryUpdate(node=node, value=inventory(node, self.per_node, self.kind)))
        self.state(node, NodeState.READY)

    def endpoints(self, *nodes: str, kind: str | None = None, count: int | None = None) -> None:
        made: list[Endpoint] = []
        first = len(self.shadow.endpoints)
        for node in nodes:
            for index in range(self.per_node if count is None else count):
                made.append(
                    Endpoint(
                        first + len(made),
                        node,
                        index,
                        kind=kind or self.kind,
                        name="NVIDIA H200" if self.kind == "gpu" else "",
                        nic=f"mlx5_{index}" if self.kind == "gpu" else "eth0",
                        rail=index,
                        bus=f"0000:{index + 10:02x}:00.0",
                        uuid=None,
                        address=address(node, index),
                    )
                )
        self.add(EndpointsAdded(endpoints=made, notes={}))

    def phase(self, name: str, total: int = 0) -> None:
        self.add(PhaseStart(name=name, total=total))

    def measured(self, *found: Measurement) -> None:
        self.add(Measured(measurements=found))

    def running(self, *pairs: tuple[str, str]) -> None:
        self.add(PairsStarted(pairs=pairs))

    def end(self, code: int) -> None:
        self.phase("done")
        self.add(SessionEnd(exit=code, text=""))

    def ordered_pairs(self) -> list[tuple[str, str]]:
        names = [str(e) for e in self.shadow.endpoints if e.kind != "none"]
        return [
            way
            for round_ in each_round(len(names))
            for a, b in round_
            for way in ((names[a], names[b]), (names[b], names[a]))
        ]

    def good(self, src: str, dst: str, **changes: Any) -> list[Measurement]:
        """A good bandwidth and latency of a pair, plausible for its class and the same each time."""
        a, b = (self.shadow.table.number(name) for name in (src, dst))
        assert a is not None
        assert b is not None
        first, second = self.shadow.endpoints[a], self.shadow.endpoints[b]
        kind = pair_class(first, second)
        wobble = ((a * 7 + b * 13) % 11 - 5) / 500
        value, latency, transport = {
            "same-node": (351.0, 4.2, "P2P/CUMEM"),
            "same-rail": (46.1, 12.5, "NET/IB/GDRDMA"),
            "cross-rail": (44.0, 17.0, "NET/IB"),
        }[kind]
        common: dict[str, Any] = {
            "src": src,
            "dst": dst,
            "verdict": Verdict.OK,
            "time": self.now,
            "transport": transport,
            "src_addr": first.address,
            "dst_addr": second.address,
            "how": "nccl 2.28.9, 20 x ncclSend/ncclRecv, CUDA events",
            **changes,
        }
        return [
            Measurement(Layer.P2P, value=value * (1 + wobble), unit="GB/s", bytes=256 << 20, **common),
            Measurement(Layer.LATENCY, value=latency * (1 - wobble), unit="us", bytes=8, **common),
        ]

    def pings(self, nodes: Sequence[str]) -> None:
        for a in nodes:
            for b in nodes:
                if a == b:
                    continue
                self.measured(
                    *(
                        Measurement(
                            Layer.PING,
                            a,
                            b,
                            Verdict.OK,
                            0.08 + rail / 1000,
                            "ms",
                            56,
                            self.now,
                            "fping, average round trip of 3",
                            src_addr=address(a, rail),
                            dst_addr=address(b, rail),
                            extra={"loss": 0.0},
                            raw=f"{address(b, rail)} : xmt/rcv/%loss = 3/3/0%",
                        )
                        for rail in range(self.per_node)
                    )
                )

    def busbw(self, nodes: Sequence[str]) -> None:
        for at, a in enumerate(nodes):
            for b in nodes[at + 1 :]:
                self.measured(
                    *(
                        Measurement(Layer.BUSBW, a, b, Verdict.OK, 40.0 + size / 2**28, "GB/s", size, self.now, "nccl")
                        for size in (1 << 20, 1 << 28)
                    )
                )


SLOW = ("n000:1", "n001:1")
TIMEOUT = ("n000:3", "n001:2")
FAILED = ("n000:1", "n001:2")
REFUSED = "connection refused: nobody listens on 10.0.0.3 port 22"


def sweep_of_two(*, end: bool = True, failed_node: bool = True) -> Story:
    """2 x 4 endpoints with one slow, one timed out and one failed pair, and a third node that could not be reached."""
    nodes = ["n000", "n001"] + (["n002"] if failed_node else [])
    story = Story(nodes, 4, lab="2x4", faults=["n000:1>n001:2=drop"])
    for node in ("n000", "n001"):
        story.connect(node)
    if failed_node:
        story.state("n002", NodeState.CONNECTING)
        story.state("n002", NodeState.FAILED, REFUSED, "is sshd running there? ssh -v n002")
        story.log(REFUSED, "n002", "error")
    story.endpoints("n000", "n001")
    for node in ("n000", "n001"):
        story.add(ProbeResult(node=node, probe="nvlink", value=nvlink(3)))
        story.add(ProbeResult(node=node, probe="nvlink", value=nvlink(1203)))
    story.phase("ping", 2 * 4)
    story.pings(["n000", "n001"])
    pairs = story.ordered_pairs()
    story.phase("p2p", len(pairs))
    for at, (src, dst) in enumerate(pairs):
        if at % 8 == 0:
            story.running(*pairs[at : at + 8])
        story.measured(*measured_pair(story, src, dst))
    if end:
        story.phase("all_reduce", 2)
        story.busbw(["n000", "n001"])
        story.log("sweep done: 53 ok, 1 slow, 1 timeout, 1 failed", None, "warning")
        story.end(1)
    return story


def nodes_of_two() -> list[Event]:
    """Return the begin of that sweep: the nodes are being connected, and have no endpoints yet."""
    events = sweep_of_two().events
    return events[: next(number for number, one in enumerate(events) if isinstance(one, EndpointsAdded))]


def measured_pair(story: Story, src: str, dst: str) -> list[Measurement]:
    """Return the result of a pair of `sweep_of_two`."""
    good = story.good(src, dst)
    common: dict[str, Any] = {
        "unit": "GB/s",
        "bytes": 256 << 20,
        "time": story.now,
        "how": good[0].how,
        "src_addr": good[0].src_addr,
        "dst_addr": good[0].dst_addr,
    }
    if (src, dst) == SLOW:
        return [*story.good(src, dst)[1:], Measurement(Layer.P2P, src, dst, Verdict.OK, 12.4, attempts=2, **common)]
    if (src, dst) == TIMEOUT:
        error = "connect: timed out after 5.0 s"
        return [Measurement(Layer.P2P, src, dst, Verdict.TIMEOUT, error=error, attempts=2, **common)]
    if (src, dst) == FAILED:
        raw = "NCCL WARN ibv_modify_qp failed with 110 Connection timed out\non dev mlx5_1, curr state INIT"
        error = "transfer: the packets were dropped"
        return [Measurement(Layer.P2P, src, dst, Verdict.FAILED, error=error, attempts=2, made=True, raw=raw, **common)]
    return good


def big_sweep(nodes: int, per_node: int, *, part: float = 1.0) -> Story:
    """A healthy sweep over many endpoints, up to a part of its pairs."""
    names = [f"n{number:03d}" for number in range(nodes)]
    story = Story(names, per_node)
    story.step = 0.0005
    for name in names:
        story.connect(name)
    story.endpoints(*names)
    pairs = story.ordered_pairs()
    story.phase("p2p", len(pairs))
    for src, dst in pairs[: int(len(pairs) * part)]:
        story.measured(*story.good(src, dst))
    return story
