"""Cost of a session for its controller, by the number of endpoints: simulated nodes over real pipes, eight GPUs each.

    python bench/scale.py [--cases 64:full,256:full,1024:sampled] [--layers p2p] [--rival PATH]
    python bench/scale.py --launch 1000,2048 [--mode quick] [--dying 30 --runs 20]

Each case runs in a process of its own, so that its memory is its own; other processes simulate the nodes. Everything of
a session but SSH is real: framing, heartbeats, store, dispatching, events, the recording on disk, the model, judging.
A case with more than 150,000 pairs ends after as many.
There is no history of the site, which takes 2 MB more. CPU counts the controller alone, user and system. With a rival,
another checkout, each case runs there as well, right after ours. The last lines compare the CPU per pair.

With ``--launch`` a played srun starts the nodes by one call, and each calls back with its proof; four processes play
them. ``--dying`` nodes break in mid-sweep: each planned pair has a result, and the results of all other nodes are good.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# As the command line sets it; a rival gets it, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bars import held
from playednames import GPUS, NONCE, node_name

import fabtui.transport.connection  # noqa: F401  (what a real controller has loaded counts)
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.schedule import pairs_for
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions, connector_options
from fabtui.transport.byte_pipe import BytePipe, Ending
from fabtui.transport.connector import Connector
from fabtui.transport.framed_link import FramedLink, Limits
from fabtui.transport.link import Link
from fabtui.transport.node_starter import CalledGroup

CASES = "64:full,256:full,1024:sampled"
#: Maximum number of pairs that are tested: the two million of 4,096 endpoints cost as much each, and ten minutes.
MOST_PAIRS = 150_000
#: Nodes that one process plays.
NODES_A_PROCESS = 32
BAR_MEMORY = 90e6
BAR_NODE = 80e3
BAR_RESULT = 150
#: Share of the CPU per pair of 0.2.0.
BAR_SHARE = 0.4
#: CPU time (s) from the first to the last call-back of 1,000 nodes; until 2,048 nodes are ready; of their sweep.
BAR_CALLS, BAR_READY, BAR_SWEEP = 8.0, 20.0, 60.0
#: Share of a core while nothing happens, and the time (s) for which that is measured.
BAR_IDLE, IDLE = 0.1, 20.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class SocketPipe(BytePipe):
    """A byte pipe over a connected socket, with few objects: its memory is not the controller's."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[bytes] | None = None
        self._reads = False
        self._unsent = bytearray()
        self._sent: asyncio.Future[None] | None = None
        self._over = self._loop.create_future()

    async def read(self) -> bytes:
        if not self._reads:
            self._loop.add_reader(self._socket, self._readable)
            self._reads = True
        self._waiting = self._loop.create_future()
        data = await self._waiting
        if not data:
            self.abort()
        return data

    def _readable(self) -> None:
        if self._waiting is None or self._waiting.done():
            # Nobody reads: the socket's buffer is to fill up.
            self._loop.remove_reader(self._socket)
            self._reads = False
            return
        try:
            self._waiting.set_result(self._socket.recv(1 << 16))
        except BlockingIOError:
            return
        except OSError:
            self._waiting.set_result(b"")

    async def read_error(self) -> bytes:
        await self._over
        return b""

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def put(self, data: bytes) -> None:
        self._unsent += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._flush)
            return
        except OSError:
            self._unsent.clear()
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket)
        if self._sent is not None and not self._sent.done():
            self._sent.set_result(None)

    async def write(self, data: bytes) -> None:
        self.put(data)
        if self._unsent:
            self._sent = self._loop.create_future()
            await self._sent

    def write_eof(self) -> None:
        return

    async def ending(self) -> Ending:
        await asyncio.shield(self._over)
        return Ending(status=0)

    def abort(self) -> None:
        if not self._over.done():
            self._over.set_result(None)
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(b"")

    async def wait_closed(self) -> None:
        return


