"""Faults of nodes, links and the controller: bound and measured value of each, and what clush does with the same fault.

    python bench/faults.py [--only NAME]...

The nodes are real OpenSSH servers on loopback addresses (as in tests/wire), network namespaces where root can make them
(tests/lab), and labs. The bounds are in docs/reliability.md; a broken one makes the exit code 1. Values of clush
are for comparison and have no bound.

rankfaults.py measures what a fault of a rank host costs without real processes; here it is measured with them.
"""

import argparse
import asyncio
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loopback import clush

from fabtui.lab.network import Network
from fabtui.lab.network import missing as no_network
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.recording import read_events
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.framed_link import Limits
from fabtui.transport.link import Link, LinkLost, NodeUnreachable
from tests.labrun import run_lab
from tests.wire.nodeside import living
from tests.wire.sshd import Field, Server, missing, proc_text, until

MIB = 1 << 20
#: Bytes that a node prints in a flood.
FLOOD = 50 * MIB
#: Time (s) that a machine which is busy may add to a bound.
BUSY = 2.0
#: Time (s) within which nothing of ours is left on a node.
GONE = 5.0
#: Deadline (s) of a test between ranks, in the runs with faults of ranks.
DEADLINE = 10.0


class Row(NamedTuple):
    """A measured value; ``bound`` is None for what other tools do."""

    fault: str
    value: float
    unit: str
    bound: float | None = None


class Place:
    """Servers whose sessions, and what they leave behind, carry a token."""

    def __init__(self, folder: Path, count: int, *, hanging: bool = False, flooding: bool = False) -> None:
        self.field = Field(folder)
        self.token = f"faults-{os.getpid()}-{time.monotonic_ns()}"
        self.servers: list[Server] = []
        home = folder / "home"
        home.mkdir()
        environment = f"SetEnv HOME={home} FABTUI_BENCH={self.token}"
        for number in range(count):
            lines = [environment]
            if flooding and number == 0:
                flood = f"head -c {FLOOD} /dev/zero | tr '\\0' x | fold -w 99"
                script = f'#!/bin/sh\n{flood} >&2 &\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n'
                lines.append(f"ForceCommand {self.field.script('flood', script)}")
            self.servers.append(self.field.serve(f"n{number}", sshd=lines))
        if hanging:
            self.servers.append(self.field.silent("hangs"))
        self.names = [server.name for server in self.servers]
        self.config = self.field.config()

    def connector(self) -> Connector:
        return Connector(ConnectorOptions(ssh_config=self.config, remote_python=sys.executable), lambda _: None)

    async def gone(self) -> float:
        """Return the seconds until nothing on the nodes carries the token."""
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await until(lambda: not living(self.token), 60.0)
        return time.monotonic() - began


@contextlib.contextmanager
def place(count: int, **faults: bool) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fabtui-") as folder:
        made = Place(Path(folder), count, **faults)
        try:
            yield made
        finally:
            made.field.stop()
            for pid in living(made.token):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


async def open_all(reach: Connector, names: Sequence[str]) -> dict[str, tuple[float, Link | None]]:
    """Open links to all nodes; return when each was there or had failed, and the link."""
    began = time.monotonic()
    found: dict[str, tuple[float, Link | None]] = {}

    async def open_one(name: str) -> None:
        link = None
        with contextlib.suppress(NodeUnreachable):
            link = await reach.open(name)
        found[name] = time.monotonic() - began, link

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(open_one(name))
    return found


async def lost_after(link: Link) -> float:
    """Return the seconds until a link is lost."""
    began = time.monotonic()
    with contextlib.suppress(LinkLost):
        async with asyncio.timeout(60.0):
            while True:
                await link.receive()
    return time.monotonic() - began


