"""All pairs of the GPUs of this host, cold, in one run: fabtui, the CUDA sample, one launch per pair, and the floor.

    python bench/matrix.py [--gpus N] [--bytes 256M] [--python PATH] [--idle 7] [--repeat 3]

Everything that uses all GPUs starts cold, as for a user: nothing has used them for ``--idle`` seconds. (On eight H200
the driver takes 2.6 s to initialise then, and 1.4 s right after another process.)

- floor: a process that only makes the CUDA contexts of all GPUs, one thread for each, in the driver's default
  environment. It and the rank host take turns, ``--repeat`` times; the medians count.
- NCCL alone: the time of NCCL itself for a communicator of all GPUs and its connections (bench/ncclfloor.py).
- rank host: one rank host started directly. Its times run from the start of its process to the last number of the
  world layer, and of the pair layer.
- fabtui run: the whole tool, from the start of its process to the same two numbers.
- p2pBandwidthLatencyTest: if it is found, or built where its source and nvcc are.
- one launch per pair: torch.distributed with NCCL under torchrun, as common scripts do it, and two processes without
  torchrun. The mean of three launches each is multiplied by the number of ordered pairs; these figures are marked as
  extrapolated.

Nothing that is missing gets a figure. Needs the checkout, and torch for the launches.
"""

import argparse
import glob
import importlib.util
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "wire"))

from rank_controller import Controller

from fabtui.lab.server import visible_gpus
from fabtui.model.recording import read_events
from fabtui.model.schedule import Dispatcher, each_round

ROOT = Path(__file__).resolve().parents[1]
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIMIT = 240.0
DEADLINE = 20.0
#: For eight GPUs of one host; with fewer, contexts and launches cost less.
BAR_FLOOR, BAR_NCCL, BAR_SAMPLE, BAR_LAUNCH, BAR_PAIRS = 1.45, 1.10, 1.6, 80.0, 4.0
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SAMPLE = "p2pBandwidthLatencyTest"
SAMPLE_PLACES = (
    "/usr/local/cuda*/samples/**",
    "/usr/local/cuda*/extras/demo_suite",
    "/opt/cuda*/**",
    "/usr/share/cuda-samples/**",
    os.path.expanduser("~/cuda-samples/**"),
    os.path.expanduser("~/NVIDIA_CUDA-*_Samples/**"),
)
FLOOR = """\
import ctypes, os, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))]
def make(ordinal):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    codes.append(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    codes.append(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
threads = [threading.Thread(target=make, args=(n,)) for n in range(count.value)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(count.value, max(codes), flush=True)
sys.stdin.read()
os._exit(0)
"""

Found = dict[str, Any]


def environment(gpus: list[str]) -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def floor(gpus: list[str]) -> Found:
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", FLOOR],
        env=environment(gpus),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    printed = process.stdout.readline().split()
    seconds = time.monotonic() - began
    process.communicate(timeout=LIMIT)
    if printed != [str(len(gpus)), "0"]:
        raise RuntimeError(f"the contexts could not be made: {' '.join(printed) or 'no CUDA driver'}")
    return {"seconds": seconds}


