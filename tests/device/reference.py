"""Reference values of torch.distributed between the GPUs of this host.

    python3 reference.py --gpus 0,1 --bytes 268435456 [--kinds p2p,all_reduce,sendrecv] [--iters 20] [--repeats 3]

    torchrun --standalone --nproc-per-node 2 reference.py --gpus 0,1

Starts a process for each GPU (under torchrun it is one already), NCCL backend, and prints one line of JSON: for p2p the
rate of each direction of the first two GPUs, one way, by the receiver's CUDA events; for the collectives the
algorithm's bandwidth by the slowest rank, in place; each the median of the repeats, in GB/s. Started with two GPUs it
is what a script that launches a job for each pair runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

WARMUP = 5
#: Seconds after which ranks that wait for each other are given up.
LIMIT = 180.0


def timed(torch: Any, work: Callable[[], Any], iters: int) -> float:
    """Return the seconds of one turn, on this rank, by CUDA events."""
    for _ in range(WARMUP):
        work()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(iters):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / iters


def measure(kind: str, torch: Any, dist: Any, size: int, iters: int) -> dict[str, float]:
    """Measure something once; every rank returns what all ranks saw."""
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.ones(size // 4, dtype=torch.float32, device="cuda")
    into = torch.empty_like(data)

    def slowest(seconds: float) -> float:
        elapsed = torch.tensor([seconds], dtype=torch.float64, device="cuda")
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        return float(elapsed.item())

    def both_neighbours() -> None:
        ops = [dist.P2POp(dist.isend, data, (rank + 1) % world), dist.P2POp(dist.irecv, into, (rank - 1) % world)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()

    found: dict[str, float] = {}
    if kind == "p2p":
        for src, dst in ((0, 1), (1, 0)):
            seconds = 0.0
            if rank == src:
                timed(torch, lambda dst=dst: dist.send(data, dst), iters)  # type: ignore[misc]
            elif rank == dst:
                seconds = timed(torch, lambda src=src: dist.recv(into, src), iters)  # type: ignore[misc]
            found[f"{src}>{dst}"] = size / slowest(seconds) / 1e9
    elif kind == "all_reduce":
        found[kind] = size / slowest(timed(torch, lambda: dist.all_reduce(data), iters)) / 1e9
    elif kind == "sendrecv":
        found[kind] = size / slowest(timed(torch, both_neighbours, iters)) / 1e9
    else:
        raise SystemExit(f"unknown kind {kind}")
    return found


def serve(options: argparse.Namespace, rank: int, world: int, meeting: str) -> None:
    """Run one rank, which meets the others at the URL ``meeting``."""
    import torch.cuda.nccl
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=world)
    nccl: Any = torch.cuda.nccl
    results: dict[str, Any] = {"torch": torch.__version__, "nccl": ".".join(map(str, nccl.version()))}
    for kind in options.kinds.split(","):
        for size in (int(word) for word in options.bytes.split(",")):
            runs = [measure(kind, torch, dist, size, options.iters) for _ in range(options.repeats)]
            for name in runs[0]:
                results.setdefault(name, {})[size] = statistics.median(run[name] for run in runs)
    if rank == 0:
        print(json.dumps(results), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", required=True, help="what CUDA_VISIBLE_DEVICES may name, with commas")
    parser.add_argument("--bytes", default=str(256 << 20), help="message sizes, with commas")
    parser.add_argument("--kinds", default="p2p")
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    gpus = options.gpus.split(",")
    if options.rank is not None:
        number, _, meeting = options.rank.partition(",")
        serve(options, int(number), len(gpus), f"file://{meeting}")
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        serve(options, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
        return
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--rank", f"{number},{folder}/meeting"],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": options.gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            )
            for number in range(len(gpus))
        ]
        try:
            sys.exit(_wait(ranks))
        finally:
            for process in ranks:
                process.kill()


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    """Return 0 when all ranks ended well; as soon as one did not, or all take too long, an exit code."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        codes = [process.poll() for process in ranks]
        if any(codes):
            return 1
        if None not in codes:
            return 0
        # Finer than what is compared with the time of a whole launch.
        time.sleep(0.02)
    return 2


if __name__ == "__main__":
    main()
