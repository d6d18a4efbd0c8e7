"""Random kills in each phase of a session, and whether anything of it is left on nodes after the lease and 3 s.

    python bench/kills.py [--kills 100] [--seed 1]

Needs root: three nodes in network namespaces (`fabtui.lab.network`) with a management network, a folder for
temporary files and one for shared memory each. The seed decides when and what: the controller is killed, stopped for
longer than the lease, or loses its terminal; the node side or the ranks of a node are killed; or a node is cut off.
The controller is killed after the last three. Anything left is found: processes with the token of the session, other
processes on the nodes, and files in these folders. The exit code is 1 if anything is left, or a phase did not come.
Python must not lie below /tmp, which the nodes do not see.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.lab.network import Network, missing
from fabtui.session.watch import PHASE
from tests.wire.nodeside import living
from tests.wire.sshd import login_variables

#: Lease of the sessions, and how long (s) after it something may be there.
LEASE, AFTER = 5.0, 3.0
#: Phases of a session as it records them; the first one is the start of fabtui itself, with the logins. How long (s)
#: after the beginning of a phase it happens, at most, and how long a phase is waited for.
PHASES = ("start", "look", "ping", "mtu", "udp", "reach", "ranks", "world", "p2p", "all_reduce", PHASE)
WITHIN, OF_START, PATIENCE = 1.5, 6.0, 60.0
#: The phase in which it happens where one is left out: ranks may have started before all addresses were tested.
INSTEAD = {"ranks": "world"}
KINDS = ("controller", "stop", "hangup", "node side", "ranks", "cut")
#: The variable with the token of a session.
TOKEN = "FABTUI_BENCH"
VICTIM = "n1"
#: Processes of a node that are none of a session; OpenSSH keeps those of a connection that was cut until TCP gives up.
_USUAL = frozenset({"sh", "sleep", "sshd", "sshd-session", "ps", "ls"})


class Kill(NamedTuple):
    """A kill, and what was left."""

    phase: str
    kind: str
    there: int  #: Processes on the nodes when it came.
    gone: float | None  #: When (s) the last process had gone; None: some were left.
    left: str  #: What was left.


@dataclass
class Field:
    """The nodes, and where the files of the controller lie."""

    network: Network
    folder: Path
    token: str

    def start(self, number: int) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a session; return its process and its recording."""
        recording = self.folder / f"r{number}.jsonl.gz"
        argv = [sys.executable, "-m", "fabtui", "run", "--nodes", ",".join(self.network.names), "--ssh-config"]
        argv += [str(self.network.ssh_config), "--remote-python", sys.executable, "--ranks-per-node", "1", "--lease"]
        argv += [f"{LEASE:g}", "--bytes", "64k", "--iters", "4", "--watch", "600", "--record", str(recording)]
        environment = {**os.environ, TOKEN: self.token, "TMPDIR": str(self.folder / "tmp")}
        environment["XDG_STATE_HOME"] = str(self.folder / "state")
        with (self.folder / "printed").open("wb") as printed:
            process = subprocess.Popen(
                self.network.controller(argv),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
                env=environment,
            )
        return process, recording

    def on_nodes(self, controller: int) -> list[int]:
        """Return the processes of a session but the controller."""
        return [pid for pid in living(self.token) if pid != controller]

    def of_victim(self, *, ranks: bool) -> list[int]:
        """Return the processes of a session on the victim: those of its ranks, or the others."""
        own = os.readlink(f"/proc/{self.network.holder(VICTIM).pid}/ns/pid")
        found = []
        for pid in living(self.token):
            with contextlib.suppress(OSError):
                loaded = "libtorch" in Path(f"/proc/{pid}/maps").read_text()
                if os.readlink(f"/proc/{pid}/ns/pid") == own and loaded == ranks:
                    found.append(pid)
        return found

    def left(self) -> list[str]:
        """Return what is left of a session that has ended: processes, files."""
        found = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:80] for pid in living(self.token)]
        for name in self.network.names:
            others = Counter(self.network.on(name, "ps", "-e", "-o", "comm=").split()) - Counter()
            found += [f"{name}: {command}" for command in others if command not in _USUAL]
            files = self.network.on(name, "find", "/tmp", "/dev/shm", "-mindepth", "1").split()
            found += [f"{name}: {path}" for path in files]
        return found + [str(path) for path in (self.folder / "tmp").iterdir()]


