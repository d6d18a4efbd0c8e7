"""Live session: connects to the nodes, sweeps, stays connected for retests, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import shlex
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fabtui import __version__
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK
from fabtui.lab.faults import Fault, LabSpec, parse_faults
from fabtui.lab.lab import Lab
from fabtui.model.events import (
    Acknowledged,
    Experiment,
    Incident,
    InventoryUpdate,
    NodeState,
    NodeUpdate,
    Paused,
    PhaseStart,
    ProbeResult,
    SessionEnd,
    SessionResumed,
    SessionStart,
)
from fabtui.model.facts.node_view import Entry, ProbedNode, number, text
from fabtui.model.interval_log import IntervalKind
from fabtui.model.measurement import Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import GpuUse, ending_of, gpu_use, node_values
from fabtui.session import user_probes
from fabtui.session.acknowledgement_file import LONGEST_NOTE, AcknowledgementFile, file_of_site
from fabtui.session.event_pipeline import EventPump, Journal
from fabtui.session.fact_store import DIGESTS_FROM, FactStore
from fabtui.session.feeds.base import Feed
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import JobQuery, SessionOptions, connector_options
from fabtui.session.probe_runner import INVENTORY_DEADLINE, StepRunner, inventory_args
from fabtui.session.ranks.rank_host import RankHost, exit_reason
from fabtui.session.reconnection import Reconnection, SuspendDetector, may_return
from fabtui.session.sweep import Sweep
from fabtui.session.watch import Watch
from fabtui.transport.connector import Connector
from fabtui.transport.link import Link, LostKind, Message, NodeUnreachable, UnreachableKind
from fabtui.transport.registry import LAUNCHED, command_on_node
from fabtui_node.parsers.lines import bytes_text
from fabtui_node.protocol import ErrorKind

if TYPE_CHECKING:
    from fabtui.diagnosis.diagnosis import Diagnosis
    from fabtui.diagnosis.knowledge.step_command import StepCommand
    from fabtui.session.conclusions import Conclusions
    from fabtui.session.running_job.monitor import JobMonitor

#: Maximum time (s) that ready nodes wait for the others; nodes that are late join later.
SETTLE = 3.0
#: Deadline (s) for the end of a session, independent of the nodes.
CLOSE_DEADLINE = 8.0
#: Maximum time (s) that the first sweep waits for nodes that were lost in it.
RETURN_PATIENCE = 10.0
#: Time (s) after a standstill in which links that end do so because of it; a silent one ends within 10 s.
AFTERMATH = 15.0
#: Interval (s) between looks at links after a standstill.
_LOOK = 0.1
#: Maximum time (s) that the end of a sweep waits for running counter samples.
COUNTER_PATIENCE = 1.0


class _Closing(Exception):
    """Ends the task group of the session."""


class Opener(Protocol):
    """Opener of links to nodes, for example `fabtui.transport.connector.Connector`."""

    async def open(self, host: str) -> Link:
        """Return an open link, or raise `NodeUnreachable`."""


class LiveFeed(Feed):
    """A session over real nodes, or over the nodes of a lab; ``opener`` replaces the transport in the options.

    Raises:
        InputError: From `run`: an input of the user cannot be used.
    """

    can_test = True

    def __init__(self, options: SessionOptions, opener: Opener | None = None) -> None:
        self.model = Model()
        self.badges: list[str] = []
        if options.host_key_policy == "off":
            self.badges.append("HOST KEYS NOT CHECKED")
        self.read_only = options.read_only
        if options.read_only:
            self.badges.append("READ-ONLY")
        self._options = options
        self._opener = opener
        #: Why the recording ended before the session, or None.
        self.recording_stopped: str | None = None
        journal = None if options.record is None else Journal(options.record)
        self._pump = EventPump(self.model, journal, self._stopped_recording)
        self._go = asyncio.Event()
        self._go.set()
        self._closing = asyncio.Event()
        self._first_done = asyncio.Event()
        self._deserted = asyncio.Event()
        self._reached = asyncio.Event()  #: A node was reached, and has something to do.
        self._changed = asyncio.Event()
        self._testing = asyncio.Lock()
        self._life: asyncio.Task[None] | None = None
        self._order: list[str] = list(options.hosts)
        self._ready: dict[str, tuple[NodeClient, Entry]] = {}
        self._gone: dict[str, str] = {}
        #: Nodes whose login has been timed.
        self._logged_in: set[str] = set()
        self._lost: dict[str, str] = {}  #: Why the latest link of a node ended.
        self._known: set[str] = set()  #: Nodes that were ready once.
        self._due: set[str] = set()  #: Ready nodes of which something is left to test.
        self._final: set[str] = set()  #: Nodes that are gone and not tried again.
        self._returns = Reconnection()
        self._suspends = SuspendDetector(self._woke)
        self._slept: dict[str, str] = {}  #: Nodes that were ready before a standstill, with what is to blame.
        self._woken = float("-inf")
        self._clients: dict[str, NodeClient] = {}
        self._facts = FactStore() if len(options.hosts) >= DIGESTS_FROM else None
        self._steps = StepRunner(self._pump, self._clients)
        self._sweep: Sweep | None = None
        self._hosts: dict[str, RankHost] = {}
        self._own = user_probes.OwnProbes()
        self._notes = AcknowledgementFile(file_of_site(lab=options.lab is not None))
        self._watch: Watch | None = None
        self._gpu_use: asyncio.Task[GpuUse] | None = None
        self._job_monitor: JobMonitor | None = None
        self._diagnosed: tuple[int, Diagnosis] | None = None  #: With the number of events that it is based on.
        self._concluded: Conclusions | None = None
        self._remembered = False
        self.history_problem = ""  #: Why the session is not in the history of the site, or "".
        self._sweeping = False
        self._swept: list[str] = []

    def _stopped_recording(self, why: str) -> None:
        self.recording_stopped = why
        self.badges.append(f"RECORDING STOPPED: {why}")

    def listen(self, changed: Callable[[], None]) -> None:
        self._pump.listen(changed)

    def pause(self, on: bool) -> None:
        if on:
            self._go.clear()
        else:
            self._go.set()
        self._pump.emit(Paused(on=on))

    async def run(self) -> None:
        self._life = asyncio.create_task(self._live())
        first = asyncio.create_task(self._first_done.wait())
        try:
            await asyncio.wait({self._life, first}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        if self._life.done():
            self._life.result()

    def watch(self, on: bool) -> None:
        if self._watch is not None:
            self._watch.turn(on, self._first_done)

    async def all_gone(self) -> None:
        await self._deserted.wait()

    async def look(self, nodes: Sequence[str]) -> None:
        if self._sweep is not None:
            await self._sweep.probes.again(self._sweep.alive(nodes))
            await self._pump.flush()

    async def run_step(self, step: StepCommand) -> None:
        if self.read_only and not step.read_only:
            self._pump.log("warning", f"not run, the session is read-only: {one_line(step.text, 200)}", step.node)
            return
        await self._steps.run(step)

    def watch_job(self, monitor: JobMonitor) -> None:
        """Take over the monitor of a job, which then asks the nodes over their open links."""
        monitor.client_of, monitor.every = self._client_of, True
        self._job_monitor = monitor

    async def ask_job(self) -> None:
        """Ask the nodes of the observed job; InputError without one."""
        observer = None if self._sweep is None else self._sweep.observer
        if observer is None:
            raise InputError("no running job was seen on these nodes")
        await observer.ask()

    def job_monitor(self) -> JobMonitor | None:
        """Return the monitor of the job whose nodes these are; it asks them over their open links."""
        options = self._options
        job = options.job.partition(",")[0]
        if self._job_monitor is None and (options.query is not None or job):
            from fabtui.session.running_job.monitor import JobMonitor

            self.watch_job(JobMonitor(options.query or JobQuery(job)))
        return self._job_monitor

    async def _client_of(self, node: str) -> NodeClient:
        if (client := self._clients.get(node)) is None:
            raise ProbeFailed("lost", self._gone.get(node) or "the node is not connected")
        return client

    async def acknowledge(self, finding: str, title: str, note: str) -> None:
        event = Acknowledged(finding=finding, title=title, note=one_line(note, LONGEST_NOTE))
        self._pump.emit(event)
        if problem := await asyncio.to_thread(self._notes.write, event):
            self._pump.log("warning", problem)

    async def close(self) -> None:
        if self._watch is not None and not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._watch.stop()
        self._closing.set()
        if self._life is None:
            await self._pump.drain()
            return
        done, _ = await asyncio.wait({self._life}, timeout=CLOSE_DEADLINE)
        if not done:
            self._life.cancel()
            await asyncio.wait({self._life}, timeout=2.0)
        await self._remember()

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        if self._sweep is None or self.read_only:
            return
        numbers = {
            (min(a, b), max(a, b))
            for src, dst in pairs
            if (a := self.model.table.number(src)) is not None
            and (b := self.model.table.number(dst)) is not None
            and a != b
        }
        if self._sweeping or not self._first_done.is_set():
            self._pump.log("info", f"{count(len(numbers), 'pair')} will be tested again when this sweep is over")
        async with self._testing:
            if numbers:
                sweep = self._sweep
                await self._tests(lambda: sweep.retest(sorted(numbers)))
            await self._end("retest")

    async def confirm(self, experiments: Sequence[Experiment]) -> None:
        if (sweep := self._sweep) is not None and experiments and not self.read_only:
            async with self._testing:
                await self._tests(lambda: sweep.confirm(experiments))
                await self._end("experiments")

    async def bisect(self) -> None:
        if (sweep := self._sweep) is not None and self._first_done.is_set() and not self.read_only:
            async with self._testing:
                await self._tests(sweep.bisect)
                await self._end("search")

    async def sweep(self) -> None:
        sweep = self._sweep
        if sweep is None or self._sweeping or not self._first_done.is_set():
            return
        self._sweeping = True
        try:
            async with self._testing:
                await self._tests(lambda: sweep.run(self._swept, []))
                await self._end("sweep")
        finally:
            self._sweeping = False

    async def _live(self) -> None:
        pumping = asyncio.create_task(self._pump.run())
        try:
            async with contextlib.AsyncExitStack() as stack:
                reach, faults = await self._open(stack)
                self._sweep = Sweep(self._options, self._pump, self._go, faults)
                self._sweep.monitor = self.job_monitor()
                if self._options.resumed is not None:
                    self._sweep.resume()
                self._hosts = self._sweep.context.hosts
                # Experiments follow at once, with the same ranks.
                self._sweep.warm = self._options.confirm
                self._sweep.probes.own = self._own.probes
                self._sweep.context.void = self._suspends.void
                self._watch = Watch(self._options, self._sweep, self._testing, self._tests, self._end)
                stack.push_async_callback(self._leave)
                try:
                    async with asyncio.TaskGroup() as group:
                        for name in self._order:
                            group.create_task(self._node(name, reach))
                        group.create_task(self._conduct())
                        group.create_task(self._read_past())
                        group.create_task(self._ask_scheduler())
                        group.create_task(self._suspends.watch())
                        group.create_task(self._sweep.probes.watch_for_newcomers())
                        await self._closing.wait()
                        raise _Closing
                except* _Closing:
                    pass
        except* InputError as errors:
            raise errors.exceptions[0] from None
        finally:
            pumping.cancel()
            await asyncio.gather(pumping, return_exceptions=True)
            await self._pump.drain()

    async def _open(self, stack: contextlib.AsyncExitStack) -> tuple[Opener, list[Fault]]:
        options = self._options
        ssh_config: Path | None = options.ssh_config
        faults: list[Fault] = []
        if options.lab is not None:
            try:
                spec = LabSpec.parse(options.lab)
                parsed = parse_faults(list(options.lab_faults), spec)
            except ValueError as error:
                raise InputError(str(error)) from None
            self._order = list(spec.names)
            await self._start()
            lab = await stack.enter_async_context(Lab(spec, parsed))
            ssh_config = lab.ssh_config
            faults = [fault for fault in parsed if fault.kind.place == "pair"]
            if lab.note:
                self._pump.log("notice", lab.note)
        else:
            await self._start()
        if options.origin:
            self._pump.log("info", options.origin)
        notes, problem = await asyncio.to_thread(self._notes.read)
        for note in notes:
            self._pump.emit(note)
        if problem:
            self._pump.log("warning", problem)
        self._own = await asyncio.to_thread(user_probes.find, options.probe_folder)
        for problem in self._own.problems:
            self._pump.log("warning", problem)
        if self._opener is not None:
            return self._opener, faults
        reach = Connector(
            connector_options(
                options,
                transport=options.transport if options.lab is None else "ssh",
                ssh_config=ssh_config,
                env=dict(options.env),
                gpus=self._gpus_of,
                more=self._own.modules(),
            ),
            notice=lambda text: self._pump.log("notice", one_line(text, 500)),
            ask=self.ask,
        )
        return await stack.enter_async_context(reach), faults

    async def _start(self) -> None:
        if self._options.resumed is not None:
            await self._pump.take_over(read_events(self._options.resumed))
            self._steps.numbers = itertools.count(self.model.commands.last + 1)
            self._pump.emit(SessionResumed(version=__version__))
            return
        lab, faults, recorded = self._options.lab, self._options.lab_faults, self._options.recorded()
        nodes = list(self._order)
        self._pump.emit(SessionStart(nodes=nodes, options=recorded, version=__version__, lab=lab, faults=faults))
        # Now every node has a record in the model, also while a disk is slow.
        await self._pump.flush()

    async def _leave(self) -> None:
        assert self._sweep is not None
        self._steps.close()
        await self._sweep.close()
        async with asyncio.TaskGroup() as group:
            for client in self._clients.values():
                group.create_task(client.link.close())

    def _state(self, name: str, state: NodeState, text: str = "", hint: str | None = None, backend: str = "") -> None:
        self._pump.emit(NodeUpdate(node=name, state=state, text=text, hint=hint, backend=backend))
        self._gone.pop(name, None)
        self._changed.set()

    def _lose(self, name: str, text: str, hint: str | None, pause: float | None, silent: float | None = None) -> None:
        """Note that a node is gone, the time (s) until it is tried again (None: it is not), and that it was silent."""
        if hint and (config := self._options.ssh_config) is not None:
            # The command needs the ssh configuration of the session.
            hint = re.sub(r"(?:^|(?<=: ))ssh ", lambda _: f"ssh -F {shlex.quote(str(config))} ", hint)
        state = NodeState.LOST if name in self._known else NodeState.FAILED
        retry = None if pause is None else time.time() + pause
        self._pump.emit(NodeUpdate(node=name, state=state, text=text, hint=hint, retry=retry, silent=silent))
        if text != self._gone.get(name):
            # Not at each try.
            self._pump.log("error", text, name)
        self._ready.pop(name, None)
        self._due.discard(name)
        self._gone[name] = text
        self._changed.set()

    def _note_silence(self, name: str, seconds: float, stood: float) -> None:
        """Note that a node was silent for a time (s), and for how long of it its processes did not run."""
        why = "its processes were stopped, or got no processor" if 2 * stood >= seconds else "nothing came through"
        since = time.time() - seconds
        self._pump.emit(Incident(node=name, what=IntervalKind.SILENCE, since=since, text=why))
        self._pump.log("notice", f"was silent for {seconds:.0f} s: {why}", name)

    async def _node(self, name: str, reach: Opener) -> None:
        while True:
            pause = await self._visit(name, reach)
            if pause is None:
                break
            await self._returns.wait(pause)
        self._final.add(name)
        self._changed.set()
        if len(self._final) == len(self._order) and not self._closing.is_set():
            ended = await asyncio.to_thread(ending_of, self._options.job) if self._options.job else ""
            self._pump.log("error", f"all nodes are lost: {ended}" if ended else "all nodes are lost")
            self._deserted.set()

    def _note_login(self, name: str, seconds: float | None) -> None:
        # The first one counts: later ones are slow as long as what the node was lost by lasts.
        if seconds is not None and name not in self._logged_in:
            self._logged_in.add(name)
            self._pump.emit(ProbeResult(node=name, probe="login", value={"seconds": round(seconds, 3)}))

    async def _visit(self, name: str, reach: Opener) -> float | None:
        """Connect to a node and serve it until its link ends; return the time (s) until the next try, or None."""
        if name not in self._gone:
            self._state(name, NodeState.CONNECTING)
        try:
            link = await reach.open(name)
        except NodeUnreachable as failed:
            hint = failed.hint
            # An ssh command, where it shows more.
            more = failed.kind in ("auth", "banner", "busy", "closed", "protocol", "timeout")
            if not hint and more and self._options.lab is None:
                hint = self._by_hand(name, "true").replace("ssh ", "ssh -v ", 1)
            pause = self._pause(name, failed.kind, self._options.transport)
            lost = self._lost.get(name)
            self._lose(name, f"{lost}; then: {failed.text}" if lost else failed.text, hint, pause)
            return pause
        since = time.monotonic()
        link.on_silence = partial(self._note_silence, name)
        client = self._clients[name] = NodeClient(link, read_only=self.read_only, facts=self._facts)
        back = name in self._gone
        self._state(name, NodeState.CONNECTED, backend=link.backend)
        self._note_login(name, link.login_seconds)
        if link.banner.strip():
            self._pump.log("info", f"printed at login: {one_line(link.banner, 200)}", name)
        if printed := link.stderr_tail().strip():
            self._pump.log("info", f"printed while it started: {one_line(printed, 200)}", name)
        looking = asyncio.create_task(self._look_at(name, client, back=back))
        try:
            async for message in client.messages(self._pump.room):
                try:
                    self._process(name, message)
                except Exception as error:
                    # No message of one node may end the session of the others.
                    client.reject(error)
                # The next may be long in coming, and there may be hundreds of nodes.
                del message
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        assert client.lost is not None
        self._returns.lasted(name, time.monotonic() - since)
        pause = None
        # The end of a link may be the first that is noticed of a standstill.
        self._suspends.look()
        if name in self._slept and self._after_sleep < AFTERMATH and may_return(client.lost.kind):
            self._lost[name] = self._slept[name]
            self._ready.pop(name, None)
            pause = 0.0
        elif name not in self._gone:
            pause = self._pause(name, client.lost.kind, client.link.backend)
            hint = None if self._options.lab else self._by_hand(name, "uptime", client.link.backend)
            self._lost[name] = client.lost.text
            self._lose(name, client.lost.text, hint, pause, link.silence)
        if (host := self._hosts.get(name)) is not None and host.client is client:
            host.end(f"{name} was lost: {client.lost.text}", ErrorKind.NODE_LOST)
        if pause is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE):
                    await link.close()
        return pause

    async def _look_at(self, name: str, client: NodeClient, *, back: bool) -> None:
        try:
            await asyncio.gather(self._prepare(name, client), self._inventory(name, client, back=back))
        except Exception as error:
            # Nobody may wait for an inventory that will not come.
            client.reject(error)

    async def _prepare(self, name: str, client: NodeClient) -> None:
        if name not in self._slept and self._sweep is not None:
            await self._sweep.prepare_ranks(client)
        self._reached.set()

    def _pause(self, name: str, kind: UnreachableKind | LostKind, transport: str) -> float | None:
        """Return the time (s) until the next attempt to reach a lost node, or None for no attempt."""
        # A launcher and its scheduler end what they started for reasons that do not pass.
        launched = not {transport, self._options.transport}.isdisjoint(LAUNCHED)
        return None if launched or self._closing.is_set() or not may_return(kind) else self._returns.pause(name)

    def _by_hand(self, name: str, command: str, backend: str = "") -> str:
        options = {"transport": self._options.transport, "via": self._options.via}
        return command_on_node({**options, "placements": self._options.placements}, name, command, backend)

    async def _gpus_of(self, name: str) -> dict[str, object] | None:
        """Return which GPUs of a node may be tested; None for all of them."""
        options = self._options
        if options.lab is not None or options.all_gpus or options.transport in ("local", "via"):
            return None
        if self._gpu_use is None:
            self._gpu_use = asyncio.create_task(self._ask_for_gpus())
        return (await asyncio.shield(self._gpu_use)).setting(name)

    async def _ask_for_gpus(self) -> GpuUse:
        use = await asyncio.to_thread(gpu_use, self._order, self._options.job)
        if use.problem:
            text = f"Slurm does not report which GPUs other jobs hold ({use.problem}); GPUs in use are not tested"
            self._pump.log("warning", text)
        for node, indexes in use.others.items():
            listed = ", ".join(map(str, indexes))
            self._pump.log("notice", f"GPUs {listed} belong to other jobs and are not tested (--all-gpus)", node)
        return use

    async def _ask_scheduler(self) -> None:
        options = self._options
        if options.lab is None and self._opener is None and options.transport not in ("local", "via"):
            for name, value in (await asyncio.to_thread(node_values, self._order)).items():
                self._pump.emit(ProbeResult(node=name, probe="slurm", value=value))

    async def _inventory(self, name: str, client: NodeClient, *, back: bool) -> None:
        self._state(name, NodeState.LOOKING, backend=client.link.backend)
        try:
            value = await client.probe("inventory", inventory_args(self._options), INVENTORY_DEADLINE)
        except ProbeFailed as failed:
            if client.lost is None:
                self._lose(name, f"inventory: {one_line(failed.text, 300)}", None, None)
                await client.link.close()
            return
        self._pump.emit(InventoryUpdate(node=name, value=value))
        if name not in self._slept and self._sweep is not None and len(self._open_nodes()) > 1:
            # Others are still looked at.
            await self._sweep.prepare_ranks(client, value)
        self._ready[name] = (client, value)
        self._known.add(name)
        if self._slept.pop(name, None) is not None and not back:
            # What was being tested is tested again anyway.
            assert self._sweep is not None
            self._sweep.admit({name: self._ready[name]}, {}, [name])
        else:
            self._due.add(name)
        self._state(name, NodeState.READY, backend=client.link.backend)
        if back:
            self._pump.log("notice", "is back", name)

    def _process(self, name: str, message: Message) -> None:
        host, what = self._hosts.get(name), message["t"]
        if what == "log":
            self._pump.log("info", one_line(str(message.get("text", "")), 500), name)
        elif host is None:
            return
        elif what == "rank":
            host.receive(message["m"])
        elif what == "stopped":
            host.halted = message.get("on") is True
        else:
            reason, kind = exit_reason(name, message)
            reason += host.admission.limits + (self._memory_limit(name) if message.get("why") else "")
            if not host.stopped:
                self._pump.log("warning", reason, name)
                # A process in which a test failed may end of that.
                if not (host.down or host.starting) and (host.failed_at is None or message.get("signal") == 9):
                    now = time.time()
                    self._pump.emit(Incident(node=name, what=IntervalKind.RANK_HOST, since=now, text=reason))
            host.end(reason, kind)

    def _memory_limit(self, name: str) -> str:
        """Return the memory limit of a node's control group for a reason, or ""."""
        group = ProbedNode(name, {}, self.model.nodes[name].probe_results)
        limit = number(group.seen("host", "cgroup", "memory"))
        file = text(group.seen("host", "cgroup", "files", "memory")) or ""
        return "" if limit is None else f"; its control group is limited to {bytes_text(limit)} ({Path(file).name})"

    def _open_nodes(self) -> list[str]:
        return [name for name in self._order if name not in self._ready and name not in self._gone]

    async def _settled(self) -> None:
        """Wait until every node is ready or failed, or some are ready and have waited long enough."""
        loop = asyncio.get_running_loop()
        first: float | None = None
        while self._open_nodes():
            self._changed.clear()
            if self._due and first is None:
                first = loop.time()
            left = None if first is None else first + SETTLE - loop.time()
            if left is not None and left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def _conduct(self) -> None:
        """Sweep the ready nodes; late nodes are swept against all others in a further pass."""
        while True:
            await self._settled()
            await self._pass()
            if not self._open_nodes() and not self._due and not await self._wait_for_lost():
                break
        await self._confirm_first()
        if self._options.bisect and self._sweep is not None:
            async with self._testing:
                await self._tests(self._sweep.bisect)
        if self._sweep is not None and self._sweep.observer is not None:
            await self._sweep.observer.settled()
        await self._end("sweep")
        self._first_done.set()
        while True:
            while not self._due:
                self._changed.clear()
                await self._changed.wait()
            await self._settled()
            nodes = fold([name for name in self._order if name in self._due])
            await self._pass()
            await self._end(f"sweep with {nodes}")

    async def _pass(self) -> None:
        """Test what is left of the pairs of nodes that are new, or back."""
        sweep = self._sweep
        assert sweep is not None
        self._diagnosed = None
        async with self._testing:
            new = [name for name in self._order if name in self._due and name in self._ready]
            self._due.difference_update(new)
            gone = {name: text for name, text in self._gone.items() if name not in self._swept}
            sweep.admit({name: self._ready[name] for name in new}, gone, self._order)
            if new:
                old = [name for name in self._swept if name not in new]
                await self._tests(lambda: sweep.run(new, old, left=True))
                self._swept += [name for name in new if name not in self._swept]

    async def _tests(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run tests, and once more if this process was suspended meanwhile."""
        assert self._sweep is not None
        await self._rejoined()
        while not await self._suspends.guard(run()):
            await self._sweep.reset()
            await self._rejoined()

    def _woke(self, seconds: float) -> None:
        text = f"this machine slept, or fabtui was stopped or got no processor, for {seconds:.0f} s"
        self._pump.log("notice", f"{text}; nodes are joined again, and what was being tested is tested again")
        self._slept, self._woken = dict.fromkeys(self._ready, text), asyncio.get_running_loop().time()
        self._returns.call()

    @property
    def _after_sleep(self) -> float:
        """Time (s) since this process woke up."""
        return asyncio.get_running_loop().time() - self._woken

    async def _rejoined(self) -> None:
        """Wait until the nodes that were ready before a standstill have been heard, are connected again, or gone."""
        while self._after_sleep < AFTERMATH and any(map(self._missing, self._slept)):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)

    def _missing(self, name: str) -> bool:
        if name in self._gone:
            return False
        return name not in self._ready or self._ready[name][0].link.silence > self._after_sleep

    async def _wait_for_lost(self) -> bool:
        """Wait a moment for the nodes that were lost in the first sweep; return True if one of them is there."""
        try:
            async with asyncio.timeout(RETURN_PATIENCE):
                while not self._open_nodes() and not self._due:
                    if not self._known & (self._gone.keys() - self._final):
                        return False
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis of the session so far; findings are searched for only if evidence came since."""
        if self._diagnosed is None or self._diagnosed[0] != self._pump.evidence:
            self._diagnosed = self._pump.evidence, self._conclusions().diagnosis()
        # What was not tested depends on the phase.
        return replace(self._diagnosed[1])

    def _conclusions(self) -> Conclusions:
        if self._concluded is None:
            self._concluded = load_conclusions()(self.model, self._options.history)
        return self._concluded

    async def _read_past(self) -> None:
        # No node is to be reached later for the imports, and no test ends later: most of a start is waiting for nodes.
        await self._reached.wait()
        await asyncio.to_thread(load_conclusions)
        if self._options.history is not None and (problem := await self._conclusions().read_past()):
            self._pump.log("warning", problem)

    async def _remember(self) -> None:
        """Add the session to the history, after its recording: what goes wrong there is a line at the end."""
        if self._options.history is not None and not self._remembered:
            self._remembered = True
            self.history_problem = await self._conclusions().remember(self.diagnosis(), self._options.record)

    async def _confirm_first(self) -> None:
        """Run the experiments that were asked for; those on fresh rank hosts without being asked.

        Wrong data is rare, and whether it is wrong again is a part of its finding.
        """
        assert self._sweep is not None
        await self._pump.flush()
        wrong = self.model.counts().get(Verdict.WRONG, 0) > 0 and not self.read_only
        if not (wrong or self._options.confirm):
            return
        async with self._testing:
            if self._options.confirm:
                self._sweep.warm = False
            sweep = self._sweep
            planned = self._conclusions().experiments(self.diagnosis())
            if experiments := [one for one in planned if one.fresh or self._options.confirm]:
                await self._tests(lambda: sweep.confirm(experiments))
            elif self._options.confirm:
                await self._sweep.cool()

    async def _end(self, what: str = "") -> None:
        """End the tests, and log their end if ``what`` ended is given."""
        assert self._sweep is not None
        # The counter deltas belong to the tests that have ended.
        await self._sweep.runner.counters.settle(COUNTER_PATIENCE)
        self._pump.emit(PhaseStart(name="done", total=0))
        await self._pump.flush()
        code, text = self.diagnosis().code, self._conclusions().sentence(self.diagnosis())
        if what:
            self._pump.log("info" if code == ALL_OK else "warning", f"{what} ended: {text}")
        self._pump.emit(SessionEnd(exit=code, text=text))
        await self._pump.flush()


def load_conclusions() -> type[Conclusions]:
    """Return what draws conclusions from a model, which imports the diagnosis."""
    from fabtui.session.conclusions import Conclusions

    return Conclusions
