"""A rank of a training on CPUs that goes wrong in the way that a file names; not a test.

Usage: RANK=0 WORLD_SIZE=3 MASTER_ADDR=10.2.0.1 MASTER_PORT=29500 python faulty_training.py FOLDER

Rank 1 does what ``FOLDER/fault`` names, from its next iteration on. A rank that loses another waits, as with NCCL.
"""

import datetime
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed

c10d: Any = torch.distributed
FOLDER = Path(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


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
    "straggler": lambda: spin(0.5),
}


def main() -> None:
    # The agent of torchrun has a store of its own.
    serves = RANK == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = c10d.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, serves)
    ranks = c10d.ProcessGroupGloo(store, RANK, WORLD, datetime.timedelta(minutes=30))
    numbers = torch.ones(1 << 16)
    spin(1.1)
    at, fault = 0, FOLDER / "fault"
    while True:
        began = time.monotonic()
        if RANK == 1 and fault.exists() and (name := fault.read_text()) in FAULTS:
            FAULTS[name]()
        try:
            if RANK == 1 and fault.exists() and fault.read_text() == "collective":
                ranks.broadcast([numbers]).wait()
            ranks.allreduce([numbers]).wait()
        except RuntimeError as error:
            print(f"rank {RANK}: {error}", flush=True)
            threading.Event().wait()
        numbers /= ranks.size()
        time.sleep(0.1)
        at += 1
        elapsed = (time.monotonic() - began) * 1000
        if RANK == 0:
            print(
                f" iteration {at:8d}/ 1000000 | elapsed time per iteration (ms): {elapsed:.1f} | loss: 1.0 |",
                flush=True,
            )


main()