def nccl_alone(gpus: list[str]) -> Found:
    """Make the contexts, a communicator of all and its connections, and nothing else."""
    argv = [sys.executable, str(ROOT / "bench" / "ncclfloor.py"), "--json", "--channels", "16"]
    argv += ["--library", path] if (path := library()) else []
    began = time.monotonic()
    done = subprocess.run(argv, env=environment(gpus), capture_output=True, text=True, timeout=LIMIT, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return {"seconds": seconds, "steps": json.loads(done.stdout)}


def library() -> str | None:
    """Return the NCCL of this Python, which torch uses as well, or None to let the rank host look."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    return next((path for folder in folders for path in glob.glob(f"{folder}/nccl/lib/libnccl.so*")), None)


def rank_host(gpus: list[str], size: int) -> Found:
    """Run one rank host over all GPUs: world layer, then pair layer."""
    count = len(gpus)
    ranks = list(range(count))
    began = time.monotonic()
    found: Found = {}
    with Controller() as c:
        c.spawn("n0", env=environment(gpus))
        c.init("n0", ranks, count, "127.0.0.1", engine="nccl", library=library(), start_deadline=90.0)
        c.until(lambda: bool(c.of("ready") or c.of("failed")), 100)
        if c.of("failed"):
            raise RuntimeError(c.of("failed")[0]["error"])
        found["version"] = c.of("ready")[0]["version"]
        found["ready"] = time.monotonic() - began
        found["parts"] = laps(c.of("ready")[0]["seconds"], "driver", "nccl", "contexts")
        rounds = [turned for one in each_round(count) for turned in (one, [(b, a) for a, b in one])]
        # As a session does it: half the messages of a pair test.
        c.world(1, ranks, rounds, bytes=size, iters=10, warmup=2, deadline=DEADLINE)
        c.until(lambda: len(c.of("free", id=1)) == count, 2 * DEADLINE + 10)
        reports = c.of("worlded", id=1)
        parts = {name: max(m["seconds"][name] for m in reports) for name in ("init", "connect", "rounds")}
        found["parts"] += f"; world: {laps(parts, *parts)}"
        found["world"] = max((m["came"] for m in reports), default=0.0) - began
        found["world_ok"] = sum(row[4] is True for m in reports for row in m["rows"])
        c.hosts["n0"].send({"op": "rest", "id": 2})
        c.until(lambda: len(c.of("free", id=2)) == count, 30)
        found["pairs"] = _pairs(c, count, size) - began
        found["pairs_ok"] = len(c.of("side", role="dst", ok=True))
    return found


def _pairs(c: Controller, count: int, size: int) -> float:
    """Run the pair layer as a session does, and return when its last number came."""
    pairs = [pair for one in each_round(count) for pair in one]
    dispatcher = Dispatcher(pairs, [None] * count, ["n0"] * count)
    running: dict[int, tuple[int, int]] = {}
    numbers = itertools.count(10)
    while dispatcher.waiting or running:
        for a, b in dispatcher.take():
            number = next(numbers)
            running[number] = (a, b)
            c.pair(number, a, b, bytes=size, iters=20, warmup=2, latency_iters=20, deadline=DEADLINE)
        c.until(lambda: any(len(c.of("free", id=n)) == 2 for n in running), DEADLINE + 15)
        for number in [n for n in running if len(c.of("free", id=n)) == 2]:
            dispatcher.done(*running.pop(number))
    return max(float(m["came"]) for m in c.of("side"))


def tool(gpus: list[str], size: int, python: str) -> Found:
    """Run the whole tool, and read from its recording when numbers came."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "r.jsonl.gz"
        argv = [python, "-m", "fabtui", "run", "--transport", "local", "--probes", "p2p", "--bytes", str(size)]
        began = time.time()
        done = subprocess.run(
            [*argv, "--quiet", "--record", str(recording)],
            env=environment(gpus),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        found: Found = {"whole": time.time() - began, "exit": done.returncode, "world_ok": 0, "pairs_ok": 0}
        for event in (one.to_json() for one in read_events(recording)):
            if event["kind"] == "phase":
                found.setdefault("phases", {}).setdefault(event["name"], event["time"] - began)
            for m in event.get("measurements", ()):
                name = {"world": "world", "p2p": "pairs"}.get(m["layer"])
                if name is not None and m["attempts"] == 1:
                    found[name] = event["time"] - began
                    found[f"{name}_ok"] += m["verdict"] == "ok"
    if "world" not in found:
        raise RuntimeError(f"no number came: {(done.stderr + done.stdout).strip()[-500:]}")
    return found


def sample(gpus: list[str]) -> Found:
    """Run the CUDA sample, built from its source where that has to be."""
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.which(SAMPLE) or next(iter(_search(SAMPLE)), None)
        if path is None:
            source, compiler = next(iter(_search(f"{SAMPLE}.cu")), None), _nvcc()
            if source is None or compiler is None:
                missing = "its source" if source is None else "nvcc"
                raise FileNotFoundError(f"not on this host, and {missing} neither")
            path = str(Path(folder) / SAMPLE)
            common = [f"-I{place}" for place in glob.glob(str(Path(source).parents[2] / "Common"))]
            common += [f"-I{place}" for place in glob.glob(str(Path(source).parents[3] / "Common"))]
            subprocess.run([compiler, "-O2", *common, source, "-o", path], check=True, capture_output=True, timeout=120)
        return {"seconds": _timed([path], gpus), "path": path}


def _search(name: str) -> list[str]:
    found = [path for place in SAMPLE_PLACES for path in glob.glob(f"{place}/{name}", recursive=True)]
    return [path for path in found if os.path.isfile(path) and (name.endswith(".cu") or os.access(path, os.X_OK))]


def _nvcc() -> str | None:
    return shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda*/bin/nvcc")), None)


def launches(gpus: list[str], size: int, python: str, runner: list[str]) -> Found:
    """Launch three jobs of two GPUs, one after the other."""
    last = len(gpus) - 1
    chosen = [(0, 1), (0, last), (last - 1, last)]
    program = str(ROOT / "tests" / "device" / "reference.py")
    seconds = []
    for a, b in chosen:
        two = [gpus[a], gpus[b]]
        words = ["--gpus", ",".join(two), "--bytes", str(size), "--repeats", "1"]
        seconds.append(_timed([python, *runner, program, *words], two))
    mean = sum(seconds) / len(seconds)
    return {"launches": seconds, "mean": mean, "extrapolated": mean * len(gpus) * (len(gpus) - 1)}


def _timed(argv: list[str], gpus: list[str]) -> float:
    began = time.monotonic()
    done = subprocess.run(argv, env=environment(gpus), capture_output=True, text=True, timeout=LIMIT, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return seconds


def attempt(what: str, work: Callable[[], Found]) -> Found:
    """Return what came of it, or why nothing did."""
    print(f"{what} ...", file=sys.stderr, flush=True)
    try:
        return work()
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}


def row(what: str, seconds: float | None, text: str = "") -> None:
    print(f"{what:48s} {'-' if seconds is None else f'{seconds:9.2f} s':>11}  {text}")


def bar(what: str, value: float | None, limit: float, *, most: bool, unit: str) -> None:
    if value is None:
        print(f"{what:48s} {'-':>11}  not measured")
        return
    met = value <= limit if most else value >= limit
    sign = "<=" if most else ">="
    print(f"{what:48s} {f'{value:.2f} {unit}':>11}  {sign} {limit:g} {unit}: {'met' if met else 'MISSED'}")


def ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def laps(seconds: dict[str, float], *names: str) -> str:
    return ", ".join(f"{name} {seconds[name]:.2f} s" for name in names if name in seconds)


def median(ones: list[Found], name: str) -> float | None:
    values = [one[name] for one in ones if name in one]
    return statistics.median(values) if values else None


def show(found: Found) -> None:
    count, ordered = found["gpus"], found["gpus"] * (found["gpus"] - 1)
    hosts, whole = found["rank_hosts"], found["fabtui_run"]
    version = next((one["version"] for one in hosts if "version" in one), "")
    print(f"{count} GPUs, {ordered} ordered pairs, messages of {found['bytes'] >> 20} MiB; {version}")
    print(f"cold: nothing has used the GPUs for {found['idle']:g} s before\n")
    for one in found["floors"]:
        row("floor", one.get("seconds"), one.get("error", "CUDA contexts alone"))
    alone = found["nccl_alone"]
    text = laps(alone.get("steps", {}), "contexts", "init", "connect")
    row("NCCL alone", alone.get("seconds"), alone.get("error", text))
    for name, one in (*(("rank host", one) for one in hosts), ("fabtui run", whole)):
        if "error" in one:
            row(name, None, one["error"])
            continue
        if "ready" in one:
            row(f"{name}: ready", one["ready"], one.get("parts", ""))
        row(f"{name}: last number of the world layer", one["world"], f"{one['world_ok']} of {ordered} ok")
        row(f"{name}: last number of the pair layer", one.get("pairs"), f"{one['pairs_ok']} of {ordered} ok")
        if "whole" in one:
            row(f"{name}: its end", one["whole"], "suspects again, GPUs given back, summary")
    row(SAMPLE, found["sample"].get("seconds"), found["sample"].get("error", found["sample"].get("path", "")))
    for name, one in found["launches"].items():
        if "error" in one:
            row(f"a launch a pair, {name}", None, one["error"])
        else:
            each = ", ".join(f"{seconds:.2f}" for seconds in one["launches"])
            row(f"a launch a pair, {name}: one", one["mean"], f"mean of {each}")
            row(f"a launch a pair, {name}: all {ordered}", one["extrapolated"], "extrapolated, not run")
    print()
    show_bars(found)


def show_bars(found: Found) -> None:
    """Print the ratios, and which of them the project asks for."""
    base, other = median(found["floors"], "seconds"), found["sample"].get("seconds")
    alone = found["nccl_alone"].get("seconds")
    for name, ones in (("rank host", found["rank_hosts"]), ("fabtui run", [found["fabtui_run"]])):
        world = median(ones, "world")
        bar(f"{name}: world layer to the floor", ratio(world, base), BAR_FLOOR, most=True, unit="x")
        bar(f"{name}: world layer to NCCL alone", ratio(world, alone), BAR_NCCL, most=True, unit="x")
        bar(f"{name}: faster than {SAMPLE}", ratio(other, world), BAR_SAMPLE, most=False, unit="x")
        for way, launch in found["launches"].items():
            times = ratio(launch.get("extrapolated"), world)
            bar(f"{name}: faster than a launch a pair, {way}", times, BAR_LAUNCH, most=False, unit="x")
        more = [one["pairs"] - one["world"] for one in ones if "pairs" in one and "world" in one]
        bar(f"{name}: pair layer added", statistics.median(more) if more else None, BAR_PAIRS, most=True, unit="s")


def measure(gpus: list[str], size: int, python: str, idle: float, repeat: int) -> Found:
    """Measure everything, one after the other."""

    def cold(what: str, work: Callable[[], Found]) -> Found:
        time.sleep(idle)
        return attempt(what, work)

    floors, hosts = [], []
    for _ in range(repeat):
        floors.append(cold("floor", lambda: floor(gpus)))
        hosts.append(cold("rank host", lambda: rank_host(gpus, size)))
    return {
        "gpus": len(gpus),
        "bytes": size,
        "idle": idle,
        "floors": floors,
        "rank_hosts": hosts,
        "nccl_alone": cold("NCCL alone", lambda: nccl_alone(gpus)),
        "fabtui_run": cold("fabtui run", lambda: tool(gpus, size, python)),
        "sample": cold(SAMPLE, lambda: sample(gpus)),
        "launches": {
            "torchrun": attempt("a launch a pair, torchrun", lambda: launches(gpus, size, python, TORCHRUN)),
            "bare": attempt("a launch a pair, bare", lambda: launches(gpus, size, python, [])),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, help="how many GPUs (all)")
    parser.add_argument("--bytes", default="256M", help="message size (256M)")
    parser.add_argument("--python", default=sys.executable, help="the Python that has fabtui and torch (this one)")
    parser.add_argument("--idle", type=float, default=7.0, help="seconds without use before each (7)")
    parser.add_argument("--repeat", type=int, default=3, help="floors and rank hosts (3)")
    options = parser.parse_args()
    text = options.bytes
    size = int(float(text[:-1]) * UNITS[text[-1].upper()]) if text[-1].upper() in UNITS else int(text)
    gpus = visible_gpus()[: options.gpus]
    if len(gpus) < 2:
        print(f"this host has {len(gpus)} GPUs that may be used; a matrix needs two", file=sys.stderr)
        return
    show(measure(gpus, size, options.python, options.idle, max(1, options.repeat)))


if __name__ == "__main__":
    main()