def reached(recording: Path, phase: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait for a phase; return False if it did not come."""
    until = time.monotonic() + PATIENCE
    wanted = [f'"kind":"phase","name":"{name}"'.encode() for name in (phase, INSTEAD.get(phase, phase))]
    while phase != PHASES[0] and process.poll() is None and time.monotonic() < until:
        # It is being written: its last block is incomplete.
        with contextlib.suppress(OSError, zlib.error):
            events = zlib.decompressobj(31).decompress(recording.read_bytes())
            if any(one in events for one in wanted):
                return True
        time.sleep(0.05)
    return phase == PHASES[0]


def strike(where: Field, kind: str, process: subprocess.Popen[bytes], dice: random.Random) -> None:
    """Do it, and what ends the session after it."""
    if kind in ("node side", "ranks"):
        if found := where.of_victim(ranks=kind == "ranks"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(found), signal.SIGKILL)
        time.sleep(dice.uniform(0.1, 2.0))
    elif kind == "cut":
        where.network.plant(f"{VICTIM}=cut")
        time.sleep(dice.uniform(0.0, 1.0))
    number = {"stop": signal.SIGSTOP, "hangup": signal.SIGHUP}.get(kind, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def one(where: Field, number: int, dice: random.Random) -> Kill:
    phase, kind = dice.choice(PHASES), KINDS[number % len(KINDS)]
    delay = dice.uniform(0.0, OF_START if phase == PHASES[0] else WITHIN)
    process, recording = where.start(number)
    try:
        if not reached(recording, phase, process):
            phase += " did not come"
            print((where.folder / "printed").read_text()[-300:])
        time.sleep(delay)
        there = len(where.on_nodes(process.pid))
        strike(where, kind, process, dice)
        began = time.monotonic()
        gone = None
        while gone is None and time.monotonic() < began + LEASE + AFTER:
            stopped = kind == "stop"
            if not (where.on_nodes(process.pid) or (process.poll() is None and not stopped)):
                gone = time.monotonic() - began
            else:
                time.sleep(0.1)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if where.network.faults:
            where.network.heal()
    left = where.left()
    for pid in living(where.token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return Kill(phase, kind, there, gone, "; ".join(left))


def run(kills: int, seed: int) -> list[Kill]:
    dice = random.Random(seed)
    done: list[Kill] = []
    token = f"kills-{os.getpid()}-{time.monotonic_ns()}"
    # Not below /tmp, which each node has for itself.
    with tempfile.TemporaryDirectory(prefix="fabtui-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        variables = {**login_variables(folder), TOKEN: token}
        with Network(folder, nodes=3, rails=1, management="mgmt0", variables=variables) as network:
            for node in network.names:
                for place in ("/tmp", "/dev/shm"):
                    network.on(node, "mount", "-t", "tmpfs", "tmpfs", place)
            where = Field(network, folder, token)
            for number in range(kills):
                done.append(found := one(where, number, dice))
                gone = "left" if found.gone is None else f"{found.gone:.1f}"
                print(
                    f"{number:4} {found.phase:12} {found.kind:11} {found.there:6} {gone:>6}  {found.left}", flush=True
                )
    return done


def main() -> int:
    """Run the kills; the exit code is 1 if anything is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if lack := missing():
        print(f"not run: {lack}")
        return 0
    print(f"{'':4} {'phase':12} {'kind':11} {'there':>6} {'gone s':>6}  left after {LEASE + AFTER:g} s")
    done = run(args.kills, args.seed)
    for kind in KINDS:
        some = [kill for kill in done if kill.kind == kind]
        gone = [kill.gone for kill in some if kill.gone is not None]
        bad = sum(kill.gone is None or bool(kill.left) for kill in some)
        longest = f"{max(gone):.1f}" if gone else "-"
        print(
            f"{kind:11} {len(some):4} kills, {sum(kill.there > 0 for kill in some)} with processes on nodes, "
            f"gone after {longest} s at most, {bad} with something left"
        )
    return int(any(kill.gone is None or kill.left or kill.phase not in PHASES for kill in done))


if __name__ == "__main__":
    raise SystemExit(main())
