"""Sweep over the connected nodes: probes, ping mesh, all tests of their endpoints, and probes again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from fabtui.diagnosis.pairs.traffic_path import in_steps
from fabtui.lab.faults import Fault
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.events import EndpointsAdded, Experiment, Pair, PhaseStart, PlanUpdate, RanksReady
from fabtui.model.facts.node_view import Entry
from fabtui.model.facts.nvlink_domains import DOMAIN_PROBE
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import DEAD, Verdict
from fabtui.model.schedule import mode_for
from fabtui.session.endpoint_admission import Admission, absent, admit, engine_for
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.communicator_cache import needed
from fabtui.session.measure.external_tools import PairTools
from fabtui.session.measure.group_tests import Group, groups_of
from fabtui.session.measure.host_link import HostLinks
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.measurement_runner import MeasurementRunner
from fabtui.session.measure.one_way import OneWay
from fabtui.session.measure.ping_mesh import PingMesh, Target, addresses_of, targets_between
from fabtui.session.measure.soak import Soak
from fabtui.session.measure.storage_read import StorageRead
from fabtui.session.node_client import NodeClient
from fabtui.session.options import MIB, SessionOptions
from fabtui.session.probe_runner import ProbeRunner
from fabtui.session.ranks.rank_host import RankHost, RankSettings, process_config
from fabtui_node import registry

if TYPE_CHECKING:
    from fabtui.session.running_job.monitor import JobMonitor
    from fabtui.session.running_job.observer import JobObserver

#: Tests that need ranks.
RANKED = ("p2p", "all_reduce", "hostlink")
#: Maximum time (s) that tests wait for a probe beside them; usually less.
PROBE_PATIENCE = 1.0
#: Maximum time (s) that started ranks wait for slower nodes, which are tested later.
RANKS_SETTLE = 15.0
#: Deadline (s) of the counters of a node around the mesh.
COUNTERS_DEADLINE = 3.0
#: Deadline (s) for the end of all ranks.
RESET_DEADLINE = 3.0
#: Deadline (s) for all experiments about findings that are asked for at once.
CONFIRM_DEADLINE = 180.0


class Sweep:
    """Sweeps of a session: their participants, and the shared state of the tests.

    While `warm`, the ranks keep their GPUs after tests, regardless of the options.
    """

    def __init__(self, options: SessionOptions, pump: EventPump, go: asyncio.Event, faults: list[Fault]) -> None:
        self.warm = False
        self.context = MeasurementContext(pump, go)
        self.clients = self.context.clients
        self._options = options
        self._pump = pump
        self._faults = faults
        self._admissions: dict[str, Admission] = {}
        self._engine: RankSettings | None = None
        #: Engine and interpreter of the standby processes that nodes have before their ranks start.
        self._prepared: dict[NodeClient, tuple[str, list[str] | None]] = {}
        self.runner = MeasurementRunner(options, self.context)
        self.probes = ProbeRunner(options, pump, self.clients)
        self.observer: JobObserver | None = None  #: Observer of the job on the nodes; None without a sign of one.
        self.monitor: JobMonitor | None = None  #: Reader of the logs of that job; None if they are not known.

    def admit(self, ready: dict[str, tuple[NodeClient, Entry]], gone: dict[str, str], order: list[str]) -> None:
        """Add the endpoints of ready nodes, and one row per failed node, in the given order.

        The endpoints of a node that comes back stay as they are: results refer to them.
        """
        options = self._options
        if self._engine is None and ready:
            name, note = engine_for({node: inventory for node, (_, inventory) in ready.items()})
            if options.engine != "auto":
                name = options.engine
            elif note:
                self._pump.log("warning", note)
            largest = options.largest_message(name)
            self._engine = RankSettings(name, options.timeout, dict(options.env), largest=largest)
        added: list[Endpoint] = []
        notes: dict[str, str] = {}
        for node in order:
            first = len(self.context.endpoints) + len(added)
            known = self._admissions.get(node)
            if node in ready and self._engine is not None:
                self.clients[node], inventory = ready[node]
                if known is not None and known.testable:
                    first = known.endpoints[0].number
                admission = admit(
                    node, inventory, first, self._engine.name, options.ranks_per_node, options.remote_python
                )
            elif node in gone and known is None:
                admission = absent(node, first, gone[node])
            else:
                continue
            if known is not None and (known.testable or not admission.testable):
                admission.keep(known.endpoints)
            else:
                added += admission.endpoints
            self._admissions[node] = admission
            if admission.note and node not in gone:
                notes[node] = admission.note
                self._pump.log("warning" if self._wants(*RANKED) else "info", admission.note, node)
        self.context.endpoints += added
        self._pump.emit(EndpointsAdded(endpoints=added, notes=notes))

    async def prepare_ranks(self, client: NodeClient, inventory: Entry | None = None) -> None:
        """Have a node load what its ranks will need while inventories are coming, without its own as far as it can.

        No GPU is touched. A process that turns out to be the wrong one is replaced when the ranks start.
        """
        options = self._options
        if options.read_only or options.preflight_only or not self._wants(*RANKED):
            return
        if self._engine is not None:
            engine = self._engine.name
        elif options.engine != "auto":
            engine = options.engine
        elif inventory is not None:
            engine, _ = engine_for({client.node: inventory})
        else:
            engine = "nccl" if client.link.hello.get("gpus") is True else "gloo"
        argv = [options.remote_python] if options.remote_python else None
        if inventory is not None:
            admission = admit(client.node, inventory, 0, engine, options.ranks_per_node, options.remote_python)
            if not admission.testable:
                return
            argv = admission.argv
        elif argv is None and engine != "nccl":
            # Which Python has PyTorch is not known yet.
            return
        if self._prepared.get(client) != (engine, argv):
            self._prepared[client] = engine, argv
            _, variables = self._arms()[0]
            await client.stand_by(process_config(engine), {**dict(options.env), **variables}, argv)

    def resume(self) -> None:
        """Take over the endpoints of an earlier part of the session: results refer to them."""
        model = self._pump.model
        self.context.endpoints = list(model.endpoints)
        self.runner.resumed = True
        for name, record in model.nodes.items():
            if known := model.table.of_node(name):
                self._admissions[name] = Admission(list(known), record.note)

    def _numbered_faults(self) -> tuple[dict[str, Any], ...]:
        numbers = {str(e): e.number for e in self.context.endpoints}
        return tuple(
            {"src": numbers[src], "dst": numbers[dst], "kind": fault.kind.name, "rate": fault.value or None}
            for fault in self._faults
            for src, dst in [fault.where.split(">")]
            if src in numbers and dst in numbers
        )

    def _wants(self, *probes: str) -> bool:
        return any(probe in self._options.chosen_probes for probe in probes)

    def alive(self, nodes: Iterable[str]) -> list[str]:
        return [node for node in nodes if node in self.clients and self.clients[node].lost is None]

    async def run(self, new: list[str], old: list[str], *, left: bool = False) -> None:
        """Sweep over the pairs that involve a new node; ``old`` nodes were swept before.

        With ``left`` only over those that have no result of a test that came to its end.
        """
        # The arms of a comparison repeat pairs.
        self.runner.left = left and self._options.compare is None
        await self._pump.flush()
        self._pump.emit(PhaseStart(name="look", total=0))
        self._report_untestable()
        self._observe([*old, *new])
        if self._options.preflight_only:
            await self.probes.all(self.alive(new))
            return
        self.runner.counters.border()
        async with asyncio.TaskGroup() as longer:
            async with asyncio.TaskGroup() as probes:
                probes.create_task(self.probes.early(self.alive(new)))
                await self._test(new, old, probes, longer)
            # Before the GPUs are released: without any context, the driver takes seconds to answer.
            longer.create_task(self._run_probe([*old, *new], "nvlink"))
            # Another session may have come.
            longer.create_task(self._run_probe([*old, *new], "host"))
            for probe in registry.probes_in("finish"):
                longer.create_task(self._run_probe(new, probe))
            longer.create_task(self.runner.counters.settle(1.0))
        if self._options.soak and self._wants(*RANKED):
            await Soak(self.context, self.runner).run(self.alive([*old, *new]), self._options.soak)
            self.runner.counters.border("soak")
            await self._run_probe([*old, *new], "gpus")
        if self._wants(*RANKED):
            await self.cool()
            await self._report_carriers()

    def _observe(self, nodes: list[str]) -> None:
        """Observe the job on nodes: where others use GPUs that are not tested, and where nothing or a job is tested."""
        options = self._options
        # All nodes of a lab are this machine, and its jobs are not theirs.
        if options.force or options.lab is not None:
            return
        busy = self.alive(node for node in nodes if self._admissions[node].busy)
        asked = self.alive(nodes) if options.read_only or options.job else []
        if self.observer is None and (busy or asked):
            # It imports the diagnosis: not before the first frame.
            from fabtui.session.running_job.observer import JobObserver

            self.observer = JobObserver(self._pump, self._client_of, options.job, self.monitor)
        if self.observer is not None:
            self.observer.follow(busy, busy=True)
            self.observer.follow(asked, once=not (options.read_only or options.query))

    async def _client_of(self, node: str) -> NodeClient:
        return self.clients[node]

    async def _report_carriers(self) -> None:
        """Log whether RDMA or TCP carried the bytes between nodes."""
        await self._pump.flush()
        for step in in_steps(self._pump.model):
            await asyncio.sleep(0)
            if step is not None and step.sentence:
                self._pump.log("info", step.sentence)

    async def _test(self, new: list[str], old: list[str], probes: asyncio.TaskGroup, longer: asyncio.TaskGroup) -> None:
        """Ping, start the ranks and run all tests; GPUs and NVLinks are probed as soon as the ranks have started.

        Not sooner: at the same time, each would wait for the driver. The load probe runs during the tests, in the
        group that may last longer.
        """
        arms = self._arms()
        if self._options.compare is not None:
            self._pump.emit(PlanUpdate(arms=[name for name, _ in arms]))
        starts: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            if self._wants(*RANKED):
                starts = self._start_ranks([*old, *new], dict(arms[0][1]), probes)
                group.create_task(self._ranks_settled(starts))
            if self._wants("ping", "udp"):
                await self._mesh(self.alive(new), self.alive(old))
            self._note_starting(starts)
        self.runner.counters.border("ping")
        for probe in registry.OPTIONAL:
            if probe == "hostlink":
                continue
            if self._wants(probe) and probe == "storage":
                await StorageRead(self._pump, self.clients, self._options.storage_path).run(self.alive(new))
            elif self._wants(probe):
                tools = PairTools(self.context, self.clients, self._options.perftest_options)
                await tools.run(probe, self.alive(new), self.alive(old))
        late = [node for node, start in starts.items() if not start.done()]
        there = [node for node in new if node not in late]
        tasks = {probe: probes.create_task(self._run_probe(there, probe)) for probe in registry.probes_in("driver")}
        # The pairs of a sweep of few pairs follow from the NVLink domains.
        few = mode_for(self._options.mode, len(self.context.endpoints)) in ("quick", "adaptive")
        first = {"nvlink", DOMAIN_PROBE} if few else {"nvlink"}
        await asyncio.wait([tasks[probe] for probe in first], timeout=PROBE_PATIENCE)
        if starts:
            for probe in registry.probes_in("load"):
                longer.create_task(self._run_probe([*old, *there], probe))
            await self._run_arms(arms, there, [node for node in old if node not in late], probes)
        if starts and self._wants("hostlink"):
            async with asyncio.TaskGroup() as group:
                # Clocks, power and temperature meanwhile.
                group.create_task(self._run_probe([*old, *there], "gpuload"))
                group.create_task(HostLinks(self.context).run(self.alive(there)))
            # Memory errors that came with it.
            await self._run_probe(there, "gpus")
        if late:
            self._pump.log("info", f"now with {', '.join(late)}, whose ranks were late")
            await asyncio.wait([starts[node] for node in late])
            for probe in registry.probes_in("driver"):
                probes.create_task(self._run_probe(late, probe))
            await self.runner.run(
                self.alive(late), self.alive([n for n in [*old, *new] if n not in late]), self._withheld()
            )

    async def _run_arms(
        self, arms: list[tuple[str, dict[str, str]]], new: list[str], old: list[str], probes: asyncio.TaskGroup
    ) -> None:
        """Run all tests, once in each arm of a comparison; the ranks of the first arm have started."""
        for at, (arm, env) in enumerate(arms):
            if at:
                self.context.arm = arm
                self._pump.log("info", f"everything again with {arm}")
                if starts := self._start_ranks([*old, *new], env, probes):
                    self._note_starting(starts)
                    await asyncio.wait(starts.values())
            try:
                await self.runner.run(self.alive(new), self.alive(old), self._withheld())
            finally:
                self.context.arm = None

    async def _ranks_settled(self, starts: dict[str, asyncio.Task[None]]) -> None:
        """Wait until all ranks have started, or some have and waited long enough for the others."""
        if starts:
            _, pending = await asyncio.wait(starts.values(), return_when=asyncio.FIRST_COMPLETED)
            if pending:
                await asyncio.wait(pending, timeout=RANKS_SETTLE)
            hosts = [self.context.hosts[node] for node in starts if node in self.context.hosts]
            started = [host for host in hosts if host.ready and "total" in host.laps]
            if not started:
                return
            # A slow driver is a symptom in itself.
            slowest = max(started, key=lambda host: host.laps["total"])
            parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in slowest.laps.items() if name != "total")
            which = f"{slowest.node} started last" if len(started) > 1 else "started"
            text = f"ranks: {which}, in {slowest.laps['total']:.2f} s" + (f" ({parts})" if parts else "")
            self._pump.log("info", text)

    def _arms(self) -> list[tuple[str, dict[str, str]]]:
        """Return the arms of the comparison that was asked for, each with its name and variables; else one without."""
        if self._options.compare is None:
            return [("", {})]
        variable, values = self._options.compare
        return [(f"{variable}={value}", {variable: value}) for value in values]

    def _withheld(self, node: str | None = None) -> dict[int, str]:
        """Return the GPUs (of a node) that are not tested: others use them, or too little memory is free."""
        if self._engine is None:
            return {}
        need = needed(self._engine.largest)
        withheld: dict[int, str] = {}
        for admission in self._admissions.values() if node is None else [self._admissions[node]]:
            names = {end.number: str(end) for end in admission.endpoints}
            for n, free in admission.free.items():
                if free < need:
                    what = f"{free // MIB} MiB of GPU memory are free and {need // MIB} MiB are needed"
                    withheld[n] = f"{names[n]}: {what}; end what holds it, or choose smaller messages (--bytes)"
            if not self._options.force:
                for n, users in admission.busy.items():
                    withheld[n] = f"{names[n]} is in use by {users}; --force tests it all the same"
        return withheld

    def _report_untestable(self) -> None:
        """Report the ordered pairs with a node that has nothing to test, with the reason."""
        there = [e for admission in self._admissions.values() for e in admission.endpoints]
        notes = {e.number: self._admissions[e.node].note for e in there if e.kind == "none"}
        noted = [e for e in there if e.number in notes]
        if noted and self._wants("p2p"):
            self.context.skip(
                [
                    (str(a), str(b), notes.get(a.number) or notes[b.number])
                    for a in there
                    for b in (there if a.number in notes else noted)
                    if a is not b
                ]
            )

    async def _run_probe(self, nodes: list[str], probe: str) -> None:
        if self._wants(probe):
            await self.probes.run(self.alive(nodes), [probe], beside_tests=True)

    async def _mesh(self, new: list[str], old: list[str]) -> None:
        """Test every address against every other: echoes, then one way each."""
        addresses = addresses_of({node: self._pump.model.nodes[node].inventory for node in [*old, *new]})
        targets, total = targets_between(new, old, addresses)
        if not targets:
            return
        if len(targets) < total:
            self._pump.log("notice", f"mesh: {len(targets)} of {total} pairs of addresses are asked")
        # A link that flaps explains what is lost.
        with self.runner.counters.sampling():
            if self._wants("ping"):
                await PingMesh(self._pump, self.clients).run(targets)
            if self._wants("udp"):
                await OneWay(self._pump, self.clients).run(targets)
        await self.runner.counters.settle(COUNTERS_DEADLINE)
        await self._pump.flush()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.probes.routes(self.alive(addresses)))
            group.create_task(self.probes.firewalls(self.alive(addresses)))

    def dead_nodes(self) -> set[tuple[str, str]]:
        """Return the ordered pairs of nodes of which a pair of endpoints fails."""
        dead = (m for m in self._pump.model.bad_measurements(Layer.P2P) if m.verdict in DEAD)
        return {nodes for m in dead if (nodes := (node_of(m.src), node_of(m.dst)))[0] != nodes[1]}

    async def groups_again(self) -> None:
        """Test collectives again that were bad, between the tests of watching."""
        await self.ready_again()
        await self.runner.groups_again()

    async def mesh_again(self, whole: Iterable[tuple[str, str]] = ()) -> None:
        """Test the pairs of addresses again that have a bad result, or none because of a node.

        Of ``whole`` pairs of nodes all addresses are tested.
        """
        addresses = addresses_of({node: self._pump.model.nodes[node].inventory for node in self.alive(self.clients)})
        bad = await self._bad_addresses()
        for src, dst in whole:
            each = itertools.product(addresses.get(src, ()), addresses.get(dst, ()))
            bad.setdefault((src, dst), set()).update((here.address, there.address) for here, there in each)
        targets = [
            Target(src, here, dst, there)
            for src, dst in bad
            for here, there in itertools.product(addresses.get(src, ()), addresses.get(dst, ()))
            if (here.address, there.address) in bad[src, dst]
        ]
        if not targets:
            return
        if self._wants("ping"):
            await PingMesh(self._pump, self.clients).run(targets)
        if self._wants("udp"):
            await OneWay(self._pump, self.clients).run(targets)
        await self._pump.flush()

    async def _bad_addresses(self) -> dict[tuple[str, str], set[tuple[str | None, str | None]]]:
        log = self._pump.model.addresses
        bad: dict[tuple[str, str], set[tuple[str | None, str | None]]] = {}
        for layer in MESH:
            for pair in log.node_pairs(layer):
                # There may be many.
                await asyncio.sleep(0)
                for one in log.latest(layer, *pair):
                    if one.verdict.bad or one.verdict is Verdict.INCONCLUSIVE:
                        bad.setdefault(pair, set()).add((one.src_addr, one.dst_addr))
        return bad

    def _start_ranks(
        self, nodes: list[str], env: dict[str, str], group: asyncio.TaskGroup
    ) -> dict[str, asyncio.Task[None]]:
        """Start the rank hosts of nodes that have none that could be used as it is; a task of the group each."""
        if self._engine is None:
            return {}
        engine = replace(self._engine, env={**self._engine.env, **env}, faults=self._numbered_faults())
        return {node: group.create_task(self._start_on(node, engine)) for node in self.alive(nodes)}

    def _note_starting(self, starts: Mapping[str, asyncio.Task[None]]) -> None:
        """Begin a phase for the nodes whose ranks have not started yet, if there are any."""
        if left := sum(not start.done() for start in starts.values()):
            self._pump.emit(PhaseStart(name="ranks", total=left))

    async def _start_on(self, node: str, engine: RankSettings) -> None:
        await self._start_host(node, engine)
        self._pump.emit(RanksReady(node=node))

    async def _start_host(self, node: str, engine: RankSettings) -> None:
        admission, client = self._admissions[node], self.clients[node]
        prepared = self._prepared.pop(client, None)
        if not admission.testable:
            if prepared is not None:
                await client.stand_by({}, {}, None, on=False)
            return
        host = self.context.hosts.get(node)
        same = host is not None and host.client is self.clients[node]
        if host is not None and same and host.engine == engine and not host.stopped:
            await host.settled(len(self.context.endpoints))
            if host.ready:
                return
        if host is not None:
            host.cancel_start()
        withheld = self._withheld(node)
        for why in withheld.values():
            self._pump.log("warning", f"not tested: {why}", node)
        host = self.context.hosts[node] = RankHost(self.clients[node], admission, engine, self.context.store, withheld)
        await host.start(len(self.context.endpoints))
        if host.broken:
            self._pump.log("error", f"ranks: {host.broken}", node)
        for rank, why in host.bad_ranks.items():
            self._pump.log("error", f"{self.context.endpoints[rank]}: {why}", node)

    async def retest(self, pairs: list[tuple[int, int]]) -> None:
        pairs = [pair for pair in pairs if all(self.context.endpoints[n].node in self.context.hosts for n in pair)]
        nodes = {self.context.endpoints[n].node for pair in pairs for n in pair}
        async with asyncio.TaskGroup() as group:
            self._note_starting(self._start_ranks(sorted(nodes), {}, group))
        self._pump.emit(PhaseStart(name="re-test", total=2 * len(pairs)))
        await self.runner.pairs_alone(pairs)
        await self.cool()

    async def bisect(self) -> None:
        """Search by halves for what makes a collective over all ranks slow or fail."""
        async with asyncio.TaskGroup() as group:
            self._note_starting(self._start_ranks(self.alive(self.clients), {}, group))
        self._pump.emit(PhaseStart(name="bisect", total=0))
        with self.runner.counters.sampling():
            await self.runner.bisect()
        await self.cool()

    async def confirm(self, experiments: Sequence[Experiment]) -> None:
        """Run experiments about findings, those with the same environment together, under one deadline in all."""
        until = asyncio.get_running_loop().time() + CONFIRM_DEADLINE
        tests = sum(2 * len((*one.pairs, *one.controls)) + len(one.groups) for one in experiments if not one.problem)
        self._pump.emit(PhaseStart(name="confirm", total=tests))
        base = {} if self._engine is None else self._engine.env
        # Ranks start again for every other environment.
        for one in sorted(experiments, key=lambda one: (bool(one.problem), sorted(one.env.items()))):
            problem = one.problem
            if not problem:
                try:
                    async with asyncio.timeout_at(until):
                        problem = await self._experiment(one)
                except TimeoutError:
                    problem = f"had no time within {CONFIRM_DEADLINE:.0f} s"
            self._pump.emit(msgspec.structs.replace(one, problem=problem))
        for host in list(self.context.hosts.values()):
            if host.engine.env != base or asyncio.get_running_loop().time() >= until:
                await host.stop()
        await self.cool()

    async def _experiment(self, one: Experiment) -> str:
        """Test the pairs of an experiment, one at a time; return why that was not possible, or ""."""
        numbers = {str(end): end.number for end in self.context.endpoints}
        pairs = [(numbers[src], numbers[dst]) for src, dst in (*one.pairs, *one.controls)]
        groups = self._groups(one.groups)
        ranks = itertools.chain(*pairs, *(group.ranks for group in groups))
        nodes = sorted({self.context.endpoints[number].node for number in ranks})
        if missing := set(nodes) - set(self.alive(self.context.hosts)):
            return f"needs {', '.join(sorted(missing))}, which can no longer be tested"
        what = ", ".join(f"{src} > {dst}" for src, dst in one.pairs)
        what = what or f"{one.collective} over {', '.join('+'.join(sorted(set(group))) for group in one.groups)}"
        self._pump.log("info", f"experiment about {one.rule}, {one.env_text or one.trial}: {what}")
        if one.fresh:
            await asyncio.gather(*(self.context.hosts[node].leave_down() for node in nodes))
        async with asyncio.TaskGroup() as group:
            self._start_ranks(nodes, dict(one.env), group)
        self.context.arm = one.arm
        try:
            if pairs:
                await self.runner.pairs_alone(pairs)
            if groups:
                await self.runner.groups_alone(one.collective, groups)
        finally:
            self.context.arm = None
        return ""

    def _groups(self, names: Iterable[Pair]) -> list[Group]:
        wanted = {(src, dst) for src, dst in names}
        if not wanted:
            return []
        here = [end for end in self.context.endpoints if end.kind != "none"]
        groups = groups_of(here, list(dict.fromkeys(end.node for end in here)))
        return [group for group in groups if (group.src, group.dst) in wanted]

    async def ready_again(self, renewed: Iterable[str] = ()) -> None:
        """Start the ranks that were given back or left down, and others for those of some nodes.

        The others that run are left as they are.
        """
        hosts = self.context.hosts
        for node in renewed:
            await hosts[node].leave_down()
        nodes = [node for node in self.alive(hosts) if hosts[node].stopped or hosts[node].down]
        if nodes:
            async with asyncio.TaskGroup() as group:
                self._start_ranks(nodes, {}, group)

    async def cool(self) -> None:
        """Have the ranks let go of what tests have left, and give the GPUs back unless they are to be kept."""
        if self._options.keep_warm or self.warm:
            await self.runner.release()
            return
        # The end of a rank host lets go of everything, which is quicker than doing it piece by piece. They start again
        # when they are needed.
        async with asyncio.TaskGroup() as group:
            for host in self.context.hosts.values():
                group.create_task(host.stop())

    async def reset(self) -> None:
        """End all ranks: their tests were broken off."""
        hosts = list(self.context.hosts.values())
        for host in hosts:
            host.cancel_start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESET_DEADLINE):
                await asyncio.gather(*(host.leave_down() for host in hosts))
        for host in hosts:
            host.stopped = True

    async def close(self) -> None:
        """End the waits of the store, looks at counters, and the observation of a job."""
        if self.observer is not None:
            await self.observer.close()
        await self.runner.counters.close()
        self.context.store.close()