def run(argv: Sequence[str]) -> tuple[list[tuple[float, str]], int, float]:
    """Run a command; return its lines and when each came (s), its exit code, and the most memory that it had (MiB)."""
    began = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    peak = 0

    def watch() -> None:
        nonlocal peak
        # The figure of wait4 would begin with that of this process.
        while found := re.search(r"VmHWM:\s+(\d+)", proc_text(f"{process.pid}/status")):
            peak = int(found[1])
            time.sleep(0.05)

    watching = threading.Thread(target=watch)
    watching.start()
    lines = [(time.monotonic() - began, line) for line in process.stdout]
    code = process.wait()
    watching.join()
    return lines, code, peak / 1024


def run_clush(where: Place, command: str, *options: str) -> tuple[list[float], float, float]:
    """Run a command on all nodes by clush; return when each line came, when it ended, and its memory (MiB)."""
    program = clush()
    assert program is not None
    argv = [program, "-f", "64", "-w", ",".join(where.names), "-o", f"-F {where.config}", *options, command]
    began = time.monotonic()
    lines, _, peak = run(argv)
    return [at for at, line in lines if line.endswith("answer\n")], time.monotonic() - began, peak


def hanging() -> Iterator[Row]:
    async def of_fabtui() -> tuple[float, float, float]:
        reach = where.connector()
        try:
            good = [name for name in where.names if name != "hangs"]
            for _ in range(2):
                # Twice: the first time imports what logins need.
                alone = await open_all(reach, good)
                for _, link in alone.values():
                    await link.close() if link is not None else None
            both = await open_all(reach, ["hangs", *good])
            for _, link in both.values():
                await link.close() if link is not None else None
            return max(alone[name][0] for name in good), max(both[name][0] for name in good), both["hangs"][0]
        finally:
            await reach.close()

    with place(7, hanging=True) as where:
        without, others, failed = asyncio.run(of_fabtui())
        yield Row("server that accepts and stays silent: reported after", failed, "s", 10.0 + BUSY)
        yield Row("  the seven other nodes are ready after", others, "s", 2 * without + BUSY)
        if clush():
            times, whole, _ = run_clush(where, "echo answer")
            yield Row("  clush: the seven others have answered after", times[6] if len(times) > 6 else whole, "s")
            yield Row("  clush: ends after", whole, "s")


def stuck_login() -> Iterator[Row]:
    """A login shell that never runs the command."""

    async def failed() -> float:
        reach = where.connector()
        try:
            return (await open_all(reach, ["stuck"]))["stuck"][0]
        finally:
            await reach.close()

    with place(0) as where:
        script = where.field.script("stuck", "#!/bin/sh\nexec sleep 60\n")
        where.field.serve("stuck", sshd=[f"ForceCommand {script}"])
        where.config = where.field.config()
        yield Row("login that never starts anything: reported after", asyncio.run(failed()), "s", Limits().start + BUSY)


def killed_and_stopped() -> Iterator[Row]:
    """The node side is killed or stopped, or its session is."""

    async def measure(fault: Callable[[Place, Link], None]) -> tuple[float, float]:
        reach = where.connector()
        try:
            link = await reach.open("n0")
            lost = asyncio.create_task(lost_after(link))
            await asyncio.sleep(0.1)
            fault(where, link)
            after = await lost
            await link.close()
            for pid in living(where.token):
                os.kill(pid, signal.SIGCONT)
            return after, after + await where.gone()
        finally:
            await reach.close()

    def kill(_: Place, link: Link) -> None:
        os.kill(link.hello["pid"], signal.SIGKILL)

    def cut(where: Place, _: Link) -> None:
        for pid in where.servers[0].sessions():
            os.kill(pid, signal.SIGKILL)

    def stop(where: Place, _: Link) -> None:
        for pid in living(where.token):
            os.kill(pid, signal.SIGSTOP)

    with place(1) as where:
        for name, fault, bound in (("killed", kill, 1.0), ("cut off: sshd killed", cut, 1.0), ("stopped", stop, 11.0)):
            lost, gone = asyncio.run(measure(fault))
            yield Row(f"node side {name}: lost after", lost, "s", bound + BUSY)
            yield Row("  nothing of it is left after", gone, "s", bound + GONE)