class PlayedNodes:
    """Opens links to played nodes."""

    def __init__(self, nodes: int) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._players: list[subprocess.Popen[bytes]] = []
        for first in range(0, nodes, NODES_A_PROCESS):
            numbers = range(first, min(nodes, first + NODES_A_PROCESS))
            pairs = [socket.socketpair() for _ in numbers]
            fds = [theirs.fileno() for _, theirs in pairs]
            played = Path(__file__).with_name("played.py")
            argv = [sys.executable, str(played), str(first), str(nodes), ",".join(map(str, fds))]
            self._players.append(subprocess.Popen(argv, pass_fds=fds, stdin=subprocess.DEVNULL))
            for number, (ours, theirs) in zip(numbers, pairs, strict=True):
                theirs.close()
                self._sockets[node_name(number)] = ours

    async def open(self, host: str) -> Link:
        pipe = SocketPipe(self._sockets[host])
        return await FramedLink.start(pipe, host, "local", b"", NONCE, Limits(frozen=60.0))

    def close(self) -> None:
        for player in self._players:
            player.terminate()
        for player in self._players:
            player.wait()


def resident() -> int:
    """Return the bytes of memory this process holds now."""
    # Not by a Path, whose parts go through Python's table of names: asked this often, that grows.
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE


async def sweep(options: SessionOptions, opener: PlayedNodes | None) -> dict[str, Any]:
    found: dict[str, Any] = {"memory_start": resident()}
    feed = LiveFeed(options, opener)
    marks: dict[str, tuple[float, float]] = {}
    enough = asyncio.Event()

    def look() -> None:
        name = feed.model.phase.name
        if name in ("p2p", "world") and feed.model.done > 2 * MOST_PAIRS:
            enough.set()
        if name not in marks:
            marks[name] = (time.perf_counter(), time.process_time())
        # Before the plan of the tests is made, and what judges them is loaded.
        if marks.keys().isdisjoint(("reach", "p2p", "world")):
            found["memory_ready"] = resident()
        # Kept by the model anyway; the peak is seen well enough by looking after each batch.
        found["memory_peak"] = max(found.get("memory_peak", 0), resident())

    feed.listen(look)
    began = time.perf_counter(), time.process_time()
    try:
        running = {asyncio.ensure_future(feed.run()), asyncio.ensure_future(enough.wait())}
        done, left = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        for task in done:
            task.result()
        found["tested"] = feed.model.done // 2 if enough.is_set() else None
        ended = time.perf_counter(), time.process_time()
    finally:
        await feed.close()
    tests = marks["world" if "world" in options.layers else "p2p"]
    layer = Layer(options.layers[-1])
    found["memory_end"] = resident()
    good = sum(1 for m in feed.model.measurements() if m.layer is layer and feed.model.verdict(m) is Verdict.OK)
    found |= {
        "connect_s": tests[0] - began[0],
        "connect_cpu_s": tests[1] - began[1],
        "wall_s": ended[0] - tests[0],
        "cpu_s": ended[1] - tests[1],
        "directions_ok": good,
        "results": sum(1 for _ in feed.model.measurements()),
        "recording_bytes": options.record.stat().st_size if options.record else 0,
    }
    return found


def run_case(count: int, mode: Any, layers: tuple[str, ...]) -> dict[str, Any]:
    nodes = count // GPUS
    opener = PlayedNodes(nodes)
    try:
        with tempfile.TemporaryDirectory() as folder:
            options = SessionOptions(
                hosts=tuple(node_name(number) for number in range(nodes)),
                probes=("p2p",),
                layers=layers,
                mode=mode,
                timeout=60.0,
                record=Path(folder) / "r.jsonl.gz",
            )
            found = asyncio.run(sweep(options, opener))
    finally:
        opener.close()
    pairs = found["tested"] or len(pairs_for(mode, endpoints_of(count)))
    return {"endpoints": count, "nodes": nodes, "mode": mode, "pairs": pairs, **found}


