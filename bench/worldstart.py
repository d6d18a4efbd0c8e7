"""Start to the whole world layer: one rank host alone, ``fabtui run`` on this machine, and the same by SSH to it.

    python bench/worldstart.py [--ranks 4] [--bytes 256M] [--rounds 3] [--idle 7]

With two GPUs or more here the ranks are NCCL's, one for each GPU; else CPU ranks of gloo stand in for them. The rows
take turns, each cold: nothing has used the GPUs for ``--idle`` seconds (none with CPU ranks). Times run from the start
of the process, interpreter included, to the last number of the world layer and to the end of ``run``. A ratio is of the
same round, to the world layer of the rank host, by SSH as well. The median of the rounds is held against the bar, with
GPUs: CPU ranks start in half the time, so that the rest counts for more. SSH is to an OpenSSH server at a loopback
address, where there is one.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "wire"))

from bars import MISSED, held
from loopback import nodes
from matrix import DEADLINE, LIMIT, ROOT, UNITS, library
from rank_controller import Controller

from fabtui.lab.server import visible_gpus
from fabtui.model.recording import read_events
from fabtui.model.schedule import each_round
from tests.wire.sshd import missing

BAR_WORLD, BAR_END = 1.6, 2.0
ALONE, LOCAL, SSH = "rank host alone", "run, this machine", "run, SSH to it"


class Laps(NamedTuple):
    """Seconds since the start of a process: the ranks were ready, the world layer was whole, it ended."""

    ready: float | None
    world: float
    end: float | None
    note: str = ""


def rank_host(engine: str, count: int, size: int) -> Laps:
    """Run one rank host until its world layer is whole."""
    ranks = list(range(count))
    began = time.monotonic()
    with Controller() as c:
        c.spawn("n0", config={"engine": engine})
        path = library() if engine == "nccl" else None
        c.init("n0", ranks, count, "127.0.0.1", engine=engine, library=path, start_deadline=90.0)
        c.until(lambda: bool(c.of("ready") or c.of("failed")), 100)
        if c.of("failed"):
            raise RuntimeError(c.of("failed")[0]["error"])
        ready = time.monotonic() - began
        rounds = [turned for one in each_round(count) for turned in (one, [(b, a) for a, b in one])]
        c.world(1, ranks, rounds, bytes=size, iters=10, warmup=2, deadline=DEADLINE)
        c.until(lambda: len(c.of("free", id=1)) == count, 2 * DEADLINE + 10)
        laps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in c.of("ready")[0]["seconds"].items())
        return Laps(ready, max(m["came"] for m in c.of("worlded", id=1)) - began, None, laps)


def tool(words: list[str], count: int, size: int) -> Laps:
    """Run the whole tool, and read from its recording when numbers came."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "r.jsonl.gz"
        argv = [sys.executable, "-m", "fabtui", "run", *words, "--probes", "p2p", "--bytes", str(size), "--quiet"]
        began = time.time()
        done = subprocess.run(
            [*argv, "--ranks-per-node", str(count), "--record", str(recording)],
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": folder},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        end = time.time() - began
        came: list[float] = []
        ready: float | None = None
        # When each step of the session began: states of its node and phases, in s.
        notes: list[str] = []
        for event in (one.to_json() for one in read_events(recording)):
            if event["kind"] == "ranks":
                ready = event["time"] - began
            if event["kind"] in ("start", "node", "phase", "end"):
                what = event.get("state") or event.get("name") or event["kind"]
                notes.append(f"{getattr(what, 'value', what)} {event['time'] - began:.2f}")
            elif event["kind"] == "log" and "ranks: " in event["text"]:
                notes.append(event["text"])
            came += [event["time"] - began for m in event.get("measurements", ()) if m["layer"] == "world"]
    wanted = count * (count - 1)
    if len(came) < wanted:
        raise RuntimeError(f"{len(came)} of {wanted} numbers came: {(done.stderr + done.stdout).strip()[-500:]}")
    return Laps(ready, max(came[:wanted]), end, "; ".join(notes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="CPU ranks, where there are no GPUs (4)")
    parser.add_argument("--bytes", default="", help="message size (256M, or 1M with CPU ranks)")
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds (3)")
    parser.add_argument("--idle", type=float, default=7.0, help="seconds without use of the GPUs before each (7)")
    options = parser.parse_args()
    gpus = len(visible_gpus())
    engine, count = ("nccl", gpus) if gpus >= 2 else ("gloo", options.ranks)
    text = options.bytes or ("256M" if engine == "nccl" else "1M")
    size = int(text[:-1]) * UNITS[text[-1].upper()]
    common = ["--engine", engine, "--remote-python", sys.executable]
    rows: dict[str, Callable[[], Laps]] = {ALONE: partial(rank_host, engine, count, size)}
    rows[LOCAL] = partial(tool, ["--transport", "local", *common], count, size)
    with contextlib.ExitStack() as servers:
        if missing() is None:
            place = servers.enter_context(nodes(1))
            words = ["--nodes", place.names[0], "--ssh-config", str(place.config), *common]
            rows[SSH] = partial(tool, words, count, size)
        # The first turn compiles what was not compiled, and reads the libraries from the disk.
        turns: list[dict[str, Laps]] = []
        for turn in range(options.rounds + 1):
            turns.append({})
            for row, measure in rows.items():
                time.sleep(options.idle if engine == "nccl" and turn else 0.0)
                turns[-1][row] = measure()
                print(f"round {turn}: {row}: {turns[-1][row]}", file=sys.stderr, flush=True)
    print(f"{count} {engine} ranks, messages of {size >> 20} MiB; load {os.getloadavg()[0]:.1f}")
    return show(list(rows), turns[1:], has_bars=engine == "nccl")


def show(rows: list[str], turns: list[dict[str, Laps]], *, has_bars: bool) -> int:
    """Print medians, ratios to the rank host alone, and bars; returns the exit code."""
    print(f"{'':26} {'ready s':>8} {'world s':>8} {'end s':>7} {'world x':>8} {'end x':>6}")
    missed = 0
    for row in rows:
        worlds = statistics.median(turn[row].world / turn[ALONE].world for turn in turns)
        ready = [lap for turn in turns if (lap := turn[row].ready) is not None]
        ends = [(end, turn[ALONE].world) for turn in turns if (end := turn[row].end) is not None]
        seconds = [end for end, _ in ends]
        end = statistics.median(end / alone for end, alone in ends) if ends else None
        line = f"{row:26} {_text(ready):>8} {_text([turn[row].world for turn in turns]):>8} {_text(seconds):>7}"
        line += f" {worlds:8.2f} {'' if end is None else f'{end:.2f}':>6}"
        if has_bars and row in (LOCAL, SSH) and end is not None:
            verdicts = held(worlds, BAR_WORLD), held(end, BAR_END)
            missed += verdicts.count(MISSED)
            line += f"  world <= {BAR_WORLD:g} {verdicts[0]}, end <= {BAR_END:g} {verdicts[1]}"
        print(line)
    return 1 if missed else 0


def _text(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else ""


if __name__ == "__main__":
    sys.exit(main())