def controller() -> Iterator[Row]:
    for name, number, bound in (("killed", signal.SIGKILL, 0.0), ("stopped", signal.SIGSTOP, 10.0)):
        with place(2) as where:
            argv = [sys.executable, "-m", "fabtui", "run", "--nodes", "n0,n1", "--ssh-config", str(where.config)]
            argv += ["--no-record", "--remote-python", sys.executable, "--probes", "p2p", "--layers", "p2p"]
            argv += ["--watch", "600"]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert process.stdout is not None
            next(line for line in process.stdout if line.startswith(("p2p", "ranks")))
            process.send_signal(number)
            gone = asyncio.run(where.gone())
            process.kill()
            process.wait()
        yield Row(f"controller {name}: nothing is left on nodes after", gone, "s", bound + GONE)
    if clush():
        with place(2) as where:
            argv = [str(clush()), "-w", "n0,n1", "-o", f"-F {where.config}", "sleep 30"]
            other = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            asyncio.run(until(lambda: len(living(where.token)) >= 2, 30.0))
            time.sleep(1.0)
            other.kill()
            other.wait()
            time.sleep(GONE)
            left = [pid for pid in living(where.token) if "sleep" in Path(f"/proc/{pid}/comm").read_text()]
            yield Row(f"  clush killed: commands left on 2 nodes after {GONE:.0f} s", len(left), "")


def flooding() -> Iterator[Row]:
    """One of eight nodes prints without end."""

    def memory(where: Place) -> float:
        argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(where.names), "--no-record", "--ssh-config"]
        argv += [str(where.config), "--remote-python", sys.executable, "--probes", "ping"]
        lines, code, peak = run(argv)
        printed = "".join(line for _, line in lines)
        # Nodes of one machine share its addresses, which is a finding.
        if code not in (0, 1) or "56 of 56 address pairs answer" not in printed:
            raise SystemExit(f"a run with a flood failed: {printed[-1500:]}")
        return peak

    with place(8) as where:
        healthy = memory(where)
    with place(8, flooding=True) as where:
        yield Row(f"node that prints {FLOOD // MIB} MiB: more memory", memory(where) - healthy, "MiB", 32.0)
        if clush():
            _, _, plain = run_clush(where, "echo answer")
            _, _, gathered = run_clush(where, "echo answer", "-b")
            yield Row("  clush: its memory", plain, "MiB")
            yield Row("  clush -b: its memory", gathered, "MiB")


def returning() -> Iterator[Row]:
    async def measure() -> tuple[float, float]:
        server = where.servers[1]
        options = SessionOptions(
            hosts=("n0", "n1"), ssh_config=where.config, remote_python=sys.executable, probes=("ping",)
        )
        feed = LiveFeed(options)
        try:
            await feed.run()
            record = feed.model.nodes["n1"]
            began = time.monotonic()
            server.stop()
            await until(lambda: record.state == "lost", 60.0)
            lost = time.monotonic() - began
            (where.field.folder / f"host_{server.name}").rename(where.field.folder / "kept")
            where.field.serve(server.name, port=server.port, known=True)
            where.field.hash_known()
            began = time.monotonic()
            await until(lambda: record.state == "ready", 90.0)
            return lost, time.monotonic() - began
        finally:
            await feed.close()

    with place(2) as where:
        lost, back = asyncio.run(measure())
        yield Row("server that stops: lost after", lost, "s", 1.0 + BUSY)
        yield Row("  starts again: ready after", back, "s", 60.0)


