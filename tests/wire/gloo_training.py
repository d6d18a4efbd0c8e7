"""A rank of a training on CPUs that prints iterations as Megatron-LM does; not a test.

Usage: RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python gloo_training.py

SIGUSR1 makes it sleep in the next iteration, as a slow data loader does, and SIGUSR2 wakes it up. When another rank
dies, it waits, as with NCCL.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import threading
import time
from typing import Any

import torch
import torch.distributed

c10d: Any = torch.distributed


class Wake(Exception):
    """Ends the sleep."""


def load_data(*_: object) -> None:
    with contextlib.suppress(Wake):
        time.sleep(600)


def wake(*_: object) -> None:
    raise Wake


def group() -> Any:
    """Return the group of all ranks; without these modules, the functions of torch.distributed do nothing."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = c10d.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, serves)
    return c10d.ProcessGroupGloo(store, rank, world, datetime.timedelta(minutes=30))


def main() -> None:
    signal.signal(signal.SIGUSR1, load_data)
    signal.signal(signal.SIGUSR2, wake)
    ranks = group()
    numbers = torch.ones(1024)
    while time.process_time() < 1.1:
        # A process that has not worked yet only holds an allocation, as fabtui sees it.
        numbers.sum()
    at = 0
    while True:
        began = time.monotonic()
        try:
            ranks.allreduce([numbers]).wait()
        except RuntimeError:
            threading.Event().wait()
        numbers /= ranks.size()
        time.sleep(0.1)
        at += 1
        if os.environ["RANK"] == "0":
            elapsed = (time.monotonic() - began) * 1000
            print(
                f" iteration {at:8d}/ 1000000 | elapsed time per iteration (ms): {elapsed:.1f} | lm loss: 1.0 |",
                flush=True,
            )


main()
