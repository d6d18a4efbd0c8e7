"""A rank of a training that goes wrong in the way that a file names; not a test.

Usage: RANK=0 WORLD_SIZE=3 MASTER_ADDR=10.2.0.1 MASTER_PORT=29500 python faulty_training.py FOLDER [nccl]

Rank 1 does what ``FOLDER/fault`` names, from its next iteration on. A rank that loses another waits, as with NCCL. With
``nccl``, all ranks use the first GPU.
"""

import datetime
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.utils.data

c10d: Any = torch.distributed
FOLDER = Path(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ON_GPU = "nccl" in sys.argv


def spin(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def load_batch(seconds: float) -> None:
    time.sleep(seconds)


def wait_for_partner() -> None:
    (FOLDER / "fifo").open("rb").read()


def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def evaluate() -> None:
    load_batch(600)


def long_kernel() -> None:
    if ON_GPU:
        torch.cuda._sleep(int(2e9 * 60))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    else:
        spin(600)


def catch_out_of_memory() -> None:
    try:
        torch.empty(1 << 48, dtype=torch.uint8, device="cuda" if ON_GPU else "cpu")
    except RuntimeError as error:
        print(f"torch.OutOfMemoryError: CUDA out of memory. {error}", flush=True)
        time.sleep(600)


class Batches(torch.utils.data.IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while not (FOLDER / "fault").exists() or RANK != 1:
            time.sleep(0.01)
            yield torch.zeros(4)
        time.sleep(600)


def next_batch() -> None:
    # Its workers have the variables of the rank, as data loaders do.
    global batches
    if batches is None:
        batches = iter(torch.utils.data.DataLoader(Batches(), num_workers=2))
    next(batches)


batches: Iterator[torch.Tensor] | None = None


def fail() -> None:
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("planted: bad sample 77")


FAULTS: dict[str, Callable[[], object]] = {
    "loop": lambda: spin(600),
    "fifo": wait_for_partner,
    "sleep": lambda: load_batch(600),
    "child": lambda: subprocess.run(["sleep", "600"], check=False),
    "exit": lambda: os._exit(0),
    "exception": fail,
    "lock": deadlock,
    "late": lambda: load_batch(3.0),
    "late 0.05": lambda: load_batch(0.05),
    "late 0.4": lambda: load_batch(0.4),
    "evaluation": evaluate,
    "kernel": long_kernel,
    "memory": catch_out_of_memory,
    "straggler": lambda: spin(0.5),
}


class Ranks:
    """The ranks, by Gloo or by NCCL."""

    def __init__(self) -> None:
        # The agent of torchrun has a store of its own.
        serves = RANK == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        store = c10d.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, serves)
        patience = datetime.timedelta(minutes=30)
        self.numbers = torch.ones(1 << 16)
        if ON_GPU:
            # NCCL takes ranks of one GPU for ranks of different hosts.
            os.environ.setdefault("NCCL_HOSTID", f"{os.environ['MASTER_PORT']}-{RANK}")
            torch.cuda.set_device(0)
            c10d.init_process_group("nccl", store=store, rank=RANK, world_size=WORLD, timeout=patience)
            self.numbers, self.product = self.numbers.cuda(), torch.randn(1024, 1024, device="cuda")
        else:
            self._gloo = c10d.ProcessGroupGloo(store, RANK, WORLD, patience)

    def iterate(self, other: bool) -> None:
        """Work, and reduce; ``other``: call another collective first."""
        if ON_GPU:
            for _ in range(10):
                self.product @ self.product
            _ = c10d.broadcast(self.numbers, 0) if other else None
            c10d.all_reduce(self.numbers)
            torch.cuda.synchronize()
        else:
            _ = self._gloo.broadcast([self.numbers]).wait() if other else None
            self._gloo.allreduce([self.numbers]).wait()
            time.sleep(0.1)
        self.numbers /= WORLD


def main() -> None:
    ranks = Ranks()
    spin(1.1)
    at, fault = 0, FOLDER / "fault"
    while True:
        began = time.monotonic()
        name = fault.read_text() if RANK == 1 and fault.exists() else ""
        if name in FAULTS:
            FAULTS[name]()
        try:
            ranks.iterate(name == "collective")
            if "workers" in sys.argv:
                next_batch()
        except RuntimeError as error:
            print(f"rank {RANK}: {error}", flush=True)
            threading.Event().wait()
        at += 1
        elapsed = (time.monotonic() - began) * 1000
        if RANK == 0 and (at % 20 == 0 or not ON_GPU):
            print(
                f" iteration {at:8d}/ 1000000 | elapsed time per iteration (ms): {elapsed:.1f} | loss: 1.0 |",
                flush=True,
            )


if __name__ == "__main__":
    main()