def endpoints_of(count: int) -> list[Endpoint]:
    return [Endpoint(n, node_name(n // GPUS), n % GPUS, kind="gpu", nic=f"mlx5_{n % GPUS}") for n in range(count)]


def bar_of(case: dict[str, Any]) -> float:
    """Return the bar of the controller's memory: dependencies, nodes and results."""
    return BAR_MEMORY + BAR_NODE * float(case["nodes"]) + BAR_RESULT * float(case["results"])


def show(cases: list[dict[str, Any]]) -> None:
    print(
        f"{'endpoints':>9} {'nodes':>5} {'mode':>7} {'pairs':>7} {'wall s':>7} "
        f"{'CPU s':>7} {'ms CPU/pair':>11} {'pairs/s':>7} {'ready MB':>8} {'bar MB':>6} {'peak MB':>7} {'end MB':>7} "
        f"{'B/pair':>7}"
    )
    for case in cases:
        nodes, pairs = case["nodes"], case["pairs"]
        print(
            f"{case['endpoints']:9d} {nodes:5d} {case['mode']:>7} {pairs:7d} "
            f"{case['wall_s']:7.2f} {case['cpu_s']:7.2f} "
            f"{case['cpu_s'] / pairs * 1e3:11.3f} {pairs / case['wall_s']:7.0f} {case['memory_ready'] / 1e6:8.1f} "
            f"{bar_of(case) / 1e6:6.1f} {case['memory_peak'] / 1e6:7.1f} "
            f"{case['memory_end'] / 1e6:7.1f} {(case['memory_end'] - case['memory_ready']) / pairs:7.0f}"
        )
        if case["directions_ok"] < 2 * pairs:
            print(f"  only {case['directions_ok']} of {2 * pairs} directions came out ok")
    for case in cases:
        bar = bar_of(case)
        kept = held(case["memory_end"], bar)
        each = (case["memory_ready"] - case["memory_start"]) / case["nodes"]
        print(
            f"{case['endpoints']} endpoints: {case['memory_start'] / 1e6:.1f} MB before the first node, "
            f"{each / 1e3:.0f} kB and {case['connect_cpu_s'] / case['nodes'] * 1e3:.1f} ms CPU per node until ready; "
            f"{case['memory_end'] / bar:.2f} of the bar with {case['results']} results, {kept} (90 MB + 80 kB per "
            f"node + {BAR_RESULT} bytes per result); recording {case['recording_bytes'] / 1e6:.1f} MB"
        )


def compare(cases: list[dict[str, Any]], rivals: list[dict[str, Any]]) -> None:
    for case, rival in zip(cases, rivals, strict=True):
        ours, theirs = (one["cpu_s"] / one["pairs"] * 1e3 for one in (case, rival))
        share = f"{ours:.3f} ms CPU per pair, the rival {theirs:.3f}: {ours / theirs:.2f} of it"
        kept = held(ours / theirs, BAR_SHARE)
        print(f"{case['endpoints']} endpoints, {case['mode']}: {share} (bar {BAR_SHARE:.2f} {kept})")


def own_processes() -> int:
    """Return how many processes this one has started that still run, without those that play nodes."""
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def idle(options: SessionOptions) -> dict[str, Any]:
    """Open the links of all nodes, and return what that costs and what they cost while nothing happens."""
    notices: list[str] = []
    connector = Connector(connector_options(options), notices.append)
    began = time.perf_counter(), time.process_time()
    first: list[float] = []
    take = CalledGroup.take

    def taken(group: CalledGroup, *args: Any) -> bool:
        first.append(time.process_time())
        return take(group, *args)

    CalledGroup.take = taken  # type: ignore[method-assign, assignment]
    async with connector:
        links = await asyncio.gather(*(connector.open(host) for host in options.hosts), return_exceptions=True)
        opened = time.perf_counter(), time.process_time()
        await asyncio.sleep(2 * connector.options.limits.heartbeat)
        rest = time.perf_counter(), time.process_time()
        await asyncio.sleep(IDLE)
        found = {
            "links": sum(isinstance(link, Link) for link in links),
            "calls_s": opened[0] - began[0],
            "calls_cpu_s": opened[1] - first[0],
            "processes": own_processes(),
            "idle": (time.process_time() - rest[1]) / (time.perf_counter() - rest[0]),
            "notices": notices,
        }
        await asyncio.gather(*(link.close() for link in links if isinstance(link, Link)))
    return found


def run_launched(nodes: int, mode: Any, dying: int) -> dict[str, Any]:
    """Start nodes by a played srun and return what they cost in this process."""
    with tempfile.TemporaryDirectory() as folder:
        srun = Path(folder) / "srun"
        srun.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("played.py")} srun "$@"\n')
        srun.chmod(0o755)
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "PLAYED_DYING": str(dying)}
        os.environ.update(environment)
        names = tuple(node_name(number) for number in range(nodes))
        options = SessionOptions(
            hosts=names,
            transport="srun",
            job="1",
            placements={name: ("--jobid=1", f"--nodelist={name}") for name in names},
            probes=("p2p",),
            layers=("p2p",),
            mode=mode,
            timeout=60.0,
            # The processes that play the nodes share the processors.
            lease=60.0,
            record=Path(folder) / "r.jsonl.gz",
        )
        found = {"nodes": nodes, "mode": mode, "dying": dying}
        if not dying:
            found |= asyncio.run(idle(options))
        return found | asyncio.run(sweep(options, None))


def show_launched(case: dict[str, Any]) -> None:
    """Print what a launched case cost, against the bars."""
    pairs = len(pairs_for(case["mode"], endpoints_of(case["nodes"] * GPUS)))
    if case["dying"]:
        # One that was never tested for want of a node is reported as well.
        lost = 2 * pairs - case["results"]
        print(f"{case['nodes']} nodes, {case['dying']} die: {case['results']} of {2 * pairs} results, {lost} lost")
        return
    ready, swept, calls = case["connect_cpu_s"], case["cpu_s"], case["calls_cpu_s"]
    bar = BAR_CALLS * case["nodes"] / 1000
    print(
        f"{case['links']} of {case['nodes']} nodes called back: {calls:.1f} s CPU ({held(calls, bar)} of {bar:.1f}), "
        f"{case['calls_s']:.1f} s; {case['processes']} local processes; idle {case['idle']:.1%} of a core "
        f"({held(case['idle'], BAR_IDLE)} of {BAR_IDLE:.0%})\n"
        f"ready after {ready:.1f} s CPU ({held(ready, BAR_READY)} of {BAR_READY:g}); {pairs} pairs ({case['mode']}) "
        f"{swept:.1f} s CPU ({held(swept, BAR_SWEEP)} of {BAR_SWEEP:g}), {case['wall_s']:.0f} s; "
        f"{case['directions_ok']} of {2 * pairs} results good; "
        f"{case['memory_ready'] / 1e6:.0f} MB ready, {case['memory_end'] / 1e6:.0f} MB at the end"
    )


def run_apart(script: Path, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a case in a process of its own, with the script of a checkout and its environment."""
    python = script.parents[1] / ".venv" / "bin" / "python"
    argv = [str(python if python.exists() else sys.executable), str(script), "--one", case, "--layers", options.layers]
    if options.launch:
        argv += ["--launch", options.launch, "--dying", str(options.dying)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=CASES, help=f"endpoints:mode, several with commas ({CASES})")
    parser.add_argument("--layers", default="p2p", help="layers of pairs, with commas (p2p)")
    parser.add_argument(
        "--rival", type=Path, help="path of another checkout, whose CPU per pair is printed beside ours"
    )
    parser.add_argument("--launch", help="numbers of nodes that one played srun starts, with commas")
    parser.add_argument("--mode", default="quick", help="pairs of --launch (quick)")
    parser.add_argument("--dying", type=int, default=0, help="nodes of --launch that break in mid-sweep (0)")
    parser.add_argument("--runs", type=int, default=1, help="runs of each --launch (1)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    layers = tuple(options.layers.split(","))
    if options.one:
        count, _, mode = options.one.partition(":")
        if options.launch:
            print(json.dumps(run_launched(int(count), mode, options.dying)))
            return
        print(json.dumps(run_case(int(count), mode, layers)))
        return
    for nodes in options.launch.split(",") * options.runs if options.launch else ():
        show_launched(run_apart(Path(__file__).resolve(), f"{nodes}:{options.mode}", options))
    if options.launch:
        return
    cases, rivals = [], []
    for case in options.cases.split(","):
        cases.append(run_apart(Path(__file__).resolve(), case, options))
        if options.rival is not None:
            rivals.append(run_apart(options.rival.resolve() / "bench" / "scale.py", case, options))
    show(cases)
    compare(cases[: len(rivals)], rivals)


if __name__ == "__main__":
    main()