def network_cut() -> Iterator[Row]:
    """All links of one of three nodes are cut for 14 s, in the middle of a sweep."""
    if (reason := no_network()) is not None:
        print(f"not measured: a network that is cut ({reason})")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Network(Path(folder), nodes=3, rails=1, management="mgmt0") as network,
    ):
        argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(network.names)]
        argv += ["--ssh-config", str(network.ssh_config), "--remote-python", sys.executable, "--ranks-per-node", "2"]
        argv += ["--probes", "p2p", "--layers", "p2p", "--bytes", "1M", "--iters", "2000", "--isolated"]
        argv += ["--record", f"{folder}/r"]
        process = subprocess.Popen(network.controller(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        times: dict[str, float] = {}

        def repair() -> None:
            network.heal()
            times["repaired"] = time.monotonic()

        for line in map(bytes.decode, process.stdout):
            if line.startswith("p2p: ") and not times:
                times["cut"] = time.monotonic()
                network.plant("n1=cut")
                threading.Timer(14.0, repair).start()
            for word in ("lost: no answer", "is back"):
                if f"n1: {word}" in line:
                    times.setdefault(word, time.monotonic())
        process.wait()
        batches = [event.measurements for event in read_events(Path(folder, "r")) if isinstance(event, Measured)]
        untested = 30 - len({(m.src, m.dst) for batch in batches for m in batch if m.layer is Layer.P2P})
    yield Row("links of a node cut: lost after", times["lost: no answer"] - times["cut"], "s", 11.0 + BUSY)
    yield Row("  links mended: ready after", times["is back"] - times["repaired"], "s", 60.0)
    yield Row("  pairs that were not tested", float(untested), "", 0.0)


def disk_full() -> Iterator[Row]:
    """The recording cannot grow beyond 2 kB."""

    def results(limited: bool) -> int:
        limit = (2048, 2048) if limited else (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        with tempfile.TemporaryDirectory() as folder:
            argv = [
                sys.executable,
                "-m",
                "fabtui",
                "run",
                "--lab",
                "2x2",
                "--probes",
                "ping",
                "--record",
                f"{folder}/r",
            ]
            done = subprocess.run(
                argv,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        if limited and "INCOMPLETE" not in done.stdout.upper():
            raise SystemExit(f"the recording that failed is not reported: {done.stdout}{done.stderr}")
        return sum(int(number) for number in re.findall(r"measured: (\d+) ok", done.stdout))

    yield Row("disk full: results lost in this session", results(False) - results(True), "", 0.0)


def ranks() -> Iterator[Row]:
    """A rank is killed, or its host stopped, in the middle of a transfer."""
    with tempfile.TemporaryDirectory() as folder:

        def seconds(name: str, *faults: str) -> float:
            place = Path(folder, name)
            place.mkdir()
            return run_lab(place, "2x4", "--probes", "p2p", "--timeout", f"{DEADLINE:g}", faults=faults).seconds

        healthy = seconds("healthy")
        # Starting ranks again imports PyTorch again, which is most of a healthy run.
        bound = healthy + DEADLINE + BUSY
        kinds = {"absent": "rank that never joins", "kill": "rank killed", "stop": "rank host stopped"}
        for kind, text in kinds.items():
            more = seconds(kind, f"n000:1>n001:2={kind}") - healthy
            yield Row(f"{text} (sweep of 56 pairs, healthy {healthy:.1f} s): more", more, "s", bound)


FAULTS: dict[str, Callable[[], Iterator[Row]]] = {
    "hanging": hanging,
    "stuck-login": stuck_login,
    "node-side": killed_and_stopped,
    "controller": controller,
    "flood": flooding,
    "returning": returning,
    "cut": network_cut,
    "disk": disk_full,
    "ranks": ranks,
}


def main() -> int:
    """Run the benchmark; the exit code is 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(FAULTS))
    args = parser.parse_args()
    if lack := missing():
        print(f"not run: {lack}")
        return 0
    print(f"{'fault':66} {'bound':>10} {'measured':>12} {'ratio':>6}")
    rows: list[Row] = []
    for name in args.only or FAULTS:
        for row in FAULTS[name]():
            rows.append(row)
            unit = f" {row.unit}" if row.unit else ""
            bound = "" if row.bound is None else f"{row.bound:.3g}{unit}"
            ratio = "" if not row.bound else f"{max(row.value, 0) / row.bound:.2f}"
            broken = row.bound is not None and row.value > row.bound
            print(
                f"{row.fault:66} {bound:>10} {f'{row.value:.3g}{unit}':>12} {ratio:>6}{'  BROKEN' * broken}", flush=True
            )
    return int(any(row.bound is not None and row.value > row.bound for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
