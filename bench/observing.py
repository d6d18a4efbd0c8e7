"""Cost of observing a running job: CPU of the node side per sample, and of the login node by the number of nodes.

    python bench/observing.py [--nodes 64,512] [--samples 30] [--nvml] [--beside] [--json]

The node side reads eight ranks, each with two data loaders, and eight GPUs: played ones, which answer at once, or with
``--nvml`` those of this machine. The login node takes in a sample of each node per second, judges the job once per
second, and records; the nodes are simulated, with eight ranks and GPUs each. CPU is of this process, user and system.

``--beside`` also starts a training of three CPU ranks (PyTorch). Its iterations alone are compared with those beside
snapshots. The time of a snapshot is measured of a job that moves and of one that hangs. It needs a quiet machine.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabtui.diagnosis.job.judge import job_verdict
from fabtui.model.events import JobEvidence, SessionStart
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import Journal
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.job_session import PATIENCE, observed
from fabtui_node.probes.job.activity import Activity
from fabtui_node.probes.nvidia import nvml
from tests.device.job_faults import Job

#: Share of a processor that the node side may take at one sample per second.
BAR_NODE = 0.01
#: Share of a processor that the login node may take for each node.
BAR_LOGIN = 0.002
#: Times of an iteration beside snapshots over alone; time (s) of a snapshot of a job that moves, and that hangs.
BARS_BESIDE = {"iterations": 1.01, "moves": 6.0, "hangs": 9.0}
#: Rounds of iterations alone and beside, and length (s) of a round alone.
_ROUNDS, _ALONE = 3, 8.0
RANKS = GPUS = 8
_SLEEP = "import time; time.sleep(600)"
_RANK = f"import subprocess, sys\nfor _ in range(2): subprocess.Popen([sys.executable, '-c', {_SLEEP!r}])\n{_SLEEP}"


class PlayedGpus:
    """An NVML whose GPUs answer at once."""

    NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 186, 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        known = {
            "nvmlDeviceGetCount": GPUS,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=95, memory=30),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 34),
            "nvmlDeviceGetComputeRunningProcesses": [],
        }

        def question(*args: Any) -> Any:
            if name == "nvmlDeviceGetFieldValues":
                value = SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=698_000))
                return [value for _ in args[1]]
            return args[0] if name == "nvmlDeviceGetHandleByIndex" else known.get(name, 1)

        return question


def node_side(samples: int, real: bool) -> dict[str, float]:
    """Return CPU and time (s) of a sample of the node side, slow readings included."""
    variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK],
            env={**variables, "RANK": str(at), "LOCAL_RANK": str(at), "WORLD_SIZE": str(RANKS)},
            start_new_session=True,
        )
        for at in range(RANKS)
    ]
    try:
        time.sleep(2.0)
        reader = Activity(open_library=nvml.open_library if real else PlayedGpus)
        value = reader.read(time.monotonic() + 30)
        assert len(value["ranks"]) >= RANKS, "the ranks are found"
        cpu, wall = time.process_time(), 0.0
        for _ in range(samples):
            began = time.monotonic()
            reader.read(began + 5)
            wall += time.monotonic() - began
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
        return {
            "cpu": (time.process_time() - cpu) / samples,
            "wall": wall / samples,
            "gpus": len(value["gpus"]),
            "bytes": len(json.dumps(value)),
        }
    finally:
        for one in ranks:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def sample(node: int, second: int) -> dict[str, Any]:
    ranks = [
        {
            **{"rank": node * RANKS + at, "local_rank": at, "world": 0, "pid": 1000 + at, "name": "python3"},
            **{"gpus": [at], "job": "7", "env": {"LOCAL_WORLD_SIZE": "8"}, "state": "R", "wait": None},
            **{"cpu": second * 1.0, "cpu_all": second * 1.5, "age": 900.0 + second, "files": 7, "written": 0},
        }
        for at in range(RANKS)
    ]
    gpus = [
        {
            **{"index": at, "uuid": f"GPU-{node}-{at}", "util": 95, "power": 698.0, "limit": 700.0, "clock": 1400},
            **{
                "throttle": [],
                "used": 1 << 34,
                "nvlink_tx": second << 33,
                "nvlink_rx": second << 33,
                "pids": [1000 + at],
            },
        }
        for at in range(GPUS)
    ]
    nics = {f"mlx5_{at}/1": {"rx": second << 32, "tx": second << 32, "errors": 0, "retransmits": 0} for at in range(8)}
    value = {"time": second * 1.0, "clock": second * 1.0, "ranks": ranks, "gpus": gpus, "nics": nics}
    return {**value, "kernel": [], "oom": 0, "problems": []}


def login_side(nodes: int, seconds: int) -> dict[str, float]:
    """Return CPU (s) per second of observing for taking in, judging and recording, and the memory of the history."""
    names = [f"n{at:03}" for at in range(nodes)]
    model = Model()
    model.apply(SessionStart(names))
    take = judge = record = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.jsonl.gz"
        journal = Journal(path)
        for second in range(seconds):
            texts = [json.dumps(sample(at, second)) for at in range(nodes)]
            began = time.process_time()
            events = [
                JobEvidence(name, "activity", json.loads(text), time=1e9 + second)
                for name, text in zip(names, texts, strict=True)
            ]
            for event in events:
                model.apply(event)
            taken = time.process_time()
            verdict = job_verdict(model)
            judged = time.process_time()
            journal.append(events)
            record += time.process_time() - judged
            take, judge = take + taken - began, judge + judged - taken
        assert verdict is not None
        assert len(verdict.ranks) == nodes * RANKS
        journal.close()
        size = path.stat().st_size
    parts = {"take": take / seconds, "judge": judge / seconds, "record": record / seconds}
    return {**parts, "cpu": sum(parts.values()), "recorded": size / seconds}


async def snapshot() -> tuple[str, float]:
    """Return the state of the job on this machine, and how long (s) the snapshot took."""
    options = SessionOptions(hosts=("localhost",), transport="local")
    async with observed(options, lambda _: None, patience=PATIENCE) as session:
        began = time.monotonic()
        verdict = await session.snapshot()
        return "none" if verdict is None else str(verdict.state), time.monotonic() - began


def beside() -> dict[str, float]:
    """Return what `BARS_BESIDE` is about."""
    times: dict[str, list[float]] = {"alone": [], "beside": []}
    taken: dict[str, list[float]] = {"moves": [], "hangs": []}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder) / "job", 29700, [], 3)
        try:
            assert job.works(), "the training does not start"
            for _ in range(_ROUNDS):
                for kind, kept in times.items():
                    before = job.log.stat().st_size
                    if kind == "alone":
                        time.sleep(_ALONE)
                    else:
                        state, seconds = asyncio.run(snapshot())
                        assert state == "moves", state
                        taken["moves"].append(seconds)
                    kept += map(float, re.findall(r"\(ms\): ([0-9.]+)", job.log.read_text()[before:]))
            job.plant("STOP")
            time.sleep(4.0)
            taken["hangs"].append(asyncio.run(snapshot())[1])
        finally:
            job.end()
    return {"iterations": median(times["beside"]) / median(times["alone"]), **{k: max(v) for k, v in taken.items()}}


def main() -> int:
    """Run the benchmark; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="64,512", metavar="LIST", help="numbers of nodes (%(default)s)")
    parser.add_argument("--samples", type=int, default=30, metavar="N", help="samples of the node side (%(default)s)")
    parser.add_argument("--nvml", action="store_true", help="ask the GPUs of this machine")
    parser.add_argument("--beside", action="store_true", help="also iterations of a training beside snapshots of it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    found: dict[str, Any] = {"node": node_side(args.samples, args.nvml)}
    for nodes in map(int, filter(None, args.nodes.split(","))):
        found[str(nodes)] = login_side(nodes, 60 if nodes <= 64 else 20)
    missed = [] if found["node"]["cpu"] <= BAR_NODE else ["node side"]
    missed += [name for name, one in found.items() if name != "node" and one["cpu"] > BAR_LOGIN * int(name)]
    compared = beside() if args.beside else {}
    missed += [name for name, value in compared.items() if value > BARS_BESIDE[name]]
    if args.json:
        print(json.dumps({**found, **({"beside": compared} if compared else {}), "missed": missed}))
        return int(bool(missed))
    node = found["node"]
    print(
        f"node side, {RANKS} ranks, {node['gpus']:.0f} GPUs: {1e3 * node['cpu']:.1f} ms CPU"
        f" ({1e3 * node['wall']:.1f} ms) per sample, {node['bytes'] / 1e3:.1f} kB (bar {1e3 * BAR_NODE:.0f} ms)"
    )
    for name, one in found.items():
        if name != "node":
            print(
                f"login node, {name} nodes: {100 * one['cpu']:.1f} % of a processor: samples {100 * one['take']:.1f},"
                f" verdict {100 * one['judge']:.1f}, recording {100 * one['record']:.1f}"
                f" ({one['recorded'] / 1e3:.0f} kB/s; bar {100 * BAR_LOGIN * int(name):.0f} %)"
            )
    for name, value in compared.items():
        print(f"beside a training, {name}: {value:.3f} (bar {BARS_BESIDE[name]})")
    print("missed: " + ", ".join(missed) if missed else "all bars are met")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
