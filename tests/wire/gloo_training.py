"""A rank of a training on CPUs that prints iterations as Megatron-LM does; not a test.

Usage: RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python gloo_training.py
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    numbers = torch.ones(1024)
    at = 0
    while True:
        began = time.monotonic()
        dist.all_reduce(numbers)
        numbers /= dist.get_world_size()
        time.sleep(0.1)
        at += 1
        if os.environ["RANK"] == "0":
            elapsed = (time.monotonic() - began) * 1000
            print(
                f" iteration {at:8d}/ 1000000 | elapsed time per iteration (ms): {elapsed:.1f} | lm loss: 1.0 |",
                flush=True,
            )


main()
